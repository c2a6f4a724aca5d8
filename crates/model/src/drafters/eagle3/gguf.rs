//! EAGLE-3 heads in GGUF files, as llama.cpp's converter writes them (`conversion/llama.py`, `src/models/eagle3.cpp`):
//! architecture `eagle3`, one block, `d2t` with the tokens themselves, and the rows of queries and keys in the order that
//! interleaved rotary pairs need.
//!
//! Invariant: tensors are returned as a checkpoint has them, so the rest of the head's code knows no difference.

use crate::ModelError;
use crate::drafters::eagle3::config::EagleConfig;
use crate::files::{GgufFile, llama_name};
use crate::nn::{GgufKeys, LLAMA_LAYOUT, TransformerConfig};
use crate::plan::StatesNorm;

/// Architecture of such files, and the prefix of their keys.
pub(super) const ARCHITECTURE: &str = "eagle3";

/// The file's name of a tensor, by its name in the layout of `speculators`.
pub(super) fn name(own: &str) -> Option<String> {
    let fixed = match own {
        "fc.weight" | "d2t" => Some(own),
        "norm.weight" => Some("output_norm.weight"),
        "lm_head.weight" => Some("output.weight"),
        "embed_tokens.weight" => Some("token_embd.weight"),
        "input_norm.weight" => Some("enc.output_norm.weight"),
        "layers.0.hidden_norm.weight" => Some("blk.0.attn_norm_2.weight"),
        _ => None,
    };
    let in_block = || {
        let (part, ending) = own.strip_prefix("layers.0.")?.rsplit_once('.')?;
        Some(format!("blk.0.{}.{ending}", llama_name(part)?))
    };
    fixed.map(str::to_owned).or_else(in_block)
}

impl EagleConfig {
    /// Whether a file is an EAGLE-3 head.
    #[must_use]
    pub fn is_in(gguf: &GgufFile) -> bool {
        gguf.text("general.architecture") == Some(ARCHITECTURE)
    }

    /// Reads the metadata of a file.
    ///
    /// # Errors
    /// [`ModelError::Unsupported`] or [`ModelError::Metadata`] naming the key.
    pub fn from_gguf(gguf: &GgufFile) -> Result<Self, ModelError> {
        gguf.check_types()?;
        let keys = GgufKeys { gguf, arch: ARCHITECTURE };
        if keys.size("block_count", 1024)? != 1 {
            let what = "an EAGLE-3 head of more than one layer ('eagle3.block_count') is not supported";
            return Err(ModelError::Unsupported(what.to_owned()));
        }
        let conventions = LLAMA_LAYOUT.iter().find(|conventions| conventions.name == "llama");
        let conventions = conventions.ok_or_else(|| ModelError::Unsupported("Llama's blocks".into()))?;
        let vocab = vocabulary(gguf)?;
        let block = keys.sizes_with(conventions, vocab, |head_dim| keys.rope(head_dim))?;
        keys.refuse_extras(conventions, (block.head_dim, block.head_dim))?;
        let draft_vocab = match gguf.shape("d2t") {
            Ok(shape) => shape.first().copied().unwrap_or(0),
            Err(_) => vocab,
        };
        Ok(Self {
            target_d_model: keys.size_or("target_hidden_size", 1 << 16, block.d_model)?,
            layers: Some(Self::checked_layers(keys.numbers("target_layers")?, "eagle3.target_layers")?),
            draft_vocab: Self::checked_draft_vocab(draft_vocab, &block, "d2t")?,
            block: TransformerConfig { layers: 1, ..block },
            norm_before_residual: keys.flag("norm_before_residual")? == Some(true),
            states_norm: match keys.flag("norm_before_fc")? {
                Some(true) => StatesNorm::Together,
                _ => StatesNorm::None,
            },
            norm_output: false,
            verifier: None,
        })
    }
}

/// Tokens of the target: its own key, or the vocabulary that the file has.
fn vocabulary(gguf: &GgufFile) -> Result<usize, ModelError> {
    if let Some(vocab) = gguf.number("eagle3.vocab_size") {
        return usize::try_from(vocab).map_err(|_| ModelError::Metadata("'eagle3.vocab_size' is too large".into()));
    }
    Ok(gguf.list("tokenizer.ggml.tokens")?.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_converter() {
        for (own, file) in [
            ("fc.weight", "fc.weight"),
            ("norm.weight", "output_norm.weight"),
            ("layers.0.input_layernorm.weight", "blk.0.attn_norm.weight"),
            ("layers.0.hidden_norm.weight", "blk.0.attn_norm_2.weight"),
            ("layers.0.self_attn.q_proj.weight", "blk.0.attn_q.weight"),
            ("layers.0.self_attn.q_proj.bias", "blk.0.attn_q.bias"),
            ("layers.0.mlp.down_proj.weight", "blk.0.ffn_down.weight"),
        ] {
            assert_eq!(name(own).as_deref(), Some(file));
        }
        assert_eq!(name("layers.1.mlp.down_proj.weight"), None);
    }
}
