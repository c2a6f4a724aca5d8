//! Reading the tensors of DeepSeek-V3's layout.

use std::ops::Range;

use crate::ModelError;
use crate::families::deepseek::attention::{EPS, LatentAttention, Queries};
use crate::families::deepseek::block::Layer;
use crate::families::deepseek::config::Latent;
use crate::nn::{Activation, FeedForward, HeadMatrix, HeadShape, Tensors};

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
        let [to_keys, to_values] = self.unfolding(layer)?;
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

    /// The matrices that turn queries into latents, and latents into values: as llama.cpp's converter splits them, keys
    /// transposed, or in one tensor, as in checkpoints.
    fn unfolding(&self, layer: usize) -> Result<[HeadMatrix; 2], ModelError> {
        let (a, own) = (&self.latent.attention, self.tensors.block(layer));
        let shape = |out, input| HeadShape { heads: a.heads, out, input };
        let (keys, values) = (shape(a.rank, a.plain), shape(a.value, a.rank));
        if own.has("attn_k_b") {
            let read = |part: &str, shape: HeadShape| -> Result<HeadMatrix, ModelError> {
                let name = own.name(part);
                if self.tensors.is_unread() {
                    return self.tensors.unread_heads(&name, &[shape.heads, shape.out, shape.input]);
                }
                let stored = self.tensors.source.stored(&name, &[shape.heads, shape.out, shape.input])?;
                let matrix = self.tensors.head_matrix(stored, &name, shape)?;
                self.tensors.source.release(&name);
                Ok(matrix)
            };
            return Ok([read("attn_k_b", keys)?, read("attn_v_b", values)?]);
        }
        let (name, width) = (own.name("attn_kv_b"), a.plain + a.value);
        if self.tensors.is_unread() {
            let both = || self.tensors.unread_heads(&name, &[a.heads * width, a.rank]);
            return Ok([both()?, both()?]);
        }
        let both = self.tensors.source.stored(&name, &[a.heads * width, a.rank])?;
        let rows = |of: Range<usize>| {
            let rows: Vec<usize> =
                (0..a.heads).flat_map(|head| of.clone().map(move |row| head * width + row)).collect();
            both.rows([a.heads * width, a.rank], &rows)
        };
        let of_keys = rows(0..a.plain)?.transposed(a.heads, [a.plain, a.rank])?;
        let [keys, values] = [(of_keys, keys), (rows(a.plain..width)?, values)]
            .map(|(stored, shape)| self.tensors.head_matrix(stored, &name, shape));
        self.tensors.source.release(&name);
        Ok([keys?, values?])
    }
}
