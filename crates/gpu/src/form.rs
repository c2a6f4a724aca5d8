//! How weights lie in device memory: rows of blocks of 32, in 32-bit words that shaders read four at a time.
//!
//! GGUF's blocks of 18, 20 or 210 bytes are not aligned to words, so they are repacked at load. Packing never rounds: a
//! code stays the code of the file, and a scale that is no IEEE half in the file (K-quants multiply two numbers) is
//! stored as `f32`. Parts of one matrix with different encodings share the narrowest form that stores all of them.

use draftscope_kernels::{BLOCK, Encoding};
use half::{bf16, f16};

use crate::blocks::{Block, for_each_block, is_quantised};

/// Layout and meaning of a block of 32 weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Form {
    /// 4-bit codes; a scale and a minimum as halves: Q4_0, Q4_1.
    Nibble,
    /// 4-bit codes; a scale and a minimum as `f32`: Q4_K.
    NibbleWide,
    /// 8-bit codes; a scale and a minimum as halves: Q8_0, Q5_0, Q5_1, IQ4_NL.
    Byte,
    /// 8-bit codes; a scale and a minimum as `f32` for each 16 weights: every other quantised encoding.
    ByteWide,
    /// IEEE halves.
    F16,
    /// bfloat16.
    Bf16,
    /// Plain `f32`.
    F32,
}

impl Form {
    /// Every form.
    pub const ALL: [Self; 7] =
        [Self::Nibble, Self::NibbleWide, Self::Byte, Self::ByteWide, Self::F16, Self::Bf16, Self::F32];

    /// The form that stores one encoding.
    #[must_use]
    pub const fn of(encoding: Encoding) -> Self {
        match encoding {
            Encoding::F32 => Self::F32,
            Encoding::F16 => Self::F16,
            Encoding::Bf16 => Self::Bf16,
            Encoding::Q4_0 | Encoding::Q4_1 => Self::Nibble,
            Encoding::Q4K => Self::NibbleWide,
            Encoding::Q5_0 | Encoding::Q5_1 | Encoding::Q8_0 | Encoding::Iq4Nl => Self::Byte,
            _ => Self::ByteWide,
        }
    }

    /// The form that stores all of these encodings.
    #[must_use]
    pub fn of_all(encodings: &[Encoding]) -> Self {
        let mut forms = encodings.iter().map(|encoding| Self::of(*encoding));
        let first = forms.next().unwrap_or(Self::F32);
        if forms.all(|form| form == first) {
            return first;
        }
        if encodings.iter().all(|encoding| is_quantised(*encoding)) { Self::ByteWide } else { Self::F32 }
    }

    /// Whether it multiplies activations in `f32` rather than in 8-bit integers.
    #[must_use]
    pub const fn is_dense(self) -> bool {
        matches!(self, Self::F16 | Self::Bf16 | Self::F32)
    }

    /// Words of the codes (or numbers) of a block: a multiple of four.
    #[must_use]
    pub const fn code_words(self) -> usize {
        match self {
            Self::Nibble | Self::NibbleWide => 4,
            Self::Byte | Self::ByteWide => 8,
            Self::F16 | Self::Bf16 => 16,
            Self::F32 => 32,
        }
    }

    /// Words of the scales of a block.
    #[must_use]
    pub const fn scale_words(self) -> usize {
        match self {
            Self::Nibble | Self::Byte => 1,
            Self::NibbleWide => 2,
            Self::ByteWide => 4,
            Self::F16 | Self::Bf16 | Self::F32 => 0,
        }
    }

    /// Bytes that a row of `k` weights takes.
    #[must_use]
    pub const fn row_bytes(self, k: usize) -> usize {
        k / BLOCK * (self.code_words() + self.scale_words()) * size_of::<u32>()
    }

    /// Name in lower case, which is the name of the shader's file too.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Nibble => "nibble",
            Self::NibbleWide => "nibble_wide",
            Self::Byte => "byte",
            Self::ByteWide => "byte_wide",
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
            Self::F32 => "f32",
        }
    }
}

/// Rows in a form, in host memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PackedRows {
    /// `[rows][k / 32][code_words]`
    pub codes: Vec<u32>,
    /// `[rows][k / 32][scale_words]`
    pub scales: Vec<u32>,
}

impl PackedRows {
    /// Adds a row, as a file stores it in whole blocks. Dense numbers must be whole blocks of 32 too.
    pub fn push(&mut self, form: Form, encoding: Encoding, row: &[u8]) {
        if form.is_dense() {
            return self.push_numbers(form, &numbers_of(encoding, row));
        }
        for_each_block(encoding, row, |block| {
            // nibbles are stored without a sign
            let offset = if encoding == Encoding::Q4_0 && form == Form::Nibble { 8 } else { 0 };
            self.push_block(form, &block, offset);
        });
    }

    fn push_block(&mut self, form: Form, block: &Block, offset: i8) {
        let byte = |i: usize| u32::from((block.codes[i] + offset).cast_unsigned());
        match form {
            Form::Nibble | Form::NibbleWide => self.codes.extend((0..4).map(|word| {
                (0..4).map(|i| (byte(8 * word + i) | byte(8 * word + 4 + i) << 4) << (8 * i)).sum::<u32>()
            })),
            _ => self.codes.extend((0..8).map(|word| (0..4).map(|i| byte(4 * word + i) << (8 * i)).sum::<u32>())),
        }
        let min = |half: usize| block.min[half] - f32::from(offset) * block.scale[half];
        match form {
            Form::Nibble | Form::Byte => {
                let bits = |x: f32| u32::from(f16::from_f32(x).to_bits());
                self.scales.push(bits(block.scale[0]) | bits(min(0)) << 16);
            }
            Form::NibbleWide => self.scales.extend([block.scale[0], min(0)].map(f32::to_bits)),
            _ => self.scales.extend([block.scale[0], min(0), block.scale[1], min(1)].map(f32::to_bits)),
        }
    }

    fn push_numbers(&mut self, form: Form, numbers: &[f32]) {
        let pair = |low: u16, high: u16| u32::from(low) | u32::from(high) << 16;
        match form {
            Form::F16 => self.codes.extend(
                numbers
                    .as_chunks::<2>()
                    .0
                    .iter()
                    .map(|p| pair(f16::from_f32(p[0]).to_bits(), f16::from_f32(p[1]).to_bits())),
            ),
            Form::Bf16 => self.codes.extend(
                numbers
                    .as_chunks::<2>()
                    .0
                    .iter()
                    .map(|p| pair(bf16::from_f32(p[0]).to_bits(), bf16::from_f32(p[1]).to_bits())),
            ),
            _ => self.codes.extend(numbers.iter().map(|x| x.to_bits())),
        }
    }
}

/// A row of any encoding as plain numbers.
fn numbers_of(encoding: Encoding, row: &[u8]) -> Vec<f32> {
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
