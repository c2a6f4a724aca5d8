//! What the native loader needs of a model on disk: matrices as raw rows with their encoding.
//!
//! The source checks names, shapes, types and extents; this file checks that rows are whole blocks, which packing needs.

use std::ops::Range;

use super::matrix::{Part, RowOrder};
use crate::ModelError;
use crate::files::{Stored, TensorSource};
use draftscope_kernels::Encoding;

/// A model as this backend sees it.
#[derive(Clone, Copy)]
pub(crate) struct Tensors<'a>(pub(crate) &'a dyn TensorSource);

/// A tensor as stored, `[rows, k]`.
#[derive(Debug)]
pub(crate) struct RawTensor<'a> {
    encoding: Encoding,
    stored: Stored<'a>,
}

impl<'a> RawTensor<'a> {
    /// A matrix of this shape, FP8 as bf16; the tensor's name is for messages.
    pub(crate) fn new(stored: Stored<'a>, name: &str, (rows, k): (usize, usize)) -> Result<Self, ModelError> {
        let stored = stored.compact();
        let encoding = stored.encoding();
        let bytes = encoding.row_bytes(k).and_then(|row| row.checked_mul(rows));
        if bytes != Some(stored.bytes().len()) {
            return Err(ModelError::Unsupported(format!(
                "the native backend needs rows of whole blocks, and those of tensor '{name}' ({k} weights) are not; use candle"
            )));
        }
        Ok(Self { encoding, stored })
    }

    /// Ready to be packed.
    pub(crate) fn part(&self, rows: usize, order: RowOrder) -> Part<'_> {
        Part { encoding: self.encoding, rows, bytes: self.stored.bytes(), order }
    }

    /// Some adjacent rows, of `all` that there are, ready to be packed.
    pub(crate) fn some(&self, rows: Range<usize>, all: usize, order: RowOrder) -> Part<'_> {
        let bytes = self.stored.bytes();
        let len = bytes.len() / all;
        Part { encoding: self.encoding, rows: rows.len(), bytes: &bytes[rows.start * len..rows.end * len], order }
    }
}

impl<'a> Tensors<'a> {
    /// A matrix of the expected shape; FP8 is returned as bf16.
    pub(crate) fn matrix(self, name: &str, rows: usize, k: usize) -> Result<RawTensor<'a>, ModelError> {
        RawTensor::new(self.0.stored(name, &[rows, k])?, name, (rows, k))
    }
}
