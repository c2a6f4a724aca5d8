//! The start of a file that should be a GGUF file: what it is if it is none, and whether its header is whole.

use std::path::Path;

use crate::ModelError;
use crate::files::foreign::Foreign;

use super::unfinished::EMPTY;
use crate::files::gguf_scan::{self, Fault};
use crate::files::{shard, unfinished};

/// Longest header, in bytes: vocabularies of 256,000 tokens take some 20 MB.
pub(super) const MAX_HEADER: usize = 128 << 20;

/// Checks magic, version, byte order and the keys of the header.
///
/// # Errors
/// [`ModelError::Unsupported`] saying what the file is, [`ModelError::Corrupt`] for one that is cut off or damaged.
pub(super) fn check(path: &Path, bytes: &[u8]) -> Result<(), ModelError> {
    let unsupported = |what: &str| Err(ModelError::Unsupported(format!("{} is {what}", path.display())));
    let corrupt = |what: String| Err(ModelError::Corrupt { path: path.to_owned(), what });
    if bytes.is_empty() {
        return corrupt(EMPTY.to_owned());
    }
    if b"GGUF".starts_with(bytes) {
        return corrupt(cut_off(path, bytes.len()));
    }
    if !bytes.starts_with(b"GGUF") {
        if shard::is_safetensors(bytes) {
            return unsupported(
                "a safetensors file; such a model is a folder with config.json and tokenizer.json: name that folder",
            );
        }
        if let Some(foreign) = Foreign::of(path, bytes) {
            return Err(foreign.error(path));
        }
        let why = unfinished::clause(path).map_or_else(String::new, |why| format!("; {why}"));
        return corrupt(format!("it is not a GGUF file{why}"));
    }
    let version = bytes.get(4..8).map(|version| [version[0], version[1], version[2], version[3]]);
    match version.map(u32::from_le_bytes) {
        Some(1..=3) | None => {}
        Some(other) if other.swap_bytes() <= 0xffff => {
            return unsupported(
                "a big-endian GGUF file; convert it with `gguf-convert-endian FILE little` of the Python package gguf, or get a little-endian one",
            );
        }
        Some(other @ 4..=99) => {
            return unsupported(&format!("a GGUF file of version {other}; versions 1 to 3 are read"));
        }
        Some(other) => return corrupt(format!("its header names version {other} of GGUF, which does not exist")),
    }
    match gguf_scan::check(&bytes[..bytes.len().min(MAX_HEADER)]) {
        Ok(()) => Ok(()),
        Err(Fault::CutOff) if bytes.len() > MAX_HEADER => {
            corrupt(format!("its header takes more than {MAX_HEADER} bytes, which no model needs"))
        }
        Err(Fault::CutOff) => corrupt(cut_off(path, bytes.len())),
        Err(Fault::Wrong(what)) => corrupt(format!("its header: {what}")),
    }
}

/// A clause on a file that ends after so many bytes, within its header.
pub(super) fn cut_off(path: &Path, len: usize) -> String {
    let why = unfinished::clause(path).map_or_else(String::new, |why| format!("; {why}"));
    format!("it is cut off at {len} bytes, within its header{why}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn says(bytes: &[u8]) -> String {
        check(Path::new("m.gguf"), bytes).unwrap_err().to_string()
    }

    #[test]
    fn byte_order_and_version_are_named() {
        assert!(says(b"GGUF\0\0\0\x03\0\0\0\0").starts_with("m.gguf is a big-endian GGUF file; "));
        assert!(says(b"GGUF\x04\0\0\0\0\0\0\0").starts_with("m.gguf is a GGUF file of version 4; "));
        assert!(says(b"GGUF\x03\0\0\0\0\0").contains("cut off at 10 bytes, within its header"));
        assert!(says(b"GGUF and then").contains("its header names version") && says(b"").contains(EMPTY));
        assert!(says(b"GGU").contains("cut off at 3 bytes"));
        assert!(says(b"\x7f\x01\x02\x03").contains("it is not a GGUF file"));
        let mut safetensors = 20u64.to_le_bytes().to_vec();
        safetensors.extend(br#"{"a": 1}            "#);
        assert!(says(&safetensors).contains("is a safetensors file; "));
    }
}
