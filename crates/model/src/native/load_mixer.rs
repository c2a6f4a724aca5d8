//! Packs the mixers of a plan's layers.

use std::sync::Arc;

use super::attention::{Adds, Attention, HeadNorms};
use super::delta::Delta;
use super::delta_state::DeltaWeights;
use super::layer::NormWeight;
use super::load::Loader;
use super::matrix::{Matrix, RowOrder};
use super::mixer::Mixer;
use super::pack::lanes;
use super::parts::{AttentionParts, MixerParts, unsupported};
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
                let (head_norms, width_norms) = self.query_norms(&parts)?;
                Ok(Mixer::Attention(Attention {
                    shape: self.shape.with_heads(parts.attention),
                    adds: match parts.keys {
                        None => Adds::Nothing,
                        Some(own) if own.v.is_none() => Adds::Keys,
                        Some(_) => Adds::KeysAndValues,
                    },
                    cache: 0,
                    qkv: self.qkv(&parts)?,
                    head_norms,
                    width_norms,
                    rule: Rule::of(parts.attention),
                    gated: parts.attention.gate.is_some(),
                }))
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

    /// Norms of queries, keys and values: head by head, or of queries and keys over all heads. Weights of those two are in the
    /// order of the rows.
    fn query_norms(&self, parts: &AttentionParts<'_>) -> Result<(HeadNorms, Option<[NormWeight; 2]>), ModelError> {
        let (order, of) = (self.order(parts), parts.attention);
        let read = |norm: Option<&plan::HeadNorm>, heads: usize| {
            let Some(plan::HeadNorm { norm, over }) = norm else { return Ok(None) };
            let len = if *over == Over::Head { of.key_width } else { heads * of.key_width };
            let stored = self.norm_numbers(norm, len)?;
            let numbers: Vec<_> = (0..len).map(|row| stored[order.stored_row(row)]).collect();
            Ok::<_, ModelError>(Some(lanes(&numbers)))
        };
        let queries = read(of.q_norm.as_ref(), of.heads)?;
        let keys = read(parts.keys.and_then(|own| own.k_norm.as_ref()), of.kv_heads)?;
        let values = parts.keys.and_then(|own| own.v_norm.as_ref());
        let values = values.map(|norm| self.norm(norm, of.value_width)).transpose()?;
        let over_all = of.q_norm.as_ref().is_some_and(|norm| norm.over == Over::Width);
        Ok(match (queries, keys) {
            (Some(queries), Some(keys)) if over_all => ([None, None, values], Some([queries, keys])),
            (queries, keys) => ([queries, keys, values], None),
        })
    }

    /// The order in which rows of queries and keys are packed.
    fn order(&self, parts: &AttentionParts<'_>) -> RowOrder {
        let head_dim = parts.attention.key_width;
        let Some(plan::Rotation { table, pairs }) = parts.attention.rotation else { return RowOrder::Stored };
        let (rotated, adjacent) =
            (self.angles.get(table).map_or(head_dim, |angles| angles.width), pairs == PairOrder::Interleaved);
        match rotated == head_dim && !adjacent {
            true => RowOrder::Stored,
            false => RowOrder::Halves { head_dim, rotated, adjacent },
        }
    }

    /// Queries, keys, values and gates below each other, as far as they are computed.
    fn qkv(&self, of: &AttentionParts<'_>) -> Result<Matrix, ModelError> {
        let turned = self.order(of);
        let mut parts = vec![(&of.attention.q, turned)];
        parts.extend(of.keys.map(|own| (&own.k, turned)));
        parts.extend(of.keys.and_then(|own| own.v.as_ref()).map(|values| (values, RowOrder::Stored)));
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
