//! Packs the block of a draft module whose tensors come as plain numbers.

use super::{
    attention::{Adds, Attention},
    feed::{Feed, Gated},
    gate_up::GateUp,
    layer::{BlockShape, Layer, NormWeight},
    load_feed::check_width,
    matrix::Matrix,
    mixer::Mixer,
    rule::Rule,
};
use crate::ModelError;
use crate::nn::Activation;
use draftscope_kernels::LANES;

/// A norm's weights by lanes.
pub(crate) fn lanes(weight: &[f32]) -> NormWeight {
    weight.as_chunks::<LANES>().0.to_vec()
}

/// Returns the numbers of a tensor by the part of its name and its shape.
type Read<'a, Shape> = &'a dyn Fn(&str, Shape) -> Result<Vec<f32>, ModelError>;

/// Reads numbers by the part of a tensor's name in GGUF files, and packs rows of `k` of them.
pub(crate) struct BlockPacker<'a> {
    /// Numbers of a matrix `[rows, k]`.
    pub(crate) matrix: Read<'a, [usize; 2]>,
    /// Weights of a norm.
    pub(crate) norm: Read<'a, usize>,
    /// Rows of so many numbers.
    pub(crate) pack: &'a dyn Fn(usize, &[f32]) -> Matrix,
}

impl BlockPacker<'_> {
    /// A block whose attention reads rows of `input` values, with a gated layer of this width.
    ///
    /// # Errors
    /// When a tensor is missing, misshapen or damaged.
    pub(crate) fn layer(
        &self,
        shape: &BlockShape,
        (input, d_ff, qk_norm): (usize, usize, bool),
    ) -> Result<Layer, ModelError> {
        check_width(d_ff)?;
        let BlockShape { d_model: d, heads, kv_heads, head_dim, .. } = *shape;
        let norm = |part: &str, width: usize| (self.norm)(part, width).map(|weight| lanes(&weight));
        let packed =
            |part: &str, rows: usize, k: usize| (self.matrix)(part, [rows, k]).map(|numbers| (self.pack)(k, &numbers));
        let mut qkv = Vec::new();
        for (part, heads) in [("attn_q", heads), ("attn_k", kv_heads), ("attn_v", kv_heads)] {
            qkv.extend((self.matrix)(part, [heads * head_dim, input])?);
        }
        Ok(Layer {
            attn_norm: norm("attn_norm", d)?,
            mixer: Mixer::Attention(Attention {
                shape: *shape,
                adds: Adds::KeysAndValues,
                cache: 0,
                qkv: (self.pack)(input, &qkv),
                head_norms: match qk_norm {
                    true => [Some(norm("attn_q_norm", head_dim)?), Some(norm("attn_k_norm", head_dim)?), None],
                    false => [const { None }; 3],
                },
                width_norms: None,
                rule: Rule::usual(head_dim),
                gated: false,
            }),
            out: packed("attn_output", d, heads * head_dim)?,
            ffn_norm: norm("ffn_norm", d)?,
            feed: Feed::Dense(Gated {
                gate_up: GateUp::of_rows(
                    d,
                    [&(self.matrix)("ffn_gate", [d_ff, d])?, &(self.matrix)("ffn_up", [d_ff, d])?],
                    |rows| (self.pack)(d, rows),
                ),
                activation: Activation::Silu,
                down: packed("ffn_down", d, d_ff)?,
            }),
            after_norms: None,
            raw: [false; 2],
            scales: [1.0; 2],
            token_input: None,
            factor: 1.0,
        })
    }
}
