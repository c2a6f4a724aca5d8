//! Keys and values that a target lends to its assistant.

use candle_core::Tensor;

use crate::model::ModelError;
use crate::model::cache::KvCache;

/// Keys and values of one layer, `[kv_heads, n, head_dim]` each; normed, keys rotated.
#[derive(Clone)]
pub(super) struct LentLayer {
    pub(super) keys: Tensor,
    pub(super) values: Tensor,
}

/// The present keys and values of the two layers that assistants read. They are no copy: what the target writes
/// behind them later does not show, and what it takes back must not be read any more.
#[derive(Clone)]
pub struct Lent {
    pub(super) sliding: LentLayer,
    pub(super) full: LentLayer,
    len: usize,
}

impl Lent {
    pub(super) fn of(sliding: &KvCache, full: &KvCache, len: usize) -> Result<Self, ModelError> {
        let layer = |cache: &KvCache| -> Result<LentLayer, ModelError> {
            let (keys, values) = cache.prefix(len)?;
            Ok(LentLayer { keys, values })
        };
        Ok(Self { sliding: layer(sliding)?, full: layer(full)?, len })
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
