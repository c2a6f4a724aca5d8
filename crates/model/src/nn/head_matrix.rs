//! A weight matrix for each head, each of which multiplies rows of its own: on candle, or on the native kernels.

use std::fmt::Debug;
use std::sync::Arc;

use candle_core::{DType, Device, Tensor};

use crate::ModelError;
use crate::files::Stored;
use crate::nn::cpu;

/// Sizes of the matrices of all heads, `[heads, out, in]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeadShape {
    /// Heads.
    pub heads: usize,
    /// Outputs of a head.
    pub out: usize,
    /// Inputs of a head.
    pub input: usize,
}

/// Matrices `[heads, out, in]` that a backend other than candle multiplies.
pub trait HeadMatMul: Debug + Send + Sync {
    /// `[heads, m, in] -> [heads, m, out]`, row by row.
    fn forward(&self, x: &[f32]) -> Vec<f32>;

    /// Bytes in memory.
    fn bytes(&self) -> u64;
}

/// The matrices of all heads.
#[derive(Clone, Debug)]
pub enum HeadMatrix {
    /// `[heads, in, out]`, f32.
    Candle(Tensor),
    /// Another backend.
    Other(Arc<dyn HeadMatMul>),
}

impl HeadMatrix {
    /// Matrices from a file, on candle.
    ///
    /// # Errors
    /// When they cannot be decoded.
    pub(crate) fn on_candle(
        stored: &Stored<'_>,
        HeadShape { heads, out, input }: HeadShape,
        device: &Device,
    ) -> Result<Self, ModelError> {
        let matrices = stored.to_tensor(&[heads, out, input], DType::F32, device)?;
        Ok(Self::Candle(matrices.transpose(1, 2)?.contiguous()?))
    }

    /// `[heads, m, in] -> [heads, m, out]`, f32. `one_by_one`: candle multiplies each row alone, so that its bits do not
    /// depend on the rows beside it; other backends need no such care.
    ///
    /// # Errors
    /// When shapes do not fit.
    pub fn forward(&self, x: &Tensor, one_by_one: bool) -> Result<Tensor, ModelError> {
        let (heads, m, _) = x.dims3()?;
        match self {
            Self::Candle(matrices) if one_by_one && m > 1 => {
                let one = |row| x.narrow(1, row, 1)?.contiguous()?.matmul(matrices);
                Ok(Tensor::cat(&(0..m).map(one).collect::<Result<Vec<_>, _>>()?, 1)?)
            }
            Self::Candle(matrices) => Ok(x.contiguous()?.matmul(matrices)?),
            Self::Other(matrices) => {
                let out = cpu::with_numbers(x, |x| matrices.forward(x))?;
                let width = out.len() / (heads * m).max(1);
                Ok(Tensor::from_vec(out, (heads, m, width), x.device())?)
            }
        }
    }

    /// Bytes in memory.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        match self {
            Self::Candle(matrices) => (matrices.elem_count() * matrices.dtype().size_in_bytes()) as u64,
            Self::Other(matrices) => matrices.bytes(),
        }
    }
}
