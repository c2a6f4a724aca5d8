//! The draft length that the engine chose itself, as its events report it.

/// The k that the engine chose last.
#[derive(Clone, Debug, PartialEq)]
pub struct ChosenDraftLen {
    /// k before.
    pub from: u8,
    /// k now.
    pub draft_len: u8,
    /// Predicted tokens per second for each k; index 0 is plain decoding.
    pub expected: Vec<f64>,
    /// Whether it is a brief trial of a k that may have become better.
    pub exploring: bool,
    /// The reason, in one sentence.
    pub reason: String,
}
