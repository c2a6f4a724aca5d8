//! Gemma 4 without experts (E2B, E4B, 12B, 31B), matrices on candle or on the native kernels: sliding layers between full
//! ones, each kind with heads and rotary positions of its own; the last layers of the small ones read the keys and
//! values of others, and every layer has an embedding of its own for each token. Its assistants are in `assistant`.
//!
//! Invariant: layers without a cache read that of the last layer of their kind before the shared ones. Sliding layers keep
//! all positions, so that any length can be cut back to, and see the last ones. Passes, caches and taking back are those of
//! every [stack](crate::model::nn::transformer).

pub mod assistant;
mod config;
mod family;
mod keys;
mod layer;
mod load;
mod names;
mod reader;

use crate::model::shared_kv::Reach;
use crate::model::shared_kv::SharedKv;
use crate::model::shared_kv::SharedLayer;
use candle_core::{Device, Tensor};

use crate::model::ModelError;
use crate::model::families::gemma4::layer::{Layer, RowsAt};
use crate::model::families::gemma4::reader::Reader;
use crate::model::files::source::Source;
use crate::model::nn::block::Rope;
use crate::model::nn::config::TransformerConfig;
use crate::model::nn::embedding::Embedding;
use crate::model::nn::embedding::ids;
use crate::model::nn::kv_cache::KvCache;
use crate::model::nn::linear::Linear;
use crate::model::nn::matmul_backend::{MatmulBackend, Tensors};
use crate::model::nn::norm::RmsNorm;
use crate::model::nn::rope::PairOrder;
use crate::model::nn::streams::Streams;
use crate::model::nn::transformer::{PassSpec, Transformer, TransformerModel};
use crate::model::options::WeightType;
use crate::protocol::TokenId;

pub use self::config::{Gemma, Gemma4Config, LayerShape, PerLayer};
pub use self::family::Gemma4Family;
use self::names::{TABLE, part};

/// The embeddings of a token for each layer.
struct PerLayerTable {
    width: usize,
    /// `[v, layers · width]`
    table: Linear,
    /// `[layers · width, d]`
    project: Linear,
    norm: RmsNorm,
}

/// Weights of a target; shared by its forks and read by its assistant.
pub struct Gemma4Weights {
    /// Sizes.
    pub config: TransformerConfig,
    gemma: Gemma,
    device: Device,
    embedding: Linear, // [v, d]
    head: Linear,      // [v, d]; the embedding again when tied
    per_layer: Option<PerLayerTable>,
    layers: Vec<Layer>,
    norm: RmsNorm,
    ropes: [Rope; 2], // of sliding layers and of full ones
}

impl Gemma4Weights {
    /// Reads all tensors of the text model. `progress` hears (layers read, layers in all).
    ///
    /// # Errors
    /// When a tensor is missing, misshapen or damaged.
    pub fn load(
        (source, config): (&Source, &Gemma4Config),
        ctx_len: usize,
        (backend, device): (MatmulBackend, &Device),
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<Self, ModelError> {
        let Gemma4Config { transformer: config, gemma } = config.clone();
        let reader =
            Reader { tensors: Tensors::new(source, (backend, device), &config), config: &config, gemma: &gemma };
        // before embedding and head where there is one: it is larger
        let per_layer = match gemma.per_layer {
            None => None,
            Some(of) => {
                let width = config.layers * of.width;
                Some(PerLayerTable {
                    width: of.width,
                    // it stays as it is stored, since rows of it are looked up and nothing else
                    table: reader.tensors.linear_as(TABLE, [of.vocab, width], WeightType::Stored)?,
                    project: reader.tensors.linear("per_layer_model_proj.weight", width, config.d_model)?,
                    norm: reader.tensors.norm("per_layer_proj_norm.weight", of.width)?,
                })
            }
        };
        let [embedding, head] = reader.tensors.embedding_and_head(&config)?;
        let mut layers = Vec::with_capacity(config.layers);
        for layer in 0..config.layers {
            progress(layer, config.layers);
            layers.push(reader.layer(layer)?);
        }
        progress(config.layers, config.layers);
        let norm = reader.tensors.norm("output_norm.weight", config.d_model)?;
        let ropes = ropes(&gemma, ctx_len, device)?;
        Ok(Self { device: device.clone(), embedding, head, per_layer, layers, norm, ropes, gemma, config })
    }

    /// What each layer adds of these tokens, `[m, layers · width]`: half from a table, half worked out of the embedding.
    fn per_layer(&self, tokens: &[TokenId], embedded: &Tensor) -> Result<Option<Tensor>, ModelError> {
        let Some(of) = &self.per_layer else {
            return Ok(None);
        };
        let (m, layers, d) = (tokens.len(), self.layers.len(), self.config.d_model);
        let looked_up = (of.table.rows(&ids(tokens, self.config.vocab, &self.device)?)? * (of.width as f64).sqrt())?;
        let projected = (of.project.forward(embedded)? * (1.0 / (d as f64).sqrt()))?;
        let normed = of.norm.forward(&projected.reshape((m * layers, of.width))?)?;
        let both = (normed.reshape((m, layers * of.width))? + looked_up)?;
        Ok(Some((both * std::f64::consts::FRAC_1_SQRT_2)?))
    }

    fn rope(&self, reach: Reach) -> &Rope {
        &self.ropes[usize::from(reach == Reach::Full)]
    }
}

/// Angles of both kinds of layers; one position more than the context, for assistants that stand one further, and as
/// many as drafts may go on.
fn ropes(gemma: &Gemma, ctx_len: usize, device: &Device) -> Result<[Rope; 2], ModelError> {
    let positions = ctx_len + 1 + usize::from(crate::protocol::MAX_DRAFT_LEN);
    let rope = |reach, spec| {
        let width = gemma.layers.iter().find(|layer| layer.reach == reach).map_or(2, |layer| layer.head_dim);
        Rope::new(spec, width, positions, (PairOrder::HalfSplit, device))
    };
    Ok([rope(Reach::Sliding, &gemma.sliding_rope)?, rope(Reach::Full, &gemma.full_rope)?])
}

impl Embedding for Gemma4Weights {
    fn device(&self) -> &Device {
        &self.device
    }

    /// Scaled, as the layers read it.
    fn embed(&self, tokens: &[TokenId]) -> Result<Tensor, ModelError> {
        Ok((self.embedding.rows(&ids(tokens, self.config.vocab, &self.device)?)?
            * (self.config.d_model as f64).sqrt())?)
    }
}

impl Transformer for Gemma4Weights {
    fn config(&self) -> &TransformerConfig {
        &self.config
    }

    fn bytes(&self) -> u64 {
        let embedding = if self.config.tied { 0 } else { self.embedding.bytes() };
        embedding + self.per_layer.as_ref().map_or(0, |of| of.table.bytes()) + self.pass_bytes()
    }

    fn pass_bytes(&self) -> u64 {
        let per_layer = self.per_layer.as_ref().map_or(0, |of| of.project.bytes());
        self.head.bytes() + per_layer + self.layers.iter().map(Layer::bytes).sum::<u64>()
    }

    fn caches(&self, ctx_len: usize) -> Result<Vec<KvCache>, ModelError> {
        let keeping = self.layers.iter().filter(|layer| layer.kv.is_some());
        let cache = |layer: &Layer| KvCache::new(layer.shape.kv_heads, ctx_len, layer.shape.head_dim, &self.device);
        keeping.map(cache).collect()
    }

    fn forward_layers(
        &self,
        (tokens, mut x): (&[TokenId], Tensor),
        course: PassSpec<'_>,
        caches: &mut [KvCache],
        streams: &mut Streams<'_>,
    ) -> Result<Tensor, ModelError> {
        let per_layer = self.per_layer(tokens, &x)?;
        for (index, layer) in self.layers.iter().enumerate().take(course.layers) {
            let lacking = || ModelError::Unsupported("a layer without keys and values".into());
            let cache = self.gemma.cache_read_by(index).and_then(|at| caches.get_mut(at)).ok_or_else(lacking)?;
            let rope = self.rope(layer.shape.reach);
            let place = RowsAt { rope, tree: course.tree, start: course.base, window: self.gemma.window };
            let own = match (&per_layer, self.gemma.per_layer) {
                (Some(all), Some(of)) => Some(all.narrow(1, index * of.width, of.width)?),
                _ => None,
            };
            x = layer.forward(&x, place, own.as_ref(), cache)?;
            streams.keep(index + 1, &x);
        }
        Ok(x)
    }

    fn normed(&self, x: &Tensor) -> Result<Tensor, ModelError> {
        self.norm.forward(x)
    }

    fn logits(&self, normed: &Tensor) -> Result<Tensor, ModelError> {
        let logits = self.head.forward(normed)?;
        Ok(match self.gemma.softcap {
            Some(cap) => ((logits / f64::from(cap))?.tanh()? * f64::from(cap))?,
            None => logits,
        })
    }

    fn shared_kv(&self, caches: &[KvCache], len: usize) -> Result<Option<SharedKv>, ModelError> {
        let layer = |reach| -> Result<Option<SharedLayer>, ModelError> {
            let index = self.gemma.lender(reach).and_then(|layer| self.gemma.cache_read_by(layer));
            let cache = index.and_then(|index| caches.get(index));
            cache.map(|cache| cache.prefix(len).map(SharedLayer::from)).transpose()
        };
        Ok(Some(SharedKv::new(layer(Reach::Sliding)?, layer(Reach::Full)?, len)))
    }
}

/// A target: shared weights and its own caches.
pub type Gemma4 = TransformerModel<Gemma4Weights>;
