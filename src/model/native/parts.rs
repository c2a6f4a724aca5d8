//! Which plans run whole on this backend, and the pieces of their layers.
//!
//! Invariant: whatever a plan asks for beyond these pieces is an error that names it, never left out.

use crate::model::nn::PairOrder;
use crate::model::plan::{
    Attention, Feed, GatedFeed, HeadNorm, Join, Keys, KeysAndValues, Layer, Matrix, Mixer, Norm, Over, Plan,
};

/// Whether whole passes of this plan run here; else its matrices do.
pub(in crate::model) fn runs(plan: &Plan) -> bool {
    let sizes = |layer: &Layer| {
        let LayerParts { attention, feed, .. } = LayerParts::of(layer).ok()?;
        Some((attention.heads, attention.kv_heads, attention.key_width, feed.width()))
    };
    let first = plan.layers.first().and_then(sizes);
    let Some((_, _, head_dim, _)) = first else { return false };
    plan.layers.iter().all(|layer| sizes(layer) == first)
        && plan.angles.iter().all(|angles| angles.width == head_dim)
        && plan.embedding.by_layer.is_none()
        && plan.end.scale == 1.0
        && [&plan.embedding.table, plan.head()].into_iter().all(|matrix| name_of(matrix).is_ok())
}

/// The tensor that a matrix is, without a bias.
///
/// # Errors
/// What it is instead.
pub(super) fn name_of(matrix: &Matrix) -> Result<&str, &'static str> {
    match matrix.stored.as_slice() {
        [rows] if rows.is_whole() => Ok(&rows.tensor.name),
        _ => Err("matrices of some rows of tensors"),
    }
}

/// The pieces of a layer.
#[derive(Clone, Copy, Debug)]
pub(super) struct LayerParts<'a> {
    pub(super) attention: &'a Attention,
    pub(super) keys: &'a KeysAndValues,
    pub(super) values: &'a Matrix,
    pub(super) pairs: PairOrder,
    /// Norms of queries and keys, head by head.
    pub(super) head_norms: Option<[&'a Norm; 2]>,
    pub(super) feed: &'a GatedFeed,
    /// Norms of what attention and the gated layer read.
    pub(super) before: [&'a Norm; 2],
    /// Norms of what they give.
    pub(super) after: Option<[&'a Norm; 2]>,
}

impl<'a> LayerParts<'a> {
    /// Those of a layer of a plan.
    ///
    /// # Errors
    /// What this backend does not compute.
    pub(super) fn of(layer: &'a Layer) -> Result<Self, &'static str> {
        let Mixer::Attention(attention) = &layer.mixer else {
            return Err("layers without keys and values of each position");
        };
        let Keys::Own(keys) = &attention.keys else { return Err("layers that read keys of others") };
        let (Some(values), None) = (&keys.v, &keys.v_norm) else { return Err("values that are keys, or are normed") };
        let Feed::Dense(feed) = &layer.feed else { return Err("layers of experts") };
        let Some(rotation) = attention.rotation else { return Err("layers without rotation") };
        let others = [&attention.o, &feed.gate, &feed.up, &feed.down];
        let odd = [
            (attention.gate.is_some(), "gated attention"),
            (!attention.sight.causal, "attention to later positions"),
            (attention.key_width != attention.value_width, "values of another width than keys"),
            (layer.token_input.is_some() || layer.output_scale.is_some(), "inputs or scales of single layers"),
            (layer.mix.scale != 1.0 || layer.fed.scale != 1.0, "scales of what layers add"),
            (others.iter().any(|matrix| matrix.bias.is_some()), "biases except those of queries, keys and values"),
        ];
        if let Some((_, what)) = odd.iter().find(|(odd, _)| *odd) {
            return Err(what);
        }
        [&attention.q, &keys.k, values].into_iter().chain(others).try_for_each(|matrix| name_of(matrix).map(drop))?;
        let head_norms = match (&attention.q_norm, &keys.k_norm) {
            (None, None) => None,
            (Some(q), Some(k)) => Some([of_heads(q)?, of_heads(k)?]),
            _ => return Err("norms of queries or keys alone"),
        };
        let (before, after) = norms([&layer.mix, &layer.fed])?;
        Ok(Self { attention, keys, values, pairs: rotation.pairs, head_norms, feed, before, after })
    }
}

fn of_heads(norm: &HeadNorm) -> Result<&Norm, &'static str> {
    match norm.over {
        Over::Head => Ok(&norm.norm),
        Over::Width => Err("norms over all heads"),
    }
}

/// Norms before and after both steps of a layer.
fn norms([mix, fed]: [&Join; 2]) -> Result<([&Norm; 2], Option<[&Norm; 2]>), &'static str> {
    let (Some(of_mix), Some(of_fed)) = (&mix.before, &fed.before) else { return Err("layers without a norm before") };
    match (&mix.after, &fed.after) {
        (None, None) => Ok(([of_mix, of_fed], None)),
        (Some(after_mix), Some(after_fed)) => Ok(([of_mix, of_fed], Some([after_mix, after_fed]))),
        _ => Err("a norm after one of a layer's two steps"),
    }
}
