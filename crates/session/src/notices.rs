//! The last notices of a run.
//!
//! Invariant: at most [`MAX_NOTICES`] are kept, and all are counted.

use std::collections::VecDeque;

/// Notices kept; older ones are dropped.
pub const MAX_NOTICES: usize = 64;

/// Notices, oldest first.
#[derive(Clone, Debug, Default)]
pub(super) struct Notices {
    kept: VecDeque<String>,
    seen: u64,
}

impl Notices {
    /// Adds a notice.
    pub(super) fn add(&mut self, message: String) {
        self.seen = self.seen.saturating_add(1);
        self.kept.push_back(message);
        if self.kept.len() > MAX_NOTICES {
            self.kept.pop_front();
        }
    }

    /// The last [`MAX_NOTICES`].
    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = &str> {
        self.kept.iter().map(String::as_str)
    }

    /// How many there were in total.
    pub(super) fn seen(&self) -> u64 {
        self.seen
    }
}
