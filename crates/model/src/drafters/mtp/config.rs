//! `config.json` of an MTP module in a file of its own, for targets of the Llama kind.
//!
//! Conventions that the file does not state are DeepSeek's.

use serde::Deserialize;

use crate::ModelError;
use crate::draft_tokens::MAX_CONTEXT_VOCAB;
use crate::files::config_json;
use crate::nn::{Activation, PairOrder, RopeSpec, check_heads};
use crate::plan::{
    Angles, BlockNames, DraftPlan, Feed, Fusion, Layer, Mixer, Norm, Rotation, StatesNorm, UsualAttention,
};
use draftscope_protocol::{ConcatOrder, ModelInfo, MtpSpec};

/// Most modules of a stack.
const MAX_DEPTHS: usize = 8;

/// Most states read from within a target.
const MAX_LAYERS: usize = 8;

/// `config.json` of a module, or of a stack of them.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct MtpConfig {
    /// d; must equal the target's.
    pub hidden_size: usize,
    /// Query heads.
    pub num_attention_heads: usize,
    /// Key/value heads.
    pub num_key_value_heads: usize,
    /// Width of a head.
    pub head_dim: usize,
    /// Width of the feed-forward layer.
    pub intermediate_size: usize,
    /// v; must equal the target's.
    pub vocab_size: usize,
    /// Tokens that it can propose.
    pub draft_vocab_size: usize,
    /// Modules, one for each depth; the last one serves all later depths.
    pub num_nextn_predict_layers: usize,
    /// RMSNorm epsilon.
    pub rms_norm_eps: f32,
    /// Base of the rotary frequencies.
    pub rope_theta: f32,
    /// Order of the projection's input.
    pub concat_order: Vec<String>,
    /// Blocks of the target after which the first module reads states besides the last one; `None` = only the last one.
    #[serde(default)]
    pub hidden_layers: Vec<usize>,
    /// Most tokens of the text that it can propose besides its draft vocabulary; `None` if the file does not say.
    #[serde(default)]
    pub context_vocab_size: usize,
}

impl MtpConfig {
    /// Reads `config.json`.
    ///
    /// # Errors
    /// [`ModelError::Metadata`] with what is missing or not supported.
    pub fn from_json(json: &[u8]) -> Result<Self, ModelError> {
        let config: Self = serde_json::from_slice(json)
            .map_err(|error| ModelError::Metadata(format!("the MTP module's config.json: {error}")))?;
        if !(1..=MAX_DEPTHS).contains(&config.num_nextn_predict_layers) {
            return Err(ModelError::Unsupported(format!(
                "'num_nextn_predict_layers' is {}; 1 to {MAX_DEPTHS} modules are supported",
                config.num_nextn_predict_layers
            )));
        }
        if config.hidden_layers.len() > MAX_LAYERS {
            return Err(ModelError::Unsupported(format!(
                "'hidden_layers' names {} states; at most {MAX_LAYERS} are supported",
                config.hidden_layers.len()
            )));
        }
        if config.context_vocab_size > MAX_CONTEXT_VOCAB {
            return Err(ModelError::Unsupported(format!(
                "'context_vocab_size' is {}; at most {MAX_CONTEXT_VOCAB} tokens of the text may join a draft vocabulary",
                config.context_vocab_size
            )));
        }
        config.check_sizes()?;
        config.order()?;
        Ok(config)
    }

    /// Checked because absurd sizes would make products overflow, or be allocated.
    fn check_sizes(&self) -> Result<(), ModelError> {
        let sizes = [
            ("hidden_size", self.hidden_size, 1 << 16),
            ("vocab_size", self.vocab_size, 1 << 24),
            ("draft_vocab_size", self.draft_vocab_size, 1 << 24),
            ("num_attention_heads", self.num_attention_heads, 1024),
            ("num_key_value_heads", self.num_key_value_heads, 1024),
            ("head_dim", self.head_dim, 1 << 12),
            ("intermediate_size", self.intermediate_size, 1 << 20),
        ];
        for (key, size, most) in sizes {
            config_json::size(key, size, most)?;
        }
        config_json::positive("rms_norm_eps", f64::from(self.rms_norm_eps))?;
        config_json::positive("rope_theta", f64::from(self.rope_theta))?;
        Ok(())
    }

    /// # Errors
    /// [`ModelError::Metadata`] if `concat_order` has another value.
    fn order(&self) -> Result<ConcatOrder, ModelError> {
        match self.concat_order.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
            ["embedding", "hidden"] => Ok(ConcatOrder::EmbeddingFirst),
            ["hidden", "embedding"] => Ok(ConcatOrder::HiddenFirst),
            _ => Err(ModelError::Metadata(
                "the MTP module's 'concat_order' is neither [embedding, hidden] nor [hidden, embedding]".into(),
            )),
        }
    }

    /// Blocks of the target after which the module of this depth reads: later modules read those that the first one
    /// reads.
    #[must_use]
    pub fn layers_of(&self, depth: usize) -> &[usize] {
        if depth == 0 { &self.hidden_layers } else { &[] }
    }

    /// The conventions it was trained with.
    #[must_use]
    pub fn spec(&self) -> MtpSpec {
        MtpSpec { order: self.order().unwrap_or_default(), ..MtpSpec::default() }
    }

    /// Checks that it was made for a target of these sizes.
    ///
    /// # Errors
    /// [`ModelError::Metadata`] with the first size that differs.
    pub fn check_target(&self, target: &ModelInfo) -> Result<(), ModelError> {
        for (what, own, theirs) in [
            ("hidden_size", self.hidden_size, target.d_model as usize),
            ("vocab_size", self.vocab_size, target.vocab as usize),
        ] {
            if own != theirs {
                return Err(ModelError::Metadata(format!(
                    "the MTP module was made for another target: its {what} is {own}, the target's {theirs}"
                )));
            }
        }
        if let Some(block) = self.hidden_layers.iter().find(|block| **block > target.layers as usize) {
            return Err(ModelError::Metadata(format!(
                "the MTP module was made for another target: it reads the state after block {block}, and the target has {} blocks",
                target.layers
            )));
        }
        check_heads(
            (self.num_attention_heads, self.num_key_value_heads, self.head_dim),
            ("num_attention_heads", "num_key_value_heads"),
        )
    }

    /// The module of this depth as data. Rotary pairs are in half-split order, unlike in GGUF files.
    #[must_use]
    pub fn plan(&self, depth: usize) -> DraftPlan {
        let (d, eps, head_dim) = (self.hidden_size, self.rms_norm_eps, self.head_dim);
        let names = BlockNames { block: depth, width: d, eps, centred: false };
        let attention = UsualAttention {
            heads: self.num_attention_heads,
            kv_heads: self.num_key_value_heads,
            head_dim,
            qk_norm: false,
            qkv_bias: false,
            rotation: Some(Rotation { table: 0, pairs: PairOrder::HalfSplit }),
        };
        let layer = Layer {
            mixer: Mixer::Attention(attention.plan(&names)),
            mix: names.join("attn_norm"),
            feed: Feed::Dense(names.gated("", self.intermediate_size, Activation::Silu)),
            fed: names.join("ffn_norm"),
            token_input: None,
            output_scale: None,
        };
        let angles = Angles { rope: RopeSpec::plain(f64::from(self.rope_theta)), width: head_dim };
        let states = self.layers_of(depth).to_vec();
        let fusion = (!states.is_empty()).then(|| Fusion {
            normed: StatesNorm::Each,
            norms: vec![Norm { weight: None, centred: false, eps }; states.len()],
            project: names.matrix("nextn.fuse", d, states.len() * d),
            states,
            adds: true,
        });
        DraftPlan { fusion, ..DraftPlan::nextn(depth, (d, eps), (layer, angles), self.spec()) }
    }
}
