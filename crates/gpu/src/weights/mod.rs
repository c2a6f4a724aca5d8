//! A model as data: its matrices in device memory, the sizes and parts of each block, and the ends around them.
//!
//! Knows what a block consists of, and not how it runs. What a target or a draft module has is said here in whole.

mod block;
mod delta;
mod layer_inputs;
mod matrix;
mod module;
mod network;
mod shape;
mod style;

pub use block::BlockWeights;
pub(crate) use block::inputs_width;
pub use delta::{DeltaShape, DeltaWeights, MAX_KEY_DIM};
pub use layer_inputs::{LayerInput, LayerTable};
pub(crate) use matrix::Part;
pub use matrix::{Matrix, StoredRows};
pub use module::ModuleWeights;
pub use network::Network;
pub(crate) use shape::MAX_PROMPT_HEAD;
pub use shape::{MAX_HEAD_DIM, Shape};
pub use style::{EndStyle, Style};
