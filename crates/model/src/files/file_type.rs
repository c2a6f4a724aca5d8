//! Name of the weights of a GGUF file: its file type, or the dtype of most of its weights.

use crate::files::tensor_type::TensorType;

/// `general.file_type` as in `llama_ftype` of llama.cpp's `llama.h`: number, name, and the type of most of the matrices.
/// A name that is also that of a type is written in lower case, as types are; the others name mixtures.
const FILE_TYPES: &[(u64, &str, &str)] = &[
    (0, "f32", "F32"),
    (1, "f16", "F16"),
    (2, "q4_0", "Q4_0"),
    (3, "q4_1", "Q4_1"),
    (7, "q8_0", "Q8_0"),
    (8, "q5_0", "Q5_0"),
    (9, "q5_1", "Q5_1"),
    (10, "q2_k", "Q2_K"),
    (11, "Q3_K_S", "Q3_K"),
    (12, "Q3_K_M", "Q3_K"),
    (13, "Q3_K_L", "Q3_K"),
    (14, "Q4_K_S", "Q4_K"),
    (15, "Q4_K_M", "Q4_K"),
    (16, "Q5_K_S", "Q5_K"),
    (17, "Q5_K_M", "Q5_K"),
    (18, "q6_k", "Q6_K"),
    (19, "iq2_xxs", "IQ2_XXS"),
    (20, "iq2_xs", "IQ2_XS"),
    (21, "Q2_K_S", "Q2_K"),
    (22, "IQ3_XS", "IQ3_S"),
    (23, "iq3_xxs", "IQ3_XXS"),
    (24, "iq1_s", "IQ1_S"),
    (25, "iq4_nl", "IQ4_NL"),
    (26, "iq3_s", "IQ3_S"),
    (27, "IQ3_M", "IQ3_S"),
    (28, "IQ2_S", "IQ2_XS"),
    (29, "IQ2_M", "IQ2_S"),
    (30, "iq4_xs", "IQ4_XS"),
    (31, "iq1_m", "IQ1_M"),
    (32, "bf16", "BF16"),
    (36, "tq1_0", "TQ1_0"),
    (37, "tq2_0", "TQ2_0"),
    (38, "MXFP4_MOE", "MXFP4"),
    (39, "nvfp4", "NVFP4"),
    (40, "q1_0", "Q1_0"),
];

/// Flag in the number of a file type that was guessed.
const GUESSED: u64 = 1024;

/// The file type, if it is a known one and agrees with the matrices (their types and bytes); else the type with the
/// most bytes, or `unknown` without matrices.
///
/// A file type agrees if a matrix has its type: llama.cpp falls back to others for rows that are no multiple of a
/// block. An unquantised one must have most of the bytes, because routers and norms are unquantised in any file.
pub(super) fn name(file_type: Option<u64>, matrices: &[(TensorType, u64)]) -> String {
    let bytes_of =
        |kind: &str| matrices.iter().filter(|(of, _)| of.name() == kind).map(|(_, bytes)| bytes).sum::<u64>();
    let Some(most) = matrices.iter().map(|(kind, _)| kind.name()).max_by_key(|kind| bytes_of(kind)) else {
        return "unknown".to_owned();
    };
    let known = file_type.and_then(|number| FILE_TYPES.iter().find(|(other, ..)| *other == number & !GUESSED));
    let agrees = |kind: &str| match kind {
        "F32" | "F16" | "BF16" => kind == most,
        _ => bytes_of(kind) > 0,
    };
    match known {
        Some((_, name, kind)) if agrees(kind) => (*name).to_owned(),
        _ => most.to_lowercase(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const Q5_0: TensorType = TensorType(6);
    const Q4_1: TensorType = TensorType(3);
    const Q8_0: TensorType = TensorType(8);
    const Q4_K: TensorType = TensorType(12);
    const Q6_K: TensorType = TensorType(14);
    const F32: TensorType = TensorType(0);
    const MIXED: [(TensorType, u64); 3] = [(Q6_K, 30), (Q4_K, 50), (F32, 1)];

    #[test]
    fn a_mixture_is_named_by_its_file_type() {
        assert_eq!(name(Some(15), &MIXED), "Q4_K_M");
        assert_eq!(name(Some(14 | GUESSED), &MIXED), "Q4_K_S");
        assert_eq!(name(Some(3), &[(Q8_0, 90), (Q4_1, 10)]), "q4_1", "a large embedding");
        assert_eq!(
            name(Some(23), &[(TensorType(18), 9), (TensorType(21), 5)]),
            "iq3_xxs",
            "also of types that do not run"
        );
    }

    #[test]
    fn a_file_type_that_is_missing_unknown_or_wrong_gives_way_to_the_tensors() {
        for wrong in [None, Some(2), Some(0), Some(999), Some(u64::MAX)] {
            assert_eq!(name(wrong, &MIXED), "q4_k", "{wrong:?}");
        }
        let two = [(Q6_K, 30), (Q5_0, 20), (Q5_0, 20)];
        assert_eq!(name(None, &two), "q5_0", "bytes are added up");
        assert_eq!(name(Some(15), &[]), "unknown");
    }

    #[test]
    fn every_file_type_names_a_type_and_every_pure_one_has_its_name() {
        let numbers = || (0..64).map(TensorType);
        for (number, title, kind) in FILE_TYPES {
            let is_mixture = title.chars().any(char::is_uppercase);
            let kind = numbers().find(|other| other.name() == *kind).expect(title);
            assert_eq!(name(Some(*number), &[(kind, 1)]), *title);
            assert!(is_mixture || kind.name().to_lowercase() == *title, "{title}");
        }
    }
}
