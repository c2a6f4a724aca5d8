//! The model families by their names in files: those that run, and those that are known and do not.
//!
//! Invariant: a name that is recognised is answered with what it is; only a name nobody has heard of
//! is called unknown.

use crate::model::ModelError;
use crate::model::error::clean;
use crate::model::nn::rope::PairOrder;

/// A family that runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Architecture {
    /// Llama, and whatever is built alike: SmolLM2, TinyLlama.
    Llama,
    /// Qwen2 and 2.5 without experts: Llama with biased queries, keys and values.
    Qwen2,
    /// MiMo-7B: Qwen2 with a draft module of its own.
    MiMo,
    /// Qwen3 without experts: Llama with normed queries and keys.
    Qwen3,
    /// Qwen3.5 without experts (3.6 and 3.8 alike): linear layers between gated attention.
    Qwen35,
    /// DeepSeek-V3, R1 and V3.1: latent attention and experts.
    DeepSeekV3,
    /// GLM-4.7-Flash: the layout of DeepSeek-V3.
    Glm4MoeLite,
    /// Gemma 4 without experts: sliding layers between full ones, shared keys and values.
    Gemma4,
}

/// Names of families that are known and not run, and what they are.
const DECLINED: &[(&str, &str)] = &[
    ("qwen2moe", "a mixture of experts"),
    ("qwen3moe", "a mixture of experts"),
    ("qwen3_moe", "a mixture of experts"),
    ("qwen3next", "Qwen3-Next, a mixture of experts"),
    ("qwen3_next", "Qwen3-Next, a mixture of experts"),
    ("qwen35moe", "Qwen3.5 with experts"),
    ("qwen3_5_moe", "Qwen3.5 with experts"),
    ("llama4", "Llama 4, a mixture of experts"),
    ("mixtral", "a mixture of experts"),
    ("mistral", "Mistral (sliding-window attention)"),
    ("mistral3", "Mistral 3"),
    ("gemma", "Gemma"),
    ("gemma2", "Gemma 2"),
    ("gemma3", "Gemma 3"),
    ("gemma3_text", "Gemma 3"),
    ("gemma4", "Gemma 4 in a GGUF file (from safetensors it runs)"),
    ("gemma4-assistant", "an assistant of Gemma 4 in a GGUF file (from safetensors it drafts)"),
    ("eagle3", "an EAGLE-3 head, which drafts for another model"),
    (
        "deepseek2",
        "DeepSeek-V2 or V3, Kimi or GLM-4.7-Flash in a GGUF file (of these, folders of V3, R1, V3.1 and GLM-4.7-Flash run)",
    ),
    ("deepseek_v2", "DeepSeek-V2 (latent attention, experts chosen another way than V3's)"),
    ("deepseek32", "DeepSeek-V3.2 (sparse attention, experts)"),
    ("deepseek_v32", "DeepSeek-V3.2 (sparse attention, experts)"),
    ("deepseek4", "DeepSeek-V4"),
    ("deepseek_v4", "DeepSeek-V4"),
    ("glm4moe", "GLM-4.5 and later, a mixture of experts"),
    ("glm4_moe", "GLM-4.5 and later, a mixture of experts"),
    ("glm_moe_dsa", "GLM-5 (sparse attention, experts)"),
    ("glm-dsa", "GLM-5 (sparse attention, experts)"),
    ("kimi_k2", "Kimi K2 (the layout of DeepSeek-V3 with a trillion weights)"),
    ("mimo2", "MiMo-V2, a mixture of experts"),
    ("mimo_v2_flash", "MiMo-V2, a mixture of experts"),
    ("step35", "Step-3.5, a mixture of experts"),
    ("phi3", "Phi-3"),
    ("olmo2", "OLMo 2"),
    ("granite", "Granite"),
    ("gpt-oss", "gpt-oss, a mixture of experts"),
    ("gpt_oss", "gpt-oss, a mixture of experts"),
    ("nemotron_h", "Nemotron-H"),
    ("smollm3", "SmolLM3 (layers without positions)"),
    ("falcon", "Falcon"),
    ("gpt2", "GPT-2"),
    ("bert", "BERT, which continues no text"),
];

/// What runs, for messages.
const RUNS: &str = "this version runs llama, qwen2, qwen3, qwen3.5, mimo, gemma4, deepseek_v3 and glm4_moe_lite";

impl Architecture {
    /// By `general.architecture` of a GGUF file.
    ///
    /// # Errors
    /// [`ModelError::Unsupported`] saying what it is.
    pub fn of_gguf(name: &str) -> Result<Self, ModelError> {
        match Self::of(name, "architecture")? {
            found if found.is_latent() => Err(ModelError::Unsupported(format!(
                "{name} is supported as a folder of safetensors, not as a GGUF file"
            ))),
            found => Ok(found),
        }
    }

    /// By `model_type` of a `config.json`.
    ///
    /// # Errors
    /// [`ModelError::Unsupported`] saying what it is.
    pub fn of_model_type(name: &str) -> Result<Self, ModelError> {
        match name {
            "gemma4" | "gemma4_text" | "gemma4_unified" | "gemma4_unified_text" => Ok(Self::Gemma4),
            name => Self::of(name, "model_type"),
        }
    }

    fn of(name: &str, kind: &str) -> Result<Self, ModelError> {
        match name {
            "llama" => Ok(Self::Llama),
            "qwen2" => Ok(Self::Qwen2),
            "qwen3" => Ok(Self::Qwen3),
            "mimo" => Ok(Self::MiMo),
            "qwen35" | "qwen3_5" | "qwen3_5_text" => Ok(Self::Qwen35),
            "deepseek_v3" => Ok(Self::DeepSeekV3),
            "glm4_moe_lite" => Ok(Self::Glm4MoeLite),
            other => Err(ModelError::Unsupported(match DECLINED.iter().find(|(name, _)| *name == other) {
                Some((name, what)) => format!("the {kind} '{name}' is {what}, which is not supported yet; {RUNS}"),
                None => format!("the {kind} '{}' is not supported yet; {RUNS}", clean(other)),
            })),
        }
    }

    /// As files name it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Llama => "llama",
            Self::Qwen2 => "qwen2",
            Self::MiMo => "mimo",
            Self::Qwen3 => "qwen3",
            Self::Qwen35 => "qwen35",
            Self::DeepSeekV3 => "deepseek_v3",
            Self::Glm4MoeLite => "glm4_moe_lite",
            Self::Gemma4 => "gemma4",
        }
    }

    /// Whether attention is latent, and layers have experts: DeepSeek-V3's layout.
    pub(in crate::model) const fn is_latent(self) -> bool {
        matches!(self, Self::DeepSeekV3 | Self::Glm4MoeLite)
    }

    /// Whether queries and keys are normed head by head.
    pub(in crate::model) const fn norms_heads(self) -> bool {
        matches!(self, Self::Qwen3 | Self::Qwen35 | Self::Gemma4)
    }

    /// Whether only its matrices run on the native kernels, its blocks being no Llama's.
    pub(in crate::model) const fn is_mixed(self) -> bool {
        matches!(self, Self::Qwen35 | Self::Gemma4) || self.is_latent()
    }

    /// Whether queries, keys and values have a bias.
    pub(in crate::model) const fn biases_qkv(self) -> bool {
        matches!(self, Self::Qwen2 | Self::MiMo)
    }

    /// Whether a text begins with its own token whatever the files beside the tokenizer say: those of Gemma 4's
    /// `-it` repositories say nothing, and it is lost without (so has llama.cpp it, against the file even).
    pub(in crate::model) const fn always_begins(self) -> bool {
        matches!(self, Self::Gemma4)
    }

    /// Order of rotary pairs in GGUF files: llama's were permuted by the converter.
    pub(in crate::model) const fn gguf_pairs(self) -> PairOrder {
        match self {
            Self::Llama => PairOrder::Interleaved,
            Self::Qwen2 | Self::MiMo | Self::Qwen3 | Self::Qwen35 | Self::Gemma4 => PairOrder::HalfSplit,
            Self::DeepSeekV3 | Self::Glm4MoeLite => PairOrder::Interleaved,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_family_that_runs_from_one_form_of_file_is_declined_by_name_in_the_other() {
        assert_eq!(Architecture::of_model_type("gemma4_unified_text").unwrap(), Architecture::Gemma4);
        let error = Architecture::of_gguf("gemma4").unwrap_err().to_string();
        assert!(error.contains("is Gemma 4 in a GGUF file (from safetensors it runs)"), "{error}");
        let error = Architecture::of_gguf("gemma4-assistant").unwrap_err().to_string();
        assert!(error.contains("an assistant of Gemma 4 in a GGUF file"), "{error}");
        let error = Architecture::of_gguf("deepseek2").unwrap_err().to_string();
        assert!(error.contains("of these, folders of V3, R1, V3.1 and GLM-4.7-Flash run"), "{error}");
        assert!(Architecture::of_model_type("gemma3").unwrap_err().to_string().contains("is Gemma 3, which"));
    }
}
