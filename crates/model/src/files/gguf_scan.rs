//! Walks over the keys of a GGUF header before candle reads their values, to name what is wrong with them: a file that ends
//! too early, a key without a name, a key that is there twice, a value of an unknown type.
//!
//! Invariant: any bytes give a result, without more memory than a fixed multiple of the number of keys.

use std::collections::HashSet;

use crate::error::clean;

/// Deepest nesting of arrays.
const MAX_DEPTH: usize = 4;

/// What is wrong with a header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// The bytes end before the header does.
    CutOff,
    /// A clause on what is wrong.
    Wrong(String),
}

/// Unread bytes; lengths take 8 bytes, or 4 in version 1 of the format.
struct Walk<'a> {
    bytes: &'a [u8],
    wide: bool,
}

impl<'a> Walk<'a> {
    fn take(&mut self, len: u64) -> Result<&'a [u8], Fault> {
        let len = usize::try_from(len).map_err(|_| Fault::CutOff)?;
        let (taken, rest) = self.bytes.split_at_checked(len).ok_or(Fault::CutOff)?;
        self.bytes = rest;
        Ok(taken)
    }

    fn number(&mut self, len: u64) -> Result<u64, Fault> {
        Ok(self.take(len)?.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
    }

    fn length(&mut self) -> Result<u64, Fault> {
        self.number(if self.wide { 8 } else { 4 })
    }

    fn text(&mut self) -> Result<&'a [u8], Fault> {
        let len = self.length()?;
        self.take(len)
    }

    /// Skips a value of this type.
    fn value(&mut self, kind: u64, depth: usize) -> Result<(), Fault> {
        match kind {
            8 => self.text().map(drop),
            9 if depth < MAX_DEPTH => {
                let (of, len) = (self.number(4)?, self.length()?);
                match size(of) {
                    Some(size) => self.take(len.checked_mul(size).ok_or(Fault::CutOff)?).map(drop),
                    None => (0..len).try_for_each(|_| self.value(of, depth + 1)),
                }
            }
            9 => Err(Fault::Wrong("holds arrays in arrays in arrays".to_owned())),
            _ => match size(kind) {
                Some(size) => self.take(size).map(drop),
                None => Err(Fault::Wrong(format!("has a value of type {kind}, which GGUF does not define"))),
            },
        }
    }
}

/// Bytes of a value of a type with a fixed size.
fn size(kind: u64) -> Option<u64> {
    match kind {
        0 | 1 | 7 => Some(1),
        2 | 3 => Some(2),
        4..=6 => Some(4),
        10..=12 => Some(8),
        _ => None,
    }
}

/// Checks the keys of a header, which begins with magic and version.
///
/// # Errors
/// What is wrong with the first key that is.
pub(super) fn check(bytes: &[u8]) -> Result<(), Fault> {
    let mut walk = Walk { bytes, wide: true };
    walk.take(4)?;
    walk.wide = walk.number(4)? != 1;
    walk.length()?; // tensors
    let count = walk.length()?;
    let mut seen = HashSet::new();
    for at in 1..=count {
        let key = walk.text()?;
        let name = clean(String::from_utf8_lossy(key).trim_end_matches('\0'));
        if name.is_empty() {
            return Err(Fault::Wrong(format!("key {at} of {count} has no name")));
        }
        let of_key = |fault| match fault {
            Fault::CutOff => Fault::CutOff,
            Fault::Wrong(what) => Fault::Wrong(format!("the key '{name}' {what}")),
        };
        let kind = walk.number(4)?;
        walk.value(kind, 0).map_err(of_key)?;
        if !seen.insert(key) {
            return Err(Fault::Wrong(format!("the key '{name}' is there twice")));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(keys: &[(&str, u32, &[u8])]) -> Vec<u8> {
        let mut bytes = b"GGUF\x03\0\0\0".to_vec();
        [0, keys.len() as u64].iter().for_each(|number| bytes.extend(number.to_le_bytes()));
        for (key, kind, value) in keys {
            bytes.extend((key.len() as u64).to_le_bytes());
            bytes.extend(key.as_bytes());
            bytes.extend(kind.to_le_bytes());
            bytes.extend(*value);
        }
        bytes
    }

    #[test]
    fn keys_are_walked_over_and_a_cut_is_found_everywhere() {
        let mut nested = vec![9, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0];
        for _ in 0..2 {
            nested.extend([4, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0]);
        }
        let good =
            header(&[("a", 4, &[1, 0, 0, 0]), ("b", 8, b"\x02\0\0\0\0\0\0\0hi"), ("c", 9, &nested), ("d", 7, &[1])]);
        assert_eq!(check(&good), Ok(()));
        for end in 0..good.len() {
            assert_eq!(check(&good[..end]), Err(Fault::CutOff), "{end} bytes");
        }
    }

    #[test]
    fn a_wrong_key_is_named() {
        let one: (&str, u32, &[u8]) = ("a.key\u{1b}", 0, &[1]);
        let deep: Vec<u8> = [9, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0].repeat(6);
        for (keys, says) in [
            (vec![one, one], "the key 'a.key\u{fffd}' is there twice"),
            (vec![one, ("", 0, &[1])], "key 2 of 2 has no name"),
            (vec![("x", 13, &[1; 8])], "the key 'x' has a value of type 13"),
            (vec![("x", 9, &deep)], "the key 'x' holds arrays in arrays"),
        ] {
            assert!(matches!(check(&header(&keys)), Err(Fault::Wrong(what)) if what.starts_with(says)), "{says}");
        }
        let mut many = header(&[]);
        many[16..24].copy_from_slice(&u64::MAX.to_le_bytes());
        assert_eq!(check(&many), Err(Fault::CutOff));
    }
}
