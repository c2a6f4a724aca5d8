//! What a folder holds in place of what a model's folder needs, from the names of its files, for error messages.
//!
//! Invariant: only what was found in the folder is asserted.

use std::path::Path;

use serde_json::Value;

use crate::ModelError;
use crate::error::clean;
use crate::files::side_files::SideFiles;
use crate::files::unfinished;

/// Most files of a folder that are looked at.
const MAX_FILES: usize = 10_000;

/// The names of a folder's files, sorted; at most so many.
fn names(folder: &Path) -> Vec<String> {
    let files = std::fs::read_dir(folder).into_iter().flatten().take(MAX_FILES).filter_map(Result::ok);
    let mut names: Vec<String> = files.filter_map(|file| file.file_name().into_string().ok()).collect();
    names.sort();
    names
}

fn first(names: &[String], is: impl Fn(&str) -> bool) -> Option<&str> {
    names.iter().map(String::as_str).find(|name| is(&name.to_lowercase()))
}

/// What a LoRA adapter in a folder is for: `example/base`; `None` if the folder has no adapter.
pub(crate) fn adapter(files: &SideFiles) -> Option<String> {
    let text = files.read("adapter_config.json").ok()??;
    let config: Value = serde_json::from_slice(&text).unwrap_or_default();
    let kind = match config["peft_type"].as_str() {
        Some(kind) if !kind.eq_ignore_ascii_case("lora") => format!("an adapter ({})", clean(kind)),
        _ => "a LoRA adapter".to_owned(),
    };
    let base = config["base_model_name_or_path"].as_str().filter(|base| !base.is_empty());
    Some(base.map_or(kind.clone(), |base| format!("{kind} for {}", clean(base))))
}

/// A sentence on a folder without `config.json`.
pub(super) fn without_config(files: &SideFiles) -> String {
    let (path, names) = (files.path().display(), names(files.path()));
    if let Some(adapter) = adapter(files) {
        return format!(
            "{path} is {adapter} and holds no model; merge it into its model first (`merge_and_unload` of peft) and name the merged folder"
        );
    }
    if names.is_empty() {
        return format!("{path} is an empty folder; name a GGUF file, or a folder with config.json and safetensors");
    }
    if let Some(gguf) = first(&names, |name| name.ends_with(".gguf")) {
        return format!(
            "{path} has no config.json and holds a GGUF file: name the file itself, such as '{}'",
            clean(gguf)
        );
    }
    if names.iter().any(|name| name == "model_index.json") {
        return format!(
            "{path} has no config.json and is a pipeline of diffusers (model_index.json), which generates no text; name a language model"
        );
    }
    if names.iter().any(|name| name == "params.json") {
        return format!(
            "{path} has no config.json and is in Meta's or Mistral's own layout (params.json), which is not supported; get the repository in the layout of transformers, or a GGUF file"
        );
    }
    if let Some(part) = unfinished::in_folder(files.path()).first() {
        return format!(
            "{path} has no config.json, and '{}' is an unfinished download; download the folder again",
            clean(part)
        );
    }
    format!(
        "{path} has no config.json; a model folder needs one beside its safetensors, and for a GGUF file name the file itself"
    )
}

/// A clause on weights in a folder with neither `model.safetensors` nor its index, and the next step.
pub(super) fn without_weights(folder: &Path) -> String {
    let names = names(folder);
    let ends = |ends: &'static [&'static str]| first(&names, |name| ends.iter().any(|end| name.ends_with(end)));
    if let Some(part) = unfinished::in_folder(folder).first() {
        return format!("'{}' is an unfinished download; download the folder again", clean(part));
    }
    if let Some(gguf) = ends(&[".gguf"]) {
        return format!("it holds a GGUF file: name the file itself, such as '{}'", clean(gguf));
    }
    let is_torch = |name: &str| {
        name.ends_with(".pth") || name.ends_with(".pt") || name.ends_with(".bin") && name.starts_with("pytorch_model")
    };
    if let Some(torch) = first(&names, is_torch) {
        return format!(
            "its weights are in PyTorch files ('{}'), which are not read; convert them to safetensors (`save_pretrained` of transformers), or get a GGUF file",
            clean(torch)
        );
    }
    if let Some(own) = first(&names, |name| name.starts_with("consolidated") && name.ends_with(".safetensors")) {
        return format!(
            "its weights are in Mistral's own layout ('{}'), which is not supported; get the repository in the layout of transformers, or a GGUF file",
            clean(own)
        );
    }
    if let Some(shard) = first(&names, |name| name.contains("-of-") && name.ends_with(".safetensors")) {
        return format!("the index of its shards (such as '{}') is missing; download the folder again", clean(shard));
    }
    match ends(&[".safetensors", ".npz", ".h5", ".msgpack", ".onnx", ".ot", ".pkl"]) {
        Some(other) => format!(
            "it holds '{}', which is not read as a model; get a folder with safetensors, or a GGUF file",
            clean(other)
        ),
        None => "there are no weights; checkpoints in other formats (.bin, .pth) are not supported".to_owned(),
    }
}

/// A sentence on a folder without `tokenizer.json`.
pub(super) fn without_tokenizer(files: &SideFiles) -> String {
    let path = files.path().display();
    let has = |name: &str| files.path().join(name).is_file();
    let make = "make one with transformers (`AutoTokenizer.from_pretrained(FOLDER).save_pretrained(FOLDER)`), or get a GGUF file";
    match (has("tokenizer.model"), has("vocab.json")) {
        (true, _) => format!(
            "{path} has no tokenizer.json, only a tokenizer of SentencePiece (tokenizer.model), which is not read; {make}"
        ),
        (_, true) => format!("{path} has no tokenizer.json, only a vocabulary (vocab.json), which is not read; {make}"),
        _ if has("tokenizer_config.json") => {
            format!(
                "{path} has no tokenizer.json, only its settings (tokenizer_config.json); download tokenizer.json too"
            )
        }
        _ => format!("{path} has no tokenizer.json, and no other file of a tokenizer; download tokenizer.json too"),
    }
}

impl SideFiles {
    /// `config.json`.
    ///
    /// # Errors
    /// If it is missing or cannot be read.
    pub fn config(&self) -> Result<Vec<u8>, ModelError> {
        self.json("config.json")?.ok_or_else(|| ModelError::Unsupported(without_config(self)))
    }

    /// Why a folder without `tokenizer.json` does not run: what there is in its place, and the next step.
    #[must_use]
    pub fn without_tokenizer(&self) -> ModelError {
        ModelError::Unsupported(without_tokenizer(self))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(files: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        files.iter().for_each(|(name, text)| std::fs::write(folder.path().join(name), text).unwrap());
        folder
    }

    #[test]
    fn a_folder_without_a_configuration_says_what_it_is() {
        let cases: &[(&[(&str, &str)], &str)] = &[
            (&[], "is an empty folder"),
            (
                &[("adapter_config.json", r#"{"peft_type": "LORA", "base_model_name_or_path": "o/base"}"#)],
                "is a LoRA adapter for o/base and holds no model",
            ),
            (&[("adapter_config.json", r#"{"peft_type": "IA3"}"#)], "is an adapter (IA3) and"),
            (&[("adapter_config.json", "no json")], "is a LoRA adapter and holds"),
            (&[("m.Q4_0.gguf", "")], "such as 'm.Q4_0.gguf'"),
            (&[("model_index.json", "{}")], "a pipeline of diffusers"),
            (&[("params.json", "{}")], "own layout (params.json)"),
            (&[("model.safetensors.part", "")], "'model.safetensors.part' is an unfinished download"),
            (&[("notes.txt", "")], "has no config.json; a model folder needs one"),
        ];
        for (files, says) in cases {
            let folder = with(files);
            let sentence = without_config(&SideFiles::of(folder.path()));
            assert!(sentence.contains(says), "{files:?}: {sentence}");
        }
    }

    #[test]
    fn weights_in_other_formats_and_other_tokenizers_are_named() {
        for (name, says) in [
            ("pytorch_model-00001-of-00002.bin", "in PyTorch files"),
            ("consolidated.00.pth", "in PyTorch files"),
            ("consolidated.safetensors", "Mistral's own layout"),
            ("model-00001-of-00002.safetensors", "the index of its shards"),
            ("model.safetensors.crdownload", "is an unfinished download"),
            ("a.gguf", "name the file itself"),
            ("weights.npz", "it holds 'weights.npz'"),
            ("training_args.bin", "there are no weights"),
        ] {
            let folder = with(&[(name, "x")]);
            let clause = without_weights(folder.path());
            assert!(clause.contains(says), "{name}: {clause}");
        }
        for (name, says) in [
            ("tokenizer.model", "SentencePiece"),
            ("vocab.json", "vocab.json"),
            ("tokenizer_config.json", "only its settings"),
            ("x", "no other file of a tokenizer"),
        ] {
            let folder = with(&[(name, "x")]);
            let sentence = without_tokenizer(&SideFiles::of(folder.path()));
            assert!(sentence.contains("has no tokenizer.json") && sentence.contains(says), "{sentence}");
        }
    }
}
