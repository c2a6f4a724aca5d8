//! Configuration that only Qwen3.5 has: which layers are linear, their heads, how much of a head is rotated, whether a
//! draft module is announced.
//!
//! Invariant: a key that asks for something not computed, or contradicts another, is an error that names it; so is an
//! unknown key of these layers.

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::model::ModelError;
use crate::model::error::clean;
use crate::model::families::qwen35::delta::DeltaShape;
use crate::model::files::{
    GgufFile,
    config_json::{OwnKeys, contradiction, layer_kinds, refused, share},
};
use crate::model::nn::TransformerConfig;

/// Linear layers between layers of attention, and their settings.
#[derive(Clone, Debug, PartialEq)]
pub struct Hybrid {
    /// Sizes of the linear layers.
    pub delta: DeltaShape,
    /// Whether each layer is linear; the others attend.
    pub linear: Vec<bool>,
    /// Number of rotated values of a head.
    pub rotary: usize,
    /// Whether the file announces a draft module.
    pub announces_mtp: bool,
}

/// Sizes of a Qwen3.5.
#[derive(Clone, Debug, PartialEq)]
pub struct Qwen35Config {
    /// Those of every transformer.
    pub transformer: TransformerConfig,
    /// Its linear layers.
    pub hybrid: Hybrid,
}

impl Qwen35Config {
    /// Layers with keys and values.
    #[must_use]
    pub fn attending_layers(&self) -> usize {
        self.transformer.layers - self.hybrid.linear_layers()
    }
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
    ],
    asks: |_| true,
};

/// The keys of `config.json` that only this family has.
#[derive(Clone, Debug, Deserialize)]
pub(in crate::model) struct HybridKeys {
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
    num_experts: Option<usize>,
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
    pub(in crate::model) fn from_json(object: &Map<String, Value>) -> Result<Self, ModelError> {
        OWN.read(object)
    }

    /// Checks them, for a model of so many layers and this width of a head.
    pub(in crate::model) fn hybrid(&self, layers: usize, head_dim: usize) -> Result<Hybrid, ModelError> {
        self.refuse()?;
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
            rotary,
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
        match (self.num_experts, self.mtp_num_hidden_layers) {
            (Some(experts), _) if experts > 0 => refused(format!("'num_experts' is {experts}")),
            (_, modules) if modules > 1 => refused(format!("'mtp_num_hidden_layers' is {modules}")),
            _ => Ok(()),
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
    /// Reads the keys of a GGUF file, for so many layers and this width of a head.
    pub(in crate::model) fn from_gguf(gguf: &GgufFile, layers: usize, head_dim: usize) -> Result<Self, ModelError> {
        let key = |name: &str| format!("qwen35.{name}");
        let size = |name: &str, most| gguf.size(&key(name), most);
        let value_heads = size("ssm.time_step_rank", 1024)?;
        let inner = size("ssm.inner_size", 1 << 20)?;
        if inner % value_heads != 0 {
            return contradiction(format!(
                "'qwen35.ssm.inner_size' is {inner}, which 'qwen35.ssm.time_step_rank' ({value_heads}) does not divide"
            ));
        }
        let every = match gguf.number(&key("full_attention_interval")) {
            Some(_) => size("full_attention_interval", 1024)?,
            None => 4,
        };
        let rotary = match gguf.number(&key("rope.dimension_count")) {
            Some(_) => size("rope.dimension_count", 1 << 12)?,
            None => head_dim,
        };
        Self {
            delta: DeltaShape {
                key_heads: size("ssm.group_count", 1024)?,
                value_heads,
                key_dim: size("ssm.state_size", 1 << 12)?,
                value_dim: inner / value_heads,
                kernel: size("ssm.conv_kernel", 64)?,
            },
            linear: (1..=layers).map(|layer| layer % every != 0).collect(),
            rotary,
            announces_mtp: gguf.number(&key("nextn_predict_layers")).is_some_and(|modules| modules > 0),
        }
        .checked(["qwen35.ssm.group_count", "qwen35.ssm.time_step_rank", "qwen35.ssm.conv_kernel"], head_dim)
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

    /// Linear layers.
    #[must_use]
    pub fn linear_layers(&self) -> usize {
        self.linear.iter().filter(|linear| **linear).count()
    }

    /// Bytes of the recurrent state of a sequence.
    #[must_use]
    pub fn state_bytes(&self) -> u64 {
        self.linear_layers() as u64 * self.delta.state_bytes()
    }
}
