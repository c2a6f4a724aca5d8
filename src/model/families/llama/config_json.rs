//! `config.json` as Hugging Face writes it, mirrored key by key, and what of it this program runs.
//!
//! Invariant: a key that asks for something else than what is computed is an error that names it, never
//! a silent difference. Keys nobody needs are not read.

use serde::Deserialize;
use serde_json::Value;

use crate::model::ModelError;
use crate::model::error::clean;
use crate::model::families::declined::Architecture;
use crate::model::families::deepseek::LatentKeys;
use crate::model::families::gemma4::{GemmaKeys, Sizes};
use crate::model::families::qwen35::HybridKeys;
use crate::model::nn::config::LlamaConfig;
use crate::model::nn::rope::{RopeScaling, RopeSpec, yarn_amplitude};

/// The keys of `config.json` that matter.
#[derive(Clone, Debug, Deserialize)]
pub struct HfConfig {
    /// The family.
    pub model_type: String,
    vocab_size: usize,
    hidden_size: usize,
    num_hidden_layers: usize,
    num_attention_heads: usize,
    num_key_value_heads: Option<usize>,
    head_dim: Option<usize>,
    intermediate_size: usize,
    rms_norm_eps: f64,
    max_position_embeddings: usize,
    rope_theta: Option<f64>,
    rope_scaling: Option<RopeParameters>,
    rope_parameters: Option<RopeParameters>,
    /// None when the key is missing: then the tensors decide.
    pub tie_word_embeddings: Option<bool>,
    hidden_act: Option<String>,
    attention_bias: Option<bool>,
    mlp_bias: Option<bool>,
    use_sliding_window: Option<bool>,
    /// Draft modules that the files are said to hold.
    pub num_nextn_predict_layers: Option<usize>,
    layer_types: Option<Vec<String>>,
    /// How weights are compressed.
    pub quantization_config: Option<Quantization>,
    /// What Qwen3.5 has besides.
    #[serde(skip)]
    hybrid: Option<HybridKeys>,
    /// What DeepSeek-V3's layout has besides.
    #[serde(skip)]
    latent: Option<LatentKeys>,
    /// What Gemma 4 has besides.
    #[serde(skip)]
    gemma: Option<GemmaKeys>,
}

/// `rope_scaling`, or `rope_parameters` of newer files.
#[derive(Clone, Debug, Default, Deserialize)]
struct RopeParameters {
    rope_type: Option<String>,
    /// Its older name; many files have both.
    #[serde(rename = "type")]
    old_type: Option<String>,
    rope_theta: Option<f64>,
    factor: Option<f64>,
    original_max_position_embeddings: Option<f64>,
    low_freq_factor: Option<f64>,
    high_freq_factor: Option<f64>,
    beta_fast: Option<f64>,
    beta_slow: Option<f64>,
    attention_factor: Option<f64>,
    mscale: Option<f64>,
    mscale_all_dim: Option<f64>,
    truncate: Option<bool>,
    partial_rotary_factor: Option<f64>,
}

/// `quantization_config`.
#[derive(Clone, Debug, Deserialize)]
pub struct Quantization {
    quant_method: Option<String>,
    weight_block_size: Option<[usize; 2]>,
}

impl Quantization {
    /// Rows and columns that share a scale.
    ///
    /// # Errors
    /// [`ModelError::Unsupported`] for every compression but FP8 in blocks.
    pub fn fp8_block(&self) -> Result<[usize; 2], ModelError> {
        let method = self.quant_method.as_deref().unwrap_or("(none)");
        match (method, self.weight_block_size) {
            ("fp8", Some(block)) if block.iter().all(|size| (1..=1 << 20).contains(size)) => Ok(block),
            ("fp8", _) => Err(ModelError::Unsupported(
                "'quantization_config' is fp8 without a 'weight_block_size'; only block-scaled FP8 is supported".into(),
            )),
            (other, _) => Err(ModelError::Unsupported(format!(
                "'quantization_config.quant_method' is '{}', which is not supported; use the unquantised checkpoint, an FP8 one or a GGUF file",
                clean(other)
            ))),
        }
    }
}

impl HfConfig {
    /// Reads the JSON text.
    ///
    /// # Errors
    /// [`ModelError::Unsupported`] for a family that does not run, [`ModelError::Metadata`] naming the key
    /// that is missing or of another type.
    pub fn from_json(json: &[u8]) -> Result<Self, ModelError> {
        #[derive(Deserialize)]
        struct Kind {
            model_type: String,
            /// Models that see wrap the one that writes.
            text_config: Option<serde_json::Map<String, Value>>,
        }
        let wrong = |error: serde_json::Error| {
            ModelError::Metadata(format!("config.json: {}", crate::model::error::clean(&error.to_string())))
        };
        let kind: Kind = serde_json::from_slice(json).map_err(wrong)?;
        let architecture = Architecture::of_model_type(&kind.model_type)?; // what another family is missing is not the point
        if architecture.is_latent() {
            let latent = LatentKeys::from_json(&serde_json::from_slice(json).map_err(wrong)?)?;
            let config: Self = serde_json::from_slice(json).map_err(wrong)?;
            return Ok(Self { latent: Some(latent), ..config });
        }
        if !architecture.is_mixed() {
            return serde_json::from_slice(json).map_err(wrong);
        }
        let outer: serde_json::Map<String, Value> = serde_json::from_slice(json).map_err(wrong)?;
        let mut keys = kind.text_config.unwrap_or_else(|| outer.clone());
        // these two stand outside in wrapped files
        for key in ["tie_word_embeddings", "quantization_config"] {
            if let Some(value) = outer.get(key)
                && keys.get(key).is_none_or(Value::is_null)
            {
                keys.insert(key.to_owned(), value.clone());
            }
        }
        let inner = keys.get("model_type");
        let family = inner.and_then(Value::as_str).and_then(|kind| Architecture::of_model_type(kind).ok());
        if family != Some(architecture) {
            let inner = inner.map_or("nothing".to_owned(), |kind| clean(&kind.to_string()));
            return Err(ModelError::Unsupported(format!(
                "'text_config.model_type' is {inner} in a file whose 'model_type' is '{}', which is not supported",
                clean(&kind.model_type)
            )));
        }
        let (hybrid, gemma) = match architecture {
            Architecture::Gemma4 => (None, Some(GemmaKeys::from_json(&keys)?)),
            _ => (Some(HybridKeys::from_json(&keys)?), None),
        };
        let config: Self = serde_json::from_value(Value::Object(keys)).map_err(wrong)?;
        Ok(Self { hybrid, gemma, ..config })
    }

    /// Layers of the target.
    pub(in crate::model) fn layers(&self) -> usize {
        self.num_hidden_layers
    }

    /// The sizes; `has_head` says whether there is an output head among the tensors.
    ///
    /// # Errors
    /// [`ModelError::Unsupported`] or [`ModelError::Metadata`] naming the key.
    pub fn llama(&self, has_head: bool) -> Result<LlamaConfig, ModelError> {
        let architecture = Architecture::of_model_type(&self.model_type)?;
        self.refuse_extras(architecture)?;
        let heads = size("num_attention_heads", self.num_attention_heads, 1024)?;
        let d_model = size("hidden_size", self.hidden_size, 1 << 16)?;
        let tied = match self.tie_word_embeddings {
            Some(false) if !has_head => {
                return Err(ModelError::Metadata(
                    "'tie_word_embeddings' is false and there is no tensor 'lm_head.weight'".into(),
                ));
            }
            Some(tied) => tied,
            None => !has_head,
        };
        let layers = size("num_hidden_layers", self.num_hidden_layers, 1024)?;
        let latent = match &self.latent {
            Some(keys) => Some(keys.latent(architecture, (layers, heads), self.sharper()?)?),
            None => None,
        };
        let usual_head = self.gemma.as_ref().map_or(d_model / heads, GemmaKeys::head_dim);
        let head_dim = match &latent {
            Some(latent) => latent.attention.plain + latent.attention.rotary,
            None => size("head_dim", self.head_dim.unwrap_or(usual_head), 1 << 12)?,
        };
        let hybrid = self.hybrid.as_ref().map(|keys| keys.hybrid(layers, head_dim)).transpose()?;
        let vocab = size("vocab_size", self.vocab_size, 1 << 24)?;
        let ffn = size("intermediate_size", self.intermediate_size, 1 << 20)?;
        let sizes = Sizes { layers, heads, ffn, vocab };
        let gemma = self.gemma.as_ref().map(|keys| keys.gemma(sizes, false)).transpose()?;
        let config = LlamaConfig {
            architecture,
            vocab,
            d_model,
            layers,
            heads,
            kv_heads: size("num_key_value_heads", self.num_key_value_heads.unwrap_or(heads), 1024)?,
            head_dim,
            ffn,
            norm_eps: positive("rms_norm_eps", self.rms_norm_eps)? as f32,
            qk_norm: architecture.norms_heads(),
            rope: gemma.as_ref().map_or_else(|| self.rope(), |gemma| Ok(gemma.sliding_rope.clone()))?,
            context_length: size("max_position_embeddings", self.max_position_embeddings, 1 << 24)?,
            tied,
            hybrid,
            latent,
            gemma,
        };
        if config.latent.is_some() {
            return config.check_vocab().map(|()| config); // heads were checked, and need not divide anything
        }
        config.check(("num_attention_heads", "num_key_value_heads"))?;
        if self.head_dim.is_none() && self.gemma.is_none() && d_model % heads != 0 {
            return Err(ModelError::Metadata(format!(
                "'hidden_size' is {d_model}, which 'num_attention_heads' ({heads}) does not divide, and there is no 'head_dim'"
            )));
        }
        Ok(config)
    }

    fn refuse_extras(&self, architecture: Architecture) -> Result<(), ModelError> {
        let refused = |what: String| Err(ModelError::Unsupported(format!("{what}, which is not supported")));
        if let Some(act) = self.hidden_act.as_deref().filter(|act| !["silu", "swish"].contains(act)) {
            return refused(format!("'hidden_act' is '{}'", clean(act)));
        }
        for (key, is_set) in [
            ("attention_bias", self.attention_bias.filter(|_| !architecture.biases_qkv())),
            ("mlp_bias", self.mlp_bias),
            ("use_sliding_window", self.use_sliding_window),
        ] {
            if is_set == Some(true) {
                return refused(format!("'{key}' is true"));
            }
        }
        let Some(types) = self.layer_types.as_ref().filter(|_| self.hybrid.is_none() && self.gemma.is_none()) else {
            return Ok(());
        };
        if types.len() != self.num_hidden_layers {
            return Err(ModelError::Metadata(format!(
                "'layer_types' names {} layers and 'num_hidden_layers' is {}",
                types.len(),
                self.num_hidden_layers
            )));
        }
        match types.iter().find(|kind| *kind != "full_attention") {
            Some(kind) => refused(format!("'layer_types' holds '{}'", clean(kind))),
            None => Ok(()),
        }
    }

    /// What scores of latent attention are multiplied with besides: YaRN's amplitude, squared, for all values of a head.
    fn sharper(&self) -> Result<f64, ModelError> {
        let given = self.rope_parameters.as_ref().or(self.rope_scaling.as_ref());
        let asked = given.and_then(|given| Some((given, given.mscale_all_dim.filter(|scale| *scale != 0.0)?)));
        let Some((given, scale)) = asked.filter(|(given, _)| given.is_scaled()) else {
            return Ok(1.0);
        };
        let factor = positive("factor", given.factor.unwrap_or(1.0))?;
        Ok(amplitude(factor, positive("mscale_all_dim", scale)?).powi(2))
    }

    fn rope(&self) -> Result<RopeSpec, ModelError> {
        let none = RopeParameters::default();
        let given = self.rope_parameters.as_ref().or(self.rope_scaling.as_ref()).unwrap_or(&none);
        let theta = positive("rope_theta", given.rope_theta.or(self.rope_theta).unwrap_or(10_000.0))?;
        if self.hybrid.is_none() && given.partial_rotary_factor.is_some_and(|part| part != 1.0) {
            return Err(ModelError::Unsupported("'partial_rotary_factor' other than 1 is not supported here".into()));
        }
        let need = |key: &str, value: Option<f64>| match value {
            Some(value) => positive(key, value),
            None => Err(ModelError::Metadata(format!("the rotary scaling lacks '{key}'"))),
        };
        let original = || {
            let given = given.original_max_position_embeddings;
            positive("original_max_position_embeddings", given.unwrap_or(self.max_position_embeddings as f64))
        };
        let scaling = match given.rope_type.as_deref().or(given.old_type.as_deref()) {
            None | Some("default") => RopeScaling::Plain,
            Some("linear") => RopeScaling::Linear(need("factor", given.factor)?),
            Some("llama3") => RopeScaling::Llama3 {
                factor: need("factor", given.factor)?,
                low: need("low_freq_factor", given.low_freq_factor)?,
                high: need("high_freq_factor", given.high_freq_factor)?,
                original: original()?,
            },
            Some("yarn") => {
                let scales = (given.mscale.is_some() || given.mscale_all_dim.is_some()) && self.latent.is_none();
                if scales || given.truncate == Some(false) {
                    return Err(ModelError::Unsupported(
                        "yarn scaling with 'mscale', 'mscale_all_dim' or 'truncate' is not supported".into(),
                    ));
                }
                let factor = need("factor", given.factor)?;
                let scale = |scale: Option<f64>| scale.filter(|scale| *scale != 0.0);
                RopeScaling::Yarn {
                    factor,
                    original: original()?,
                    fast: positive("beta_fast", given.beta_fast.unwrap_or(32.0))?,
                    slow: positive("beta_slow", given.beta_slow.unwrap_or(1.0))?,
                    amplitude: match given.attention_factor {
                        Some(factor) => positive("attention_factor", factor)?,
                        // as `_compute_yarn_parameters` of transformers
                        None => match (scale(given.mscale), scale(given.mscale_all_dim)) {
                            (Some(own), Some(all)) => {
                                let all = positive("mscale_all_dim", all)?;
                                amplitude(factor, positive("mscale", own)?) / amplitude(factor, all)
                            }
                            _ => yarn_amplitude(factor),
                        },
                    },
                }
            }
            Some(other) => {
                return Err(ModelError::Unsupported(format!(
                    "'rope_type' is '{}', which is not supported; default, linear, llama3 and yarn are",
                    clean(other)
                )));
            }
        };
        if let RopeScaling::Llama3 { low, high, .. } = scaling
            && low >= high
        {
            return Err(ModelError::Metadata(format!(
                "'low_freq_factor' is {low}, which is not below 'high_freq_factor' ({high})"
            )));
        }
        Ok(RopeSpec { theta, scaling })
    }
}

impl RopeParameters {
    /// Whether positions are scaled.
    fn is_scaled(&self) -> bool {
        self.rope_type.as_deref().or(self.old_type.as_deref()).is_some_and(|kind| kind != "default")
    }
}

/// `0.1 · scale · ln(factor) + 1`: YaRN's amplitude with a weight, as DeepSeek has it.
fn amplitude(factor: f64, scale: f64) -> f64 {
    if factor > 1.0 { 0.1 * scale * factor.ln() + 1.0 } else { 1.0 }
}

/// # Errors
/// [`ModelError::Metadata`] when it is 0 or larger than any model has it.
pub(in crate::model) fn size(key: &str, size: usize, most: usize) -> Result<usize, ModelError> {
    if (1..=most).contains(&size) {
        return Ok(size);
    }
    Err(ModelError::Metadata(format!("'{key}' is {size}, expected 1 to {most}")))
}

/// # Errors
/// [`ModelError::Metadata`] when it is not a positive number.
pub(in crate::model) fn positive(key: &str, value: f64) -> Result<f64, ModelError> {
    if value.is_finite() && value > 0.0 {
        return Ok(value);
    }
    Err(ModelError::Metadata(format!("'{key}' is {value}, expected a positive number")))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn base() -> Value {
        json!({
            "model_type": "qwen3", "vocab_size": 320, "hidden_size": 64, "num_hidden_layers": 2,
            "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32, "intermediate_size": 96,
            "rms_norm_eps": 1e-6, "max_position_embeddings": 512, "rope_theta": 1e6, "hidden_act": "silu",
            "attention_bias": false, "use_sliding_window": false, "layer_types": ["full_attention", "full_attention"],
            "tie_word_embeddings": true, "torch_dtype": "bfloat16"
        })
    }

    fn read(config: &Value) -> Result<LlamaConfig, String> {
        let read = HfConfig::from_json(config.to_string().as_bytes()).and_then(|config| config.llama(false));
        read.map_err(|error| error.to_string())
    }

    #[test]
    fn a_good_config_is_read() {
        let config = read(&base()).unwrap();
        assert_eq!((config.head_dim, config.q_width(), config.qk_norm, config.tied), (32, 128, true, true));
        let mut newer = base();
        newer["rope_parameters"] = json!({"rope_type": "default", "rope_theta": 5e5});
        assert_eq!(read(&newer).unwrap().rope, RopeSpec::plain(5e5));
        for key in ["attention_bias", "mlp_bias", "use_sliding_window", "rope_scaling", "hidden_act"] {
            let mut config = base();
            config[key] = Value::Null;
            assert!(read(&config).is_ok(), "{key} may be null");
        }
    }

    #[test]
    fn what_does_not_go_is_named() {
        let cases = [
            ("num_key_value_heads", json!(3), "'num_key_value_heads' is 3"),
            ("head_dim", json!(31), "head width of 31"),
            ("hidden_size", json!(0), "'hidden_size' is 0"),
            ("hidden_size", json!("64"), "expected usize"),
            ("hidden_size", Value::Null, "expected usize"),
            ("intermediate_size", json!(99_999_999), "'intermediate_size' is 99999999"),
            ("rms_norm_eps", json!(-1.0), "'rms_norm_eps' is -1"),
            ("hidden_act", json!("gelu"), "'hidden_act' is 'gelu'"),
            ("attention_bias", json!(true), "'attention_bias' is true"),
            ("mlp_bias", json!(true), "'mlp_bias' is true"),
            ("use_sliding_window", json!(true), "'use_sliding_window' is true"),
            ("layer_types", json!(["full_attention"]), "'layer_types' names 1 layers"),
            ("layer_types", json!(["full_attention", "sliding_attention"]), "'sliding_attention'"),
            ("rope_scaling", json!({"rope_type": "longrope", "factor": 4.0}), "'rope_type' is 'longrope'"),
            ("rope_scaling", json!({"type": "linear"}), "lacks 'factor'"),
            ("tie_word_embeddings", json!(false), "no tensor 'lm_head.weight'"),
            ("model_type", json!("gemma3"), "is Gemma 3, which is not supported yet"),
            ("model_type", json!("wholly-new\u{1b}"), "the model_type 'wholly-new\u{fffd}' is not supported yet"),
        ];
        for (key, value, says) in cases {
            let mut config = base();
            config[key] = value;
            let error = read(&config).unwrap_err();
            assert!(error.contains(says) && error.lines().count() == 1, "{key}: {error}");
        }
        let mut config = base();
        config.as_object_mut().unwrap().remove("num_hidden_layers");
        assert!(read(&config).unwrap_err().contains("missing field `num_hidden_layers`"));
    }

    #[test]
    fn compressions_other_than_fp8_in_blocks_are_declined_by_name() {
        let block = |json: Value| serde_json::from_value::<Quantization>(json).unwrap().fp8_block();
        assert_eq!(block(json!({"quant_method": "fp8", "weight_block_size": [128, 128]})).unwrap(), [128, 128]);
        for (config, says) in [
            (json!({"quant_method": "awq"}), "'awq'"),
            (json!({"quant_method": "fp8"}), "weight_block_size"),
            (json!({"quant_method": "fp8", "weight_block_size": [0, 128]}), "weight_block_size"),
        ] {
            assert!(block(config).unwrap_err().to_string().contains(says));
        }
    }
}
