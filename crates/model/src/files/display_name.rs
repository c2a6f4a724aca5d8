//! Names of models as people write them: `SmolLM2-135M-Instruct`.
//!
//! `general.name` of a GGUF file is often made by a converter ("Smollm2 135M 8k Lc100K Mix1 Ep2"), so the file's name
//! comes first if it can be that of a model.

use crate::error::clean;
use crate::files::gguf::GgufFile;
use draftscope_host::file_access::split_stem;

/// The name of a GGUF file's model: from the file's name, else from `general.basename`, `general.size_label` and
/// `general.finetune`, else `general.name`. Without control characters, at most 80 characters.
pub(super) fn of_gguf(gguf: &GgufFile) -> String {
    let file = gguf.path().file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let stem = without_format(&file);
    let text = |key: &str| gguf.text(key).map(str::trim).filter(|text| !text.is_empty());
    if is_specific(stem) {
        return clean(stem);
    }
    let parts = [text("general.basename"), text("general.size_label"), text("general.finetune")];
    match parts {
        [Some(_), Some(_), _] => clean(&parts.into_iter().flatten().collect::<Vec<_>>().join("-")),
        _ => clean(text("general.name").unwrap_or(if stem.is_empty() { "unnamed" } else { stem })),
    }
}

/// A file name without `.gguf`, the number of its part and its quantisation.
fn without_format(file: &str) -> &str {
    let mut stem = file.strip_suffix(".gguf").or_else(|| file.strip_suffix(".GGUF")).unwrap_or(file);
    loop {
        let shorter = split_stem(stem).map(|(name, ..)| name).or_else(|| without_last(stem, is_quantisation));
        match shorter {
            Some(shorter) if !shorter.is_empty() => stem = shorter,
            _ => return stem,
        }
    }
}

/// Without the last word after `.` or `-`, if it is of this kind.
fn without_last(stem: &str, is_kind: impl Fn(&str) -> bool) -> Option<&str> {
    let (rest, word) = stem.rsplit_once(['.', '-'])?;
    is_kind(word).then_some(rest)
}

/// `Q4_K_M`, `q8_0`, `IQ3_XXS`, `TQ1_0`, `MXFP4`, `F16`, `bf16`; `UD` and `imatrix` stand before or after such a word.
fn is_quantisation(word: &str) -> bool {
    let upper = word.to_ascii_uppercase();
    let starts = |prefix: &str| {
        let digit = upper.strip_prefix(prefix).and_then(|rest| rest.chars().next());
        digit.is_some_and(|digit| digit.is_ascii_digit()) && upper.contains('_')
    };
    let whole = ["F32", "F16", "BF16", "FP16", "FP32", "MXFP4", "MXFP4_MOE", "NVFP4", "UD", "IMATRIX", "I1"];
    whole.contains(&upper.as_str()) || ["Q", "IQ", "TQ"].iter().any(|prefix| starts(prefix))
}

/// Whether a name can be that of a model: it has letters and a number (a version or size), and is no digest.
fn is_specific(stem: &str) -> bool {
    let is_digest = stem.len() >= 32 && stem.bytes().all(|byte| byte.is_ascii_hexdigit());
    !is_digest && stem.contains(char::is_alphabetic) && stem.contains(|c: char| c.is_ascii_digit())
}

impl GgufFile {
    /// The name of the model, as people write it.
    #[must_use]
    pub fn name(&self) -> String {
        of_gguf(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_name_loses_its_format() {
        for (file, name) in [
            ("SmolLM2-135M-Instruct.Q4_1.gguf", "SmolLM2-135M-Instruct"),
            ("Qwen2.5-0.5B-Instruct-Q4_K_M.gguf", "Qwen2.5-0.5B-Instruct"),
            ("Qwen3-30B-A3B-UD-Q4_K_XL.gguf", "Qwen3-30B-A3B"),
            ("DeepSeek-V3-BF16-00001-of-00030.gguf", "DeepSeek-V3"),
            ("gemma-3-270m-it-qat-Q4_0-00001-of-00002.GGUF", "gemma-3-270m-it-qat"),
            ("llama-160m.f16.gguf", "llama-160m"),
            ("Phi-3.5-mini", "Phi-3.5-mini"),
            ("Q4_K_M.gguf", "Q4_K_M"),
            ("-Q4_0.gguf", "-Q4_0"),
            (".gguf", ""),
        ] {
            assert_eq!(without_format(file), name, "{file}");
        }
    }

    #[test]
    fn a_general_file_name_names_no_model() {
        for stem in ["model", "ggml-model", "", "0123456789abcdef0123456789abcdef", "123"] {
            assert!(!is_specific(stem), "{stem}");
        }
        assert!(is_specific("SmolLM2") && is_specific("gemma-3-270m-it"));
    }
}
