//! A tensor's bytes as a file stores them.

use std::borrow::Cow;

use candle_core::quantized::{GgmlDType, QTensor, ggml_file::qtensor_from_ggml};
use candle_core::{DType, Device, Tensor};
use half::{bf16, f16};

use crate::fatal::OutOfMemory;
use crate::model::ModelError;

/// A tensor's bytes and their type.
#[derive(Debug)]
pub struct Stored<'a> {
    dtype: GgmlDType,
    bytes: Cow<'a, [u8]>,
    /// Whether the file has FP8, which was widened exactly to f32; [`Stored::compact`] rounds it to bf16.
    widened: bool,
}

impl<'a> Stored<'a> {
    /// Bytes of a file.
    pub(in crate::model) fn new(dtype: GgmlDType, bytes: &'a [u8]) -> Self {
        Self { dtype, bytes: Cow::Borrowed(bytes), widened: false }
    }

    /// Numbers decoded from FP8.
    pub(in crate::model) fn widened(numbers: &[f32]) -> Self {
        let bytes = numbers.iter().flat_map(|x| x.to_le_bytes()).collect();
        Self { dtype: GgmlDType::F32, bytes: Cow::Owned(bytes), widened: true }
    }

    /// Type of the bytes.
    #[must_use]
    pub fn dtype(&self) -> GgmlDType {
        self.dtype
    }

    /// Whether both have the same type and the same bytes.
    #[must_use]
    pub fn is_copy_of(&self, other: &Self) -> bool {
        self.dtype == other.dtype && self.bytes() == other.bytes()
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
        Self { dtype: GgmlDType::BF16, bytes: Cow::Owned(bytes), widened: false }
    }

    /// All numbers as f32; `shape` is the tensor's.
    ///
    /// # Errors
    /// If candle cannot decode the type.
    pub fn to_f32(&self, shape: &[usize]) -> Result<Vec<f32>, ModelError> {
        let bytes = self.bytes();
        OutOfMemory::unless_there_are(shape.iter().product::<usize>().saturating_mul(size_of::<f32>()));
        Ok(match self.dtype {
            GgmlDType::F32 => bytes.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect(),
            GgmlDType::F16 => bytes.as_chunks().0.iter().map(|bytes| f16::from_le_bytes(*bytes).to_f32()).collect(),
            GgmlDType::BF16 => bytes.as_chunks().0.iter().map(|bytes| bf16::from_le_bytes(*bytes).to_f32()).collect(),
            _ => self.quantised(shape, &Device::Cpu)?.dequantize(&Device::Cpu)?.flatten_all()?.to_vec1()?,
        })
    }

    /// A dense tensor of this dtype.
    ///
    /// # Errors
    /// If candle cannot decode the type or memory is short.
    pub fn to_tensor(&self, shape: &[usize], dtype: DType, device: &Device) -> Result<Tensor, ModelError> {
        let same = matches!((self.dtype, dtype), (GgmlDType::BF16, DType::BF16) | (GgmlDType::F16, DType::F16));
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
        // blocks contain f16 numbers, so unaligned bytes are copied to an aligned address
        let aligned = self.bytes().as_ptr().addr().is_multiple_of(align_of::<u64>());
        OutOfMemory::unless_there_are(self.bytes().len());
        let copy = if aligned { None } else { Some(self.bytes().to_vec()) };
        Ok(qtensor_from_ggml(self.dtype, copy.as_deref().unwrap_or(self.bytes()), shape.to_vec(), device)?)
    }

    /// Whether the type consists of blocks with scales.
    #[must_use]
    pub fn is_quantised(&self) -> bool {
        !matches!(self.dtype, GgmlDType::F32 | GgmlDType::F16 | GgmlDType::BF16)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_of_every_type_decode_alike_at_every_alignment() {
        use GgmlDType::{Q2K, Q3K, Q4_0, Q4_1, Q4K, Q5_0, Q5_1, Q5K, Q6K, Q8_0};
        let numbers: Vec<f32> = (0..2 * 512).map(|i| ((i * 7919) % 1009) as f32 / 500.0 - 1.0).collect();
        let plain = Tensor::from_vec(numbers.clone(), (2, 512), &Device::Cpu).unwrap();
        // type, bits of a weight's code
        for (dtype, bits) in
            [(Q2K, 2), (Q3K, 3), (Q4_0, 4), (Q4_1, 4), (Q4K, 4), (Q5_0, 5), (Q5_1, 5), (Q5K, 5), (Q6K, 6), (Q8_0, 8)]
        {
            let bytes = QTensor::quantize(&plain, dtype).unwrap().data().unwrap().into_owned();
            for shift in 0..8 {
                let moved: Vec<u8> = std::iter::repeat_n(0, shift).chain(bytes.iter().copied()).collect();
                let got = Stored::new(dtype, &moved[shift..]).to_f32(&[2, 512]).unwrap();
                let worst = got.iter().zip(&numbers).fold(0f32, |worst, (a, b)| worst.max((a - b).abs()));
                // one step of the code over −1 … 1.02, plus the rounding of the scales
                assert!(worst < 2.0 * 2.1 / (1 << bits) as f32, "{dtype:?} at {shift}: off by {worst}");
            }
        }
    }
}
