//! How weights lie in device memory: rows of blocks of 32, in 32-bit words that shaders read up to four at a time.
//!
//! GGUF's blocks of 18, 20 or 210 bytes are not aligned to words, so they are repacked at load, in as many bits as the
//! file has: codes in one buffer, so that neighbouring lanes read neighbouring words; the codes' highest bits (where they
//! have 3, 5 or 6) and the scales in another. Packing never rounds: a code stays the code of the file, and a scale its
//! half with the small integers that K-quants multiply it by. Matrices that one kernel reads together have one form; if
//! their encodings differ, [`Form::Wide`].

use draftscope_kernels::{BLOCK, Encoding};

use super::blocks::{Meaning, is_quantised, meaning};

/// Layout and meaning of a block of 32 weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Form {
    /// The codes and scales of an encoding, or its plain numbers.
    Of(Encoding),
    /// 8-bit codes; a scale and a minimum as `f32` for each 16 weights: any quantised encoding, in 12 bits a weight.
    Wide,
}

/// What a block of codes consists of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout {
    /// Bits of a code in the buffer of codes: 2, 4 or 8; as many words a block.
    pub(crate) code_bits: usize,
    /// Higher bits of a code in the buffer of scales: 0, 1 or 2; as many words a block.
    pub(crate) high_bits: usize,
    /// What a code stands for.
    pub(crate) meaning: Meaning,
    pub(crate) scales: Scales,
}

/// Scales as a row stores them, after the higher bits of its codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scales {
    /// A half for each block, two a word.
    Half,
    /// Scale and minimum of a block as halves.
    HalfAndMin,
    /// A power of two for each block, four a word.
    Exponent,
    /// For 8 blocks: the factors of scales and minimums, as halves; 4 lower bits of the 6 of each, scale below minimum;
    /// the 2 higher bits, likewise. Q4_K, Q5_K.
    SixBitsAndMin,
    /// For 8 blocks: the lower bits of 8 scales; their factor and the higher bits. IQ4_XS.
    SixBits,
    /// For 8 blocks: factor; lower bits of 16 scales; higher bits. Q3_K.
    SixBitsEach16,
    /// For 8 blocks: factor; 16 scales of 8 bits. Q6_K.
    EightBitsEach16,
    /// For 8 blocks: factors; for each 16 weights 4 bits of scale and 4 of minimum. Q2_K.
    FourBitsEach16,
    /// Two scales and minimums as `f32` for each block.
    Plain,
}

impl Scales {
    /// Blocks that share words, and how many words.
    pub(crate) const fn words(self) -> (usize, usize) {
        match self {
            Self::Half => (2, 1),
            Self::HalfAndMin => (1, 1),
            Self::Exponent => (4, 1),
            Self::SixBits => (8, 2),
            Self::SixBitsAndMin | Self::SixBitsEach16 => (8, 4),
            Self::EightBitsEach16 | Self::FourBitsEach16 => (8, 5),
            Self::Plain => (1, 4),
        }
    }

    /// Whether each 16 weights have a scale of their own.
    pub(crate) const fn each_16(self) -> bool {
        matches!(self, Self::SixBitsEach16 | Self::EightBitsEach16 | Self::FourBitsEach16 | Self::Plain)
    }

    /// Whether something is added to the scaled codes.
    pub(crate) const fn has_min(self) -> bool {
        matches!(self, Self::HalfAndMin | Self::SixBitsAndMin | Self::FourBitsEach16 | Self::Plain)
    }
}

impl Form {
    /// Every form.
    pub const ALL: [Self; 17] = {
        let mut all = [Self::Wide; 17];
        let mut i = 0;
        while i < Encoding::ALL.len() {
            all[i] = Self::Of(Encoding::ALL[i]);
            i += 1;
        }
        all
    };

    /// The form that stores all of these encodings.
    #[must_use]
    pub fn of_all(encodings: &[Encoding]) -> Self {
        let first = encodings.first().copied().unwrap_or(Encoding::F32);
        if encodings.iter().all(|encoding| *encoding == first) {
            return Self::Of(first);
        }
        if encodings.iter().all(|encoding| is_quantised(*encoding)) { Self::Wide } else { Self::Of(Encoding::F32) }
    }

    /// Codes and scales; `None` for plain numbers.
    pub(crate) const fn layout(self) -> Option<Layout> {
        let encoding = match self {
            Self::Wide => {
                return Some(Layout { code_bits: 8, high_bits: 0, meaning: Meaning::Itself, scales: Scales::Plain });
            }
            Self::Of(encoding) => encoding,
        };
        let (code_bits, high_bits, scales) = match encoding {
            Encoding::F32 | Encoding::F16 | Encoding::Bf16 => return None,
            Encoding::Q4_0 | Encoding::Iq4Nl => (4, 0, Scales::Half),
            Encoding::Q4_1 => (4, 0, Scales::HalfAndMin),
            Encoding::Q5_0 => (4, 1, Scales::Half),
            Encoding::Q5_1 => (4, 1, Scales::HalfAndMin),
            Encoding::Q8_0 => (8, 0, Scales::Half),
            Encoding::Q2K => (2, 0, Scales::FourBitsEach16),
            Encoding::Q3K => (2, 1, Scales::SixBitsEach16),
            Encoding::Q4K => (4, 0, Scales::SixBitsAndMin),
            Encoding::Q5K => (4, 1, Scales::SixBitsAndMin),
            Encoding::Q6K => (4, 2, Scales::EightBitsEach16),
            Encoding::Iq4Xs => (4, 0, Scales::SixBits),
            Encoding::Mxfp4 => (4, 0, Scales::Exponent),
        };
        Some(Layout { code_bits, high_bits, meaning: meaning(encoding), scales })
    }

    /// Whether it multiplies activations in `f32` rather than in 8-bit integers.
    #[must_use]
    pub const fn is_dense(self) -> bool {
        self.layout().is_none()
    }

    /// Words of the codes (or numbers) of a row of `k` weights.
    #[must_use]
    pub const fn code_words(self, k: usize) -> usize {
        match (self, self.layout()) {
            (_, Some(layout)) => k / BLOCK * layout.code_bits,
            (Self::Of(Encoding::F32), None) => k,
            (_, None) => k / 2,
        }
    }

    /// Words of the higher bits and scales of a row of `k` weights.
    #[must_use]
    pub const fn scale_words(self, k: usize) -> usize {
        let Some(layout) = self.layout() else { return 0 };
        let (blocks, (shared, words)) = (k / BLOCK, layout.scales.words());
        blocks * layout.high_bits + blocks.div_ceil(shared) * words
    }

    /// Bytes that a row of `k` weights takes.
    #[must_use]
    pub const fn row_bytes(self, k: usize) -> usize {
        (self.code_words(k) + self.scale_words(k)) * size_of::<u32>()
    }

    /// Name in lower case: the encoding's.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Of(encoding) => encoding.form().name(),
            Self::Wide => "wide",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_takes_at_most_four_percent_more_than_in_the_file() {
        for encoding in Encoding::ALL {
            for k in [768, 2048, 4096] {
                let (device, file) = (Form::Of(encoding).row_bytes(k), encoding.row_bytes(k).unwrap());
                let ratio = device as f64 / file as f64;
                assert!((1.0..=1.04).contains(&ratio), "{encoding:?}, {k} columns: {ratio}");
            }
        }
        // blocks that share a word are rounded up
        assert_eq!(Form::Of(Encoding::Q4_0).row_bytes(96), 3 * 16 + 8);
        assert_eq!(Form::of_all(&[Encoding::Q4K, Encoding::Q6K]), Form::Wide);
        assert_eq!(Form::of_all(&[Encoding::F16, Encoding::Q6K]), Form::Of(Encoding::F32));
    }
}
