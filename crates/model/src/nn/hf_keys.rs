//! The keys of `config.json` that every transformer has.
//!
//! Invariant: a key that asks for something not computed is an error that names it, never a silent difference. Unneeded
//! keys are not read.

use serde::Deserialize;

use crate::ModelError;
use crate::error::clean;
use crate::files::{
    ConfigJson, Folder,
    config_json::{layer_kinds, positive, refused, size},
};
use crate::nn::config::{Conventions, TransformerConfig};
use crate::nn::rope::{PairOrder, RopeScaling, RopeSpec, scaled_amplitude, yarn_amplitude};

/// Which of the keys below a family reads itself.
#[derive(Clone, Debug, Default)]
pub struct Extras {
    /// Width of a head, if the family has computed it.
    pub head_dim: Option<usize>,
    /// Rotary positions, if the family has computed them.
    pub rope: Option<RopeSpec>,
    /// Whether it reads `layer_types`.
    pub layer_types: bool,
    /// Whether it reads `partial_rotary_factor`.
    pub partial_rotary: bool,
    /// Whether it reads YaRN's `mscale`.
    pub mscale: bool,
    /// Whether it checks its heads itself, which then need not divide anything.
    pub own_heads: bool,
}

/// What is known of the output head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ends {
    /// Whether the embedding is the head, according to the files.
    pub tied: Option<bool>,
    /// Whether a head is among the tensors.
    pub has_head: bool,
}

impl Ends {
    /// For a folder; before its weights exist, a head is assumed.
    #[must_use]
    pub fn of(json: &ConfigJson, folder: Option<&Folder>) -> Self {
        Self { tied: folder.map_or_else(|| json.tied(), Folder::tied), has_head: folder.is_none_or(Folder::has_head) }
    }

    fn tied(self) -> Result<bool, ModelError> {
        match self.tied {
            Some(false) if !self.has_head => Err(ModelError::Metadata(
                "'tie_word_embeddings' is false and there is no tensor 'lm_head.weight'".into(),
            )),
            Some(tied) => Ok(tied),
            None => Ok(!self.has_head),
        }
    }
}

/// Rejects biases that blocks of these conventions do not add; `modules` is the prefix of a draft module's blocks.
///
/// # Errors
/// [`ModelError::Unsupported`] naming the tensor.
pub fn refuse_biases(
    folder: Option<&Folder>,
    conventions: &Conventions,
    modules: Option<&str>,
) -> Result<(), ModelError> {
    let Some(folder) = folder else { return Ok(()) };
    let prefix = folder.layout().prefix;
    let blocks: Vec<String> = ["layers"].into_iter().chain(modules).map(|of| format!("{prefix}{of}.")).collect();
    let added = |name: &str| {
        conventions.qkv_bias && ["q_proj.bias", "k_proj.bias", "v_proj.bias"].iter().any(|end| name.ends_with(end))
    };
    let is_read = |name: &str| blocks.iter().any(|start| name.starts_with(start)) || name == "lm_head.bias";
    let biases = folder.checkpoint_names().filter(|name| name.ends_with(".bias") && !added(name) && is_read(name));
    match biases.min() {
        Some(name) => Err(ModelError::Unsupported(format!("biases ('{}') are not supported", clean(name)))),
        None => Ok(()),
    }
}

/// The keys of `config.json` that matter.
#[derive(Clone, Debug, Deserialize)]
pub struct HfKeys {
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
    hidden_act: Option<String>,
    attention_bias: Option<bool>,
    mlp_bias: Option<bool>,
    use_sliding_window: Option<bool>,
    layer_types: Option<Vec<String>>,
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

impl HfKeys {
    /// Transformer blocks.
    ///
    /// # Errors
    /// [`ModelError::Metadata`] if it is 0 or larger than in any model; so for the sizes below.
    pub fn layers(&self) -> Result<usize, ModelError> {
        size("num_hidden_layers", self.num_hidden_layers, 1024)
    }

    /// Query heads.
    ///
    /// # Errors
    /// As [`HfKeys::layers`].
    pub fn heads(&self) -> Result<usize, ModelError> {
        size("num_attention_heads", self.num_attention_heads, 1024)
    }

    /// Width of the feed-forward layers.
    ///
    /// # Errors
    /// As [`HfKeys::layers`].
    pub fn ffn(&self) -> Result<usize, ModelError> {
        size("intermediate_size", self.intermediate_size, 1 << 20)
    }

    /// Rows of the embedding.
    ///
    /// # Errors
    /// As [`HfKeys::layers`].
    pub fn vocab(&self) -> Result<usize, ModelError> {
        size("vocab_size", self.vocab_size, 1 << 24)
    }

    /// Width of a head: the key, else `usual`, else `hidden_size` over the heads.
    ///
    /// # Errors
    /// As [`HfKeys::layers`].
    pub fn head_dim(&self, usual: Option<usize>) -> Result<usize, ModelError> {
        let (heads, d_model) = (self.heads()?, size("hidden_size", self.hidden_size, 1 << 16)?);
        size("head_dim", self.head_dim.unwrap_or(usual.unwrap_or(d_model / heads)), 1 << 12)
    }

    /// The sizes.
    ///
    /// # Errors
    /// [`ModelError::Unsupported`] or [`ModelError::Metadata`] naming the key.
    pub fn transformer(
        &self,
        conventions: &Conventions,
        ends: Ends,
        extras: Extras,
    ) -> Result<TransformerConfig, ModelError> {
        self.refuse_extras(conventions, &extras)?;
        let heads = self.heads()?;
        let d_model = size("hidden_size", self.hidden_size, 1 << 16)?;
        let tied = ends.tied()?;
        let head_dim = match extras.head_dim {
            Some(head_dim) => head_dim,
            None => self.head_dim(None)?,
        };
        let config = TransformerConfig {
            conventions: *conventions,
            vocab: self.vocab()?,
            d_model,
            layers: self.layers()?,
            heads,
            kv_heads: size("num_key_value_heads", self.num_key_value_heads.unwrap_or(heads), 1024)?,
            head_dim,
            ffn: self.ffn()?,
            norm_eps: positive("rms_norm_eps", self.rms_norm_eps)? as f32,
            rope: match extras.rope {
                Some(rope) => rope,
                None => self.rope(extras.partial_rotary, extras.mscale)?,
            },
            pairs: PairOrder::HalfSplit,
            context_length: size("max_position_embeddings", self.max_position_embeddings, 1 << 24)?,
            tied,
        };
        if extras.own_heads {
            return config.check_vocab().map(|()| config);
        }
        config.check(("num_attention_heads", "num_key_value_heads"))?;
        if self.head_dim.is_none() && extras.head_dim.is_none() && d_model % heads != 0 {
            return Err(ModelError::Metadata(format!(
                "'hidden_size' is {d_model}, which 'num_attention_heads' ({heads}) does not divide, and there is no 'head_dim'"
            )));
        }
        Ok(config)
    }

    fn refuse_extras(&self, conventions: &Conventions, extras: &Extras) -> Result<(), ModelError> {
        if let Some(act) = self.hidden_act.as_deref().filter(|act| !["silu", "swish"].contains(act)) {
            return refused(format!("'hidden_act' is '{}'", clean(act)));
        }
        for (key, is_set) in [
            ("attention_bias", self.attention_bias.filter(|_| !conventions.qkv_bias)),
            ("mlp_bias", self.mlp_bias),
            ("use_sliding_window", self.use_sliding_window),
        ] {
            if is_set == Some(true) {
                return refused(format!("'{key}' is true"));
            }
        }
        match self.layer_types.as_ref().filter(|_| !extras.layer_types) {
            Some(types) => {
                let is_full = |kind: &str| (kind == "full_attention").then_some(());
                layer_kinds("layer_types", (types, self.num_hidden_layers), is_full).map(drop)
            }
            None => Ok(()),
        }
    }

    /// A further factor of the scores of latent attention: YaRN's amplitude, squared, for all values of a head.
    ///
    /// # Errors
    /// [`ModelError::Metadata`] if a scale is not a positive number.
    pub fn sharper(&self) -> Result<f64, ModelError> {
        let given = self.rope_parameters.as_ref().or(self.rope_scaling.as_ref());
        let asked = given.and_then(|given| Some((given, given.mscale_all_dim.filter(|scale| *scale != 0.0)?)));
        let Some((given, scale)) = asked.filter(|(given, _)| given.is_scaled()) else {
            return Ok(1.0);
        };
        let factor = positive("factor", given.factor.unwrap_or(1.0))?;
        Ok(scaled_amplitude(factor, positive("mscale_all_dim", scale)?).powi(2))
    }

    /// Rotary positions.
    ///
    /// # Errors
    /// [`ModelError::Unsupported`] for a scaling that does not run, [`ModelError::Metadata`] when its keys are missing.
    pub fn rope_spec(&self) -> Result<RopeSpec, ModelError> {
        self.rope(false, false)
    }

    fn rope(&self, partial_rotary: bool, mscale: bool) -> Result<RopeSpec, ModelError> {
        let none = RopeParameters::default();
        let given = self.rope_parameters.as_ref().or(self.rope_scaling.as_ref()).unwrap_or(&none);
        let theta = positive("rope_theta", given.rope_theta.or(self.rope_theta).unwrap_or(10_000.0))?;
        if !partial_rotary && given.partial_rotary_factor.is_some_and(|part| part != 1.0) {
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
                let scales = (given.mscale.is_some() || given.mscale_all_dim.is_some()) && !mscale;
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
                        // as in `_compute_yarn_parameters` of transformers
                        None => match (scale(given.mscale), scale(given.mscale_all_dim)) {
                            (Some(own), Some(all)) => {
                                let all = positive("mscale_all_dim", all)?;
                                scaled_amplitude(factor, positive("mscale", own)?) / scaled_amplitude(factor, all)
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

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::nn::LLAMA_LAYOUT;

    fn base() -> Value {
        json!({
            "model_type": "qwen3", "vocab_size": 320, "hidden_size": 64, "num_hidden_layers": 2,
            "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32, "intermediate_size": 96,
            "rms_norm_eps": 1e-6, "max_position_embeddings": 512, "rope_theta": 1e6, "hidden_act": "silu",
            "attention_bias": false, "use_sliding_window": false, "layer_types": ["full_attention", "full_attention"],
            "tie_word_embeddings": true, "torch_dtype": "bfloat16"
        })
    }

    fn read(config: &Value) -> Result<TransformerConfig, String> {
        let read = |json: &ConfigJson| {
            let ends = Ends { tied: json.tied(), has_head: false };
            json.read::<HfKeys>()?.transformer(&LLAMA_LAYOUT[2], ends, Extras::default())
        };
        ConfigJson::parse(config.to_string().as_bytes()).and_then(|json| read(&json)).map_err(|error| error.to_string())
    }

    #[test]
    fn a_good_config_is_read() {
        let config = read(&base()).unwrap();
        assert_eq!((config.head_dim, config.q_width(), config.conventions.qk_norm, config.tied), (32, 128, true, true));
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
}
