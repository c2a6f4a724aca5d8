//! A model folder in the layout of Hugging Face: `config.json`, safetensors in one file or in shards with
//! an index, and the tokenizer's files.
//!
//! Invariant: opening a folder maps all shards and checks all headers, so a missing or truncated shard is
//! reported before any tensor is read. Callers use the GGUF names of tensors, the files use the checkpoint's;
//! FP8 with block scales is widened to f32 when a tensor is read.

use std::collections::HashMap;
use std::path::Path;

use draftscope_kernels::Encoding;
use safetensors::Dtype;
use safetensors::tensor::TensorInfo;

use crate::ModelError;
use crate::error::name_of;
use crate::files::config_json::ConfigJson;
use crate::files::loaded::LoadedTensor;
use crate::files::shard::Shard;
use crate::files::side_files::SideFiles;
use crate::files::stored::Stored;
use crate::files::tensor_names::{Layout, TensorNames};
use crate::files::{folder_kind, fp8, quantisation};
use draftscope_protocol::TokenId;

/// An open folder.
pub struct Folder {
    side_files: SideFiles,
    config: ConfigJson,
    names: TensorNames,
    layout: Layout,
    shards: Vec<Shard>,
    /// Index of each tensor's shard, by the checkpoint's names.
    place: HashMap<String, usize>,
    fp8_block: Option<[usize; 2]>,
    /// Whether the configuration ties the head to the embedding although their tensors differ.
    unties: bool,
}

fn loaded(info: &TensorInfo) -> LoadedTensor<'_> {
    let encoding = match info.dtype {
        Dtype::F32 => Some(Encoding::F32),
        Dtype::F16 => Some(Encoding::F16),
        Dtype::BF16 | Dtype::F8_E4M3 => Some(Encoding::Bf16),
        _ => None,
    };
    let stored = (info.data_offsets.1 - info.data_offsets.0) as u64;
    LoadedTensor { shape: &info.shape, encoding, stored, of_module: false }
}

/// How a tensor of this type is read.
fn encoding(name: &str, dtype: Dtype) -> Result<Encoding, ModelError> {
    match dtype {
        Dtype::F32 => Ok(Encoding::F32),
        Dtype::F16 => Ok(Encoding::F16),
        Dtype::BF16 => Ok(Encoding::Bf16),
        other => Err(ModelError::Unsupported(format!(
            "tensor '{name}' is stored as {other:?}, which is not supported; F32, F16, BF16 and F8_E4M3 are"
        ))),
    }
}

impl Folder {
    /// Opens a folder; weights stay on disk.
    ///
    /// # Errors
    /// If a file is missing or damaged, or the family is not supported.
    pub fn open(path: &Path, config: ConfigJson, names: TensorNames) -> Result<Self, ModelError> {
        let fp8_block = config.fp8_block()?;
        let shards = Shard::all_of(path)?;
        let place = shards
            .iter()
            .enumerate()
            .flat_map(|(index, shard)| shard.metadata.offset_keys().into_iter().map(move |name| (name, index)));
        let place: HashMap<String, usize> = place.collect();
        quantisation::check_names(&place.keys().map(String::as_str))?;
        let prefixes = ["model.", "", "model.language_model.", "language_model.model."];
        let prefix = prefixes.into_iter().find(|prefix| place.contains_key(&format!("{prefix}embed_tokens.weight")));
        let prefix = prefix.ok_or_else(|| ModelError::MissingTensor("model.embed_tokens.weight".to_owned()))?;
        let layout = Layout { prefix, layers: config.layers() };
        let side_files = SideFiles::of(path);
        let mut folder = Self { side_files, config, names, layout, shards, place, fp8_block, unties: false };
        folder.unties = folder.has_another_head()?;
        Ok(folder)
    }

    /// Whether the configuration ties head and embedding although the head's tensor differs. `transformers` (5) then
    /// uses the tensors.
    fn has_another_head(&self) -> Result<bool, ModelError> {
        let [embedding, head] = ["token_embd.weight", "output.weight"];
        let info = self.translate(embedding).and_then(|name| self.info(&name));
        let is_there = self.translate(head).is_some_and(|name| self.place.contains_key(&name));
        let Some((_, info)) = info.filter(|_| is_there && self.tied() == Some(true)) else {
            return Ok(false);
        };
        let is_copy = self.stored(head, &info.shape)?.is_copy_of(&self.stored(embedding, &info.shape)?);
        self.release(head);
        self.release(embedding);
        Ok(!is_copy)
    }

    /// Whether the embedding is the output head; `None` if neither the configuration nor the tensors say so.
    #[must_use]
    pub fn tied(&self) -> Option<bool> {
        if self.unties { Some(false) } else { self.config.tied() }
    }

    /// A sentence about the key of the configuration that is ignored because the tensors contradict it.
    #[must_use]
    pub fn warning(&self) -> Option<String> {
        self.unties.then(|| {
            "'tie_word_embeddings' is ignored: 'lm_head.weight' differs from the embedding, so it is the head; set the key to false in config.json to avoid this notice"
                .to_owned()
        })
    }

    /// A sentence about an adapter that is in the folder beside the model.
    #[must_use]
    pub fn adapter_warning(&self) -> Option<String> {
        let adapter = folder_kind::adapter(&self.side_files)?;
        Some(format!(
            "the folder holds {adapter} too (adapter_config.json), which is ignored; to run it, merge it into its model first (`merge_and_unload` of peft)"
        ))
    }

    /// Path of the folder.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.side_files.path()
    }

    /// Name of the folder; in the Hub's cache, where folders are named by commits, the repository's name.
    #[must_use]
    pub fn name(&self) -> String {
        name_of(self.path())
    }

    /// `config.json`.
    #[must_use]
    pub fn config(&self) -> &ConfigJson {
        &self.config
    }

    /// How tensor names are built.
    #[must_use]
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// Names of all tensors, as the checkpoint spells them.
    pub fn checkpoint_names(&self) -> impl Iterator<Item = &str> {
        self.place.keys().map(String::as_str)
    }

    /// Whether there is an output head among the tensors.
    #[must_use]
    pub fn has_head(&self) -> bool {
        self.place.contains_key("lm_head.weight")
    }

    /// The files beside the weights.
    #[must_use]
    pub fn side_files(&self) -> &SideFiles {
        &self.side_files
    }

    /// Whether there is a tensor of this (GGUF) name.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        if name == "output.weight" && self.tied() == Some(true) {
            return false; // if it exists, it is a copy of the embedding
        }
        self.translate(name).is_some_and(|name| self.place.contains_key(&name))
    }

    /// The checkpoint's name of a tensor, by its GGUF name.
    fn translate(&self, name: &str) -> Option<String> {
        let prefix = self.layout.prefix;
        match name {
            "token_embd.weight" => Some(format!("{prefix}embed_tokens.weight")),
            "output_norm.weight" => Some(format!("{prefix}norm.weight")),
            "output.weight" => Some("lm_head.weight".to_owned()),
            _ => (self.names)(&self.layout, name),
        }
    }

    fn info(&self, name: &str) -> Option<(&Shard, &TensorInfo)> {
        let shard = &self.shards[*self.place.get(name)?];
        Some((shard, shard.metadata.info(name)?))
    }

    /// A tensor of the given shape as stored; FP8 is widened to f32.
    ///
    /// # Errors
    /// [`ModelError::MissingTensor`] and [`ModelError::Shape`] with the checkpoint's name,
    /// [`ModelError::Unsupported`] for an unsupported type.
    pub fn stored(&self, name: &str, shape: &[usize]) -> Result<Stored<'_>, ModelError> {
        let name = self.translate(name).ok_or_else(|| ModelError::MissingTensor(name.to_owned()))?;
        let (bytes, dtype) = self.raw(&name, shape)?;
        Ok(match dtype {
            Dtype::F8_E4M3 => Stored::widened(&self.widen(&name, bytes, shape)?),
            other => Stored::new(encoding(&name, other)?, bytes),
        })
    }

    /// Checks a tensor of the given shape without reading it; returns the encoding that it is loaded in.
    ///
    /// # Errors
    /// As [`Folder::stored`].
    pub(crate) fn check(&self, name: &str, shape: &[usize]) -> Result<Encoding, ModelError> {
        let name = self.translate(name).ok_or_else(|| ModelError::MissingTensor(name.to_owned()))?;
        match self.raw(&name, shape)? {
            (_, Dtype::F8_E4M3) => self.scales(&name, shape).map(|_| Encoding::Bf16),
            (_, other) => encoding(&name, other),
        }
    }

    /// As [`ModelFiles::ordering`](crate::files::ModelFiles::ordering).
    pub(crate) fn ordering(&self, name: &str, vocab: usize) -> Result<Vec<TokenId>, ModelError> {
        let name = &self.translate(name).ok_or_else(|| ModelError::MissingTensor(name.to_owned()))?;
        let (bytes, dtype) = self.raw(name, &[vocab])?;
        let ids: Vec<i64> = match dtype {
            Dtype::I64 => bytes.as_chunks().0.iter().map(|bytes| i64::from_le_bytes(*bytes)).collect(),
            Dtype::I32 => bytes.as_chunks().0.iter().map(|bytes| i32::from_le_bytes(*bytes).into()).collect(),
            other => {
                let what = format!("tensor '{name}' is stored as {other:?}; I32 and I64 are supported");
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

    fn raw(&self, name: &str, shape: &[usize]) -> Result<(&[u8], Dtype), ModelError> {
        let (shard, info) = self.info(name).ok_or_else(|| ModelError::MissingTensor(name.to_owned()))?;
        if info.shape != shape {
            let (got, expected) = (info.shape.clone(), shape.to_vec());
            return Err(ModelError::Shape { name: name.to_owned(), got, expected });
        }
        Ok((shard.bytes(info), info.dtype))
    }

    /// The scales of an FP8 tensor, their shape, and rows and columns of the blocks that share one.
    fn scales(&self, name: &str, shape: &[usize]) -> Result<(Stored<'_>, [usize; 2], [usize; 2]), ModelError> {
        let (Some(block), [out, input]) = (self.fp8_block, shape) else {
            return Err(ModelError::Unsupported(format!(
                "tensor '{name}' is FP8, but config.json does not describe its scales ('quantization_config')"
            )));
        };
        let name = format!("{name}_scale_inv");
        let shape = [out.div_ceil(block[0]), input.div_ceil(block[1])];
        let (scales, dtype) = self.raw(&name, &shape)?;
        let encoding = match dtype {
            Dtype::F32 => Encoding::F32,
            Dtype::BF16 => Encoding::Bf16,
            other => return Err(ModelError::Unsupported(format!("tensor '{name}' is stored as {other:?}"))),
        };
        Ok((Stored::new(encoding, scales), shape, block))
    }

    /// weight = stored × scale of its block. `weight_scale_inv` is that scale and not its inverse, despite the name.
    fn widen(&self, name: &str, bytes: &[u8], shape: &[usize]) -> Result<Vec<f32>, ModelError> {
        let (scales, scales_shape, [rows, columns]) = self.scales(name, shape)?;
        let scales = scales.to_f32(&scales_shape)?;
        let input = shape.last().copied().unwrap_or(1).max(1);
        let mut numbers = Vec::with_capacity(bytes.len());
        for (row, codes) in bytes.chunks_exact(input).enumerate() {
            let scales = &scales[row / rows * scales_shape[1]..];
            numbers.extend(codes.iter().enumerate().map(|(at, code)| fp8::from_e4m3(*code) * scales[at / columns]));
        }
        Ok(numbers)
    }

    /// Frees the pages of a tensor that was copied.
    pub(crate) fn release(&self, name: &str) {
        if let Some((shard, info)) = self.translate(name).and_then(|name| self.info(&name)) {
            shard.release(info);
        }
    }

    /// Dtype of the matrices of the first block, in lower case.
    #[must_use]
    pub fn main_dtype(&self) -> String {
        let dtype = |name: &str| self.info(&self.translate(name)?).map(|(_, info)| info.dtype);
        // a block with experts has no ffn_down, and one with a recurrent state no attn_output
        let names = ["ffn_down", "attn_output", "ffn_down_exps", "ffn_down.0"];
        let info = names.iter().find_map(|part| dtype(&format!("blk.0.{part}.weight")));
        match info {
            Some(Dtype::F8_E4M3) => "f8_e4m3".to_owned(),
            Some(dtype) => format!("{dtype:?}").to_lowercase(),
            None => "unknown".to_owned(),
        }
    }

    /// Bytes of a tensor on disk; `None` if there is no such tensor.
    #[must_use]
    pub fn bytes_of(&self, name: &str) -> Option<u64> {
        let (shard, info) = self.info(&self.translate(name)?)?;
        Some(shard.bytes(info).len() as u64)
    }

    /// The tensors that the model and so many of its draft modules read.
    pub(crate) fn loaded_tensors(&self, modules: usize) -> impl Iterator<Item = LoadedTensor<'_>> {
        let tied = self.tied() == Some(true);
        let tensors = self.shards.iter().flat_map(|shard| shard.metadata.tensors());
        tensors.filter_map(move |(name, info)| {
            if name.ends_with("_scale_inv") || (tied && name == "lm_head.weight") {
                return None;
            }
            let module = self.module_of(&name)?;
            let tensor = LoadedTensor { of_module: module.is_some(), ..loaded(info) };
            module.is_none_or(|index| index < modules).then_some(tensor)
        })
    }

    /// A tensor of a target, by its GGUF name, as loading counts it.
    pub(crate) fn loaded_tensor(&self, name: &str) -> Option<LoadedTensor<'_>> {
        self.info(&self.translate(name)?).map(|(_, info)| loaded(info))
    }

    /// The draft module that a tensor belongs to, by the checkpoint's name: `Some(None)` for one of the target's, `None`
    /// for one that text models do not read.
    fn module_of(&self, name: &str) -> Option<Option<usize>> {
        let Layout { prefix, layers } = self.layout;
        if name.starts_with("mtp.") {
            return Some(Some(0));
        }
        let Some(part) = name.strip_prefix(prefix) else {
            return (name == "lm_head.weight").then_some(None);
        };
        let number = |part: &str| part.split('.').next()?.parse::<usize>().ok();
        if let Some(part) = part.strip_prefix("mtp_layers.") {
            return Some(number(part));
        }
        let layer = part.strip_prefix("layers.").and_then(number);
        Some(layer.and_then(|layer| layer.checked_sub(layers)))
    }

    /// Bytes of all tensors on disk.
    #[must_use]
    pub fn tensor_bytes(&self) -> u64 {
        self.shards.iter().map(|shard| shard.metadata.data_len() as u64).sum()
    }
}
