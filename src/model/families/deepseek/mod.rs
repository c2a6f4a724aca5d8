//! DeepSeek-V3's layout, which GLM-4.7-Flash shares: latent attention, dense layers and then layers of experts, and a
//! stack of draft modules of its own. Matrices run on candle or on the native kernels.
//!
//! Invariant: what is kept of a position is its latent row, which is cut back like any other key; passes, caches and taking
//! back are those of every [stack](crate::model::nn::transformer).

mod attention;
mod block;
mod config;
mod experts;
mod module;
mod names;
mod reader;

use candle_core::{Device, Tensor};

use crate::model::ModelError;
use crate::model::drafters::mtp::Embedding;
use crate::model::families::deepseek::block::Layer;
use crate::model::families::deepseek::reader::Reader;
use crate::model::files::source::Source;
use crate::model::nn::block::{Linear, PairOrder, Place, RmsNorm, Rope};
use crate::model::nn::config::LlamaConfig;
use crate::model::nn::kv_cache::KvCache;
use crate::model::nn::matmul_backend::{Held, Tensors};
use crate::model::nn::transformer::{Course, Stack, Stacked, ids};
use crate::model::tap::Streams;
use crate::protocol::{ModelInfo, TokenId};

pub(in crate::model) use crate::model::families::deepseek::config::LatentKeys;
pub use crate::model::families::deepseek::config::{ExpertShape, Latent, LatentShape};
pub(in crate::model) use crate::model::families::deepseek::module::{check_modules, load_modules, own_tables};
pub(in crate::model) use crate::model::families::deepseek::names::part;

/// Weights of a target; shared by its forks and by its draft modules.
pub struct DeepSeekWeights {
    /// Sizes.
    pub config: LlamaConfig,
    latent: Latent,
    device: Device,
    embedding: Linear, // [v, d]
    head: Linear,      // [v, d]; the embedding again when tied
    layers: Vec<Layer>,
    norm: RmsNorm,
    rope: Rope, // one position more than the context, for modules that stand one further
}

impl DeepSeekWeights {
    /// Reads all tensors but those of draft modules. `progress` hears (layers read, layers in all).
    ///
    /// # Errors
    /// When a tensor is missing, misshapen or damaged.
    pub fn load(
        source: &Source,
        ctx_len: usize,
        (held, device): (Held, &Device),
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<Self, ModelError> {
        let config = source.config()?;
        let other = || ModelError::Unsupported("this model has no latent attention".into());
        let latent = config.latent.clone().ok_or_else(other)?;
        let reader =
            Reader { tensors: Tensors::new(source, (held, device), &config), config: &config, latent: &latent };
        let [embedding, head] = reader.tensors.embedding_and_head(&config)?;
        let mut layers = Vec::with_capacity(config.layers);
        for layer in 0..config.layers {
            progress(layer, config.layers);
            layers.push(reader.layer(layer)?);
        }
        progress(config.layers, config.layers);
        let norm = reader.tensors.norm("output_norm.weight", config.d_model)?;
        let order = if latent.attention.interleaved { PairOrder::Interleaved } else { PairOrder::HalfSplit };
        let rope = Rope::new(&config.rope, latent.attention.rotary, ctx_len + 1, (order, device))?;
        Ok(Self { device: device.clone(), embedding, head, layers, norm, rope, latent, config })
    }
}

impl Embedding for DeepSeekWeights {
    fn device(&self) -> &Device {
        &self.device
    }

    fn embed(&self, tokens: &[TokenId]) -> Result<Tensor, ModelError> {
        self.embedding.rows(&ids(tokens, self.config.vocab, &self.device)?)
    }
}

impl Stack for DeepSeekWeights {
    fn config(&self) -> &LlamaConfig {
        &self.config
    }

    fn bytes(&self) -> u64 {
        let head = if self.config.tied { 0 } else { self.head.bytes() };
        self.embedding.bytes() + head + self.layers.iter().map(Layer::bytes).sum::<u64>()
    }

    fn describe(&self, info: &mut ModelInfo) {
        info.unfolded_kv_bytes_per_token = 4 * (self.layers.len() * self.latent.unfolded()) as u64;
    }

    fn caches(&self, ctx_len: usize) -> Result<Vec<KvCache>, ModelError> {
        self.layers.iter().map(|layer| layer.cache(ctx_len, &self.device)).collect()
    }

    fn through(
        &self,
        (_, mut x): (&[TokenId], Tensor),
        course: Course<'_>,
        caches: &mut [KvCache],
        streams: &mut Streams<'_>,
    ) -> Result<Tensor, ModelError> {
        let place = Place { rope: &self.rope, tree: course.tree, at: None };
        for (index, (layer, cache)) in self.layers.iter().zip(caches).take(course.layers).enumerate() {
            x = layer.forward(&x, place, cache)?;
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

/// A target: shared weights and its own caches.
pub type DeepSeek = Stacked<DeepSeekWeights>;

#[cfg(test)]
mod tests {
    use std::{path::Path, sync::Arc};

    use super::*;
    use crate::model::nn::block::WeightType;
    use crate::model::{LogitRows, Model, ModelSpec};

    fn opened() -> DeepSeek {
        let source =
            Source::open(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/checkpoints/deepseek")).unwrap();
        let held = (Held::Candle(WeightType::F32), &Device::Cpu);
        let weights = DeepSeekWeights::load(&source, 16, held, &mut |_, _| {}).unwrap();
        let info = source.describe(&weights.config);
        let spec =
            ModelSpec { info, ctx_len: 16, backend: "candle", device: "cpu".into(), dtype: "f32".into(), threads: 1 };
        DeepSeek::new(Arc::new(weights), spec).unwrap()
    }

    #[test]
    fn a_path_that_is_none_changes_nothing_and_one_that_fails_leaves_what_stood_before_it() {
        let mut model = opened();
        model.forward(&[TokenId(5); 3], LogitRows::All).unwrap();
        model.forward_tree(&[TokenId(7); 3], &[0, 0, 0]).unwrap();
        for (base, path) in [(7, &[][..]), (3, &[0, 3]), (3, &[2, 1]), (9, &[0])] {
            assert!(matches!(model.retain(base, path), Err(ModelError::Rewind { .. })), "{base} {path:?}");
            assert!(model.len() == 6 && model.caches.iter().all(|cache| cache.len() == 6), "{base} {path:?}");
        }
        // the second layer's cache has no such rows
        model.caches[1] = model.weights.layers[1].cache(4, &Device::Cpu).unwrap();
        let row = Tensor::zeros((1, 4, model.weights.latent.cached()), candle_core::DType::F32, &Device::Cpu).unwrap();
        model.caches[1].append(&row, &row).unwrap();
        model.retain(3, &[0, 2]).unwrap_err();
        assert!(model.len() == 3 && model.caches.iter().all(|cache| cache.len() == 3));
    }
}
