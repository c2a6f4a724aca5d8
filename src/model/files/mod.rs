//! Model files: bytes and tensors by name.
//!
//! Nothing here knows what a tensor is for.

pub mod config_json;
pub mod folder;
pub(in crate::model) mod fp8;
pub mod gguf;
pub(in crate::model) mod mapped;
pub(in crate::model) mod numbers;
pub(in crate::model) mod shard;
pub mod side_files;
pub mod source;
pub mod stored;
pub mod tensor_names;
