//! Rows of a file's blocks as words of a [`Form`].

use draftscope_kernels::{BLOCK, Encoding};
use half::{bf16, f16};

use super::blocks::{codes_of, for_each_block, small_scales};
use super::form::{Form, Layout, Scales};

/// Rows in a form, in host memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PackedRows {
    /// `[rows][code_words]`
    pub codes: Vec<u32>,
    /// `[rows][scale_words]`: the higher bits of all codes of the row, then its scales.
    pub scales: Vec<u32>,
}

impl PackedRows {
    /// Adds a row, as a file stores it in whole blocks. Plain numbers must be whole blocks of 32 too.
    pub fn push(&mut self, form: Form, encoding: Encoding, row: &[u8]) {
        match (form, form.layout()) {
            (Form::Of(own), Some(layout)) if own == encoding => self.push_stored(encoding, layout, row),
            (_, Some(_)) => self.push_wide(encoding, row),
            (_, None) => self.push_numbers(form, &numbers_of(encoding, row)),
        }
    }

    /// Codes and scales as they are.
    fn push_stored(&mut self, encoding: Encoding, layout: Layout, row: &[u8]) {
        let (weights, bytes) = encoding.block();
        let stored = || row.chunks_exact(bytes);
        let low = (1u8 << layout.code_bits.min(7)) - 1; // unused for 8 bits
        for block in stored() {
            for part in 0..weights / BLOCK {
                let codes = codes_of(encoding, block, part);
                match layout.code_bits {
                    2 => self.codes.extend(twos(&codes.map(|code| code & low))),
                    4 => self.codes.extend(nibbles(&codes.map(|code| code & low))),
                    _ => self.codes.extend(bytes_of(&codes)),
                }
                let high = codes.map(|code| code >> layout.code_bits.min(7));
                match layout.high_bits {
                    0 => {}
                    1 => self.scales.push(ones(&high)),
                    _ => self.scales.extend(twos(&high)),
                }
            }
        }
        self.push_scales(encoding, layout.scales, &mut stored());
    }

    fn push_scales(&mut self, encoding: Encoding, scales: Scales, blocks: &mut dyn Iterator<Item = &[u8]>) {
        let half = |block: &[u8], at: usize| u32::from(u16::from_le_bytes([block[at], block[at + 1]]));
        match scales {
            Scales::Half => {
                let halves: Vec<_> = blocks.map(|block| half(block, 0)).collect();
                self.scales.extend(halves.chunks(2).map(|two| joined(two, 16)));
            }
            Scales::HalfAndMin => self.scales.extend(blocks.map(|block| half(block, 0) | half(block, 2) << 16)),
            Scales::Exponent => {
                let exponents: Vec<_> = blocks.map(|block| u32::from(block[0])).collect();
                self.scales.extend(exponents.chunks(4).map(|four| joined(four, 8)));
            }
            _ => blocks.for_each(|block| self.push_small_scales(encoding, scales, block)),
        }
    }

    /// Scales of a block of 256.
    fn push_small_scales(&mut self, encoding: Encoding, scales: Scales, block: &[u8]) {
        let half = |at: usize| u32::from(u16::from_le_bytes([block[at], block[at + 1]]));
        let all = small_scales(encoding, block);
        // six bits are stored without a sign
        let six = |scale: i8| u32::from((scale + if scales == Scales::SixBitsAndMin { 0 } else { 32 }).cast_unsigned());
        let each = |number: &dyn Fn(&(i8, i8)) -> u32| all.iter().map(number).collect::<Vec<_>>();
        let low = |numbers: &[u32], bits: usize| numbers.chunks(32 / bits).map(|n| joined(n, bits)).collect::<Vec<_>>();
        match scales {
            Scales::SixBitsAndMin => {
                let lower = each(&|(scale, min)| six(*scale) & 15 | (six(*min) & 15) << 4);
                let higher = each(&|(scale, min)| six(*scale) >> 4 | six(*min) >> 4 << 2);
                self.scales.push(half(0) | half(2) << 16);
                self.scales.extend(low(&lower, 8).into_iter().chain(low(&higher, 4)));
            }
            Scales::SixBits => {
                self.scales.extend(low(&each(&|(scale, _)| six(*scale) & 15), 4));
                self.scales.push(half(0) | joined(&each(&|(scale, _)| six(*scale) >> 4), 2) << 16);
            }
            Scales::SixBitsEach16 => {
                self.scales.push(half(108));
                self.scales.extend(low(&each(&|(scale, _)| six(*scale) & 15), 4));
                self.scales.extend(low(&each(&|(scale, _)| six(*scale) >> 4), 2));
            }
            Scales::EightBitsEach16 => {
                self.scales.push(half(208));
                self.scales.extend(low(&each(&|(scale, _)| u32::from(scale.cast_unsigned())), 8));
            }
            _ => {
                self.scales.push(half(80) | half(82) << 16);
                self.scales.extend(low(&each(&|(scale, min)| (*scale as u32) | (*min as u32) << 4), 8));
            }
        }
    }

    fn push_wide(&mut self, encoding: Encoding, row: &[u8]) {
        for_each_block(encoding, row, |block| {
            self.codes.extend(bytes_of(&block.codes.map(i8::cast_unsigned)));
            self.scales.extend([block.scale[0], block.min[0], block.scale[1], block.min[1]].map(f32::to_bits));
        });
    }

    fn push_numbers(&mut self, form: Form, numbers: &[f32]) {
        let pairs = || numbers.as_chunks::<2>().0.iter();
        let pair = |[low, high]: [u16; 2]| u32::from(low) | u32::from(high) << 16;
        match form {
            Form::Of(Encoding::F16) => {
                self.codes.extend(pairs().map(|two| pair(two.map(|x| f16::from_f32(x).to_bits()))));
            }
            Form::Of(Encoding::Bf16) => {
                self.codes.extend(pairs().map(|two| pair(two.map(|x| bf16::from_f32(x).to_bits()))));
            }
            _ => self.codes.extend(numbers.iter().map(|x| x.to_bits())),
        }
    }
}

/// Numbers of `bits` bits as one word, the first lowest.
fn joined(numbers: &[u32], bits: usize) -> u32 {
    numbers.iter().enumerate().fold(0, |word, (i, number)| word | number << (bits * i))
}

/// Four codes a word.
fn bytes_of(codes: &[u8; BLOCK]) -> impl Iterator<Item = u32> {
    codes.as_chunks().0.iter().map(|four| u32::from_le_bytes(*four))
}

/// Word `j`: low nibbles are weights `8j … 8j + 3`, high ones `8j + 4 … 8j + 7`.
fn nibbles(codes: &[u8; BLOCK]) -> impl Iterator<Item = u32> {
    codes
        .as_chunks::<8>()
        .0
        .iter()
        .map(|[a, b, c, d, e, f, g, h]| u32::from_le_bytes([a | e << 4, b | f << 4, c | g << 4, d | h << 4]))
}

/// Word `j`, bits `2s` and `2s + 1` of byte `i`: weight `16j + 4s + i`.
fn twos(codes: &[u8; BLOCK]) -> impl Iterator<Item = u32> {
    codes.as_chunks::<16>().0.iter().map(|codes| {
        let place = |(at, code): (usize, &u8)| u32::from(*code) << (8 * (at % 4) + 2 * (at / 4));
        codes.iter().enumerate().map(place).sum()
    })
}

/// Bit `s` of byte `i`: weight `4s + i`.
fn ones(codes: &[u8; BLOCK]) -> u32 {
    codes.iter().enumerate().map(|(at, code)| u32::from(*code) << (8 * (at % 4) + at / 4)).sum()
}

/// A row of any encoding as plain numbers.
pub(crate) fn numbers_of(encoding: Encoding, row: &[u8]) -> Vec<f32> {
    match encoding {
        Encoding::F32 => row.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect(),
        Encoding::F16 => row.as_chunks().0.iter().map(|bytes| f16::from_le_bytes(*bytes).to_f32()).collect(),
        Encoding::Bf16 => row.as_chunks().0.iter().map(|bytes| bf16::from_le_bytes(*bytes).to_f32()).collect(),
        _ => {
            let mut numbers = Vec::new();
            for_each_block(encoding, row, |block| numbers.extend(block.numbers()));
            numbers
        }
    }
}
