//! The safetensors files of a folder: one file, or shards that an index lists.
//!
//! Invariant: a [`Shard`] is mapped and its header checked, so the bytes of all its tensors exist.

use std::collections::HashMap;
use std::path::Path;

use safetensors::tensor::{Metadata, TensorInfo};
use safetensors::{SafeTensorError, SafeTensors};
use serde::Deserialize;
use serde_json::Value;

use crate::ModelError;
use crate::error::clean;
use crate::files::foreign::Foreign;
use crate::files::mapped::Mapped;
use crate::files::side_files::SideFiles;
use crate::files::unfinished::EMPTY;
use crate::files::{folder_kind, unfinished};

/// Most shards that an index may list.
const MAX_SHARDS: usize = 4096;

/// One safetensors file.
pub(crate) struct Shard {
    map: Mapped,
    /// Offset of the first tensor in the file.
    data: usize,
    pub(crate) metadata: Metadata,
}

/// `model.safetensors.index.json`.
#[derive(Deserialize)]
struct Index {
    weight_map: HashMap<String, String>,
}

pub(crate) const INDEX: &str = "model.safetensors.index.json";
pub(crate) const SINGLE: &str = "model.safetensors";

impl Shard {
    /// A tensor's bytes; opening the shard checked that they exist.
    pub(crate) fn bytes(&self, info: &TensorInfo) -> &[u8] {
        let (start, end) = info.data_offsets;
        self.map.bytes().get(self.data + start..self.data + end).unwrap_or(&[])
    }

    /// Frees the pages of a tensor that was copied.
    pub(crate) fn release(&self, info: &TensorInfo) {
        let (start, end) = info.data_offsets;
        self.map.release(self.data + start..self.data + end);
    }

    /// All shards of a folder, in the order of their names.
    ///
    /// # Errors
    /// If one is missing or damaged.
    pub(crate) fn all_of(folder: &Path) -> Result<Vec<Self>, ModelError> {
        names(folder)?.iter().map(|name| Self::open(&folder.join(name))).collect()
    }

    fn open(path: &Path) -> Result<Self, ModelError> {
        let map = Mapped::open(path)?;
        let corrupt = |what: String| ModelError::Corrupt { path: path.to_owned(), what };
        if !is_safetensors(map.bytes()) {
            return Err(not_safetensors(path, map.bytes()));
        }
        let (header, metadata) =
            SafeTensors::read_metadata(map.bytes()).map_err(|error| corrupt(unreadable(path, map.bytes(), &error)))?;
        let data = header + 8; // 8 bytes for the header's length come first
        if let Some(there) = map.hole_before(data + metadata.data_len()) {
            return Err(corrupt(unfinished::hole(there, map.bytes().len())));
        }
        Ok(Self { map, data, metadata })
    }
}

/// Longest header of the format.
const MAX_HEADER: u64 = 100_000_000;

/// Length of the header, if this is the start of a safetensors file.
fn header_len(bytes: &[u8]) -> Option<u64> {
    let (len, rest) = bytes.split_first_chunk::<8>()?;
    let len = u64::from_le_bytes(*len);
    (rest.first() == Some(&b'{') && (2..=MAX_HEADER).contains(&len)).then_some(len)
}

/// Whether a file begins like a safetensors file: the length of the header, then the header, which is a JSON object.
pub(super) fn is_safetensors(bytes: &[u8]) -> bool {
    header_len(bytes).is_some()
}

/// The error for a file that is something else.
fn not_safetensors(path: &Path, bytes: &[u8]) -> ModelError {
    if bytes.starts_with(b"GGUF") {
        return ModelError::Unsupported(format!(
            "{} is a GGUF file; name the file itself and not its folder",
            path.display()
        ));
    }
    match Foreign::of(path, bytes) {
        Some(_) if bytes.is_empty() => ModelError::Corrupt { path: path.to_owned(), what: EMPTY.to_owned() },
        Some(foreign) => foreign.error(path),
        None => ModelError::Corrupt { path: path.to_owned(), what: "it is not a safetensors file".to_owned() },
    }
}

/// A clause on what is wrong with a safetensors file.
fn unreadable(path: &Path, bytes: &[u8], error: &SafeTensorError) -> String {
    let why = unfinished::clause(path).map_or_else(String::new, |why| format!("; {why}"));
    let (len, header) = (bytes.len() as u64, header_len(bytes).unwrap_or(0));
    let Some(text) = bytes.get(8..8 + header as usize) else {
        return format!("it is cut off at {len} bytes, within its header{why}");
    };
    match error {
        SafeTensorError::MetadataIncompleteBuffer => {
            let tensors: HashMap<String, Value> = serde_json::from_slice(text).unwrap_or_default();
            let ends = tensors.values().filter_map(|tensor| tensor["data_offsets"][1].as_u64());
            let needed = ends.max().unwrap_or(0).saturating_add(8 + header);
            match len < needed {
                true => format!("it is cut off at {len} of {needed} bytes{why}"),
                false => format!(
                    "it has {len} bytes and its tensors need {needed}: something else follows them, or is between them"
                ),
            }
        }
        error => format!("its header cannot be read ({})", clean(&error.to_string())),
    }
}

/// Names of the files with the tensors. As in `transformers`, a single file takes precedence over an index, which may
/// be left over from an earlier version.
fn names(path: &Path) -> Result<Vec<String>, ModelError> {
    if path.join(SINGLE).is_file() {
        return Ok(vec![SINGLE.to_owned()]);
    }
    let index = path.join(INDEX);
    if !index.is_file() {
        return Err(ModelError::Unsupported(format!(
            "{} has neither {SINGLE} nor {INDEX}: {}",
            path.display(),
            folder_kind::without_weights(path)
        )));
    }
    let damaged = |what: String| ModelError::Corrupt { path: index.clone(), what };
    let text = SideFiles::of(path).json(INDEX)?.unwrap_or_default();
    let Index { weight_map } = serde_json::from_slice(&text).map_err(|error| damaged(clean(&error.to_string())))?;
    let mut names: Vec<String> = weight_map.into_values().collect();
    names.sort_unstable();
    names.dedup();
    if names.is_empty() || names.len() > MAX_SHARDS {
        return Err(damaged(format!("it names {} files", names.len())));
    }
    for name in &names {
        if name.contains(['/', '\\']) || name.starts_with('.') {
            return Err(damaged(format!("'{}' is not a plain file name", clean(name))));
        }
    }
    let missing: Vec<_> = names.iter().filter(|name| !path.join(name).is_file()).collect();
    if let [first, ref others @ ..] = missing[..] {
        let more = if others.is_empty() { String::new() } else { format!(" (and {} more)", others.len()) };
        return Err(damaged(format!("the shard '{}' that it names is missing{more}", clean(first))));
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_single_file_takes_precedence_over_an_index() {
        let folder = tempfile::tempdir().unwrap();
        let put = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
        put(INDEX, r#"{"weight_map": {"a": "b-2.safetensors", "b": "b-1.safetensors", "c": "b-2.safetensors"}}"#);
        put("b-1.safetensors", "");
        put("b-2.safetensors", "");
        assert_eq!(names(folder.path()).unwrap(), ["b-1.safetensors", "b-2.safetensors"]);
        put(SINGLE, "");
        assert_eq!(names(folder.path()).unwrap(), [SINGLE]);
        std::fs::remove_file(folder.path().join(INDEX)).unwrap();
        assert_eq!(names(folder.path()).unwrap(), [SINGLE]);
    }
}
