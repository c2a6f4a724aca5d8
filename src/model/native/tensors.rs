//! What the native loader needs of a model on disk: matrices as raw rows with their encoding.
//!
//! The source checks names, shapes and extents; this file checks what packing needs (encodings, whole blocks in a row).

use candle_core::quantized::GgmlDType;

use super::matrix::{Part, RowOrder};
use crate::model::ModelError;
use crate::model::files::{ModelFiles, Stored};
use draftscope_kernels::Encoding;

/// A model as this backend sees it.
#[derive(Clone, Copy)]
pub(in crate::model) struct Tensors<'a>(pub(in crate::model) &'a ModelFiles);

/// A tensor as stored, `[rows, k]`.
#[derive(Debug)]
pub(in crate::model) struct RawTensor<'a> {
    encoding: Encoding,
    stored: Stored<'a>,
}

impl RawTensor<'_> {
    /// Ready to be packed.
    pub(in crate::model) fn part(&self, rows: usize, order: RowOrder) -> Part<'_> {
        Part { encoding: self.encoding, rows, bytes: self.stored.bytes(), order }
    }
}

impl<'a> Tensors<'a> {
    /// A matrix of the expected shape; FP8 is returned as bf16.
    pub(in crate::model) fn matrix(self, name: &str, rows: usize, k: usize) -> Result<RawTensor<'a>, ModelError> {
        let stored = self.0.stored(name, &[rows, k])?.compact();
        let encoding = encoding(name, stored.dtype())?;
        let bytes = encoding.row_bytes(k).and_then(|row| row.checked_mul(rows));
        if bytes != Some(stored.bytes().len()) {
            return Err(ModelError::Unsupported(format!(
                "the native backend needs rows of whole blocks, and those of tensor '{name}' ({k} weights) are not; use candle"
            )));
        }
        Ok(RawTensor { encoding, stored })
    }
}

fn encoding(name: &str, dtype: GgmlDType) -> Result<Encoding, ModelError> {
    Ok(match dtype {
        GgmlDType::F32 => Encoding::F32,
        GgmlDType::F16 => Encoding::F16,
        GgmlDType::BF16 => Encoding::Bf16,
        GgmlDType::Q4_0 => Encoding::Q4_0,
        GgmlDType::Q4_1 => Encoding::Q4_1,
        GgmlDType::Q5_0 => Encoding::Q5_0,
        GgmlDType::Q5_1 => Encoding::Q5_1,
        GgmlDType::Q8_0 => Encoding::Q8_0,
        GgmlDType::Q2K => Encoding::Q2K,
        GgmlDType::Q3K => Encoding::Q3K,
        GgmlDType::Q4K => Encoding::Q4K,
        GgmlDType::Q5K => Encoding::Q5K,
        GgmlDType::Q6K => Encoding::Q6K,
        other => {
            let what = format!("the native backend does not run {other:?} weights (tensor '{name}'); use candle");
            return Err(ModelError::Unsupported(what));
        }
    })
}
