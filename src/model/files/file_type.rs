//! Name of the weights of a GGUF file: its file type, or the dtype of most of its weights.

use candle_core::quantized::GgmlDType;

/// `general.file_type` as in `llama_ftype` of llama.cpp's `llama.h`: number, name, and the type of most of the
/// matrices. File types of tensors that cannot be read here are left out. A name that is also that of a dtype is
/// written as a dtype, in lower case; the others name mixtures.
const FILE_TYPES: &[(u64, &str, GgmlDType)] = &[
    (0, "f32", GgmlDType::F32),
    (1, "f16", GgmlDType::F16),
    (2, "q4_0", GgmlDType::Q4_0),
    (3, "q4_1", GgmlDType::Q4_1),
    (7, "q8_0", GgmlDType::Q8_0),
    (8, "q5_0", GgmlDType::Q5_0),
    (9, "q5_1", GgmlDType::Q5_1),
    (10, "q2_k", GgmlDType::Q2K),
    (11, "Q3_K_S", GgmlDType::Q3K),
    (12, "Q3_K_M", GgmlDType::Q3K),
    (13, "Q3_K_L", GgmlDType::Q3K),
    (14, "Q4_K_S", GgmlDType::Q4K),
    (15, "Q4_K_M", GgmlDType::Q4K),
    (16, "Q5_K_S", GgmlDType::Q5K),
    (17, "Q5_K_M", GgmlDType::Q5K),
    (18, "q6_k", GgmlDType::Q6K),
    (21, "Q2_K_S", GgmlDType::Q2K),
    (32, "bf16", GgmlDType::BF16),
];

/// Flag in the number of a file type that was guessed.
const GUESSED: u64 = 1024;

/// The file type, if it is a known one and agrees with the matrices (their types and bytes); else the dtype with the
/// most bytes, or `unknown` without matrices.
///
/// A file type agrees if a matrix has its type: llama.cpp falls back to others for rows that are no multiple of a
/// block. An unquantised one must have most of the bytes, because routers and norms are unquantised in any file.
pub(super) fn name(file_type: Option<u64>, matrices: &[(GgmlDType, u64)]) -> String {
    let bytes_of = |dtype| matrices.iter().filter(|(of, _)| *of == dtype).map(|(_, bytes)| bytes).sum::<u64>();
    let Some(most) = matrices.iter().map(|(dtype, _)| *dtype).max_by_key(|dtype| bytes_of(*dtype)) else {
        return "unknown".to_owned();
    };
    let known = file_type.and_then(|number| FILE_TYPES.iter().find(|(other, ..)| *other == number & !GUESSED));
    let agrees = |dtype: GgmlDType| match dtype {
        GgmlDType::F32 | GgmlDType::F16 | GgmlDType::BF16 => dtype == most,
        _ => bytes_of(dtype) > 0,
    };
    match known {
        Some((_, name, dtype)) if agrees(*dtype) => (*name).to_owned(),
        _ => dtype_name(most),
    }
}

/// A type as the program spells it: `q6_k`.
fn dtype_name(dtype: GgmlDType) -> String {
    format!("{dtype:?}").to_lowercase().replace('k', "_k")
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIXED: [(GgmlDType, u64); 3] = [(GgmlDType::Q6K, 30), (GgmlDType::Q4K, 50), (GgmlDType::F32, 1)];

    #[test]
    fn a_mixture_is_named_by_its_file_type() {
        assert_eq!(name(Some(15), &MIXED), "Q4_K_M");
        assert_eq!(name(Some(14 | GUESSED), &MIXED), "Q4_K_S");
        assert_eq!(name(Some(3), &[(GgmlDType::Q8_0, 90), (GgmlDType::Q4_1, 10)]), "q4_1", "a large embedding");
    }

    #[test]
    fn a_file_type_that_is_missing_unknown_or_wrong_gives_way_to_the_tensors() {
        for wrong in [None, Some(2), Some(0), Some(999), Some(u64::MAX)] {
            assert_eq!(name(wrong, &MIXED), "q4_k", "{wrong:?}");
        }
        let two = [(GgmlDType::Q6K, 30), (GgmlDType::Q5_0, 20), (GgmlDType::Q5_0, 20)];
        assert_eq!(name(None, &two), "q5_0", "bytes are added up");
        assert_eq!(name(Some(15), &[]), "unknown");
    }

    #[test]
    fn every_pure_type_has_its_own_name() {
        for (number, title, dtype) in FILE_TYPES {
            let is_mixture = title.chars().any(char::is_uppercase);
            assert_eq!(name(Some(*number), &[(*dtype, 1)]), *title);
            assert!(is_mixture || dtype_name(*dtype) == *title, "{title}");
        }
    }
}
