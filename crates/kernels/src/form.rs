//! How weights lie in memory: tiles of 16 output rows, cut along k into blocks of 32.
//!
//! A block is a few *strips*; a strip holds one element of equal width for each of the 16 rows, so
//! that one vector load meets all rows. Codes come first (four a row in a strip, lowest k first),
//! then scales, then minima. A form is exact for the encodings that map to it: no rounding happens
//! on the way in. Tiles follow each other, each `k / 32` blocks long; missing rows are zero.

use crate::simd::LANES;

/// Weights along k in one block.
pub const BLOCK: usize = 32;

/// Layout and meaning of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// `scale · (nibble − 8)`: Q4_0.
    Nibble,
    /// `scale · nibble + min`: Q4_1.
    NibbleMin,
    /// The same with `f32` scale and min: Q4_K.
    NibbleMinWide,
    /// `scale · (byte − 128)`: Q8_0, Q5_0.
    Byte,
    /// `scale · (byte − 128) + min`: Q5_1.
    ByteMin,
    /// The same with `f32` scale and min: Q5_K.
    ByteMinWide,
    /// `scale · (byte − 128)` with an `f32` scale for each half of the block: Q6_K.
    ByteHalves,
    /// IEEE halves.
    F16,
    /// bfloat16.
    Bf16,
    /// Plain `f32`.
    F32,
}

/// `count` strips of `width` bytes a row.
#[derive(Clone, Copy, Debug)]
pub struct Strips {
    pub count: usize,
    pub width: usize,
}

impl Strips {
    const fn bytes(self) -> usize {
        self.count * self.width * LANES
    }
}

impl Form {
    /// Codes (or plain values), then scales and minima.
    pub const fn strips(self) -> [Strips; 2] {
        let (codes, rest) = match self {
            Self::Nibble => ((4, 4), (1, 2)),
            Self::NibbleMin => ((4, 4), (2, 2)),
            Self::NibbleMinWide => ((4, 4), (2, 4)),
            Self::Byte => ((8, 4), (1, 2)),
            Self::ByteMin => ((8, 4), (2, 2)),
            Self::ByteMinWide | Self::ByteHalves => ((8, 4), (2, 4)),
            Self::F16 | Self::Bf16 => ((BLOCK, 2), (0, 0)),
            Self::F32 => ((BLOCK, 4), (0, 0)),
        };
        [Strips { count: codes.0, width: codes.1 }, Strips { count: rest.0, width: rest.1 }]
    }

    /// Where scales begin in a block.
    pub const fn codes_bytes(self) -> usize {
        self.strips()[0].bytes()
    }

    /// Bytes of a block of 16 rows × 32.
    pub const fn block_bytes(self) -> usize {
        self.strips()[0].bytes() + self.strips()[1].bytes()
    }

    /// Whether activations meet it as `f32` rather than as 8-bit integers.
    pub const fn is_dense(self) -> bool {
        matches!(self, Self::F16 | Self::Bf16 | Self::F32)
    }

    /// Two codes share a byte.
    pub const fn has_nibbles(self) -> bool {
        matches!(self, Self::Nibble | Self::NibbleMin | Self::NibbleMinWide)
    }

    /// Each block has a minimum beside its scale.
    pub const fn has_min(self) -> bool {
        matches!(self, Self::NibbleMin | Self::NibbleMinWide | Self::ByteMin | Self::ByteMinWide)
    }

    /// Scales are f32, not f16.
    pub const fn has_wide_scales(self) -> bool {
        matches!(self, Self::NibbleMinWide | Self::ByteMinWide | Self::ByteHalves)
    }

    /// Name as people write it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Nibble => "q4_0",
            Self::NibbleMin => "q4_1",
            Self::NibbleMinWide => "q4_k",
            Self::Byte => "q8_0",
            Self::ByteMin => "q5_1",
            Self::ByteMinWide => "q5_k",
            Self::ByteHalves => "q6_k",
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
            Self::F32 => "f32",
        }
    }
}

/// A form known at compile time.
pub(crate) trait Layout {
    /// Which.
    const FORM: Form;
}

macro_rules! layouts {
    ($($name:ident),*) => { $(
        /// See the [`Form`] of the same name.
        #[derive(Debug)]
        pub(crate) struct $name;
        impl Layout for $name {
            const FORM: Form = Form::$name;
        }
    )* };
}

layouts!(Nibble, NibbleMin, NibbleMinWide, Byte, ByteMin, ByteMinWide, ByteHalves, F16, Bf16, F32);

/// Copies one row of a block into another of the same form.
pub fn copy_row(form: Form, from: &[u8], from_row: usize, to: &mut [u8], to_row: usize) {
    let mut start = 0;
    for strips in form.strips() {
        for _ in 0..strips.count {
            let width = strips.width;
            let at = |row: usize| start + row * width..start + (row + 1) * width;
            to[at(to_row)].copy_from_slice(&from[at(from_row)]);
            start += LANES * width;
        }
    }
}
