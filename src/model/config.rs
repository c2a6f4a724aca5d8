//! Shape of a Llama-family transformer, read from a file's metadata and checked before any tensor is.

use super::ModelError;
use super::gguf::GgufFile;

/// Sizes and constants of a Llama-family model.
#[derive(Clone, Debug, PartialEq)]
pub struct LlamaConfig {
    /// Vocabulary size (v).
    pub vocab: usize,
    /// Width of the hidden state (d).
    pub d_model: usize,
    /// Transformer blocks.
    pub layers: usize,
    /// Query heads.
    pub heads: usize,
    /// Key/value heads; `heads` is a multiple.
    pub kv_heads: usize,
    /// Width of a head.
    pub head_dim: usize,
    /// Width of the feed-forward layer.
    pub ffn: usize,
    /// Added to the mean square before the root in RMSNorm.
    pub norm_eps: f32,
    /// Base of the rotary frequencies.
    pub rope_theta: f32,
    /// Longest context the model was made for.
    pub context_length: usize,
}

impl LlamaConfig {
    /// Reads the `llama.*` keys.
    ///
    /// # Errors
    /// [`ModelError::Unsupported`] for another architecture, [`ModelError::Metadata`] naming the key
    /// that is missing or contradictory.
    pub fn from_gguf(gguf: &GgufFile) -> Result<Self, ModelError> {
        let architecture = gguf.text("general.architecture").unwrap_or("(none)");
        if architecture != "llama" {
            return Err(ModelError::Unsupported(format!(
                "the architecture '{architecture}' is not supported yet; this version runs: llama"
            )));
        }
        let heads = gguf.size("llama.attention.head_count", 1024)?;
        let d_model = gguf.size("llama.embedding_length", 1 << 16)?;
        let config = Self {
            vocab: gguf.list("tokenizer.ggml.tokens")?.len(),
            d_model,
            layers: gguf.size("llama.block_count", 1024)?,
            heads,
            kv_heads: gguf.size("llama.attention.head_count_kv", 1024).unwrap_or(heads),
            head_dim: gguf.size("llama.attention.key_length", 1 << 12).unwrap_or(d_model / heads),
            ffn: gguf.size("llama.feed_forward_length", 1 << 20)?,
            norm_eps: gguf.real("llama.attention.layer_norm_rms_epsilon", None)?,
            rope_theta: gguf.real("llama.rope.freq_base", Some(10_000.0))?,
            context_length: gguf.size("llama.context_length", 1 << 24)?,
        };
        config.check(gguf)?;
        Ok(config)
    }

    fn check(&self, gguf: &GgufFile) -> Result<(), ModelError> {
        let contradiction = |what: String| Err(ModelError::Metadata(what));
        if self.vocab == 0 {
            return contradiction("'tokenizer.ggml.tokens' is empty".into());
        }
        if !self.heads.is_multiple_of(self.kv_heads) {
            return contradiction(format!(
                "{} query heads over {} key/value heads do not go",
                self.heads, self.kv_heads
            ));
        }
        if self.head_dim == 0 || !self.head_dim.is_multiple_of(2) {
            return contradiction(format!("a head width of {} cannot be rotated in pairs", self.head_dim));
        }
        let rotated = gguf.number("llama.rope.dimension_count").unwrap_or(self.head_dim as u64);
        if rotated != self.head_dim as u64 {
            return Err(ModelError::Unsupported(format!(
                "partial rotary embedding ({rotated} of {} dimensions) is not supported for llama files",
                self.head_dim
            )));
        }
        if gguf.text("llama.rope.scaling.type").is_some_and(|kind| kind != "none")
            || gguf.has_tensor("rope_freqs.weight")
        {
            return Err(ModelError::Unsupported("scaled rotary embeddings are not supported yet".into()));
        }
        Ok(())
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
}
