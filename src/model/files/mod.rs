//! Model files: bytes and tensors by name.
//!
//! Nothing here knows what a tensor is for.

pub mod config_json;
mod display_name;
mod file_type;
mod folder;
pub(in crate::model) mod folder_kind;
pub(in crate::model) mod foreign;
pub(in crate::model) mod fp8;
mod gguf;
mod gguf_parts;
mod gguf_scan;
mod gguf_start;
mod gguf_tensors;
mod gguf_values;
mod loaded;
mod mapped;
mod model_files;
pub(in crate::model) mod numbers;
mod quantisation;
pub(in crate::model) mod shard;
mod side_files;
mod stored;
mod tensor_names;
mod tensor_type;
mod unfinished;

pub use config_json::ConfigJson;
pub use folder::Folder;
pub use gguf::GgufFile;
pub(crate) use gguf_values::whole;
pub use loaded::{LoadedTensor, MatrixForm};
pub(in crate::model) use mapped::Mapped;
pub use model_files::ModelFiles;
pub(in crate::model) use shard::Shard;
pub use side_files::SideFiles;
pub use stored::Stored;
pub use tensor_names::{
    Layout, NORMED_TWICE, TensorNames, block_name, block_part, expert_part, llama_name, llama_part, part_name, renamed,
};
pub(in crate::model) use tensor_type::{TensorType, candle_dtype};
