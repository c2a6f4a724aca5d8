//! Gemma 3 (text: 270M, 1B, and the one that writes in 4B, 12B, 27B): sliding layers between full ones with rotary
//! positions of their own, normed queries and keys, norms before and after attention and feed-forward layer, an embedding
//! that is scaled, and capped scores where the file says so. Matrices run on candle or on the native kernels.
//!
//! Source: `modeling_gemma3.py` of `transformers`, `gemma3.cpp` of llama.cpp. Invariant: sliding layers keep all positions,
//! so that any length can be rolled back to, and see the last ones.

mod config;
mod family;
mod layer;
mod load;

use candle_core::{Device, Tensor};

use crate::model::ModelError;
use crate::model::files::source::Source;
use crate::model::nn::attention::CachedRows;
use crate::model::nn::block::Rope;
use crate::model::nn::config::TransformerConfig;
use crate::model::nn::embedding::{Embedding, ids};
use crate::model::nn::kv_cache::KvCache;
use crate::model::nn::linear::Linear;
use crate::model::nn::matmul_backend::{MatmulBackend, Tensors};
use crate::model::nn::norm::RmsNorm;
use crate::model::nn::rope::PairOrder;
use crate::model::nn::streams::Streams;
use crate::model::nn::transformer::{PassSpec, Transformer, TransformerModel};
use crate::model::shared_kv::Reach;
use crate::protocol::TokenId;

pub use self::config::{Gemma3Config, Layers};
pub use self::family::Gemma3Family;
use self::layer::{Layer, Reader};

/// Weights of a target; shared by its forks.
pub struct Gemma3Weights {
    config: Gemma3Config,
    device: Device,
    embedding: Linear, // [v, d]
    head: Linear,      // [v, d]; the embedding again when tied
    layers: Vec<Layer>,
    norm: RmsNorm,
    ropes: [Rope; 2], // of sliding layers and of full ones
}

impl Gemma3Weights {
    /// Reads all tensors. `progress` is called with (blocks read, blocks in all).
    ///
    /// # Errors
    /// When a tensor is missing, misshapen or damaged.
    pub fn load(
        (source, config): (&Source, &Gemma3Config),
        ctx_len: usize,
        (backend, device): (MatmulBackend, &Device),
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<Self, ModelError> {
        let c = &config.transformer;
        let reader = Reader { tensors: Tensors::new(source, (backend, device), c), config };
        let [embedding, head] = reader.tensors.embedding_and_head(c)?;
        let mut layers = Vec::with_capacity(c.layers);
        for layer in 0..c.layers {
            progress(layer, c.layers);
            layers.push(reader.layer(layer)?);
        }
        progress(c.layers, c.layers);
        let norm = reader.norm("output_norm.weight", c.d_model)?;
        let rope = |spec| Rope::new(spec, c.head_dim, ctx_len, (PairOrder::HalfSplit, device));
        let ropes = [rope(&c.rope)?, rope(&config.layers.full_rope)?];
        Ok(Self { device: device.clone(), embedding, head, layers, norm, ropes, config: config.clone() })
    }
}

impl Embedding for Gemma3Weights {
    fn device(&self) -> &Device {
        &self.device
    }

    fn embed(&self, tokens: &[TokenId]) -> Result<Tensor, ModelError> {
        let c = &self.config.transformer;
        Ok((self.embedding.rows(&ids(tokens, c.vocab, &self.device)?)? * (c.d_model as f64).sqrt())?)
    }
}

impl Transformer for Gemma3Weights {
    fn config(&self) -> &TransformerConfig {
        &self.config.transformer
    }

    fn bytes(&self) -> u64 {
        let head = if self.config.transformer.tied { 0 } else { self.head.bytes() };
        self.embedding.bytes() + head + self.layers.iter().map(Layer::bytes).sum::<u64>()
    }

    fn caches(&self, ctx_len: usize) -> Result<Vec<KvCache>, ModelError> {
        let c = &self.config.transformer;
        (0..c.layers).map(|_| KvCache::new(c.kv_heads, ctx_len, c.head_dim, &self.device)).collect()
    }

    fn forward_layers(
        &self,
        (_, mut x): (&[TokenId], Tensor),
        pass: PassSpec<'_>,
        caches: &mut [KvCache],
        streams: &mut Streams<'_>,
    ) -> Result<Tensor, ModelError> {
        let Layers { reach, window, .. } = &self.config.layers;
        for (index, (layer, cache)) in self.layers.iter().zip(caches).take(pass.layers).enumerate() {
            let (rope, window) = match reach[index] {
                Reach::Sliding => (&self.ropes[0], Some(*window)),
                Reach::Full => (&self.ropes[1], None),
            };
            let rows = CachedRows { start: pass.base, tree: pass.tree, window };
            x = layer.forward(&x, rope, rows, cache)?;
            streams.keep(index + 1, &x);
        }
        Ok(x)
    }

    fn normed(&self, x: &Tensor) -> Result<Tensor, ModelError> {
        self.norm.forward(x)
    }

    fn logits(&self, normed: &Tensor) -> Result<Tensor, ModelError> {
        let logits = self.head.forward(normed)?;
        Ok(match self.config.layers.logit_softcap {
            Some(cap) => ((logits / cap)?.tanh()? * cap)?,
            None => logits,
        })
    }
}

/// A target: shared weights and its own caches.
pub type Gemma3 = TransformerModel<Gemma3Weights>;
