//! A layer of a plan as a block of the kernels: the plan's parts become data that they read.

use draftscope_gpu::{
    BlockWeights, Buffer, DeltaWeights, DenseWeights, ExpertWeights, LayerInput, Matrix, Shape, Style,
};

use super::parts::{delta_shape, odd_inputs, of_target, shape};
use super::uploader::{Order, Uploader};
use crate::ModelError;
use crate::nn::{Activation, ExpertNames, ExpertSizes};
use crate::plan::{
    self, Attention, Decay, Delta, Experts, Feed, GatedFeed, Join, Keys, Layer, Mixer, Norm, Over, Rotation, Rows,
    Tensor, TokenInput, Vector,
};

/// What layers of one model share.
pub(super) struct Around<'a> {
    /// Tables of angles, in the plan's order: width, and cosine and sine of each position. The first is the network's.
    pub(super) tables: &'a [(usize, Buffer)],
    /// Sizes of a block that has none of its own.
    pub(super) shape: Shape,
}

/// Reads a layer, which [`check_layer`](super::parts::check_layer) accepts; `index` is its place in the stream.
///
/// # Errors
/// If a tensor is missing, misshapen or damaged, or the device's memory is short.
pub(super) fn block(
    uploader: &Uploader<'_>,
    (layer, index): (&Layer, usize),
    around: &Around<'_>,
) -> Result<BlockWeights, ModelError> {
    let d = around.shape.d_model;
    let own = shape(layer, d, Some(&around.shape));
    let norm = |norm: Option<&Norm>| norm.map(|norm| uploader.norm(norm, d)).transpose();
    let Layer { mixer, mix, feed, fed, token_input, output_scale } = layer;
    let Mixed { qkv, bias, head_norms, out, style } = mixed(uploader, mixer, around)?;
    let (dense_feed, expert_feed, act) = match feed {
        Feed::Dense(feed) => (Some(feed), None, feed.act),
        Feed::Experts(experts) => (experts.shared.as_ref().map(|shared| &shared.feed), Some(&**experts), experts.act),
    };
    let output_scale = match output_scale {
        Some(name) => uploader.source.vector(name, 1)?.first().copied(),
        None => None,
    };
    let post_norms = match [mix, fed].map(|join: &Join| after(uploader, join, d)) {
        [Some(of_mixer), Some(of_feed)] => Some([of_mixer?, of_feed?]),
        _ => None,
    };
    let factors = [mix, fed].map(|join| join.scale as f32);
    let has_factors = post_norms.is_none() && (factors != [1.0; 2] || output_scale.is_some());
    let style = Style {
        shape: (own != around.shape).then_some(own),
        gelu: act == Activation::Gelu,
        post_norms,
        added: has_factors.then_some(factors),
        layer_input: token_input.as_ref().map(|input| layer_input(uploader, input, index)).transpose()?,
        output_scale,
        ..style
    };
    Ok(BlockWeights {
        attn_norm: norm(mix.before.as_ref())?,
        qkv,
        bias,
        head_norms,
        out,
        ffn_norm: norm(fed.before.as_ref())?,
        dense: dense_feed.map(|feed| dense(uploader, feed)).transpose()?,
        experts: expert_feed.map(|of| experts(uploader, of)).transpose()?,
        style,
    })
}

fn dense(uploader: &Uploader<'_>, feed: &GatedFeed) -> Result<DenseWeights, ModelError> {
    let [gate, up] = uploader.same_form([&feed.gate, &feed.up])?;
    Ok(DenseWeights { gate, up, down: uploader.matrix(&feed.down)? })
}

fn experts(uploader: &Uploader<'_>, of: &Experts) -> Result<ExpertWeights, ModelError> {
    let gate_of_shared = of.shared.as_ref().and_then(|shared| shared.gate.as_ref());
    let router: Vec<_> = [&of.router.weight].into_iter().chain(gate_of_shared).collect();
    let [gate, up, down] = stacked(of);
    let [gate, up] = uploader.same_form([&gate, &up])?;
    Ok(ExpertWeights {
        count: of.sizes.count,
        used: of.used,
        width: of.sizes.width,
        rescaled: of.router.rescaled,
        factor: of.router.factor as f32,
        router: uploader.numbers(&router)?,
        gate,
        up,
        down: uploader.matrix(&down)?,
    })
}

/// Gates, ups and downs of all experts, each below the one before it.
fn stacked(of: &Experts) -> [plan::Matrix; 3] {
    let ExpertSizes { count, d, width } = of.sizes;
    let some = |name: &str, [each, columns]: [usize; 2], (first, len): (usize, usize)| {
        let tensor = Tensor { name: name.to_owned(), shape: vec![count, each, columns] };
        plan::Matrix::of(vec![Rows { tensor, first, len, step: each, count }], columns)
    };
    match of.names() {
        ExpertNames::Stacked([gate, up, down]) => {
            [some(&gate, [width, d], (0, width)), some(&up, [width, d], (0, width)), some(&down, [d, width], (0, d))]
        }
        ExpertNames::Joined([both, down]) => [
            some(&both, [2 * width, d], (0, width)),
            some(&both, [2 * width, d], (width, width)),
            some(&down, [d, width], (0, d)),
        ],
        ExpertNames::Single(names) => {
            let each = |part: usize, [rows, columns]: [usize; 2]| {
                let of_expert = |names: &[String; 3]| Rows::all(names[part].clone(), [rows, columns]);
                plan::Matrix::of(names.iter().map(of_expert).collect(), columns)
            };
            [each(0, [width, d]), each(1, [width, d]), each(2, [d, width])]
        }
    }
}

/// The norm of what a step adds; its weights contain the factor.
fn after(uploader: &Uploader<'_>, join: &Join, d: usize) -> Option<Result<Buffer, ModelError>> {
    let weights = uploader.norm_weights(join.after.as_ref()?, d);
    let scaled = |mut weights: Vec<f32>| {
        weights.iter_mut().for_each(|weight| *weight *= join.scale as f32);
        uploader.gpu.upload(&weights)
    };
    Some(weights.map(scaled))
}

/// What a mixer's launches read.
struct Mixed {
    qkv: Matrix,
    bias: Option<Buffer>,
    head_norms: Option<Buffer>,
    out: Matrix,
    style: Style,
}

fn mixed(uploader: &Uploader<'_>, mixer: &Mixer, around: &Around<'_>) -> Result<Mixed, ModelError> {
    match mixer {
        Mixer::Attention(attention) => attending(uploader, attention, around),
        Mixer::Delta(delta) => recurrent(uploader, delta),
        Mixer::Latent(_) => Err(ModelError::Unsupported("latent attention does not run on a GPU yet".into())),
    }
}

/// Queries, keys, values and gates are one product.
fn attending(uploader: &Uploader<'_>, attention: &Attention, around: &Around<'_>) -> Result<Mixed, ModelError> {
    let head_dim = attention.key_width;
    let table = attention.rotation.and_then(|of| Some((of.table, around.tables.get(of.table)?)));
    let rotary = table.map_or(0, |(_, (width, _))| *width);
    let rotated = match attention.rotation {
        Some(Rotation { pairs, .. }) => Order::Rotated { pairs, head_dim, rotary },
        None => Order::Planned,
    };
    let mut parts = vec![(&attention.q, rotated)];
    let (mut reads, mut norms_values) = (None, false);
    match &attention.keys {
        Keys::OfLayer(layer) => reads = Some(*layer),
        Keys::OfTarget => return Err(of_target()),
        Keys::Own(own) => {
            // without a matrix of their own, values are the keys before their norm and rotation
            parts.extend([(&own.k, rotated), (own.v.as_ref().unwrap_or(&own.k), Order::Planned)]);
            norms_values = own.v_norm.is_some();
        }
    }
    let bias = uploader.biases(&parts)?;
    parts.extend(attention.gate.as_ref().map(|gate| (gate, Order::Planned)));
    let usual_scale = 1.0 / (head_dim as f64).sqrt();
    let style = Style {
        angles: table.filter(|(index, _)| *index > 0).map(|(_, (_, angles))| angles.clone()),
        rotary: (rotary != head_dim).then_some(rotary),
        window: attention.sight.window,
        query_scale: (attention.scale != usual_scale).then_some(attention.scale as f32),
        score_cap: attention.cap.map(|cap| cap as f32),
        reads,
        norms_values,
        gated: attention.gate.is_some(),
        width_norms: width_norms(uploader, attention)?,
        ..Style::default()
    };
    let head_norms = head_norms(uploader, attention)?.map(|norms| uploader.gpu.upload(&norms));
    let (qkv, out) = (uploader.stack(&parts)?, uploader.matrix(&attention.o)?);
    Ok(Mixed { qkv, bias, head_norms, out, style })
}

/// Weights of the norms of queries, of keys if they are the layer's own, and of values if they are normed.
pub(super) fn head_norms(uploader: &Uploader<'_>, attention: &Attention) -> Result<Option<Vec<f32>>, ModelError> {
    let head_dim = attention.key_width;
    let Some(of_queries) = attention.q_norm.as_ref().filter(|norm| norm.over == Over::Head) else { return Ok(None) };
    let mut weights = uploader.norm_weights(&of_queries.norm, head_dim)?;
    if let Keys::Own(own) = &attention.keys {
        for norm in own.k_norm.iter().map(|norm| &norm.norm).chain(&own.v_norm) {
            weights.extend(uploader.norm_weights(norm, head_dim)?);
        }
    }
    Ok(Some(weights))
}

/// Norms of all queries and of all keys, if they go over all heads.
fn width_norms(uploader: &Uploader<'_>, attention: &Attention) -> Result<Option<[Buffer; 2]>, ModelError> {
    let Attention { q_norm: Some(of_queries), keys: Keys::Own(own), .. } = attention else { return Ok(None) };
    let Some(of_keys) = own.k_norm.as_ref().filter(|norm| norm.over == Over::Width) else { return Ok(None) };
    let queries = uploader.norm(&of_queries.norm, attention.q.rows)?;
    Ok(Some([queries, uploader.norm(&of_keys.norm, own.k.rows)?]))
}

fn recurrent(uploader: &Uploader<'_>, delta: &Delta) -> Result<Mixed, ModelError> {
    let shape = delta_shape(delta);
    let decay = match &delta.decay {
        Decay::Log(Vector { name, len }) => uploader.source.vector(name, *len)?.iter().map(|log| -log.exp()).collect(),
        Decay::Negative(Vector { name, len }) => uploader.source.vector(name, *len)?,
    };
    if decay.iter().any(|decay: &f32| !decay.is_finite() || *decay > 0.0) {
        let (Decay::Log(of) | Decay::Negative(of)) = &delta.decay;
        return Err(ModelError::Metadata(format!("'{}' lets a state grow, which it never does", of.name)));
    }
    let (taps, dt) = (&delta.convolution, &delta.dt);
    let weights = DeltaWeights {
        shape,
        taps: uploader.gpu.upload(&uploader.source.stored(&taps.name, &taps.shape)?.to_f32(&taps.shape)?),
        heads: uploader.gpu.upload(&[decay, uploader.source.vector(&dt.name, dt.len)?].concat()),
        norm: uploader.norm(&delta.norm, shape.value_dim)?,
    };
    let parts = [&delta.mixed, &delta.gate, &delta.alpha, &delta.beta].map(|matrix| (matrix, Order::Planned));
    let style = Style { delta: Some(weights), ..Style::default() };
    let (qkv, out) = (uploader.stack(&parts)?, uploader.matrix(&delta.o)?);
    Ok(Mixed { qkv, bias: None, head_norms: None, out, style })
}

fn layer_input(uploader: &Uploader<'_>, input: &TokenInput, index: usize) -> Result<LayerInput, ModelError> {
    let matrices = uploader.same_form([&input.gate, &input.project])?;
    let norm = uploader.norm(&input.after, input.project.rows)?;
    LayerInput::new(matrices, norm, index).ok_or_else(|| odd_inputs(input.gate.rows))
}
