//! The Llama kind (Llama, Qwen2, Qwen3) and MiMo, which has draft modules.

mod config;
mod load;
pub(crate) mod mimo;
mod plan;

use crate::ModelError;
use crate::nn::{Activation, Block, Tensors};

pub use self::config::{LLAMA, LlamaConfig, LlamaFamily, MIMO, QWEN2, QWEN3};

/// Reads a block of a module.
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
