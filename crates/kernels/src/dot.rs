//! The product of one tile of weights with 1…16 rows of activations.
//!
//! A tile is read once for as many rows as fit into registers (a dense tile needs four sums a row, so half as many);
//! the next rows find it in the first-level cache.
//! Invariant: the tile's form alone fixes the operations and their order for each row, so a row's result depends
//! neither on the rows beside it nor on the instruction set.

use crate::dot_steps::{add_entries, bytes_at, close, open, prefetch};
use crate::{
    activations::{Acts, Block},
    form::{self, BLOCK, Form, Layout},
    isa::{Isa, Kernel},
    simd::{LANES, Lanes},
    super_block::PARTS,
    super_dot::{add_super, add_words},
};

/// Sixteen rows of weights.
#[derive(Clone, Copy, Debug)]
pub struct Tile<'a> {
    /// How the weights are stored.
    pub form: Form,
    /// Blocks along k.
    pub bytes: &'a [u8],
    /// Weights are not prefetched for a single row: the caller says that no other thread reads weights at the same time, and
    /// that this processor then reads faster by itself.
    pub alone: bool,
}

/// What happens to values that the output holds already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Onto {
    /// They are overwritten.
    Nothing,
    /// The product is added to them: a residual.
    Present,
}

/// Multiplies all rows of `acts`, with their factors, by a tile; `out[row]` gets the tile's 16 outputs.
pub fn multiply(isa: Isa, tile: Tile<'_>, acts: &Acts, onto: Onto, out: &mut [[f32; LANES]]) {
    let work = (isa, tile, acts, onto, out);
    match tile.form {
        Form::Nibble => int_rows::<form::Nibble>(work),
        Form::NibbleMin => int_rows::<form::NibbleMin>(work),
        Form::Byte => int_rows::<form::Byte>(work),
        Form::Five => int_rows::<form::Five>(work),
        Form::FiveMin => int_rows::<form::FiveMin>(work),
        Form::Q2K => int_rows::<form::Q2K>(work),
        Form::Q3K => int_rows::<form::Q3K>(work),
        Form::Q4K => int_rows::<form::Q4K>(work),
        Form::Q5K => int_rows::<form::Q5K>(work),
        Form::Q6K => int_rows::<form::Q6K>(work),
        Form::Iq4Nl => int_rows::<form::Iq4Nl>(work),
        Form::Iq4Xs => int_rows::<form::Iq4Xs>(work),
        Form::Mxfp4 => int_rows::<form::Mxfp4>(work),
        Form::F16 => dense_rows::<form::F16>(work),
        Form::Bf16 => dense_rows::<form::Bf16>(work),
        Form::F32 => dense_rows::<form::F32>(work),
    }
}

/// Splits `m` rows into passes of nearly equal size.
fn passes(m: usize, most: usize) -> impl Iterator<Item = (usize, usize)> {
    let count = m.div_ceil(most);
    (0..count).map(move |i| (i * m / count, (i + 1) * m / count))
}

/// Instruction set, tile, activations, outputs.
type Work<'a> = (Isa, Tile<'a>, &'a Acts, Onto, &'a mut [[f32; LANES]]);

fn int_rows<L: Layout>((isa, tile, acts, onto, out): Work<'_>) {
    for (first, end) in passes(acts.m(), isa.rows()) {
        macro_rules! pass {
            ($($m:literal)*) => { match end - first {
                $($m => isa.run(IntPass::<L, $m> { tile, acts: acts.blocks(), factors: acts.factors(), stride: acts.m(), first, onto, out: &mut out[first..end], layout: std::marker::PhantomData }),)*
                rows => unreachable!("a pass of {rows} rows"),
            } };
        }
        pass!(1 2 3 4 5 6 7 8);
    }
}

fn dense_rows<L: Layout>((isa, tile, acts, onto, out): Work<'_>) {
    for (first, end) in passes(acts.m(), isa.rows() / 2) {
        macro_rules! pass {
            ($($m:literal)*) => { match end - first {
                $($m => isa.run(DensePass::<L, $m> { tile, acts: acts.values(), factors: acts.factors(), stride: acts.m(), first, onto, out: &mut out[first..end], layout: std::marker::PhantomData }),)*
                rows => unreachable!("a pass of {rows} rows"),
            } };
        }
        pass!(1 2 3 4);
    }
}

#[inline(always)]
fn finish<S: Lanes>(s: S, total: S::F, factor: Option<&f32>, onto: Onto, out: &mut [f32; LANES]) {
    let total = if let Some(factor) = factor { s.mul(total, s.splat(*factor)) } else { total };
    match onto {
        Onto::Nothing => s.store(total, out),
        Onto::Present => s.store(s.add(s.load(out), total), out),
    }
}

struct IntPass<'a, L, const M: usize> {
    tile: Tile<'a>,
    acts: &'a [Block],  // [k / 32][stride]
    factors: &'a [f32], // [stride], or none
    stride: usize,
    first: usize,
    onto: Onto,
    out: &'a mut [[f32; LANES]], // [M]
    layout: std::marker::PhantomData<L>,
}

impl<L: Layout, const M: usize> Kernel for IntPass<'_, L, M> {
    type Output = ();

    #[inline(always)]
    fn run<S: Lanes>(self, s: S) {
        let mut totals = [s.splat(0.0); M];
        let steps = self.tile.bytes.chunks_exact(const { L::FORM.block_bytes() });
        let alone = self.tile.alone;
        if const { L::FORM.is_super() } {
            for (block, acts) in steps.zip(self.acts.chunks_exact(PARTS * self.stride)) {
                add_super::<S, L, M>(s, block, (acts, self.stride, self.first), &mut totals);
            }
        } else {
            for (block, acts) in steps.zip(self.acts.chunks_exact(self.stride)) {
                let acts: &[Block; M] = acts[self.first..].first_chunk().expect("a block for each row");
                prefetch::<S, M>(s, block, const { L::FORM.block_bytes().div_ceil(64) }, alone);
                add_block::<S, L, M>(s, block, acts, &mut totals);
            }
        }
        for (i, (out, total)) in self.out.iter_mut().zip(totals).enumerate() {
            finish(s, total, self.factors.get(self.first + i), self.onto, out);
        }
    }
}

/// `total += scale · Σ code · act · act_scale`, plus the minimum's share if the form has one.
#[inline(always)]
fn add_block<S: Lanes, L: Layout, const M: usize>(s: S, block: &[u8], acts: &[Block; M], totals: &mut [S::F; M]) {
    let sums = if const { L::FORM.table().is_some() } {
        add_entries::<S, L, M>(s, block, acts)
    } else if const { L::FORM.has_nibbles() } {
        nibble_sums::<S, L, M>(s, block, acts)
    } else if const { L::FORM.has_fives() } {
        code_sums::<S, L, M>(s, block, acts)
    } else {
        byte_sums::<S, M>(s, block, acts)
    };
    let scale = scales::<S, L>(s, block, 0);
    if const { L::FORM.has_min() } {
        let min = scales::<S, L>(s, block, 1);
        for i in 0..M {
            let x = s.fma(scale, s.to_float(sums[i]), s.mul(min, s.splat(acts[i].total)));
            totals[i] = s.fma(x, s.splat(acts[i].scale), totals[i]);
        }
    } else {
        for i in 0..M {
            let x = s.mul(scale, s.to_float(sums[i]));
            totals[i] = s.fma(x, s.splat(acts[i].scale), totals[i]);
        }
    }
}

#[inline(always)]
fn nibble_sums<S: Lanes, L: Layout, const M: usize>(s: S, block: &[u8], acts: &[Block; M]) -> [S::I; M] {
    let mut sums = [s.splat_i(0); M];
    if const { matches!(L::FORM, Form::Nibble) } {
        for i in 0..M {
            sums[i] = s.splat_i(acts[i].total_down);
        }
    }
    let mut opened = open(s, &sums);
    for group in 0..BLOCK / 8 {
        let [low, high] = s.nibbles(bytes_at(block, group * 4 * LANES));
        for i in 0..M {
            opened[i] = s.dot_codes(opened[i], low, acts[i].words[2 * group]);
            opened[i] = s.dot_codes(opened[i], high, acts[i].words[2 * group + 1]);
        }
    }
    close(s, &mut sums, opened);
    sums
}

/// For codes split into low and high bits.
#[inline(always)]
fn code_sums<S: Lanes, L: Layout, const M: usize>(s: S, block: &[u8], acts: &[Block; M]) -> [S::I; M] {
    let mut sums = [s.splat_i(0); M];
    if const { L::FORM.offset() > 0 } {
        for i in 0..M {
            sums[i] = s.splat_i(const { L::FORM.offset() / 8 } * acts[i].total_down);
        }
    }
    add_words::<S, L, M>(s, block, acts, &mut sums);
    sums
}

#[inline(always)]
fn byte_sums<S: Lanes, const M: usize>(s: S, block: &[u8], acts: &[Block; M]) -> [S::I; M] {
    let mut sums = [s.splat_i(0); M];
    for i in 0..M {
        sums[i] = s.bytes_start(acts[i].total_down);
    }
    for group in 0..BLOCK / 4 {
        let codes = s.bytes(bytes_at(block, group * 4 * LANES));
        for i in 0..M {
            sums[i] = s.dot_bytes(sums[i], codes, acts[i].words[group]);
        }
    }
    sums
}

/// Strip `index` of scales and minima.
#[inline(always)]
fn scales<S: Lanes, L: Layout>(s: S, block: &[u8], index: usize) -> S::F {
    if const { matches!(L::FORM, Form::Mxfp4) } {
        return powers(s, s.load_u8(bytes_at(block, const { L::FORM.codes_bytes() })));
    }
    s.load_f16_le(bytes_at(block, const { L::FORM.codes_bytes() } + index * 2 * LANES))
}

/// `2^(exponent − 128)` for exponents of 0…255: the two least are not normal numbers, so two factors make it.
#[inline(always)]
fn powers<S: Lanes>(s: S, exponents: S::I) -> S::F {
    s.mul(half_power(s, exponents), half_power(s, s.add_i(exponents, s.splat_i(1))))
}

#[inline(always)]
fn half_power<S: Lanes>(s: S, exponents: S::I) -> S::F {
    s.pow2(s.add_i(s.field(exponents, 1, 255), s.splat_i(-64)))
}

struct DensePass<'a, L, const M: usize> {
    tile: Tile<'a>,
    acts: &'a [[f32; BLOCK]], // [k / 32][stride]
    factors: &'a [f32],       // [stride], or none
    stride: usize,
    first: usize,
    onto: Onto,
    out: &'a mut [[f32; LANES]], // [M]
    layout: std::marker::PhantomData<L>,
}

impl<L: Layout, const M: usize> Kernel for DensePass<'_, L, M> {
    type Output = ();

    /// Four partial sums a row, over k mod 4, so that additions overlap.
    #[inline(always)]
    fn run<S: Lanes>(self, s: S) {
        let mut totals = [[s.splat(0.0); 4]; M];
        let steps = self.tile.bytes.chunks_exact(const { L::FORM.block_bytes() });
        for (block, acts) in steps.zip(self.acts.chunks_exact(self.stride)) {
            let acts: &[[f32; BLOCK]; M] = acts[self.first..].first_chunk().expect("a block for each row");
            prefetch::<S, M>(s, block, const { L::FORM.block_bytes().div_ceil(64) }, self.tile.alone);
            for k in 0..BLOCK {
                let weights = dense_weights::<S, L>(s, block, k);
                for i in 0..M {
                    totals[i][k % 4] = s.fma(weights, s.splat(acts[i][k]), totals[i][k % 4]);
                }
            }
        }
        for (i, (out, [a, b, c, d])) in self.out.iter_mut().zip(totals).enumerate() {
            finish(s, s.add(s.add(a, b), s.add(c, d)), self.factors.get(self.first + i), self.onto, out);
        }
    }
}

#[inline(always)]
fn dense_weights<S: Lanes, L: Layout>(s: S, block: &[u8], k: usize) -> S::F {
    match L::FORM {
        Form::F32 => s.load_f32_le(bytes_at(block, k * 4 * LANES)),
        Form::Bf16 => s.load_bf16_le(bytes_at(block, k * 2 * LANES)),
        _ => s.load_f16_le(bytes_at(block, k * 2 * LANES)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simd::to_array;

    struct Powers([u8; LANES]);

    impl Kernel for Powers {
        type Output = [f32; LANES];

        #[inline(always)]
        fn run<S: Lanes>(self, s: S) -> Self::Output {
            to_array(s, powers(s, s.load_u8(&self.0)))
        }
    }

    #[test]
    fn exponents_give_powers_of_two_down_to_the_least() {
        for first in (0..=255u8).step_by(LANES) {
            let exponents: [u8; LANES] = std::array::from_fn(|i| first + i as u8);
            let expected = exponents.map(|exponent| 2f64.powi(i32::from(exponent) - 128) as f32);
            assert!(expected.iter().all(|power| *power > 0.0 && power.is_finite()));
            assert!(Isa::available().all(|isa| isa.run(Powers(exponents)) == expected), "{first}…");
        }
    }
}
