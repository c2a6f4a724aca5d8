//! Exit codes of the program.

/// Exit status of an error; 1 means that a comparison found a difference.
pub(crate) const ERROR: u8 = 2;
