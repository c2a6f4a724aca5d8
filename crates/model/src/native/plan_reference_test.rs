//! The plain computation of a plan in f64, over tensors of noise.

use std::collections::BTreeMap;

use candle_core::quantized::{GgmlDType, QTensor, gguf_file};
use candle_core::{Device, Tensor};
use half::f16;

use super::*;
use crate::files::{GgufFile, ModelFiles};
use crate::native::testing::Noise;

/// What a layer of the plain computation keeps: keys and values, or a state and the last rows of the convolution.
#[derive(Default)]
pub(super) struct Kept {
    cache: Vec<[Vec<f64>; 2]>,
    state: Vec<f64>,
    rows: Vec<Vec<f64>>,
}

pub(super) fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// The plan's tensors, and the plain computation over them.
pub(super) struct Reference<'a> {
    pub(super) plan: &'a Plan,
    pub(super) tensors: BTreeMap<String, (Vec<usize>, Vec<f32>)>,
}

impl<'a> Reference<'a> {
    pub(super) fn new(plan: &'a Plan) -> Self {
        let mut made = Self { plan, tensors: BTreeMap::new() };
        made.matrix(&plan.embedding.table);
        made.norm(&plan.end.norm);
        for layer in &plan.layers {
            for join in [&layer.mix, &layer.fed] {
                join.before.iter().chain(&join.after).for_each(|norm| made.norm(norm));
            }
            match &layer.mixer {
                Mixer::Attention(of) => {
                    let own = if let Keys::Own(own) = &of.keys { Some(own) } else { None };
                    let norms = of.q_norm.iter().chain(own.iter().flat_map(|own| &own.k_norm));
                    norms.for_each(|norm| made.norm(&norm.norm));
                    let of_keys = own.iter().flat_map(|own| std::iter::once(&own.k).chain(&own.v));
                    [&of.q, &of.o].into_iter().chain(of_keys).chain(&of.gate).for_each(|own| made.matrix(own));
                }
                Mixer::Delta(of) => made.delta(of),
                Mixer::Latent(of) => made.latent(of),
            }
            made.feed(&layer.feed);
            if let Some(input) = &layer.token_input {
                [&input.gate, &input.project].into_iter().for_each(|own| made.matrix(own));
                made.norm(&input.after);
            }
            layer.output_scale.iter().for_each(|scale| made.add(scale, &[1], |x| 1.0 + 0.5 * x));
        }
        if let Some(of) = &plan.embedding.by_layer {
            [&of.table, &of.project].into_iter().for_each(|own| made.matrix(own));
            made.norm(&of.norm);
        }
        made
    }

    pub(super) fn add(&mut self, name: &str, shape: &[usize], number: impl Fn(f32) -> f32) {
        let seed = self.tensors.len() as u64 + 1;
        let make = || {
            let numbers = Noise(seed).numbers(shape.iter().product());
            (shape.to_vec(), numbers.into_iter().map(number).collect())
        };
        self.tensors.entry(name.to_owned()).or_insert_with(make);
    }

    pub(super) fn matrix(&mut self, matrix: &Matrix) {
        matrix.stored.iter().for_each(|rows| self.add(&rows.tensor.name, &rows.tensor.shape, |x| 0.25 * x));
        matrix.bias.iter().for_each(|bias| self.add(&bias.name, &[bias.len], |x| 0.5 * x));
    }

    pub(super) fn norm(&mut self, norm: &Norm) {
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

    pub(super) fn files(&self) -> (tempfile::NamedTempFile, ModelFiles) {
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

    pub(super) fn numbers(&self, name: &str) -> Vec<f64> {
        self.tensors[name].1.iter().map(|x| f64::from(*x)).collect()
    }

    pub(super) fn times(&self, matrix: &Matrix, x: &[f64]) -> Vec<f64> {
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

    pub(super) fn normed(&self, norm: &Norm, x: &[f64]) -> Vec<f64> {
        let mean = x.iter().map(|x| x * x).sum::<f64>() / x.len() as f64;
        let more = if norm.centred { 1.0 } else { 0.0 };
        let weights = norm.weight.as_ref().map_or_else(|| vec![1.0; x.len()], |weight| self.numbers(&weight.name));
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

    /// The cache is its own, or that of another layer, which has this position already.
    fn attend(&self, of: &Attention, x: &[f64], position: usize, cache: &mut Vec<[Vec<f64>; 2]>) -> Vec<f64> {
        let halves = |x: Vec<f64>| x.into_iter().map(|x| f16::from_f64(x).to_f64()).collect::<Vec<_>>();
        if let Keys::Own(own) = &of.keys {
            let raw = self.times(&own.k, x);
            let mut v = own.v.as_ref().map_or_else(|| raw.clone(), |v| self.times(v, x));
            if let Some(norm) = &own.v_norm {
                v = v.chunks(of.value_width).flat_map(|head| self.normed(norm, head)).collect();
            }
            cache.push([halves(self.placed(of, own.k_norm.as_ref(), raw, position)), halves(v)]);
        }
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

    pub(super) fn logits(&self, tokens: &[TokenId]) -> Vec<f64> {
        let plan = self.plan;
        let mut kept: Vec<_> = plan.layers.iter().map(|_| Kept::default()).collect();
        let table = self.numbers(plan.embedding.table.name());
        let mut out = Vec::new();
        for (position, token) in tokens.iter().enumerate() {
            let row = &table[token.index() * plan.width..][..plan.width];
            let mut x: Vec<f64> = row.iter().map(|x| plan.embedding.scale * x).collect();
            let slices = self.slices(*token, &x);
            for (index, layer) in plan.layers.iter().enumerate() {
                self.join(&layer.mix, &mut x, |x| match &layer.mixer {
                    Mixer::Attention(attention) => {
                        let source = if let Keys::OfLayer(other) = attention.keys { other } else { index };
                        self.attend(attention, &x, position, &mut kept[source].cache)
                    }
                    Mixer::Delta(delta) => self.recur(delta, &x, &mut kept[index]),
                    Mixer::Latent(latent) => self.attend_latents(latent, &x, &mut kept[index].cache),
                });
                let stream = x.clone();
                self.join(&layer.fed, &mut x, |x| self.feed_forward(&layer.feed, &x, &stream));
                if let Some(input) = &layer.token_input {
                    self.add_input(input, &slices[index], &mut x);
                }
                let scale = layer.output_scale.as_ref().map_or(1.0, |scale| self.numbers(scale)[0]);
                x.iter_mut().for_each(|x| *x *= scale);
            }
            let logits = self.times(plan.head(), &self.normed(&plan.end.norm, &x)).into_iter();
            let logits = logits.map(|logit| plan.end.scale * logit);
            out.extend(logits.map(|logit| plan.end.cap.map_or(logit, |cap| cap * (logit / cap).tanh())));
        }
        out
    }
}
