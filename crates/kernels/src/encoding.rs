//! The weight encodings of GGUF files, decoded to what tiles hold: codes and `f32` scales.
//!
//! Layouts are those of ggml (`ggml-common.h`, `ggml-quants.c`); all numbers are little-endian. Callers pass whole
//! blocks of one row; lengths are checked once, where tensors are read.

use half::{bf16, f16};

use crate::form::{BLOCK, Form};

/// How a file stores a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Encoding {
    /// 32-bit floats.
    F32,
    /// IEEE half precision.
    F16,
    /// bfloat16.
    Bf16,
    /// 4 bits, one scale for 32 weights.
    Q4_0,
    /// 4 bits, scale and minimum for 32 weights.
    Q4_1,
    /// 5 bits, one scale for 32 weights.
    Q5_0,
    /// 5 bits, scale and minimum for 32 weights.
    Q5_1,
    /// 8 bits, one scale for 32 weights.
    Q8_0,
    /// 2 bits, 4-bit scales and minimums for 16 weights each.
    Q2K,
    /// 3 bits, 6-bit scales for 16 weights each.
    Q3K,
    /// 4 bits, 6-bit scales and minimums for 32 weights each.
    Q4K,
    /// 5 bits, 6-bit scales and minimums for 32 weights each.
    Q5K,
    /// 6 bits, 8-bit scales for 16 weights each.
    Q6K,
    /// 4 bits that number the entries of a table, one scale for 32 weights.
    Iq4Nl,
    /// The same with 6-bit scales for 32 weights each.
    Iq4Xs,
    /// 4-bit floats, one power of two for 32 weights.
    Mxfp4,
}

/// Thirty-two consecutive weights of one row, for encodings with blocks of 32.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Unit {
    /// `scale · (code − offset) + min`, where the form defines the offset; or `scale` times an entry of the form's table.
    Codes {
        /// One byte a weight.
        codes: [u8; BLOCK],
        /// As the file stores it: an IEEE half, or an exponent in the first byte.
        scale: [u8; 2],
        /// Added to each weight; an IEEE half.
        min: [u8; 2],
    },
    /// Plain values.
    Values([f32; BLOCK]),
}

/// Ranges of codes that [`Encoding::to_q4_1`] tries.
const SPREADS: usize = 12;

/// One number for each range, computed side by side.
type Each = [f32; SPREADS];

fn each(of: impl Fn(usize) -> f32) -> Each {
    std::array::from_fn(of)
}

/// For each range `value ≈ scale · code + min`, both rounded as a block stores them.
struct Lines {
    codes: [Each; BLOCK],
    scales: Each,
    mins: Each,
}

impl Lines {
    /// Codes are `(value − low) · inverse`, rounded; the line through them is fitted by least squares.
    fn fit(values: &[f32; BLOCK], low: f32, inverses: &Each) -> Self {
        let n = BLOCK as f32;
        let codes = values.map(|x| each(|s| nearest_code((x - low) * inverses[s])));
        let value = values.iter().sum::<f32>() / n;
        let code = codes.iter().fold([0.0; SPREADS], |sums, codes| each(|s| sums[s] + codes[s])).map(|sum| sum / n);
        let (mut squares, mut products) = ([0.0; SPREADS], [0.0; SPREADS]);
        for (codes, x) in codes.iter().zip(values) {
            for s in 0..SPREADS {
                let beside = codes[s] - code[s];
                squares[s] += beside * beside;
                products[s] += beside * (x - value);
            }
        }
        let slopes = each(|s| if squares[s] > 0.0 { products[s] / squares[s] } else { 0.0 });
        let half = |x: f32| f16::from_f32(x).to_f32();
        Self { codes, scales: slopes.map(half), mins: each(|s| half(value - slopes[s] * code[s])) }
    }

    /// Sums of squared errors.
    fn errors(&self, values: &[f32; BLOCK]) -> Each {
        let mut errors = [0.0; SPREADS];
        for (codes, x) in self.codes.iter().zip(values) {
            for s in 0..SPREADS {
                let off = self.scales[s] * codes[s] + self.mins[s] - x;
                errors[s] += off * off;
            }
        }
        errors
    }
}

/// Nearest of 0…15, halves up. `round` would be a function call on processors without the instruction.
#[inline]
fn nearest_code(x: f32) -> f32 {
    let x = x.clamp(0.0, 15.0);
    let whole = f32::from(x as u8);
    if x - whole >= 0.5 { whole + 1.0 } else { whole }
}

impl Encoding {
    /// Every encoding.
    pub const ALL: [Self; 16] = [
        Self::F32,
        Self::F16,
        Self::Bf16,
        Self::Q4_0,
        Self::Q4_1,
        Self::Q5_0,
        Self::Q5_1,
        Self::Q8_0,
        Self::Q2K,
        Self::Q3K,
        Self::Q4K,
        Self::Q5K,
        Self::Q6K,
        Self::Iq4Nl,
        Self::Iq4Xs,
        Self::Mxfp4,
    ];

    /// The tile form that stores it exactly.
    pub const fn form(self) -> Form {
        match self {
            Self::F32 => Form::F32,
            Self::F16 => Form::F16,
            Self::Bf16 => Form::Bf16,
            Self::Q4_0 => Form::Nibble,
            Self::Q4_1 => Form::NibbleMin,
            Self::Q5_0 => Form::Five,
            Self::Q5_1 => Form::FiveMin,
            Self::Q8_0 => Form::Byte,
            Self::Q2K => Form::Q2K,
            Self::Q3K => Form::Q3K,
            Self::Q4K => Form::Q4K,
            Self::Q5K => Form::Q5K,
            Self::Q6K => Form::Q6K,
            Self::Iq4Nl => Form::Iq4Nl,
            Self::Iq4Xs => Form::Iq4Xs,
            Self::Mxfp4 => Form::Mxfp4,
        }
    }

    /// Weights and bytes of one block in the file.
    pub const fn block(self) -> (usize, usize) {
        match self {
            Self::F32 => (1, 4),
            Self::F16 | Self::Bf16 => (1, 2),
            Self::Q4_0 | Self::Iq4Nl => (32, 18),
            Self::Mxfp4 => (32, 17),
            Self::Q4_1 => (32, 20),
            Self::Q5_0 => (32, 22),
            Self::Q5_1 => (32, 24),
            Self::Q8_0 => (32, 34),
            Self::Q2K => (256, 84),
            Self::Q3K => (256, 110),
            Self::Iq4Xs => (256, 136),
            Self::Q4K => (256, 144),
            Self::Q5K => (256, 176),
            Self::Q6K => (256, 210),
        }
    }

    /// Bytes of a row of `k` weights; `None` if `k` is not a multiple of the block.
    pub const fn row_bytes(self, k: usize) -> Option<usize> {
        let (weights, bytes) = self.block();
        if k.is_multiple_of(weights) { Some(k / weights * bytes) } else { None }
    }

    /// Weights `32 · index…` of a row, for encodings with blocks of 32.
    pub(crate) fn unit(self, row: &[u8], index: usize) -> Unit {
        let (weights, bytes) = self.block();
        let bytes = if weights == 1 { BLOCK * bytes } else { bytes };
        let block = &row[index * bytes..(index + 1) * bytes];
        if weights == 1 { Unit::Values(self.values(block)) } else { self.simple(block) }
    }

    /// Nearest Q8_0 block, as ggml's `quantize_row_q8_0_ref` rounds it.
    pub fn to_q8_0(values: &[f32; BLOCK]) -> [u8; 34] {
        let largest = values.iter().fold(0.0f32, |largest, value| largest.max(value.abs()));
        let scale = largest / 127.0;
        let inverse = if scale > 0.0 { 1.0 / scale } else { 0.0 };
        let mut block = [0; 34];
        block[..2].copy_from_slice(&f16::from_f32(scale).to_le_bytes());
        for (code, value) in block[2..].iter_mut().zip(values) {
            *code = ((value * inverse).round() as i8).cast_unsigned();
        }
        block
    }

    /// The nearest `Q4_1` block: of several ranges of the sixteen codes, the one whose least-squares line through
    /// `(code, value)` has the smallest squared error.
    pub fn to_q4_1(values: &[f32; BLOCK]) -> [u8; 20] {
        let [low, high] =
            values.iter().fold([f32::INFINITY, f32::NEG_INFINITY], |[low, high], &x| [low.min(x), high.max(x)]);
        let inverses = each(|s| (14.0 + 2.0 * s as f32 / (SPREADS - 1) as f32) / (high - low));
        let lines = Lines::fit(values, low, &inverses);
        let errors = lines.errors(values);
        let best = (0..SPREADS).min_by(|a, b| errors[*a].total_cmp(&errors[*b])).unwrap_or_default();
        let mut block = [0; 20];
        block[..2].copy_from_slice(&f16::from_f32(lines.scales[best]).to_le_bytes());
        block[2..4].copy_from_slice(&f16::from_f32(lines.mins[best]).to_le_bytes());
        for (i, codes) in lines.codes.iter().enumerate() {
            block[4 + i % 16] |= (codes[best] as u8) << (i / 16 * 4);
        }
        block
    }

    fn values(self, bytes: &[u8]) -> [f32; BLOCK] {
        std::array::from_fn(|i| match self {
            Self::F32 => f32::from_le_bytes([bytes[4 * i], bytes[4 * i + 1], bytes[4 * i + 2], bytes[4 * i + 3]]),
            Self::Bf16 => bf16::from_le_bytes([bytes[2 * i], bytes[2 * i + 1]]).to_f32(),
            _ => f16::from_le_bytes([bytes[2 * i], bytes[2 * i + 1]]).to_f32(),
        })
    }

    /// The encodings with blocks of 32.
    fn simple(self, block: &[u8]) -> Unit {
        let (scale, min, body) = match self {
            Self::Mxfp4 => ([block[0], 0], [0; 2], &block[1..]),
            Self::Q4_1 | Self::Q5_1 => ([block[0], block[1]], [block[2], block[3]], &block[4..]),
            _ => ([block[0], block[1]], [0; 2], &block[2..]),
        };
        let nibble = |body: &[u8], i: usize| (body[i % 16] >> (i / 16 * 4)) & 15;
        let fifth = |i: usize| ((body[i / 8] >> (i % 8)) & 1) << 4;
        let codes = std::array::from_fn(|i| match self {
            Self::Q8_0 => body[i] ^ 0x80,
            Self::Q5_0 | Self::Q5_1 => nibble(&body[4..], i) | fifth(i),
            _ => nibble(body, i),
        });
        Unit::Codes { codes, scale, min }
    }
}
