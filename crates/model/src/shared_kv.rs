//! A target's keys and values, for drafters that attend to them and have no KV cache.

use candle_core::Tensor;

use crate::error::ModelError;

/// Which positions a layer attends to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// The last ones, up to the window's length.
    Sliding,
    /// All of them.
    Full,
}

impl Reach {
    /// What an entry of `layer_types` in a `config.json` means.
    pub(crate) fn named(name: &str) -> Option<Self> {
        match name {
            "sliding_attention" => Some(Self::Sliding),
            "full_attention" => Some(Self::Full),
            _ => None,
        }
    }
}

/// Keys and values of one layer, `[kv_heads, n, head_dim]` each; normed, keys rotated.
#[derive(Clone)]
pub struct SharedLayer {
    /// `[kv_heads, n, head_dim]`
    pub keys: Tensor,
    /// `[kv_heads, n, head_dim]`
    pub values: Tensor,
}

impl From<(Tensor, Tensor)> for SharedLayer {
    fn from((keys, values): (Tensor, Tensor)) -> Self {
        Self { keys, values }
    }
}

/// The keys and values that assistants read: one layer of each kind that the target has.
///
/// They share the target's memory: rows that the target appends later are not visible, and rows that it has rolled back
/// must not be read.
#[derive(Clone)]
pub struct SharedKv {
    sliding: Option<SharedLayer>,
    full: Option<SharedLayer>,
    len: usize,
}

impl SharedKv {
    /// Layers of `len` positions each.
    #[must_use]
    pub fn new(sliding: Option<SharedLayer>, full: Option<SharedLayer>, len: usize) -> Self {
        Self { sliding, full, len }
    }

    /// The layer of a kind.
    ///
    /// # Errors
    /// [`ModelError::Unsupported`] if the target has no such layer.
    pub fn layer(&self, reach: Reach) -> Result<&SharedLayer, ModelError> {
        let layer = match reach {
            Reach::Sliding => &self.sliding,
            Reach::Full => &self.full,
        };
        layer.as_ref().ok_or_else(|| {
            ModelError::Unsupported("the target has no layer of the kind that the drafter attends to".into())
        })
    }

    /// Number of positions.
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
