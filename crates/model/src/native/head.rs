//! The output head: logits of every row, and what greedy sampling needs of them, in one pass.
//!
//! The vocabulary is cut into strips of [`STRIP`] tokens, which threads share; a strip's logits go through a small
//! buffer that stays in cache, are summarised there, and are then copied to their rows. Strips have a fixed size and
//! are joined in order, so nothing depends on threads.

use std::cell::RefCell;

use super::matrix::{Cpu, Matrix};
use crate::{Best, RowStats, STRETCH};
use draftscope_kernels::{Acts, Cap, LANES, Load, MAX_ROWS, Onto, Operand, Survey};

/// Tokens in a strip.
const STRIP: usize = STRETCH;

/// Logits of one strip for all rows.
#[derive(Default)]
struct Strip<'a> {
    rows: [&'a mut [f32]; MAX_ROWS],
    /// Maximum and `Σ e^(logit − maximum)` of each row.
    parts: [(f32, f32); MAX_ROWS],
}

thread_local! {
    /// Tiles of a strip, `[STRIP / 16][m]`.
    static TILES: RefCell<Vec<[f32; LANES]>> = const { RefCell::new(Vec::new()) };
}

/// Rows of hidden states `[m][d / 16]` as activations that `head` reads.
pub(crate) fn operand(cpu: &Cpu, head: &Matrix, hidden: &[[f32; LANES]], out: &mut Acts) {
    load(cpu, head.operand(), (hidden, head.k()), out);
}

/// Rows of `k` numbers, `[m][k / 16]`, as activations in these forms.
pub(crate) fn load(cpu: &Cpu, forms: Operand, (rows, k): (&[[f32; LANES]], usize), out: &mut Acts) {
    out.shape(rows.len() * LANES / k, k, forms);
    Load { rows, out }.run_on(cpu.isa);
}

/// `logits = head · acts`, `[m, rows of head]`, capped as c·tanh(logit / c) if there is a cap, appending to `stats`.
pub(crate) fn logits(
    cpu: &Cpu,
    (head, cap): (&Matrix, Option<f32>),
    acts: &Acts,
    logits: &mut [f32],
    stats: &mut Vec<RowStats>,
) {
    let mut strips: Vec<Strip<'_>> = Vec::new();
    strips.resize_with(head.rows().div_ceil(STRIP), Strip::default);
    for (i, row) in logits.chunks_exact_mut(head.rows()).enumerate() {
        for (strip, logits) in strips.iter_mut().zip(row.chunks_mut(STRIP)) {
            strip.rows[i] = logits;
        }
    }
    cpu.pool.each(&mut strips, |index, strip| {
        TILES.with_borrow_mut(|tiles| fill(cpu, (head, cap), acts, index, (strip, tiles)));
    });
    stats.extend((0..acts.m()).map(|row| join(&strips, row)));
}

/// Logits of one hidden state `[d / 16]`, and their [`RowStats`].
pub(crate) fn of_state(cpu: &Cpu, head: &Matrix, state: &[[f32; LANES]], acts: &mut Acts) -> (Vec<f32>, Vec<RowStats>) {
    let (mut row, mut stats) = (vec![0.0; head.rows()], Vec::new());
    operand(cpu, head, state, acts);
    logits(cpu, (head, None), acts, &mut row, &mut stats);
    (row, stats)
}

fn fill(
    cpu: &Cpu,
    (head, cap): (&Matrix, Option<f32>),
    acts: &Acts,
    index: usize,
    (strip, tiles): (&mut Strip<'_>, &mut Vec<[f32; LANES]>),
) {
    let m = acts.m();
    let first = index * STRIP / LANES;
    let count = strip.rows[0].len().div_ceil(LANES);
    tiles.resize(STRIP / LANES * m, [0.0; LANES]);
    for (tile, out) in tiles.chunks_exact_mut(m).take(count).enumerate() {
        head.multiply(cpu, first + tile, acts, Onto::Nothing, out);
    }
    for (row, logits) in strip.rows.iter_mut().enumerate().take(m) {
        for (to, tile) in logits.chunks_mut(LANES).zip(tiles[row..].iter().step_by(m)) {
            to.copy_from_slice(&tile[..to.len()]);
        }
        if let Some(cap) = cap {
            Cap { numbers: logits, cap }.run_on(cpu.isa);
        }
        strip.parts[row] = Survey { logits }.run_on(cpu.isa);
    }
}

fn join(strips: &[Strip<'_>], row: usize) -> RowStats {
    let mut best = (0, f32::NEG_INFINITY);
    for (index, strip) in strips.iter().enumerate() {
        if strip.parts[row].0 > best.1 {
            best = (index, strip.parts[row].0);
        }
    }
    let (index, max) = best;
    let inside = strips.get(index).and_then(|strip| strip.rows[row].iter().position(|&logit| logit == max));
    let total =
        strips.iter().map(|strip| strip.parts[row]).map(|(top, sum)| f64::from(sum) * f64::from(top - max).exp());
    RowStats {
        argmax: (index * STRIP + inside.unwrap_or(0)) as u32,
        max,
        log_sum_exp: max + total.sum::<f64>().ln() as f32,
        best: Best::Peaks(strips.iter().map(|strip| strip.parts[row].0).collect()),
    }
}
