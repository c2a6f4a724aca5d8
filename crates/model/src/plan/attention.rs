//! The mixers that attend.

use super::end::Rotation;
use super::matrix::{Matrix, Norm, Rows};
use crate::ModelError;
use crate::files::TensorSource;

/// Attention with several heads (Vaswani et al., arXiv:1706.03762). Each head has a query of its own; heads may share keys
/// and values in groups (Ainslie et al., arXiv:2305.13245).
///
/// ```text
///   q, k, v = W x          of each head: norm, then rotation, of q and k
///   score   = scale · q · k_j, perhaps capped, for each position j in sight
///   answer  = Σ softmax(score)_j v_j          all heads side by side, perhaps times sigmoid(W_gate x)
///   update  = W_o answer
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Attention {
    /// Query heads.
    pub heads: usize,
    /// Key/value heads; `heads` is a multiple. Query head `h` reads head `h · kv_heads / heads`.
    pub kv_heads: usize,
    /// Width of a head's query and key.
    pub key_width: usize,
    /// Width of a head's value.
    pub value_width: usize,
    /// `[heads · key_width, d]`. With [`Rotation::pairs`] interleaved its rows, those of its bias and those of keys lie in that
    /// order; so a backend that rotates halves reorders all of them.
    pub q: Matrix,
    /// Norm of queries.
    pub q_norm: Option<HeadNorm>,
    /// Whose keys and values are read.
    pub keys: Keys,
    /// `[d, heads · value_width]`
    pub o: Matrix,
    /// How queries and keys are rotated; `None`: not at all.
    pub rotation: Option<Rotation>,
    /// Factor of scores.
    pub scale: f64,
    /// `c` of c·tanh(score / c), if scores are capped.
    pub cap: Option<f64>,
    /// Which positions a row sees.
    pub sight: Sight,
    /// `[heads · value_width, d]`: answers are multiplied by the sigmoid of this.
    pub gate: Option<Matrix>,
}

/// Keys and values that a layer reads.
#[derive(Clone, Debug, PartialEq)]
#[allow(clippy::large_enum_variant, reason = "nearly all layers have keys of their own")]
pub enum Keys {
    /// Its own, which are cached.
    Own(KeysAndValues),
    /// Those of an earlier layer, which already has those of the pass's rows.
    OfLayer(usize),
    /// Those of the target that a draft module drafts for: of its last layer with keys and values of its own that has a window
    /// too, or none too.
    OfTarget,
}

/// How keys and values are made.
#[derive(Clone, Debug, PartialEq)]
pub struct KeysAndValues {
    /// `[kv_heads · key_width, d]`
    pub k: Matrix,
    /// `[kv_heads · value_width, d]`; `None`: keys, before their norm and rotation, serve as values.
    pub v: Option<Matrix>,
    /// Norm of keys.
    pub k_norm: Option<HeadNorm>,
    /// Norm of each head's values.
    pub v_norm: Option<Norm>,
}

/// What a norm of queries or keys goes over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Over {
    /// Each head by itself; all heads have the same weights.
    Head,
    /// All heads as one row.
    Width,
}

/// Norm of queries or keys before they are rotated.
#[derive(Clone, Debug, PartialEq)]
pub struct HeadNorm {
    /// The norm; its weights are as many as a head has values, or all heads have.
    pub norm: Norm,
    /// What it goes over.
    pub over: Over,
}

/// Which positions a row sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sight {
    /// Only so many, the last one being its own; `None` = all.
    pub window: Option<usize>,
    /// Whether it sees no position after its own.
    pub causal: bool,
}

impl Sight {
    /// All positions up to the row's own.
    pub const PAST: Self = Self { window: None, causal: true };
}

/// Attention over one row per position, which all heads share (DeepSeek-V2, arXiv:2405.04434, section 2.1): the normed
/// *latent* of `rank` values, and a key of `rotated` values.
///
/// A head's key is `W_k latent` beside the rotated key, its value `W_v latent`. Neither is computed: `W_k` is multiplied into
/// the query and `W_v` into the answer, so that all heads attend over the same short rows, and only those are cached.
#[derive(Clone, Debug, PartialEq)]
pub struct Latent {
    /// Heads.
    pub heads: usize,
    /// Width of the latent.
    pub rank: usize,
    /// Values of a head's query, and key, that are not rotated; they come first.
    pub plain: usize,
    /// Values of a head's query, and of the key that all heads share, that are rotated.
    pub rotated: usize,
    /// Width of a head's value.
    pub value: usize,
    /// How queries are made.
    pub queries: LatentQueries,
    /// `[rank + rotated, d]`: the row to be cached, before `kv_norm` of its latent and rotation of its key.
    pub kv: Matrix,
    /// Norm of the latent.
    pub kv_norm: Norm,
    /// `W_k` of each head, transposed: `[rank, plain]`.
    pub to_keys: Folded,
    /// `W_v` of each head: `[value, rank]`.
    pub to_values: Folded,
    /// `[d, heads · value]`
    pub o: Matrix,
    /// How the rotated parts are rotated.
    pub rotation: Rotation,
    /// Factor of scores.
    pub scale: f64,
}

impl Latent {
    /// Whether the files make queries as the configuration says.
    ///
    /// # Errors
    /// [`ModelError::Metadata`] naming the key.
    pub fn check(&self, files: &dyn TensorSource) -> Result<(), ModelError> {
        let block = self.kv.name().split('.').nth(1).unwrap_or_default();
        let has = |part: &str| files.has(&format!("blk.{block}.{part}.weight"));
        Err(ModelError::Metadata(match &self.queries {
            LatentQueries::Squeezed(down, ..) if !has("attn_q_a") && has("attn_q") => {
                format!("'q_lora_rank' is {} and layer {block} has one matrix for queries ('q_proj')", down.rows)
            }
            LatentQueries::Direct(_) if has("attn_q_a") => {
                format!("'q_lora_rank' is not set and layer {block} squeezes its queries ('q_a_proj')")
            }
            LatentQueries::Squeezed(..) | LatentQueries::Direct(_) => return Ok(()),
        }))
    }
}

/// How queries of latent attention are made, `heads · (plain + rotated)` values.
#[derive(Clone, Debug, PartialEq)]
pub enum LatentQueries {
    /// `[heads · (plain + rotated), d]`
    Direct(Matrix),
    /// Through a low rank: `[rank of queries, d]`, a norm, `[heads · (plain + rotated), rank of queries]`.
    Squeezed(Matrix, Norm, Matrix),
}

/// A matrix `[out, columns]` for each head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Folded {
    /// Heads.
    pub heads: usize,
    /// Rows of a head's matrix.
    pub out: usize,
    /// Columns of a head's matrix.
    pub columns: usize,
    /// The rows of all heads.
    pub stored: Rows,
    /// Whether the stored matrices are `[columns, out]` and have to be transposed.
    pub transposed: bool,
}

impl Folded {
    /// Number of weights.
    #[must_use]
    pub fn weights(&self) -> u64 {
        (self.heads * self.out * self.columns) as u64
    }
}
