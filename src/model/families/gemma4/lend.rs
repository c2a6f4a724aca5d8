//! Keys and values that a target lends to its assistant.

use candle_core::Tensor;

use crate::model::ModelError;
use crate::model::families::gemma4::config::Reach;
use crate::model::nn::kv_cache::KvCache;

/// Keys and values of one layer, `[kv_heads, n, head_dim]` each; normed, keys rotated.
#[derive(Clone)]
pub(super) struct LentLayer {
    pub(super) keys: Tensor,
    pub(super) values: Tensor,
}

impl LentLayer {
    fn of(cache: &KvCache, len: usize) -> Result<Self, ModelError> {
        let (keys, values) = cache.prefix(len)?;
        Ok(Self { keys, values })
    }
}

/// The present keys and values of the layers that assistants read, one of each kind that the target has. They are no
/// copy: what the target writes behind them later does not show, and what it takes back must not be read any more.
#[derive(Clone)]
pub struct Lent {
    sliding: Option<LentLayer>,
    full: Option<LentLayer>,
    len: usize,
}

impl Lent {
    pub(super) fn of(sliding: Option<&KvCache>, full: Option<&KvCache>, len: usize) -> Result<Self, ModelError> {
        let layer = |cache: Option<&KvCache>| cache.map(|cache| LentLayer::of(cache, len)).transpose();
        Ok(Self { sliding: layer(sliding)?, full: layer(full)?, len })
    }

    /// The layer of a kind.
    pub(super) fn layer(&self, reach: Reach) -> Result<&LentLayer, ModelError> {
        let layer = match reach {
            Reach::Sliding => &self.sliding,
            Reach::Full => &self.full,
        };
        layer.as_ref().ok_or_else(|| ModelError::Unsupported("the target has no layer of a kind that is read".into()))
    }

    /// Positions that are lent.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}
