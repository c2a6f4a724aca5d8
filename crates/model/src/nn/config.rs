//! Sizes of a transformer, checked before any tensor is read.
//!
//! Invariant: a [`TransformerConfig`] is consistent (heads divide, widths are even, sizes bounded), whichever file it
//! came from; a key that contradicts another is named. [`gguf_keys`](crate::nn::gguf_keys) reads GGUF metadata,
//! [`hf_keys`](crate::nn::hf_keys) `config.json`. Keys of only one family are in that family's own config.

use crate::ModelError;
use crate::nn::rope::{PairOrder, RopeSpec};
use draftscope_protocol::{ModelInfo, TokenId};

/// Differences between families with blocks of the same sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conventions {
    /// Name of the family as files write it.
    pub name: &'static str,
    /// Whether queries and keys are normed head by head before they are rotated.
    pub qk_norm: bool,
    /// Whether queries, keys and values have a bias.
    pub qkv_bias: bool,
    /// Order of rotary pairs in GGUF files: llama's rows were permuted by the converter.
    pub gguf_pairs: PairOrder,
}

/// Conventions of the blocks of Llama's layout, by `model_type`.
pub const LLAMA_LAYOUT: [Conventions; 4] = [
    Conventions { name: "llama", qk_norm: false, qkv_bias: false, gguf_pairs: PairOrder::Interleaved },
    Conventions { name: "qwen2", qk_norm: false, qkv_bias: true, gguf_pairs: PairOrder::HalfSplit },
    Conventions { name: "qwen3", qk_norm: true, qkv_bias: false, gguf_pairs: PairOrder::HalfSplit },
    Conventions { name: "mimo", qk_norm: false, qkv_bias: true, gguf_pairs: PairOrder::HalfSplit },
];

/// Largest vocabulary, in tokens: larger than any real one, and small enough for every product of sizes.
const MAX_VOCAB: usize = 1 << 24;

/// Sizes and constants of a model.
#[derive(Clone, Debug, PartialEq)]
pub struct TransformerConfig {
    /// Conventions of its blocks.
    pub conventions: Conventions,
    /// Vocabulary size (v): rows of the embedding, which may be more than the tokenizer has tokens.
    pub vocab: usize,
    /// Width of the hidden state (d).
    pub d_model: usize,
    /// Transformer blocks.
    pub layers: usize,
    /// Query heads.
    pub heads: usize,
    /// Key/value heads; `heads` is a multiple.
    pub kv_heads: usize,
    /// Width of a head; heads together may be wider than d, or narrower.
    pub head_dim: usize,
    /// Width of the feed-forward layer.
    pub ffn: usize,
    /// Added to the mean square before the root in RMSNorm.
    pub norm_eps: f32,
    /// Rotary positions.
    pub rope: RopeSpec,
    /// Which values of a head form a rotated pair in this file.
    pub pairs: PairOrder,
    /// Longest context the model was made for.
    pub context_length: usize,
    /// Whether the embedding is the output head too.
    pub tied: bool,
}

impl TransformerConfig {
    /// Checks that the sizes are consistent; the names are those of the keys of both kinds of heads.
    ///
    /// # Errors
    /// [`ModelError::Metadata`] with the inconsistent key.
    pub(crate) fn check(&self, keys: (&str, &str)) -> Result<(), ModelError> {
        self.check_vocab()?;
        check_heads((self.heads, self.kv_heads, self.head_dim), keys)
    }

    /// Checks the size of the vocabulary.
    ///
    /// # Errors
    /// [`ModelError::Metadata`]
    pub(crate) fn check_vocab(&self) -> Result<(), ModelError> {
        if (1..=MAX_VOCAB).contains(&self.vocab) {
            return Ok(());
        }
        Err(ModelError::Metadata(format!("the vocabulary has {} tokens; 1 to {MAX_VOCAB} can be", self.vocab)))
    }

    /// Every token.
    pub(crate) fn tokens(&self) -> Vec<TokenId> {
        (0..self.vocab as u32).map(TokenId).collect()
    }

    /// Width of all query heads together.
    #[must_use]
    pub fn q_width(&self) -> usize {
        self.heads * self.head_dim
    }

    /// Width of all key (or value) heads together.
    #[must_use]
    pub fn kv_width(&self) -> usize {
        self.kv_heads * self.head_dim
    }

    /// Widths for the header of a trace; those known only after loading are 0.
    #[must_use]
    pub fn describe(&self, name: String, file: String) -> ModelInfo {
        ModelInfo {
            name,
            own_name: None,
            architecture: self.conventions.name.to_owned(),
            file,
            sha256: None,
            layers: self.layers as u32,
            d_model: self.d_model as u32,
            vocab: self.vocab as u32,
            context_length: self.context_length as u32,
            weight_bytes: 0,
            active_weights: 0,
            kv_bytes_per_token: 0,
            unfolded_kv_bytes_per_token: 0,
            expert_bytes: 0,
            expert_row_bytes: 0,
            state_bytes: 0,
            snapshot_bytes: 0,
        }
    }
}

/// Checks that heads are consistent: query heads, key/value heads and the width of one; the names are those of the keys
/// of both kinds of heads.
///
/// # Errors
/// [`ModelError::Metadata`] naming what does not.
pub(crate) fn check_heads(
    (heads, kv_heads, head_dim): (usize, usize, usize),
    (heads_key, kv_heads_key): (&str, &str),
) -> Result<(), ModelError> {
    if heads == 0 || kv_heads == 0 || !heads.is_multiple_of(kv_heads) {
        return Err(ModelError::Metadata(format!(
            "'{heads_key}' is {heads} and '{kv_heads_key}' is {kv_heads}: {heads} query heads over {kv_heads} key/value heads do not go"
        )));
    }
    if head_dim == 0 || !head_dim.is_multiple_of(2) {
        return Err(ModelError::Metadata(format!("a head width of {head_dim} cannot be rotated in pairs")));
    }
    Ok(())
}
