//! An assistant's tensors: a GGUF file, or safetensors in one file or in shards.
//!
//! Tensors are requested by their names in GGUF files. Invariant: a returned tensor has the requested shape; the clusters
//! contain every token once.

use std::path::Path;

use draftscope_kernels::Encoding;
use safetensors::Dtype;

use crate::ModelError;
use crate::families::gemma4::part;
use crate::files::{GgufFile, Shard, Stored, block_part, renamed};
use draftscope_protocol::TokenId;

/// Tensors outside layers: their names in GGUF files and in checkpoints.
const WHOLE: &[(&str, &str)] = &[
    ("token_embd.weight", "model.embed_tokens.weight"),
    ("output_norm.weight", "model.norm.weight"),
    ("nextn.pre_projection.weight", "pre_projection.weight"),
    ("nextn.post_projection.weight", "post_projection.weight"),
    ("masked_embd_centroids.weight", "masked_embedding.centroids.weight"),
];

/// An open assistant.
pub(super) enum AssistantFile {
    /// Safetensors.
    Checkpoint(Vec<Shard>),
    /// GGUF.
    Gguf(GgufFile),
}

/// The checkpoint's name of a tensor.
fn checkpoint_name(name: &str) -> Option<String> {
    if let Some(whole) = renamed(WHOLE, name) {
        return Some(whole.to_owned());
    }
    let (layer, own) = block_part(name)?;
    part(own).map(|own| format!("model.layers.{layer}.{own}"))
}

impl AssistantFile {
    /// Opens a folder of safetensors.
    pub(super) fn open(folder: &Path) -> Result<Self, ModelError> {
        Shard::all_of(folder).map(Self::Checkpoint)
    }

    /// Bytes of all tensors.
    pub(super) fn bytes(&self) -> u64 {
        match self {
            Self::Checkpoint(shards) => shards.iter().map(|shard| shard.metadata.data_len() as u64).sum(),
            Self::Gguf(gguf) => gguf.tensor_bytes(),
        }
    }

    fn raw(&self, name: &str, expected: &[usize]) -> Result<(&[u8], Dtype), ModelError> {
        let Self::Checkpoint(shards) = self else { return Err(ModelError::MissingTensor(name.to_owned())) };
        let found = shards.iter().find_map(|shard| Some((shard, shard.metadata.info(name)?)));
        let (shard, info) = found.ok_or_else(|| ModelError::MissingTensor(name.to_owned()))?;
        if info.shape != expected {
            let (got, expected) = (info.shape.clone(), expected.to_vec());
            return Err(ModelError::Shape { name: name.to_owned(), got, expected });
        }
        Ok((shard.bytes(info), info.dtype))
    }

    /// A tensor as it is stored.
    pub(super) fn stored(&self, name: &str, shape: &[usize]) -> Result<Stored<'_>, ModelError> {
        if let Self::Gguf(gguf) = self {
            return gguf.stored(name, shape);
        }
        let name = &checkpoint_name(name).ok_or_else(|| ModelError::MissingTensor(name.to_owned()))?;
        let (bytes, dtype) = self.raw(name, shape)?;
        let encoding = match dtype {
            Dtype::F32 => Encoding::F32,
            Dtype::F16 => Encoding::F16,
            Dtype::BF16 => Encoding::Bf16,
            other => {
                return Err(ModelError::Unsupported(format!(
                    "tensor '{name}' of the assistant is stored as {other:?}, which is not supported; F32, F16 and BF16 are"
                )));
            }
        };
        Ok(Stored::new(encoding, bytes))
    }

    /// Tokens of all clusters, one cluster after the other; `name` is that of a checkpoint's tensor.
    pub(super) fn ordering(&self, name: &str, vocab: usize) -> Result<Vec<TokenId>, ModelError> {
        let (bytes, dtype) = self.raw(name, &[vocab])?;
        let ids: Vec<i64> = match dtype {
            Dtype::I64 => bytes.as_chunks().0.iter().map(|bytes| i64::from_le_bytes(*bytes)).collect(),
            Dtype::I32 => bytes.as_chunks().0.iter().map(|bytes| i32::from_le_bytes(*bytes).into()).collect(),
            other => {
                let what =
                    format!("tensor '{name}' of the assistant is stored as {other:?}; I32 and I64 are supported");
                return Err(ModelError::Unsupported(what));
            }
        };
        let mut seen = vec![false; vocab];
        let tokens = ids.into_iter().map(|id| {
            let token = u32::try_from(id).ok().map(TokenId).filter(|token| token.index() < vocab);
            let is_new = |token: &TokenId| !std::mem::replace(&mut seen[token.index()], true);
            token.filter(is_new).ok_or_else(|| {
                ModelError::Metadata(format!(
                    "'{name}' holds {id} twice, or where there are {vocab} tokens: it orders no vocabulary"
                ))
            })
        });
        tokens.collect()
    }
}
