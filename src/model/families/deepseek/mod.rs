//! DeepSeek-V3's layout, which GLM-4.7-Flash shares: latent attention, dense layers and then layers of experts, and a
//! stack of draft modules of its own. Matrices run on candle or on the native kernels.
//!
//! Invariant: what is kept of a position is its latent row, which is cut back like any other key; passes, caches and taking
//! back are those of every [stack](crate::model::nn::transformer).

mod attention;
mod block;
mod config;
mod experts;
mod family;
mod load;
mod module;
mod names;
mod reader;

use candle_core::{Device, Tensor};

use crate::model::ModelError;
use crate::model::families::deepseek::block::Layer;
use crate::model::families::deepseek::reader::Reader;
use crate::model::files::source::Source;
use crate::model::nn::block::{Place, Rope};
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
use crate::protocol::{ModelInfo, TokenId};

pub use self::config::{DeepSeekConfig, ExpertShape, Latent, LatentShape};
pub use self::family::{DEEPSEEK_V3, DeepSeekFamily, GLM4_MOE_LITE};

/// Weights of a target; shared by its forks and by its draft modules.
pub struct DeepSeekWeights {
    /// Sizes.
    pub config: TransformerConfig,
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
        (source, config): (&Source, &DeepSeekConfig),
        ctx_len: usize,
        (backend, device): (MatmulBackend, &Device),
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<Self, ModelError> {
        let DeepSeekConfig { transformer: config, latent } = config.clone();
        let reader =
            Reader { tensors: Tensors::new(source, (backend, device), &config), config: &config, latent: &latent };
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

impl Transformer for DeepSeekWeights {
    fn config(&self) -> &TransformerConfig {
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

    fn forward_layers(
        &self,
        (_, mut x): (&[TokenId], Tensor),
        course: PassSpec<'_>,
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
pub type DeepSeek = TransformerModel<DeepSeekWeights>;

#[cfg(test)]
mod tests {
    use std::{path::Path, sync::Arc};

    use super::*;
    use crate::model::load::OpenModel;
    use crate::model::options::WeightType;
    use crate::model::{LogitRows, Model, ModelSpec};

    fn opened() -> DeepSeek {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/checkpoints/deepseek");
        let opened = OpenModel::open(&path).unwrap();
        let config = (opened.config.as_ref() as &dyn std::any::Any).downcast_ref::<DeepSeekConfig>().unwrap();
        let on_candle = (MatmulBackend::Candle(WeightType::F32), &Device::Cpu);
        let weights = DeepSeekWeights::load((&opened.source, config), 16, on_candle, &mut |_, _| {}).unwrap();
        let info = weights.config.describe("deepseek".into(), "deepseek".into());
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
