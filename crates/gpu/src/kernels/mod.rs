//! The kernels: what each computes and binds, its WGSL for a form of weights, and what it reads about the rows of a pass.
//!
//! Knows forms of weights, and no device: the same text runs on each.

mod form_source;
mod kernel;
mod layout;
mod rows;
mod source;

pub use kernel::{Kernel, ROWS_AT_ONCE, TILE, Variant};
pub(crate) use layout::{Dims, layout};
pub(crate) use rows::SLOT_BYTES;
pub use rows::{MAX_ROWS, PROMPT_ROWS, PassRows, SEGMENT, Store};
pub(crate) use source::OUTPUTS;
