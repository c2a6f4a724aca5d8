//! The keys of `config.json` that only Gemma 4 has.
//!
//! Invariant: a key that asks for something not computed, or contradicts another, is an error that names it; so is an
//! unknown key of these layers.

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::ModelError;
use crate::error::clean;
use crate::families::gemma4::shapes::{ExpertShape, Gemma, LayerShape, MAX_EXPERTS, PerLayer};
use crate::files::config_json::{OwnKeys, contradiction, given, layer_kinds, positive, refused, share, size};
use crate::nn::{RopeScaling, RopeSpec};
use crate::shared_kv::Reach;

/// The keys of `config.json` that only this family has.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct GemmaKeys {
    model_type: String,
    head_dim: Option<usize>,
    num_key_value_heads: Option<usize>,
    global_head_dim: Option<usize>,
    num_global_key_value_heads: Option<usize>,
    /// What newer files have instead of the two above: each layer's own settings.
    per_layer_config: Option<Map<String, Value>>,
    sliding_window: Option<usize>,
    layer_types: Option<Vec<String>>,
    rope_parameters: Option<Value>,
    final_logit_softcapping: Option<f64>,
    use_bidirectional_attention: Option<String>,
    vocab_size_per_layer_input: Option<usize>,
    hidden_size_per_layer_input: Option<usize>,
    attention_k_eq_v: Option<bool>,
    num_kv_shared_layers: Option<usize>,
    enable_moe_block: Option<bool>,
    num_experts: Option<usize>,
    top_k_experts: Option<usize>,
    moe_intermediate_size: Option<usize>,
    use_double_wide_mlp: Option<bool>,
    hidden_activation: Option<String>,
}

/// `rope_parameters`, for each kind of layer.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Ropes {
    sliding_attention: Option<Rope>,
    full_attention: Option<Rope>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Rope {
    rope_type: Option<String>,
    rope_theta: Option<f64>,
    partial_rotary_factor: Option<f64>,
    factor: Option<f64>,
}

const OWN: OwnKeys = OwnKeys {
    starts: &[
        "attn_",
        "attention_",
        "query_",
        "num_kv_",
        "num_global_",
        "global_",
        "use_",
        "altup",
        "laurel",
        "per_layer_",
        "hidden_size_per_",
        "vocab_size_per_",
        "final_",
        "router_",
        "activation_sparsity",
        "rope_",
        "partial_rotary",
    ],
    known: &[
        "attn_implementation",
        "attention_bias",
        "attention_dropout",
        "attention_k_eq_v",
        "num_kv_shared_layers",
        "num_global_key_value_heads",
        "global_head_dim",
        "use_cache",
        "use_bidirectional_attention",
        "use_double_wide_mlp",
        "use_sliding_window",
        "per_layer_config",
        "hidden_size_per_layer_input",
        "vocab_size_per_layer_input",
        "final_logit_softcapping",
        "rope_parameters",
    ],
    asks: |value| !value.is_null(),
};

/// Sizes from the other keys.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    pub(crate) layers: usize,
    pub(crate) heads: usize,
    pub(crate) ffn: usize,
    pub(crate) vocab: usize,
}

impl GemmaKeys {
    /// Reads the keys from the object that describes the text model.
    pub(crate) fn from_json(object: &Map<String, Value>) -> Result<Self, ModelError> {
        OWN.read(object)
    }

    /// Width of a head of a sliding layer.
    pub(crate) fn head_dim(&self) -> usize {
        self.head_dim.unwrap_or(256)
    }

    /// Checks them for a model of these sizes. In an assistant, whose `lent` is true, no layer has keys and values.
    pub(crate) fn gemma(&self, sizes: Sizes, lent: bool) -> Result<Gemma, ModelError> {
        self.refuse()?;
        let window = given("sliding_window", self.sliding_window)?;
        let k_eq_v = self.attention_k_eq_v == Some(true);
        let layers = self.shapes(sizes, lent)?;
        for layer in &layers {
            if layer.kv_heads == 0 || !sizes.heads.is_multiple_of(layer.kv_heads) {
                return contradiction(format!(
                    "{} query heads over {} key/value heads do not go ('num_attention_heads', 'num_key_value_heads', 'num_global_key_value_heads')",
                    sizes.heads, layer.kv_heads
                ));
            }
            if layer.head_dim == 0 || !layer.head_dim.is_multiple_of(2) || layer.head_dim > 1 << 12 {
                return contradiction(format!("a head width of {} cannot be rotated in pairs", layer.head_dim));
            }
        }
        let [sliding_rope, full_rope] = self.ropes(&layers)?;
        Ok(Gemma {
            window: size("sliding_window", window, 1 << 24)?,
            sliding_rope,
            full_rope,
            softcap: self.softcap()?,
            per_layer: self.per_layer(sizes.vocab)?,
            experts: self.experts(lent)?,
            layers,
            k_eq_v,
        })
    }

    /// Rotary positions of sliding layers and of full ones.
    fn ropes(&self, layers: &[LayerShape]) -> Result<[RopeSpec; 2], ModelError> {
        let usual = || Ropes { sliding_attention: Some(Rope::sliding()), full_attention: Some(Rope::full()) };
        let given = self.rope_parameters.clone().map(serde_json::from_value).transpose().map_err(|error| {
            ModelError::Metadata(format!("config.json: 'rope_parameters': {}", clean(&error.to_string())))
        })?;
        let given: Ropes = given.unwrap_or_else(usual);
        let of_kind = |reach, name: &str, rope: Option<Rope>, usual: Rope| {
            let layer = layers.iter().find(|layer| layer.reach == reach);
            match (rope, layer) {
                (None, Some(_)) => contradiction(format!("'rope_parameters' says nothing of '{name}' layers")),
                (rope, layer) => rope.unwrap_or(usual).spec(layer.map_or(2, |layer| layer.head_dim)),
            }
        };
        Ok([
            of_kind(Reach::Sliding, "sliding_attention", given.sliding_attention, Rope::sliding())?,
            of_kind(Reach::Full, "full_attention", given.full_attention, Rope::full())?,
        ])
    }

    fn refuse(&self) -> Result<(), ModelError> {
        if self.use_bidirectional_attention.as_deref() == Some("all") {
            return refused("'use_bidirectional_attention' is 'all'");
        }
        match self.hidden_activation.as_deref() {
            Some(act) if act != "gelu_pytorch_tanh" => refused(format!("'hidden_activation' is '{}'", clean(act))),
            _ => Ok(()),
        }
    }

    fn experts(&self, lent: bool) -> Result<Option<ExpertShape>, ModelError> {
        if self.enable_moe_block != Some(true) {
            return Ok(None);
        }
        if lent {
            return refused("'enable_moe_block' is true in an assistant");
        }
        let shape = ExpertShape {
            count: size("num_experts", self.num_experts.unwrap_or(0), MAX_EXPERTS)?,
            used: size("top_k_experts", self.top_k_experts.unwrap_or(0), MAX_EXPERTS)?,
            width: size("moe_intermediate_size", self.moe_intermediate_size.unwrap_or(0), 1 << 20)?,
        };
        shape.checked(["top_k_experts", "num_experts"]).map(Some)
    }

    fn softcap(&self) -> Result<Option<f32>, ModelError> {
        let cap = self.final_logit_softcapping.map(|cap| positive("final_logit_softcapping", cap));
        Ok(cap.transpose()?.map(|cap| cap as f32))
    }

    fn per_layer(&self, vocab: usize) -> Result<Option<PerLayer>, ModelError> {
        // unified models have none and do not say so
        let usual = if self.model_type.contains("unified") { 0 } else { 256 };
        let width = self.hidden_size_per_layer_input.unwrap_or(usual);
        if width == 0 {
            return Ok(None);
        }
        let rows = self.vocab_size_per_layer_input.unwrap_or(vocab);
        if rows < vocab || rows > 1 << 24 {
            return contradiction(format!(
                "'vocab_size_per_layer_input' is {rows} and 'vocab_size' {vocab}: some tokens have no embedding for the layers"
            ));
        }
        let width = size("hidden_size_per_layer_input", width, 1 << 12)?;
        Ok(Some(PerLayer { width, vocab: rows }))
    }

    /// The kinds of layers, in order.
    fn kinds(&self, layers: usize) -> Result<Vec<Reach>, ModelError> {
        let Some(types) = &self.layer_types else {
            let by_default = |layer: usize| layer.is_multiple_of(6) || layer == layers;
            return Ok((1..=layers)
                .map(|layer| if by_default(layer) { Reach::Full } else { Reach::Sliding })
                .collect());
        };
        let kinds = layer_kinds("layer_types", (types, layers), Reach::named)?;
        match kinds.last() {
            Some(Reach::Full) => Ok(kinds),
            _ => contradiction("'layer_types' ends with 'sliding_attention', and the last layer sees everything"),
        }
    }

    fn shapes(&self, sizes: Sizes, lent: bool) -> Result<Vec<LayerShape>, ModelError> {
        let kinds = self.kinds(sizes.layers)?;
        let shared = match self.num_kv_shared_layers {
            _ if lent => sizes.layers,
            shared => shared.unwrap_or(0),
        };
        let Some(own) = sizes.layers.checked_sub(shared).filter(|own| lent || *own > 0) else {
            return contradiction(format!(
                "'num_kv_shared_layers' is {shared} and 'num_hidden_layers' {}: no layer is left that makes keys and values",
                sizes.layers
            ));
        };
        let (full_dim, full_kv) = self.full_heads(&kinds)?;
        let shape = |(index, reach): (usize, &Reach)| {
            let is_shared = index >= own;
            let source = match is_shared {
                false => Some(index),
                true if lent => None,
                true => match kinds[..own].iter().rposition(|kind| kind == reach) {
                    Some(source) => Some(source),
                    None => {
                        return contradiction(format!(
                            "layer {index} reads the keys and values of another of its kind ('num_kv_shared_layers' is {shared}) and there is none before it"
                        ));
                    }
                },
            };
            let wide = is_shared && self.use_double_wide_mlp == Some(true);
            let (head_dim, kv_heads) = match reach {
                Reach::Sliding => (self.head_dim(), self.num_key_value_heads.unwrap_or(sizes.heads)),
                Reach::Full => (full_dim, full_kv.unwrap_or(sizes.heads)),
            };
            let ffn = sizes.ffn * if wide { 2 } else { 1 };
            Ok(LayerShape { reach: *reach, kv_heads, head_dim, ffn, source })
        };
        kinds.iter().enumerate().map(shape).collect()
    }

    /// Width of a head of full layers, and key/value heads.
    fn full_heads(&self, kinds: &[Reach]) -> Result<(usize, Option<usize>), ModelError> {
        let of_k_eq_v = self.num_global_key_value_heads.filter(|_| self.attention_k_eq_v == Some(true));
        let usual = (self.global_head_dim.unwrap_or(512), of_k_eq_v.or(self.num_key_value_heads));
        let Some(layers) = &self.per_layer_config else {
            return Ok(usual);
        };
        let mut found = None;
        for (layer, keys) in layers {
            let odd = || {
                contradiction(format!(
                    "'per_layer_config' gives layer '{}' something else than full layers have together ('head_dim', 'num_key_value_heads')",
                    clean(layer)
                ))
            };
            let number = layer.parse::<usize>().ok().and_then(|layer| kinds.get(layer));
            let keys = keys.as_object().filter(|_| number == Some(&Reach::Full));
            let Some(keys) =
                keys.filter(|k| k.keys().all(|k| ["head_dim", "num_key_value_heads"].contains(&k.as_str())))
            else {
                return odd();
            };
            let size = |key: &str| keys.get(key).and_then(Value::as_u64).and_then(|size| usize::try_from(size).ok());
            let heads =
                (size("head_dim").unwrap_or(self.head_dim()), size("num_key_value_heads").or(self.num_key_value_heads));
            if found.is_some_and(|found| found != heads) {
                return odd();
            }
            found = Some(heads);
        }
        let all = kinds.iter().filter(|kind| **kind == Reach::Full).count();
        match found {
            Some(heads) if layers.len() == all => Ok(heads),
            _ => contradiction(format!("'per_layer_config' names {} layers, and {all} are full ones", layers.len())),
        }
    }
}

impl Rope {
    /// Rotary positions of sliding layers if the file does not state any.
    fn sliding() -> Self {
        Self { rope_type: None, rope_theta: Some(10_000.0), partial_rotary_factor: None, factor: None }
    }

    /// Rotary positions of full layers in that case.
    fn full() -> Self {
        let rope_type = Some("proportional".to_owned());
        Self { rope_type, rope_theta: Some(1_000_000.0), partial_rotary_factor: Some(0.25), factor: None }
    }

    /// Missing keys are as in `transformers`: type default, the whole head.
    fn spec(&self, head_dim: usize) -> Result<RopeSpec, ModelError> {
        let part = share("partial_rotary_factor", self.partial_rotary_factor.unwrap_or(1.0))?;
        let theta = match self.rope_theta {
            Some(theta) => positive("rope_theta", theta)?,
            None => return contradiction("'rope_parameters' lacks a 'rope_theta'"),
        };
        let factor = positive("factor", self.factor.unwrap_or(1.0))? as f32;
        match self.rope_type.as_deref().unwrap_or("default") {
            "default" if part < 1.0 => refused("'partial_rotary_factor' in a rotary position of type default"),
            "default" if factor != 1.0 => refused("'factor' in a rotary position of type default"),
            "default" => Ok(RopeSpec::plain(theta)),
            "proportional" => {
                let turning = (head_dim as f64 * part) as usize / 2;
                // frequencies are those of the whole head; pairs after the rotated part stay
                let of_pair = |pair: usize| if pair < turning { factor } else { f32::INFINITY };
                let factors = (0..head_dim / 2).map(of_pair).collect();
                Ok(RopeSpec { theta, scaling: RopeScaling::Factors(factors) })
            }
            other => refused(format!("'rope_type' is '{}'", clean(other))),
        }
    }
}
