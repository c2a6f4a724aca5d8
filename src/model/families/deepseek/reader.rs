//! Reading the tensors of DeepSeek-V3's layout.

use std::sync::Arc;

use candle_core::{DType, Tensor};

use crate::model::ModelError;
use crate::model::families::deepseek::attention::{EPS, LatentAttention, Queries};
use crate::model::families::deepseek::block::Layer;
use crate::model::families::deepseek::config::Latent;
use crate::model::families::deepseek::experts::{FeedForward, Gated, Router};
use crate::model::nn::config::TransformerConfig;
use crate::model::nn::matmul_backend::{MatmulBackend, Tensors};
use crate::model::options::WeightType;

/// Reads tensors by name.
pub(super) struct Reader<'a> {
    pub(super) tensors: Tensors<'a>,
    pub(super) config: &'a TransformerConfig,
    pub(super) latent: &'a Latent,
}

impl Reader<'_> {
    /// A layer of the target, or of a draft module, which always has experts.
    pub(super) fn layer(&self, layer: usize) -> Result<Layer, ModelError> {
        let (d, name) = (self.config.d_model, |part: &str| format!("blk.{layer}.{part}"));
        Ok(Layer {
            attention_norm: self.tensors.norm(&name("attn_norm.weight"), d)?,
            attention: self.attention(layer)?,
            ffn_norm: self.tensors.norm(&name("ffn_norm.weight"), d)?,
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
            Some(rank) if self.tensors.source.has(&name("attn_q_a")) || !self.tensors.source.has(&name("attn_q")) => {
                Queries::Squeezed(
                    self.tensors.linear(&name("attn_q_a"), rank, d)?,
                    self.tensors.norm_of(&name("attn_q_a_norm"), rank, EPS)?,
                    self.tensors.linear(&name("attn_q_b"), width, rank)?,
                )
            }
            Some(rank) => {
                return Err(ModelError::Metadata(format!(
                    "'q_lora_rank' is {rank} and layer {layer} has one matrix for queries ('q_proj')"
                )));
            }
            None if self.tensors.source.has(&name("attn_q_a")) => {
                return Err(ModelError::Metadata(format!(
                    "'q_lora_rank' is not set and layer {layer} squeezes its queries ('q_a_proj')"
                )));
            }
            None => Queries::Direct(self.tensors.linear(&name("attn_q"), width, d)?),
        };
        let (to_keys, to_values) = self.unfolding(&name("attn_kv_b"))?;
        Ok(LatentAttention {
            shape,
            queries,
            kv: self.tensors.linear(&name("attn_kv_a_mqa"), shape.rank + shape.rotary, d)?,
            kv_norm: self.tensors.norm_of(&name("attn_kv_a_norm"), shape.rank, EPS)?,
            to_keys,
            to_values,
            out: self.tensors.linear(&name("attn_output"), d, shape.heads * shape.value)?,
        })
    }

    /// What makes keys and values out of latents, f32: `[heads, plain, rank]` and `[heads, rank, value]`.
    fn unfolding(&self, name: &str) -> Result<(Tensor, Tensor), ModelError> {
        let a = &self.latent.attention;
        let shape = [a.heads * (a.plain + a.value), a.rank];
        let both = self.tensors.source.stored(name, &shape)?.to_tensor(&shape, DType::F32, self.tensors.device)?;
        self.tensors.source.release(name);
        let both = both.reshape((a.heads, a.plain + a.value, a.rank))?;
        let keys = both.narrow(1, 0, a.plain)?.contiguous()?;
        let values = both.narrow(1, a.plain, a.value)?.transpose(1, 2)?.contiguous()?;
        Ok((keys, values))
    }

    fn experts(&self, layer: usize) -> Result<FeedForward, ModelError> {
        let (d, shape) = (self.config.d_model, self.latent.experts);
        let router = format!("blk.{layer}.ffn_gate_inp.weight");
        // scores decide, so they are never rounded
        let weight = match &self.tensors.backend {
            MatmulBackend::Candle(_) => self.tensors.linear_as(&router, [shape.count, d], WeightType::F32)?,
            MatmulBackend::Kernels(_) => self.tensors.linear(&router, shape.count, d)?,
        };
        let bias = self.tensors.source.vector(&format!("blk.{layer}.exp_probs_b.bias"), shape.count)?;
        let experts = (0..shape.count).map(|expert| self.gated(layer, &format!(".{expert}"), shape.width));
        let experts = Arc::new(experts.collect::<Result<Vec<_>, _>>()?);
        let shared = match shape.shared {
            0 if self.tensors.source.has(&format!("blk.{layer}.ffn_up_shexp.weight")) => {
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
            gate: self.tensors.linear(&name("ffn_gate"), width, d)?,
            up: self.tensors.linear(&name("ffn_up"), width, d)?,
            down: self.tensors.linear(&name("ffn_down"), d, width)?,
        })
    }
}
