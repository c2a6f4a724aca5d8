//! Blocks of 256 weights of 16 rows: the K-quants of ggml, with as many bits a weight as in the file.
//!
//! A weight is `d · scale · (code − offset) − dmin · min`, with a scale (and min) of a few bits for each 16 or 32
//! weights. A block is a header, then the codes of its eight parts of 32. In order, each for all 16 rows:
//!
//! | what | bytes |
//! | --- | --- |
//! | `d`, `dmin` as f16; zeros where there is no `dmin` | 64 |
//! | 6-bit numbers, two for each part: the low halves of both in a byte, | 128 |
//! | and the high 2 bits of all of them, part by part, in 32 bits | 64 |
//! | or else 8-bit numbers, one for each 16 weights: 8-bit scales, or a 4-bit scale below its min | 256 |
//! | for each part its low bits, then its high bits, four neighbouring codes in four bytes of a row | 64 · bits · 8 |
//!
//! IQ4_XS has `d` alone, 32 bytes, then one 6-bit scale for each part: low halves of two parts in a byte, 64, and the high
//! 2 bits of four parts in a byte, 32. Its codes number the entries of a [table](Form::table).
//!
//! The four codes of word `w` (of eight) share their bytes with those of other words: nibbles with `w ^ 1`, pairs
//! of bits with three, single bits with seven. No code is wider than 6 bits, so all are small unsigned numbers.

use half::f16;

use crate::form::SUPER_BLOCK;
use crate::{
    encoding::Encoding,
    form::{BLOCK, Form},
    simd::LANES,
};

/// Parts of a block, of [`BLOCK`] weights each.
pub(crate) const PARTS: usize = SUPER_BLOCK / BLOCK;

/// Bytes of a strip of codes.
pub(crate) const STRIP: usize = 4 * LANES;

/// Where the 4-, 6- or 8-bit scales and mins begin.
pub(crate) const NUMBERS: usize = 2 * 2 * LANES;

/// Where the high bits of 6-bit scales and mins begin.
pub(crate) const HIGHS: usize = NUMBERS + PARTS * LANES;

/// The same for IQ4_XS, which has neither `dmin` nor mins.
pub(crate) const XS_NUMBERS: usize = 2 * LANES;
pub(crate) const XS_HIGHS: usize = XS_NUMBERS + PARTS / 2 * LANES;

/// One row's share of a block, as integers.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SuperUnit {
    codes: [u8; SUPER_BLOCK],
    /// Two for each part, as stored: a scale and a min, or two scales (Q3_K: plus 32), or two pairs of 4 bits.
    /// IQ4_XS has one for each part, plus 32, and zeros after them.
    numbers: [u8; 2 * PARTS],
    d: [u8; 2],
    dmin: [u8; 2],
}

impl Form {
    /// Bytes before the codes of a block of 256.
    pub(crate) const fn header_bytes(self) -> usize {
        self.block_bytes() - PARTS * self.part_bytes()
    }

    /// Bytes of the codes of a part.
    pub(crate) const fn part_bytes(self) -> usize {
        self.code_bits() * STRIP
    }

    /// Scales and mins have 6 bits, not 8.
    pub(crate) const fn has_sixes(self) -> bool {
        matches!(self, Self::Q3K | Self::Q4K | Self::Q5K | Self::Iq4Xs)
    }

    /// There is room for `dmin`.
    const fn has_dmin(self) -> bool {
        !matches!(self, Self::Iq4Xs)
    }

    /// How many small numbers there are.
    const fn numbers(self) -> usize {
        if self.has_dmin() { 2 * PARTS } else { PARTS }
    }
}

/// Strip and shift of the bits of word `word`, `width` bits a code.
const fn place(width: usize, word: usize) -> (usize, usize) {
    let words = 8 / width;
    (word / words, word % words * width)
}

impl SuperUnit {
    /// A block of 256 weights as ggml stores it; layouts are those of `ggml-quants.c`.
    pub(crate) fn decode(encoding: Encoding, block: &[u8]) -> Self {
        let pair = |at: usize| [block[at], block[at + 1]];
        let codes = |code: &dyn Fn(usize, usize) -> u8| std::array::from_fn(|k| code(k / BLOCK, k % BLOCK));
        // codes of 2 bits, 128 of them in 32 bytes; codes of 4 bits, 64 in 32 bytes
        let twos = |from: usize, part: usize, i: usize| (block[from + part / 4 * BLOCK + i] >> (part % 4 * 2)) & 3;
        let fours = |from: usize, part: usize, i: usize| (block[from + part / 2 * BLOCK + i] >> (part % 2 * 4)) & 15;
        let bit = |from: usize, part: usize, i: usize| (block[from + i] >> part) & 1;
        match encoding {
            Encoding::Q2K => Self {
                codes: codes(&|part, i| twos(16, part, i)),
                numbers: std::array::from_fn(|i| block[i]),
                d: pair(80),
                dmin: pair(82),
            },
            Encoding::Q3K => Self {
                codes: codes(&|part, i| twos(32, part, i) | bit(0, part, i) << 2),
                numbers: std::array::from_fn(|i| q3_k_scale(&block[96..108], i)),
                d: pair(108),
                dmin: [0; 2],
            },
            Encoding::Iq4Xs => Self {
                // each part has 16 bytes: the low nibbles are its first half
                codes: codes(&|part, i| block[8 + part * 16 + i % 16] >> (i / 16 * 4) & 15),
                numbers: std::array::from_fn(|i| if i < PARTS { iq4_xs_scale(&block[2..8], i) } else { 0 }),
                d: pair(0),
                dmin: [0; 2],
            },
            Encoding::Q6K => Self {
                // 64 bytes of low nibbles hold the parts 0 and 2, 1 and 3 of each half of the block
                codes: codes(&|part, i| {
                    let low = block[part / 4 * 64 + part % 2 * BLOCK + i] >> (part % 4 / 2 * 4);
                    low & 15 | twos(128, part, i) << 4
                }),
                numbers: std::array::from_fn(|i| block[192 + i]),
                d: pair(208),
                dmin: [0; 2],
            },
            _ => Self {
                codes: codes(&|part, i| match encoding {
                    Encoding::Q5K => fours(48, part, i) | bit(16, part, i) << 4,
                    _ => fours(16, part, i),
                }),
                numbers: std::array::from_fn(|i| q4_k_number(&block[4..16], i / 2, i % 2)),
                d: pair(0),
                dmin: pair(2),
            },
        }
    }

    /// Writes it as row `row` of a zeroed block.
    pub(crate) fn write(&self, form: Form, block: &mut [u8], row: usize) {
        block[2 * row..2 * row + 2].copy_from_slice(&self.d);
        if form.has_dmin() {
            block[2 * (LANES + row)..2 * (LANES + row) + 2].copy_from_slice(&self.dmin);
        }
        for (i, &number) in self.numbers.iter().enumerate().take(form.numbers()) {
            number_bits(form, row, i).for_each(|bits| bits.put(number, block));
        }
        for (k, &code) in self.codes.iter().enumerate() {
            code_bits(form, row, k).for_each(|bits| bits.put(code, block));
        }
    }

    /// Reads what [`SuperUnit::write`] wrote.
    pub(crate) fn read(form: Form, block: &[u8], row: usize) -> Self {
        let pair = |at: usize| [block[2 * at], block[2 * at + 1]];
        let number = |i: usize| number_bits(form, row, i).fold(0, |number, bits| number | bits.of(block));
        let code = |k: usize| code_bits(form, row, k).fold(0, |code, bits| code | bits.of(block));
        Self {
            codes: std::array::from_fn(code),
            numbers: std::array::from_fn(|i| if i < form.numbers() { number(i) } else { 0 }),
            d: pair(row),
            dmin: if form.has_dmin() { pair(LANES + row) } else { [0; 2] },
        }
    }

    /// The weights, 256 of them.
    pub(crate) fn numbers(&self, form: Form, out: &mut [f32]) {
        let [d, dmin] = [self.d, self.dmin].map(|bytes| f16::from_le_bytes(bytes).to_f32());
        for (k, (out, &code)) in out.iter_mut().zip(&self.codes).enumerate() {
            let (scale, min) = self.scale_and_min(form, k / (BLOCK / 2));
            let code = match form.table() {
                Some(table) => i16::from(table[usize::from(code)]) - 128,
                None => i16::from(code) - form.offset() as i16,
            };
            *out = d * f32::from(scale) * f32::from(code) - dmin * f32::from(min);
        }
    }

    /// Of 16 weights.
    fn scale_and_min(&self, form: Form, half: usize) -> (i16, i16) {
        let number = i16::from(self.numbers[half]);
        match form {
            Form::Q2K => (number & 15, number >> 4),
            Form::Q3K => (number - 32, 0),
            Form::Iq4Xs => (i16::from(self.numbers[half / 2]) - 32, 0),
            Form::Q6K => (i16::from(self.numbers[half].cast_signed()), 0),
            _ => (i16::from(self.numbers[half / 2 * 2]), i16::from(self.numbers[half / 2 * 2 + 1])),
        }
    }
}

/// Where some bits of a number of at most 8 lie in a block.
#[derive(Clone, Copy)]
struct Bits {
    /// Their byte.
    at: usize,
    /// The lowest of them in it.
    shift: usize,
    count: usize,
    /// Bits of the number below them.
    below: usize,
}

impl Bits {
    fn mask(self) -> u8 {
        u8::MAX >> (8 - self.count)
    }

    /// Writes these bits of `number` over zeros.
    fn put(self, number: u8, block: &mut [u8]) {
        block[self.at] |= (number >> self.below & self.mask()) << self.shift;
    }

    /// Reads these bits, at their place in the number.
    fn of(self, block: &[u8]) -> u8 {
        (block[self.at] >> self.shift & self.mask()) << self.below
    }
}

/// Where small number `i` lies: whole, or its 4 low bits and its 2 high ones.
fn number_bits(form: Form, row: usize, i: usize) -> impl Iterator<Item = Bits> {
    let (numbers, highs) = match form {
        Form::Iq4Xs => (XS_NUMBERS, XS_HIGHS + i / 4 * LANES + row),
        _ => (NUMBERS, HIGHS + 4 * row + i / 4),
    };
    let whole = Bits { at: numbers + i * LANES + row, shift: 0, count: 8, below: 0 };
    let low = Bits { at: numbers + i / 2 * LANES + row, shift: i % 2 * 4, count: 4, below: 0 };
    let high = Bits { at: highs, shift: i % 4 * 2, count: 2, below: 4 };
    let six = form.has_sixes();
    [if six { low } else { whole }].into_iter().chain(six.then_some(high))
}

/// Where the low and the high bits of code `k` lie.
fn code_bits(form: Form, row: usize, k: usize) -> impl Iterator<Item = Bits> {
    let [low, high] = form.planes();
    let (part, word, byte) = (k / BLOCK, k % BLOCK / 4, k % 4);
    let start = form.header_bytes() + part * form.part_bytes() + 4 * row + byte;
    [(low, 0), (high, low)].into_iter().filter(|(count, _)| *count > 0).map(move |(count, below)| {
        let (strip, shift) = place(count, word);
        Bits { at: start + (below + strip) * STRIP, shift, count, below } // as many strips as bits are below
    })
}

/// Scale (0) or min (1) of a part, packed as `get_scale_min_k4` of ggml unpacks them.
fn q4_k_number(packed: &[u8], part: usize, which: usize) -> u8 {
    match (part, which) {
        (0..4, _) => packed[part + 4 * which] & 63,
        (_, 0) => packed[part + 4] & 15 | packed[part - 4] >> 6 << 4,
        _ => packed[part + 4] >> 4 | packed[part] >> 6 << 4,
    }
}

/// Scale of 16 weights, plus 32: low nibbles of 8 bytes, then high ones; 2 bits more in the last four bytes.
fn q3_k_scale(packed: &[u8], i: usize) -> u8 {
    packed[i % 8] >> (i / 8 * 4) & 15 | (packed[8 + i % 4] >> (i / 4 * 2) & 3) << 4
}

/// Scale of a part, plus 32: two bytes with 2 high bits of each, then low nibbles.
fn iq4_xs_scale(packed: &[u8], part: usize) -> u8 {
    packed[2 + part / 2] >> (part % 2 * 4) & 15 | (packed[part / 4] >> (part % 4 * 2) & 3) << 4
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Noise;

    const ALL: [Encoding; 6] =
        [Encoding::Q2K, Encoding::Q3K, Encoding::Q4K, Encoding::Q5K, Encoding::Q6K, Encoding::Iq4Xs];

    #[test]
    fn rows_of_a_block_read_back_as_they_were_written() {
        for encoding in ALL {
            let (form, (_, bytes)) = (encoding.form(), encoding.block());
            let mut noise = Noise(bytes as u64);
            let rows: Vec<Vec<u8>> = (0..LANES).map(|_| (0..bytes).map(|_| noise.bits() as u8).collect()).collect();
            let units: Vec<_> = rows.iter().map(|row| SuperUnit::decode(encoding, row)).collect();
            let mut block = vec![0; form.block_bytes()];
            units.iter().enumerate().for_each(|(row, unit)| unit.write(form, &mut block, row));
            for (row, unit) in units.iter().enumerate() {
                assert_eq!(*unit, SuperUnit::read(form, &block, row), "{encoding:?}, row {row}");
            }
        }
    }

    #[test]
    fn blocks_are_whole_cache_lines() {
        assert!(ALL.iter().all(|encoding| encoding.form().block_bytes().is_multiple_of(64)));
    }

    #[test]
    fn tiles_of_every_encoding_take_at_most_a_fiftieth_more_than_the_file() {
        for encoding in Encoding::ALL {
            let in_file = encoding.row_bytes(SUPER_BLOCK).unwrap() * LANES;
            let in_memory = encoding.form().tile_bytes(SUPER_BLOCK);
            assert!(in_memory >= in_file && in_memory * 100 <= in_file * 102, "{encoding:?}: {in_memory} of {in_file}");
        }
    }
}
