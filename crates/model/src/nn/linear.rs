//! Weight matrices on candle.
//!
//! Invariant: activations are f32 whatever the dtype of the weights.

use candle_core::quantized::QMatMul;
use candle_core::{DType, Device, Module, Tensor};
use draftscope_kernels::Encoding;

use crate::ModelError;
use crate::files::Stored;
use crate::nn::pass_rows::ROW_BY_ROW;
use crate::options::WeightType;

/// A weight matrix `[out, in]`, quantised or dense.
#[derive(Clone, Debug)]
pub struct Linear {
    weight: Weight,
    bias: Option<Tensor>, // [out], f32
    /// Whether candle multiplies few rows one by one.
    one_by_one: bool,
}

#[derive(Clone, Debug)]
enum Weight {
    Candle {
        weight: QMatMul,
        dense: Option<DType>,
    },
    /// Its name, shape and type were checked; nothing runs on it.
    Unread,
}

/// Multiplies rows one by one if they are few: candle sums products of several rows in another order than those of one, and a
/// row's bits must not depend on the rows beside it.
fn alone(x: &Tensor, multiply: impl Fn(&Tensor) -> candle_core::Result<Tensor>) -> Result<Tensor, candle_core::Error> {
    let m = x.dim(0)?;
    if !(2..=ROW_BY_ROW).contains(&m) || !x.device().is_cpu() {
        return multiply(x);
    }
    let rows = (0..m).map(|row| multiply(&x.narrow(0, row, 1)?)).collect::<Result<Vec<_>, _>>()?;
    Tensor::cat(&rows, 0)
}

fn not_read() -> ModelError {
    ModelError::Unsupported("the weights of this model were only checked, not read".into())
}

impl From<Weight> for Linear {
    fn from(weight: Weight) -> Self {
        Self { weight, bias: None, one_by_one: false }
    }
}

impl Linear {
    /// Wraps a matrix of this shape from a file.
    ///
    /// # Errors
    /// When it cannot be decoded.
    pub fn new(weight: Stored<'_>, shape: [usize; 2], held: WeightType, device: &Device) -> Result<Self, ModelError> {
        let dtype = match held {
            WeightType::F32 => DType::F32,
            WeightType::Bf16 => DType::BF16,
            WeightType::Stored if weight.is_quantised() => {
                let weight = QMatMul::from_qtensor(weight.quantised(&shape, device)?)?;
                return Ok(Weight::Candle { weight, dense: None }.into());
            }
            WeightType::Stored => {
                let weight = weight.compact();
                let dtype = match weight.encoding() {
                    Encoding::Bf16 => DType::BF16,
                    Encoding::F16 => DType::F16,
                    _ => DType::F32,
                };
                return Ok(Self::dense(weight.to_tensor(&shape, dtype, device)?));
            }
        };
        Ok(Self::dense(weight.to_tensor(&shape, dtype, device)?))
    }

    /// Wraps a dense matrix `[out, in]`.
    #[must_use]
    pub fn dense(weight: Tensor) -> Self {
        Weight::Candle { dense: Some(weight.dtype()), weight: QMatMul::Tensor(weight) }.into()
    }

    /// Wraps the numbers of a dense matrix `[out, in]`, row by row.
    ///
    /// # Errors
    /// When memory is short.
    pub fn of_numbers(numbers: Vec<f32>, shape: [usize; 2], device: &Device) -> Result<Self, ModelError> {
        Ok(Self::dense(Tensor::from_vec(numbers, shape.as_slice(), device)?))
    }

    /// A matrix whose weights were not read: nothing runs on it.
    pub(super) fn unread() -> Self {
        Weight::Unread.into()
    }

    /// Adds a bias `[out]` to the outputs.
    #[must_use]
    pub fn with_bias(self, bias: Tensor) -> Self {
        Self { bias: Some(bias), ..self }
    }

    /// The same, with few rows multiplied one by one on candle.
    #[must_use]
    pub fn one_by_one(self) -> Self {
        Self { one_by_one: true, ..self }
    }

    /// `[m, in] -> [m, out]`, f32 in and out.
    ///
    /// # Errors
    /// When shapes do not fit.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor, ModelError> {
        let out = match &self.weight {
            Weight::Candle { weight, dense } => {
                let multiply = |x: &Tensor| match dense {
                    Some(dtype) if *dtype != DType::F32 => weight.forward(&x.to_dtype(*dtype)?)?.to_dtype(DType::F32),
                    _ => weight.forward(x),
                };
                if self.one_by_one { alone(x, multiply)? } else { multiply(x)? }
            }
            Weight::Unread => return Err(not_read()),
        };
        match &self.bias {
            Some(bias) => Ok(out.broadcast_add(bias)?),
            None => Ok(out),
        }
    }

    /// Rows of the matrix, `ids [m] -> [m, in]`, f32: an embedding look-up.
    ///
    /// # Errors
    /// When an id is outside the matrix.
    pub fn rows(&self, ids: &Tensor) -> Result<Tensor, ModelError> {
        match &self.weight {
            Weight::Candle { weight, .. } => Ok(weight.embedding(ids)?.to_dtype(DType::F32)?),
            Weight::Unread => Err(not_read()),
        }
    }

    /// Bytes the matrix and its bias take in memory.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let dense = |tensor: &Tensor| (tensor.elem_count() * tensor.dtype().size_in_bytes()) as u64;
        let weight = match &self.weight {
            Weight::Candle { weight: QMatMul::QTensor(weight), .. } => weight.storage_size_in_bytes() as u64,
            Weight::Candle { weight: QMatMul::Tensor(weight) | QMatMul::TensorF16(weight), .. } => dense(weight),
            Weight::Unread => 0,
        };
        weight + self.bias.as_ref().map_or(0, dense)
    }
}
