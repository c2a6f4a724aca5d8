//! Experts and latent attention in the plain computation.

use super::*;
use crate::nn::ExpertSizes;
use crate::plan::{
    Beside, ExpertStorage, Experts, Folded, Groups, Latent, LatentQueries, Rotation, RouterInput, RouterPlan, Scoring,
    SharedFeed, Tensor as Stored,
};

/// The last two layers have experts; the first one keeps its gated layer, which has another width.
fn experts(plan: &mut Plan, count: usize, change: impl Fn(&mut Experts, &BlockNames)) {
    for (block, layer) in plan.layers.iter_mut().enumerate().skip(1) {
        let names = BlockNames::of(&config(), block, false);
        let mut experts = Experts {
            sizes: ExpertSizes { count, d: 64, width: 32 },
            used: 2,
            act: Activation::Silu,
            block,
            storage: if block == 1 { ExpertStorage::Stacked } else { ExpertStorage::Single },
            router: RouterPlan::new(&names, count, Scoring::Softmax),
            shared: None,
            beside: None,
        };
        change(&mut experts, &names);
        layer.feed = Feed::Experts(Box::new(experts));
    }
}

pub(super) fn softmax(plan: &mut Plan) {
    experts(plan, 5, |experts, names| {
        experts.router.rescaled = names.block == 1;
        experts.storage = if names.block == 1 { ExpertStorage::Joined } else { ExpertStorage::Stacked };
    });
}

pub(super) fn sigmoid_in_groups(plan: &mut Plan) {
    experts(plan, 6, |experts, names| {
        experts.router = RouterPlan {
            bias: Some(names.bias("exp_probs_b", 6)),
            groups: Some(Groups { count: 3, used: 2 }),
            rescaled: true,
            factor: 2.5,
            ..RouterPlan::new(names, 6, Scoring::Sigmoid)
        };
        experts.shared = Some(SharedFeed { feed: names.gated("_shexp", 64, Activation::Silu), gate: None, count: 2 });
    });
    plan.layers[2].fed.scale = 0.7;
}

pub(super) fn gated_shared(plan: &mut Plan) {
    experts(plan, 5, |experts, names| {
        experts.router.rescaled = true;
        let gate = Some(names.matrix("ffn_gate_inp_shexp", 1, 64));
        experts.shared = Some(SharedFeed { feed: names.gated("_shexp", 32, Activation::Silu), gate, count: 1 });
    });
}

pub(super) fn beside_dense(plan: &mut Plan) {
    experts(plan, 4, |experts, names| {
        experts.act = Activation::Gelu;
        experts.router.rescaled = true;
        let scale = Vector { name: names.name("ffn_gate_inp_scale"), len: 64 };
        experts.router.reads = RouterInput::Stream { scale, factor: 0.125, eps: names.eps };
        experts.router.per_expert = Some(names.bias("ffn_down_exps_scale", 4));
        experts.beside = Some(Beside {
            dense: names.gated("", 96, Activation::Gelu),
            dense_norm: names.norm("post_ffw_norm_1"),
            before: names.norm("pre_ffw_norm_2"),
            experts_norm: names.norm("post_ffw_norm_2"),
        });
    });
    for (block, layer) in plan.layers.iter_mut().enumerate() {
        let names = BlockNames::of(&config(), block, false);
        (layer.mix.after, layer.fed.after) =
            (Some(names.norm("post_attention_norm")), Some(names.norm("post_ffw_norm")));
    }
}

/// Heads of 24 and 8 over latents of 32; `split`: as llama.cpp's converter stores the folded matrices.
pub(super) fn latents(plan: &mut Plan, split: bool, pairs: PairOrder) {
    let (heads, rank, plain, rotated, value) = (4, 32, 24, 8, 40);
    plan.angles = vec![Angles { rope: RopeSpec::plain(100.0), width: rotated }];
    for (block, layer) in plan.layers.iter_mut().enumerate() {
        let names = BlockNames::of(&config(), block, false);
        let of_queries = heads * (plain + rotated);
        let norm = |part: &str, len| Norm { eps: 1e-6, ..names.norm_of(part, len) };
        let some = |part: &str, out, columns| Rows {
            tensor: Stored { name: names.name(part), shape: vec![heads, out, columns] },
            ..Rows::all("", [heads * out, columns])
        };
        let both = |first, len| {
            let stored = [heads * (plain + value), rank];
            Rows::some(names.name("attn_kv_b"), stored, (first, len), (plain + value, heads))
        };
        let (keys, values) = match split {
            true => (some("attn_k_b", rank, plain), some("attn_v_b", value, rank)),
            false => (both(0, plain), both(plain, value)),
        };
        layer.mixer = Mixer::Latent(Latent {
            heads,
            rank,
            plain,
            rotated,
            value,
            queries: match split {
                true => LatentQueries::Squeezed(
                    names.matrix("attn_q_a", 64, 64),
                    norm("attn_q_a_norm", 64),
                    names.matrix("attn_q_b", of_queries, 64),
                ),
                false => LatentQueries::Direct(names.matrix("attn_q", of_queries, 64)),
            },
            kv: names.matrix("attn_kv_a_mqa", rank + rotated, 64),
            kv_norm: norm("attn_kv_a_norm", rank),
            to_keys: Folded { heads, out: rank, columns: plain, stored: keys, transposed: !split },
            to_values: Folded { heads, out: value, columns: rank, stored: values, transposed: false },
            o: names.matrix("attn_output", 64, heads * value),
            rotation: Rotation { table: 0, pairs },
            scale: 0.21,
        });
    }
}

impl Reference<'_> {
    pub(super) fn feed(&mut self, feed: &Feed) {
        let experts = match feed {
            Feed::Dense(gated) => return self.gated(gated),
            Feed::Experts(experts) => experts,
        };
        self.matrix(&experts.router.weight);
        experts.router.bias.iter().for_each(|bias| self.add(&bias.name, &[bias.len], |x| 0.3 * x));
        experts.router.per_expert.iter().for_each(|scale| self.add(&scale.name, &[scale.len], |x| 1.0 + 0.3 * x));
        if let RouterInput::Stream { scale, .. } = &experts.router.reads {
            self.add(&scale.name, &[scale.len], |x| 4.0 + x);
        }
        let names = experts.names();
        for (name, shape) in names.all().zip(crate::nn::StoredExperts::shapes(&names, experts.sizes)) {
            self.add(name, &shape, |x| 0.25 * x);
        }
        if let Some(shared) = &experts.shared {
            self.gated(&shared.feed);
            shared.gate.iter().for_each(|gate| self.matrix(gate));
        }
        if let Some(beside) = &experts.beside {
            self.gated(&beside.dense);
            [&beside.dense_norm, &beside.before, &beside.experts_norm].into_iter().for_each(|norm| self.norm(norm));
        }
    }

    fn gated(&mut self, feed: &GatedFeed) {
        [&feed.gate, &feed.up, &feed.down].into_iter().for_each(|own| self.matrix(own));
    }

    pub(super) fn latent(&mut self, of: &Latent) {
        match &of.queries {
            LatentQueries::Direct(q) => self.matrix(q),
            LatentQueries::Squeezed(down, norm, up) => {
                [down, up].into_iter().for_each(|own| self.matrix(own));
                self.norm(norm);
            }
        }
        [&of.kv, &of.o].into_iter().for_each(|own| self.matrix(own));
        self.norm(&of.kv_norm);
        for folded in [&of.to_keys, &of.to_values] {
            self.add(&folded.stored.tensor.name, &folded.stored.tensor.shape, |x| 0.25 * x);
        }
    }

    /// `x` is what the layer reads, normed; `stream` is not.
    pub(super) fn feed_forward(&self, feed: &Feed, x: &[f64], stream: &[f64]) -> Vec<f64> {
        let experts = match feed {
            Feed::Dense(gated) => return self.through(gated, x),
            Feed::Experts(experts) => experts,
        };
        let read = experts.beside.as_ref().map_or(x.to_vec(), |beside| self.normed(&beside.before, stream));
        let routed = match &experts.router.reads {
            RouterInput::Normed => read.clone(),
            RouterInput::Stream { scale, factor, eps } => {
                let mean = stream.iter().map(|x| x * x).sum::<f64>() / stream.len() as f64;
                let scales = self.numbers(&scale.name);
                stream.iter().zip(scales).map(|(x, s)| x / (mean + f64::from(*eps)).sqrt() * s * factor).collect()
            }
        };
        let mut out = vec![0.0; x.len()];
        for (expert, weight) in self.chosen(experts, &routed) {
            out.iter_mut().zip(self.expert(experts, expert, &read)).for_each(|(sum, y)| *sum += weight * y);
        }
        if let Some(shared) = &experts.shared {
            let factor = shared.gate.as_ref().map_or(1.0, |gate| 1.0 / (1.0 + (-self.times(gate, x)[0]).exp()));
            out.iter_mut().zip(self.through(&shared.feed, x)).for_each(|(sum, y)| *sum += factor * y);
        }
        let Some(beside) = &experts.beside else { return out };
        let dense = self.normed(&beside.dense_norm, &self.through(&beside.dense, x));
        self.normed(&beside.experts_norm, &out).into_iter().zip(dense).map(|(a, b)| a + b).collect()
    }

    fn through(&self, feed: &GatedFeed, x: &[f64]) -> Vec<f64> {
        let inner = gate_up(feed.act, self.times(&feed.gate, x), self.times(&feed.up, x));
        self.times(&feed.down, &inner)
    }

    /// The experts of a row by the definition: scores, groups, the best.
    fn chosen(&self, experts: &Experts, x: &[f64]) -> Vec<(usize, f64)> {
        let RouterPlan { bias, groups, rescaled, factor, per_expert, .. } = &experts.router;
        let logits = self.times(&experts.router.weight, x);
        let total: f64 = logits.iter().map(|x| x.exp()).sum();
        let scores: Vec<f64> = match experts.router.scoring {
            Scoring::Softmax => logits.iter().map(|x| x.exp() / total).collect(),
            Scoring::Sigmoid => logits.iter().map(|x| 1.0 / (1.0 + (-x).exp())).collect(),
        };
        let mut biased = scores.clone();
        bias.iter().for_each(|bias| biased.iter_mut().zip(self.numbers(&bias.name)).for_each(|(s, b)| *s += b));
        let best = |values: &[f64], count: usize| {
            let mut places: Vec<usize> = (0..values.len()).collect();
            places.sort_by(|a, b| values[*b].total_cmp(&values[*a]));
            places[..count].to_vec()
        };
        if let Some(Groups { count, used }) = groups {
            let width = biased.len() / count;
            let worth = |group: &[f64]| best(group, 2).into_iter().map(|at| group[at]).sum::<f64>();
            let open = best(&biased.chunks(width).map(worth).collect::<Vec<_>>(), *used);
            let closed = (0..biased.len()).filter(|at| !open.contains(&(at / width)));
            closed.collect::<Vec<_>>().into_iter().for_each(|at| biased[at] = f64::NEG_INFINITY);
        }
        let chosen = best(&biased, experts.used);
        let sum = if *rescaled { chosen.iter().map(|at| scores[*at]).sum() } else { 1.0 };
        let own = |at: usize| per_expert.as_ref().map_or(1.0, |scales| self.numbers(&scales.name)[at]);
        chosen.into_iter().map(|at| (at, scores[at] / sum * factor * own(at))).collect()
    }

    fn expert(&self, experts: &Experts, expert: usize, x: &[f64]) -> Vec<f64> {
        let ExpertSizes { d, width, .. } = experts.sizes;
        let names: Vec<_> = experts.names().all().cloned().collect();
        let rows = |name: &str, first: usize, rows: usize, x: &[f64]| -> Vec<f64> {
            let weights = self.numbers(name);
            let row = |row: usize| weights[row * x.len()..][..x.len()].iter().zip(x).map(|(w, x)| w * x).sum();
            (first..first + rows).map(row).collect()
        };
        let (gate, up, (down, first)) = match experts.storage {
            ExpertStorage::Stacked => (
                rows(&names[0], expert * width, width, x),
                rows(&names[1], expert * width, width, x),
                (&names[2], expert * d),
            ),
            ExpertStorage::Joined => (
                rows(&names[0], 2 * expert * width, width, x),
                rows(&names[0], (2 * expert + 1) * width, width, x),
                (&names[1], expert * d),
            ),
            ExpertStorage::Single => {
                let own = &names[3 * expert..];
                (rows(&own[0], 0, width, x), rows(&own[1], 0, width, x), (&own[2], 0))
            }
        };
        rows(down, first, d, &gate_up(experts.act, gate, up))
    }

    /// Keys and values of all heads, unfolded.
    pub(super) fn attend_latents(&self, of: &Latent, x: &[f64], cache: &mut Vec<[Vec<f64>; 2]>) -> Vec<f64> {
        let position = cache.len();
        let queries = match &of.queries {
            LatentQueries::Direct(q) => self.times(q, x),
            LatentQueries::Squeezed(down, norm, up) => self.times(up, &self.normed(norm, &self.times(down, x))),
        };
        let mut kept = self.times(&of.kv, x);
        let mut key = kept.split_off(of.rank);
        self.turn(of, position, &mut key);
        cache.push([self.normed(&of.kv_norm, &kept), key]);
        let folded = |folded: &Folded, head: usize, out: usize, column: usize| {
            let weights = &self.tensors[&folded.stored.tensor.name].1;
            let (row, at) = if folded.transposed { (column, out) } else { (out, column) };
            let of_head = if folded.transposed { folded.columns } else { folded.out };
            let columns = if folded.transposed { folded.out } else { folded.columns };
            f64::from(weights[folded.stored.place(head * of_head + row) * columns + at])
        };
        let head = |(head, query): (usize, &[f64])| {
            let mut turned = query[of.plain..].to_vec();
            self.turn(of, position, &mut turned);
            let score = |[latent, key]: &[Vec<f64>; 2]| {
                let plain = (0..of.plain).map(|i| {
                    let own = (0..of.rank).map(|r| folded(&of.to_keys, head, r, i) * latent[r]).sum::<f64>();
                    query[i] * own
                });
                let turned = turned.iter().zip(key).map(|(q, k)| q * k);
                (of.scale * plain.chain(turned).sum::<f64>()).exp()
            };
            let weights: Vec<f64> = cache.iter().map(score).collect();
            let total: f64 = weights.iter().sum();
            let value = |[latent, _]: &[Vec<f64>; 2], i: usize| {
                (0..of.rank).map(|r| folded(&of.to_values, head, i, r) * latent[r]).sum::<f64>()
            };
            let mix = |i: usize| cache.iter().zip(&weights).map(|(kept, w)| w * value(kept, i)).sum::<f64>() / total;
            (0..of.value).map(mix).collect::<Vec<_>>()
        };
        let answers = queries.chunks(of.plain + of.rotated).enumerate().flat_map(head).collect::<Vec<_>>();
        self.times(&of.o, &answers)
    }

    fn turn(&self, of: &Latent, position: usize, x: &mut [f64]) {
        let Angles { rope, width } = &self.plan.angles[of.rotation.table];
        for (pair, frequency) in rope.frequencies(*width, self.plan.context).into_iter().enumerate() {
            let [a, b] = match of.rotation.pairs {
                PairOrder::HalfSplit => [pair, pair + width / 2],
                PairOrder::Interleaved => [2 * pair, 2 * pair + 1],
            };
            let (sin, cos) = (position as f64 * frequency).sin_cos();
            [x[a], x[b]] = [x[a] * cos - x[b] * sin, x[a] * sin + x[b] * cos];
        }
    }
}

pub(super) fn gate_up(act: Activation, gate: Vec<f64>, up: Vec<f64>) -> Vec<f64> {
    let gate = gate.into_iter().map(|x| match act {
        Activation::Silu => x / (1.0 + (-x).exp()),
        Activation::Gelu => 0.5 * x * (1.0 + (0.797_884_560_8 * (x + 0.044_715 * x * x * x)).tanh()),
    });
    gate.zip(up).map(|(gate, up)| gate * up).collect()
}
