//! Tensors of a module in files of its own: safetensors, in one file or shards, the `pytorch_model.bin` that older heads
//! come as, or GGUF.
//!
//! Invariant: a returned tensor has the requested shape, whatever the file is called; a pickle is read only for the
//! names and places of tensors, and nothing in it is executed. Tensors are requested by the names of `speculators`
//! (`layers.0.…`) and found under SafeAILab's (`midlayer.…`), with a prefix `model.`, or under the names of a GGUF file.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

use candle_core::DType;
use candle_core::pickle::{Object, Stack, TensorInfo};
use safetensors::Dtype;
use zip::{CompressionMethod, ZipArchive};

use crate::ModelError;
use crate::catch_panic::catch_panic;
use crate::drafters::core::module_tensors::NamedNumbers;
use crate::error::{clean, reported};
use crate::files::{GgufFile, Shard, llama_part, numbers, shard};
use draftscope_host::file_access::open_regular;
use draftscope_protocol::TokenId;

const TORCH: &str = "pytorch_model.bin";

/// Largest table of contents of a `pytorch_model.bin`; a head's has a few kilobytes.
const MAX_PICKLE: u64 = 64 << 10;

/// Most opcodes in it; a head's has a thousand.
const MAX_STEPS: usize = 2048;

/// The name that a GGUF file has for a tensor, by that in a checkpoint.
pub(crate) type GgufName = fn(&str) -> Option<String>;

/// An open module.
pub(crate) enum ModuleFile {
    /// Safetensors.
    Shards(Vec<Shard>),
    /// A torch archive: where each tensor lies.
    Torch(PathBuf, HashMap<String, TensorInfo>),
    /// GGUF.
    Gguf(Box<GgufFile>, GgufName),
}

/// The name in a checkpoint of a tensor of a module's plan, which has GGUF's names in layers.
fn in_checkpoint(name: &str) -> Cow<'_, str> {
    let layer = |name: &str| {
        let (layer, part) = name.strip_prefix("blk.")?.split_once('.')?;
        let (part, ending) = part.rsplit_once('.')?;
        Some(format!("layers.{layer}.{}.{ending}", llama_part(part).unwrap_or(part)))
    };
    layer(name).map_or(Cow::Borrowed(name), Cow::Owned)
}

impl NamedNumbers for ModuleFile {
    fn has(&self, name: &str) -> bool {
        Self::has(self, &in_checkpoint(name))
    }

    fn numbers(&self, name: &str, shape: &[usize]) -> Result<Vec<f32>, ModelError> {
        Self::numbers(self, &in_checkpoint(name), shape)
    }
}

impl ModuleFile {
    /// Opens the weights in a folder.
    pub(crate) fn open(path: &Path) -> Result<Self, ModelError> {
        let torch = path.join(TORCH);
        if !path.join(shard::SINGLE).is_file() && !path.join(shard::INDEX).is_file() && torch.is_file() {
            let tensors = contents(&torch)?;
            return Ok(Self::Torch(torch, tensors));
        }
        Shard::all_of(path).map(Self::Shards)
    }

    /// Whether there is such a tensor.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.place(name).is_some()
    }

    /// Bytes of all tensors.
    pub(crate) fn bytes(&self) -> u64 {
        match self {
            Self::Shards(shards) => shards.iter().map(|shard| shard.metadata.data_len() as u64).sum(),
            Self::Torch(_, tensors) => tensors
                .values()
                .map(|info| {
                    let sizes = info.layout.shape().dims().iter();
                    let count = sizes.fold(1u64, |count, size| count.saturating_mul(*size as u64));
                    count.saturating_mul(info.dtype.size_in_bytes() as u64)
                })
                .fold(0, u64::saturating_add),
            Self::Gguf(file, _) => file.tensor_bytes(),
        }
    }

    /// The first stored tensor, by name, that is none of the `known` ones.
    pub(crate) fn unknown(&self, known: impl Iterator<Item = String>) -> Option<String> {
        let known: HashSet<String> = known.map(|name| self.place(&name).unwrap_or(name)).collect();
        let stored: Vec<String> = match self {
            Self::Shards(shards) => shards.iter().flat_map(|shard| shard.metadata.tensors().into_keys()).collect(),
            Self::Torch(_, tensors) => tensors.keys().cloned().collect(),
            Self::Gguf(file, _) => file.tensor_names().map(str::to_owned).collect(),
        };
        stored.into_iter().filter(|name| !known.contains(name)).min()
    }

    /// The name under which a tensor is stored.
    fn place(&self, name: &str) -> Option<String> {
        if let Self::Gguf(file, of_gguf) = self {
            return of_gguf(name).filter(|name| file.has_tensor(name));
        }
        let others =
            [name.strip_prefix("layers.0.").map(|rest| format!("midlayer.{rest}")), Some(format!("model.{name}"))];
        let there = |name: &String| match self {
            Self::Shards(shards) => shards.iter().any(|shard| shard.metadata.info(name).is_some()),
            Self::Torch(_, tensors) => tensors.contains_key(name),
            Self::Gguf(file, _) => file.has_tensor(name),
        };
        std::iter::once(name.to_owned()).chain(others.into_iter().flatten()).find(there)
    }

    /// A tensor's bytes and type.
    fn raw(&self, name: &str, expected: &[usize]) -> Result<(Cow<'_, [u8]>, Dtype), ModelError> {
        let place = self.place(name).ok_or_else(|| ModelError::MissingTensor(name.to_owned()))?;
        let check = |got: &[usize]| match got == expected {
            true => Ok(()),
            false => Err(ModelError::Shape { name: place.clone(), got: got.to_vec(), expected: expected.to_vec() }),
        };
        match self {
            Self::Shards(shards) => {
                let found = shards.iter().find_map(|shard| Some((shard, shard.metadata.info(&place)?)));
                let (shard, info) = found.ok_or_else(|| ModelError::MissingTensor(name.to_owned()))?;
                check(&info.shape)?;
                Ok((Cow::Borrowed(shard.bytes(info)), info.dtype))
            }
            Self::Torch(path, tensors) => {
                let info = tensors.get(&place).ok_or_else(|| ModelError::MissingTensor(name.to_owned()))?;
                check(info.layout.dims())?;
                let dtype = match info.dtype {
                    DType::F32 => Dtype::F32,
                    DType::F16 => Dtype::F16,
                    DType::BF16 => Dtype::BF16,
                    DType::I64 => Dtype::I64,
                    DType::I32 => Dtype::I32,
                    other => return Err(unsupported(&place, &other)),
                };
                Ok((Cow::Owned(read(path, info)?), dtype))
            }
            Self::Gguf(..) => Err(ModelError::MissingTensor(name.to_owned())),
        }
    }

    /// A tensor as f32.
    pub(crate) fn numbers(&self, name: &str, shape: &[usize]) -> Result<Vec<f32>, ModelError> {
        if let Self::Gguf(file, _) = self {
            let place = self.place(name).ok_or_else(|| ModelError::MissingTensor(name.to_owned()))?;
            let numbers = file.stored(&place, shape)?.to_f32(shape)?;
            file.release(&place);
            return Ok(numbers);
        }
        let (bytes, dtype) = self.raw(name, shape)?;
        numbers::widened(dtype, &bytes).ok_or_else(|| unsupported(name, &dtype))
    }

    /// Offsets from the index of a draft token to the token (`d2t`).
    pub(crate) fn offsets(&self, name: &str, len: usize) -> Result<Vec<i64>, ModelError> {
        if let Self::Gguf(file, _) = self {
            // these files have the tokens themselves
            let tokens = file.integers(name, len)?;
            return Ok((0..).zip(tokens).map(|(index, token): (i64, i64)| token.saturating_sub(index)).collect());
        }
        let (bytes, dtype) = self.raw(name, &[len])?;
        Ok(match dtype {
            Dtype::I64 => bytes.as_chunks().0.iter().map(|bytes| i64::from_le_bytes(*bytes)).collect(),
            Dtype::I32 => bytes.as_chunks().0.iter().map(|bytes| i32::from_le_bytes(*bytes).into()).collect(),
            other => return Err(unsupported(name, &other)),
        })
    }
}

fn unsupported(name: &str, dtype: &dyn std::fmt::Debug) -> ModelError {
    ModelError::Unsupported(format!(
        "tensor '{name}' of the draft module is stored as {dtype:?}, which is not supported; F32, F16 and BF16 are"
    ))
}

/// Token of each row of a module's head, ascending: its index plus an offset, for `count` rows and a target of `vocab`
/// tokens.
pub(crate) fn draft_vocab(file: &ModuleFile, count: usize, vocab: usize) -> Result<Vec<TokenId>, ModelError> {
    if !file.has("d2t") {
        if count == vocab {
            return Ok((0..count as u32).map(TokenId).collect());
        }
        return Err(ModelError::MissingTensor("d2t".to_owned()));
    }
    let token = |(index, offset): (usize, i64)| -> Result<TokenId, ModelError> {
        let id = i64::try_from(index).ok().and_then(|index| index.checked_add(offset));
        let id = id.and_then(|id| u32::try_from(id).ok()).filter(|id| (*id as usize) < vocab);
        id.map(TokenId).ok_or_else(|| {
            ModelError::Metadata(format!(
                "'d2t' leads draft token {index} by {offset} out of the {vocab} tokens of the target"
            ))
        })
    };
    let offsets = file.offsets("d2t", count)?;
    let vocab = offsets.into_iter().enumerate().map(token).collect::<Result<Vec<_>, _>>()?;
    if let Some(at) = vocab.windows(2).position(|pair| pair[0] >= pair[1]) {
        return Err(ModelError::Metadata(format!(
            "'d2t' leads draft tokens {at} and {} to tokens out of order",
            at + 1
        )));
    }
    Ok(vocab)
}

fn corrupt(path: &Path, what: String) -> ModelError {
    ModelError::Corrupt { path: path.to_owned(), what }
}

fn archive(path: &Path) -> Result<ZipArchive<BufReader<File>>, ModelError> {
    let file = open_regular(path).map_err(|source| ModelError::Read { path: path.to_owned(), source })?;
    ZipArchive::new(BufReader::new(file)).map_err(|error| corrupt(path, reported(&error)))
}

/// Where the tensors of a torch archive lie.
fn contents(path: &Path) -> Result<HashMap<String, TensorInfo>, ModelError> {
    let mut zip = archive(path)?;
    let pickle = (0..zip.len()).find_map(|index| {
        let name = zip.name_for_index(index)?.ok()?;
        name.ends_with("/data.pkl").then(|| name.into_owned())
    });
    let pickle = pickle.ok_or_else(|| corrupt(path, "it holds no data.pkl".to_owned()))?;
    let failed =
        |error: &dyn std::fmt::Display| corrupt(path, format!("its data.pkl cannot be read ({})", reported(error)));
    let entry = zip.by_name(&pickle).map_err(|error| failed(&error))?;
    let mut bytes = Vec::new();
    entry.take(MAX_PICKLE).read_to_end(&mut bytes).map_err(|error| failed(&error))?;
    let folder = PathBuf::from(pickle.trim_end_matches(".pkl"));
    catch_panic(
        |why| failed(&why),
        || {
            let tensors = unpickle(&bytes).map_err(|error| failed(&error))?;
            // values that are no tensors, or have a type that is not needed (t2d is boolean), are skipped
            let infos =
                tensors.into_iter().filter_map(|(name, value)| value.into_tensor_info(name, &folder).ok().flatten());
            Ok(infos.map(|info| (info.name.clone(), info)).collect())
        },
    )
}

/// The table that a pickle describes, opcode by opcode; a pickle that builds large values from few opcodes is rejected.
fn unpickle(mut bytes: &[u8]) -> candle_core::Result<Vec<(Object, Object)>> {
    let refused = |what: &str| candle_core::Error::Msg(what.to_owned());
    let mut stack = Stack::empty();
    for _ in 0..MAX_STEPS {
        // candle takes the memory that a step announces before it reads on
        match bytes {
            [b'X', a, b, c, d, text @ ..] if u32::from_le_bytes([*a, *b, *c, *d]) as usize > text.len() => {
                return Err(refused("a text in it is longer than the file"));
            }
            [b'\x8a', len, ..] if *len > 8 => return Err(refused("a number in it has more than 8 bytes")),
            _ => {}
        }
        let recalls = bytes.first().is_some_and(|step| b"hj".contains(step));
        if stack.read(&mut bytes)? {
            return match stack.finalize()? {
                Object::Dict(tensors) => Ok(tensors),
                _ => Err(refused("it is no table of tensors")),
            };
        }
        let is_small = |top: &Object| {
            use Object::{Bool, Class, Float, Int, Long, None, Unicode};
            matches!(top, Class { .. } | Int(_) | Long(_) | Float(_) | Unicode(_) | Bool(_) | None)
        };
        if recalls && !stack.stack().last().is_some_and(is_small) {
            return Err(refused("it repeats whole tables"));
        }
    }
    Err(refused("it takes too many steps"))
}

/// A tensor's bytes in a torch archive.
fn read(path: &Path, info: &TensorInfo) -> Result<Vec<u8>, ModelError> {
    let failed = |what: &str| corrupt(path, format!("tensor '{}' {what}", clean(&info.name)));
    let size = info.dtype.size_in_bytes();
    let elements = info.layout.dims().iter().try_fold(size, |bytes, dim| bytes.checked_mul(*dim));
    let start = info.layout.start_offset(); // in bytes, as candle has it
    let (Some(len), true) = (elements, info.layout.is_contiguous()) else {
        return Err(failed("does not lie in one piece"));
    };
    let mut zip = archive(path)?;
    let mut entry = zip.by_name(&info.path).map_err(|_| failed("is not in the archive"))?;
    let end = start.checked_add(len).filter(|end| *end as u64 <= entry.size());
    if end.is_none() || entry.compression() != CompressionMethod::Stored {
        return Err(failed("reaches beyond its storage, or is compressed"));
    }
    let skipped = std::io::copy(&mut entry.by_ref().take(start as u64), &mut std::io::sink());
    let mut bytes = Vec::new();
    let got = skipped.and_then(|_| entry.take(len as u64).read_to_end(&mut bytes));
    match got {
        Ok(got) if got == len => Ok(bytes),
        _ => Err(failed("ends in the middle")),
    }
}
