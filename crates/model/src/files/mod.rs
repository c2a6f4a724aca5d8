//! Model files: bytes and tensors by name.
//!
//! Nothing here knows what a tensor is for.

pub mod config_json;
mod display_name;
mod file_type;
mod folder;
pub(crate) mod folder_kind;
pub(crate) mod foreign;
pub(crate) mod fp8;
mod gguf;
mod gguf_parts;
mod gguf_scan;
mod gguf_start;
mod gguf_tensors;
mod gguf_values;
mod loaded;
mod mapped;
mod model_files;
pub(crate) mod numbers;
mod quantisation;
pub(crate) mod shard;
mod side_files;
mod stored;
mod tensor_names;
mod tensor_source;
mod tensor_type;
mod unfinished;
mod whole_number;

pub use config_json::ConfigJson;
pub use folder::Folder;
pub use gguf::GgufFile;
pub use loaded::{LoadedTensor, MatrixForm};
pub use model_files::ModelFiles;
pub(crate) use shard::Shard;
pub use side_files::SideFiles;
pub use stored::Stored;
pub use tensor_names::{
    Layout, NORMED_TWICE, TensorNames, block_name, block_part, expert_part, llama_name, llama_part, part_name, renamed,
};
pub use tensor_source::TensorSource;
#[cfg(test)]
pub(crate) use tensor_type::candle_dtype;
pub(crate) use whole_number::whole;
