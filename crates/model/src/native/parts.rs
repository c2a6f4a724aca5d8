//! Which plans run whole on this backend, and the pieces of their layers.
//!
//! Invariant: whatever a plan asks for beyond these pieces is an error that names it, never left out.

use crate::plan::{
    Attention, Delta, Feed, GatedFeed, HeadNorm, Keys, KeysAndValues, Latent, LatentQueries, Layer, Matrix, Mixer,
    Norm, Plan, RouterInput, Rows,
};

/// Whether whole passes of this plan run here; else its matrices do.
pub(crate) fn runs(plan: &Plan) -> bool {
    let Ok(layers) = plan.layers.iter().map(LayerParts::of).collect::<Result<Vec<_>, _>>() else { return false };
    let attending = layers.iter().filter_map(|layer| match layer.mixer {
        MixerParts::Attention(AttentionParts { attention, .. }) => {
            Some([attention.heads, attention.kv_heads, attention.key_width])
        }
        MixerParts::Latent(_) | MixerParts::Delta(_) => None,
    });
    let latents = layers.iter().filter_map(|layer| match layer.mixer {
        MixerParts::Latent(latent) => Some(latent.rank + latent.rotated),
        MixerParts::Attention(_) | MixerParts::Delta(_) => None,
    });
    let widest = attending.clone().next().map_or(usize::MAX, |[_, _, head_dim]| head_dim);
    !layers.is_empty()
        && are_alike(attending)
        && are_alike(latents)
        && plan.angles.iter().all(|angles| angles.width <= widest && angles.width.is_multiple_of(2))
        && plan.embedding.by_layer.is_none()
        && [&plan.embedding.table, plan.head()]
            .into_iter()
            .all(|matrix| rows_of(matrix).is_ok() && matrix.bias.is_none())
}

fn are_alike<T: PartialEq>(mut of: impl Iterator<Item = T>) -> bool {
    let first = of.next();
    of.all(|one| Some(one) == first)
}

/// The adjacent rows of one tensor that a matrix is.
///
/// # Errors
/// What it is instead.
pub(super) fn rows_of(matrix: &Matrix) -> Result<&Rows, &'static str> {
    match matrix.stored.as_slice() {
        [rows] if rows.count == 1 || rows.step == rows.len => Ok(rows),
        _ => Err("matrices of rows that are not adjacent"),
    }
}

/// The pieces of a layer.
#[derive(Clone, Copy, Debug)]
pub(super) struct LayerParts<'a> {
    pub(super) mixer: MixerParts<'a>,
    pub(super) feed: &'a Feed,
    /// Norms of what the mixer and the feed-forward part read.
    pub(super) before: [Option<&'a Norm>; 2],
    /// Norms of what they give.
    pub(super) after: Option<[&'a Norm; 2]>,
    /// Factors of what they add.
    pub(super) scales: [f32; 2],
}

/// The pieces of a mixer.
#[derive(Clone, Copy, Debug)]
pub(super) enum MixerParts<'a> {
    Attention(AttentionParts<'a>),
    Latent(&'a Latent),
    Delta(&'a Delta),
}

/// The pieces of attention.
#[derive(Clone, Copy, Debug)]
pub(super) struct AttentionParts<'a> {
    pub(super) attention: &'a Attention,
    pub(super) keys: &'a KeysAndValues,
    pub(super) values: &'a Matrix,
    /// Norms of queries and keys, over the same.
    pub(super) query_norms: Option<[&'a HeadNorm; 2]>,
}

impl<'a> LayerParts<'a> {
    /// Those of a layer of a plan.
    ///
    /// # Errors
    /// What this backend does not compute.
    pub(super) fn of(layer: &'a Layer) -> Result<Self, &'static str> {
        let mixer = MixerParts::of(&layer.mixer)?;
        check_feed(&layer.feed)?;
        if layer.token_input.is_some() || layer.output_scale.is_some() {
            return Err("inputs or scales of single layers");
        }
        let after = match (&layer.mix.after, &layer.fed.after) {
            (None, None) => None,
            (Some(after_mix), Some(after_fed)) => Some([after_mix, after_fed]),
            _ => return Err("a norm after one of a layer's two steps"),
        };
        let before = [layer.mix.before.as_ref(), layer.fed.before.as_ref()];
        let scales = [layer.mix.scale as f32, layer.fed.scale as f32];
        Ok(Self { mixer, feed: &layer.feed, before, after, scales })
    }
}

impl<'a> MixerParts<'a> {
    fn of(mixer: &'a Mixer) -> Result<Self, &'static str> {
        match mixer {
            Mixer::Attention(attention) => AttentionParts::of(attention).map(Self::Attention),
            Mixer::Latent(latent) => {
                let queries = match &latent.queries {
                    LatentQueries::Direct(q) => [Some(q), None],
                    LatentQueries::Squeezed(down, _, up) => [Some(down), Some(up)],
                };
                let matrices = queries.into_iter().flatten().chain([&latent.kv, &latent.o]);
                matrices.into_iter().try_for_each(|matrix| match matrix.bias {
                    Some(_) => Err("biases of latent attention"),
                    None => rows_of(matrix).map(drop),
                })?;
                Ok(Self::Latent(latent))
            }
            Mixer::Delta(delta) => {
                let matrices = [&delta.mixed, &delta.gate, &delta.alpha, &delta.beta, &delta.o];
                match matrices.iter().any(|matrix| matrix.bias.is_some()) {
                    true => Err("biases of recurrent layers"),
                    false => Ok(Self::Delta(delta)),
                }
            }
        }
    }

    /// The output projection.
    pub(super) fn out(self) -> &'a Matrix {
        match self {
            Self::Attention(parts) => &parts.attention.o,
            Self::Latent(latent) => &latent.o,
            Self::Delta(delta) => &delta.o,
        }
    }
}

impl<'a> AttentionParts<'a> {
    fn of(attention: &'a Attention) -> Result<Self, &'static str> {
        let Keys::Own(keys) = &attention.keys else { return Err("layers that read keys of others") };
        let (Some(values), None) = (&keys.v, &keys.v_norm) else { return Err("values that are keys, or are normed") };
        let is_whole = |rows: &Rows| rows.count == 1 || rows.len.is_multiple_of(attention.key_width);
        let turned = attention.q.stored.iter().chain(&keys.k.stored);
        let odd = [
            (!attention.sight.causal, "attention to later positions"),
            (attention.key_width != attention.value_width, "values of another width than keys"),
            (attention.gate.as_ref().is_some_and(|gate| gate.bias.is_some()), "biases of gates"),
            (attention.rotation.is_some() && !turned.clone().all(is_whole), "heads whose rows are not adjacent"),
        ];
        if let Some((_, what)) = odd.iter().find(|(odd, _)| *odd) {
            return Err(what);
        }
        let query_norms = match (&attention.q_norm, &keys.k_norm) {
            (None, None) => None,
            (Some(q), Some(k)) if q.over == k.over => Some([q, k]),
            _ => return Err("norms of queries or keys alone"),
        };
        Ok(Self { attention, keys, values, query_norms })
    }
}

/// Whether this backend computes a feed-forward part.
///
/// # Errors
/// What it does not compute.
fn check_feed(feed: &Feed) -> Result<(), &'static str> {
    let experts = match feed {
        Feed::Dense(gated) => return check_gated(gated),
        Feed::Experts(experts) => experts,
    };
    experts.shared.iter().try_for_each(|shared| check_gated(&shared.feed))?;
    experts.beside.iter().try_for_each(|beside| check_gated(&beside.dense))?;
    match experts.router.reads {
        RouterInput::Stream { .. } if experts.beside.is_none() => Err("routers that read the stream"),
        _ if experts.router.weight.bias.is_some() => Err("routers with a bias of their numbers"),
        _ => rows_of(&experts.router.weight).map(drop),
    }
}

fn check_gated(feed: &GatedFeed) -> Result<(), &'static str> {
    if [&feed.gate, &feed.up].iter().any(|matrix| matrix.bias.is_some()) {
        return Err("biases of gates");
    }
    [&feed.gate, &feed.up, &feed.down].into_iter().try_for_each(|matrix| rows_of(matrix).map(drop))
}
