//! What a pass over a target is asked for, and what it computes.

use super::head::{Logits, Scored};
use crate::kernels::PassRows;

/// What a forward pass is asked for.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// One token a row.
    pub tokens: &'a [u32],
    /// Blocks that run, from the first on.
    pub layers: usize,
    /// Which logits the host reads; [`Logits::Best`] for at most [`MAX_ROWS`](crate::MAX_ROWS) rows.
    pub logits: Logits,
    /// Parents of the rows of a tree of at most [`MAX_ROWS`](crate::MAX_ROWS) rows; `None` for a chain.
    pub parents: Option<&'a [usize]>,
    /// Hidden states of each row: after so many blocks, or after the final norm.
    pub states: &'a [Option<usize>],
}

impl Request<'_> {
    /// What decides the commands of a submission of this pass.
    pub(crate) fn sizes(&self, pass: &PassRows) -> Vec<usize> {
        let sizes = [pass.m(), pass.segments(), pass.logits, self.layers, self.logits as usize];
        sizes.into_iter().chain(self.states.iter().map(|state| state.map_or(0, |place| place + 1))).collect()
    }
}

/// What a forward pass computed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Output {
    /// `[rows][states][d_model]`
    pub hidden: Vec<f32>,
    /// Of every row, or of the last.
    pub scored: Scored,
}
