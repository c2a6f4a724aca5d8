//! Activations in the two forms that matrices read: 8-bit blocks of 32 with a scale, or plain `f32` blocks.
//!
//! Layout `[k / 32][m]`: the blocks of all rows for one step along k are adjacent. The first matrix that reads the
//! activations says which form it needs; a form that no matrix needs stays empty. A row may carry a factor that its
//! norm yields only at the end; [`multiply`](super::multiply) then multiplies the outputs by it.
//! Invariant: a block depends only on its own 32 values, so rows do not affect each other.

use crate::{
    form::BLOCK,
    simd::{LANES, Lanes},
};

/// Most rows of a pass over a prompt: enough that reading weights, and converting keys and values, costs little a row.
pub const PROMPT_ROWS: usize = 128;

/// Thirty-two activations as integers: `scale · code`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Block {
    /// Four codes of −127…127 in each, lowest k in the lowest byte.
    pub words: [i32; BLOCK / 4],
    pub scale: f32,
    /// Sum of all codes, for the minima of weights.
    pub total: f32,
    /// The sum times −8, for codes with an offset.
    pub total_down: i32,
    /// Sums of the first and of the last 16 codes.
    pub halves: [i16; 2],
}

/// Which forms of activations some matrices read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Operand {
    /// Blocks of 8-bit codes with their scale.
    pub blocks: bool,
    /// The values in f32.
    pub values: bool,
}

impl Operand {
    /// Both forms.
    pub const fn and(self, other: Self) -> Self {
        Self { blocks: self.blocks || other.blocks, values: self.values || other.values }
    }
}

/// `m` rows of activations.
#[derive(Debug, Default)]
pub struct Acts {
    m: usize,
    blocks: Vec<Block>,        // [k / 32][m]
    values: Vec<[f32; BLOCK]>, // [k / 32][m]
    factors: Option<[f32; PROMPT_ROWS]>,
}

impl Acts {
    /// Makes room for `m` rows of `k` values without factors; the caller overwrites the content.
    pub fn shape(&mut self, m: usize, k: usize, operand: Operand) {
        (self.m, self.factors) = (m, None);
        let len = k / BLOCK * m;
        self.blocks.resize(if operand.blocks { len } else { 0 }, Block::default());
        self.values.resize(if operand.values { len } else { 0 }, [0.0; BLOCK]);
    }

    /// Rows.
    pub fn m(&self) -> usize {
        self.m
    }

    /// Quantised blocks `[k / 32][m]`; empty if not requested.
    pub fn blocks(&self) -> &[Block] {
        &self.blocks
    }

    /// Values `[k / 32][m][32]`; empty if not requested.
    pub fn values(&self) -> &[[f32; BLOCK]] {
        &self.values
    }

    /// Factor of each row; empty if there are none.
    pub fn factors(&self) -> &[f32] {
        self.factors.as_ref().map_or(&[], |factors| &factors[..self.m])
    }

    /// Sets a factor for each row.
    pub fn set_factors(&mut self, factors: [f32; PROMPT_ROWS]) {
        self.factors = Some(factors);
    }

    /// Copies some rows with their factors to `out`, bit for bit, in those of these forms that they have.
    pub fn gather(&self, rows: &[usize], forms: Operand, out: &mut Self) {
        out.m = rows.len();
        out.factors = self.factors.map(|factors| {
            let mut own = [0.0; PROMPT_ROWS];
            own.iter_mut().zip(rows).for_each(|(own, &row)| *own = factors[row]);
            own
        });
        out.blocks.clear();
        out.values.clear();
        if forms.blocks {
            out.blocks.extend(self.blocks.chunks_exact(self.m.max(1)).flat_map(|all| rows.iter().map(|&row| all[row])));
        }
        if forms.values {
            out.values.extend(self.values.chunks_exact(self.m.max(1)).flat_map(|all| rows.iter().map(|&row| all[row])));
        }
    }

    /// One step along k of all rows, to be written.
    pub fn columns(&mut self) -> impl Iterator<Item = Column<'_>> {
        let count = self.blocks.len().max(self.values.len()) / self.m.max(1);
        let (mut blocks, mut values) = (self.blocks.chunks_mut(self.m), self.values.chunks_mut(self.m));
        (0..count).map(move |_| Column {
            blocks: blocks.next().unwrap_or_default(),
            values: values.next().unwrap_or_default(),
        })
    }
}

/// The `k…k + 32` part of all rows.
#[derive(Debug, Default)]
pub struct Column<'a> {
    blocks: &'a mut [Block],
    values: &'a mut [[f32; BLOCK]],
}

impl Column<'_> {
    /// Splits off the first rows.
    pub fn split_off_rows(&mut self, rows: usize) -> Self {
        fn split<'a, T>(all: &mut &'a mut [T], rows: usize) -> &'a mut [T] {
            let (first, rest) = std::mem::take(all).split_at_mut_checked(rows).unwrap_or_default();
            *all = rest;
            first
        }
        Self { blocks: split(&mut self.blocks, rows), values: split(&mut self.values, rows) }
    }

    /// Writes the values of one row.
    #[inline(always)]
    pub fn put<S: Lanes>(&mut self, s: S, row: usize, x: [S::F; 2]) {
        if let Some(block) = self.blocks.get_mut(row) {
            *block = quantise(s, x);
        }
        if let Some(values) = self.values.get_mut(row) {
            let (low, high) = values.split_at_mut(LANES);
            s.store(x[0], low.first_chunk_mut().expect("half a block"));
            s.store(x[1], high.first_chunk_mut().expect("half a block"));
        }
    }
}

/// Rounds to 255 steps, symmetric around zero. A value that is not finite makes the scale not finite.
#[inline(always)]
pub(crate) fn quantise<S: Lanes>(s: S, x: [S::F; 2]) -> Block {
    let largest = s.reduce_max(s.max_i(s.magnitude_bits(x[0]), s.magnitude_bits(x[1])));
    let largest = f32::from_bits(largest.cast_unsigned());
    if !largest.is_finite() {
        return Block { scale: f32::NAN, ..Block::default() };
    }
    let inverse = s.splat(if largest > 1e-30 { 127.0 / largest } else { 0.0 });
    let codes = [s.round(s.mul(x[0], inverse)), s.round(s.mul(x[1], inverse))];
    let mut words = [0; BLOCK / 4];
    words[..4].copy_from_slice(&s.pack_i8(codes[0]));
    words[4..].copy_from_slice(&s.pack_i8(codes[1]));
    let halves = [s.reduce_add(codes[0]), s.reduce_add(codes[1])];
    let total = halves[0] + halves[1];
    Block {
        words,
        scale: largest / 127.0,
        total: total as f32,
        total_down: -8 * total,
        halves: halves.map(|half| half as i16),
    }
}
