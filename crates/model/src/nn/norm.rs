//! RMSNorm on candle.

use candle_core::{DType, Device, Tensor};

use crate::ModelError;

/// RMSNorm: `x / sqrt(mean(x²) + eps) · weight` (Zhang and Sennrich, 2019).
#[derive(Clone, Debug)]
pub struct RmsNorm {
    weight: Tensor, // [d], f32
    eps: f32,
}

impl RmsNorm {
    /// Wraps the weight `[d]`.
    ///
    /// # Errors
    /// When it cannot be widened to f32.
    pub fn new(weight: &Tensor, eps: f32) -> Result<Self, ModelError> {
        Ok(Self { weight: weight.to_dtype(DType::F32)?, eps })
    }

    /// Wraps the weight as numbers.
    ///
    /// # Errors
    /// When memory is short.
    pub fn of_numbers(weight: Vec<f32>, eps: f32, device: &Device) -> Result<Self, ModelError> {
        let width = weight.len();
        Self::new(&Tensor::from_vec(weight, width, device)?, eps)
    }

    /// A copy with this added to its weight: zero-centred files mean 1 + w.
    ///
    /// # Errors
    /// When memory is short.
    pub fn shifted(&self, by: f64) -> Result<Self, ModelError> {
        Ok(Self { weight: (&self.weight + by)?, eps: self.eps })
    }

    /// Bytes the weight takes in memory.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        (self.weight.elem_count() * self.weight.dtype().size_in_bytes()) as u64
    }

    /// `[m, d] -> [m, d]`.
    ///
    /// # Errors
    /// When shapes do not fit.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor, ModelError> {
        Ok(candle_nn::ops::rms_norm(&x.contiguous()?, &self.weight, self.eps)?)
    }
}
