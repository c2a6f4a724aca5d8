//! The kernels in plain Rust, with the same operations in the same order: what tests compare bits with.

#![allow(clippy::excessive_precision)] // the digits of the shaders

use draftscope_kernels::Encoding;

use crate::forms::Form;
use crate::forms::numbers_of;
use crate::forms::{Block, for_each_block, is_quantised};
use crate::kernels::{PassRows, SEGMENT};

/// Adds 64 or 16 lanes as the shaders do.
pub(crate) fn tree(lanes: &mut [f32]) -> f32 {
    let mut step = lanes.len() / 2;
    while step > 0 {
        for t in 0..step {
            lanes[t] += lanes[t + step];
        }
        step /= 2;
    }
    lanes[0]
}

pub(crate) fn exp(x: f32) -> f32 {
    let y = x.clamp(-87.0, 88.0);
    let n = (y * std::f32::consts::LOG2_E + 0.5).floor();
    let r = (y - n * 0.693_359_375) + n * 0.000_212_194_440;
    let mut p = 0.000_198_756_915_f32;
    for c in [0.001_398_199_95, 0.008_333_452_05, 0.041_665_796_2, 0.166_666_657, 0.5] {
        p = p * r + c;
    }
    (p * (r * r) + (r + 1.0)) * f32::from_bits(((n as i32 + 127) as u32) << 23)
}

/// Activations of rows.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Acts {
    pub(crate) values: Vec<f32>,
    pub(crate) codes: Vec<i8>,
    pub(crate) scales: Vec<[f32; 4]>,
}

impl Acts {
    pub(crate) fn of(values: Vec<f32>) -> Self {
        let mut acts = Self::default();
        for block in values.as_chunks::<32>().0 {
            let top = block.iter().fold(0f32, |top, x| top.max(x.abs()));
            let inverse = if top > 0.0 { 127.0 / top } else { 0.0 };
            let codes = block.map(|x| (x * inverse).round_ties_even() as i8);
            let [low, high] = [&codes[..16], &codes[16..]].map(|half| half.iter().map(|c| i32::from(*c)).sum::<i32>());
            let scale = top / 127.0;
            acts.scales.push([scale, scale * low as f32, scale * high as f32, scale * (low + high) as f32]);
            acts.codes.extend(codes);
        }
        acts.values = values;
        acts
    }

    /// The codes as the device stores them.
    pub(crate) fn words(&self) -> Vec<u32> {
        self.codes.as_chunks::<4>().0.iter().map(|four| u32::from_le_bytes(four.map(i8::cast_unsigned))).collect()
    }
}

/// Rows of weights as the file stores them, decoded.
pub(crate) struct Weights {
    k: usize,
    /// Blocks of codes, `[rows][k / 32]`, or else numbers, `[rows][k]`.
    blocks: Vec<Block>,
    numbers: Vec<f32>,
    /// Whether halves of a block are summed one after the other.
    by_halves: bool,
    /// Whether each half, or block, has a minimum.
    has_min: bool,
}

impl Weights {
    /// Rows that the device reads in this form.
    pub(crate) fn new(form: Form, encoding: Encoding, bytes: &[u8], k: usize) -> Self {
        let (mut blocks, mut numbers) = (Vec::new(), Vec::new());
        let scales = form.layout().map(|layout| layout.scales);
        match scales.is_some() && is_quantised(encoding) {
            true => for_each_block(encoding, bytes, |block| blocks.push(block)),
            false => numbers = numbers_of(encoding, bytes),
        }
        let (by_halves, has_min) = scales.map_or((false, false), |scales| (scales.each_16(), scales.has_min()));
        Self { k, blocks, numbers, by_halves, has_min }
    }

    /// Weight `i` of a row.
    pub(crate) fn weight(&self, row: usize, i: usize) -> f32 {
        match self.blocks.get(row * self.k / 32 + i / 32) {
            Some(block) if self.has_min => block.numbers()[i % 32],
            Some(Block { codes, scale, .. }) => scale[i % 32 / 16] * f32::from(codes[i % 32]),
            None => self.numbers[row * self.k + i],
        }
    }

    /// Adds the product of a block to the products before it.
    fn add_block(&self, before: f32, (row, b): (usize, usize), (acts, act_row): (&Acts, usize)) -> f32 {
        let (index, at) = (row * self.k / 32 + b, act_row * self.k / 32 + b);
        let Some(Block { codes, scale, min }) = self.blocks.get(index) else {
            return (0..32).fold(before, |sum, i| sum + self.numbers[32 * index + i] * acts.values[32 * at + i]);
        };
        let x = acts.scales[at];
        let dot = |range: std::ops::Range<usize>| -> f32 {
            range.map(|i| i32::from(codes[i]) * i32::from(acts.codes[32 * at + i])).sum::<i32>() as f32
        };
        let add = |before: f32, half: usize, dot: f32, sum: f32| {
            let sum_of_codes = before + (scale[half] * x[0]) * dot;
            if self.has_min { sum_of_codes + min[half] * sum } else { sum_of_codes }
        };
        match self.by_halves {
            true => add(add(before, 0, dot(0..16), x[1]), 1, dot(16..32), x[2]),
            false => add(before, 0, dot(0..32), x[3]),
        }
    }

    /// Product of one row of weights with one of activations.
    pub(crate) fn dot(&self, row: usize, acts: &Acts, act_row: usize) -> f32 {
        let mut lanes = [0.0; 16];
        for (lane, sum) in lanes.iter_mut().enumerate() {
            *sum = (lane..self.k / 32).step_by(16).fold(0.0, |sum, b| self.add_block(sum, (row, b), (acts, act_row)));
        }
        tree(&mut lanes)
    }
}

/// 1 / sqrt(mean of squares + eps) of a row: 256 lanes add four neighbouring numbers in turn.
pub(crate) fn inverse_size(x: &[f32], eps: f32) -> f32 {
    let mut lanes = [0.0; 256];
    for (four, t) in x.chunks(4).zip((0..lanes.len()).cycle()) {
        four.iter().for_each(|x| lanes[t] += x * x);
    }
    1.0 / (tree(&mut lanes) / x.len() as f32 + eps).sqrt()
}

/// The same over a head, of which 64 lanes add every 64th number.
pub(crate) fn inverse_size_of_head(x: &[f32], eps: f32) -> f32 {
    let mut lanes = [0.0; 64];
    for (t, lane) in lanes.iter_mut().enumerate() {
        x.iter().skip(t).step_by(64).for_each(|x| *lane += x * x);
    }
    1.0 / (tree(&mut lanes) / x.len() as f32 + eps).sqrt()
}

pub(crate) fn norm(x: &[f32], weight: &[f32], eps: f32) -> Vec<f32> {
    norm_by(x, weight, |x| inverse_size(x, eps))
}

/// The same with the sums of a head.
pub(crate) fn norm_of_heads(x: &[f32], weight: &[f32], eps: f32) -> Vec<f32> {
    norm_by(x, weight, |x| inverse_size_of_head(x, eps))
}

fn norm_by(x: &[f32], weight: &[f32], inverse: impl Fn(&[f32]) -> f32) -> Vec<f32> {
    let row = |x: &[f32]| {
        let inverse = inverse(x);
        x.iter().zip(weight).map(|(x, weight)| x * inverse * weight).collect::<Vec<_>>()
    };
    x.chunks_exact(weight.len()).flat_map(row).collect()
}

/// SiLU of the gate, or its GELU, times the other half.
pub(crate) fn act_mul(gate: f32, up: f32, gelu: bool) -> f32 {
    let z = if gelu { 1.595_769_12 * (gate + 0.044715 * gate * gate * gate) } else { gate };
    gate / (1.0 + exp(-z)) * up
}

/// `cap · tanh(x / cap)`; `x` without a cap.
pub(crate) fn capped(x: f32, cap: Option<f32>) -> f32 {
    cap.map_or(x, |cap| cap * (1.0 - 2.0 / (1.0 + exp(2.0 * (x / cap)))))
}

/// A head after bias: normed if there is a weight, its first values rotated by these angles.
pub(crate) fn rope(head: &[f32], norm: Option<(&[f32], f32)>, angles: Option<&[[f32; 2]]>, scale: f32) -> Vec<f32> {
    let mut head = head.to_vec();
    if let Some((weight, eps)) = norm {
        let inverse = inverse_size_of_head(&head, eps);
        head.iter_mut().zip(weight).for_each(|(x, weight)| *x = *x * inverse * weight);
    }
    let Some(angles) = angles else { return head };
    let (a, rest) = head.split_at(angles.len());
    let (b, rest) = rest.split_at(angles.len());
    let pairs = || a.iter().zip(b).zip(angles);
    let first = pairs().map(|((a, b), [cos, sin])| (a * cos - b * sin) * scale);
    let turned = first.chain(pairs().map(|((a, b), [cos, sin])| (a * sin + b * cos) * scale));
    turned.chain(rest.iter().map(|x| x * scale)).collect()
}

/// Attention of one query head over keys and values `[positions][head_dim]`, of the last positions if there is a window.
pub(crate) fn attend(
    query: &[f32],
    (keys, values): (&[f32], &[f32]),
    (row, pass): (usize, &PassRows),
    (window, cap): (Option<usize>, Option<f32>),
) -> Vec<f32> {
    let hd = query.len();
    let path = &pass.paths[row];
    let places: Vec<usize> = (0..pass.base).chain(path.iter().map(|row| pass.base + row)).collect();
    let mut parts: Vec<(f32, f32, Vec<f32>)> = Vec::new();
    let low = window.map_or(0, |window| places.len().saturating_sub(window));
    for (index, places) in places.chunks(SEGMENT).enumerate() {
        let unseen = low.saturating_sub(index * SEGMENT).min(places.len());
        let places = &places[unseen..];
        if places.is_empty() {
            continue;
        }
        let score = |place: &usize| {
            let mut quarters = [0.0; 4];
            for (i, (q, k)) in query.iter().zip(&keys[place * hd..]).enumerate() {
                quarters[i / 8 % 4] += q * k;
            }
            let [a, b, c, d] = quarters;
            capped((a + c) + (b + d), cap)
        };
        let scores: Vec<f32> = places.iter().map(score).collect();
        let most = scores.iter().fold(-3.0e38f32, |most, score| most.max(*score));
        let weights: Vec<f32> = scores.iter().map(|score| exp(score - most)).collect();
        let total = weights.iter().fold(0.0, |total, weight| total + weight);
        let sums = (0..hd).map(|i| {
            let mut sum = 0.0;
            places.iter().zip(&weights).for_each(|(place, weight)| sum += weight * values[place * hd + i]);
            sum
        });
        parts.push((most, total, sums.collect()));
    }
    let joined = |i: usize| {
        let (mut most, mut total, mut sum) = (-3.0e38f32, 0.0, 0.0);
        for part in &parts {
            let next = most.max(part.0);
            let (before, share) = (exp(most - next), exp(part.0 - next));
            total = total * before + part.1 * share;
            sum = sum * before + part.2[i] * share;
            most = next;
        }
        sum / total
    };
    (0..hd).map(joined).collect()
}

/// The residual stream after a layer's normed output is added and all of it scaled.
pub(crate) fn norm_add(x: &[f32], output: &[f32], weight: &[f32], (eps, scale): (f32, f32)) -> Vec<f32> {
    let row = |(x, output): (&[f32], &[f32])| {
        let inverse = inverse_size(output, eps);
        let add = |((x, y), weight): ((&f32, &f32), &f32)| (x + y * inverse * weight) * scale;
        x.iter().zip(output).zip(weight).map(add).collect::<Vec<_>>()
    };
    x.chunks_exact(weight.len()).zip(output.chunks_exact(weight.len())).flat_map(row).collect()
}

/// Largest, sum and index of each stretch of 512; the sum is NaN if a logit is not finite.
pub(crate) fn stats(logits: &[f32]) -> Vec<(f32, f32, u32)> {
    let stretch = |(index, logits): (usize, &[f32])| {
        let most = logits.iter().fold(f32::MIN, |most, x| most.max(*x));
        let at = logits.iter().position(|x| *x == most).unwrap_or(0);
        let mut lanes = [0.0; 64];
        logits.iter().enumerate().for_each(|(i, x)| lanes[i % 64] += exp(x - most));
        let sum = if logits.iter().all(|x| x.is_finite()) { tree(&mut lanes) } else { f32::NAN };
        (most, sum, (512 * index + at) as u32)
    };
    logits.chunks(512).enumerate().map(stretch).collect()
}
