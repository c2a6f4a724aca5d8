//! A value computed once from the fields beside it.
//!
//! Invariant: two memos are equal and print alike whether or not they were computed, because the value follows from the
//! rest.

use std::fmt;
use std::sync::{Arc, OnceLock};

#[derive(Clone)]
pub(super) struct Memo<T>(OnceLock<Arc<T>>);

impl<T> Memo<T> {
    pub(super) fn get(&self, work_out: impl FnOnce() -> T) -> &T {
        self.0.get_or_init(|| Arc::new(work_out()))
    }
}

impl<T> Default for Memo<T> {
    fn default() -> Self {
        Self(OnceLock::new())
    }
}

impl<T> PartialEq for Memo<T> {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl<T> fmt::Debug for Memo<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Memo")
    }
}
