//! A weight matrix for each head, each of which multiplies rows of its own.

use candle_core::{DType, Device, Tensor};

use crate::ModelError;
use crate::files::Stored;

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

/// The matrices of all heads, `[heads, in, out]`, f32.
#[derive(Clone, Debug)]
pub struct HeadMatrix(Tensor);

impl HeadMatrix {
    /// Matrices from a file.
    ///
    /// # Errors
    /// When they cannot be decoded.
    pub(crate) fn read(
        stored: &Stored<'_>,
        HeadShape { heads, out, input }: HeadShape,
        device: &Device,
    ) -> Result<Self, ModelError> {
        let matrices = stored.to_tensor(&[heads, out, input], DType::F32, device)?;
        Ok(Self(matrices.transpose(1, 2)?.contiguous()?))
    }

    /// Matrices that nothing is multiplied with.
    pub(crate) fn unread(device: &Device) -> Result<Self, ModelError> {
        Ok(Self(Tensor::zeros((0, 0, 0), DType::F32, device)?))
    }

    /// `[heads, m, in] -> [heads, m, out]`, f32. `one_by_one`: each row is multiplied alone, so that its bits do not depend on
    /// the rows beside it.
    ///
    /// # Errors
    /// When shapes do not fit.
    pub fn forward(&self, x: &Tensor, one_by_one: bool) -> Result<Tensor, ModelError> {
        let (_, m, _) = x.dims3()?;
        if !one_by_one || m < 2 {
            return Ok(x.contiguous()?.matmul(&self.0)?);
        }
        let one = |row| x.narrow(1, row, 1)?.contiguous()?.matmul(&self.0);
        Ok(Tensor::cat(&(0..m).map(one).collect::<Result<Vec<_>, _>>()?, 1)?)
    }

    /// Bytes in memory.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        (self.0.elem_count() * self.0.dtype().size_in_bytes()) as u64
    }
}
