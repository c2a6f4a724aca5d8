//! Reading a block of a target, or of its draft module.

use crate::ModelError;
use crate::families::llama_moe::config::MoeConfig;
use crate::nn::{Activation, Block, FeedForward, Tensors};

/// A block; those of a draft module follow the target's and have experts.
pub(super) fn block(tensors: &Tensors<'_>, config: &MoeConfig, layer: usize) -> Result<Block, ModelError> {
    let (c, own) = (tensors.config, tensors.block(layer));
    let linear = |part: &str, out, input| {
        let linear = own.linear(part, out, input)?;
        match c.conventions.qkv_bias && ["attn_q", "attn_k", "attn_v"].contains(&part) {
            true => Ok(linear.with_bias(tensors.vector(&format!("blk.{layer}.{part}.bias"), out)?)),
            false => Ok(linear),
        }
    };
    // GGUF files of GLM-4.5 have another name for the norm before the feed-forward part
    let norm = |part: &str, width| match part == "ffn_norm" && !own.has(part) && own.has("post_attention_norm") {
        true => own.norm("post_attention_norm", width),
        false => own.norm(part, width),
    };
    let feed_forward = || match layer < config.dense_layers {
        true => own.gated("", c.ffn, Activation::Silu).map(FeedForward::Dense),
        false => config.experts.read(tensors, layer),
    };
    Block::with_feed_forward((c, c.d_model), &linear, &norm, &feed_forward)
}
