//! Reads what a plan names.

use std::cell::Cell;

use crate::ModelError;
use crate::nn::{Linear, RmsNorm, Tensors};
use crate::plan::{Matrix, Norm};

/// Says what is not interpreted.
pub(super) fn unsupported(what: &str) -> ModelError {
    ModelError::Unsupported(format!("the reference does not run {what}"))
}

/// Reads tensors and counts their bytes.
pub(super) struct Reader<'a> {
    pub(super) tensors: &'a Tensors<'a>,
    bytes: Cell<u64>,
}

impl<'a> Reader<'a> {
    pub(super) fn new(tensors: &'a Tensors<'a>) -> Self {
        Self { tensors, bytes: Cell::new(0) }
    }

    /// Bytes that everything read so far takes in memory.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes.get()
    }

    pub(super) fn matrix(&self, of: &Matrix) -> Result<Linear, ModelError> {
        let [rows] = of.stored.as_slice() else { return Err(unsupported("matrices in several tensors")) };
        let (name, stored) = (&rows.tensor.name, rows.stored());
        let mut linear = match rows.is_whole() {
            true => self.tensors.linear(name, stored, of.columns)?,
            false => self.tensors.linear_rows(name, (stored, of.columns), &rows.places().collect::<Vec<_>>())?,
        };
        if let Some(bias) = &of.bias {
            linear = linear.with_bias(self.tensors.vector(&bias.name, bias.len)?);
        }
        self.bytes.set(self.bytes() + linear.bytes());
        Ok(linear.one_by_one())
    }

    /// A norm of rows of `width` numbers.
    pub(super) fn norm(&self, of: &Norm, width: usize) -> Result<RmsNorm, ModelError> {
        if let Some(weight) = of.weight.as_ref().filter(|_| !of.centred) {
            self.tensors.check_norm(&weight.name, width)?;
        }
        let norm = RmsNorm::of_numbers(of.read(self.tensors.source, width)?, of.eps, self.tensors.device)?;
        let stored = if of.weight.is_some() { norm.bytes() } else { 0 };
        self.bytes.set(self.bytes() + stored);
        Ok(norm)
    }
}
