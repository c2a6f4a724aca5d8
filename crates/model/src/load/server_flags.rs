//! The options of llama-server and vLLM that switch speculation on for a GGUF file: `models info`.
//!
//! Sources: llama.cpp `common/arg.cpp`, `common/speculative.cpp`, `docs/speculative.md`; vLLM `config/speculative.py` and its
//! pages on speculative decoding. vLLM reads repositories with safetensors, so its line names the file's origin.

use std::fmt::{self, Display};
use std::path::Path;

use serde::Serialize;

use crate::files::GgufFile;
use crate::load::gguf_drafting::{GgufDrafting, GgufRole};

/// Command lines, to be copied.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ServerFlags {
    /// For llama-server; none where llama.cpp does not draft with this file.
    pub llama_server: Option<String>,
    /// For `vllm serve`; none where there is nothing to serve.
    pub vllm: Option<String>,
}

/// Architectures whose MTP module llama.cpp runs (`graph_mtp` in its `src/models`).
const MTP_IN_LLAMA_CPP: &[&str] = &[
    "bailingmoe3",
    "cohere2moe",
    "deepseek2",
    "deepseek32",
    "deepseek4",
    "glm-dsa",
    "glm4moe",
    "hy-v3",
    "mimo2",
    "nemotron_h_moe",
    "qwen35",
    "qwen35moe",
    "qwen3next",
    "qwen4exp",
    "step35",
];

/// Families whose original repository has an MTP module, even if a GGUF file left it out.
const MTP_IN_REPOSITORY: &[&str] = &["qwen35", "qwen35moe", "qwen3next", "glm4moe", "mimo2", "step35"];

/// Placeholder of the model that a drafter drafts for.
const TARGET: &str = "TARGET.gguf";

impl ServerFlags {
    /// For an open file.
    #[must_use]
    pub fn of(path: &Path, gguf: &GgufFile, drafting: &GgufDrafting) -> Self {
        let architecture = gguf.text("general.architecture").unwrap_or_default();
        let file = quoted(&path.file_name().unwrap_or_default().to_string_lossy());
        let origin = origin(gguf);
        Self {
            llama_server: llama_server(architecture, &file, drafting),
            vllm: vllm(architecture, origin.as_deref(), drafting),
        }
    }
}

fn llama_server(architecture: &str, file: &str, drafting: &GgufDrafting) -> Option<String> {
    let sidecar = |kind: &str, most: u64| {
        format!("-m {TARGET} --spec-draft-model {file} --spec-type {kind} --spec-draft-n-max {most}")
    };
    // a block holds the anchor, and llama.cpp lowers what is too long
    let block = drafting.block_size.map_or(15, |size| size.saturating_sub(1).max(1));
    let flags = match drafting.role {
        GgufRole::Target if drafting.modules > 0 && MTP_IN_LLAMA_CPP.contains(&architecture) => {
            format!("-m {file} --spec-type draft-mtp --spec-draft-n-max 3")
        }
        GgufRole::Target => format!("-m {file} --spec-type ngram-mod"),
        GgufRole::MtpModule if !MTP_IN_LLAMA_CPP.contains(&architecture) => return None,
        GgufRole::MtpModule | GgufRole::Assistant => sidecar("draft-mtp", 3),
        GgufRole::Eagle3 => sidecar("draft-eagle3", 3),
        GgufRole::Dflash | GgufRole::Dflash2 => sidecar("draft-dflash", block),
        GgufRole::Dspark => sidecar("draft-dspark", block),
        GgufRole::Other => return None,
    };
    Some(format!("llama-server {flags}"))
}

fn vllm(architecture: &str, origin: Option<&str>, drafting: &GgufDrafting) -> Option<String> {
    let block = drafting.block_size.map_or(7, |size| size.saturating_sub(1).max(1));
    let own = origin.unwrap_or("OWNER/NAME");
    let with = |method: &str, count: u64| {
        let config = format!(r#"{{"method":"{method}","model":"{own}","num_speculative_tokens":{count}}}"#);
        format!("vllm serve TARGET --speculative-config '{config}'")
    };
    let has_mtp = drafting.modules > 0 || MTP_IN_REPOSITORY.contains(&architecture);
    Some(match drafting.role {
        GgufRole::Target if has_mtp => {
            format!(r#"vllm serve {own} --speculative-config '{{"method":"mtp","num_speculative_tokens":1}}'"#)
        }
        GgufRole::Target => format!(
            r#"vllm serve {own} --speculative-config '{{"method":"ngram","num_speculative_tokens":4,"prompt_lookup_max":4}}'"#
        ),
        GgufRole::MtpModule => {
            format!(r#"vllm serve {own} --speculative-config '{{"method":"mtp","num_speculative_tokens":1}}'"#)
        }
        GgufRole::Assistant => with("mtp", 1),
        GgufRole::Eagle3 => with("eagle3", 3),
        GgufRole::Dflash | GgufRole::Dflash2 => with("dflash", block),
        GgufRole::Dspark => with("dspark", block),
        GgufRole::Other => return None,
    })
}

/// `owner/name` of the repository that the file was made from, if its metadata names one of the Hugging Face Hub.
fn origin(gguf: &GgufFile) -> Option<String> {
    let keys = ["general.base_model.0.repo_url", "general.source.repo_url", "general.source.url"];
    let plain = |part: &str| {
        let fits = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        !part.is_empty() && part.len() <= 96 && !part.starts_with(['.', '-']) && part.chars().all(fits)
    };
    keys.iter().find_map(|key| {
        let rest = gguf.text(key)?.strip_prefix("https://huggingface.co/")?;
        let (owner, name) = rest.trim_end_matches('/').split_once('/')?;
        (plain(owner) && plain(name)).then(|| format!("{owner}/{name}"))
    })
}

/// A file name as one word of a shell; control characters are replaced.
fn quoted(name: &str) -> String {
    let name: String = name.chars().map(|c| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c }).collect();
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-+=:@".contains(c);
    match name.chars().all(is_plain) && !name.starts_with('-') {
        true => name,
        false => format!("'./{}'", name.replace('\'', r"'\''")),
    }
}

impl Display for ServerFlags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let none = "no option drafts with this file";
        writeln!(f, "llama    {}", self.llama_server.as_deref().unwrap_or(none))?;
        write!(f, "vLLM     {}", self.vllm.as_deref().unwrap_or(none))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drafting(role: GgufRole, modules: u64) -> GgufDrafting {
        GgufDrafting {
            role,
            what: None,
            modules,
            announced: modules,
            module_bytes: 0,
            block_size: Some(8),
            target_layers: Vec::new(),
            elsewhere: None,
        }
    }

    #[test]
    fn each_kind_of_file_has_the_options_of_its_drafter() {
        let llama = |architecture, role, modules| llama_server(architecture, "f.gguf", &drafting(role, modules));
        assert_eq!(
            llama("qwen35", GgufRole::Target, 1).unwrap(),
            "llama-server -m f.gguf --spec-type draft-mtp --spec-draft-n-max 3"
        );
        assert_eq!(llama("exaone4", GgufRole::Target, 1).unwrap(), "llama-server -m f.gguf --spec-type ngram-mod");
        assert_eq!(llama("exaone4", GgufRole::MtpModule, 1), None, "llama.cpp loads its tensors and does not run them");
        for (role, kind) in [
            (GgufRole::MtpModule, "draft-mtp --spec-draft-n-max 3"),
            (GgufRole::Assistant, "draft-mtp --spec-draft-n-max 3"),
            (GgufRole::Eagle3, "draft-eagle3 --spec-draft-n-max 3"),
            (GgufRole::Dflash2, "draft-dflash --spec-draft-n-max 7"),
            (GgufRole::Dspark, "draft-dspark --spec-draft-n-max 7"),
        ] {
            let expected = format!("llama-server -m TARGET.gguf --spec-draft-model f.gguf --spec-type {kind}");
            assert_eq!(llama("qwen35", role, 1).unwrap(), expected);
        }
    }

    #[test]
    fn vllm_names_the_repository_and_takes_json() {
        for (architecture, role, modules, method) in [
            ("qwen35", GgufRole::Target, 0, "mtp"),
            ("llama", GgufRole::Target, 0, "ngram"),
            ("eagle3", GgufRole::Eagle3, 0, "eagle3"),
            ("gemma4-assistant", GgufRole::Assistant, 0, "mtp"),
            ("dflash", GgufRole::Dspark, 0, "dspark"),
        ] {
            let line = vllm(architecture, Some("o/n"), &drafting(role, modules)).unwrap();
            let json = line.split('\'').nth(1).unwrap();
            let config: serde_json::Value = serde_json::from_str(json).unwrap();
            assert_eq!(config["method"], method, "{line}");
            assert!(config["num_speculative_tokens"].is_u64() && line.contains("o/n"), "{line}");
        }
    }

    #[test]
    fn names_are_one_word_of_a_shell() {
        assert_eq!(quoted("Model-Q4_K.gguf"), "Model-Q4_K.gguf");
        assert_eq!(quoted("a b.gguf"), "'./a b.gguf'");
        assert_eq!(quoted("it's.gguf"), r"'./it'\''s.gguf'");
        assert_eq!(quoted("-m.gguf"), "'./-m.gguf'");
        assert!(!quoted("\u{1b}[2J.gguf").contains('\u{1b}'));
    }
}
