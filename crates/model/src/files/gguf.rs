//! GGUF files: candle's bounds-checked reader reads the metadata, [`gguf_tensors`] the list of tensors, whose bytes come
//! from a memory map.
//!
//! Invariant: any bytes give a value or a [`ModelError`] that names the key or tensor. The families
//! interpret the numbers.

use std::collections::HashMap;
use std::io::{self, Cursor, Read, Seek, SeekFrom};
use std::ops::Range;
use std::path::{Path, PathBuf};

use candle_core::quantized::gguf_file::{Content, Value, VersionedMagic};
use draftscope_kernels::Encoding;

use super::gguf_start::MAX_HEADER;
use crate::ModelError;
use crate::catch_panic::catch_panic;
use crate::files::gguf_tensors::{self, TensorEntry};
use crate::files::loaded::LoadedTensor;
use crate::files::mapped::Mapped;
use crate::files::stored::Stored;
use crate::files::tensor_type::TensorType;
use crate::files::{file_type, gguf_start, unfinished, whole_number};

/// Most values in a header, each 32 bytes in memory: such vocabularies have some 2 million, lengths included.
const MAX_READS: u32 = 20_000_000;

/// Of tensors, where a file has no `general.alignment`.
const ALIGNMENT: u64 = 32;

/// The bytes of one file.
pub(super) struct Part {
    pub(super) file: Mapped,
    /// Where tensors begin.
    pub(super) data: u64,
}

/// How much of the key `general.alignment` has been read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Alignment {
    Unseen,
    Key,
    Type,
}

fn without_nuls(bytes: &[u8]) -> &[u8] {
    let end = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    &bytes[..end]
}

/// Where a header says how many tensors it lists, after its magic and version.
const TENSOR_COUNT: u64 = 8;

/// The header of a file, as candle reads it: key, type and value one by one. An alignment of 0 is an error here, because
/// candle would divide by it. The number of tensors is kept back: candle reads 0, and stops after the metadata.
struct Head<'a> {
    bytes: Cursor<&'a [u8]>,
    alignment: Alignment,
    reads: u32,
    tensors: u64,
}

impl Read for Head<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.reads += 1;
        if self.reads > MAX_READS {
            return Err(io::Error::other("it has more values than any model needs"));
        }
        let at = self.bytes.position();
        let len = self.bytes.read(into)?;
        if at == TENSOR_COUNT {
            self.tensors = into[..len].iter().rev().fold(0, |count, byte| count << 8 | u64::from(*byte));
            into[..len].fill(0);
        }
        let read = &into[..len];
        self.alignment = match self.alignment {
            // candle drops trailing NULs of a key
            _ if without_nuls(read) == b"general.alignment" => Alignment::Key,
            Alignment::Key => Alignment::Type,
            Alignment::Type if read.iter().all(|byte| *byte == 0) => {
                return Err(io::Error::other("'general.alignment' is 0"));
            }
            Alignment::Type | Alignment::Unseen => Alignment::Unseen,
        };
        Ok(len)
    }
}

impl Seek for Head<'_> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.bytes.seek(to)
    }
}

/// An open GGUF file and its header. All parts of a split file are one file here.
pub struct GgufFile {
    /// Of the first part.
    pub(super) path: PathBuf,
    /// Of the first part.
    pub(super) metadata: HashMap<String, Value>,
    /// Of all parts.
    pub(super) tensors: HashMap<String, TensorEntry>,
    /// One, or all parts of a split file in their order.
    pub(super) parts: Vec<Part>,
}

impl GgufFile {
    /// As [`GgufFile::open`], but of a split file only this part, whose header lists the tensors of that part.
    ///
    /// # Errors
    /// As [`GgufFile::open`].
    pub fn open_part(path: &Path) -> Result<Self, ModelError> {
        let gguf = Self::read_header(path)?;
        gguf.check_extent()?;
        Ok(gguf)
    }

    /// Reads the header, also of a file whose tensors are cut off.
    pub(super) fn read_header(path: &Path) -> Result<Self, ModelError> {
        let file = Mapped::open(path)?;
        gguf_start::check(path, file.bytes())?;
        let head = &file.bytes()[..file.bytes().len().min(MAX_HEADER)];
        let mut head = Head { bytes: Cursor::new(head), alignment: Alignment::Unseen, reads: 0, tensors: 0 };
        let corrupt = |what: String| ModelError::Corrupt { path: path.to_owned(), what };
        let broken = |why: &str| corrupt(format!("its header: {why}"));
        let content = catch_panic(broken, || Content::read(&mut head).map_err(|error| corrupt(unreadable(&error))))?;
        let position = head.bytes.position();
        let rest = usize::try_from(position).ok().and_then(|position| head.bytes.get_ref().get(position..));
        let wide = !matches!(content.magic, VersionedMagic::GgufV1);
        let listed = gguf_tensors::read(rest.unwrap_or_default(), head.tensors, wide);
        let (tensors, length) = listed.map_err(|what| match what.as_str() {
            gguf_tensors::CUT_OFF => corrupt(gguf_start::cut_off(path, file.bytes().len())),
            what => corrupt(crate::error::clean(what)),
        })?;
        let alignment =
            content.metadata.get("general.alignment").and_then(whole_number::whole).unwrap_or(ALIGNMENT).max(1);
        let data = (position + length as u64).checked_next_multiple_of(alignment).unwrap_or(u64::MAX);
        Ok(Self { path: path.to_owned(), metadata: content.metadata, tensors, parts: vec![Part { file, data }] })
    }

    /// Compares the header with the file's length: a truncated file still has a good header.
    fn check_extent(&self) -> Result<(), ModelError> {
        for (number, part) in self.parts.iter().enumerate() {
            self.check_extent_of(number, part)?;
        }
        Ok(())
    }

    fn check_extent_of(&self, number: usize, part: &Part) -> Result<(), ModelError> {
        let size = part.file.bytes().len();
        // bytes of an unknown type cannot be counted; nothing reads them
        let known = self.tensors.iter().filter(|(_, info)| info.part == number && info.kind.is_known());
        let end = |info| self.range(info).map_or(usize::MAX, |range| range.end);
        let last = known.map(|(name, info)| (end(info), name)).max();
        let corrupt = |what: String| Err(ModelError::Corrupt { path: self.path.clone(), what });
        match last {
            Some((end, name)) if end > size => {
                let name = crate::error::clean(name);
                let of = if end == usize::MAX { String::new() } else { format!(" of {end}") };
                let why = unfinished::clause(&self.path).map_or_else(String::new, |why| format!("; {why}"));
                corrupt(format!(
                    "it is cut off at {size}{of} bytes: tensor '{name}' reaches beyond the end of the file{why}"
                ))
            }
            Some((end, _)) => match part.file.hole_before(end) {
                Some(there) => corrupt(unfinished::hole(there, size)),
                None => Ok(()),
            },
            None => Ok(()),
        }
    }

    /// A tensor's bytes; none if they are not all there.
    fn bytes_at(&self, info: &TensorEntry) -> Option<&[u8]> {
        self.parts.get(info.part)?.file.bytes().get(self.range(info)?)
    }

    /// Byte range of a tensor in its file.
    fn range(&self, info: &TensorEntry) -> Option<Range<usize>> {
        let start = usize::try_from(self.parts.get(info.part)?.data.checked_add(info.offset)?).ok()?;
        Some(start..start.checked_add(usize::try_from(info.bytes()?).ok()?)?)
    }

    /// Checks that all tensors of weights can be decoded.
    ///
    /// # Errors
    /// [`ModelError::Unsupported`] with the first tensor by name that cannot, its type, and how many others there are.
    pub fn check_types(&self) -> Result<(), ModelError> {
        let mut others: Vec<_> = self
            .tensors
            .iter()
            .filter(|(_, info)| info.kind.is_of_weights() && info.kind.encoding().is_none())
            .collect();
        others.sort_by_key(|(name, _)| *name);
        match others[..] {
            [] => Ok(()),
            [(name, info), ref more @ ..] => Err(info.kind.unsupported(name, more.len())),
        }
    }

    /// Path of the file, or of the first part.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Names of all tensors.
    pub fn tensor_names(&self) -> impl Iterator<Item = &str> {
        self.tensors.keys().map(String::as_str)
    }

    /// Whether there is a tensor of this name.
    #[must_use]
    pub fn has_tensor(&self, name: &str) -> bool {
        self.tensors.contains_key(name)
    }

    /// The name of its mixture of types, such as `Q4_K_M`, or the dtype of most of the matrices of its blocks, such as
    /// `q4_1`.
    #[must_use]
    pub fn main_dtype(&self) -> String {
        let matrices = |prefix: &str| -> Vec<(TensorType, u64)> {
            let tensors = self.tensors.iter();
            tensors
                .filter(|(name, info)| name.starts_with(prefix) && info.shape.len() > 1)
                .filter_map(|(_, info)| Some((info.kind, info.bytes()?)))
                .collect()
        };
        let blocks = matrices("blk.");
        let matrices = if blocks.is_empty() { matrices("") } else { blocks };
        file_type::name(self.number("general.file_type"), &matrices)
    }

    /// Bytes of a tensor; `None` if there is no such tensor.
    #[must_use]
    pub fn bytes_of(&self, name: &str) -> Option<u64> {
        self.tensors.get(name).and_then(TensorEntry::bytes)
    }

    /// The tensors that a target of so many layers and its first draft modules, which are layers after them, read.
    pub(crate) fn loaded_tensors(&self, layers: usize, modules: usize) -> impl Iterator<Item = LoadedTensor<'_>> {
        let block = |name: &str| name.strip_prefix("blk.")?.split('.').next()?.parse::<usize>().ok();
        // factors of positions become angles, which passes count
        let is_factors = |name: &str| name.starts_with("rope_freqs.") || name.starts_with("rope_factors_");
        self.tensors.iter().filter(move |(name, _)| !is_factors(name)).filter_map(move |(name, info)| {
            let block = block(name).filter(|block| *block >= layers);
            let tensor = LoadedTensor { of_module: block.is_some(), ..info.loaded() };
            block.is_none_or(|block| block < layers + modules).then_some(tensor)
        })
    }

    /// A tensor of a target, as loading counts it.
    pub(crate) fn loaded_tensor(&self, name: &str) -> Option<LoadedTensor<'_>> {
        self.tensors.get(name).map(TensorEntry::loaded)
    }

    /// Name, type and bytes of each tensor; no bytes for a type that is not known.
    pub(crate) fn kinds(&self) -> impl Iterator<Item = (&str, TensorType, Option<u64>)> {
        self.tensors.iter().map(|(name, info)| (name.as_str(), info.kind, info.bytes()))
    }

    /// Bytes of all tensors.
    #[must_use]
    pub fn tensor_bytes(&self) -> u64 {
        self.tensors.values().filter_map(TensorEntry::bytes).sum()
    }

    /// Shape of a tensor, outermost dimension first.
    ///
    /// # Errors
    /// [`ModelError::MissingTensor`].
    pub fn shape(&self, name: &str) -> Result<&[usize], ModelError> {
        let info = self.tensors.get(name);
        info.map(|info| info.shape.as_slice()).ok_or_else(|| ModelError::MissingTensor(name.to_owned()))
    }

    /// A tensor of the given shape (outermost dimension first) as the file stores it.
    ///
    /// # Errors
    /// [`ModelError::MissingTensor`], [`ModelError::Shape`], or [`ModelError::Unsupported`] for its type.
    pub fn stored(&self, name: &str, shape: &[usize]) -> Result<Stored<'_>, ModelError> {
        let (info, encoding) = self.found(name, shape)?;
        // the extent was checked when the file was opened
        Ok(Stored::new(encoding, self.bytes_at(info).unwrap_or(&[])))
    }

    fn found(&self, name: &str, shape: &[usize]) -> Result<(&TensorEntry, Encoding), ModelError> {
        let info = self.tensors.get(name).ok_or_else(|| ModelError::MissingTensor(name.to_owned()))?;
        if info.shape != shape {
            let (got, expected) = (info.shape.clone(), shape.to_vec());
            return Err(ModelError::Shape { name: name.to_owned(), got, expected });
        }
        Ok((info, info.kind.encoding().ok_or_else(|| info.kind.unsupported(name, 0))?))
    }

    /// Checks a tensor of the given shape without reading it; returns its encoding.
    ///
    /// # Errors
    /// As [`GgufFile::stored`]; [`ModelError::Unsupported`] if its rows are not whole blocks.
    pub(crate) fn check(&self, name: &str, shape: &[usize]) -> Result<Encoding, ModelError> {
        let (_, encoding) = self.found(name, shape)?;
        let width = shape.last().copied().unwrap_or(1);
        match encoding.row_bytes(width) {
            Some(_) => Ok(encoding),
            None => Err(ModelError::Unsupported(format!(
                "tensor '{name}' has rows of {width} {} weights, which are not whole blocks of its type",
                encoding.form().name()
            ))),
        }
    }

    /// A vector of plain numbers.
    ///
    /// # Errors
    /// As [`GgufFile::stored`].
    pub fn vector(&self, name: &str, len: usize) -> Result<Vec<f32>, ModelError> {
        self.stored(name, &[len])?.to_f32(&[len])
    }

    /// A vector of whole numbers (I64 or I32).
    ///
    /// # Errors
    /// [`ModelError::MissingTensor`], [`ModelError::Shape`], or [`ModelError::Unsupported`] for another type.
    pub fn integers(&self, name: &str, len: usize) -> Result<Vec<i64>, ModelError> {
        let info = self.tensors.get(name).ok_or_else(|| ModelError::MissingTensor(name.to_owned()))?;
        if info.shape != [len] {
            let (got, expected) = (info.shape.clone(), vec![len]);
            return Err(ModelError::Shape { name: name.to_owned(), got, expected });
        }
        let bytes = self.bytes_at(info).unwrap_or(&[]);
        Ok(match info.kind.name().as_ref() {
            "I64" => bytes.as_chunks().0.iter().map(|bytes| i64::from_le_bytes(*bytes)).collect(),
            "I32" => bytes.as_chunks().0.iter().map(|bytes| i32::from_le_bytes(*bytes).into()).collect(),
            other => {
                return Err(ModelError::Unsupported(format!(
                    "tensor '{name}' is stored as {other}; whole numbers are read"
                )));
            }
        })
    }

    /// Frees the pages of a tensor that was copied.
    pub(crate) fn release(&self, name: &str) {
        if let Some((info, range)) = self.tensors.get(name).and_then(|info| Some((info, self.range(info)?))) {
            self.parts[info.part].file.release(range);
        }
    }
}

/// What is wrong with a header that candle rejects.
fn unreadable(error: &candle_core::Error) -> String {
    let text = error.to_string();
    match text.lines().next().unwrap_or("unreadable") {
        what if what.contains("fill whole buffer") => "it is truncated".to_owned(),
        what => crate::error::clean(what),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damaged_headers_are_rejected_in_one_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cut");
        std::fs::write(&path, b"GGUF\x03\0\0\0\xff").unwrap();
        let error = GgufFile::open(&path).err().unwrap().to_string();
        assert!(
            error.contains("damaged or incomplete: it is cut off at 9 bytes") && error.lines().count() == 1,
            "{error}"
        );
        for (alignment, fails) in [(0u32, true), (32, false)] {
            let key = b"general.alignment";
            let mut bytes = b"GGUF\x03\0\0\0".to_vec();
            [0, 1, key.len() as u64].iter().for_each(|number: &u64| bytes.extend(number.to_le_bytes()));
            bytes.extend(key);
            [4, alignment].iter().for_each(|number: &u32| bytes.extend(number.to_le_bytes()));
            bytes.extend([0; 64]);
            let path = folder.path().join("alignment");
            std::fs::write(&path, bytes).unwrap();
            let error = GgufFile::open(&path).err().map(|error| error.to_string());
            assert_eq!(error.is_some_and(|error| error.contains("'general.alignment' is 0")), fails);
        }
        let missing = GgufFile::open(&folder.path().join("none")).err().unwrap().to_string();
        assert!(missing.starts_with("cannot read"), "{missing}");
    }
}
