//! Files of an MTP module that comes by itself: `config.json` and safetensors, for targets of the Llama kind.
//!
//! Conventions are what `config.json` says, and otherwise DeepSeek's. FP8 matrices are widened at load with
//! their per-row scale. Rotary pairs are in half-split order, unlike in the GGUF.

use std::sync::Arc;

use candle_core::safetensors::Load;
use candle_core::{DType, Device, Tensor};
use safetensors::SafeTensors;
use serde::Deserialize;

use crate::model::ModelError;
use crate::model::draft_tokens::MAX_CONTEXT_VOCAB;
use crate::model::drafters::core::{CandleMtp, LlamaBlock, MtpOnCandle, MtpParts, MtpShape, MtpShared};
use crate::model::files::config_json;
use crate::model::nn::block::{Block, Rope};
use crate::model::nn::config::{self, Conventions, TransformerConfig};
use crate::model::nn::embedding::{Embedding, SharedTarget};
use crate::model::nn::fusion::Fuse;
use crate::model::nn::linear::Linear;
use crate::model::nn::norm::RmsNorm;
use crate::model::nn::rope::PairOrder;
use crate::model::nn::rope::RopeSpec;
use crate::protocol::{ConcatOrder, ModelInfo, MtpSpec, TokenId};

/// Most modules of a stack.
const MAX_DEPTHS: usize = 8;

/// Most states that are read within a target.
const MAX_LAYERS: usize = 8;

/// `config.json` of a module, or of a stack of them.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct MtpConfig {
    /// d; must be the target's.
    pub hidden_size: usize,
    /// Query heads.
    pub num_attention_heads: usize,
    /// Key/value heads.
    pub num_key_value_heads: usize,
    /// Width of a head.
    pub head_dim: usize,
    /// Width of the feed-forward layer.
    pub intermediate_size: usize,
    /// v; must be the target's.
    pub vocab_size: usize,
    /// Tokens it can propose.
    pub draft_vocab_size: usize,
    /// Modules, one for each depth; the last is used again at every depth behind.
    pub num_nextn_predict_layers: usize,
    /// RMSNorm epsilon.
    pub rms_norm_eps: f32,
    /// Base of the rotary frequencies.
    pub rope_theta: f32,
    /// Order inside the projection's input.
    pub concat_order: Vec<String>,
    /// Blocks of the target behind which the first module reads states besides the last one; none = it reads that alone.
    #[serde(default)]
    pub hidden_layers: Vec<usize>,
    /// Tokens of the text that it can propose besides its draft vocabulary, at most; none where the file does not say.
    #[serde(default)]
    pub context_vocab_size: usize,
}

impl MtpConfig {
    /// Reads `config.json`.
    ///
    /// # Errors
    /// [`ModelError::Metadata`] naming what is missing or not supported.
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

    /// Sizes that no module has would make products wrap round, and be allocated.
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
    /// [`ModelError::Metadata`] when `concat_order` is neither order.
    fn order(&self) -> Result<ConcatOrder, ModelError> {
        match self.concat_order.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
            ["embedding", "hidden"] => Ok(ConcatOrder::EmbeddingFirst),
            ["hidden", "embedding"] => Ok(ConcatOrder::HiddenFirst),
            _ => Err(ModelError::Metadata(
                "the MTP module's 'concat_order' is neither [embedding, hidden] nor [hidden, embedding]".into(),
            )),
        }
    }

    /// Blocks of the target behind which the module of this depth reads: those behind the first read that one's output.
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
    /// [`ModelError::Metadata`] naming the first size that differs.
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
        if let Some(behind) = self.hidden_layers.iter().find(|behind| **behind > target.layers as usize) {
            return Err(ModelError::Metadata(format!(
                "the MTP module was made for another target: it reads the state behind block {behind}, and the target has {} blocks",
                target.layers
            )));
        }
        config::check_heads(
            (self.num_attention_heads, self.num_key_value_heads, self.head_dim),
            ("num_attention_heads", "num_key_value_heads"),
        )
    }

    /// The block's shape.
    ///
    /// # Errors
    /// As [`MtpConfig::check_target`].
    pub fn block_config(&self, target: &TransformerConfig) -> Result<TransformerConfig, ModelError> {
        self.check_target(&target.describe(String::new(), String::new()))?;
        Ok(TransformerConfig {
            heads: self.num_attention_heads,
            kv_heads: self.num_key_value_heads,
            head_dim: self.head_dim,
            ffn: self.intermediate_size,
            norm_eps: self.rms_norm_eps,
            rope: RopeSpec::plain(f64::from(self.rope_theta)),
            conventions: Conventions { qk_norm: false, ..target.conventions },
            layers: 1,
            ..target.clone()
        })
    }
}

impl CandleMtp {
    /// Builds the module from the bytes of a safetensors file (bf16, or FP8 E4M3 with a
    /// `weight_scale` per output row) and its `config.json`.
    ///
    /// # Errors
    /// When a tensor is missing, misshapen or damaged, or the module is another target's.
    pub fn load(
        weights: &[u8],
        config: &MtpConfig,
        target: &Arc<dyn SharedTarget>,
        ctx_len: usize,
    ) -> Result<Self, ModelError> {
        Self::load_depth((weights, 0), config, target, ctx_len)
    }

    /// The same for the module of one depth of a stack, counted from 0.
    ///
    /// # Errors
    /// As [`CandleMtp::load`].
    pub fn load_depth(
        (weights, depth): (&[u8], usize),
        config: &MtpConfig,
        target: &Arc<dyn SharedTarget>,
        ctx_len: usize,
    ) -> Result<Self, ModelError> {
        let device = target.device().clone();
        let c = config.block_config(target.config())?;
        let file = MtpFile::parse(weights, &device, depth)?;
        let vocab = file.draft_vocab(config)?;
        let d = c.d_model;
        let block = Block {
            attn_norm: file.norm("input_layernorm", &c)?,
            q: file.linear("self_attn.q_proj", c.q_width(), d)?,
            k: file.linear("self_attn.k_proj", c.kv_width(), d)?,
            v: file.linear("self_attn.v_proj", c.kv_width(), d)?,
            o: file.linear("self_attn.o_proj", d, c.q_width())?,
            head_norms: None,
            ffn_norm: file.norm("post_attention_layernorm", &c)?,
            gate: file.linear("mlp.gate_proj", c.ffn, d)?,
            up: file.linear("mlp.up_proj", c.ffn, d)?,
            down: file.linear("mlp.down_proj", d, c.ffn)?,
        };
        let layers = config.layers_of(depth);
        let fuse = match layers.len() {
            0 => None,
            count => {
                let unit = RmsNorm::of_numbers(vec![1.0; d], c.norm_eps, &device)?;
                Some(Fuse::new(layers, file.linear("fuse", d, count * d)?, unit))
            }
        };
        let parts = MtpParts {
            fuse,
            embedding_norm: file.norm("enorm", &c)?,
            hidden_norm: file.norm("hnorm", &c)?,
            project: file.linear("eh_proj", d, 2 * d)?,
            norm: file.norm("shared_head.norm", &c)?,
            block: Box::new(LlamaBlock { block, config: c.clone() }),
        };
        let shape = MtpShape { d_model: d, kv_heads: c.kv_heads, head_dim: c.head_dim, ctx_len };
        let rope = Rope::new(&c.rope, c.head_dim, ctx_len + 1, (PairOrder::HalfSplit, &device))?;
        let head = Linear::dense(target.head_rows(&vocab)?);
        let whole = Some((target.head(), config.context_vocab_size));
        let shared = MtpShared { head, embedding: Arc::clone(target) as Arc<dyn Embedding>, vocab, whole };
        MtpOnCandle::module(shared, parts, config.spec(), (shape, rope))
    }
}

/// A parsed safetensors file of a module.
struct MtpFile<'a> {
    tensors: SafeTensors<'a>,
    device: Device,
    depth: usize,
}

impl<'a> MtpFile<'a> {
    fn parse(bytes: &'a [u8], device: &Device, depth: usize) -> Result<Self, ModelError> {
        let tensors = SafeTensors::deserialize(bytes)
            .map_err(|error| ModelError::Metadata(format!("the MTP module's weights are damaged: {error}")))?;
        Ok(Self { tensors, device: device.clone(), depth })
    }

    fn tensor(&self, name: &str, shape: &[usize]) -> Result<Tensor, ModelError> {
        let view = self.tensors.tensor(name).map_err(|_| ModelError::MissingTensor(name.to_owned()))?;
        if view.shape() != shape {
            return Err(ModelError::Shape {
                name: name.to_owned(),
                got: view.shape().to_vec(),
                expected: shape.to_vec(),
            });
        }
        Ok(view.load(&self.device)?)
    }

    fn norm(&self, name: &str, config: &TransformerConfig) -> Result<RmsNorm, ModelError> {
        let name = format!("mtp.layers.{}.{name}.weight", self.depth);
        RmsNorm::new(&self.tensor(&name, &[config.d_model])?, config.norm_eps)
    }

    /// weight = stored × scale of its row, when there is a scale.
    fn linear(&self, name: &str, out: usize, input: usize) -> Result<Linear, ModelError> {
        let name = format!("mtp.layers.{}.{name}.weight", self.depth);
        let weight = self.tensor(&name, &[out, input])?.to_dtype(DType::F32)?;
        let scale = format!("{name}_scale");
        if self.tensors.tensor(&scale).is_err() {
            return Ok(Linear::dense(weight));
        }
        let scale = self.tensor(&scale, &[out])?.to_dtype(DType::F32)?.reshape((out, 1))?;
        Ok(Linear::dense(weight.broadcast_mul(&scale)?))
    }

    fn draft_vocab(&self, config: &MtpConfig) -> Result<Vec<TokenId>, ModelError> {
        let ids = self.tensor("mtp.draft_vocab", &[config.draft_vocab_size])?.to_vec1::<i64>()?;
        let vocab: Option<Vec<TokenId>> = ids.iter().map(|id| u32::try_from(*id).ok().map(TokenId)).collect();
        let ascending = |vocab: &Vec<TokenId>| vocab.is_sorted_by(|a, b| a < b);
        vocab.filter(|vocab| !vocab.is_empty() && ascending(vocab)).ok_or_else(|| {
            ModelError::Metadata(
                "'mtp.draft_vocab' is empty, out of order or holds something else than token ids".into(),
            )
        })
    }
}
