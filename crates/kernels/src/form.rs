//! How weights lie in memory: tiles of 16 output rows, cut along k into blocks of 32 or 256 weights.
//!
//! A block consists of *strips*; a strip has one element of equal width for each of the 16 rows, so one vector load
//! covers all rows. In blocks of 32, codes come first (four of a row in a strip, lowest k first), then scales, then
//! minima; blocks of 256 are described in [`super_block`](crate::super_block). A form stores its encodings exactly:
//! packing does not round. Tiles follow each other; missing rows are zero.

use crate::simd::LANES;

/// Weights along k that share an activation scale, and weights in most blocks.
pub const BLOCK: usize = 32;

/// Weights of a row in a block of a super form.
pub(crate) const SUPER_BLOCK: usize = 256;

/// `kvalues_iq4nl` of ggml, plus 128.
const IQ4: [u8; 16] = [1, 24, 45, 63, 79, 93, 106, 118, 129, 141, 153, 166, 181, 197, 217, 241];

/// `kvalues_mxfp4` of ggml, twice the numbers of four bits of the OCP specification of MX formats, plus 128.
const MXFP4: [u8; 16] = [128, 129, 130, 131, 132, 134, 136, 140, 128, 127, 126, 125, 124, 122, 120, 116];

/// Layout and meaning of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// `scale · (nibble − 8)`: Q4_0.
    Nibble,
    /// `scale · nibble + min`: Q4_1.
    NibbleMin,
    /// `scale · (code − 16)`, low four bits and fifth bit of a code stored apart: Q5_0.
    Five,
    /// `scale · code + min`, codes stored like that: Q5_1.
    FiveMin,
    /// `scale · (byte − 128)`: Q8_0.
    Byte,
    /// 2-bit codes, 4-bit scales and minima of 16 weights.
    Q2K,
    /// 3-bit codes, 6-bit scales of 16 weights.
    Q3K,
    /// 4-bit codes, 6-bit scales and minima of 32 weights.
    Q4K,
    /// 5-bit codes, 6-bit scales and minima of 32 weights.
    Q5K,
    /// 6-bit codes, 8-bit scales of 16 weights.
    Q6K,
    /// `scale · table[nibble]`: IQ4_NL.
    Iq4Nl,
    /// The same with 6-bit scales of 32 weights: IQ4_XS.
    Iq4Xs,
    /// `2^exponent · table[nibble]`: MXFP4.
    Mxfp4,
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
    const NONE: Self = Self { count: 0, width: 0 };

    const fn bytes(self) -> usize {
        self.count * self.width * LANES
    }
}

impl Form {
    /// The strips of a block, in order. Blocks of 32 begin with their codes (or plain values).
    pub const fn strips(self) -> [Strips; 4] {
        const fn of(count: usize, width: usize) -> Strips {
            Strips { count, width }
        }
        const NONE: Strips = Strips::NONE;
        match self {
            Self::Nibble | Self::Iq4Nl => [of(4, 4), of(1, 2), NONE, NONE],
            Self::Mxfp4 => [of(4, 4), of(1, 1), NONE, NONE],
            Self::NibbleMin => [of(4, 4), of(2, 2), NONE, NONE],
            Self::Five => [of(5, 4), of(1, 2), NONE, NONE],
            Self::FiveMin => [of(5, 4), of(2, 2), NONE, NONE],
            Self::Byte => [of(8, 4), of(1, 2), NONE, NONE],
            Self::Q2K | Self::Q6K => [of(2, 2), of(16, 1), NONE, of(8 * self.code_bits(), 4)],
            Self::Q3K | Self::Q4K | Self::Q5K => [of(2, 2), of(8, 1), of(1, 4), of(8 * self.code_bits(), 4)],
            Self::Iq4Xs => [of(1, 2), of(4, 1), of(2, 1), of(8 * self.code_bits(), 4)],
            Self::F16 | Self::Bf16 => [of(BLOCK, 2), NONE, NONE, NONE],
            Self::F32 => [of(BLOCK, 4), NONE, NONE, NONE],
        }
    }

    /// Weights of a row in a block.
    pub const fn weights(self) -> usize {
        if self.is_super() { SUPER_BLOCK } else { BLOCK }
    }

    /// Where scales begin in a block of 32.
    pub const fn codes_bytes(self) -> usize {
        self.strips()[0].bytes()
    }

    /// Bytes of a block of 16 rows.
    pub const fn block_bytes(self) -> usize {
        let [a, b, c, d] = self.strips();
        a.bytes() + b.bytes() + c.bytes() + d.bytes()
    }

    /// Bytes of a tile of `k` columns, whole blocks.
    pub const fn tile_bytes(self, k: usize) -> usize {
        k / self.weights() * self.block_bytes()
    }

    /// Whether it multiplies activations in `f32` rather than in 8-bit integers.
    pub const fn is_dense(self) -> bool {
        matches!(self, Self::F16 | Self::Bf16 | Self::F32)
    }

    /// Blocks of 256 weights.
    pub const fn is_super(self) -> bool {
        matches!(self, Self::Q2K | Self::Q3K | Self::Q4K | Self::Q5K | Self::Q6K | Self::Iq4Xs)
    }

    /// What codes stand for, plus 128, where they number the entries of a table; none where they are numbers themselves.
    pub(crate) const fn table(self) -> Option<&'static [u8; 16]> {
        match self {
            Self::Iq4Nl | Self::Iq4Xs => Some(&IQ4),
            Self::Mxfp4 => Some(&MXFP4),
            _ => None,
        }
    }

    /// Blocks of 32 with codes of five bits.
    pub const fn has_fives(self) -> bool {
        matches!(self, Self::Five | Self::FiveMin)
    }

    /// Two codes share a byte, and the byte holds nothing else.
    pub const fn has_nibbles(self) -> bool {
        matches!(self, Self::Nibble | Self::NibbleMin)
    }

    /// Scales come with minima.
    pub const fn has_min(self) -> bool {
        matches!(self, Self::NibbleMin | Self::FiveMin | Self::Q2K | Self::Q4K | Self::Q5K)
    }

    /// For split codes: the number of low bits, stored together, and of high bits, stored after them.
    pub const fn planes(self) -> [usize; 2] {
        match self {
            Self::Q2K => [2, 0],
            Self::Q3K => [2, 1],
            Self::Q4K | Self::Iq4Xs => [4, 0],
            Self::Five | Self::FiveMin | Self::Q5K => [4, 1],
            Self::Q6K => [4, 2],
            _ => [0, 0],
        }
    }

    /// Bits of a code in a block of 256.
    pub const fn code_bits(self) -> usize {
        let [low, high] = self.planes();
        low + high
    }

    /// The offset of a split code.
    pub const fn offset(self) -> i32 {
        match self {
            Self::Q3K => 4,
            Self::Five => 16,
            Self::Q6K => 32,
            _ => 0,
        }
    }

    /// Name as people write it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Nibble => "q4_0",
            Self::NibbleMin => "q4_1",
            Self::Five => "q5_0",
            Self::FiveMin => "q5_1",
            Self::Byte => "q8_0",
            Self::Q2K => "q2_k",
            Self::Q3K => "q3_k",
            Self::Q4K => "q4_k",
            Self::Q5K => "q5_k",
            Self::Q6K => "q6_k",
            Self::Iq4Nl => "iq4_nl",
            Self::Iq4Xs => "iq4_xs",
            Self::Mxfp4 => "mxfp4",
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
            Self::F32 => "f32",
        }
    }
}

/// A form known at compile time.
pub(crate) trait Layout {
    /// Its value at run time.
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

layouts!(Nibble, NibbleMin, Five, FiveMin, Byte, Q2K, Q3K, Q4K, Q5K, Q6K, Iq4Nl, Iq4Xs, Mxfp4, F16, Bf16, F32);

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
