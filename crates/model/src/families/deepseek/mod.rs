//! DeepSeek-V3's layout, also used by GLM-4.7-Flash: latent attention, dense layers and then layers of experts, and a
//! stack of draft modules of its own. Matrices and attention run on candle or on the native kernels.
//!
//! Invariant: the cache of a position is its latent row, which is rolled back like any other key; passes, caches and
//! rollback are those of every [stack](crate::nn::Transformer).

mod attention;
mod block;
mod config;
mod family;
mod gguf;
mod load;
mod names;
mod plan;
mod reader;

use std::sync::Arc;

use candle_core::Tensor;

use crate::ModelError;
use crate::families::deepseek::{block::Layer, reader::Reader};
use crate::nn::{BlockPass, KvCache, PairOrder, PassRows, Rope, Tensors, Transformer, TransformerModel, Trunk};
use draftscope_protocol::ModelInfo;

pub use self::config::{DeepSeekConfig, Latent, LatentShape};
pub use self::family::{DEEPSEEK_V3, DeepSeekFamily, GLM4_MOE_LITE};

/// Weights of a target; shared by its forks and by its draft modules.
pub struct DeepSeekWeights {
    trunk: Arc<Trunk<Layer>>,
    latent: Latent,
    rope: Rope, // one position more than the context, for modules that stand one further
    /// Values of a position that keys and values of all heads would take.
    unfolded: u64,
}

impl DeepSeekWeights {
    fn load(
        tensors: &Tensors<'_>,
        config: &DeepSeekConfig,
        ctx_len: usize,
        progress: &mut dyn FnMut(&str, u64, u64),
    ) -> Result<Self, ModelError> {
        let latent = &config.latent;
        let reader = Reader { tensors, latent };
        let trunk = Arc::new(Trunk::read(tensors, |layer| reader.layer(layer), progress)?);
        let order = if latent.attention.interleaved { PairOrder::Interleaved } else { PairOrder::HalfSplit };
        let rope = Rope::new(&tensors.config.rope, latent.attention.rotary, ctx_len + 1, (order, tensors.device))?;
        Ok(Self { trunk, latent: latent.clone(), rope, unfolded: config.plan.unfolded_values() })
    }
}

impl Transformer for DeepSeekWeights {
    type Layer = Layer;

    fn trunk(&self) -> &Trunk<Layer> {
        &self.trunk
    }

    fn describe(&self, info: &mut ModelInfo) {
        info.unfolded_kv_bytes_per_token = self.trunk.form.kv_bytes() as u64 * self.unfolded;
    }

    fn caches(&self, ctx_len: usize) -> Result<Vec<KvCache>, ModelError> {
        let cache = |layer: &Layer| Ok(layer.cache(ctx_len, self.trunk.caching())?.on(self.trunk.kernels()));
        self.trunk.layers.iter().map(cache).collect()
    }

    fn forward_layer(
        &self,
        index: usize,
        (x, _): (&Tensor, Option<&Tensor>),
        rows: &PassRows,
        cache: &mut KvCache,
    ) -> Result<Tensor, ModelError> {
        self.trunk.layers[index].forward(x, BlockPass::new(&self.rope, rows), cache)
    }
}

/// A target: shared weights and its own caches.
pub type DeepSeek = TransformerModel<DeepSeekWeights>;

#[cfg(test)]
mod tests {
    use std::path::Path;

    use candle_core::Device;

    use super::*;
    use crate::load::OpenModel;
    use crate::nn::MatmulBackend;
    use crate::options::WeightType;
    use crate::{LogitRows, Model, ModelSpec};
    use draftscope_protocol::TokenId;

    fn opened() -> DeepSeek {
        let path = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).join("tests/fixtures/checkpoints/deepseek");
        let opened = OpenModel::open(&path).unwrap();
        let config = (opened.config.as_ref() as &dyn std::any::Any).downcast_ref::<DeepSeekConfig>().unwrap();
        let on_candle = (MatmulBackend::Candle(WeightType::F32), &Device::Cpu);
        let tensors = Tensors::new(&opened.source, on_candle, &config.transformer);
        let weights = DeepSeekWeights::load(&tensors, config, 16, &mut |_, _, _| {}).unwrap();
        let info = weights.trunk.config.describe("deepseek".into(), "deepseek".into());
        let spec =
            ModelSpec { info, ctx_len: 16, backend: "candle", device: "cpu".into(), dtype: "f32".into(), threads: 1 };
        DeepSeek::new(Arc::new(weights), spec).unwrap()
    }

    #[test]
    fn a_path_that_is_none_changes_nothing_and_one_that_fails_leaves_what_stood_before_it() {
        let mut model = opened();
        model.forward(&[TokenId(5); 3], LogitRows::All).unwrap();
        model.forward_tree(&[TokenId(7); 3], &[0, 0, 0], LogitRows::All).unwrap();
        for (base, path) in [(7, &[][..]), (3, &[0, 3]), (3, &[2, 1]), (9, &[0])] {
            assert!(matches!(model.retain(base, path), Err(ModelError::Rewind { .. })), "{base} {path:?}");
            assert!(model.len() == 6 && model.caches.iter().all(|cache| cache.len() == 6), "{base} {path:?}");
        }
        // the second layer's cache has no such rows
        model.caches[1] = model.weights.trunk.layers[1].cache(4, model.weights.trunk.caching()).unwrap();
        let row = Tensor::zeros(
            (1, 4, model.weights.latent.attention.rank + model.weights.latent.attention.rotary),
            candle_core::DType::F32,
            &Device::Cpu,
        )
        .unwrap();
        model.caches[1].append(&row, &row).unwrap();
        model.retain(3, &[0, 2]).unwrap_err();
        assert!(model.len() == 3 && model.caches.iter().all(|cache| cache.len() == 3));
    }
}
