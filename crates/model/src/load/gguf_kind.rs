//! GGUF files that hold no model that writes text: adapters, importance matrices, encoders, vocabularies, and models for
//! images or sound. Recognised as llama.cpp's tools write them, by `general.type`, `general.architecture` and the names of
//! tensors.

use crate::ModelError;
use crate::error::clean;
use crate::files::GgufFile;

/// What a file is, and the next step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct OtherGguf {
    /// As `X is …` continues.
    pub(super) what: String,
    next: &'static str,
}

/// Architectures that generate something else than text, or text in another way.
const ARCHITECTURES: &[(&[&str], &str)] = &[
    (
        &[
            "flux",
            "sd1",
            "sd2",
            "sd3",
            "sdxl",
            "aura",
            "hidream",
            "lumina2",
            "cosmos",
            "pixart",
            "qwen_image",
            "chroma",
            "z_image",
        ],
        "a model that makes images",
    ),
    (&["ltxv", "wan", "hyvid", "mochi"], "a model that makes videos"),
    (
        &["wavtokenizer-dec", "snac", "kokoro", "parler-tts", "dia", "orpheus-snac", "whisper", "csm", "outetts-dec"],
        "a model for sound or speech",
    ),
    (&["dream", "llada", "llada-moe", "rnd1"], "a diffusion model, which writes a text in no order"),
    (
        &[
            "bert",
            "nomic-bert",
            "nomic-bert-moe",
            "jina-bert-v2",
            "jina-bert-v3",
            "modern-bert",
            "neo-bert",
            "eurobert",
            "t5encoder",
            "gemma-embedding",
        ],
        "an encoder of texts (embeddings), which continues no text",
    ),
];

const NAME_A_MODEL: &str = "name a model that writes text";

impl OtherGguf {
    /// What an open file is; `None` for a model, a part of one, or a drafter.
    pub(super) fn of(gguf: &GgufFile) -> Option<Self> {
        let new = |what: String, next| Some(Self { what, next });
        let text = |key: &str| gguf.text(key).map(str::trim).filter(|text| !text.is_empty()).map(clean);
        let (kind, architecture) = (gguf.text("general.type"), gguf.text("general.architecture").unwrap_or_default());
        let is = |name: &str| kind == Some(name) || architecture == name;
        let any = |end: &str| gguf.tensor_names().any(|name| name.ends_with(end));
        if is("adapter") || gguf.text("adapter.type").is_some() || any(".lora_a") {
            let named = match text("adapter.type") {
                Some(other) if other != "lora" => format!("an adapter ({other})"),
                _ => "a LoRA adapter".to_owned(),
            };
            let next = "merge it into its model first (`llama-export-lora -m MODEL.gguf --lora FILE -o MERGED.gguf` of llama.cpp) and name the merged file";
            return new(for_base(named, base(gguf)), next);
        }
        if is("controlvector") {
            let hint = text("controlvector.model_hint");
            return new(for_base("a control vector".to_owned(), hint), "name the model that it steers");
        }
        if is("imatrix") || any(".in_sum2") {
            return new("an importance matrix (imatrix)".to_owned(), "name the model that is quantised with it");
        }
        if is("mmproj") || architecture == "clip" {
            let has = |key: &str| gguf.value(key).is_ok_and(|value| value.to_bool().unwrap_or(false));
            let of = match (has("clip.has_vision_encoder"), has("clip.has_audio_encoder")) {
                (true, true) => "images and sound",
                (false, true) => "sound",
                _ => "images",
            };
            return new(
                format!("an encoder of {of} (mmproj)"),
                "name the model's own GGUF file, which runs without it",
            );
        }
        let is_part = gguf.number("split.count").is_some_and(|parts| parts > 1);
        if kind == Some("vocab") || !is_part && gguf.tensor_names().next().is_none() {
            let what = match gguf.value("tokenizer.ggml.tokens") {
                Ok(_) => "a vocabulary alone ('tokenizer.ggml.tokens'), without the tensors of a model",
                Err(_) => "a GGUF file without tensors",
            };
            return new(what.to_owned(), "name the model's own GGUF file");
        }
        let (_, what) = ARCHITECTURES.iter().find(|(names, _)| names.contains(&architecture))?;
        new(format!("{what} ('{architecture}')"), NAME_A_MODEL)
    }

    /// The error for a file that was named as a model.
    pub(super) fn error(&self, gguf: &GgufFile) -> ModelError {
        ModelError::Unsupported(format!("{} is {}; {}", gguf.path().display(), self.what, self.next))
    }
}

fn for_base(what: String, base: Option<String>) -> String {
    match base {
        Some(base) => format!("{what} for {base}"),
        None => what,
    }
}

/// The model that a file was made for, by the name and the repository in its metadata.
fn base(gguf: &GgufFile) -> Option<String> {
    let text = |key: &str| gguf.text(&format!("general.base_model.0.{key}")).map(str::trim).filter(|t| !t.is_empty());
    let repo = text("repo_url").and_then(|url| url.strip_prefix("https://huggingface.co/")).map(clean);
    match (text("name").map(clean), repo) {
        (Some(name), Some(repo)) => Some(format!("{name} ({repo})")),
        (name, repo) => name.or(repo),
    }
}
