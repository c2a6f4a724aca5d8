//! A tensor's bytes as a file stores them.

use std::borrow::Cow;

use candle_core::quantized::{QTensor, ggml_file::qtensor_from_ggml};
use candle_core::{DType, Device, Tensor};
use draftscope_kernels::{BLOCK, Encoding, decode_block};
use half::{bf16, f16};
use rayon::prelude::*;

use crate::ModelError;
use crate::files::tensor_type::candle_dtype;
use draftscope_host::fatal::OutOfMemory;

/// Fewest blocks that a thread encodes at once.
const BLOCKS_AT_ONCE: usize = 1 << 12;

/// A tensor's bytes and their encoding.
#[derive(Debug)]
pub struct Stored<'a> {
    encoding: Encoding,
    bytes: Cow<'a, [u8]>,
    /// Whether the file has FP8, which was widened exactly to f32; [`Stored::compact`] rounds it to bf16.
    widened: bool,
}

impl<'a> Stored<'a> {
    /// Bytes of a file.
    pub(crate) fn new(encoding: Encoding, bytes: &'a [u8]) -> Self {
        Self { encoding, bytes: Cow::Borrowed(bytes), widened: false }
    }

    /// Numbers decoded from FP8.
    pub(crate) fn widened(numbers: &[f32]) -> Self {
        let bytes = numbers.iter().flat_map(|x| x.to_le_bytes()).collect();
        Self { encoding: Encoding::F32, bytes: Cow::Owned(bytes), widened: true }
    }

    /// Numbers in f32.
    pub(crate) fn of_numbers(numbers: &[f32]) -> Stored<'static> {
        OutOfMemory::unless_there_are(size_of_val(numbers));
        let bytes = numbers.iter().flat_map(|x| x.to_le_bytes()).collect();
        Stored { encoding: Encoding::F32, bytes: Cow::Owned(bytes), widened: false }
    }

    /// Whole blocks of numbers in this encoding, which may round them; in f32 if it is none that is written.
    pub(crate) fn encoded(numbers: &[f32], encoding: Encoding) -> Stored<'static> {
        let size = encoding.block().1;
        let write: fn(&[f32; BLOCK], &mut [u8]) = match encoding {
            Encoding::Q8_0 => |block, bytes| bytes.copy_from_slice(&Encoding::to_q8_0(block)),
            Encoding::Q4_1 => |block, bytes| bytes.copy_from_slice(&Encoding::to_q4_1(block)),
            _ => return Self::of_numbers(numbers),
        };
        let blocks = numbers.as_chunks().0;
        OutOfMemory::unless_there_are(blocks.len() * size);
        let mut bytes = vec![0; blocks.len() * size];
        let jobs = bytes.par_chunks_exact_mut(size).zip(blocks).with_min_len(BLOCKS_AT_ONCE);
        jobs.for_each(|(bytes, block)| write(block, bytes));
        Stored { encoding, bytes: Cow::Owned(bytes), widened: false }
    }

    /// So many matrices `[rows, columns]`, transposed. Quantised numbers become f32.
    ///
    /// # Errors
    /// As [`Stored::to_f32`].
    pub(crate) fn transposed(&self, count: usize, [rows, columns]: [usize; 2]) -> Result<Stored<'static>, ModelError> {
        if self.is_quantised() {
            return Stored::of_numbers(&self.to_f32(&[count, rows, columns])?).transposed(count, [rows, columns]);
        }
        let (size, from) = (self.encoding.block().1, self.bytes());
        OutOfMemory::unless_there_are(from.len());
        let mut bytes = vec![0; count * rows * columns * size];
        for (at, to) in bytes.chunks_exact_mut(size).enumerate() {
            let (matrix, column, row) = (at / (rows * columns), at / rows % columns, at % rows);
            to.copy_from_slice(&from[((matrix * rows + row) * columns + column) * size..][..size]);
        }
        Ok(Stored { encoding: self.encoding, bytes: Cow::Owned(bytes), widened: self.widened })
    }

    /// How the bytes are decoded.
    #[must_use]
    pub fn encoding(&self) -> Encoding {
        self.encoding
    }

    /// Whether both have the same encoding and the same bytes.
    #[must_use]
    pub fn is_copy_of(&self, other: &Self) -> bool {
        self.encoding == other.encoding && self.bytes() == other.bytes()
    }

    /// The bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The form in which weights are loaded "as stored": FP8 becomes bf16, everything else stays.
    #[must_use]
    pub fn compact(self) -> Self {
        if !self.widened {
            return self;
        }
        let numbers = self.bytes.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes));
        let bytes = numbers.flat_map(|x| bf16::from_f32(x).to_le_bytes()).collect();
        Self { encoding: Encoding::Bf16, bytes: Cow::Owned(bytes), widened: false }
    }

    /// The bytes of one of so many equal parts.
    #[must_use]
    pub(crate) fn bytes_of_part(&self, part: usize, parts: usize) -> &[u8] {
        let len = self.bytes().len() / parts;
        &self.bytes()[part * len..(part + 1) * len]
    }

    /// One of so many equal parts.
    #[must_use]
    pub(crate) fn part(&self, part: usize, parts: usize) -> Stored<'_> {
        let bytes = Cow::Borrowed(self.bytes_of_part(part, parts));
        Stored { encoding: self.encoding, bytes, widened: self.widened }
    }

    /// Some rows of a matrix `[all, columns]`, in this order.
    ///
    /// # Errors
    /// [`ModelError::Unsupported`] if a row is not whole blocks.
    pub(crate) fn rows(&self, [all, columns]: [usize; 2], rows: &[usize]) -> Result<Stored<'static>, ModelError> {
        let len = self.encoding.row_bytes(columns).filter(|len| len.checked_mul(all) == Some(self.bytes().len()));
        let Some(len) = len else {
            let name = self.encoding.form().name();
            return Err(ModelError::Unsupported(format!("rows of {columns} {name} weights are not whole blocks")));
        };
        OutOfMemory::unless_there_are(len.saturating_mul(rows.len()));
        let bytes = rows.iter().flat_map(|row| &self.bytes()[row * len..(row + 1) * len]).copied().collect();
        Ok(Stored { encoding: self.encoding, bytes: Cow::Owned(bytes), widened: self.widened })
    }

    /// All numbers as f32; `shape` is the tensor's.
    ///
    /// # Errors
    /// If the bytes are not as many as the shape needs.
    pub fn to_f32(&self, shape: &[usize]) -> Result<Vec<f32>, ModelError> {
        let bytes = self.bytes();
        let count = shape.iter().product::<usize>();
        OutOfMemory::unless_there_are(count.saturating_mul(size_of::<f32>()));
        Ok(match self.encoding {
            Encoding::F32 => bytes.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect(),
            Encoding::F16 => bytes.as_chunks().0.iter().map(|bytes| f16::from_le_bytes(*bytes).to_f32()).collect(),
            Encoding::Bf16 => bytes.as_chunks().0.iter().map(|bytes| bf16::from_le_bytes(*bytes).to_f32()).collect(),
            encoding if candle_dtype(encoding).is_none() => {
                let (weights, size) = encoding.block();
                let mut numbers = vec![0.0; count];
                for (block, numbers) in bytes.chunks_exact(size).zip(numbers.chunks_exact_mut(weights)) {
                    decode_block(encoding, block, numbers);
                }
                numbers
            }
            _ => self.quantised(shape, &Device::Cpu)?.dequantize(&Device::Cpu)?.flatten_all()?.to_vec1()?,
        })
    }

    /// A dense tensor of this dtype.
    ///
    /// # Errors
    /// If candle cannot decode the type or memory is short.
    pub fn to_tensor(&self, shape: &[usize], dtype: DType, device: &Device) -> Result<Tensor, ModelError> {
        let same = matches!((self.encoding, dtype), (Encoding::Bf16, DType::BF16) | (Encoding::F16, DType::F16));
        if same {
            OutOfMemory::unless_there_are(self.bytes().len());
            return Ok(Tensor::from_raw_buffer(self.bytes(), dtype, shape, device)?);
        }
        let plain = Tensor::from_vec(self.to_f32(shape)?, shape, device)?;
        Ok(if dtype == DType::F32 { plain } else { plain.to_dtype(dtype)? })
    }

    /// The blocks as a quantised tensor of candle.
    ///
    /// # Errors
    /// If candle does not support the type.
    pub fn quantised(&self, shape: &[usize], device: &Device) -> Result<QTensor, ModelError> {
        let dtype = candle_dtype(self.encoding).ok_or_else(|| ModelError::Unsupported(self.not_on_candle()))?;
        // candle reads as many bytes as the shape needs
        let weights = shape.iter().try_fold(1usize, |product, dim| product.checked_mul(*dim));
        if weights.and_then(|weights| self.encoding.row_bytes(weights)) != Some(self.bytes().len()) {
            return Err(ModelError::Unsupported(format!("{shape:?} weights are not whole blocks of their type")));
        }
        // blocks contain f16 numbers, so unaligned bytes are copied to an aligned address
        let aligned = self.bytes().as_ptr().addr().is_multiple_of(align_of::<u64>());
        OutOfMemory::unless_there_are(self.bytes().len());
        let copy = if aligned { None } else { Some(self.bytes().to_vec()) };
        Ok(qtensor_from_ggml(dtype, copy.as_deref().unwrap_or(self.bytes()), shape.to_vec(), device)?)
    }

    /// Checks that candle multiplies with this encoding, of the tensor called `name`.
    ///
    /// # Errors
    /// [`ModelError::Unsupported`] with the name and the type.
    pub fn check_candle(&self, name: &str) -> Result<(), ModelError> {
        match candle_dtype(self.encoding) {
            Some(_) => Ok(()),
            None => Err(ModelError::Unsupported(format!("tensor '{name}': {}", self.not_on_candle()))),
        }
    }

    fn not_on_candle(&self) -> String {
        let name = self.encoding.form().name();
        format!(
            "candle does not multiply with {name} weights as they are stored; use the native backend, or --dtype f32 or bf16"
        )
    }

    /// Whether the type consists of blocks with scales.
    #[must_use]
    pub fn is_quantised(&self) -> bool {
        !self.encoding.form().is_dense()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_of_every_type_decode_alike_at_every_alignment() {
        let numbers: Vec<f32> = (0..2 * 512).map(|i| ((i * 7919) % 1009) as f32 / 500.0 - 1.0).collect();
        let plain = Tensor::from_vec(numbers.clone(), (2, 512), &Device::Cpu).unwrap();
        // encoding, bits of a weight's code
        let bits = [
            (Encoding::Q2K, 2),
            (Encoding::Q3K, 3),
            (Encoding::Q4_0, 4),
            (Encoding::Q4_1, 4),
            (Encoding::Q4K, 4),
            (Encoding::Q5_0, 5),
            (Encoding::Q5_1, 5),
            (Encoding::Q5K, 5),
            (Encoding::Q6K, 6),
            (Encoding::Q8_0, 8),
        ];
        for (encoding, bits) in bits {
            let dtype = candle_dtype(encoding).unwrap();
            let bytes = QTensor::quantize(&plain, dtype).unwrap().data().unwrap().into_owned();
            for shift in 0..8 {
                let moved: Vec<u8> = std::iter::repeat_n(0, shift).chain(bytes.iter().copied()).collect();
                let got = Stored::new(encoding, &moved[shift..]).to_f32(&[2, 512]).unwrap();
                let worst = got.iter().zip(&numbers).fold(0f32, |worst, (a, b)| worst.max((a - b).abs()));
                // one step of the code over −1 … 1.02, plus the rounding of the scales
                assert!(worst < 2.0 * 2.1 / (1 << bits) as f32, "{dtype:?} at {shift}: off by {worst}");
            }
        }
    }

    #[test]
    fn rows_that_are_no_whole_blocks_are_rejected() {
        let bytes = [0; 18 * 4]; // four blocks of Q4_0
        for columns in [1, 8, 16] {
            let stored = Stored::new(Encoding::Q4_0, &bytes);
            let error = stored.rows([128 / columns, columns], &[0]).map(|_| ()).unwrap_err().to_string();
            assert!(error.contains("not whole blocks"), "{columns}: {error}");
        }
        let stored = Stored::new(Encoding::Q4_0, &bytes);
        assert_eq!(stored.rows([4, 32], &[2, 0]).unwrap().bytes().len(), 36);
        assert!(stored.quantised(&[4, 33], &Device::Cpu).is_err() && stored.to_f32(&[5, 32]).is_err());
    }

    #[test]
    fn transposed_matrices_keep_the_numbers_of_a_dense_type() {
        let numbers: Vec<f32> = (0..2 * 3 * 4).map(|i| i as f32 - 7.5).collect();
        let order = |i: usize| numbers[i / 12 * 12 + i % 3 * 4 + i / 3 % 4];
        let expected: Vec<f32> = (0..24).map(order).collect();
        let bytes: Vec<u8> = numbers.iter().flat_map(|x| bf16::from_f32(*x).to_le_bytes()).collect();
        for stored in [Stored::of_numbers(&numbers), Stored::new(Encoding::Bf16, &bytes)] {
            let transposed = stored.transposed(2, [3, 4]).unwrap();
            assert_eq!(transposed.encoding(), stored.encoding());
            assert_eq!(transposed.to_f32(&[2, 4, 3]).unwrap(), expected);
        }
        let quantised = Stored::new(Encoding::Q8_0, &[0; 34 * 4]);
        assert_eq!(quantised.transposed(2, [2, 32]).unwrap().encoding(), Encoding::F32);
    }
}
