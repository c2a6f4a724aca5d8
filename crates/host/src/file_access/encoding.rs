//! Text in files: UTF-8, with or without a byte order mark. Text in other encodings is named and not guessed at, because a
//! wrong guess would change a prompt without a word.

use std::io;

/// A byte order mark in UTF-8.
const MARK: &[u8] = b"\xef\xbb\xbf";

/// How much of a file is looked at to name its encoding, in bytes.
const LOOKED_AT: usize = 4096;

/// Beginnings of files that are no text, and what such a file is.
const KINDS: [(&[u8], &str); 8] = [
    (b"\x1f\x8b", "a gzip file"),
    (b"\x28\xb5\x2f\xfd", "a zstd file"),
    (b"PK\x03\x04", "a ZIP file or an office document"),
    (b"%PDF", "a PDF document"),
    (b"GGUF", "a GGUF file"),
    (b"\x89PNG", "a picture"),
    (b"\xff\xd8\xff", "a picture"),
    (b"\x7fELF", "a program"),
];

/// The bytes after a byte order mark, if there is one.
#[must_use]
pub fn without_mark(bytes: &[u8]) -> &[u8] {
    bytes.strip_prefix(MARK).unwrap_or(bytes)
}

/// The text of a file without its byte order mark. Line ends stay as they are.
///
/// # Errors
/// When it is not UTF-8: a clause that names the encoding it looks like, and the next step.
pub fn decode(mut bytes: Vec<u8>) -> io::Result<String> {
    if let Some(what) = other_encoding(&bytes) {
        return Err(io::Error::new(io::ErrorKind::InvalidData, what));
    }
    if bytes.starts_with(MARK) {
        bytes.drain(..MARK.len());
    }
    String::from_utf8(bytes).map_err(|error| {
        let (at, bytes) = (error.utf8_error().valid_up_to(), error.as_bytes());
        io::Error::new(io::ErrorKind::InvalidData, not_utf8(bytes, at, error.utf8_error().error_len().is_none()))
    })
}

/// What a file is whose first bytes are no UTF-8 text: UTF-16, UTF-32, or no text at all.
#[must_use]
pub fn other_encoding(bytes: &[u8]) -> Option<String> {
    let start = &bytes[..bytes.len().min(LOOKED_AT)];
    let convert = |name: &str| {
        Some(format!("it is {name} text, and UTF-8 is needed; convert it with `iconv -f {name} -t UTF-8`"))
    };
    // UTF-16 of mostly Latin text has a zero in every second byte
    let zeros = |first: usize| start.iter().skip(first).step_by(2).filter(|byte| **byte == 0).count();
    let most = |zeros: usize| start.len() >= 4 && zeros * 8 > start.len() * 3;
    match start {
        [0xff, 0xfe, 0, 0, ..] | [0, 0, 0xfe, 0xff, ..] => convert("UTF-32"),
        [0xff, 0xfe, ..] | [0xfe, 0xff, ..] => convert("UTF-16"),
        _ if most(zeros(1)) && zeros(0) == 0 => convert("UTF-16LE"),
        _ if most(zeros(0)) && zeros(1) == 0 => convert("UTF-16BE"),
        _ => {
            let (_, kind) = KINDS.iter().find(|(magic, _)| start.starts_with(magic))?;
            Some(format!("it is not text: it begins like {kind}"))
        }
    }
}

/// What is wrong at the first byte that is not UTF-8; `is_cut` says that the bytes end within a character.
fn not_utf8(bytes: &[u8], at: usize, is_cut: bool) -> String {
    let line = bytes[..at].iter().filter(|byte| **byte == b'\n').count() + 1;
    let (before, after) = (&bytes[at.saturating_sub(LOOKED_AT)..at], &bytes[at..bytes.len().min(at + LOOKED_AT)]);
    // a lone byte at the end of what is ASCII so far is more likely a letter of another encoding than half a character
    let is_cut = is_cut && !bytes[..at].is_ascii();
    let is_text = !before.iter().chain(after).any(|byte| matches!(byte, 0..=8 | 14..=26 | 28..=31));
    match after.first() {
        _ if is_cut => {
            format!("it is not UTF-8 text: it ends within a character in line {line}; the file may be cut off")
        }
        Some(byte) if is_text => format!(
            "it is not UTF-8 text: line {line} has the byte {byte:02X}, as text in Latin-1 or Windows-1252 has it; convert it with `iconv -f WINDOWS-1252 -t UTF-8`"
        ),
        _ => format!("it is not UTF-8 text: line {line} has bytes that no text has"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_left_out_once_and_line_ends_stay() {
        let text = |bytes: &[u8]| decode(bytes.to_vec()).unwrap();
        assert_eq!(text(b"\xef\xbb\xbfHi\r\nyou"), "Hi\r\nyou");
        assert_eq!(text("\u{feff}\u{feff}a".as_bytes()), "\u{feff}a");
        assert_eq!(
            (text(b""), text(b"\xef\xbb\xbf"), text("a\u{feff}".as_bytes())),
            (String::new(), String::new(), "a\u{feff}".to_owned())
        );
        assert_eq!(text(b"a\0b"), "a\0b", "a NUL alone is UTF-8");
    }

    #[test]
    fn other_encodings_are_named_with_the_next_step() {
        let utf16 = |text: &str, mark: &[u8], big: bool| -> Vec<u8> {
            let units = text.encode_utf16().flat_map(|unit| if big { unit.to_be_bytes() } else { unit.to_le_bytes() });
            mark.iter().copied().chain(units).collect()
        };
        for (bytes, what) in [
            (utf16("Hi", b"\xff\xfe", false), "it is UTF-16 text"),
            (utf16("Hi", b"\xfe\xff", true), "it is UTF-16 text"),
            (utf16("Grüße an alle", b"", false), "it is UTF-16LE text"),
            (utf16("{\"seq\": 0}", b"", true), "it is UTF-16BE text"),
            (b"\xff\xfe\0\0H\0\0\0".to_vec(), "it is UTF-32 text"),
            (b"one\ncaf\xe9 au lait".to_vec(), "line 2 has the byte E9, as text in Latin-1 or Windows-1252"),
            ("é half é".as_bytes()[..9].to_vec(), "ends within a character in line 1"),
            (b"caf\xe9".to_vec(), "line 1 has the byte E9, as text in Latin-1 or Windows-1252"),
            (b"\x01\x02\xff\x00\x07".to_vec(), "bytes that no text has"),
            (b"\x1f\x8b\x08\0abc".to_vec(), "it begins like a gzip file"),
            (b"GGUF\x03\0\0\0\0\0\0\0".to_vec(), "it begins like a GGUF file"),
        ] {
            let error = decode(bytes).unwrap_err().to_string();
            assert!(error.contains(what) && error.lines().count() == 1, "{what}: {error}");
        }
    }
}
