//! Configuration that only Qwen3.5 and Qwen3-Next have: which layers are linear, their heads, how much of a head is
//! rotated, experts, whether a draft module is announced.
//!
//! Invariant: a key that asks for something not computed, or contradicts another, is an error that names it; so is an
//! unknown key of these layers.

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::ModelError;
use crate::error::clean;
use crate::files::config_json::{OwnKeys, contradiction, layer_kinds, refused, share, size};
use crate::nn::GgufKeys;
use crate::plan::{DeltaShape, HeadOrder};

/// Linear layers between layers of attention, and their settings.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Hybrid {
    /// Sizes of the linear layers.
    pub(super) delta: DeltaShape,
    /// Whether each layer is linear; the others attend.
    pub(super) linear: Vec<bool>,
    /// Which key head a value head reads, in this file.
    pub(super) order: HeadOrder,
    /// Number of rotated values of a head.
    pub(super) rotary: usize,
    /// Experts; `None` where feed-forward layers are dense.
    pub(super) experts: Option<ExpertShape>,
    /// Whether the file announces a draft module.
    pub(super) announces_mtp: bool,
}

const OWN: OwnKeys = OwnKeys {
    starts: &["linear_", "mtp_", "attn_", "mamba_", "num_experts", "moe_", "shared_expert", "output_gate"],
    known: &[
        "linear_conv_kernel_dim",
        "linear_key_head_dim",
        "linear_value_head_dim",
        "linear_num_key_heads",
        "linear_num_value_heads",
        "attn_output_gate",
        "attn_implementation",
        "output_gate_type",
        "mamba_ssm_dtype",
        "mtp_num_hidden_layers",
        "mtp_use_dedicated_embeddings",
        "num_experts",
        "num_experts_per_tok",
        "moe_intermediate_size",
        "shared_expert_intermediate_size",
    ],
    asks: |_| true,
};

/// The keys of `config.json` that only this family has.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct HybridKeys {
    linear_conv_kernel_dim: usize,
    linear_key_head_dim: usize,
    linear_value_head_dim: usize,
    linear_num_key_heads: usize,
    linear_num_value_heads: usize,
    full_attention_interval: Option<usize>,
    layer_types: Option<Vec<String>>,
    attn_output_gate: Option<bool>,
    output_gate_type: Option<String>,
    mamba_ssm_dtype: Option<String>,
    #[serde(default)]
    mtp_num_hidden_layers: usize,
    #[serde(default)]
    mtp_use_dedicated_embeddings: bool,
    #[serde(flatten)]
    experts: ExpertKeys,
    partial_rotary_factor: Option<f64>,
    rope_parameters: Option<Rotary>,
}

/// The part of `rope_parameters` that states how much is rotated.
#[derive(Clone, Debug, Default, Deserialize)]
struct Rotary {
    partial_rotary_factor: Option<f64>,
    mrope_section: Option<Vec<usize>>,
}

impl HybridKeys {
    /// Reads the keys from the object that describes the text model.
    pub(super) fn from_json(object: &Map<String, Value>) -> Result<Self, ModelError> {
        OWN.read(object)
    }

    /// Checks them, for a model of so many layers and this width of a head, with experts or without.
    pub(super) fn hybrid(&self, (layers, head_dim): (usize, usize), has_experts: bool) -> Result<Hybrid, ModelError> {
        self.refuse()?;
        let experts = match has_experts {
            true => Some(self.experts.experts()?),
            false => self.experts.refuse().map(|()| None)?,
        };
        let rope = self.rope_parameters.clone().unwrap_or_default();
        let part = rope.partial_rotary_factor.or(self.partial_rotary_factor).unwrap_or(0.25);
        let part = share("partial_rotary_factor", part)?;
        let rotary = (head_dim as f64 * part) as usize;
        if let Some(sections) = &rope.mrope_section
            && sections.iter().sum::<usize>() * 2 != rotary
        {
            return contradiction(format!(
                "'mrope_section' covers {} pairs and 'partial_rotary_factor' rotates {}",
                sections.iter().sum::<usize>(),
                rotary / 2
            ));
        }
        Hybrid {
            delta: DeltaShape {
                key_heads: self.linear_num_key_heads,
                value_heads: self.linear_num_value_heads,
                key_dim: self.linear_key_head_dim,
                value_dim: self.linear_value_head_dim,
                kernel: self.linear_conv_kernel_dim,
            },
            linear: self.linear(layers)?,
            order: HeadOrder::Grouped,
            rotary,
            experts,
            announces_mtp: self.mtp_num_hidden_layers > 0,
        }
        .checked(["linear_num_key_heads", "linear_num_value_heads", "linear_conv_kernel_dim"], head_dim)
    }

    fn refuse(&self) -> Result<(), ModelError> {
        if self.attn_output_gate == Some(false) {
            return refused("'attn_output_gate' is false");
        }
        if let Some(kind) = self.output_gate_type.as_deref().filter(|kind| !["swish", "silu"].contains(kind)) {
            return refused(format!("'output_gate_type' is '{}'", clean(kind)));
        }
        if let Some(dtype) = self.mamba_ssm_dtype.as_deref().filter(|dtype| *dtype != "float32") {
            return refused(format!("'mamba_ssm_dtype' is '{}'", clean(dtype)));
        }
        if self.mtp_use_dedicated_embeddings {
            return refused("'mtp_use_dedicated_embeddings' is true");
        }
        match self.mtp_num_hidden_layers {
            0 | 1 => Ok(()),
            modules => refused(format!("'mtp_num_hidden_layers' is {modules}")),
        }
    }

    /// Whether each layer is linear.
    fn linear(&self, layers: usize) -> Result<Vec<bool>, ModelError> {
        let every = self.full_attention_interval;
        if every.is_some_and(|every| every == 0) {
            return contradiction("'full_attention_interval' is 0");
        }
        let by_interval = |every: usize| (1..=layers).map(|layer| layer % every != 0).collect::<Vec<_>>();
        let Some(types) = &self.layer_types else {
            return Ok(by_interval(every.unwrap_or(4)));
        };
        let linear = layer_kinds("layer_types", (types, layers), |kind| match kind {
            "linear_attention" => Some(true),
            "full_attention" => Some(false),
            _ => None,
        })?;
        match every {
            Some(every) if by_interval(every) != linear => {
                contradiction(format!("'layer_types' and 'full_attention_interval' ({every}) contradict each other"))
            }
            _ => Ok(linear),
        }
    }
}

impl Hybrid {
    /// Reads the keys of a GGUF file whose linear layers have this order of heads, with experts or without.
    pub(super) fn from_gguf(keys: &GgufKeys<'_>, order: HeadOrder, has_experts: bool) -> Result<Self, ModelError> {
        let (layers, head_dim) = (keys.layers()?, keys.head_dim()?);
        let value_heads = keys.size("ssm.time_step_rank", 1024)?;
        let inner = keys.size("ssm.inner_size", 1 << 20)?;
        if inner % value_heads != 0 {
            return contradiction(format!(
                "'{}' is {inner}, which '{}' ({value_heads}) does not divide",
                keys.key("ssm.inner_size"),
                keys.key("ssm.time_step_rank")
            ));
        }
        let names = ["ssm.group_count", "ssm.time_step_rank", "ssm.conv_kernel"].map(|name| keys.key(name));
        Self {
            delta: DeltaShape {
                key_heads: keys.size("ssm.group_count", 1024)?,
                value_heads,
                key_dim: keys.size("ssm.state_size", 1 << 12)?,
                value_dim: inner / value_heads,
                kernel: keys.size("ssm.conv_kernel", 64)?,
            },
            linear: Self::linear_in(keys, layers)?,
            order,
            rotary: keys.size_or("rope.dimension_count", 1 << 12, head_dim)?,
            experts: if has_experts { Some(ExpertShape::from_gguf(keys)?) } else { None },
            announces_mtp: keys.gguf.number(&keys.key("nextn_predict_layers")).is_some_and(|modules| modules > 0),
        }
        .checked(names.each_ref().map(String::as_str), head_dim)
    }

    /// Whether each layer is linear: as the file lists them, or all but every so many.
    fn linear_in(keys: &GgufKeys<'_>, layers: usize) -> Result<Vec<bool>, ModelError> {
        let key = keys.key("attention.recurrent_layers");
        if keys.gguf.value(&key).is_ok() {
            let listed = keys.gguf.list(&key)?.iter().map(|value| value.to_bool().ok()).take(layers);
            let listed = listed.collect::<Option<Vec<bool>>>().filter(|listed| listed.len() == layers);
            return listed.ok_or_else(|| ModelError::Metadata(format!("'{key}' does not list {layers} layers")));
        }
        let every = keys.size_or("full_attention_interval", 1024, 4)?;
        Ok((1..=layers).map(|layer| layer % every != 0).collect())
    }

    fn checked(self, [key_heads, value_heads, kernel]: [&str; 3], head_dim: usize) -> Result<Self, ModelError> {
        let DeltaShape { key_heads: keys, value_heads: values, key_dim, value_dim, kernel: taps } = self.delta;
        let bounded = [keys, values].iter().all(|n| (1..=1024).contains(n))
            && [key_dim, value_dim].iter().all(|n| (1..=1 << 12).contains(n));
        if !bounded || !values.is_multiple_of(keys) {
            return contradiction(format!(
                "'{key_heads}' is {keys} and '{value_heads}' is {values}, of widths {key_dim} and {value_dim}: these heads do not go"
            ));
        }
        if !(1..=64).contains(&taps) {
            return contradiction(format!("'{kernel}' is {taps}, expected 1 to 64"));
        }
        if self.rotary == 0 || !self.rotary.is_multiple_of(2) || self.rotary > head_dim {
            return contradiction(format!("{} values of a head of {head_dim} cannot be rotated in pairs", self.rotary));
        }
        if self.linear.iter().all(|linear| *linear) {
            return contradiction("no layer attends: there is no 'full_attention' among them");
        }
        Ok(self)
    }
}

/// Most experts of a layer.
const MAX_EXPERTS: usize = 1 << 14;

/// The experts of every layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ExpertShape {
    /// Experts of a layer.
    pub(super) count: usize,
    /// Experts of a row.
    pub(super) used: usize,
    /// Width of an expert.
    pub(super) width: usize,
    /// Width of the shared expert.
    pub(super) shared: usize,
    /// Whether the weights of a row's experts are scaled to the sum 1.
    pub(super) normed: bool,
}

impl ExpertShape {
    fn checked(self, [used, count]: [&str; 2]) -> Result<Self, ModelError> {
        if self.used > self.count {
            return contradiction(format!("'{used}' is {} and '{count}' is {}", self.used, self.count));
        }
        Ok(self)
    }

    /// Reads the keys of a GGUF file, as llama.cpp does: weights are always scaled.
    fn from_gguf(keys: &GgufKeys<'_>) -> Result<Self, ModelError> {
        let width = keys.size("expert_feed_forward_length", 1 << 20)?;
        Self {
            count: keys.size("expert_count", MAX_EXPERTS)?,
            used: keys.size("expert_used_count", MAX_EXPERTS)?,
            width,
            shared: keys.size_or("expert_shared_feed_forward_length", 1 << 20, width)?,
            normed: true,
        }
        .checked([&keys.key("expert_used_count"), &keys.key("expert_count")])
    }
}

/// The keys of `config.json` about experts.
#[derive(Clone, Debug, Deserialize)]
struct ExpertKeys {
    num_experts: Option<usize>,
    num_experts_per_tok: Option<usize>,
    moe_intermediate_size: Option<usize>,
    shared_expert_intermediate_size: Option<usize>,
    norm_topk_prob: Option<bool>,
    decoder_sparse_step: Option<usize>,
    #[serde(default)]
    mlp_only_layers: Vec<usize>,
}

impl ExpertKeys {
    /// The experts of a family that has them in every layer.
    fn experts(&self) -> Result<ExpertShape, ModelError> {
        if let Some(step) = self.decoder_sparse_step.filter(|step| *step != 1) {
            return refused(format!("'decoder_sparse_step' is {step}"));
        }
        if let Some(layer) = self.mlp_only_layers.first() {
            return refused(format!("'mlp_only_layers' names layer {layer}"));
        }
        let width = size("moe_intermediate_size", self.moe_intermediate_size.unwrap_or(0), 1 << 20)?;
        ExpertShape {
            count: size("num_experts", self.num_experts.unwrap_or(0), MAX_EXPERTS)?,
            used: size("num_experts_per_tok", self.num_experts_per_tok.unwrap_or(0), MAX_EXPERTS)?,
            width,
            shared: size(
                "shared_expert_intermediate_size",
                self.shared_expert_intermediate_size.unwrap_or(width),
                1 << 20,
            )?,
            normed: self.norm_topk_prob.unwrap_or(true),
        }
        .checked(["num_experts_per_tok", "num_experts"])
    }

    /// Rejects experts in a family without.
    fn refuse(&self) -> Result<(), ModelError> {
        match self.num_experts {
            Some(experts) if experts > 0 => refused(format!("'num_experts' is {experts}")),
            _ => Ok(()),
        }
    }
}
