//! Qwen3 with experts and GLM-4.5 (4.6 and 4.7 alike): blocks of the Llama kind whose feed-forward parts are experts.
//! GLM-4.5 rotates a part of each head, begins with dense layers, and brings a draft module with experts. Matrices run on
//! candle or on the native kernels.
//!
//! Invariant: weights do not change after loading. Passes, caches and rollback are those of every
//! [stack](crate::nn::Transformer).

mod config;
mod experts;
mod family;
mod names;
mod plan;
mod reader;

use std::sync::Arc;

use candle_core::Tensor;

use crate::ModelError;
use crate::nn::{Block, BlockPass, KvCache, PassRows, Rope, Tensors, Transformer, Trunk};

pub use self::config::MoeConfig;
pub use self::experts::MoeExperts;
pub use self::family::{GLM4_MOE, MoeFamily, QWEN3_MOE};

/// Weights of a target; shared by its forks and by its draft module.
pub struct MoeWeights {
    trunk: Arc<Trunk<Block>>,
    rope: Rope, // one position more than the context, for modules that stand one further
    config: MoeConfig,
}

impl MoeWeights {
    fn load(
        tensors: &Tensors<'_>,
        config: &MoeConfig,
        ctx_len: usize,
        progress: &mut dyn FnMut(&str, u64, u64),
    ) -> Result<Self, ModelError> {
        let c = tensors.config;
        let trunk = Arc::new(Trunk::read(tensors, |layer| reader::block(tensors, config, layer), progress)?);
        let rope = Rope::new(&c.rope, config.rotary, ctx_len + 1, (c.pairs, tensors.device))?;
        Ok(Self { trunk, rope, config: config.clone() })
    }
}

impl Transformer for MoeWeights {
    type Layer = Block;

    fn trunk(&self) -> &Trunk<Block> {
        &self.trunk
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
