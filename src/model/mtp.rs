//! The MTP module on candle: DeepSeek-V3 shape, one Llama block with a KV cache of its own, the
//! target's embedding and (trimmed) output head shared.
//!
//! Conventions are read from `config.json` and refused by name when they are not those below: the
//! embedding comes first in the concatenation, the hidden state is the one behind the target's
//! final norm, the module's own normed output is fed on from depth 2. FP8 matrices are widened at
//! load with their per-row scale. Rotary pairs are in half-split order, unlike in the GGUF.

use std::sync::Arc;

use candle_core::safetensors::Load;
use candle_core::{DType, Device, Tensor};
use safetensors::SafeTensors;
use serde::Deserialize;

use super::block::{Block, Linear, PairOrder, RmsNorm, Rope};
use super::cache::KvCache;
use super::config::LlamaConfig;
use super::llama::{LlamaWeights, to_tensor};
use super::rope::RopeSpec;
use super::{Forward, ModelError, MtpModule, Rows};
use crate::protocol::TokenId;

/// Most modules of a stack.
const MAX_DEPTHS: usize = 8;

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
}

impl MtpConfig {
    /// Reads `config.json`.
    ///
    /// # Errors
    /// [`ModelError::Metadata`] naming what is missing or not supported.
    pub fn from_json(json: &[u8]) -> Result<Self, ModelError> {
        let config: Self = serde_json::from_slice(json)
            .map_err(|error| ModelError::Metadata(format!("the MTP module's config.json: {error}")))?;
        if !(1..=MAX_DEPTHS).contains(&config.num_nextn_predict_layers)
            || config.concat_order != ["embedding", "hidden"]
        {
            return Err(ModelError::Unsupported(format!(
                "this MTP stack has {} modules or concatenates in another order; 1 to {MAX_DEPTHS} with the embedding first are supported",
                config.num_nextn_predict_layers
            )));
        }
        Ok(config)
    }

    /// The block's shape, checked against the target's.
    ///
    /// # Errors
    /// [`ModelError::Metadata`] naming the first size that differs.
    pub fn block_config(&self, target: &LlamaConfig) -> Result<LlamaConfig, ModelError> {
        for (what, own, theirs) in
            [("hidden_size", self.hidden_size, target.d_model), ("vocab_size", self.vocab_size, target.vocab)]
        {
            if own != theirs {
                return Err(ModelError::Metadata(format!(
                    "the MTP module was made for another target: its {what} is {own}, the target's {theirs}"
                )));
            }
        }
        Ok(LlamaConfig {
            heads: self.num_attention_heads,
            kv_heads: self.num_key_value_heads,
            head_dim: self.head_dim,
            ffn: self.intermediate_size,
            norm_eps: self.rms_norm_eps,
            rope: RopeSpec::plain(f64::from(self.rope_theta)),
            qk_norm: false,
            layers: 1,
            ..target.clone()
        })
    }
}

/// A module's weights, cache and place in the draft vocabulary.
pub struct CandleMtp {
    target: Arc<LlamaWeights>,
    config: LlamaConfig,
    embedding_norm: RmsNorm,
    hidden_norm: RmsNorm,
    project: Linear, // [d, 2d]
    block: Block,
    norm: RmsNorm,
    head: Linear, // [draft vocabulary, d]
    vocab: Vec<TokenId>,
    rope: Rope,
    cache: KvCache,
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
        target: Arc<LlamaWeights>,
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
        target: Arc<LlamaWeights>,
        ctx_len: usize,
    ) -> Result<Self, ModelError> {
        let device = target.device().clone();
        let c = config.block_config(&target.config)?;
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
        Ok(Self {
            embedding_norm: file.norm("enorm", &c)?,
            hidden_norm: file.norm("hnorm", &c)?,
            project: file.linear("eh_proj", d, 2 * d)?,
            block,
            norm: file.norm("shared_head.norm", &c)?,
            head: Linear::dense(target.head_rows(&vocab)?),
            vocab,
            rope: Rope::new(&c.rope, c.head_dim, ctx_len, (PairOrder::HalfSplit, &device))?,
            cache: KvCache::new(c.kv_heads, ctx_len, c.head_dim, &device)?,
            config: c,
            target,
        })
    }

    /// Bytes of the module's own matrices, the shared ones not counted.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.project.bytes() + self.block.bytes()
    }

    /// Bytes of KV cache per slot.
    #[must_use]
    pub fn kv_bytes_per_slot(&self) -> u64 {
        KvCache::bytes_per_position(self.config.kv_heads, self.config.head_dim)
    }

    fn run(&mut self, tokens: &[TokenId], hidden: &Rows) -> Result<Forward, ModelError> {
        let d = self.config.d_model;
        let embedded = self.embedding_norm.forward(&self.target.embed(tokens)?)?;
        let states = self.hidden_norm.forward(&to_tensor(hidden, self.target.device())?)?;
        let z = self.project.forward(&Tensor::cat(&[embedded, states], 1)?)?; // [m, 2d] -> [m, d]
        let x = self.block.forward(&z, &self.config, (&self.rope, None), &mut self.cache)?;
        let y = self.norm.forward(&x)?; // [m, d]
        let last = y.narrow(0, tokens.len() - 1, 1)?.contiguous()?;
        let logits = self.head.forward(&last)?.flatten_all()?.to_vec1::<f32>()?;
        let hidden = y.flatten_all()?.to_vec1::<f32>()?;
        Ok(Forward { logits: Rows::new(logits, self.vocab.len()), hidden: Rows::new(hidden, d), stats: Vec::new() })
    }
}

impl MtpModule for CandleMtp {
    fn len(&self) -> usize {
        self.cache.len()
    }

    fn forward(&mut self, tokens: &[TokenId], hidden: &Rows) -> Result<Forward, ModelError> {
        if tokens.is_empty() || tokens.len() != hidden.len() {
            return Err(ModelError::Unsupported(format!(
                "an MTP pass needs one hidden row per token, got {} rows for {} tokens",
                hidden.len(),
                tokens.len()
            )));
        }
        let before = self.cache.len();
        let result = self.run(tokens, hidden);
        if result.is_err() {
            self.cache.truncate(before);
        }
        result
    }

    fn truncate(&mut self, len: usize) -> Result<(), ModelError> {
        let have = self.cache.len();
        if len > have {
            return Err(ModelError::Rewind { len, have, since: 0 });
        }
        self.cache.truncate(len);
        Ok(())
    }

    fn draft_vocab(&self) -> &[TokenId] {
        &self.vocab
    }

    /// Tensors are shared; only the cache is copied.
    fn fork(&self) -> Result<Box<dyn MtpModule>, ModelError> {
        Ok(Box::new(Self {
            target: Arc::clone(&self.target),
            config: self.config.clone(),
            embedding_norm: self.embedding_norm.clone(),
            hidden_norm: self.hidden_norm.clone(),
            project: self.project.clone(),
            block: self.block.clone(),
            norm: self.norm.clone(),
            head: self.head.clone(),
            vocab: self.vocab.clone(),
            rope: self.rope.clone(),
            cache: self.cache.copy()?,
        }))
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

    fn norm(&self, name: &str, config: &LlamaConfig) -> Result<RmsNorm, ModelError> {
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
