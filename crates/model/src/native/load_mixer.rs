//! Packs the mixers of a plan's layers.

use std::sync::Arc;

use super::attention::Attention;
use super::delta::Delta;
use super::delta_state::DeltaWeights;
use super::layer::NormWeight;
use super::load::{Loader, both, unsupported};
use super::matrix::{Matrix, RowOrder};
use super::mixer::Mixer;
use super::pack::lanes;
use super::parts::{AttentionParts, MixerParts};
use super::rule::Rule;
use crate::ModelError;
use crate::nn::PairOrder;
use crate::plan::{self, Over};
use draftscope_kernels::BLOCK;

impl Loader<'_> {
    /// The mixer of a layer without its output projection.
    ///
    /// # Errors
    /// When a tensor is missing, misshapen or damaged, or of a size that the kernels do not run.
    pub(super) fn mixer(&self, of: MixerParts<'_>) -> Result<Mixer, ModelError> {
        match of {
            MixerParts::Attention(parts) => {
                let [head_norms, width_norms] = self.query_norms(&parts)?;
                let (rule, gated) = (Rule::of(parts.attention), parts.attention.gate.is_some());
                Ok(Mixer::Attention(Attention { qkv: self.qkv(&parts)?, head_norms, width_norms, rule, gated }))
            }
            MixerParts::Latent(latent) => self.latent(latent).map(Mixer::Latent),
            MixerParts::Delta(delta) => self.delta(delta).map(Mixer::Delta),
        }
    }

    fn delta(&self, plan: &plan::Delta) -> Result<Delta, ModelError> {
        let width = plan.shape.value_width();
        if !width.is_multiple_of(BLOCK) {
            return Err(unsupported(format!("a recurrent layer whose values are {width} wide together")));
        }
        let [mixed, gate, alpha, beta] =
            [&plan.mixed, &plan.gate, &plan.alpha, &plan.beta].map(|matrix| self.matrix(matrix));
        let weights = DeltaWeights::read(self.tensors.0, plan)?;
        Ok(Delta { projections: [mixed?, gate?, alpha?, beta?], weights: Arc::new(weights) })
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

    /// Queries, keys, values and gates below each other.
    fn qkv(&self, of: &AttentionParts<'_>) -> Result<Matrix, ModelError> {
        let turned = self.order(of);
        let mut parts = vec![(&of.attention.q, turned), (&of.keys.k, turned), (of.values, RowOrder::Stored)];
        parts.extend(of.attention.gate.as_ref().map(|gate| (gate, RowOrder::Stored)));
        let matrix = self.stacked(&parts)?;
        if parts.iter().all(|(part, _)| part.bias.is_none()) {
            return Ok(matrix);
        }
        // heads are whole tiles
        let biases = parts.iter().map(|(part, order)| self.bias(part, *order));
        Ok(matrix.with_bias(&biases.collect::<Result<Vec<_>, _>>()?.concat()))
    }
}
