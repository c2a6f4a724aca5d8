//! The types of tensors in GGUF files: `ggml_type` of ggml's `ggml.h`, sizes of blocks as in its `ggml-common.h`.

use std::borrow::Cow;

use candle_core::quantized::GgmlDType;
use draftscope_kernels::Encoding;

use crate::ModelError;

/// A type by its number in the file, whether it is known or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TensorType(pub(crate) u32);

/// Types that run: number, name, and encoding.
const THAT_RUN: &[(u32, &str, Encoding)] = &[
    (0, "F32", Encoding::F32),
    (1, "F16", Encoding::F16),
    (2, "Q4_0", Encoding::Q4_0),
    (3, "Q4_1", Encoding::Q4_1),
    (6, "Q5_0", Encoding::Q5_0),
    (7, "Q5_1", Encoding::Q5_1),
    (8, "Q8_0", Encoding::Q8_0),
    (10, "Q2_K", Encoding::Q2K),
    (11, "Q3_K", Encoding::Q3K),
    (12, "Q4_K", Encoding::Q4K),
    (13, "Q5_K", Encoding::Q5K),
    (14, "Q6_K", Encoding::Q6K),
    (20, "IQ4_NL", Encoding::Iq4Nl),
    (23, "IQ4_XS", Encoding::Iq4Xs),
    (30, "BF16", Encoding::Bf16),
    (39, "MXFP4", Encoding::Mxfp4),
];

/// Types that do not: number, name, numbers of a block, and bytes of a block.
const OTHERS: &[(u32, &str, usize, usize)] = &[
    (9, "Q8_1", 32, 36),
    (15, "Q8_K", 256, 292),
    (16, "IQ2_XXS", 256, 66),
    (17, "IQ2_XS", 256, 74),
    (18, "IQ3_XXS", 256, 98),
    (19, "IQ1_S", 256, 50),
    (21, "IQ3_S", 256, 110),
    (22, "IQ2_S", 256, 82),
    (24, "I8", 1, 1),
    (25, "I16", 1, 2),
    (26, "I32", 1, 4),
    (27, "I64", 1, 8),
    (28, "F64", 1, 8),
    (29, "IQ1_M", 256, 56),
    (34, "TQ1_0", 256, 54),
    (35, "TQ2_0", 256, 66),
    (40, "NVFP4", 64, 36),
    (41, "Q1_0", 128, 18),
];

/// What is said of types that do not run.
const SUPPORTED: &str = "F32, F16, BF16, Q4_0 to Q8_0, Q2_K to Q6_K, IQ4_NL, IQ4_XS and MXFP4 are";

impl TensorType {
    fn that_runs(self) -> Option<&'static (u32, &'static str, Encoding)> {
        THAT_RUN.iter().find(|(number, ..)| *number == self.0)
    }

    fn other(self) -> Option<&'static (u32, &'static str, usize, usize)> {
        OTHERS.iter().find(|(number, ..)| *number == self.0)
    }

    /// How its bytes are decoded; none where it does not run.
    pub(crate) fn encoding(self) -> Option<Encoding> {
        self.that_runs().map(|(.., encoding)| *encoding)
    }

    /// Its name in ggml; `type 99` where it has none.
    pub(crate) fn name(self) -> Cow<'static, str> {
        let name = self.that_runs().map(|(_, name, _)| *name).or_else(|| self.other().map(|(_, name, ..)| *name));
        name.map_or_else(|| format!("type {}", self.0).into(), Cow::Borrowed)
    }

    /// Bytes of a tensor with so many numbers; none if they are no whole blocks, too many, or the type is unknown.
    pub(crate) fn bytes(self, numbers: u64) -> Option<u64> {
        let of_other = || self.other().map(|(_, _, numbers, bytes)| (*numbers, *bytes));
        let (block, bytes) = self.encoding().map(Encoding::block).or_else(of_other)?;
        numbers.is_multiple_of(block as u64).then_some(())?;
        (numbers / block as u64).checked_mul(bytes as u64)
    }

    /// Whether weights can be of this type: not whole numbers, nor f64, which no family reads.
    pub(crate) fn is_of_weights(self) -> bool {
        !(24..=28).contains(&self.0)
    }

    /// Whether ggml's type of this number is known.
    pub(crate) fn is_known(self) -> bool {
        self.that_runs().is_some() || self.other().is_some()
    }

    /// Why a tensor of this name cannot be read; `others` have types that do not run, too.
    pub(crate) fn unsupported(self, tensor: &str, others: usize) -> ModelError {
        let (tensor, name) = (crate::error::clean(tensor), self.name());
        let others = match others {
            0 => String::new(),
            1 => " (1 more tensor has such a type)".to_owned(),
            others => format!(" ({others} more tensors have such types)"),
        };
        ModelError::Unsupported(format!(
            "tensor '{tensor}' is stored as {name}, which is not supported{others}; {SUPPORTED}"
        ))
    }
}

/// candle's name of an encoding; none where candle does not decode it.
pub(crate) fn candle_dtype(encoding: Encoding) -> Option<GgmlDType> {
    Some(match encoding {
        Encoding::F32 => GgmlDType::F32,
        Encoding::F16 => GgmlDType::F16,
        Encoding::Bf16 => GgmlDType::BF16,
        Encoding::Q4_0 => GgmlDType::Q4_0,
        Encoding::Q4_1 => GgmlDType::Q4_1,
        Encoding::Q5_0 => GgmlDType::Q5_0,
        Encoding::Q5_1 => GgmlDType::Q5_1,
        Encoding::Q8_0 => GgmlDType::Q8_0,
        Encoding::Q2K => GgmlDType::Q2K,
        Encoding::Q3K => GgmlDType::Q3K,
        Encoding::Q4K => GgmlDType::Q4K,
        Encoding::Q5K => GgmlDType::Q5K,
        Encoding::Q6K => GgmlDType::Q6K,
        Encoding::Iq4Nl | Encoding::Iq4Xs | Encoding::Mxfp4 => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_encoding_has_one_type_with_its_name_and_size() {
        for encoding in Encoding::ALL {
            let of_it: Vec<_> = THAT_RUN.iter().filter(|(.., other)| *other == encoding).collect();
            let [(number, name, _)] = of_it[..] else { panic!("{encoding:?}: {of_it:?}") };
            let kind = TensorType(*number);
            let (numbers, bytes) = encoding.block();
            assert_eq!((kind.encoding(), kind.bytes(3 * numbers as u64)), (Some(encoding), Some(3 * bytes as u64)));
            assert_eq!(encoding.form().name(), name.to_lowercase());
            if let Some(dtype) = candle_dtype(encoding) {
                assert_eq!((dtype.block_size(), dtype.type_size()), (numbers, bytes), "{name}");
            }
        }
    }

    #[test]
    fn types_that_do_not_run_have_names_and_sizes_and_unknown_ones_a_number() {
        let sizes = [("IQ3_S", 21, 110), ("IQ2_XXS", 16, 66), ("IQ1_M", 29, 56), ("TQ1_0", 34, 54), ("I32", 26, 1024)];
        for (name, number, bytes) in sizes {
            let kind = TensorType(number);
            assert_eq!((kind.name().as_ref(), kind.bytes(256), kind.encoding()), (name, Some(bytes), None));
        }
        assert_eq!(TensorType(21).bytes(255), None, "no whole block");
        assert_eq!(TensorType(24).bytes(u64::MAX), Some(u64::MAX));
        assert_eq!(TensorType(27).bytes(u64::MAX), None, "too many");
        assert_eq!((TensorType(99).name().as_ref(), TensorType(99).bytes(32)), ("type 99", None));
        let error = TensorType(21).unsupported("blk.0.ffn_up\u{1b}.weight", 3).to_string();
        assert!(error.contains("'blk.0.ffn_up") && error.contains("IQ3_S") && !error.contains('\u{1b}'), "{error}");
    }
}
