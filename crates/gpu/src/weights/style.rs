//! What blocks and ends of other families have that Llama's do not: data that the same kernels read.

use super::delta::DeltaWeights;
use super::layer_inputs::{LayerInput, LayerTable};
use super::shape::Shape;

/// What a block has besides Llama's; the default is nothing.
#[derive(Clone, Debug, Default)]
pub struct Style {
    /// Sizes of its own; `None` = the model's.
    pub shape: Option<Shape>,
    /// Cosine and sine of its own, `[positions][rotary / 2]`; `None` = the model's.
    pub angles: Option<wgpu::Buffer>,
    /// Values of a head that are rotated, from the first; `None` = all.
    pub rotary: Option<usize>,
    /// Positions that a row sees, its own included; `None` = all.
    pub window: Option<usize>,
    /// What queries are multiplied by; `None` = 1 / √head_dim.
    pub query_scale: Option<f32>,
    /// `c` of c·tanh(score / c).
    pub score_cap: Option<f32>,
    /// Whether the feed-forward layer has GELU (its tanh formula) instead of SiLU.
    pub gelu: bool,
    /// Norms of the outputs of attention and of the feed-forward layer before they are added: `[d_model]` each.
    pub post_norms: Option<[wgpu::Buffer; 2]>,
    /// A recurrent layer instead of attention.
    pub delta: Option<DeltaWeights>,
    /// The block before whose keys and values it reads; `qkv` then yields queries alone.
    pub reads: Option<usize>,
    /// Whether values are normed: `head_norms` then is `[3][head_dim]`.
    pub norms_values: bool,
    /// What it adds for the token after the feed-forward layer, where outputs are normed.
    pub layer_input: Option<LayerInput>,
    /// What its output is multiplied by, where outputs are normed; `None` = nothing.
    pub output_scale: Option<f32>,
    /// Whether `heads head_dim` more rows of `qkv`, after the values', are gates of the attention's output.
    pub gated: bool,
}

/// What a target has around its blocks besides Llama's; the default is nothing.
#[derive(Clone, Debug)]
pub struct EndStyle {
    /// What embeddings are multiplied by.
    pub embedding_scale: f32,
    /// `c` of c·tanh(logit / c).
    pub logit_cap: Option<f32>,
    /// What blocks add for each token.
    pub layer_table: Option<LayerTable>,
}

impl Default for EndStyle {
    fn default() -> Self {
        Self { embedding_scale: 1.0, logit_cap: None, layer_table: None }
    }
}
