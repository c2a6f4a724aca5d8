//! Progress of loading, before a run begins.

/// Progress of loading.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Loading {
    /// What is being loaded.
    pub stage: String,
    /// Units done.
    pub done: u64,
    /// Units in all; 0 when unknown.
    pub total: u64,
}
