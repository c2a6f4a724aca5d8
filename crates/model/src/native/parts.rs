//! Which plans run on this backend, and the pieces of their layers.
//!
//! Invariant: whatever a plan asks for beyond these pieces is an error that names it, never left out.

use draftscope_kernels::BLOCK;

use crate::ModelError;
use crate::nn::PairOrder;
use crate::plan::{
    Angles, Attention, Delta, Feed, GatedFeed, HeadNorm, Keys, KeysAndValues, Latent, LatentQueries, Layer, Matrix,
    Mixer, Norm, Over, Plan, Rotation, RouterInput, Rows, TokenInput,
};

/// Whether passes of this plan run here.
///
/// # Errors
/// [`ModelError::Unsupported`] naming the part that does not.
pub(crate) fn check(plan: &Plan) -> Result<(), ModelError> {
    missing(plan).map_err(unsupported)
}

fn missing(plan: &Plan) -> Result<(), &'static str> {
    plan.layers.iter().try_for_each(|layer| LayerParts::of(layer).map(drop))?;
    caches(plan)?;
    let latents = plan.latents().map(|latent| latent.rank + latent.rotated);
    let odd = [
        (plan.layers.is_empty(), "models without layers"),
        (!are_alike(latents), "latents of several widths"),
        (
            !plan.attentions().all(|attention| angles_suit(attention, &plan.angles)),
            "angles for which heads have no room, or that reorder values",
        ),
        (!inputs_suit(plan), "inputs of layers that are no whole blocks"),
        (plan.angles.iter().any(|angles| !angles.width.is_multiple_of(2)), "an odd number of rotated values"),
        (
            ![&plan.embedding.table, plan.head()].into_iter().all(is_plain),
            "an embedding or a head with a bias, or of rows that are not adjacent",
        ),
    ];
    odd.iter().find(|(odd, _)| *odd).map_or(Ok(()), |(_, what)| Err(what))
}

fn are_alike<T: PartialEq>(mut of: impl Iterator<Item = T>) -> bool {
    let first = of.next();
    of.all(|one| Some(one) == first)
}

/// Whether a matrix is adjacent rows of a tensor, without a bias.
fn is_plain(matrix: &Matrix) -> bool {
    rows_of(matrix).is_ok() && matrix.bias.is_none()
}

/// The layer of the cache that each layer with attention reads, its own or that of an earlier one, in the order of all layers;
/// 0 for others.
///
/// # Errors
/// What this backend does not compute.
pub(super) fn caches(plan: &Plan) -> Result<Vec<usize>, &'static str> {
    let (mut read, mut count) = (Vec::with_capacity(plan.layers.len()), 0);
    for layer in &plan.layers {
        let Mixer::Attention(attention) = &layer.mixer else {
            read.push(0);
            continue;
        };
        let heads = |of: &Attention| (of.kv_heads, of.key_width);
        read.push(match &attention.keys {
            Keys::Own(_) => {
                count += 1;
                count - 1
            }
            Keys::OfLayer(other) => match (plan.layers.get(*other).map(|layer| &layer.mixer), read.get(*other)) {
                (Some(Mixer::Attention(of)), Some(cache)) if heads(of) == heads(attention) => *cache,
                _ => return Err("layers that read keys of no earlier layer with such heads"),
            },
            Keys::OfTarget => return Err("layers that read keys of another model"),
        });
    }
    Ok(read)
}

/// Whether heads are rotated by angles that they have room for. Values that are keys must not be reordered with them.
fn angles_suit(attention: &Attention, angles: &[Angles]) -> bool {
    let Some(Rotation { table, pairs }) = attention.rotation else { return true };
    let width = attention.key_width;
    let lends_values = matches!(&attention.keys, Keys::Own(own) if own.v.is_none());
    angles.get(table).is_some_and(|angles| {
        angles.width <= width && (!lends_values || (angles.width == width && pairs == PairOrder::HalfSplit))
    })
}

/// Whether there is a slice of whole blocks of a table for each layer that reads one.
fn inputs_suit(plan: &Plan) -> bool {
    let Some(of) = &plan.embedding.by_layer else {
        return plan.layers.iter().all(|layer| layer.token_input.is_none());
    };
    let reads =
        |input: &TokenInput| input.gate.rows == of.width && [&input.gate, &input.project].into_iter().all(is_plain);
    of.width.is_multiple_of(BLOCK)
        && of.table.columns == plan.layers.len() * of.width
        && [&of.table, &of.project].into_iter().all(is_plain)
        && plan.layers.iter().all(|layer| layer.token_input.as_ref().is_none_or(reads))
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
    /// `None`: those of another layer, or of a target, are read.
    pub(super) keys: Option<&'a KeysAndValues>,
}

impl<'a> LayerParts<'a> {
    /// Those of a layer of a plan.
    ///
    /// # Errors
    /// What this backend does not compute.
    pub(super) fn of(layer: &'a Layer) -> Result<Self, &'static str> {
        let mixer = MixerParts::of(&layer.mixer)?;
        check_feed(&layer.feed)?;
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
        let keys = match &attention.keys {
            Keys::Own(keys) => Some(keys),
            Keys::OfLayer(_) | Keys::OfTarget => None,
        };
        let is_whole = |rows: &Rows| rows.count == 1 || rows.len.is_multiple_of(attention.key_width);
        let turned = attention.q.stored.iter().chain(keys.iter().flat_map(|keys| &keys.k.stored));
        let over_all = |norm: Option<&HeadNorm>| norm.is_some_and(|norm| norm.over == Over::Width);
        let of_keys = keys.and_then(|keys| keys.k_norm.as_ref());
        let odd = [
            (!attention.sight.causal, "attention to later positions"),
            (attention.key_width != attention.value_width, "values of another width than keys"),
            (attention.gate.as_ref().is_some_and(|gate| gate.bias.is_some()), "biases of gates"),
            (attention.rotation.is_some() && !turned.clone().all(is_whole), "heads whose rows are not adjacent"),
            (
                over_all(attention.q_norm.as_ref()) != over_all(of_keys),
                "norms over all heads of queries or of keys alone",
            ),
        ];
        if let Some((_, what)) = odd.iter().find(|(odd, _)| *odd) {
            return Err(what);
        }
        Ok(Self { attention, keys })
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

pub(super) fn unsupported(what: impl std::fmt::Display) -> ModelError {
    ModelError::Unsupported(format!("the native backend does not run {what}; try `--backend candle`"))
}
