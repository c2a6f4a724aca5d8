//! Configuration that only Gemma 3 has: which layers slide, their window, two kinds of rotary positions, the scale of
//! scores, and caps.
//!
//! Invariant: a key that asks for something not computed is an error that names it.

use serde::Deserialize;
use serde_json::{Value, json};

use crate::ModelError;
use crate::error::clean;
use crate::files::{
    ConfigJson,
    config_json::{layer_kinds, positive, refused, size},
};
use crate::nn::{GgufKeys, RopeScaling, RopeSpec, Scores, TransformerConfig};
use crate::shared_kv::Reach;

/// One layer in so many is full, if the file does not say.
const PATTERN: usize = 6;

/// Base of the frequencies of sliding layers, if the file does not say.
const SLIDING_THETA: f64 = 10_000.0;

/// Number of layers of the largest model, for which GGUF files do not give the scale of scores.
const LARGEST_LAYERS: usize = 62;

/// What kinds its layers have.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Layers {
    /// What each attends to.
    pub(super) reach: Vec<Reach>,
    /// Positions that a sliding layer sees, including the row's own.
    pub(super) window: usize,
    /// Rotary positions of full layers.
    pub(super) full_rope: RopeSpec,
    /// How scores are computed.
    pub(super) scores: Scores,
    /// `c` of c·tanh(logit / c), if logits are capped.
    pub(super) logit_softcap: Option<f64>,
}

/// The keys of `config.json` that only this family has.
#[derive(Debug, Deserialize)]
pub(super) struct Keys {
    sliding_window: Option<usize>,
    #[serde(alias = "_sliding_window_pattern")]
    sliding_window_pattern: Option<usize>,
    layer_types: Option<Vec<String>>,
    query_pre_attn_scalar: f64,
    rope_theta: f64,
    rope_local_base_freq: f64,
    rope_scaling: Option<Rope>,
    rope_parameters: Option<Ropes>,
    attn_logit_softcapping: Option<f64>,
    final_logit_softcapping: Option<f64>,
    hidden_activation: Option<String>,
    use_bidirectional_attention: Option<bool>,
}

/// `rope_scaling`, or one of `rope_parameters`.
#[derive(Clone, Debug, Deserialize)]
struct Rope {
    #[serde(alias = "type")]
    rope_type: Option<String>,
    rope_theta: Option<f64>,
    factor: Option<f64>,
}

/// `rope_parameters` of newer files, for each kind of layer.
#[derive(Debug, Default, Deserialize)]
struct Ropes {
    sliding_attention: Option<Rope>,
    full_attention: Option<Rope>,
}

impl Rope {
    fn spec(&self, theta: f64) -> Result<RopeSpec, ModelError> {
        let scaling = match self.rope_type.as_deref() {
            None | Some("default") => RopeScaling::Plain,
            Some("linear") => {
                let lacking = || ModelError::Metadata("the rotary scaling lacks 'factor'".into());
                RopeScaling::Linear(positive("factor", self.factor.ok_or_else(lacking)?)?)
            }
            Some(other) => {
                return Err(ModelError::Unsupported(format!(
                    "'rope_type' is '{}', which is not supported in a Gemma 3; default and linear are",
                    clean(other)
                )));
            }
        };
        Ok(RopeSpec { theta: positive("rope_theta", self.rope_theta.unwrap_or(theta))?, scaling })
    }
}

fn cap(key: &str, value: Option<f64>) -> Result<Option<f64>, ModelError> {
    value.filter(|cap| *cap != 0.0).map(|cap| positive(key, cap)).transpose()
}

/// Whether each layer slides: one of `every` is full.
fn by_pattern(layers: usize, every: usize) -> Vec<Reach> {
    let reach = |layer: usize| if layer.is_multiple_of(every) { Reach::Full } else { Reach::Sliding };
    (1..=layers).map(reach).collect()
}

impl Keys {
    /// Defaults of keys that a file may leave out: those of `configuration_gemma3.py`, on which 4B's file relies.
    pub(super) fn defaults() -> [(&'static str, Value); 14] {
        [
            ("vocab_size", json!(262_208)),
            ("hidden_size", json!(2304)),
            ("intermediate_size", json!(9216)),
            ("num_hidden_layers", json!(26)),
            ("num_attention_heads", json!(8)),
            ("num_key_value_heads", json!(4)),
            ("head_dim", json!(256)),
            ("max_position_embeddings", json!(131_072)),
            ("rms_norm_eps", json!(1e-6)),
            ("query_pre_attn_scalar", json!(256)),
            ("rope_theta", json!(1e6)),
            ("rope_local_base_freq", json!(SLIDING_THETA)),
            ("tie_word_embeddings", json!(true)),
            ("sliding_window", json!(4096)),
        ]
    }

    pub(super) fn from_json(json: &ConfigJson) -> Result<Self, ModelError> {
        let keys: Self = json.read()?;
        if let Some(activation) = keys.hidden_activation.as_deref().filter(|name| *name != "gelu_pytorch_tanh") {
            return refused(format!("'hidden_activation' is '{}'", clean(activation)));
        }
        if keys.use_bidirectional_attention == Some(true) {
            return refused("'use_bidirectional_attention' is true");
        }
        Ok(keys)
    }

    /// Rotary positions of sliding layers, which are never scaled.
    pub(super) fn sliding_rope(&self) -> Result<RopeSpec, ModelError> {
        match self.rope_parameters.as_ref().and_then(|ropes| ropes.sliding_attention.as_ref()) {
            Some(rope) => rope.spec(self.rope_local_base_freq),
            None => Ok(RopeSpec::plain(positive("rope_local_base_freq", self.rope_local_base_freq)?)),
        }
    }

    fn full_rope(&self) -> Result<RopeSpec, ModelError> {
        let newer = self.rope_parameters.as_ref().and_then(|ropes| ropes.full_attention.as_ref());
        match newer.or(self.rope_scaling.as_ref()) {
            Some(rope) => rope.spec(self.rope_theta),
            None => Ok(RopeSpec::plain(positive("rope_theta", self.rope_theta)?)),
        }
    }

    fn reach(&self, layers: usize) -> Result<Vec<Reach>, ModelError> {
        let Some(types) = &self.layer_types else {
            let every = self.sliding_window_pattern.unwrap_or(PATTERN);
            return Ok(by_pattern(layers, size("sliding_window_pattern", every, 1024)?));
        };
        layer_kinds("layer_types", (types, layers), Reach::named)
    }

    /// Attention of so many layers.
    pub(super) fn layers(&self, layers: usize) -> Result<Layers, ModelError> {
        Ok(Layers {
            reach: self.reach(layers)?,
            window: size("sliding_window", self.sliding_window.unwrap_or(0), 1 << 24)?,
            full_rope: self.full_rope()?,
            scores: Scores {
                scale: positive("query_pre_attn_scalar", self.query_pre_attn_scalar)?.powf(-0.5),
                softcap: cap("attn_logit_softcapping", self.attn_logit_softcapping)?,
            },
            logit_softcap: cap("final_logit_softcapping", self.final_logit_softcapping)?,
        })
    }
}

impl Layers {
    /// Rotary positions of sliding layers in a GGUF file; older converters do not write them.
    pub(super) fn sliding_rope_of_gguf(keys: GgufKeys<'_>) -> Result<RopeSpec, ModelError> {
        let theta = keys.gguf.real(&keys.key("rope.freq_base_swa"), Some(SLIDING_THETA as f32))?;
        Ok(RopeSpec::plain(f64::from(theta)))
    }

    /// Reads the keys of a GGUF file.
    ///
    /// # Errors
    /// [`ModelError::Metadata`] naming the key.
    pub(super) fn from_gguf(keys: GgufKeys<'_>, sizes: &TransformerConfig) -> Result<Self, ModelError> {
        let GgufKeys { gguf, .. } = keys;
        let pattern = keys.size_or("attention.sliding_window_pattern", 1024, PATTERN)?;
        // without a window all layers are full, as in llama.cpp
        let window = gguf.number(&keys.key("attention.sliding_window")).unwrap_or(0);
        let (window, reach) = match usize::try_from(window).unwrap_or(usize::MAX) {
            0 => (1, vec![Reach::Full; sizes.layers]),
            window => (size("attention.sliding_window", window, 1 << 24)?, by_pattern(sizes.layers, pattern)),
        };
        // the largest model divides by d / heads, which no key states
        let scalar = if sizes.layers == LARGEST_LAYERS { sizes.d_model / sizes.heads } else { sizes.head_dim };
        let softcap = keys.key("final_logit_softcapping");
        let capped = gguf.value(&softcap).is_ok_and(|value| value.to_f32().is_ok_and(|cap| cap != 0.0));
        Ok(Self {
            reach,
            window,
            full_rope: keys.rope(sizes.head_dim)?,
            scores: Scores { scale: (scalar as f64).powf(-0.5), softcap: None },
            logit_softcap: if capped { Some(f64::from(gguf.real(&softcap, None)?)) } else { None },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(changes: &[(&str, Value)]) -> Result<Layers, String> {
        let mut json = json!({"model_type": "gemma3_text"});
        for (key, value) in changes {
            json[*key] = value.clone();
        }
        let layers = |json: &[u8]| -> Result<Layers, ModelError> {
            let json = ConfigJson::parse(json)?.with_defaults(&Keys::defaults());
            Keys::from_json(&json)?.layers(26)
        };
        layers(json.to_string().as_bytes()).map_err(|error| error.to_string())
    }

    #[test]
    fn a_file_may_say_nothing_and_older_and_newer_keys_mean_the_same() {
        let usual = read(&[]).unwrap();
        assert_eq!((usual.reach[4], usual.reach[5], usual.window), (Reach::Sliding, Reach::Full, 4096));
        assert_eq!((usual.scores, usual.logit_softcap), (Scores { scale: 1.0 / 16.0, softcap: None }, None));
        assert_eq!(usual.full_rope, RopeSpec::plain(1e6));
        for key in ["sliding_window_pattern", "_sliding_window_pattern"] {
            assert_eq!(read(&[(key, json!(3))]).unwrap().reach[2], Reach::Full, "{key}");
        }
        let linear = RopeSpec { theta: 1e6, scaling: RopeScaling::Linear(8.0) };
        for (key, value) in [
            ("rope_scaling", json!({"rope_type": "linear", "factor": 8.0})),
            ("rope_scaling", json!({"type": "linear", "factor": 8.0})),
            ("rope_parameters", json!({"full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6}})),
        ] {
            assert_eq!(read(&[(key, value)]).unwrap().full_rope, linear, "{key}");
        }
    }

    #[test]
    fn what_is_not_computed_is_refused_by_its_key() {
        for (key, value, says) in [
            ("hidden_activation", json!("silu"), "'hidden_activation' is 'silu'"),
            ("use_bidirectional_attention", json!(true), "'use_bidirectional_attention' is true"),
            ("rope_scaling", json!({"rope_type": "yarn", "factor": 8.0}), "'rope_type' is 'yarn'"),
            ("rope_scaling", json!({"rope_type": "linear"}), "lacks 'factor'"),
            ("layer_types", json!(["full_attention"]), "'layer_types' names 1 layers"),
            ("layer_types", json!(vec!["chunked"; 26]), "'layer_types' holds 'chunked'"),
            ("sliding_window", json!(0), "'sliding_window' is 0"),
            ("sliding_window_pattern", json!(0), "'sliding_window_pattern' is 0"),
            ("query_pre_attn_scalar", json!(-1.0), "'query_pre_attn_scalar' is -1"),
            ("final_logit_softcapping", json!(-3.0), "'final_logit_softcapping' is -3"),
        ] {
            let error = read(&[(key, value)]).unwrap_err();
            assert!(error.contains(says) && error.lines().count() == 1, "{key}: {error}");
        }
    }
}
