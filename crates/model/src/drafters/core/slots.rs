//! Slots as tensors, for modules on candle.

use candle_core::{Device, Tensor};

use crate::ModelError;
use crate::module_core::Slots;
use crate::nn::Embedding;
use draftscope_protocol::Recycle;

impl Slots<'_> {
    /// The hidden states, `[m, width]`.
    pub(crate) fn states(&self, device: &Device) -> Result<Tensor, ModelError> {
        Ok(Tensor::from_slice(self.hidden, (self.tokens.len(), self.width()), device)?)
    }

    /// Embeddings of the tokens, `[m, d]`.
    pub(crate) fn embed(&self, embedding: &dyn Embedding) -> Result<Tensor, ModelError> {
        let embedded = embedding.embed(self.tokens)?;
        if !self.zeroed {
            return Ok(embedded);
        }
        let zero = embedded.narrow(0, 0, 1)?.zeros_like()?;
        Ok(Tensor::cat(&[zero, embedded.narrow(0, 1, self.tokens.len() - 1)?], 0)?)
    }

    /// The projection's input: `[m, d]` and `[m, d] -> [m, 2d]`.
    pub(crate) fn join(&self, embedded: Tensor, states: Tensor) -> Result<Tensor, ModelError> {
        Ok(Tensor::cat(&self.in_order(embedded, states), 1)?)
    }

    /// The state for the next depth: before or after the last norm.
    pub(crate) fn recycle<'t>(&self, residual: &'t Tensor, normed: &'t Tensor) -> &'t Tensor {
        if self.spec.recycle == Recycle::PreNorm { residual } else { normed }
    }

    /// The last row of `[m, d]`.
    pub(crate) fn last(&self, rows: &Tensor) -> Result<Tensor, ModelError> {
        Ok(rows.narrow(0, self.tokens.len() - 1, 1)?.contiguous()?)
    }
}

/// Copies a tensor's numbers, row after row.
pub(crate) fn copy_to(rows: &Tensor, out: &mut [f32]) -> Result<(), ModelError> {
    out.copy_from_slice(&numbers(rows)?);
    Ok(())
}

/// A tensor's numbers, row after row.
pub(crate) fn numbers(rows: &Tensor) -> Result<Vec<f32>, ModelError> {
    Ok(rows.flatten_all()?.to_vec1()?)
}
