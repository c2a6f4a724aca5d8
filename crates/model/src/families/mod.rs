//! Model families, one folder each: sizes, tensor names, layers and loading, and draft modules in their files.
//!
//! Invariant: a family names no other; code for two families is in [`nn`](crate::nn). A new family is a folder,
//! a `mod` line and a row of [`FAMILIES`].

pub mod deepseek;
pub mod gemma3;
pub mod gemma4;
pub mod granite;
pub mod llama;
pub mod llama_moe;
pub mod mistral;
pub mod olmo2;
pub mod phi3;
pub mod qwen35;
pub mod smollm3;
mod unsupported;

use serde_json::Value;

use crate::ModelError;
use crate::error::clean;
use crate::files::ConfigJson;
use crate::interfaces::{Family, Names};

/// The supported families.
pub static FAMILIES: &[&dyn Family] = &[
    &llama::LLAMA,
    &llama::QWEN2,
    &llama::QWEN3,
    &llama_moe::QWEN3_MOE,
    &qwen35::QWEN35,
    &qwen35::QWEN35_MOE,
    &qwen35::QWEN3_NEXT,
    &llama::MIMO,
    &gemma3::Gemma3Family,
    &gemma4::Gemma4Family,
    &deepseek::DEEPSEEK_V3,
    &deepseek::GLM4_MOE_LITE,
    &llama_moe::GLM4_MOE,
    &olmo2::OLMO2,
    &granite::GRANITE,
    &granite::GRANITE_HYBRID,
    &phi3::PHI3,
    &smollm3::SMOLLM3,
    &mistral::MISTRAL,
];

/// The supported families, for messages.
fn supported() -> String {
    let titles: Vec<_> = FAMILIES.iter().map(|family| family.names().title).collect();
    match titles.split_last() {
        Some((last, others)) => format!("this version runs {} and {last}", others.join(", ")),
        None => String::new(),
    }
}

fn find(name: &str, names: impl Fn(Names) -> &'static [&'static str]) -> Option<&'static dyn Family> {
    FAMILIES.iter().copied().find(|family| names(family.names()).contains(&name))
}

fn unknown(kind: &str, name: &str) -> ModelError {
    ModelError::Unsupported(match unsupported::what(name) {
        Some(what) => format!("the {kind} '{name}' is {what}, which is not supported yet; {}", supported()),
        None => format!("the {kind} '{}' is not supported yet; {}", clean(name), supported()),
    })
}

/// The family of a GGUF file, by its `general.architecture`.
///
/// # Errors
/// [`ModelError::Unsupported`] saying what it is.
pub fn of_gguf(name: &str) -> Result<&'static dyn Family, ModelError> {
    if let Some(family) = find(name, |names| names.gguf) {
        return Ok(family);
    }
    if unsupported::what(name).is_none() && find(name, |names| names.json).is_some() {
        let what = format!("{name} is supported as a folder of safetensors, not as a GGUF file");
        return Err(ModelError::Unsupported(what));
    }
    Err(unknown("architecture", name))
}

/// The family of a `config.json`, by its `model_type` and that of its `text_config`.
///
/// # Errors
/// [`ModelError::Unsupported`] saying what it is.
pub fn of_json(json: &ConfigJson) -> Result<&'static dyn Family, ModelError> {
    let of = |name: &str| find(name, |names| names.json);
    let family = of(json.model_type()).ok_or_else(|| unknown("model_type", json.model_type()))?;
    let Some(inner) = json.nested_model_type() else {
        return Ok(family);
    };
    let same = inner.as_str().and_then(of).is_some_and(|inner| inner.names().title == family.names().title);
    if same {
        return Ok(family);
    }
    let inner = if *inner == Value::Null { "nothing".to_owned() } else { clean(&inner.to_string()) };
    Err(ModelError::Unsupported(format!(
        "'text_config.model_type' is {inner} in a file whose 'model_type' is '{}', which is not supported",
        clean(json.model_type())
    )))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of_model_type(name: &str) -> Result<&'static str, String> {
        let json = ConfigJson::parse(json!({ "model_type": name }).to_string().as_bytes()).unwrap();
        of_json(&json).map(|family| family.names().title).map_err(|error| error.to_string())
    }

    #[test]
    fn a_family_that_runs_from_one_kind_of_file_says_so_for_the_other() {
        let of_gguf = |name| of_gguf(name).err().unwrap().to_string();
        assert_eq!(of_model_type("gemma4_unified_text"), Ok("gemma4"));
        assert!(of_gguf("deepseek_v3").contains("as a folder of safetensors, not as a GGUF file"));
    }

    #[test]
    fn what_does_not_run_is_named() {
        let error = of_model_type("gemma2").unwrap_err();
        assert!(error.contains("is Gemma 2, which is not supported yet; this version runs llama, qwen2"), "{error}");
        let error = of_model_type("wholly-new\u{1b}").unwrap_err();
        assert!(error.contains("the model_type 'wholly-new\u{fffd}' is not supported yet"), "{error}");
        for family in FAMILIES {
            let Names { gguf, json, title } = family.names();
            assert!(!gguf.is_empty() || !json.is_empty(), "{title}");
        }
    }
}
