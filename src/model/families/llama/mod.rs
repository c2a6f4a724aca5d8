//! A target of the Llama kind (Llama, Qwen3) on candle: its weights, and what its blocks compute.
//!
//! Invariant: weights do not change after loading. Passes, caches and rollback are those of every
//! [stack](crate::model::nn::Transformer).

mod config;
mod load;
pub(in crate::model) mod mimo;
mod plan;

use std::sync::Arc;

use candle_core::Tensor;

use crate::model::ModelError;
use crate::model::nn::{
    Activation, Block, BlockPass, KvCache, PassRows, Rope, Tensors, Transformer, TransformerModel, Trunk,
};

pub use self::config::{LLAMA, LlamaConfig, LlamaFamily, MIMO, QWEN2, QWEN3};

/// Weights of a target; shared by its forks and by an MTP module.
pub struct LlamaWeights {
    pub(in crate::model) trunk: Arc<Trunk<Block>>,
    rope: Rope,
}

impl LlamaWeights {
    /// Reads all tensors. `progress` is called with ("target", blocks read, number of blocks).
    ///
    /// # Errors
    /// If a tensor is missing, has a wrong shape or is damaged.
    pub(in crate::model) fn load(
        tensors: &Tensors<'_>,
        ctx_len: usize,
        progress: &mut dyn FnMut(&str, u64, u64),
    ) -> Result<Self, ModelError> {
        let c = tensors.config;
        let trunk = Arc::new(Trunk::read(tensors, |layer| block(tensors, layer), progress)?);
        Ok(Self { trunk, rope: Rope::new(&c.rope, c.head_dim, ctx_len, (c.pairs, tensors.device))? })
    }
}

impl Transformer for LlamaWeights {
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

/// Reads a block of the target, or of a module.
fn block(tensors: &Tensors<'_>, layer: usize) -> Result<Block, ModelError> {
    let (c, own) = (tensors.config, tensors.block(layer));
    let linear = |part: &str, out, input| {
        let linear = own.linear(part, out, input)?;
        match c.conventions.qkv_bias && ["attn_q", "attn_k", "attn_v"].contains(&part) {
            true => Ok(linear.with_bias(tensors.vector(&format!("blk.{layer}.{part}.bias"), out)?)),
            false => Ok(linear),
        }
    };
    Block::read(c, (c.d_model, Activation::Silu), &linear, &|part, width| own.norm(part, width))
}

/// A target: shared weights and its own caches.
pub type Llama = TransformerModel<LlamaWeights>;
