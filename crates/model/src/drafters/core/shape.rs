//! Shape of a module's cache on candle.

use crate::nn::TransformerConfig;
use crate::options::PassForm;

/// How large a module's cache is, and how its passes run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MtpShape {
    /// Width of the hidden state.
    pub d_model: usize,
    /// Key/value heads.
    pub kv_heads: usize,
    /// Width of a head.
    pub head_dim: usize,
    /// Slots in the cache.
    pub ctx_len: usize,
    /// How passes run.
    pub form: PassForm,
}

impl MtpShape {
    /// For a module whose block has these sizes.
    #[must_use]
    pub fn of(c: &TransformerConfig, ctx_len: usize, form: PassForm) -> Self {
        Self { d_model: c.d_model, kv_heads: c.kv_heads, head_dim: c.head_dim, ctx_len, form }
    }
}
