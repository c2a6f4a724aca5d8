//! Every part of a plan that whole passes compute, against a plain computation in f64, with the bits of rows run alone.

#[path = "plan_layers_test.rs"]
mod layer_parts;
#[path = "plan_test_parts.rs"]
mod more_parts;
#[path = "plan_reference_test.rs"]
mod reference;

use self::reference::Reference;
use super::llama::NativeLlama;
use super::load;
use super::matrix::Cpu;
use crate::nn::{Activation, LLAMA_LAYOUT, PairOrder, RopeSpec, TransformerConfig};
use crate::options::Rollback;
use crate::plan::{
    self, Angles, Attention, BlockNames, Decay, Delta, DeltaShape, Feed, GatedFeed, HeadNorm, HeadOrder, Join, Keys,
    KeysAndValues, Layer, Matrix, Mixer, Norm, Over, Plan, Rows, Vector,
};
use crate::{Checkpoint, LogitRows, Model, ModelError};
use draftscope_kernels::{Isa, Pool};
use draftscope_protocol::TokenId;

const TOKENS: usize = 40;

fn config() -> TransformerConfig {
    TransformerConfig {
        conventions: LLAMA_LAYOUT[2],
        vocab: 70,
        d_model: 64,
        layers: 3,
        heads: 4,
        kv_heads: 2,
        head_dim: 32,
        ffn: 96,
        norm_eps: 1e-5,
        rope: RopeSpec::plain(100.0),
        pairs: PairOrder::HalfSplit,
        context_length: 64,
        tied: true,
    }
}

fn base() -> Plan {
    Plan::llama(&config())
}

fn attention(layer: &mut Layer) -> &mut Attention {
    let Mixer::Attention(attention) = &mut layer.mixer else { panic!("attention") };
    attention
}

fn keys(attention: &mut Attention) -> &mut KeysAndValues {
    let Keys::Own(keys) = &mut attention.keys else { panic!("keys of its own") };
    keys
}

fn feed(layer: &mut Layer) -> &mut GatedFeed {
    let Feed::Dense(feed) = &mut layer.feed else { panic!("a gated layer") };
    feed
}

fn rotate(plan: &mut Plan, width: usize, pairs: PairOrder) {
    plan.angles[0].width = width;
    for layer in &mut plan.layers {
        attention(layer).rotation.as_mut().unwrap().pairs = pairs;
    }
}

fn narrow(plan: &mut Plan, head_dim: usize) {
    *plan = Plan::llama(&TransformerConfig { head_dim, ..config() });
}

fn no_rotation(plan: &mut Plan) {
    attention(&mut plan.layers[1]).rotation = None;
}

fn sight(plan: &mut Plan) {
    attention(&mut plan.layers[0]).sight.window = Some(5);
    attention(&mut plan.layers[1]).cap = Some(0.7);
    attention(&mut plan.layers[2]).scale = 0.31;
}

fn two_tables(plan: &mut Plan) {
    plan.angles.push(Angles { rope: RopeSpec::plain(9.0), width: 32 });
    attention(&mut plan.layers[1]).rotation.as_mut().unwrap().table = 1;
}

fn ends(plan: &mut Plan) {
    (plan.embedding.scale, plan.end.scale, plan.end.cap) = (1.7, 0.6, Some(1.5));
}

fn scales(plan: &mut Plan) {
    for layer in &mut plan.layers {
        (layer.mix.scale, layer.fed.scale) = (0.4, 1.3);
    }
}

fn after_norms(plan: &mut Plan) {
    for (block, layer) in plan.layers.iter_mut().enumerate() {
        let names = BlockNames::of(&config(), block, true);
        for (join, part) in [(&mut layer.mix, "post_attention_norm"), (&mut layer.fed, "post_ffw_norm")] {
            join.after = Some(names.norm(part));
            join.before.as_mut().unwrap().centred = true;
        }
        feed(layer).act = Activation::Gelu;
    }
}

fn no_norms_before(plan: &mut Plan) {
    after_norms(plan);
    for (block, layer) in plan.layers.iter_mut().enumerate() {
        (layer.mix.before, layer.fed.before) = (None, None);
        let names = BlockNames::of(&config(), block, false);
        let over = |part: &str, len| Some(HeadNorm { norm: names.norm_of(part, len), over: Over::Width });
        attention(layer).q_norm = over("attn_q_norm", 4 * 32);
        keys(attention(layer)).k_norm = over("attn_k_norm", 2 * 32);
    }
}

fn biases(plan: &mut Plan) {
    for (block, layer) in plan.layers.iter_mut().enumerate() {
        let with = |matrix: &mut Matrix, part: &str| {
            matrix.bias = Some(Vector { name: format!("blk.{block}.{part}.bias"), len: matrix.rows });
        };
        with(&mut attention(layer).q, "attn_q");
        with(&mut keys(attention(layer)).k, "attn_k");
        with(&mut attention(layer).o, "attn_output");
        with(&mut feed(layer).down, "ffn_down");
    }
}

fn joined(plan: &mut Plan) {
    for (block, layer) in plan.layers.iter_mut().enumerate() {
        let some = |part: &str, all: usize, first: usize, len: usize| {
            Matrix::of(vec![Rows::some(format!("blk.{block}.{part}.weight"), [all, 64], (first, len), (len, 1))], 64)
        };
        let attention = attention(layer);
        attention.q = some("attn_qkv", 256, 0, 128);
        keys(attention).k = some("attn_qkv", 256, 128, 64);
        keys(attention).v = Some(some("attn_qkv", 256, 192, 64));
        (feed(layer).gate, feed(layer).up) = (some("ffn_up", 192, 0, 96), some("ffn_up", 192, 96, 96));
    }
}

/// Of each head the rows of the query, then those of the gate.
fn gated(plan: &mut Plan) {
    for (block, layer) in plan.layers.iter_mut().enumerate() {
        let Mixer::Attention(attention) = &mut layer.mixer else { continue };
        let of = |first| {
            Matrix::of(vec![Rows::some(format!("blk.{block}.attn_q.weight"), [256, 64], (first, 32), (64, 4))], 64)
        };
        (attention.q, attention.gate) = (of(0), Some(of(32)));
    }
}

/// The first two layers keep a state. `joint`: projections of one key head after the other in two tensors, as in Qwen3-Next.
fn recurrent(plan: &mut Plan, joint: bool) {
    let shape = DeltaShape { key_heads: 2, value_heads: 4, key_dim: 16, value_dim: 16, kernel: 4 };
    for (block, layer) in plan.layers.iter_mut().take(2).enumerate() {
        let names = BlockNames::of(&config(), block, false);
        let some = |part: &str, all: usize, groups: &[(usize, usize)]| {
            let rows = |&group| Rows::some(names.name(part), [all, 64], group, (all / 2, 2));
            Matrix::of(groups.iter().map(rows).collect(), 64)
        };
        let whole = |part: &str, rows: usize| names.matrix(part, rows, 64);
        let [mixed, gate, alpha, beta] = match joint {
            true => [
                some("ssm_in", 192, &[(0, 16), (16, 16), (32, 32)]),
                some("ssm_in", 192, &[(64, 32)]),
                some("ssm_ba", 8, &[(2, 2)]),
                some("ssm_ba", 8, &[(0, 2)]),
            ],
            false => [("mixed", 128), ("gate", 64), ("alpha", 4), ("beta", 4)].map(|(part, rows)| whole(part, rows)),
        };
        let a = Vector { name: names.name("ssm_a"), len: 4 };
        layer.mixer = Mixer::Delta(Delta {
            shape,
            order: if joint { HeadOrder::Tiled } else { HeadOrder::Grouped },
            mixed,
            gate,
            alpha,
            beta,
            convolution: plan::Tensor { name: names.name("ssm_conv1d"), shape: vec![128, 4] },
            decay: if joint { Decay::Negative(a) } else { Decay::Log(a) },
            dt: names.bias("ssm_dt", 4),
            norm: names.norm_of("ssm_norm", 16),
            o: names.matrix("ssm_out", 64, 64),
        });
    }
}

fn tokens() -> Vec<TokenId> {
    (0..TOKENS as u32).map(|i| TokenId(i * 13 % 70)).collect()
}

fn model(reference: &Reference<'_>) -> NativeLlama {
    let (_file, files) = reference.files();
    let cpu = Cpu::new(Pool::new(2), Isa::detect());
    load::llama((&files, &config(), reference.plan), (64, cpu), &mut |_, _| {}).unwrap()
}

fn check(name: &str, change: fn(&mut Plan)) -> Vec<f64> {
    let mut plan = base();
    change(&mut plan);
    assert!(super::check(&plan).is_ok(), "{name}");
    let reference = Reference::new(&plan);
    let tokens = tokens();
    let mut model = model(&reference);
    let whole = model.forward(&tokens, LogitRows::All).unwrap();
    let expected = reference.logits(&tokens);
    let square = |x: f64| x * x;
    let off: f64 = whole.logits.as_slice().iter().zip(&expected).map(|(a, b)| square(f64::from(*a) - b)).sum();
    let off = (off / expected.iter().map(|x| square(*x)).sum::<f64>()).sqrt();
    println!("{name}: off by {off:.1e}");
    assert!(off < 3e-4, "{name}: off by {off}");
    for rows in [1, 3, 16] {
        model.truncate(0, &Checkpoint { len: 0 }).unwrap();
        for (at, tokens) in (0..).step_by(rows).zip(tokens.chunks(rows)) {
            let out = model.forward(tokens, LogitRows::All).unwrap();
            let same = (0..tokens.len()).all(|row| out.logits.row(row) == whole.logits.row(at + row));
            assert!(same, "{name}: rows of a pass of {rows} at {at}");
        }
    }
    expected
}

#[test]
fn every_part_is_that_of_a_plain_computation_and_rows_keep_their_bits() {
    #[allow(clippy::type_complexity, reason = "said once")]
    let cases: [(&str, fn(&mut Plan)); 31] = [
        ("as in Qwen3", |_| {}),
        ("adjacent pairs", |plan| rotate(plan, 32, PairOrder::Interleaved)),
        ("partly rotated halves", |plan| rotate(plan, 12, PairOrder::HalfSplit)),
        ("partly rotated adjacent pairs", |plan| rotate(plan, 20, PairOrder::Interleaved)),
        ("a layer without rotation", no_rotation),
        ("window, cap and scale of scores", sight),
        ("two tables of angles", two_tables),
        ("scaled embedding, scaled and capped logits", ends),
        ("scaled steps", scales),
        ("norms after steps, GELU, centred norms", after_norms),
        ("no norms before steps, norms over all heads", no_norms_before),
        ("biases of adjacent pairs, of outputs", |plan| {
            rotate(plan, 32, PairOrder::Interleaved);
            biases(plan);
            scales(plan);
        }),
        ("joined tensors", joined),
        ("gated attention", |plan| {
            rotate(plan, 12, PairOrder::Interleaved);
            gated(plan);
        }),
        ("recurrent layers", |plan| recurrent(plan, false)),
        ("recurrent layers of joint projections", |plan| recurrent(plan, true)),
        ("heads of 16", |plan| narrow(plan, 16)),
        ("heads of 48", |plan| narrow(plan, 48)),
        ("partly rotated adjacent pairs of heads of 80", |plan| {
            narrow(plan, 80);
            rotate(plan, 20, PairOrder::Interleaved);
        }),
        ("experts by probabilities", more_parts::softmax),
        ("experts by sigmoids, in groups, and a shared one", more_parts::sigmoid_in_groups),
        ("a shared expert with a gate", more_parts::gated_shared),
        ("experts beside a dense layer", more_parts::beside_dense),
        ("latent attention", |plan| more_parts::latents(plan, false, PairOrder::Interleaved)),
        ("latent attention with queries of low rank", |plan| more_parts::latents(plan, true, PairOrder::HalfSplit)),
        ("latent attention and experts", |plan| {
            more_parts::latents(plan, true, PairOrder::Interleaved);
            more_parts::sigmoid_in_groups(plan);
        }),
        ("layers of other heads", layer_parts::other_heads),
        ("keys and values of other layers", layer_parts::keys_of_others),
        ("keys that are values, normed without weights", layer_parts::keys_as_values),
        ("what tokens add to single layers, and scales of layers", layer_parts::inputs_and_scales),
        ("recurrent layers and experts", |plan| {
            recurrent(plan, false);
            more_parts::gated_shared(plan);
        }),
    ];
    let all = cases.map(|(name, change)| check(name, change));
    for (at, (name, _)) in cases.iter().enumerate().skip(1) {
        assert!(all[at] != all[0], "{name} changes nothing");
    }
    check("all of them", |plan| {
        [sight, two_tables, ends, no_norms_before, scales, biases, joined].into_iter().for_each(|change| change(plan));
        rotate(plan, 12, PairOrder::Interleaved);
    });
    check("as in Gemma 4", |plan| {
        [ends, after_norms, layer_parts::all].into_iter().for_each(|change| change(plan));
    });
    check("as in Gemma 4 with experts", |plan| {
        more_parts::beside_dense(plan);
        layer_parts::all(plan);
    });
    check("recurrent and gated layers, scaled and normed after", |plan| {
        [ends, after_norms, gated].into_iter().for_each(|change| change(plan));
        rotate(plan, 20, PairOrder::HalfSplit);
        recurrent(plan, true);
    });
}

#[test]
fn rejected_rows_leave_no_trace_in_recurrent_states() {
    let mut plan = base();
    gated(&mut plan);
    recurrent(&mut plan, false);
    let reference = Reference::new(&plan);
    let (tokens, other) = (tokens(), [TokenId(3), TokenId(69), TokenId(41)]);
    for rollback in [Rollback::Snapshots, Rollback::Replay] {
        let mut model = model(&reference);
        model.set_rollback(rollback);
        assert!(model.refuses_trees().is_some() && model.forward_tree(&other, &[0, 0, 0], LogitRows::All).is_err());
        assert!(model.forward_early(&other, 1).is_err() && model.is_empty());
        let mut alone = model.fork().unwrap();
        // rounds of which some rows are kept; then other tokens
        let mut at = 0;
        for (rows, kept) in [(1, 1), (5, 2), (16, 1), (3, 3), (1, 1), (8, 5)] {
            let since = model.checkpoint().unwrap();
            let out = model.forward(&tokens[at..at + rows], LogitRows::All).unwrap();
            for row in 0..kept {
                let one = alone.forward(&tokens[at + row..=at + row], LogitRows::All).unwrap();
                assert!(one.logits.row(0) == out.logits.row(row), "{rollback:?}: row {row} of {rows} after {at}");
            }
            at += kept;
            assert_eq!(model.rewindable(at), at);
            model.truncate(at, &since).unwrap();
            let next = model.fork().unwrap().forward(&other, LogitRows::All).unwrap().logits;
            assert!(next == alone.fork().unwrap().forward(&other, LogitRows::All).unwrap().logits, "after {at}");
        }
        // a pass that fails changes nothing
        assert!(model.forward(&[TokenId(1), TokenId(70)], LogitRows::All).is_err());
        assert!(model.forward(&[TokenId(1); 64], LogitRows::Last).is_err() && model.len() == at);
        // a prompt can be taken back to its ends
        model.truncate(0, &Checkpoint { len: 0 }).unwrap();
        model.forward(&tokens, LogitRows::Last).unwrap();
        assert_eq!([40, 39, 38, 24, 23].map(|len| model.rewindable(len)), [40, 39, 24, 24, 0]);
        for len in [39, 24] {
            let (mut back, mut fresh) = (model.fork().unwrap(), model.fork().unwrap());
            assert!(matches!(back.truncate(30, &Checkpoint { len: 0 }), Err(ModelError::Rewind { .. })));
            back.truncate(len, &Checkpoint { len: 0 }).unwrap();
            fresh.truncate(0, &Checkpoint { len: 0 }).unwrap();
            fresh.forward(&tokens[..len], LogitRows::Last).unwrap();
            let [back, fresh] = [back, fresh].map(|mut model| model.forward(&other, LogitRows::All).unwrap().logits);
            assert!(back == fresh, "{rollback:?}: back to {len}");
        }
    }
}

#[test]
fn what_is_not_computed_is_no_plan_of_this_backend() {
    let lacking: [fn(&mut Plan); 8] = [
        |plan| attention(&mut plan.layers[1]).keys = Keys::OfLayer(2),
        |plan| attention(&mut plan.layers[1]).keys = Keys::OfTarget,
        |plan| {
            layer_parts::other_heads(plan);
            attention(&mut plan.layers[2]).keys = Keys::OfLayer(1); // of other heads
        },
        |plan| {
            rotate(plan, 32, PairOrder::Interleaved);
            keys(attention(&mut plan.layers[1])).v = None; // in another order than values
        },
        |plan| {
            layer_parts::inputs_and_scales(plan);
            plan.embedding.by_layer = None;
        },
        |plan| {
            no_norms_before(plan);
            attention(&mut plan.layers[0]).q_norm = None;
        },
        |plan| attention(&mut plan.layers[2]).sight.causal = false,
        |plan| plan.layers[0].mix.after = plan.layers[0].mix.before.clone(),
    ];
    for change in lacking {
        let mut plan = base();
        change(&mut plan);
        assert!(super::check(&plan).is_err());
    }
}
