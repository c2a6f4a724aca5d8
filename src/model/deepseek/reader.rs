//! Reading the tensors of DeepSeek-V3's layout.

use std::sync::Arc;

use candle_core::{DType, Device, Tensor};

use super::attention::{EPS, LatentAttention, Queries};
use super::block::Layer;
use super::config::Latent;
use super::experts::{FeedForward, Gated, Router};
use crate::model::ModelError;
use crate::model::block::{Linear, RmsNorm, WeightType};
use crate::model::config::LlamaConfig;
use crate::model::native::NativeLinear;
use crate::model::qwen35::Held;
use crate::model::source::Source;

/// Reads tensors by name.
pub(super) struct Reader<'a> {
    pub(super) source: &'a Source,
    pub(super) held: Held,
    pub(super) device: &'a Device,
    pub(super) config: &'a LlamaConfig,
    pub(super) latent: &'a Latent,
}

impl Reader<'_> {
    pub(super) fn linear(&self, name: &str, out: usize, input: usize) -> Result<Linear, ModelError> {
        let held = match &self.held {
            Held::Candle(held) => *held,
            Held::Native(cpu) => return NativeLinear::load(self.source, name, [out, input], cpu).map(Linear::native),
        };
        self.on_candle(name, [out, input], held)
    }

    fn on_candle(&self, name: &str, shape: [usize; 2], held: WeightType) -> Result<Linear, ModelError> {
        let linear = Linear::new(self.source.stored(name, &shape)?, shape, held, self.device)?;
        self.source.release(name);
        Ok(linear)
    }

    pub(super) fn norm(&self, name: &str, width: usize) -> Result<RmsNorm, ModelError> {
        self.norm_of(name, width, self.config.norm_eps)
    }

    fn norm_of(&self, name: &str, width: usize, eps: f32) -> Result<RmsNorm, ModelError> {
        let weight = self.source.vector(name, width)?;
        RmsNorm::new(&Tensor::from_vec(weight, width, self.device)?, eps)
    }

    /// A layer of the target, or of a draft module, which always has experts.
    pub(super) fn layer(&self, layer: usize) -> Result<Layer, ModelError> {
        let (d, name) = (self.config.d_model, |part: &str| format!("blk.{layer}.{part}"));
        Ok(Layer {
            attention_norm: self.norm(&name("attn_norm.weight"), d)?,
            attention: self.attention(layer)?,
            ffn_norm: self.norm(&name("ffn_norm.weight"), d)?,
            ffn: match layer < self.latent.dense_layers {
                true => FeedForward::Dense(self.gated(layer, "", self.config.ffn)?),
                false => self.experts(layer)?,
            },
        })
    }

    fn attention(&self, layer: usize) -> Result<LatentAttention, ModelError> {
        let (d, shape) = (self.config.d_model, self.latent.attention);
        let name = |part: &str| format!("blk.{layer}.{part}.weight");
        let width = shape.heads * (shape.plain + shape.rotary);
        let queries = match shape.q_rank {
            Some(rank) if self.source.has(&name("attn_q_a")) || !self.source.has(&name("attn_q")) => Queries::Squeezed(
                self.linear(&name("attn_q_a"), rank, d)?,
                self.norm_of(&name("attn_q_a_norm"), rank, EPS)?,
                self.linear(&name("attn_q_b"), width, rank)?,
            ),
            Some(rank) => {
                return Err(ModelError::Metadata(format!(
                    "'q_lora_rank' is {rank} and layer {layer} has one matrix for queries ('q_proj')"
                )));
            }
            None if self.source.has(&name("attn_q_a")) => {
                return Err(ModelError::Metadata(format!(
                    "'q_lora_rank' is not set and layer {layer} squeezes its queries ('q_a_proj')"
                )));
            }
            None => Queries::Direct(self.linear(&name("attn_q"), width, d)?),
        };
        let (to_keys, to_values) = self.unfolding(&name("attn_kv_b"))?;
        Ok(LatentAttention {
            shape,
            queries,
            kv: self.linear(&name("attn_kv_a_mqa"), shape.rank + shape.rotary, d)?,
            kv_norm: self.norm_of(&name("attn_kv_a_norm"), shape.rank, EPS)?,
            to_keys,
            to_values,
            out: self.linear(&name("attn_output"), d, shape.heads * shape.value)?,
        })
    }

    /// What makes keys and values out of latents, f32: `[heads, plain, rank]` and `[heads, rank, value]`.
    fn unfolding(&self, name: &str) -> Result<(Tensor, Tensor), ModelError> {
        let a = &self.latent.attention;
        let shape = [a.heads * (a.plain + a.value), a.rank];
        let both = self.source.stored(name, &shape)?.to_tensor(&shape, DType::F32, self.device)?;
        self.source.release(name);
        let both = both.reshape((a.heads, a.plain + a.value, a.rank))?;
        let keys = both.narrow(1, 0, a.plain)?.contiguous()?;
        let values = both.narrow(1, a.plain, a.value)?.transpose(1, 2)?.contiguous()?;
        Ok((keys, values))
    }

    fn experts(&self, layer: usize) -> Result<FeedForward, ModelError> {
        let (d, shape) = (self.config.d_model, self.latent.experts);
        let router = format!("blk.{layer}.ffn_gate_inp.weight");
        // scores decide, so they are never rounded
        let weight = match &self.held {
            Held::Candle(_) => self.on_candle(&router, [shape.count, d], WeightType::F32)?,
            Held::Native(_) => self.linear(&router, shape.count, d)?,
        };
        let bias = self.source.vector(&format!("blk.{layer}.exp_probs_b.bias"), shape.count)?;
        let experts = (0..shape.count).map(|expert| self.gated(layer, &format!(".{expert}"), shape.width));
        let experts = Arc::new(experts.collect::<Result<Vec<_>, _>>()?);
        let shared = match shape.shared {
            0 if self.source.has(&format!("blk.{layer}.ffn_up_shexp.weight")) => {
                return Err(ModelError::Metadata(format!(
                    "'n_shared_experts' is 0 and layer {layer} has experts that every token goes through ('shared_experts')"
                )));
            }
            0 => None,
            count => Some(self.gated(layer, "_shexp", count * shape.width)?),
        };
        Ok(FeedForward::Experts { router: Router { shape, weight, bias }, experts, shared })
    }

    fn gated(&self, layer: usize, which: &str, width: usize) -> Result<Gated, ModelError> {
        let d = self.config.d_model;
        let name = |part: &str| format!("blk.{layer}.{part}{which}.weight");
        Ok(Gated {
            gate: self.linear(&name("ffn_gate"), width, d)?,
            up: self.linear(&name("ffn_up"), width, d)?,
            down: self.linear(&name("ffn_down"), d, width)?,
        })
    }
}
