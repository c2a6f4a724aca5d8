//! The product of one block of 256 weights of 16 rows with some rows of activations.
//!
//! Codes are assembled and scales unpacked in registers, so memory delivers only the file's bits. The parts of a block
//! add up one after the other, each with one scale and min, or two: `d · scale` is exact, so a part's share has the
//! bits that it would have with scales in `f32`.

use crate::activations::Block;
use crate::dot_steps::{add_entries, bytes_at, close, open, prefetch};
use crate::form::{BLOCK, Form, Layout};
use crate::simd::{LANES, Lanes, OPEN_CODES};
use crate::super_block::{HIGHS, NUMBERS, STRIP, XS_HIGHS, XS_NUMBERS};

/// Words of four codes in a part.
const WORDS: usize = BLOCK / 4;

/// What all parts of a block share.
struct Header<'a, S: Lanes> {
    bytes: &'a [u8],
    d: S::F,
    /// −`dmin`.
    lift: S::F,
    /// High bits of 6-bit scales and mins.
    highs: S::I,
}

/// `total += Σ weight · act` for the rows from `first` on, with activations in `[8][stride]` blocks.
#[inline(always)]
pub(crate) fn add_super<S: Lanes, L: Layout, const M: usize>(
    s: S,
    block: &[u8],
    (acts, stride, first): (&[Block], usize, usize),
    totals: &mut [S::F; M],
) {
    let header = Header::<S>::read::<L>(s, block);
    prefetch::<S, M>(s, block, const { L::FORM.header_bytes() / 64 }, false);
    let parts = block[const { L::FORM.header_bytes() }..].chunks_exact(const { L::FORM.part_bytes() });
    for (part, (codes, acts)) in parts.zip(acts.chunks_exact(stride)).enumerate() {
        let acts: &[Block; M] = acts[first..].first_chunk().expect("a block for each row");
        prefetch::<S, M>(s, codes, const { L::FORM.part_bytes() / 64 }, false);
        match L::FORM {
            Form::Iq4Xs => add_looked_up::<S, L, M>(s, &header, part, (codes, acts), totals),
            Form::Q4K | Form::Q5K => add_whole::<S, L, M>(s, &header, part, (codes, acts), totals),
            _ => add_halves::<S, L, M>(s, &header, part, (codes, acts), totals),
        }
    }
}

/// A part with one scale and min.
#[inline(always)]
fn add_whole<S: Lanes, L: Layout, const M: usize>(
    s: S,
    header: &Header<'_, S>,
    part: usize,
    (codes, acts): (&[u8], &[Block; M]),
    totals: &mut [S::F; M],
) {
    let mut sums = [s.splat_i(0); M];
    add_words::<S, L, M>(s, codes, acts, &mut sums);
    let [scale, min] = header.sixes(s, part);
    let (scale, min) = (s.mul(header.d, scale), s.mul(header.lift, min));
    for i in 0..M {
        let x = s.fma(scale, s.to_float(sums[i]), s.mul(min, s.splat(acts[i].total)));
        totals[i] = s.fma(x, s.splat(acts[i].scale), totals[i]);
    }
}

/// A part with one scale, whose codes number the entries of a table.
#[inline(always)]
fn add_looked_up<S: Lanes, L: Layout, const M: usize>(
    s: S,
    header: &Header<'_, S>,
    part: usize,
    (codes, acts): (&[u8], &[Block; M]),
    totals: &mut [S::F; M],
) {
    let sums = add_entries::<S, L, M>(s, codes, acts);
    let scale = s.mul(header.d, s.sub(header.six_of_part(s, part), s.splat(32.0)));
    for i in 0..M {
        totals[i] = s.fma(s.mul(scale, s.to_float(sums[i])), s.splat(acts[i].scale), totals[i]);
    }
}

/// A part with a scale for each half, and a min if the form has one.
#[inline(always)]
fn add_halves<S: Lanes, L: Layout, const M: usize>(
    s: S,
    header: &Header<'_, S>,
    part: usize,
    (codes, acts): (&[u8], &[Block; M]),
    totals: &mut [S::F; M],
) {
    let [scales, mins] = header.halves::<L>(s, part);
    let mut x = [s.splat(0.0); M];
    for half in 0..2 {
        let mut sums = [s.splat_i(0); M];
        for i in 0..M {
            sums[i] = s.splat_i(const { -L::FORM.offset() } * i32::from(acts[i].halves[half]));
        }
        add_half::<S, L, M>(s, codes, acts, half * WORDS / 2, &mut sums);
        for i in 0..M {
            let sum = s.to_float(sums[i]);
            x[i] = if half == 0 { s.mul(scales[half], sum) } else { s.fma(scales[half], sum, x[i]) };
            if const { L::FORM.has_min() } {
                x[i] = s.fma(mins[half], s.splat(f32::from(acts[i].halves[half])), x[i]);
            }
        }
    }
    for i in 0..M {
        totals[i] = s.fma(x[i], s.splat(acts[i].scale), totals[i]);
    }
}

/// Words whose products may be added before sums are closed: two, four or eight.
const fn words_together(form: Form) -> usize {
    match OPEN_CODES >> form.code_bits() {
        WORDS.. => WORDS,
        4.. => WORDS / 2,
        _ => 2,
    }
}

/// All words.
#[inline(always)]
pub(crate) fn add_words<S: Lanes, L: Layout, const M: usize>(
    s: S,
    codes: &[u8],
    acts: &[Block; M],
    sums: &mut [S::I; M],
) {
    if const { words_together(L::FORM) < WORDS } {
        add_half::<S, L, M>(s, codes, acts, 0, sums);
        return add_half::<S, L, M>(s, codes, acts, WORDS / 2, sums);
    }
    let mut opened = open(s, sums);
    add_two::<S, L, M>(s, codes, acts, 0, &mut opened);
    add_two::<S, L, M>(s, codes, acts, 2, &mut opened);
    add_two::<S, L, M>(s, codes, acts, 4, &mut opened);
    add_two::<S, L, M>(s, codes, acts, 6, &mut opened);
    close(s, sums, opened);
}

/// Four words from `first` on.
#[inline(always)]
fn add_half<S: Lanes, L: Layout, const M: usize>(
    s: S,
    codes: &[u8],
    acts: &[Block; M],
    first: usize,
    sums: &mut [S::I; M],
) {
    let mut opened = open(s, sums);
    add_two::<S, L, M>(s, codes, acts, first, &mut opened);
    if const { words_together(L::FORM) < WORDS / 2 } {
        close(s, sums, opened);
        opened = open(s, sums);
    }
    add_two::<S, L, M>(s, codes, acts, first + 2, &mut opened);
    close(s, sums, opened);
}

/// Two words from `first` on.
#[inline(always)]
fn add_two<S: Lanes, L: Layout, const M: usize>(
    s: S,
    codes: &[u8],
    acts: &[Block; M],
    first: usize,
    opened: &mut [S::Sums; M],
) {
    for word in first..first + 2 {
        let word_codes = word_codes::<S, L>(s, codes, word);
        for i in 0..M {
            opened[i] = s.dot_codes(opened[i], word_codes, acts[i].words[word]);
        }
    }
}

/// The codes of a word, from their low and high bits.
#[inline(always)]
fn word_codes<S: Lanes, L: Layout>(s: S, codes: &[u8], word: usize) -> S::Codes {
    let [low, high] = const { L::FORM.planes() };
    let below = plane(s, codes, word, (low, 0));
    if high == 0 { below } else { s.or(below, plane(s, codes, word, (high, low))) }
}

/// `width` bits of each code of a word, at their place above `below` others, which take as many strips.
#[inline(always)]
fn plane<S: Lanes>(s: S, codes: &[u8], word: usize, (width, below): (usize, usize)) -> S::Codes {
    let words = 8 / width;
    let raw = s.raw(bytes_at(codes, (below + word / words) * STRIP));
    s.cut(raw, (word % words * width) as i32 - below as i32, (((1u32 << width) - 1) << below) as u8)
}

impl<'a, S: Lanes> Header<'a, S> {
    #[inline(always)]
    fn read<L: Layout>(s: S, block: &'a [u8]) -> Self {
        let bytes = &block[..const { L::FORM.header_bytes() }];
        let dmin = if const { L::FORM.has_min() } { s.load_f16_le(bytes_at(bytes, 2 * LANES)) } else { s.splat(0.0) };
        Self {
            bytes,
            d: s.load_f16_le(bytes_at(bytes, 0)),
            lift: s.sub(s.splat(0.0), dmin),
            highs: if const { L::FORM.has_sixes() && L::FORM.table().is_none() } {
                s.load_i32_le(bytes_at(bytes, HIGHS))
            } else {
                s.splat_i(0)
            },
        }
    }

    /// The two 6-bit scales or mins of a part.
    #[inline(always)]
    fn sixes(&self, s: S, part: usize) -> [S::F; 2] {
        let lows = s.load_u8(bytes_at(self.bytes, NUMBERS + part * LANES));
        [self.six(s, lows, (part, 0)), self.six(s, lows, (part, 1))]
    }

    /// The first or the second of them.
    #[inline(always)]
    fn six(&self, s: S, lows: S::I, (part, which): (usize, usize)) -> S::F {
        let high = s.to_float(s.field(self.highs, (4 * part + 2 * which) as i32, 3));
        s.fma(high, s.splat(16.0), s.to_float(s.field(lows, (4 * which) as i32, 15)))
    }

    /// The one 6-bit number of a part of IQ4_XS.
    #[inline(always)]
    fn six_of_part(&self, s: S, part: usize) -> S::F {
        let low = s.load_u8(bytes_at(self.bytes, XS_NUMBERS + part / 2 * LANES));
        let high = s.load_u8(bytes_at(self.bytes, XS_HIGHS + part / 4 * LANES));
        let low = s.to_float(s.field(low, (part % 2 * 4) as i32, 15));
        s.fma(s.to_float(s.field(high, (part % 4 * 2) as i32, 3)), s.splat(16.0), low)
    }

    /// Scales of both halves of a part, and what their mins add for each unit of activation.
    #[inline(always)]
    fn halves<L: Layout>(&self, s: S, part: usize) -> [[S::F; 2]; 2] {
        let bytes = |half: usize| -> &[u8; LANES] { bytes_at(self.bytes, NUMBERS + (2 * part + half) * LANES) };
        let none = s.splat(0.0);
        let ([first, second], mins) = match L::FORM {
            Form::Q3K => {
                let [first, second] = self.sixes(s, part);
                ([s.sub(first, s.splat(32.0)), s.sub(second, s.splat(32.0))], [none; 2])
            }
            Form::Q2K => {
                let [first, second] = [s.load_u8(bytes(0)), s.load_u8(bytes(1))];
                let mins = [s.to_float(s.field(first, 4, 15)), s.to_float(s.field(second, 4, 15))];
                let scales = [s.to_float(s.field(first, 0, 15)), s.to_float(s.field(second, 0, 15))];
                (scales, [s.mul(self.lift, mins[0]), s.mul(self.lift, mins[1])])
            }
            _ => ([s.to_float(s.load_i8(bytes(0))), s.to_float(s.load_i8(bytes(1)))], [none; 2]),
        };
        [[s.mul(self.d, first), s.mul(self.d, second)], mins]
    }
}
