//! A target of the Llama kind (Llama, Qwen3) on candle: its weights, and what its blocks make of rows.
//!
//! Invariant: weights do not change once they are read. Passes, caches and taking back are those of every
//! [stack](crate::model::nn::transformer).

mod config;
mod load;
pub(in crate::model) mod mimo;

pub use self::config::{LLAMA, LlamaConfig, LlamaFamily, MIMO, QWEN2, QWEN3};
use crate::model::nn::embedding::SharedTarget;

use candle_core::{Device, Tensor};

use crate::model::ModelError;
use crate::model::files::source::Source;
use crate::model::nn::block::{Block, Place, Rope};
use crate::model::nn::config::TransformerConfig;
use crate::model::nn::embedding::Embedding;
use crate::model::nn::embedding::ids;
use crate::model::nn::kv_cache::KvCache;
use crate::model::nn::linear::Linear;
use crate::model::nn::matmul_backend::{MatmulBackend, Tensors};
use crate::model::nn::norm::RmsNorm;
use crate::model::nn::streams::Streams;
use crate::model::nn::transformer::{PassSpec, Transformer, TransformerModel};
use crate::model::options::WeightType;
use crate::protocol::TokenId;

/// Weights of a target; shared by its forks and by an MTP module.
pub struct LlamaWeights {
    /// Sizes.
    pub config: TransformerConfig,
    device: Device,
    embedding: Linear, // [v, d]
    head: Linear,      // [v, d]; the embedding again when tied
    blocks: Vec<Block>,
    norm: RmsNorm,
    rope: Rope,
}

impl LlamaWeights {
    /// Reads all tensors. `progress` hears (blocks read, blocks in all).
    ///
    /// # Errors
    /// When a tensor is missing, misshapen or damaged.
    pub fn load(
        source: &Source,
        config: &TransformerConfig,
        ctx_len: usize,
        weight_type: WeightType,
        device: &Device,
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<Self, ModelError> {
        let backend = MatmulBackend::Candle(weight_type);
        let reader = Reader { tensors: Tensors::new(source, (backend, device), config), config };
        let [embedding, head] = reader.tensors.embedding_and_head(config)?;
        let mut blocks = Vec::with_capacity(config.layers);
        for layer in 0..config.layers {
            progress(layer, config.layers);
            blocks.push(reader.block(layer)?);
        }
        progress(config.layers, config.layers);
        let norm = reader.tensors.norm("output_norm.weight", config.d_model)?;
        let rope = Rope::new(&config.rope, config.head_dim, ctx_len, (config.pairs, device))?;
        Ok(Self { device: device.clone(), embedding, head, blocks, norm, rope, config: config.clone() })
    }

    /// Where the weights lie.
    #[must_use]
    pub fn device(&self) -> &Device {
        &self.device
    }
}

impl Embedding for LlamaWeights {
    fn device(&self) -> &Device {
        &self.device
    }

    fn embed(&self, tokens: &[TokenId]) -> Result<Tensor, ModelError> {
        self.embedding.rows(&ids(tokens, self.config.vocab, &self.device)?)
    }
}

impl SharedTarget for LlamaWeights {
    fn config(&self) -> &TransformerConfig {
        &self.config
    }

    fn head(&self) -> Linear {
        self.head.clone()
    }
}

impl Transformer for LlamaWeights {
    fn config(&self) -> &TransformerConfig {
        &self.config
    }

    fn bytes(&self) -> u64 {
        let head = if self.config.tied { 0 } else { self.head.bytes() };
        self.embedding.bytes() + head + self.blocks.iter().map(Block::bytes).sum::<u64>()
    }

    fn caches(&self, ctx_len: usize) -> Result<Vec<KvCache>, ModelError> {
        let c = &self.config;
        (0..c.layers).map(|_| KvCache::new(c.kv_heads, ctx_len, c.head_dim, &self.device)).collect()
    }

    fn forward_layers(
        &self,
        (_, mut x): (&[TokenId], Tensor),
        course: PassSpec<'_>,
        caches: &mut [KvCache],
        streams: &mut Streams<'_>,
    ) -> Result<Tensor, ModelError> {
        let place = Place { rope: &self.rope, tree: course.tree, at: None };
        for (index, (block, cache)) in self.blocks.iter().zip(caches).take(course.layers).enumerate() {
            x = block.forward(&x, &self.config, place, cache)?;
            streams.keep(index + 1, &x);
        }
        Ok(x)
    }

    fn normed(&self, x: &Tensor) -> Result<Tensor, ModelError> {
        self.norm.forward(x)
    }

    fn logits(&self, normed: &Tensor) -> Result<Tensor, ModelError> {
        self.head.forward(normed)
    }
}

/// Reads tensors by name.
pub(in crate::model) struct Reader<'a> {
    pub(in crate::model) tensors: Tensors<'a>,
    pub(in crate::model) config: &'a TransformerConfig,
}

impl Reader<'_> {
    pub(in crate::model) fn block(&self, layer: usize) -> Result<Block, ModelError> {
        let c = self.config;
        let biased = |name: &str, out: usize| -> Result<Linear, ModelError> {
            let linear = self.tensors.linear(&format!("blk.{layer}.{name}.weight"), out, c.d_model)?;
            if !c.conventions.qkv_bias {
                return Ok(linear);
            }
            Ok(linear.with_bias(self.tensors.vector(&format!("blk.{layer}.{name}.bias"), out)?))
        };
        let linear = |name: &str, out, input| self.tensors.linear(&format!("blk.{layer}.{name}.weight"), out, input);
        let norm = |name: &str, width| self.tensors.norm(&format!("blk.{layer}.{name}.weight"), width);
        Ok(Block {
            attn_norm: norm("attn_norm", c.d_model)?,
            q: biased("attn_q", c.q_width())?,
            k: biased("attn_k", c.kv_width())?,
            v: biased("attn_v", c.kv_width())?,
            o: linear("attn_output", c.d_model, c.q_width())?,
            head_norms: match c.conventions.qk_norm {
                true => Some([norm("attn_q_norm", c.head_dim)?, norm("attn_k_norm", c.head_dim)?]),
                false => None,
            },
            ffn_norm: norm("ffn_norm", c.d_model)?,
            gate: linear("ffn_gate", c.ffn, c.d_model)?,
            up: linear("ffn_up", c.ffn, c.d_model)?,
            down: linear("ffn_down", c.d_model, c.ffn)?,
        })
    }
}

/// A target: shared weights and its own caches.
pub type Llama = TransformerModel<LlamaWeights>;
