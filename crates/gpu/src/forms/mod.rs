//! How weights lie in device memory: the blocks of files, the forms that shaders read, and the repacking between them.
//!
//! Knows bytes on the host, and neither shaders nor devices.

mod blocks;
mod form;
mod packed;

pub(crate) use blocks::Meaning;
#[cfg(test)]
pub(crate) use blocks::{Block, finite_scales, for_each_block, is_quantised};
pub use form::Form;
pub(crate) use form::{Layout, Scales};
pub use packed::PackedRows;
#[cfg(test)]
pub(crate) use packed::numbers_of;
