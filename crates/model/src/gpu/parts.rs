//! Which parts of a plan the kernels run. This is the only list of them, and it names no family.
//!
//! Invariant: a layer that passes [`check_layer`] computes on the GPU what its plan says.

use draftscope_gpu::{DeltaShape, MAX_EXPERTS, MAX_HEAD_DIM, Shape};

use crate::ModelError;
use crate::nn::{Activation, PairOrder};
use crate::plan::{
    Attention, Delta, Experts, Feed, GatedFeed, HeadNorm, HeadOrder, Join, Keys, KeysAndValues, Layer, LayerTable,
    Matrix, Mixer, Norm, Over, Plan, RouterInput, Scoring, TokenInput,
};

/// What runs, as the beginning of a sentence.
pub const RUNS: &str = "models with softmax routers or no experts, and without latent attention,";

/// Checks that every part of a plan has a kernel, and that its sizes suit them.
///
/// # Errors
/// [`ModelError::Unsupported`] naming the first part that does not run, or [`ModelError::Metadata`] for sizes that
/// contradict each other.
pub(crate) fn check(plan: &Plan) -> Result<(), ModelError> {
    let table = plan.embedding.by_layer.as_ref();
    report(of_ends(plan).or_else(|| table.and_then(|table| of_table(table, plan))))?;
    if let Some(width) = table.map(|table| table.width).filter(|width| !width.is_multiple_of(32)) {
        return Err(odd_inputs(width));
    }
    plan.layers.iter().try_for_each(|layer| check_layer(layer, plan.width))
}

/// The same of one layer over a stream of this width.
///
/// # Errors
/// As [`check`].
pub(crate) fn check_layer(layer: &Layer, width: usize) -> Result<(), ModelError> {
    report(of_layer(layer))?;
    if let Mixer::Delta(delta) = &layer.mixer
        && let Some(lacks) = delta_shape(delta).lacks()
    {
        return Err(ModelError::Unsupported(format!("the GPU backend does not run {lacks}; choose --device cpu")));
    }
    if let Feed::Experts(experts) = &layer.feed
        && !experts.sizes.width.is_multiple_of(32)
    {
        let why = format!("the GPU backend does not run experts of width {}; choose --device cpu", experts.sizes.width);
        return Err(ModelError::Unsupported(why));
    }
    check_shape(&shape(layer, width, None))
}

fn report(missing: Option<&str>) -> Result<(), ModelError> {
    missing.map_or(Ok(()), |part| {
        Err(ModelError::Unsupported(format!("{part} does not run on a GPU yet; choose --device cpu")))
    })
}

/// A module that attends to its target's cache.
const OF_TARGET: &str = "attention to a target's keys and values";

/// Says that such a module is not run.
pub(super) fn of_target() -> ModelError {
    ModelError::Unsupported(format!("{OF_TARGET} does not run on a GPU yet; choose --device cpu"))
}

/// Says that embeddings for each layer are not run.
pub(super) fn odd_inputs(width: usize) -> ModelError {
    ModelError::Unsupported(format!(
        "the GPU backend does not run embeddings of width {width} for each layer; choose --device cpu"
    ))
}

/// The name of the first entry whose condition holds.
fn first(parts: &[(bool, &'static str)]) -> Option<&'static str> {
    parts.iter().find(|(is_there, _)| *is_there).map(|(_, name)| *name)
}

fn of_ends(plan: &Plan) -> Option<&'static str> {
    first(&[(has_bias([plan.head(), &plan.embedding.table]), "a bias of logits or of the embedding")])
}

/// The kernels have one factor for each step, which are those of Gemma 3n.
fn of_table(table: &LayerTable, plan: &Plan) -> Option<&'static str> {
    let usual = [(table.width as f64).sqrt(), 1.0 / (plan.width as f64).sqrt(), std::f64::consts::FRAC_1_SQRT_2];
    let factors = [table.scale, table.project_scale, table.join_scale];
    let differs = factors.iter().zip(usual).any(|(own, usual)| (own - usual).abs() > 1e-9 * usual);
    first(&[
        (differs, "an input of layers with other factors than Gemma 3n's"),
        (has_bias([&table.table, &table.project]), "a bias in the inputs of layers"),
        (table.norm.eps != plan.end.norm.eps, "a second epsilon of norms"),
    ])
}

fn of_layer(layer: &Layer) -> Option<&'static str> {
    let of_mixer = match &layer.mixer {
        Mixer::Attention(attention) => of_attention(attention),
        Mixer::Latent(_) => Some("latent attention"),
        Mixer::Delta(Delta { mixed, gate, alpha, beta, o, .. }) => {
            first(&[(has_bias([mixed, gate, alpha, beta, o]), "a bias in a recurrent layer")])
        }
    };
    let of_feed = match &layer.feed {
        Feed::Dense(GatedFeed { gate, up, down, .. }) => {
            first(&[(has_bias([gate, up, down]), "a bias in a feed-forward layer")])
        }
        Feed::Experts(experts) => of_experts(experts).or_else(|| of_sum(layer)),
    };
    of_mixer.or(of_feed).or_else(|| of_joins(layer)).or_else(|| of_norms(layer))
}

fn of_experts(experts: &Experts) -> Option<&'static str> {
    let Experts { router, shared, beside, act, sizes, used, .. } = experts;
    let matrices = shared.iter().flat_map(|shared| [&shared.feed.gate, &shared.feed.up, &shared.feed.down]);
    let gates = shared.iter().filter_map(|shared| shared.gate.as_ref());
    first(&[
        (beside.is_some(), "a dense layer beside experts"),
        (router.scoring != Scoring::Softmax, "a router with sigmoids"),
        (router.groups.is_some(), "a router with groups of experts"),
        (router.bias.is_some(), "a router with corrected scores"),
        (router.reads != RouterInput::Normed, "a router that reads the stream"),
        (router.per_expert.is_some(), "a factor of each expert"),
        (sizes.count > MAX_EXPERTS || *used > sizes.count, "a choice among so many experts"),
        (shared.as_ref().is_some_and(|shared| shared.feed.act != *act), "a shared expert with another activation"),
        (has_bias([&router.weight].into_iter().chain(matrices).chain(gates)), "a bias of experts or of their router"),
    ])
}

/// Results of experts are added as they are.
fn of_sum(layer: &Layer) -> Option<&'static str> {
    let has_more = |join: &Join| join.after.is_some() || join.scale != 1.0;
    let is_changed = has_more(&layer.mix) || has_more(&layer.fed) || layer.output_scale.is_some();
    first(&[(is_changed, "a norm or a factor after experts")])
}

fn of_attention(attention: &Attention) -> Option<&'static str> {
    let Attention { q, o, q_norm, keys, gate, sight, key_width, value_width, .. } = attention;
    let own = match keys {
        Keys::Own(own) => Some(own),
        Keys::OfLayer(_) | Keys::OfTarget => None,
    };
    let over = |norm: &Option<HeadNorm>| norm.as_ref().map(|norm| norm.over);
    let is_wide = over(q_norm) == Some(Over::Width);
    let keys_differ = own.map_or(is_wide, |own| over(&own.k_norm) != over(q_norm));
    let differs = |own: &KeysAndValues| {
        let matrices = [Some(&own.k), own.v.as_ref()];
        matrices.into_iter().flatten().any(|matrix| matrix.bias.is_some() != q.bias.is_some())
    };
    let v_norm = own.and_then(|own| own.v_norm.as_ref());
    let odd_values = |norm: &Norm| norm.weight.is_some() || over(q_norm) != Some(Over::Head);
    let is_reordered = attention.rotation.is_some_and(|rotation| rotation.pairs == PairOrder::Interleaved);
    first(&[
        (*keys == Keys::OfTarget, OF_TARGET),
        (!sight.causal, "attention to later positions"),
        (key_width != value_width, "a head whose key and value differ in width"),
        (keys_differ, "a norm of queries or of keys alone"),
        (q_norm.is_some() && is_reordered, "a norm of heads whose pairs are adjacent"),
        (is_wide && q.bias.is_some(), "a bias before a norm over all heads"),
        (v_norm.is_some_and(odd_values), "a norm of values that is not beside those of queries and keys"),
        (own.is_some_and(differs), "a bias of only some of queries, keys and values"),
        (has_bias([o].into_iter().chain(gate)), "a bias of attention's output or gate"),
    ])
}

/// What is added to the stream, and how. One launch norms a step's result, adds it, and does what follows.
fn of_joins(layer: &Layer) -> Option<&'static str> {
    let [mix, fed] = [&layer.mix, &layer.fed];
    let norms_after = mix.after.is_some();
    let odd_input = |input: &TokenInput| input.act != Activation::Gelu || has_bias([&input.gate, &input.project]);
    first(&[
        (fed.after.is_some() != norms_after, "a norm after only one step of a layer"),
        (layer.token_input.is_some() && !norms_after, "an input of a layer without norms after its steps"),
        (layer.token_input.as_ref().is_some_and(odd_input), "an input of a layer with SiLU or a bias"),
    ])
}

/// A block's launches share one epsilon.
fn of_norms(layer: &Layer) -> Option<&'static str> {
    let eps = eps(layer);
    first(&[(norms(layer).iter().any(|norm| norm.eps != eps), "a second epsilon of norms in a layer")])
}

fn norms(layer: &Layer) -> Vec<&Norm> {
    let Layer { mix, fed, .. } = layer;
    let mut norms: Vec<&Norm> = [&mix.before, &mix.after, &fed.before, &fed.after].into_iter().flatten().collect();
    norms.extend(layer.token_input.iter().map(|input| &input.after));
    match &layer.mixer {
        Mixer::Attention(Attention { q_norm, keys, .. }) => {
            norms.extend(q_norm.iter().map(|norm| &norm.norm));
            if let Keys::Own(own) = keys {
                norms.extend(own.k_norm.iter().map(|norm| &norm.norm).chain(&own.v_norm));
            }
        }
        Mixer::Delta(delta) => norms.push(&delta.norm),
        Mixer::Latent(_) => {}
    }
    norms
}

fn has_bias<'a>(matrices: impl IntoIterator<Item = &'a Matrix>) -> bool {
    matrices.into_iter().any(|matrix| matrix.bias.is_some())
}

/// What is added to the mean of squares in the norms of a layer.
fn eps(layer: &Layer) -> f32 {
    norms(layer).first().map_or(0.0, |norm| norm.eps)
}

/// Sizes of a layer over a stream of this width; a recurrent one has the heads of `like`, which it does not use.
pub(super) fn shape(layer: &Layer, width: usize, like: Option<&Shape>) -> Shape {
    let d_ff = match &layer.feed {
        Feed::Dense(feed) => feed.width(),
        Feed::Experts(experts) => experts.shared.as_ref().map_or(32, |shared| shared.feed.width()),
    };
    let own = Shape { d_model: width, heads: 1, kv_heads: 1, head_dim: 32, d_ff, eps: eps(layer) };
    match &layer.mixer {
        Mixer::Attention(Attention { heads, kv_heads, key_width, .. }) => {
            Shape { heads: *heads, kv_heads: *kv_heads, head_dim: *key_width, ..own }
        }
        Mixer::Latent(_) | Mixer::Delta(_) => {
            let like = like.copied().unwrap_or(own);
            Shape { heads: like.heads, kv_heads: like.kv_heads, head_dim: like.head_dim, ..own }
        }
    }
}

/// Sizes of a recurrent layer.
pub(super) fn delta_shape(delta: &Delta) -> DeltaShape {
    let shape = delta.shape;
    DeltaShape {
        key_heads: shape.key_heads,
        value_heads: shape.value_heads,
        key_dim: shape.key_dim,
        value_dim: shape.value_dim,
        taps: shape.kernel,
        grouped: delta.order == HeadOrder::Grouped,
    }
}

/// Checks what the kernels need of sizes.
///
/// # Errors
/// [`ModelError::Metadata`] or [`ModelError::Unsupported`].
pub(crate) fn check_shape(shape: &Shape) -> Result<(), ModelError> {
    let Shape { d_model, heads, kv_heads, head_dim, d_ff, .. } = *shape;
    if heads == 0 || kv_heads == 0 || !heads.is_multiple_of(kv_heads) {
        return Err(ModelError::Metadata(format!("{heads} heads cannot share {kv_heads} KV heads")));
    }
    let is_odd = |len: usize| len == 0 || !len.is_multiple_of(32);
    // heads of 16 values are joined in pairs
    let is_narrow = head_dim == 16 && heads.is_multiple_of(2);
    let odd_heads = (is_odd(head_dim) && !is_narrow) || head_dim > MAX_HEAD_DIM;
    if odd_heads || [d_model, d_ff].into_iter().any(is_odd) {
        return Err(ModelError::Unsupported(format!(
            "the GPU backend does not run widths {d_model}, {d_ff} with heads of {head_dim}; choose --device cpu"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nn::{Conventions, RopeSpec, TransformerConfig};
    use crate::plan::{Sight, Vector};

    /// A plan of two layers of the Llama kind.
    fn usual() -> Plan {
        let conventions =
            Conventions { name: "llama", qk_norm: true, qkv_bias: false, gguf_pairs: PairOrder::HalfSplit };
        let config = TransformerConfig {
            conventions,
            d_model: 64,
            heads: 4,
            kv_heads: 2,
            head_dim: 32,
            ffn: 96,
            layers: 2,
            vocab: 320,
            context_length: 128,
            norm_eps: 1e-5,
            rope: RopeSpec::plain(1e4),
            pairs: PairOrder::HalfSplit,
            tied: true,
        };
        Plan::llama(&config)
    }

    /// Why a plan does not run once its last layer is changed.
    fn why(change: impl FnOnce(&mut Layer, &mut Attention)) -> String {
        let mut plan = usual();
        let mut layer = plan.layers.pop().unwrap();
        let Mixer::Attention(mut attention) = layer.mixer.clone() else { unreachable!("it attends") };
        change(&mut layer, &mut attention);
        layer.mixer = Mixer::Attention(attention);
        plan.layers.push(layer);
        check(&plan).map_or_else(|error| error.to_string(), |()| String::new())
    }

    #[test]
    fn the_first_part_without_a_kernel_is_named() {
        let missing = |part: &str| format!("{part} does not run on a GPU yet; choose --device cpu");
        let bias = || Some(Vector { name: "bias".into(), len: 64 });
        assert_eq!(why(|_, _| ()), "");
        assert_eq!(why(|_, own| own.sight = Sight { window: Some(9), causal: true }), "");
        assert_eq!(why(|_, own| own.rotation = None), "");
        assert_eq!(why(|_, own| own.sight.causal = false), missing("attention to later positions"));
        assert_eq!(why(|_, own| own.o.bias = bias()), missing("a bias of attention's output or gate"));
        assert_eq!(why(|_, own| own.q.bias = bias()), missing("a bias of only some of queries, keys and values"));
        assert_eq!(why(|_, own| own.q_norm = None), missing("a norm of queries or of keys alone"));
        assert_eq!(why(|layer, _| (layer.mix.scale, layer.mix.before) = (0.2, None)), "");
        assert_eq!(
            why(|layer, _| layer.fed.after.clone_from(&layer.fed.before)),
            missing("a norm after only one step of a layer")
        );
        let wide = |own: &mut Attention| own.q_norm.iter_mut().for_each(|norm| norm.over = Over::Width);
        assert_eq!(why(|_, own| wide(own)), missing("a norm of queries or of keys alone"));
        let mut scaled = usual();
        scaled.end.scale = 0.125;
        assert!(check(&scaled).is_ok());
        let bias = Some(Vector { name: "bias".into(), len: 320 });
        scaled.embedding.table.bias = bias;
        assert_eq!(check(&scaled).unwrap_err().to_string(), missing("a bias of logits or of the embedding"));
    }

    #[test]
    fn sizes_that_kernels_do_not_run_are_named() {
        let odd = "the GPU backend does not run widths 64, 96 with heads of 24; choose --device cpu";
        assert_eq!(
            why(|_, own| own.key_width = 24),
            "a head whose key and value differ in width does not run on a GPU yet; choose --device cpu"
        );
        assert_eq!(why(|_, own| (own.key_width, own.value_width) = (24, 24)), odd);
        assert_eq!(why(|_, own| own.kv_heads = 3), "model metadata: 4 heads cannot share 3 KV heads");
    }
}
