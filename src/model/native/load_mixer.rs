//! Packs the mixers of a plan's layers.

use super::attention::Attention;
use super::layer::NormWeight;
use super::load::{Loader, both};
use super::matrix::{Matrix, RowOrder};
use super::mixer::Mixer;
use super::pack::lanes;
use super::parts::{AttentionParts, MixerParts};
use super::rule::Rule;
use crate::model::ModelError;
use crate::model::nn::PairOrder;
use crate::model::plan::{self, Over};

impl Loader<'_> {
    /// The mixer of a layer without its output projection.
    ///
    /// # Errors
    /// When a tensor is missing, misshapen or damaged, or of a size that the kernels do not run.
    pub(super) fn mixer(&self, of: MixerParts<'_>) -> Result<Mixer, ModelError> {
        match of {
            MixerParts::Attention(parts) => {
                let [head_norms, width_norms] = self.query_norms(&parts)?;
                let rule = Rule::of(parts.attention);
                Ok(Mixer::Attention(Attention { qkv: self.qkv(&parts)?, head_norms, width_norms, rule }))
            }
            MixerParts::Latent(latent) => Ok(Mixer::Latent(self.latent(latent)?)),
        }
    }

    /// Norms of queries and keys: head by head, or over all heads. Their weights are in the order of the rows.
    fn query_norms(&self, parts: &AttentionParts<'_>) -> Result<[Option<[NormWeight; 2]>; 2], ModelError> {
        let order = self.order(parts);
        let read = |norm: &plan::HeadNorm, heads: usize| {
            let len = if norm.over == Over::Head { self.shape.head_dim } else { heads * self.shape.head_dim };
            let stored = self.norm_numbers(&norm.norm, len)?;
            Ok::<_, ModelError>(lanes(&(0..len).map(|row| stored[order.stored_row(row)]).collect::<Vec<_>>()))
        };
        let Some([q, k]) = parts.query_norms else { return Ok([None, None]) };
        let norms = Some(both([read(q, self.shape.heads), read(k, self.shape.kv_heads)])?);
        Ok(if q.over == Over::Head { [norms, None] } else { [None, norms] })
    }

    /// The order in which rows of queries and keys are packed.
    fn order(&self, parts: &AttentionParts<'_>) -> RowOrder {
        let head_dim = self.shape.head_dim;
        let Some(plan::Rotation { table, pairs }) = parts.attention.rotation else { return RowOrder::Stored };
        let (rotated, adjacent) =
            (self.angles.get(table).map_or(head_dim, |angles| angles.width), pairs == PairOrder::Interleaved);
        match rotated == head_dim && !adjacent {
            true => RowOrder::Stored,
            false => RowOrder::Halves { head_dim, rotated, adjacent },
        }
    }

    fn qkv(&self, of: &AttentionParts<'_>) -> Result<Matrix, ModelError> {
        let turned = self.order(of);
        let parts = [(&of.attention.q, turned), (&of.keys.k, turned), (of.values, RowOrder::Stored)];
        let stored = parts.iter().map(|(part, _)| self.raw(part)).collect::<Result<Vec<_>, _>>()?;
        let packed: Vec<_> =
            stored.iter().zip(parts).map(|((raw, rows), (_, order))| raw.some(rows.0.clone(), rows.1, order)).collect();
        let mut matrix = Matrix::pack(self.cpu, of.attention.q.columns, &packed);
        if parts.iter().any(|(part, _)| part.bias.is_some()) {
            // heads are whole tiles
            let biases = parts.iter().map(|(part, order)| self.bias(part, *order));
            matrix = matrix.with_bias(&biases.collect::<Result<Vec<_>, _>>()?.concat());
        }
        parts.iter().for_each(|(part, _)| self.tensors.0.release(part.name()));
        Ok(matrix)
    }
}
