//! What is wrong with a line.

/// Why a line is not accepted: the field, and what is wrong with it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {why}")]
pub struct Fault {
    /// The field's name.
    pub field: &'static str,
    /// What is wrong, without a final stop.
    pub why: String,
}

impl Fault {
    pub(super) fn new(field: &'static str, why: String) -> Self {
        Self { field, why }
    }
}
