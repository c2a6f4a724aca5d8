//! The keys of GGUF metadata that every transformer has.

use crate::ModelError;
use crate::error::clean;
use crate::files::{GgufFile, whole};
use crate::nn::config::{Conventions, TransformerConfig};
use crate::nn::rope::{RopeScaling, RopeSpec, scaled_amplitude, yarn_amplitude};

/// A file and the prefix of its keys.
#[derive(Clone, Copy)]
pub struct GgufKeys<'a> {
    /// The file.
    pub gguf: &'a GgufFile,
    /// `general.architecture`, the prefix of keys.
    pub arch: &'a str,
}

impl GgufKeys<'_> {
    /// The whole name of a key.
    #[must_use]
    pub fn key(&self, name: &str) -> String {
        format!("{}.{name}", self.arch)
    }

    /// A size of 1 to `most`.
    ///
    /// # Errors
    /// [`ModelError::Metadata`] when it is missing or out of range.
    pub fn size(&self, name: &str, most: usize) -> Result<usize, ModelError> {
        self.gguf.size(&self.key(name), most)
    }

    /// A size, or a default if the key is missing.
    ///
    /// # Errors
    /// [`ModelError::Metadata`] when it is out of range.
    pub fn size_or(&self, name: &str, most: usize, default: usize) -> Result<usize, ModelError> {
        match self.gguf.value(&self.key(name)) {
            Ok(_) => self.size(name, most),
            Err(_) => Ok(default),
        }
    }

    /// True or false; `None` if the key is missing.
    ///
    /// # Errors
    /// [`ModelError::Metadata`] if it is neither.
    pub fn flag(&self, name: &str) -> Result<Option<bool>, ModelError> {
        let Ok(value) = self.gguf.value(&self.key(name)) else { return Ok(None) };
        let wrong = |_| ModelError::Metadata(format!("'{}' is neither true nor false", self.key(name)));
        value.to_bool().map(Some).map_err(wrong)
    }

    /// A factor; `usual` if the key is missing or 0, which means the same.
    ///
    /// # Errors
    /// [`ModelError::Metadata`] if it is no positive number.
    pub fn factor(&self, name: &str, usual: f64) -> Result<f64, ModelError> {
        match self.gguf.value(&self.key(name)).ok().and_then(|value| value.to_f32().ok()) {
            Some(0.0) => Ok(usual),
            _ => self.gguf.real(&self.key(name), Some(usual as f32)).map(f64::from),
        }
    }

    /// Positions that layers with a window see, and which layers these are: a flag for each layer, or every layer but each
    /// n-th, with `usual` for n; none if there is no window.
    ///
    /// # Errors
    /// [`ModelError::Metadata`] naming the key whose value is something else.
    pub fn windows(&self, layers: usize, usual: usize) -> Result<Vec<Option<usize>>, ModelError> {
        let (window, pattern) = ("attention.sliding_window", "attention.sliding_window_pattern");
        if matches!(self.gguf.number(&self.key(window)), None | Some(0)) {
            return Ok(vec![None; layers]);
        }
        let window = self.size(window, 1 << 24)?;
        let slides: Vec<bool> = match self.gguf.list(&self.key(pattern)) {
            Ok(flags) => {
                let flags = flags.iter().map(|flag| flag.to_bool().ok()).collect::<Option<Vec<_>>>();
                flags.filter(|flags| flags.len() == layers).ok_or_else(|| {
                    ModelError::Metadata(format!("'{}' is not a flag for each of {layers} layers", self.key(pattern)))
                })?
            }
            Err(_) => {
                let every = self.size_or(pattern, 1024, usual)?;
                (1..=layers).map(|layer| every == 1 || !layer.is_multiple_of(every)).collect()
            }
        };
        Ok(slides.into_iter().map(|slides| slides.then_some(window)).collect())
    }

    /// A list of whole numbers.
    ///
    /// # Errors
    /// [`ModelError::Metadata`] if it is missing or something else.
    pub fn numbers(&self, name: &str) -> Result<Vec<usize>, ModelError> {
        let number = |value| whole(value).and_then(|number| usize::try_from(number).ok());
        let numbers: Option<Vec<usize>> = self.gguf.list(&self.key(name))?.iter().map(number).collect();
        let wrong = || ModelError::Metadata(format!("'{}' lists something else than whole numbers", self.key(name)));
        numbers.ok_or_else(wrong)
    }

    /// Transformer blocks without those of draft modules, which `block_count` includes.
    ///
    /// # Errors
    /// [`ModelError::Metadata`] if no block is left.
    pub fn layers(&self) -> Result<usize, ModelError> {
        let modules = self.gguf.number(&self.key("nextn_predict_layers")).unwrap_or(0);
        let blocks = self.size("block_count", 1024)?;
        let layers = usize::try_from(modules).ok().and_then(|modules| blocks.checked_sub(modules)).filter(|n| *n > 0);
        layers.ok_or_else(|| {
            ModelError::Metadata(format!(
                "'{}' is {blocks} and '{}' is {modules}: no layer is left",
                self.key("block_count"),
                self.key("nextn_predict_layers")
            ))
        })
    }

    /// Width of a head.
    ///
    /// # Errors
    /// As [`GgufKeys::size`].
    pub fn head_dim(&self) -> Result<usize, ModelError> {
        let heads = self.size("attention.head_count", 1024)?;
        self.size_or("attention.key_length", 1 << 12, self.size("embedding_length", 1 << 16)? / heads)
    }

    /// Key/value heads by the rows of the first layer's keys, for files that do not name their number.
    fn kv_heads_of_keys(&self, head_dim: usize) -> Option<usize> {
        let rows = *self.gguf.shape("blk.0.attn_k.weight").ok()?.first()?;
        (head_dim > 0 && rows > 0 && rows.is_multiple_of(head_dim)).then(|| rows / head_dim)
    }

    /// The sizes; so many values of a head are `rotary`, `None` = all.
    ///
    /// # Errors
    /// [`ModelError::Metadata`] naming the key that is missing or contradictory, [`ModelError::Unsupported`] for
    /// variants that share the architecture's name.
    pub fn transformer(
        &self,
        conventions: &Conventions,
        rotary: Option<usize>,
    ) -> Result<TransformerConfig, ModelError> {
        let config = self.with_experts(conventions, rotary)?;
        self.refuse_experts()?;
        Ok(config)
    }

    /// The same for a family whose layers may have experts.
    ///
    /// # Errors
    /// As [`GgufKeys::transformer`].
    pub fn with_experts(
        &self,
        conventions: &Conventions,
        rotary: Option<usize>,
    ) -> Result<TransformerConfig, ModelError> {
        let config = self.sizes(conventions, |head_dim| self.rope(rotary.unwrap_or(head_dim)))?;
        let head_dim = config.head_dim;
        self.refuse_extras(conventions, (head_dim, rotary.unwrap_or(head_dim)))?;
        Ok(config)
    }

    /// Rejects experts.
    ///
    /// # Errors
    /// [`ModelError::Unsupported`].
    pub fn refuse_experts(&self) -> Result<(), ModelError> {
        match self.gguf.number(&self.key("expert_count")) {
            None | Some(0) => Ok(()),
            Some(_) => {
                let arch = self.arch;
                Err(ModelError::Unsupported(format!("mixtures of experts are not supported for {arch} files")))
            }
        }
    }

    /// Width of the feed-forward layers, or of the experts in files without other layers.
    fn feed_forward(&self) -> Result<usize, ModelError> {
        let [dense, experts] = ["feed_forward_length", "expert_feed_forward_length"];
        let has = |name: &str| self.gguf.value(&self.key(name)).is_ok();
        let only_experts = !has(dense) && has(experts);
        self.size(if only_experts { experts } else { dense }, 1 << 20)
    }

    /// Rotary positions of heads of which so many values are rotated.
    ///
    /// # Errors
    /// [`ModelError::Unsupported`] for a scaling that does not run, [`ModelError::Metadata`] when its keys are missing.
    pub fn rope(&self, rotary: usize) -> Result<RopeSpec, ModelError> {
        rope_of(self.gguf, self.arch, rotary)
    }

    /// Rejects variants that share the architecture's name: biases, values of another width, other rotations.
    ///
    /// # Errors
    /// [`ModelError::Unsupported`] naming the key or tensor.
    pub fn refuse_extras(&self, conventions: &Conventions, widths: (usize, usize)) -> Result<(), ModelError> {
        refuse_extras(self.gguf, (self.arch, conventions), widths)
    }

    /// The sizes, rotary positions read by the family.
    ///
    /// # Errors
    /// [`ModelError::Metadata`] naming the key that is missing or contradictory.
    pub fn sizes(
        &self,
        conventions: &Conventions,
        rope: impl FnOnce(usize) -> Result<RopeSpec, ModelError>,
    ) -> Result<TransformerConfig, ModelError> {
        let vocab = self.gguf.shape("token_embd.weight")?.first().copied().unwrap_or(0);
        self.sizes_with(conventions, vocab, rope)
    }

    /// The same for a file whose embedding may be missing, with so many tokens.
    ///
    /// # Errors
    /// As [`GgufKeys::sizes`].
    pub fn sizes_with(
        &self,
        conventions: &Conventions,
        vocab: usize,
        rope: impl FnOnce(usize) -> Result<RopeSpec, ModelError>,
    ) -> Result<TransformerConfig, ModelError> {
        let heads = self.size("attention.head_count", 1024)?;
        let d_model = self.size("embedding_length", 1 << 16)?;
        let head_dim = self.head_dim()?;
        let config = TransformerConfig {
            conventions: *conventions,
            vocab,
            d_model,
            layers: self.layers()?,
            heads,
            kv_heads: self.size_or(
                "attention.head_count_kv",
                1024,
                self.kv_heads_of_keys(head_dim).unwrap_or(heads),
            )?,
            head_dim,
            ffn: self.feed_forward()?,
            norm_eps: self.gguf.real(&self.key("attention.layer_norm_rms_epsilon"), None)?,
            rope: rope(head_dim)?,
            pairs: conventions.gguf_pairs,
            context_length: self.size("context_length", 1 << 24)?,
            tied: !self.gguf.has_tensor("output.weight"),
        };
        config.check((&self.key("attention.head_count"), &self.key("attention.head_count_kv")))?;
        Ok(config)
    }
}

/// Architectures whose experts have corrections of their scores.
const CORRECTED: [&str; 2] = ["deepseek2", "glm4moe"];

fn refuse_extras(
    gguf: &GgufFile,
    (arch, conventions): (&str, &Conventions),
    (head_dim, rotary): (usize, usize),
) -> Result<(), ModelError> {
    let unsupported = |what: String| Err(ModelError::Unsupported(format!("{what} are not supported for {arch} files")));
    let applied = |name: &str| {
        let is_step = name.ends_with(".ssm_dt.bias"); // of linear layers
        let is_correction = name.ends_with(".exp_probs_b.bias") && CORRECTED.contains(&arch);
        let is_confidence = name == "conf_proj.bias"; // of block drafters
        is_step
            || is_correction
            || is_confidence
            || conventions.qkv_bias
                && [".attn_q.bias", ".attn_k.bias", ".attn_v.bias"].iter().any(|end| name.ends_with(end))
    };
    if let Some(name) = gguf.tensor_names().filter(|name| name.ends_with(".bias") && !applied(name)).min() {
        return unsupported(format!("biases ('{}')", clean(name)));
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
    // as in llama.cpp: a factor without a type is linear; older files name it differently
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
                amplitude: match gguf.value(&key("scaling.yarn_log_multiplier")) {
                    Ok(_) => {
                        yarn_amplitude(factor) / scaled_amplitude(factor, real("scaling.yarn_log_multiplier", None)?)
                    }
                    Err(_) => yarn_amplitude(factor),
                } * real("scaling.attn_factor", Some(1.0))?,
            }
        }
        other => {
            let name = clean(other);
            return Err(ModelError::Unsupported(format!(
                "rotary scaling '{name}' ('{}') is not supported; none, linear, yarn and rope_freqs are",
                key("scaling.type")
            )));
        }
    };
    Ok(RopeSpec { theta, scaling })
}
