//! Checks on the adapter at hand that a row's bits do not depend on the rows beside it.
//!
//! Passes over 2, 3, … and 16 rows are compared with passes over one row each, whole logits and hidden states, bit for bit,
//! and so are the hidden states of a prompt, whose rows are multiplied by tiles. Drivers compile kernels for
//! different numbers of rows separately and may order operations as they like, so this is measured, not assumed. What it cannot find: a difference that only other numbers show.

use std::sync::Arc;

use crate::GpuError;
use crate::kernels::MAX_ROWS;
use crate::passes::{Logits, Output, Request, Sequence};
use crate::weights::Network;

/// The first difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Difference {
    /// Rows of the pass.
    pub rows: usize,
    /// The row that differs.
    pub row: usize,
}

/// Runs the test with the model's own weights and cache, which is empty afterwards; `None` if all bits agree.
///
/// # Errors
/// What the driver reports.
pub fn self_test(sequence: &mut Sequence) -> Result<Option<Difference>, GpuError> {
    sequence.truncate(0);
    sequence.forget_recorded();
    let found = differs(sequence);
    sequence.truncate(0);
    found
}

fn differs(sequence: &mut Sequence) -> Result<Option<Difference>, GpuError> {
    let network = &Arc::clone(sequence.network());
    let most = MAX_ROWS.min(network.ctx_len);
    let tokens: Vec<u32> = (0..most).map(|i| token(network, i)).collect();
    let request =
        |tokens| Request { tokens, layers: network.blocks.len(), logits: Logits::All, parents: None, states: &[None] };
    let alone = tokens.iter().map(|token| sequence.forward(request(std::slice::from_ref(token))));
    let alone = alone.collect::<Result<Vec<_>, _>>()?;
    for rows in 2..=most {
        sequence.truncate(0);
        let together = sequence.forward(request(&tokens[..rows]))?;
        let differs = |row: &usize| !same_row(&together, *row, &alone[*row]);
        if let Some(row) = (0..rows).find(differs) {
            return Ok(Some(Difference { rows, row }));
        }
    }
    prompt_differs(sequence, &alone)
}

/// Compares the states of a prompt's first rows, which run in one tile, with those of passes over one row each.
fn prompt_differs(sequence: &mut Sequence, alone: &[Output]) -> Result<Option<Difference>, GpuError> {
    let network = Arc::clone(sequence.network());
    let rows = sequence.rows_for_a_tile() + 3;
    if network.ctx_len < rows {
        return Ok(None);
    }
    let tokens: Vec<u32> = (0..rows).map(|i| token(&network, i)).collect();
    sequence.truncate(0);
    let request =
        Request { tokens: &tokens, layers: network.blocks.len(), logits: Logits::Last, parents: None, states: &[None] };
    let hidden = sequence.forward(request)?.hidden;
    let differs = |(row, alone): (usize, &Output)| !same_bits(&hidden, row, &alone.hidden);
    let row = alone.iter().enumerate().position(differs);
    Ok(row.map(|row| Difference { rows, row }))
}

/// A token of the test.
fn token(network: &Network, index: usize) -> u32 {
    ((index * 7919 + 13) % network.head.rows().max(1)) as u32
}

/// Whether row `row` of a pass has the bits of a pass over it alone.
fn same_row(together: &Output, row: usize, alone: &Output) -> bool {
    same_bits(&together.hidden, row, &alone.hidden) && same_bits(&together.scored.logits, row, &alone.scored.logits)
}

/// Whether row `row` of rows as long as `one` has its bits.
fn same_bits(all: &[f32], row: usize, one: &[f32]) -> bool {
    let own = all.get(row * one.len()..(row + 1) * one.len()).unwrap_or(&[]);
    own.len() == one.len() && own.iter().zip(one).all(|(a, b)| a.to_bits() == b.to_bits())
}
