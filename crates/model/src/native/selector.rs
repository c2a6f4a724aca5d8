//! The selector of a block drafter: DFlash 2.

use std::cmp::Ordering;

use super::head;
use super::load::Loader;
use super::matrix::{Cpu, Matrix};
use crate::block_module::Candidates;
use crate::plan;
use crate::{ModelError, Rows};
use draftscope_kernels::{Acts, BLOCK, LANES, MAX_ROWS};
use draftscope_protocol::TokenId;

/// Scores candidates of a position by the token before it, as [`plan::Selector`] has it.
#[derive(Debug)]
pub(super) struct Selector {
    predecessors: Matrix,
    successors: Matrix,
    hidden: Matrix,
    candidates: usize,
}

impl Selector {
    /// Reads it.
    ///
    /// # Errors
    /// When a tensor is missing, misshapen or damaged, or its rank is no multiple of [`BLOCK`].
    pub(super) fn load(loader: &Loader<'_>, of: &plan::Selector) -> Result<Self, ModelError> {
        let rank = of.hidden.rows;
        if !rank.is_multiple_of(BLOCK) {
            return Err(ModelError::Unsupported(format!(
                "a selector of rank {rank} ('selector_rank') is not supported; multiples of {BLOCK} are"
            )));
        }
        Ok(Self {
            predecessors: loader.matrix(&of.predecessors)?,
            successors: loader.matrix(&of.successors)?,
            hidden: loader.matrix(&of.hidden)?,
            candidates: of.candidates,
        })
    }

    /// Bytes in memory.
    pub(super) fn bytes(&self) -> usize {
        [&self.predecessors, &self.successors, &self.hidden].map(Matrix::bytes).iter().sum()
    }

    /// Projections of states `[m][d / 16]`: `[m, rank]`.
    pub(super) fn project(&self, cpu: &Cpu, states: &[[f32; LANES]], acts: &mut Acts) -> Rows {
        let (tiles, rank) = (self.hidden.k() / LANES, self.hidden.rows());
        let mut rows = vec![0.0; states.len() / tiles * rank];
        for (states, rows) in states.chunks(MAX_ROWS * tiles).zip(rows.chunks_mut(MAX_ROWS * rank)) {
            head::operand(cpu, &self.hidden, states, acts);
            head::logits(cpu, (&self.hidden, None), acts, rows, &mut Vec::new());
        }
        Rows::new(rows, rank)
    }

    /// The best tokens of a row of logits, and their scores after the token `before`.
    ///
    /// # Errors
    /// When that token is unknown.
    pub(super) fn choose(
        &self,
        (logits, vocab): (&[f32], &[TokenId]),
        projected: &[f32],
        before: TokenId,
    ) -> Result<Candidates, ModelError> {
        let (known, rank) = (self.predecessors.rows(), self.hidden.rows());
        if before.index() >= known {
            return Err(ModelError::Vocabulary { token: before.0, vocab: known });
        }
        let (mut context, mut row) = (vec![0.0; rank], vec![0.0; rank]);
        self.predecessors.row(before.index(), &mut context);
        context.iter_mut().zip(projected).for_each(|(x, hidden)| *x *= hidden);
        let best = best(logits, self.candidates);
        let alone: Vec<f32> = best.iter().map(|index| logits[*index]).collect();
        let tokens: Vec<TokenId> = best.iter().map(|index| vocab[*index]).collect();
        let edge = |token: &TokenId| {
            self.successors.row(token.index(), &mut row);
            context.iter().zip(&row).map(|(a, b)| a * b).sum::<f32>()
        };
        let scores = tokens.iter().map(edge).zip(&alone).map(|(edge, alone)| edge + alone).collect();
        Ok(Candidates { tokens, alone, scores })
    }
}

/// Indices of the largest numbers, largest first, and of equal ones the first.
fn best(numbers: &[f32], count: usize) -> Vec<usize> {
    let order = |a: &usize, b: &usize| -> Ordering { numbers[*b].total_cmp(&numbers[*a]).then(a.cmp(b)) };
    let mut all: Vec<usize> = (0..numbers.len()).collect();
    if let Some(last) = count.checked_sub(1).filter(|last| *last < all.len()) {
        all.select_nth_unstable_by(last, order);
    }
    all.truncate(count);
    all.sort_unstable_by(order);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_numbers_come_first_and_the_first_of_equal_ones() {
        assert_eq!(best(&[1.0, 3.0, 2.0, 3.0, -1.0], 3), [1, 3, 2]);
        assert_eq!(best(&[2.0, 2.0, 2.0], 2), [0, 1]);
        assert_eq!(best(&[0.5, 1.0], 9), [1, 0]);
        assert!(best(&[], 4).is_empty() && best(&[1.0], 0).is_empty());
    }
}
