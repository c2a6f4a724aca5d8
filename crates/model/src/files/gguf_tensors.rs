//! The list of tensors in the header of a GGUF file. candle's reader rejects a file with a type that it does not know, so
//! it reads the metadata alone.
//!
//! Invariant: any bytes give a list or a reason, and a list takes no more memory than a fixed multiple of its bytes.

use std::collections::HashMap;

use crate::files::loaded::LoadedTensor;
use crate::files::tensor_type::TensorType;

/// `GGML_MAX_DIMS`.
const MAX_DIMS: u32 = 4;

/// The reason where the bytes end before the list does.
pub(super) const CUT_OFF: &str = "it is truncated";

/// A tensor in the list.
#[derive(Debug)]
pub(super) struct TensorEntry {
    pub(super) kind: TensorType,
    /// Outermost dimension first.
    pub(super) shape: Vec<usize>,
    /// From the start of the data.
    pub(super) offset: u64,
    /// Which part of a split file has it, from 0.
    pub(super) part: usize,
}

impl TensorEntry {
    /// As loading counts it in a target.
    pub(super) fn loaded(&self) -> LoadedTensor<'_> {
        let (encoding, stored) = (self.kind.encoding(), self.bytes().unwrap_or(0));
        LoadedTensor { shape: &self.shape, encoding, stored, of_module: false }
    }

    /// Bytes in the file; none if they are too many, no whole blocks, or the type is unknown.
    pub(super) fn bytes(&self) -> Option<u64> {
        let product = |product: u64, dim: &usize| product.checked_mul(u64::try_from(*dim).ok()?);
        let numbers = self.shape.iter().try_fold(1, product)?;
        self.kind.bytes(numbers)
    }
}

/// Unread bytes of a header.
struct Reader<'a> {
    bytes: &'a [u8],
    /// Lengths take 8 bytes; 4 in version 1 of the format.
    wide: bool,
}

impl<'a> Reader<'a> {
    fn take(&mut self, len: usize) -> Result<&'a [u8], String> {
        let (taken, rest) = self.bytes.split_at_checked(len).ok_or(CUT_OFF)?;
        self.bytes = rest;
        Ok(taken)
    }

    fn number<const N: usize>(&mut self) -> Result<u64, String> {
        let mut number = [0; 8];
        number[..N].copy_from_slice(self.take(N)?);
        Ok(u64::from_le_bytes(number))
    }

    fn length(&mut self) -> Result<usize, String> {
        let length = if self.wide { self.number::<8>() } else { self.number::<4>() }?;
        usize::try_from(length).map_err(|_| CUT_OFF.to_owned())
    }

    fn entry(&mut self) -> Result<(String, TensorEntry), String> {
        let len = self.length()?;
        let name = String::from_utf8_lossy(self.take(len)?).trim_end_matches('\0').to_owned();
        let dims = self.number::<4>()? as u32;
        if dims > MAX_DIMS {
            return Err(format!("tensor '{name}' has {dims} dimensions, and the most is {MAX_DIMS}"));
        }
        let mut shape = (0..dims).map(|_| self.length()).collect::<Result<Vec<_>, _>>()?;
        shape.reverse();
        let kind = TensorType(self.number::<4>()? as u32);
        Ok((name, TensorEntry { kind, shape, offset: self.number::<8>()?, part: 0 }))
    }
}

/// Reads `count` tensors by name; also returns how many bytes they took. `wide` is false in version 1 of the format.
///
/// # Errors
/// A clause on what is wrong with the header.
pub(super) fn read(bytes: &[u8], count: u64, wide: bool) -> Result<(HashMap<String, TensorEntry>, usize), String> {
    let mut reader = Reader { bytes, wide };
    let mut entries = HashMap::new();
    for _ in 0..count {
        let (name, entry) = reader.entry()?;
        if let Some(old) = entries.insert(name, entry) {
            return Err(format!("two tensors have the same name (one of shape {:?})", old.shape));
        }
    }
    Ok((entries, bytes.len() - reader.bytes.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One tensor as version 3 lists it.
    fn listed(name: &[u8], dims: &[u64], kind: u32, offset: u64) -> Vec<u8> {
        let mut bytes = (name.len() as u64).to_le_bytes().to_vec();
        bytes.extend(name);
        bytes.extend((dims.len() as u32).to_le_bytes());
        dims.iter().for_each(|dim| bytes.extend(dim.to_le_bytes()));
        bytes.extend(kind.to_le_bytes());
        bytes.extend(offset.to_le_bytes());
        bytes
    }

    #[test]
    fn tensors_of_any_type_are_listed() {
        let mut bytes = listed(b"a\0", &[256, 3], 23, 0);
        bytes.extend(listed(b"b", &[7], 1000, 64));
        let len = bytes.len();
        bytes.extend([9; 5]);
        let (entries, taken) = read(&bytes, 2, true).unwrap();
        assert_eq!((entries.len(), taken), (2, len));
        let (a, b) = (&entries["a"], &entries["b"]);
        assert_eq!((a.shape.as_slice(), a.bytes(), a.kind.name().as_ref()), (&[3, 256][..], Some(3 * 136), "IQ4_XS"));
        assert_eq!((b.offset, b.bytes(), b.kind.encoding()), (64, None, None));
    }

    #[test]
    fn damaged_lists_are_rejected_whatever_they_announce() {
        let bytes = listed(b"name", &[256, 3], 0, 0);
        for end in 0..bytes.len() {
            assert_eq!(read(&bytes[..end], 1, true).err().as_deref(), Some(CUT_OFF), "{end} bytes");
        }
        assert!(read(&bytes, u64::MAX, true).is_err());
        assert!(read(&listed(b"name", &[1; 5], 0, 0), 1, true).unwrap_err().contains("5 dimensions"));
        let huge = listed(b"huge", &[u64::MAX, u64::MAX], 0, 0);
        assert_eq!(read(&huge, 1, true).unwrap().0["huge"].bytes(), None);
        let mut long = u64::MAX.to_le_bytes().to_vec();
        long.extend([0; 64]);
        assert!(read(&long, 1, true).is_err());
    }
}
