//! A target's keys and values, for drafters that attend to them and have no KV cache.

use std::any::Any;
use std::sync::Arc;

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

/// The keys and values of a target, in the form of its backend.
///
/// They share the target's memory: rows that the target appends later are not visible, and rows that it has rolled back
/// must not be read.
#[derive(Clone, Debug)]
pub struct SharedKv {
    memory: Arc<dyn Any + Send + Sync>,
    len: usize,
}

impl SharedKv {
    /// So many positions of a backend's memory.
    #[must_use]
    pub fn new(memory: impl Any + Send + Sync, len: usize) -> Self {
        Self { memory: Arc::new(memory), len }
    }

    /// The memory; `None` if another backend's.
    #[must_use]
    pub fn memory<T: Any>(&self) -> Option<&T> {
        self.memory.downcast_ref()
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
