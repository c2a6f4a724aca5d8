//! Every part of a plan that whole passes compute, against a plain computation in f64, with the bits of rows run alone.

#[path = "plan_test_parts.rs"]
mod more_parts;

use std::collections::BTreeMap;

use candle_core::quantized::{GgmlDType, QTensor, gguf_file};
use candle_core::{Device, Tensor};
use half::f16;

use super::llama::NativeLlama;
use super::load;
use super::matrix::Cpu;
use super::testing::Noise;
use crate::files::{GgufFile, ModelFiles};
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

/// What a layer of the plain computation keeps: keys and values, or a state and the last rows of the convolution.
#[derive(Default)]
struct Kept {
    cache: Vec<[Vec<f64>; 2]>,
    state: Vec<f64>,
    rows: Vec<Vec<f64>>,
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// The plan's tensors, and the plain computation over them.
struct Reference<'a> {
    plan: &'a Plan,
    tensors: BTreeMap<String, (Vec<usize>, Vec<f32>)>,
}

impl<'a> Reference<'a> {
    fn new(plan: &'a Plan) -> Self {
        let mut made = Self { plan, tensors: BTreeMap::new() };
        made.matrix(&plan.embedding.table);
        made.norm(&plan.end.norm);
        for layer in &plan.layers {
            for join in [&layer.mix, &layer.fed] {
                join.before.iter().chain(&join.after).for_each(|norm| made.norm(norm));
            }
            match &layer.mixer {
                Mixer::Attention(of) => {
                    let Keys::Own(own) = &of.keys else { panic!("keys of its own") };
                    of.q_norm.iter().chain(&own.k_norm).for_each(|norm| made.norm(&norm.norm));
                    [&of.q, &own.k, own.v.as_ref().unwrap(), &of.o].into_iter().for_each(|own| made.matrix(own));
                    of.gate.iter().for_each(|gate| made.matrix(gate));
                }
                Mixer::Delta(of) => made.delta(of),
                Mixer::Latent(of) => made.latent(of),
            }
            made.feed(&layer.feed);
        }
        made
    }

    fn add(&mut self, name: &str, shape: &[usize], number: impl Fn(f32) -> f32) {
        let seed = self.tensors.len() as u64 + 1;
        let make = || {
            let numbers = Noise(seed).numbers(shape.iter().product());
            (shape.to_vec(), numbers.into_iter().map(number).collect())
        };
        self.tensors.entry(name.to_owned()).or_insert_with(make);
    }

    fn matrix(&mut self, matrix: &Matrix) {
        matrix.stored.iter().for_each(|rows| self.add(&rows.tensor.name, &rows.tensor.shape, |x| 0.25 * x));
        matrix.bias.iter().for_each(|bias| self.add(&bias.name, &[bias.len], |x| 0.5 * x));
    }

    fn norm(&mut self, norm: &Norm) {
        let least = if norm.centred { 0.0 } else { 1.0 };
        norm.weight.iter().for_each(|weight| self.add(&weight.name, &[weight.len], |x| least + 0.3 * x));
    }

    fn delta(&mut self, of: &Delta) {
        [&of.mixed, &of.gate, &of.alpha, &of.beta, &of.o].into_iter().for_each(|own| self.matrix(own));
        self.add(&of.convolution.name, &of.convolution.shape, |x| 0.5 * x);
        self.add(&of.dt.name, &[of.dt.len], |x| x);
        match &of.decay {
            Decay::Log(log) => self.add(&log.name, &[log.len], |x| x),
            Decay::Negative(decay) => self.add(&decay.name, &[decay.len], |x| -x.abs()),
        }
        self.norm(&of.norm);
    }

    fn files(&self) -> (tempfile::NamedTempFile, ModelFiles) {
        let made = self.tensors.iter().map(|(name, (shape, numbers))| {
            let tensor = Tensor::from_vec(numbers.clone(), shape.as_slice(), &Device::Cpu).unwrap();
            (name.as_str(), QTensor::quantize(&tensor, GgmlDType::F32).unwrap())
        });
        let tensors: Vec<_> = made.collect();
        let tensors: Vec<_> = tensors.iter().map(|(name, tensor)| (*name, tensor)).collect();
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let architecture = gguf_file::Value::String("llama".to_owned());
        let mut bytes = std::io::Cursor::new(Vec::new());
        gguf_file::write(&mut bytes, &[("general.architecture", &architecture)], &tensors).unwrap();
        std::io::Write::write_all(&mut file, &bytes.into_inner()).unwrap();
        let files = ModelFiles::Gguf(GgufFile::open(file.path()).unwrap());
        (file, files)
    }

    fn numbers(&self, name: &str) -> Vec<f64> {
        self.tensors[name].1.iter().map(|x| f64::from(*x)).collect()
    }

    fn times(&self, matrix: &Matrix, x: &[f64]) -> Vec<f64> {
        let of_tensor = |rows: &Rows| {
            let weights = self.numbers(&rows.tensor.name);
            let row = |place: usize| weights[place * x.len()..][..x.len()].iter().zip(x).map(|(w, x)| w * x).sum();
            rows.places().map(row).collect::<Vec<f64>>()
        };
        let mut y: Vec<_> = matrix.stored.iter().flat_map(of_tensor).collect();
        let bias = matrix.bias.iter().flat_map(|bias| self.numbers(&bias.name));
        y.iter_mut().zip(bias).for_each(|(y, bias)| *y += bias);
        y
    }

    fn normed(&self, norm: &Norm, x: &[f64]) -> Vec<f64> {
        let mean = x.iter().map(|x| x * x).sum::<f64>() / x.len() as f64;
        let more = if norm.centred { 1.0 } else { 0.0 };
        let weights = self.numbers(&norm.weight.as_ref().unwrap().name);
        x.iter().zip(weights).map(|(x, w)| x / (mean + f64::from(norm.eps)).sqrt() * (w + more)).collect()
    }

    fn join(&self, join: &Join, x: &mut [f64], step: impl FnOnce(Vec<f64>) -> Vec<f64>) {
        let read = join.before.as_ref().map_or_else(|| x.to_vec(), |norm| self.normed(norm, x));
        let given = step(read);
        let given = join.after.as_ref().map_or(given.clone(), |norm| self.normed(norm, &given));
        x.iter_mut().zip(given).for_each(|(x, y)| *x += join.scale * y);
    }

    /// Queries or keys of one position: normed and rotated.
    fn placed(&self, of: &Attention, norm: Option<&HeadNorm>, mut x: Vec<f64>, position: usize) -> Vec<f64> {
        if let Some(HeadNorm { norm, over }) = norm {
            let width = if *over == Over::Head { of.key_width } else { x.len() };
            x = x.chunks(width).flat_map(|part| self.normed(norm, part)).collect();
        }
        let Some(rotation) = of.rotation else { return x };
        let Angles { rope, width } = &self.plan.angles[rotation.table];
        for head in x.chunks_mut(of.key_width) {
            for (pair, frequency) in rope.frequencies(*width, 64).into_iter().enumerate() {
                let [a, b] = match rotation.pairs {
                    PairOrder::HalfSplit => [pair, pair + width / 2],
                    PairOrder::Interleaved => [2 * pair, 2 * pair + 1],
                };
                let (sin, cos) = (position as f64 * frequency).sin_cos();
                [head[a], head[b]] = [head[a] * cos - head[b] * sin, head[a] * sin + head[b] * cos];
            }
        }
        x
    }

    fn attend(&self, of: &Attention, x: &[f64], cache: &mut Vec<[Vec<f64>; 2]>) -> Vec<f64> {
        let (Keys::Own(own), position) = (&of.keys, cache.len()) else { panic!("keys of its own") };
        let halves = |x: Vec<f64>| x.into_iter().map(|x| f16::from_f64(x).to_f64()).collect::<Vec<_>>();
        let k = self.placed(of, own.k_norm.as_ref(), self.times(&own.k, x), position);
        cache.push([halves(k), halves(self.times(own.v.as_ref().unwrap(), x))]);
        let q = self.placed(of, of.q_norm.as_ref(), self.times(&of.q, x), position);
        let seen = &cache[(position + 1).saturating_sub(of.sight.window.unwrap_or(usize::MAX))..];
        let width = of.key_width;
        let head = |(head, q): (usize, &[f64])| {
            let at = head * of.kv_heads / of.heads * width;
            let score = |[k, _]: &[Vec<f64>; 2]| {
                let score = of.scale * q.iter().zip(&k[at..]).map(|(q, k)| q * k).sum::<f64>();
                of.cap.map_or(score, |cap| cap * (score / cap).tanh()).exp()
            };
            let weights: Vec<f64> = seen.iter().map(score).collect();
            let total: f64 = weights.iter().sum();
            let mix = |i: usize| seen.iter().zip(&weights).map(|([_, v], w)| w * v[at + i]).sum::<f64>() / total;
            (0..width).map(mix).collect::<Vec<_>>()
        };
        let mut answers: Vec<_> = q.chunks(width).enumerate().flat_map(head).collect();
        let gates = of.gate.iter().flat_map(|gate| self.times(gate, x));
        answers.iter_mut().zip(gates).for_each(|(answer, gate)| *answer *= sigmoid(gate));
        self.times(&of.o, &answers)
    }

    fn recur(&self, of: &Delta, x: &[f64], kept: &mut Kept) -> Vec<f64> {
        let DeltaShape { key_heads, value_heads, key_dim, value_dim, kernel } = of.shape;
        let channels = of.shape.channels();
        kept.state.resize(value_heads * key_dim * value_dim, 0.0);
        kept.rows.push(self.times(&of.mixed, x));
        let taps = self.numbers(&of.convolution.name);
        let seen = |channel: usize| {
            let rows = kept.rows.iter().rev().take(kernel).enumerate();
            rows.map(|(back, row)| taps[channel * kernel + kernel - 1 - back] * row[channel]).sum::<f64>()
        };
        let mixed: Vec<f64> = (0..channels).map(seen).map(|x| x * sigmoid(x)).collect();
        let unit = |x: &[f64], scale: f64| {
            let size = (x.iter().map(|x| x * x).sum::<f64>() + 1e-6).sqrt();
            x.iter().map(|x| x / size * scale).collect::<Vec<_>>()
        };
        let [alpha, beta, gates] = [&of.alpha, &of.beta, &of.gate].map(|matrix| self.times(matrix, x));
        let (decay, dt) = match &of.decay {
            Decay::Log(log) => (self.numbers(&log.name).iter().map(|x| -x.exp()).collect(), &of.dt),
            Decay::Negative(decay) => (self.numbers(&decay.name), &of.dt),
        };
        let dt = self.numbers(&dt.name);
        let mut answers = Vec::new();
        for head in 0..value_heads {
            let of_keys = match of.order {
                HeadOrder::Grouped => head / (value_heads / key_heads),
                HeadOrder::Tiled => head % key_heads,
            };
            let query = unit(&mixed[of_keys * key_dim..][..key_dim], (key_dim as f64).sqrt().recip());
            let key = unit(&mixed[(key_heads + of_keys) * key_dim..][..key_dim], 1.0);
            let value = &mixed[2 * key_heads * key_dim + head * value_dim..][..value_dim];
            let keep = (decay[head] * (alpha[head] + dt[head]).exp().ln_1p()).exp();
            let state = &mut kept.state[head * key_dim * value_dim..][..key_dim * value_dim];
            let mut answer = vec![0.0; value_dim];
            for column in 0..value_dim {
                let known: f64 = (0..key_dim).map(|i| state[i * value_dim + column] * keep * key[i]).sum();
                let change = (value[column] - known) * sigmoid(beta[head]);
                for i in 0..key_dim {
                    let x = &mut state[i * value_dim + column];
                    *x = *x * keep + key[i] * change;
                    answer[column] += *x * query[i];
                }
            }
            let gates = gates[head * value_dim..].iter().map(|gate| gate * sigmoid(*gate));
            answers.extend(self.normed(&of.norm, &answer).iter().zip(gates).map(|(x, gate)| x * gate));
        }
        self.times(&of.o, &answers)
    }

    fn logits(&self, tokens: &[TokenId]) -> Vec<f64> {
        let plan = self.plan;
        let mut kept: Vec<_> = plan.layers.iter().map(|_| Kept::default()).collect();
        let table = self.numbers(plan.embedding.table.name());
        let mut out = Vec::new();
        for token in tokens {
            let row = &table[token.index() * plan.width..][..plan.width];
            let mut x: Vec<f64> = row.iter().map(|x| plan.embedding.scale * x).collect();
            for (layer, kept) in plan.layers.iter().zip(&mut kept) {
                self.join(&layer.mix, &mut x, |x| match &layer.mixer {
                    Mixer::Attention(attention) => self.attend(attention, &x, &mut kept.cache),
                    Mixer::Delta(delta) => self.recur(delta, &x, kept),
                    Mixer::Latent(latent) => self.attend_latents(latent, &x, &mut kept.cache),
                });
                let stream = x.clone();
                self.join(&layer.fed, &mut x, |x| self.feed_forward(&layer.feed, &x, &stream));
            }
            let logits = self.times(plan.head(), &self.normed(&plan.end.norm, &x)).into_iter();
            let logits = logits.map(|logit| plan.end.scale * logit);
            out.extend(logits.map(|logit| plan.end.cap.map_or(logit, |cap| cap * (logit / cap).tanh())));
        }
        out
    }
}

fn tokens() -> Vec<TokenId> {
    (0..TOKENS as u32).map(|i| TokenId(i * 13 % 70)).collect()
}

fn model(reference: &Reference<'_>) -> NativeLlama {
    let (_file, files) = reference.files();
    let cpu = Cpu::new(Pool::new(2), Isa::detect());
    let mut config = config();
    if let Some(of) = reference.plan.attentions().next() {
        (config.heads, config.kv_heads, config.head_dim) = (of.heads, of.kv_heads, of.key_width);
    }
    load::llama((&files, &config, reference.plan), (64, cpu), &mut |_, _| {}).unwrap()
}

fn check(name: &str, change: fn(&mut Plan)) -> Vec<f64> {
    let mut plan = base();
    change(&mut plan);
    assert!(super::runs(&plan), "{name}");
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
    let cases: [(&str, fn(&mut Plan)); 27] = [
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
    let lacking: [fn(&mut Plan); 4] = [
        |plan| attention(&mut plan.layers[1]).keys = Keys::OfLayer(0),
        |plan| plan.layers[1].output_scale = Some("scale".into()),
        |plan| attention(&mut plan.layers[2]).sight.causal = false,
        |plan| plan.layers[0].mix.after = plan.layers[0].mix.before.clone(),
    ];
    for change in lacking {
        let mut plan = base();
        change(&mut plan);
        assert!(!super::runs(&plan));
    }
}
