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
        for part in 0..weights / BLOCK {
            let (scale, min) = scales_of(encoding, stored, part);
            let codes = codes_of(encoding, stored, part).map(|code| code_value(encoding, code));
            each(Block { codes, scale, min });
        }
    }
}

pub(crate) fn half_at(bytes: &[u8], at: usize) -> f32 {
    f16::from_le_bytes([bytes[at], bytes[at + 1]]).to_f32()
}

/// What a stored code stands for, before it is scaled.
pub(crate) fn code_value(encoding: Encoding, code: u8) -> i8 {
    match meaning(encoding) {
        Meaning::Itself => code.cast_signed(),
        Meaning::Less(offset) => code.cast_signed() - offset,
        Meaning::Entry(table) => table[usize::from(code & 15)],
    }
}

/// How a stored code becomes a number.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Meaning {
    /// It is the number, signed if it has 8 bits.
    Itself,
    /// So much less.
    Less(i8),
    /// The number of an entry.
    Entry(&'static [i8; 16]),
}

/// How the codes of an encoding become numbers.
pub(crate) const fn meaning(encoding: Encoding) -> Meaning {
    match encoding {
        Encoding::Q4_0 => Meaning::Less(8),
        Encoding::Q5_0 => Meaning::Less(16),
        Encoding::Q3K => Meaning::Less(4),
        Encoding::Q6K => Meaning::Less(32),
        Encoding::Iq4Nl | Encoding::Iq4Xs => Meaning::Entry(&IQ4),
        Encoding::Mxfp4 => Meaning::Entry(&MXFP4),
        _ => Meaning::Itself,
    }
}

/// Codes of 32 weights as stored: part `part` of a block.
pub(crate) fn codes_of(encoding: Encoding, block: &[u8], part: usize) -> [u8; BLOCK] {
    // codes of 2 bits, 128 of them in 32 bytes; codes of 4 bits, 64 in 32 bytes, or 32 in 16
    let twos = |from: usize, i: usize| (block[from + part / 4 * BLOCK + i] >> (part % 4 * 2)) & 3;
    let fours = |from: usize, i: usize| (block[from + part / 2 * BLOCK + i] >> (part % 2 * 4)) & 15;
    let nibble = |from: usize, i: usize| (block[from + i % HALF] >> (i / HALF * 4)) & 15;
    let bit = |from: usize, i: usize| (block[from + i] >> part) & 1;
    let fifth = |from: usize, i: usize| (block[from + i / 8] >> (i % 8) & 1) << 4;
    let code = |i: usize| match encoding {
        Encoding::Q4_0 | Encoding::Iq4Nl => nibble(2, i),
        Encoding::Q4_1 => nibble(4, i),
        Encoding::Q5_0 => nibble(6, i) | fifth(2, i),
        Encoding::Q5_1 => nibble(8, i) | fifth(4, i),
        Encoding::Mxfp4 => nibble(1, i),
        Encoding::Iq4Xs => nibble(8 + part * HALF, i),
        Encoding::Q2K => twos(16, i),
        Encoding::Q3K => twos(32, i) | bit(0, i) << 2,
        Encoding::Q4K => fours(16, i),
        Encoding::Q5K => fours(48, i) | bit(16, i) << 4,
        Encoding::Q6K => (block[part / 4 * 64 + part % 2 * BLOCK + i] >> (part % 4 / 2 * 4)) & 15 | twos(128, i) << 4,
        _ => block[2 + i],
    };
    std::array::from_fn(code)
}

/// Scale and minimum of each half of part `part` of a block.
fn scales_of(encoding: Encoding, block: &[u8], part: usize) -> ([f32; 2], [f32; 2]) {
    let half = |at: usize| half_at(block, at);
    match encoding {
        Encoding::Q4_1 | Encoding::Q5_1 => ([half(0); 2], [half(2); 2]),
        Encoding::Mxfp4 => ([power(block[0]); 2], [0.0; 2]),
        Encoding::Q4_0 | Encoding::Q5_0 | Encoding::Q8_0 | Encoding::Iq4Nl => ([half(0); 2], [0.0; 2]),
        _ => {
            let Factors { d, dmin } = factors_of(encoding, block);
            let small = small_scales(encoding, block);
            let at = |half: usize| if small.len() == 8 { small[part] } else { small[2 * part + half] };
            ([0, 1].map(|half| d * f32::from(at(half).0)), [0, 1].map(|half| -(dmin * f32::from(at(half).1))))
        }
    }
}

/// What the small scales and minimums of a block of 256 are multiplied by.
pub(crate) struct Factors {
    pub(crate) d: f32,
    pub(crate) dmin: f32,
}

pub(crate) fn factors_of(encoding: Encoding, block: &[u8]) -> Factors {
    let of = |d: usize, dmin: Option<usize>| Factors {
        d: half_at(block, d),
        dmin: dmin.map_or(0.0, |at| half_at(block, at)),
    };
    match encoding {
        Encoding::Q2K => of(80, Some(82)),
        Encoding::Q3K => of(108, None),
        Encoding::Q6K => of(208, None),
        Encoding::Iq4Xs => of(0, None),
        _ => of(0, Some(2)),
    }
}

/// Small scales and minimums of a block of 256: 8 of each, or 16.
pub(crate) fn small_scales(encoding: Encoding, block: &[u8]) -> Vec<(i8, i8)> {
    let less_32 = |scale: u8| scale.cast_signed() - 32;
    match encoding {
        Encoding::Q2K => {
            block[..16].iter().map(|both| ((both & 15).cast_signed(), (both >> 4).cast_signed())).collect()
        }
        Encoding::Q3K => (0..16).map(|i| (less_32(q3_k_scale(&block[96..108], i)), 0)).collect(),
        Encoding::Q6K => block[192..208].iter().map(|scale| (scale.cast_signed(), 0)).collect(),
        Encoding::Iq4Xs => {
            let high = u16::from_le_bytes([block[2], block[3]]);
            let scale =
                |part: usize| (block[4 + part / 2] >> (part % 2 * 4) & 15) | ((high >> (2 * part) & 3) as u8) << 4;
            (0..8).map(|part| (less_32(scale(part)), 0)).collect()
        }
        _ => {
            let number = |part, which| q4_k_number(&block[4..16], part, which).cast_signed();
            (0..8).map(|part| (number(part, 0), number(part, 1))).collect()
        }
    }
}

/// `2^(exponent − 128)`, below the normal numbers too: `GGML_E8M0_TO_FP32_HALF` of ggml.
fn power(exponent: u8) -> f32 {
    f32::from_bits(if exponent < 2 { 0x0020_0000 << exponent } else { (u32::from(exponent) - 1) << 23 })
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
