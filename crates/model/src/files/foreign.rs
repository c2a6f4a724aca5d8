//! Files that are no models, recognised by their first bytes, so that an error says what a file is.
//!
//! Invariant: a description asserts what the bytes show. Text of the file appears without control characters.

use std::path::Path;

use crate::ModelError;
use crate::error::clean;
use crate::files::unfinished;

/// Bytes from the start of a file that are looked at.
pub(crate) const HEAD: usize = 4096;

const UNPACK: &str = "unpack it and name the model inside";
const CONVERT: &str = "convert it to a GGUF file or to a folder of safetensors first";
const AGAIN: &str = "download the model's file again";
const NAME_GGUF: &str = "name a GGUF file or a folder of safetensors";

/// Offset, bytes that stand there, what such a file is, and the next step.
const MAGIC: &[(usize, &[u8], &str, &str)] = &[
    (0, b"\x80\x02", PICKLE, CONVERT),
    (0, b"\x80\x03", PICKLE, CONVERT),
    (0, b"\x80\x04", PICKLE, CONVERT),
    (0, b"\x80\x05", PICKLE, CONVERT),
    (0, b"lmgg", "a model in an old format of llama.cpp (ggml)", OLD),
    (0, b"fmgg", "a model in an old format of llama.cpp (ggmf)", OLD),
    (0, b"tjgg", "a model in an old format of llama.cpp (ggjt)", OLD),
    (0, b"algg", "a LoRA adapter in an old format of llama.cpp (ggla)", OLD),
    (0, b"MZqFpD", "a llamafile or another program", "get the model as a GGUF file"),
    (0, b"\x7fELF", "a program", NAME_GGUF),
    (0, b"\x1f\x8b", "a gzip archive", UNPACK),
    (0, b"BZh", "a bzip2 archive", UNPACK),
    (0, b"\xfd7zXZ\0", "an xz archive", UNPACK),
    (0, b"\x28\xb5\x2f\xfd", "a Zstandard archive", UNPACK),
    (0, b"7z\xbc\xaf\x27\x1c", "a 7z archive", UNPACK),
    (0, b"Rar!\x1a\x07", "a RAR archive", UNPACK),
    (257, b"ustar", "a tar archive", UNPACK),
    (0, b"%PDF-", "a PDF document", NAME_GGUF),
    (0, b"\x89HDF\r\n\x1a\n", "an HDF5 file, as Keras saves models", CONVERT),
    (0, b"\x93NUMPY", "an array of NumPy", CONVERT),
    (4, b"TFL3", "a model of TensorFlow Lite", CONVERT),
    (0, b"\x89PNG\r\n\x1a\n", "a picture (PNG)", NAME_GGUF),
    (0, b"\xff\xd8\xff", "a picture (JPEG)", NAME_GGUF),
    (0, b"SQLite format 3\0", "an SQLite database", NAME_GGUF),
    (8, b"blk.", "an importance matrix in the old format of llama.cpp", "name the model that it was made from"),
];

const PICKLE: &str = "a Python pickle, as PyTorch saves weights (.bin, .pth)";
const OLD: &str = "get the model as a GGUF file";

/// What a file is, as `X is …` continues, and the next step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Foreign {
    pub(crate) what: String,
    pub(crate) next: String,
}

impl Foreign {
    fn new(what: impl Into<String>, next: impl Into<String>) -> Self {
        Self { what: what.into(), next: next.into() }
    }

    /// The error for a file of this path.
    pub(crate) fn error(&self, path: &Path) -> ModelError {
        ModelError::Unsupported(format!("{} is {}; {}", path.display(), self.what, self.next))
    }

    /// What a file is that is neither a GGUF nor a safetensors file: by its name and its first bytes. `None` for bytes that
    /// are not recognised.
    pub(crate) fn of(path: &Path, bytes: &[u8]) -> Option<Self> {
        let head = &bytes[..bytes.len().min(HEAD)];
        if let Some(what) = unfinished::control_file(path) {
            return Some(Self::new(what, "finish the download and name the model's file"));
        }
        if bytes.is_empty() {
            return Some(Self::new("empty (0 bytes)", AGAIN));
        }
        if head.iter().all(|byte| *byte == 0) {
            return Some(Self::new(
                format!("no model yet: its first {} bytes are zero, as in an unfinished download", head.len()),
                AGAIN,
            ));
        }
        Self::by_magic(head).or_else(|| Self::of_text(bytes, head))
    }

    fn by_magic(head: &[u8]) -> Option<Self> {
        if head.starts_with(b"PK\x03\x04") || head.starts_with(b"PK\x05\x06") {
            let is_torch = contains(head, b"/data.pkl") || contains(head, b"/byteorder");
            return Some(match is_torch {
                true => Self::new("a PyTorch file (.bin, .pt, .pth)", CONVERT),
                false => Self::new("a zip archive", UNPACK),
            });
        }
        let found = MAGIC.iter().find(|(at, magic, ..)| head.get(*at..).is_some_and(|rest| rest.starts_with(magic)));
        if let Some((_, _, what, next)) = found {
            return Some(Self::new(*what, *next));
        }
        if is_onnx(head) {
            return Some(Self::new("an ONNX model", CONVERT));
        }
        let is_sentence_piece = head.first() == Some(&0x0a) && contains(&head[..head.len().min(64)], b"<unk>");
        is_sentence_piece.then(|| {
            Self::new("a tokenizer of SentencePiece (tokenizer.model)", "name the model's GGUF file or its folder")
        })
    }

    fn of_text(bytes: &[u8], head: &[u8]) -> Option<Self> {
        let text = text_of(head)?;
        let text = text.trim_start_matches('\u{feff}').trim_start();
        if text.starts_with("version https://git-lfs.github.com/spec/") {
            let size = text.lines().find_map(|line| line.strip_prefix("size ")?.trim().parse::<u64>().ok());
            let size = size.map_or_else(String::new, |size| format!(", which has {size} bytes"));
            let next = "run `git lfs pull` in its repository, or download the file again";
            return Some(Self::new(format!("a Git LFS pointer and not the file itself{size}"), next));
        }
        let lower = text.get(..text.floor_char_boundary(64)).unwrap_or(text).to_ascii_lowercase();
        if ["<!doctype html", "<html", "<head", "<body"].iter().any(|start| lower.starts_with(start)) {
            let title = between(text, "<title>", "</title>").map_or_else(String::new, |title| format!(" ('{title}')"));
            let next = "download the file itself, after signing in if its page asks for it";
            return Some(Self::new(format!("a web page{title} that was saved in place of the model"), next));
        }
        if lower.starts_with("<?xml") || lower.starts_with("<error") {
            let parts = [between(text, "<Code>", "</Code>"), between(text, "<Message>", "</Message>")];
            let says: Vec<_> = parts.into_iter().flatten().collect();
            let says = if says.is_empty() { String::new() } else { format!(" ('{}')", says.join(": ")) };
            return Some(Self::new(format!("an XML document{says}, as servers answer in place of a file"), AGAIN));
        }
        if text.starts_with('{') {
            return Some(Self::of_json(bytes));
        }
        let start = clean(&text.lines().next().unwrap_or_default().chars().take(60).collect::<String>());
        Some(Self::new(format!("text ('{start}')"), NAME_GGUF))
    }

    fn of_json(bytes: &[u8]) -> Self {
        let value = (bytes.len() <= 1 << 20).then(|| serde_json::from_slice::<serde_json::Value>(bytes).ok());
        let value = value.flatten().unwrap_or_default();
        let has = |key: &str| value.get(key).is_some();
        let says = ["error", "message", "detail"].iter().find_map(|key| {
            let said = value.get(key)?;
            said.as_str().or_else(|| said["message"].as_str()).map(clean)
        });
        if has("weight_map") {
            return Self::new("the index of a model's shards", "name its folder");
        }
        if has("model_type") || has("architectures") {
            return Self::new("the configuration of a model", "name its folder");
        }
        if has("schemaVersion") {
            return Self::new("a manifest, which lists the files of a model", "name the model's GGUF file");
        }
        match says {
            Some(says) => {
                Self::new(format!("an answer of a server ('{says}') that was saved in place of the model"), AGAIN)
            }
            None => Self::new("a JSON document", NAME_GGUF),
        }
    }
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

/// Protocol buffer whose first fields are ONNX's version (3 to 20) and producer, or version and graph.
fn is_onnx(head: &[u8]) -> bool {
    matches!(head, [0x08, 3..=20, 0x12 | 0x3a, ..]) && (contains(head, b"onnx") || contains(head, b"pytorch"))
        || matches!(head, [0x08, 3..=20, 0x12, len, ..] if head.get(4 + usize::from(*len)) == Some(&0x1a))
}

/// The text, if it is text: UTF-8 but for a character that the end cuts, without control characters but white space.
fn text_of(head: &[u8]) -> Option<&str> {
    let text = match std::str::from_utf8(head) {
        Ok(text) => text,
        Err(error) if head.len() - error.valid_up_to() < 4 && error.error_len().is_none() => {
            std::str::from_utf8(&head[..error.valid_up_to()]).ok()?
        }
        Err(_) => return None,
    };
    let is_text = |c: char| !c.is_control() || "\t\r\n\u{c}".contains(c);
    text.chars().all(is_text).then_some(text)
}

/// What stands between two marks, on one line.
fn between(text: &str, from: &str, to: &str) -> Option<String> {
    let (_, rest) = text.split_once(from)?;
    let (inner, _) = rest.split_once(to)?;
    let inner = inner.split_whitespace().collect::<Vec<_>>().join(" ");
    (!inner.is_empty()).then(|| clean(&inner))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn what(name: &str, bytes: &[u8]) -> Option<String> {
        Foreign::of(Path::new(name), bytes).map(|foreign| foreign.what)
    }

    #[test]
    fn files_are_named_by_their_first_bytes() {
        let mut tar = vec![b'a'; 512];
        tar[257..262].copy_from_slice(b"ustar");
        let cases: &[(&[u8], &str)] = &[
            (b"", "empty"),
            (&[0; 8192], "first 4096 bytes are zero"),
            (b"PK\x03\x04 ........ archive/data.pkl", "a PyTorch file"),
            (b"PK\x03\x04 ........ notes.txt", "a zip archive"),
            (b"\x80\x02}q\x00", "a Python pickle"),
            (b"\x1f\x8b\x08\0\0\0", "gzip"),
            (&tar, "tar archive"),
            (b"%PDF-1.7\n%\xe2\xe3", "PDF"),
            (b"tjgg\x03\0\0\0", "(ggjt)"),
            (b"lmgg\x20\0\0\0", "(ggml)"),
            (b"\x08\x07\x12\x07pytorch\x1a\x052.1.0", "ONNX"),
            (b"\x0a\x0e\x0a\x05<unk>\x15\0\0\0\0", "SentencePiece"),
            (b"\x04\0\0\0\x10\0\0\0blk.0.attn_q.weight", "importance matrix"),
            (b"Entry not found", "text ('Entry not found')"),
            (b"\xef\xbb\xbf<!DOCTYPE HTML><title>\n Sign\x20in </title>", "a web page ('Sign in')"),
            (b"<?xml version=\"1.0\"?><Error><Code>AccessDenied</Code></Error>", "('AccessDenied')"),
            (br#"{"error": "Repository not found"}"#, "('Repository not found')"),
            (br#"{"error": {"message": "gated\u001b[31m"}}"#, "('gated\u{fffd}[31m')"),
            (br#"{"model_type": "llama"}"#, "the configuration of a model"),
            (br#"{"weight_map": {}}"#, "the index of a model's shards"),
        ];
        for (bytes, says) in cases {
            let what = what("model.gguf", bytes).unwrap_or_default();
            assert!(what.contains(says), "{says}: {what}");
        }
        assert_eq!(what("model.gguf", b"\x01\x02\x03 unknown"), None);
        assert!(what("model.gguf.aria2", b"\0\x01\0\0").unwrap().contains("aria2"));
    }

    #[test]
    fn a_pointer_says_how_large_the_file_is() {
        let pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 104857600\n";
        assert!(
            what("m", pointer)
                .unwrap()
                .contains("a Git LFS pointer and not the file itself, which has 104857600 bytes")
        );
    }
}
