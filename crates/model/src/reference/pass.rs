//! A pass through one layer.

use candle_core::Tensor;

use crate::ModelError;
use crate::nn::{PassRows, Rope};

/// The rows of a pass, and how they are rotated.
#[derive(Clone, Copy)]
pub(crate) struct Pass<'a> {
    /// Angles of all positions; `None`: rows are not rotated.
    pub(crate) rope: Option<&'a Rope>,
    /// The rows.
    pub(crate) rows: &'a PassRows,
    /// Rotary position of the first row.
    pub(crate) at: usize,
}

impl Pass<'_> {
    /// Rotates rows, `[heads, m, width]`, if there is something to rotate by.
    pub(super) fn rotate(&self, x: Tensor) -> Result<Tensor, ModelError> {
        let Some(rope) = self.rope else { return Ok(x) };
        rope.rotate(&x, self.at, self.rows.depths(x.device())?.as_ref())
    }
}
