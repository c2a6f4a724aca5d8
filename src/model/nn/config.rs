//! Shape of a transformer of the Llama kind (Llama, Qwen3), checked before any tensor is read.
//!
//! Invariant: a [`LlamaConfig`] holds together (heads divide, widths are even, sizes bounded), whichever
//! file it came from; a key that contradicts another is named. GGUF metadata is read here, `config.json`
//! in [`crate::model::families::llama::config_json`].

use crate::model::ModelError;
use crate::model::families::declined::Architecture;
use crate::model::families::deepseek::Latent;
use crate::model::families::gemma4::Gemma;
use crate::model::families::qwen35::Hybrid;
use crate::model::files::gguf::GgufFile;
use crate::model::nn::rope::{RopeScaling, RopeSpec, yarn_amplitude};

/// Largest vocabulary, in tokens: beyond any there is, and small enough for every product of sizes.
const MAX_VOCAB: usize = 1 << 24;

/// Sizes and constants of a model.
#[derive(Clone, Debug, PartialEq)]
pub struct LlamaConfig {
    /// The family.
    pub architecture: Architecture,
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
    /// Whether queries and keys are normed head by head before they are rotated.
    pub qk_norm: bool,
    /// Rotary positions.
    pub rope: RopeSpec,
    /// Longest context the model was made for.
    pub context_length: usize,
    /// Whether the embedding serves as output head too.
    pub tied: bool,
    /// Linear layers among those that attend, gates and partly rotated heads: Qwen3.5.
    pub hybrid: Option<Hybrid>,
    /// Latent attention and experts: DeepSeek-V3's layout. `kv_heads` then is `heads`, and `head_dim` the width of a
    /// query.
    pub latent: Option<Latent>,
    /// Layers of two kinds, and what goes with them: Gemma 4.
    pub gemma: Option<Gemma>,
}

impl LlamaConfig {
    /// Reads the keys of the file's architecture.
    ///
    /// # Errors
    /// [`ModelError::Unsupported`] for another architecture, [`ModelError::Metadata`] naming the key
    /// that is missing or contradictory.
    pub fn from_gguf(gguf: &GgufFile) -> Result<Self, ModelError> {
        let architecture = Architecture::of_gguf(gguf.text("general.architecture").unwrap_or("(none)"))?;
        let arch = architecture.name();
        let key = |name: &str| format!("{arch}.{name}");
        let heads = gguf.size(&key("attention.head_count"), 1024)?;
        let d_model = gguf.size(&key("embedding_length"), 1 << 16)?;
        let or = |name: &str, most, default| match gguf.number(&key(name)) {
            Some(_) => gguf.size(&key(name), most),
            None => Ok(default),
        };
        let vocab = gguf.shape("token_embd.weight")?.first().copied().unwrap_or(0);
        let head_dim = or("attention.key_length", 1 << 12, d_model / heads)?;
        // blocks of a draft module are counted among the layers
        let modules = gguf.number(&key("nextn_predict_layers")).unwrap_or(0);
        let blocks = gguf.size(&key("block_count"), 1024)?;
        let layers = usize::try_from(modules).ok().and_then(|modules| blocks.checked_sub(modules)).filter(|n| *n > 0);
        let layers = layers.ok_or_else(|| {
            ModelError::Metadata(format!(
                "'{}' is {blocks} and '{}' is {modules}: no layer is left",
                key("block_count"),
                key("nextn_predict_layers")
            ))
        })?;
        let hybrid = match architecture {
            Architecture::Qwen35 => Some(Hybrid::from_gguf(gguf, layers, head_dim)?),
            _ => None,
        };
        let rotary = hybrid.as_ref().map_or(head_dim, |hybrid| hybrid.rotary);
        let config = Self {
            architecture,
            vocab,
            d_model,
            layers,
            heads,
            kv_heads: or("attention.head_count_kv", 1024, heads)?,
            head_dim,
            ffn: gguf.size(&key("feed_forward_length"), 1 << 20)?,
            norm_eps: gguf.real(&key("attention.layer_norm_rms_epsilon"), None)?,
            qk_norm: architecture.norms_heads(),
            rope: rope_of(gguf, arch, rotary)?,
            context_length: gguf.size(&key("context_length"), 1 << 24)?,
            tied: !gguf.has_tensor("output.weight"),
            hybrid,
            latent: None,
            gemma: None,
        };
        refuse_extras(gguf, arch, (head_dim, rotary))?;
        config.check((&key("attention.head_count"), &key("attention.head_count_kv")))?;
        Ok(config)
    }

    /// Whether the sizes hold together; the names are those of the keys of both kinds of heads.
    ///
    /// # Errors
    /// [`ModelError::Metadata`] naming what does not.
    pub(in crate::model) fn check(&self, (heads, kv_heads): (&str, &str)) -> Result<(), ModelError> {
        let contradiction = |what: String| Err(ModelError::Metadata(what));
        self.check_vocab()?;
        if self.heads == 0 || self.kv_heads == 0 || !self.heads.is_multiple_of(self.kv_heads) {
            return contradiction(format!(
                "'{heads}' is {} and '{kv_heads}' is {}: {} query heads over {} key/value heads do not go",
                self.heads, self.kv_heads, self.heads, self.kv_heads
            ));
        }
        if self.head_dim == 0 || !self.head_dim.is_multiple_of(2) {
            return contradiction(format!("a head width of {} cannot be rotated in pairs", self.head_dim));
        }
        Ok(())
    }

    /// Whether the vocabulary is one.
    ///
    /// # Errors
    /// [`ModelError::Metadata`]
    pub(in crate::model) fn check_vocab(&self) -> Result<(), ModelError> {
        if (1..=MAX_VOCAB).contains(&self.vocab) {
            return Ok(());
        }
        Err(ModelError::Metadata(format!("the vocabulary has {} tokens; 1 to {MAX_VOCAB} can be", self.vocab)))
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

    /// Weights of all matrices: those of the blocks, the embedding, and the head unless it is the same.
    #[must_use]
    pub fn matrix_weights(&self) -> u64 {
        let [v, d, q, kv, ffn] =
            [self.vocab, self.d_model, self.q_width(), self.kv_width(), self.ffn].map(|n| n as u64);
        let ends = if self.tied { v * d } else { 2 * v * d };
        if let Some(latent) = &self.latent {
            return latent.layer_weights(self.d_model, self.layers, self.ffn)[0] + ends;
        }
        if let Some(gemma) = &self.gemma {
            return ends + gemma.layer_weights(self.d_model, self.heads);
        }
        let Some(hybrid) = &self.hybrid else {
            return self.layers as u64 * (2 * d * q + 2 * d * kv + 3 * d * ffn) + ends;
        };
        let [mixed, values, heads] =
            [hybrid.delta.channels(), hybrid.delta.value_width(), hybrid.delta.value_heads].map(|n| n as u64);
        let linear = d * (mixed + 2 * values + 2 * heads);
        let attending = 3 * d * q + 2 * d * kv; // queries come with as many gates
        let count = hybrid.linear_layers() as u64;
        count * linear + (self.layers as u64 - count) * attending + self.layers as u64 * 3 * d * ffn + ends
    }

    /// Numbers that are kept of one position in all layers: keys and values, or rows they are made of.
    #[must_use]
    pub fn cached_values(&self) -> u64 {
        match (&self.gemma, &self.latent) {
            (Some(gemma), _) => gemma.cached_values(),
            (None, Some(latent)) => (self.layers * latent.cached()) as u64,
            (None, None) => self.attending_layers() as u64 * 2 * self.kv_width() as u64,
        }
    }

    /// Weights of a table of which rows are looked up and nothing else: it stays as it is stored.
    #[must_use]
    pub fn looked_up_weights(&self) -> u64 {
        self.gemma.as_ref().map_or(0, Gemma::looked_up_weights)
    }

    /// Layers that keep keys and values.
    #[must_use]
    pub fn attending_layers(&self) -> usize {
        if let Some(gemma) = &self.gemma {
            return gemma.keeping();
        }
        self.layers - self.hybrid.as_ref().map_or(0, Hybrid::linear_layers)
    }
}

/// Variants that share the architecture's name.
fn refuse_extras(gguf: &GgufFile, arch: &str, (head_dim, rotary): (usize, usize)) -> Result<(), ModelError> {
    let unsupported = |what: String| Err(ModelError::Unsupported(format!("{what} are not supported for {arch} files")));
    if gguf.number(&format!("{arch}.expert_count")).is_some_and(|count| count > 0) {
        return unsupported("mixtures of experts".into());
    }
    let applied = |name: &str| {
        let biases = Architecture::of_gguf(arch).is_ok_and(Architecture::biases_qkv);
        let is_step = name.ends_with(".ssm_dt.bias"); // of linear layers
        is_step || biases && [".attn_q.bias", ".attn_k.bias", ".attn_v.bias"].iter().any(|end| name.ends_with(end))
    };
    if let Some(name) = gguf.tensor_names().find(|name| name.ends_with(".bias") && !applied(name)) {
        return unsupported(format!("biases ('{}')", crate::model::error::clean(name)));
    }
    for (key, what, is) in [
        ("attention.value_length", "values of another width", head_dim),
        ("rope.dimension_count", "partly rotated heads", rotary),
    ] {
        let length = gguf.number(&format!("{arch}.{key}"));
        if let Some(length) = length.filter(|length| *length != is as u64) {
            return unsupported(format!("{what} ('{arch}.{key}' is {length}, a head is {head_dim} wide)"));
        }
    }
    Ok(())
}

fn rope_of(gguf: &GgufFile, arch: &str, head_dim: usize) -> Result<RopeSpec, ModelError> {
    let key = |name: &str| format!("{arch}.rope.{name}");
    let theta = f64::from(gguf.real(&key("freq_base"), Some(10_000.0))?);
    // as llama.cpp: a factor without a type is linear, and older files have another name for it
    let kind = gguf.text(&key("scaling.type")).unwrap_or("linear");
    let given = ["scaling.factor", "scale_linear"].map(key).into_iter().find(|key| gguf.value(key).is_ok());
    let factor = match &given {
        Some(key) if gguf.value(key).is_ok_and(|value| value.to_f32().is_ok_and(|factor| factor == 0.0)) => 1.0,
        Some(key) => f64::from(gguf.real(key, None)?),
        None => 1.0,
    };
    if gguf.has_tensor("rope_freqs.weight") {
        if kind != "none" && factor != 1.0 {
            let what = "'rope_freqs.weight' together with a scaling factor is not supported";
            return Err(ModelError::Unsupported(what.into()));
        }
        let factors = gguf.vector("rope_freqs.weight", head_dim / 2)?;
        if factors.iter().any(|factor| !factor.is_finite() || *factor <= 0.0) {
            return Err(ModelError::Metadata("'rope_freqs.weight' holds something else than positive numbers".into()));
        }
        return Ok(RopeSpec { theta, scaling: RopeScaling::Factors(factors) });
    }
    let real = |name: &str, default| gguf.real(&key(name), default).map(f64::from);
    let scaling = match kind {
        "none" => RopeScaling::Plain,
        "linear" if factor == 1.0 => RopeScaling::Plain,
        "linear" => RopeScaling::Linear(factor),
        "yarn" => {
            real("scaling.factor", None)?; // must be there
            RopeScaling::Yarn {
                factor,
                original: gguf.size(&key("scaling.original_context_length"), 1 << 24)? as f64,
                fast: real("scaling.yarn_beta_fast", Some(32.0))?,
                slow: real("scaling.yarn_beta_slow", Some(1.0))?,
                amplitude: yarn_amplitude(factor) * real("scaling.attn_factor", Some(1.0))?,
            }
        }
        other => {
            let name = crate::model::error::clean(other);
            return Err(ModelError::Unsupported(format!(
                "rotary scaling '{name}' ('{}') is not supported; none, linear, yarn and rope_freqs are",
                key("scaling.type")
            )));
        }
    };
    Ok(RopeSpec { theta, scaling })
}
