//! Decodes the blocks of GGUF files to integer codes with scales: what shaders multiply.
//!
//! Layouts are those of ggml (`ggml-common.h`, `ggml-quants.c`). Callers pass whole blocks. Invariant: `scale · code + min`
//! of a [`Block`] is the number that ggml's dequantisation gives, up to the rounding of that one expression.

use draftscope_kernels::{BLOCK, Encoding};
use half::f16;

/// Weights that share a scale in the finest encodings.
pub(crate) const HALF: usize = BLOCK / 2;

/// `kvalues_iq4nl` of ggml.
const IQ4: [i8; 16] = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];

/// `kvalues_mxfp4` of ggml, twice the numbers of four bits of the OCP specification of MX formats.
const MXFP4: [i8; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];

/// Thirty-two consecutive weights of a row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Block {
    /// One code a weight.
    pub(crate) codes: [i8; BLOCK],
    /// Scale of each half.
    pub(crate) scale: [f32; 2],
    /// Added to each weight of each half.
    pub(crate) min: [f32; 2],
}

impl Block {
    fn even(codes: [i8; BLOCK], scale: f32, min: f32) -> Self {
        Self { codes, scale: [scale; 2], min: [min; 2] }
    }

    /// The weights as plain numbers.
    pub(crate) fn numbers(&self) -> [f32; BLOCK] {
        std::array::from_fn(|i| self.scale[i / HALF] * f32::from(self.codes[i]) + self.min[i / HALF])
    }
}

/// Whether the encoding has codes, not plain numbers.
pub(crate) fn is_quantised(encoding: Encoding) -> bool {
    !matches!(encoding, Encoding::F32 | Encoding::F16 | Encoding::Bf16)
}

/// Calls `each` with the blocks of 32 of a row in a quantised encoding.
pub(crate) fn for_each_block(encoding: Encoding, row: &[u8], mut each: impl FnMut(Block)) {
    let (weights, bytes) = encoding.block();
    for stored in row.chunks_exact(bytes) {
        match weights {
            BLOCK => each(simple(encoding, stored)),
            _ => (0..weights / BLOCK).for_each(|part| each(part_of(encoding, stored, part))),
        }
    }
}

fn half_at(bytes: &[u8], at: usize) -> f32 {
    f16::from_le_bytes([bytes[at], bytes[at + 1]]).to_f32()
}

/// Encodings with blocks of 32.
fn simple(encoding: Encoding, block: &[u8]) -> Block {
    let nibble = |body: &[u8], i: usize| ((body[i % HALF] >> (i / HALF * 4)) & 15).cast_signed();
    let codes = |body: &[u8], offset: i8| std::array::from_fn(|i| nibble(body, i) - offset);
    let fives = |body: &[u8], offset: i8| {
        let fifth = |i: usize| (((body[i / 8] >> (i % 8)) & 1) << 4).cast_signed();
        std::array::from_fn(|i| (nibble(&body[4..], i) | fifth(i)) - offset)
    };
    let table = |body: &[u8], table: &[i8; 16]| std::array::from_fn(|i| table[nibble(body, i) as usize]);
    match encoding {
        Encoding::Q4_0 => Block::even(codes(&block[2..], 8), half_at(block, 0), 0.0),
        Encoding::Q4_1 => Block::even(codes(&block[4..], 0), half_at(block, 0), half_at(block, 2)),
        Encoding::Q5_0 => Block::even(fives(&block[2..], 16), half_at(block, 0), 0.0),
        Encoding::Q5_1 => Block::even(fives(&block[4..], 0), half_at(block, 0), half_at(block, 2)),
        Encoding::Iq4Nl => Block::even(table(&block[2..], &IQ4), half_at(block, 0), 0.0),
        Encoding::Mxfp4 => Block::even(table(&block[1..], &MXFP4), power(block[0]), 0.0),
        _ => Block::even(std::array::from_fn(|i| block[2 + i].cast_signed()), half_at(block, 0), 0.0),
    }
}

/// `2^(exponent − 128)`, below the normal numbers too: `GGML_E8M0_TO_FP32_HALF` of ggml.
fn power(exponent: u8) -> f32 {
    f32::from_bits(if exponent < 2 { 0x0020_0000 << exponent } else { (u32::from(exponent) - 1) << 23 })
}

/// Part `part` of a block of 256.
fn part_of(encoding: Encoding, block: &[u8], part: usize) -> Block {
    // codes of 2 bits, 128 of them in 32 bytes; codes of 4 bits, 64 in 32 bytes
    let twos = |from: usize, i: usize| (block[from + part / 4 * BLOCK + i] >> (part % 4 * 2)) & 3;
    let fours = |from: usize, i: usize| (block[from + part / 2 * BLOCK + i] >> (part % 2 * 4)) & 15;
    let bit = |from: usize, i: usize| (block[from + i] >> part) & 1;
    let codes = |code: &dyn Fn(usize) -> i16| std::array::from_fn(|i| code(i) as i8);
    let halves = |number: &dyn Fn(usize) -> f32| [number(2 * part), number(2 * part + 1)];
    match encoding {
        Encoding::Q2K => {
            let (d, dmin) = (half_at(block, 80), half_at(block, 82));
            Block {
                codes: codes(&|i| i16::from(twos(16, i))),
                scale: halves(&|half| d * f32::from(block[half] & 15)),
                min: halves(&|half| -(dmin * f32::from(block[half] >> 4))),
            }
        }
        Encoding::Q3K => {
            let d = half_at(block, 108);
            Block {
                codes: codes(&|i| i16::from(twos(32, i) | bit(0, i) << 2) - 4),
                scale: halves(&|half| d * (f32::from(q3_k_scale(&block[96..108], half)) - 32.0)),
                min: [0.0; 2],
            }
        }
        Encoding::Q6K => {
            let (d, low) = (half_at(block, 208), |i: usize| block[part / 4 * 64 + part % 2 * BLOCK + i]);
            Block {
                codes: codes(&|i| i16::from((low(i) >> (part % 4 / 2 * 4)) & 15 | twos(128, i) << 4) - 32),
                scale: halves(&|half| d * f32::from(block[192 + half].cast_signed())),
                min: [0.0; 2],
            }
        }
        Encoding::Iq4Xs => {
            let high = u16::from_le_bytes([block[2], block[3]]) >> (2 * part) & 3;
            let scale = u16::from(block[4 + part / 2] >> (part % 2 * 4) & 15) | high << 4;
            let code = |i: usize| IQ4[usize::from(block[8 + part * HALF + i % HALF] >> (i / HALF * 4) & 15)];
            Block::even(std::array::from_fn(code), half_at(block, 0) * (f32::from(scale) - 32.0), 0.0)
        }
        _ => {
            let number = |which| f32::from(q4_k_number(&block[4..16], part, which));
            let code = |i: usize| match encoding {
                Encoding::Q5K => fours(48, i) | bit(16, i) << 4,
                _ => fours(16, i),
            };
            let (scale, min) = (half_at(block, 0) * number(0), -(half_at(block, 2) * number(1)));
            Block::even(codes(&|i| i16::from(code(i))), scale, min)
        }
    }
}

/// 6-bit scale `index` of 16, plus 32.
fn q3_k_scale(bytes: &[u8], index: usize) -> u8 {
    let low = (bytes[index % 8] >> (index / 8 * 4)) & 15;
    low | ((bytes[8 + index % 4] >> (index / 4 * 2)) & 3) << 4
}

/// 6-bit scale (0) or min (1) of a part, `get_scale_min_k4` of ggml.
fn q4_k_number(bytes: &[u8], part: usize, which: usize) -> u8 {
    match part {
        0..4 => bytes[part + 4 * which] & 63,
        _ if which == 0 => bytes[part + 4] & 15 | (bytes[part - 4] >> 6) << 4,
        _ => bytes[part + 4] >> 4 | (bytes[part] >> 6) << 4,
    }
}

/// Random bytes may be halves that are no numbers.
#[cfg(test)]
pub(crate) fn finite_scales(encoding: Encoding, block: &mut [u8]) {
    let places: &[usize] = match encoding {
        Encoding::Q4_1 | Encoding::Q5_1 | Encoding::Q4K | Encoding::Q5K => &[0, 2],
        Encoding::Q2K => &[80, 82],
        Encoding::Q3K => &[108],
        Encoding::Q6K => &[208],
        Encoding::Mxfp4 => &[],
        _ => &[0],
    };
    if encoding == Encoding::Mxfp4 {
        block[0] = block[0] % 40 + 100;
    }
    for &at in places {
        let scale = f16::from_f32(f32::from(block[at]) / 4096.0);
        block[at..at + 2].copy_from_slice(&scale.to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use draftscope_kernels::{decode_block, testing::Noise};

    use super::*;

    #[test]
    fn every_encoding_decodes_to_the_numbers_of_the_cpu_kernels() {
        let mut noise = Noise(5);
        for encoding in Encoding::ALL.into_iter().filter(|encoding| is_quantised(*encoding)) {
            let (weights, bytes) = encoding.block();
            for _ in 0..20 {
                let mut stored: Vec<u8> = (0..bytes).map(|_| noise.bits() as u8).collect();
                finite_scales(encoding, &mut stored);
                let mut expected = vec![0.0; weights];
                decode_block(encoding, &stored, &mut expected);
                let mut got = Vec::new();
                for_each_block(encoding, &stored, |block| got.extend(block.numbers()));
                for (i, (got, expected)) in got.iter().zip(&expected).enumerate() {
                    let near = (got - expected).abs() <= 1e-6 * expected.abs().max(1e-3);
                    assert!(near, "{encoding:?}, weight {i}: {got} and {expected}");
                }
                assert_eq!(got.len(), weights);
            }
        }
    }
}
