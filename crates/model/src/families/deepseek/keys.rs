//! Configuration that only DeepSeek-V3's layout has: latent attention, experts, and the number of announced draft
//! modules. GLM-4.7-Flash differs only in defaults.
//!
//! Invariant: a key listed here that is missing, asks for something not computed, or contradicts another is an error
//! that names it; so is an unknown key that begins like keys of these parts ([`OWN`]). Keys of other names are ignored.

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::ModelError;
use crate::error::clean;
use crate::files::config_json::{OwnKeys, contradiction, refused, size};
use crate::nn::{DenseLayerKeys, GroupedExpertKeys, GroupedExperts};

/// Latent attention and experts.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Latent {
    /// Sizes of attention.
    pub(super) attention: LatentShape,
    /// Sizes of the layers of experts.
    pub(super) experts: GroupedExperts,
    /// Layers before those of experts, with an ordinary feed-forward layer.
    pub(super) dense_layers: usize,
    /// Draft modules that the file announces.
    pub(super) modules: usize,
}

/// Attention over one latent row per position, which all heads share (DeepSeek-V2, arXiv:2405.04434).
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct LatentShape {
    /// Heads.
    pub(super) heads: usize,
    /// Rank of queries; `None` = full rank.
    pub(super) q_rank: Option<usize>,
    /// Width of the latent, from which keys and values of all heads are made.
    pub(super) rank: usize,
    /// Values of a head's key that come from the latent and are not rotated.
    pub(super) plain: usize,
    /// Values of a head's key that are rotated; one row for all heads.
    pub(super) rotary: usize,
    /// Width of a head's value.
    pub(super) value: usize,
    /// Whether values 0 and 1, 2 and 3 … are rotated together, as in checkpoints.
    pub(super) interleaved: bool,
    /// Factor of the products of queries and keys.
    pub(super) scale: f64,
}

const OWN: OwnKeys = OwnKeys {
    starts: &[
        "moe_",
        "n_",
        "index_",
        "hc_",
        "mtp_",
        "qk_",
        "topk_",
        "attn_",
        "compress_",
        "engram_",
        "zero_expert",
        "o_lora",
    ],
    known: &[
        "moe_intermediate_size",
        "moe_layer_freq",
        "mtp_layer_types",
        "n_group",
        "n_routed_experts",
        "n_shared_experts",
        "qk_head_dim",
        "qk_nope_head_dim",
        "qk_rope_head_dim",
        "topk_group",
        "topk_method",
        "attn_implementation",
    ],
    asks,
};

/// The keys of `config.json` that only this family has.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct LatentKeys {
    q_lora_rank: Option<usize>,
    kv_lora_rank: usize,
    qk_nope_head_dim: usize,
    qk_rope_head_dim: usize,
    qk_head_dim: Option<usize>,
    v_head_dim: usize,
    head_dim: Option<usize>,
    num_key_value_heads: Option<usize>,
    rope_interleave: Option<bool>,
    partial_rotary_factor: Option<f64>,
    #[serde(flatten)]
    experts: GroupedExpertKeys,
    #[serde(flatten)]
    dense: DenseLayerKeys,
    /// Of modules.
    mtp_layer_types: Option<Vec<String>>,
    num_nextn_predict_layers: Option<usize>,
    /// Its name in files that `transformers` wrote.
    num_mtp_layers: Option<usize>,
}

/// Whether a value asks for something.
fn asks(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => false,
        Value::Array(all) => !all.is_empty(),
        Value::Object(all) => !all.is_empty(),
        _ => true,
    }
}

impl LatentKeys {
    /// Reads the keys from the object that describes the model.
    pub(super) fn from_json(object: &Map<String, Value>) -> Result<Self, ModelError> {
        if object.get("index_topk").is_some_and(asks) {
            return refused("'index_topk' asks for sparse attention (DeepSeek-V3.2)");
        }
        OWN.read(object)
    }

    /// Checks them, for a model of so many layers and heads; `sharper` is the factor of the scores that scaled rotary
    /// positions add.
    pub(super) fn latent(
        &self,
        usual_dense_layers: Option<usize>,
        (layers, heads): (usize, usize),
        sharper: f64,
    ) -> Result<Latent, ModelError> {
        self.refuse()?;
        let modules = match (self.num_nextn_predict_layers, self.num_mtp_layers) {
            (Some(one), Some(other)) if one != other => {
                return contradiction(format!(
                    "'num_nextn_predict_layers' is {one} and 'num_mtp_layers' is {other}, which are the same number"
                ));
            }
            (one, other) => one.or(other).unwrap_or(0),
        };
        Ok(Latent {
            attention: self.attention(heads, sharper)?,
            experts: self.experts.experts()?,
            dense_layers: self.dense.dense_layers(usual_dense_layers, layers)?,
            modules,
        })
    }

    fn refuse(&self) -> Result<(), ModelError> {
        let mut kinds = self.mtp_layer_types.iter().flatten();
        if let Some(kind) = kinds.find(|kind| *kind != "full_attention") {
            return refused(format!("'mtp_layer_types' holds '{}'", clean(kind)));
        }
        match self.partial_rotary_factor {
            Some(part) if part != 1.0 => refused(format!("'partial_rotary_factor' is {part}")),
            _ => Ok(()),
        }
    }

    fn attention(&self, heads: usize, sharper: f64) -> Result<LatentShape, ModelError> {
        let [plain, rotary] = [self.qk_nope_head_dim, self.qk_rope_head_dim];
        size("qk_nope_head_dim", plain, 1 << 12)?;
        size("qk_rope_head_dim", rotary, 1 << 12)?;
        size("v_head_dim", self.v_head_dim, 1 << 12)?;
        size("kv_lora_rank", self.kv_lora_rank, 1 << 14)?;
        self.q_lora_rank.map(|rank| size("q_lora_rank", rank, 1 << 14)).transpose()?;
        if rotary % 2 != 0 {
            return contradiction(format!("'qk_rope_head_dim' is {rotary}, which cannot be rotated in pairs"));
        }
        let whole = plain + rotary;
        if let Some(width) = self.qk_head_dim.filter(|width| *width != whole) {
            return contradiction(format!(
                "'qk_head_dim' is {width}, and 'qk_nope_head_dim' ({plain}) and 'qk_rope_head_dim' ({rotary}) make {whole}"
            ));
        }
        // newer files name the rotated part differently
        if let Some(width) = self.head_dim.filter(|width| ![whole, rotary].contains(width)) {
            return contradiction(format!("'head_dim' is {width} and 'qk_rope_head_dim' is {rotary}"));
        }
        if let Some(kv_heads) = self.num_key_value_heads.filter(|kv_heads| *kv_heads != heads) {
            return contradiction(format!(
                "'num_key_value_heads' is {kv_heads} and 'num_attention_heads' is {heads}: latent attention has as many of both"
            ));
        }
        Ok(LatentShape {
            heads,
            q_rank: self.q_lora_rank,
            rank: self.kv_lora_rank,
            plain,
            rotary,
            value: self.v_head_dim,
            interleaved: self.rope_interleave != Some(false),
            scale: sharper / (whole as f64).sqrt(),
        })
    }
}
