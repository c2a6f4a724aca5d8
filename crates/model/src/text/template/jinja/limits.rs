//! The limits of what a template computes, and the error of one that breaks them.

use minijinja::{Error, ErrorKind};

/// The name of a chat template in error messages.
pub(in crate::text::template) const NAME: &str = "chat";

/// Most bytes of the rendered text: far more than the longest context.
pub(in crate::text::template) const MAX_OUTPUT: usize = 16 << 20;

/// Widest indentation and padding that a template may ask for, in characters.
pub(super) const MAX_WIDTH: usize = 4096;

/// An error of a template, with the reason.
pub(super) fn failure(why: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidOperation, why.into())
}
