//! Reading the tensors of DeepSeek-V3's layout.

use candle_core::{DType, Tensor};

use crate::model::ModelError;
use crate::model::families::deepseek::attention::{EPS, LatentAttention, Queries};
use crate::model::families::deepseek::block::Layer;
use crate::model::families::deepseek::config::Latent;
use crate::model::nn::{Activation, FeedForward, Tensors};

/// Reads tensors by name.
#[derive(Clone, Copy)]
pub(super) struct Reader<'a> {
    pub(super) tensors: &'a Tensors<'a>,
    pub(super) latent: &'a Latent,
}

impl Reader<'_> {
    /// A layer of the target, or of a draft module, which always has experts.
    pub(super) fn layer(&self, layer: usize) -> Result<Layer, ModelError> {
        let (c, own) = (self.tensors.config, self.tensors.block(layer));
        Ok(Layer {
            attention_norm: own.norm("attn_norm", c.d_model)?,
            attention: self.attention(layer)?,
            ffn_norm: own.norm("ffn_norm", c.d_model)?,
            ffn: match layer < self.latent.dense_layers {
                true => FeedForward::Dense(own.gated("", c.ffn, Activation::Silu)?),
                false => self.latent.experts.read(self.tensors, layer)?,
            },
        })
    }

    fn attention(&self, layer: usize) -> Result<LatentAttention, ModelError> {
        let (d, shape, own) = (self.tensors.config.d_model, self.latent.attention, self.tensors.block(layer));
        let width = shape.heads * (shape.plain + shape.rotary);
        let queries = match shape.q_rank {
            Some(rank) if own.has("attn_q_a") || !own.has("attn_q") => Queries::Squeezed(
                own.linear("attn_q_a", rank, d)?,
                self.tensors.norm_of(&own.name("attn_q_a_norm"), rank, EPS)?,
                own.linear("attn_q_b", width, rank)?,
            ),
            Some(rank) => {
                return Err(ModelError::Metadata(format!(
                    "'q_lora_rank' is {rank} and layer {layer} has one matrix for queries ('q_proj')"
                )));
            }
            None if own.has("attn_q_a") => {
                return Err(ModelError::Metadata(format!(
                    "'q_lora_rank' is not set and layer {layer} squeezes its queries ('q_a_proj')"
                )));
            }
            None => Queries::Direct(own.linear("attn_q", width, d)?),
        };
        let (to_keys, to_values) = match own.has("attn_k_b") {
            true => self.unfolded(layer)?,
            false => self.unfolding(&own.name("attn_kv_b"))?,
        };
        Ok(LatentAttention {
            shape,
            queries,
            kv: own.linear("attn_kv_a_mqa", shape.rank + shape.rotary, d)?,
            kv_norm: self.tensors.norm_of(&own.name("attn_kv_a_norm"), shape.rank, EPS)?,
            to_keys,
            to_values,
            out: own.linear("attn_output", d, shape.heads * shape.value)?,
        })
    }

    /// The matrices as llama.cpp's converter splits them: keys transposed, `[heads, rank, plain]`, and values
    /// `[heads, value, rank]`.
    fn unfolded(&self, layer: usize) -> Result<(Tensor, Tensor), ModelError> {
        let (a, own) = (&self.latent.attention, self.tensors.block(layer));
        let read = |part: &str, shape: [usize; 3]| -> Result<Tensor, ModelError> {
            let (name, device) = (own.name(part), self.tensors.device);
            let tensor = self.tensors.source.stored(&name, &shape)?.to_tensor(&shape, DType::F32, device)?;
            self.tensors.source.release(&name);
            Ok(tensor.transpose(1, 2)?.contiguous()?)
        };
        Ok((read("attn_k_b", [a.heads, a.rank, a.plain])?, read("attn_v_b", [a.heads, a.value, a.rank])?))
    }

    /// The matrices that turn latents into keys and values, f32: `[heads, plain, rank]` and `[heads, rank, value]`.
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
}
