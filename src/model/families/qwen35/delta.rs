//! Gated DeltaNet, one token after the other (Yang et al., arXiv:2412.06464): a short causal convolution,
//! then a matrix of state per head that forgets, corrects itself towards the new value and answers the query.
//!
//! Invariant: a row goes through the same operations in the same order whatever rows run with it, so its bits depend
//! only on the tokens before it; running rows again from a stored state gives the same bits. The caller computes
//! projections.

use std::sync::Arc;

/// Sizes of the linear layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeltaShape {
    /// Heads of queries and keys.
    pub key_heads: usize,
    /// Heads of values; a multiple.
    pub value_heads: usize,
    /// Width of a query or key.
    pub key_dim: usize,
    /// Width of a value.
    pub value_dim: usize,
    /// Tokens that the convolution sees, including the row's own.
    pub kernel: usize,
}

impl DeltaShape {
    /// Width of the convolution: queries, keys, values.
    #[must_use]
    pub fn channels(&self) -> usize {
        2 * self.key_heads * self.key_dim + self.value_width()
    }

    /// Width of all values.
    #[must_use]
    pub fn value_width(&self) -> usize {
        self.value_heads * self.value_dim
    }

    /// Rows of Qwen3-Next's joint projection, which has query, key, values and gates of one key head after the other:
    /// those of queries, keys and values, and those of gates.
    pub(super) fn rows_of_qkvz(&self) -> [Vec<usize>; 2] {
        let values = self.value_heads / self.key_heads * self.value_dim;
        let (keys, head) = (self.key_dim, 2 * self.key_dim + 2 * values);
        let rows = |start: usize, len: usize| {
            (0..self.key_heads).flat_map(move |of| (0..len).map(move |row| of * head + start + row))
        };
        let mixed = rows(0, keys).chain(rows(keys, keys)).chain(rows(2 * keys, values));
        [mixed.collect(), rows(2 * keys + values, values).collect()]
    }

    /// Rows of Qwen3-Next's other joint projection: those of β, and those of α.
    pub(super) fn rows_of_ba(&self) -> [Vec<usize>; 2] {
        let values = self.value_heads / self.key_heads;
        [0, values]
            .map(|start| (0..self.value_heads).map(|head| head / values * 2 * values + start + head % values).collect())
    }

    /// Bytes of one layer's state: matrices and convolution window, f32.
    #[must_use]
    pub fn state_bytes(&self) -> u64 {
        let matrices = self.value_width() * self.key_dim;
        4 * (matrices + (self.kernel - 1) * self.channels()) as u64
    }

    /// Bytes of one row's inputs, from which a state can be recomputed, f32.
    #[must_use]
    pub fn input_bytes(&self) -> u64 {
        4 * (self.channels() + 2 * self.value_heads) as u64
    }
}

/// Which key head a value head reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeadOrder {
    /// Value heads of one key head are adjacent: Hugging Face.
    Grouped,
    /// Value head j reads key head j modulo their number: GGUF.
    Tiled,
}

/// Weights of a linear layer except its projections.
#[derive(Debug)]
pub struct DeltaWeights {
    /// Sizes.
    pub shape: DeltaShape,
    /// Which key head a value head reads.
    pub order: HeadOrder,
    /// `[channels, kernel]`
    pub conv: Vec<f32>,
    /// `−exp(A_log)`, one per value head.
    pub decay: Vec<f32>,
    /// Added to α before softplus, one per value head.
    pub dt_bias: Vec<f32>,
    /// Output norm, `[value_dim]`; a plain factor in all files.
    pub norm: Vec<f32>,
    /// Epsilon of the output norm.
    pub eps: f32,
}

impl DeltaWeights {
    /// Bytes in memory.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let numbers = [&self.conv, &self.decay, &self.dt_bias, &self.norm];
        numbers.iter().map(|numbers| size_of_val(numbers.as_slice()) as u64).sum()
    }
}

/// A layer's state from row to row.
#[derive(Clone, Debug, PartialEq)]
pub struct DeltaState {
    matrices: Vec<f32>, // [value_heads][key_dim][value_dim]
    window: Vec<f32>,   // [kernel − 1][channels], the oldest row first
}

impl DeltaState {
    /// Before the first token.
    #[must_use]
    pub fn new(shape: &DeltaShape) -> Self {
        let matrices = vec![0.0; shape.value_width() * shape.key_dim];
        Self { matrices, window: vec![0.0; (shape.kernel - 1) * shape.channels()] }
    }
}

/// A row's inputs that change the state.
#[derive(Clone, Debug)]
pub struct DeltaInput {
    /// `[channels]`: queries, keys, values before the convolution.
    pub mixed: Vec<f32>,
    /// `[value_heads]`: the decay, before softplus.
    pub alpha: Vec<f32>,
    /// `[value_heads]`: the strength of the correction, before the sigmoid.
    pub beta: Vec<f32>,
}

fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + (-x).exp())
}

/// `ln(1 + e^x)`
fn softplus(x: f32) -> f32 {
    if x > 20.0 { x } else { x.exp().ln_1p() }
}

/// `x / sqrt(Σ x² + 1e-6) · scale`
fn normalise(x: &mut [f32], scale: f32) {
    let squares: f32 = x.iter().map(|x| x * x).sum();
    let factor = scale / (squares + 1e-6).sqrt();
    x.iter_mut().for_each(|x| *x *= factor);
}

impl DeltaWeights {
    fn key_head(&self, value_head: usize) -> usize {
        match self.order {
            HeadOrder::Grouped => value_head / (self.shape.value_heads / self.shape.key_heads),
            HeadOrder::Tiled => value_head % self.shape.key_heads,
        }
    }

    /// The state after one more row, and the row's results `[value_heads · value_dim]`, normed and gated.
    #[must_use]
    pub fn step(&self, before: &DeltaState, input: &DeltaInput, gate: &[f32]) -> (DeltaState, Vec<f32>) {
        let (after, mut out) = self.advance(before, input);
        for (out, gate) in out.chunks_exact_mut(self.shape.value_dim).zip(gate.chunks_exact(self.shape.value_dim)) {
            let mean = out.iter().map(|x| x * x).sum::<f32>() / self.shape.value_dim as f32;
            let factor = 1.0 / (mean + self.eps).sqrt();
            for ((out, gate), weight) in out.iter_mut().zip(gate).zip(&self.norm) {
                *out = *out * factor * weight * (gate * sigmoid(*gate));
            }
        }
        (after, out)
    }

    /// The state after one more row, and the results before norm and gate.
    fn advance(&self, before: &DeltaState, input: &DeltaInput) -> (DeltaState, Vec<f32>) {
        let shape = &self.shape;
        let (dk, dv) = (shape.key_dim, shape.value_dim);
        let mut mixed = self.convolve(&before.window, &input.mixed);
        let keys_at = shape.key_heads * dk;
        let (queries, rest) = mixed.split_at_mut(keys_at);
        let (keys, values) = rest.split_at_mut(keys_at);
        queries.chunks_exact_mut(dk).for_each(|query| normalise(query, 1.0 / (dk as f32).sqrt()));
        keys.chunks_exact_mut(dk).for_each(|key| normalise(key, 1.0));
        let mut matrices = Vec::with_capacity(before.matrices.len());
        let mut out = vec![0.0; shape.value_width()];
        for (head, from) in before.matrices.chunks_exact(dk * dv).enumerate() {
            let (key, query) = (&keys[self.key_head(head) * dk..][..dk], &queries[self.key_head(head) * dk..][..dk]);
            let keep = (self.decay[head] * softplus(input.alpha[head] + self.dt_bias[head])).exp();
            // 1. decay; what the state returns for the key
            let start = matrices.len();
            matrices.extend(from.iter().map(|x| x * keep));
            let state = &mut matrices[start..];
            let mut known = vec![0.0; dv];
            for (row, key) in state.chunks_exact(dv).zip(key) {
                known.iter_mut().zip(row).for_each(|(known, x)| *known += x * key);
            }
            // 2. correct it towards the value, and query it
            let rate = sigmoid(input.beta[head]);
            let value = &values[head * dv..][..dv];
            known.iter_mut().zip(value).for_each(|(known, value)| *known = (value - *known) * rate);
            let out = &mut out[head * dv..][..dv];
            for ((row, key), query) in state.chunks_exact_mut(dv).zip(key).zip(query) {
                for ((x, change), out) in row.iter_mut().zip(&known).zip(&mut *out) {
                    *x += key * change;
                    *out += *x * query;
                }
            }
        }
        let channels = shape.channels();
        let window = before.window.iter().skip(channels).chain(&input.mixed);
        let window = window.skip(if shape.kernel == 1 { channels } else { 0 }).copied().collect();
        (DeltaState { matrices, window }, out)
    }

    /// SiLU of the depthwise convolution over the window and the row.
    fn convolve(&self, window: &[f32], row: &[f32]) -> Vec<f32> {
        let (kernel, channels) = (self.shape.kernel, self.shape.channels());
        let mut sums = vec![0.0; channels];
        for (tap, seen) in window.chunks_exact(channels).chain(std::iter::once(row)).enumerate() {
            for ((sum, x), weights) in sums.iter_mut().zip(seen).zip(self.conv.chunks_exact(kernel)) {
                *sum += weights[tap] * x;
            }
        }
        sums.iter_mut().for_each(|sum| *sum *= sigmoid(*sum));
        sums
    }

    /// The state after these rows.
    #[must_use]
    pub fn replay<'a>(&self, from: &Arc<DeltaState>, rows: impl Iterator<Item = &'a DeltaInput>) -> Arc<DeltaState> {
        rows.fold(Arc::clone(from), |state, row| Arc::new(self.advance(&state, row).0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn weights() -> DeltaWeights {
        let shape = DeltaShape { key_heads: 1, value_heads: 2, key_dim: 2, value_dim: 2, kernel: 2 };
        DeltaWeights {
            shape,
            order: HeadOrder::Grouped,
            conv: (0..shape.channels()).flat_map(|_| [0.0, 1.0]).collect(),
            decay: vec![-1.0, 0.0],
            dt_bias: vec![0.0; 2],
            norm: vec![1.0; 2],
            eps: 0.0,
        }
    }

    #[test]
    fn a_full_correction_stores_the_value_under_the_key() {
        let weights = weights();
        // query and key along the first axis; β = 1, so that the state returns the value at once
        let mut mixed = vec![9.0, 0.0, 9.0, 0.0];
        mixed.extend([2.0, 3.0, 4.0, 5.0]);
        let input = DeltaInput { mixed, alpha: vec![0.0; 2], beta: vec![100.0; 2] };
        let empty = DeltaState::new(&weights.shape);
        let (state, out) = weights.advance(&empty, &input);
        let silu = |x: f32| x * sigmoid(x);
        for (out, value) in out.iter().zip([2.0, 3.0, 4.0, 5.0]) {
            // the result is scaled by 1 / √dk
            assert!((out * 2f32.sqrt() - silu(value)).abs() < 1e-4, "{out} for {value}");
        }
        assert_eq!(state.window, input.mixed);
        // the same again: nothing is left to correct in the head without decay
        let (again, _) = weights.advance(&state, &input);
        let half = again.matrices.len() / 2;
        let moved = again.matrices[half..].iter().zip(&state.matrices[half..]).map(|(a, b)| (a - b).abs());
        assert!(moved.fold(0.0, f32::max) < 1e-5);
    }

    #[test]
    fn joint_projections_have_the_rows_of_one_key_head_after_the_other() {
        let shape = DeltaShape { key_heads: 2, value_heads: 4, key_dim: 2, value_dim: 1, kernel: 2 };
        let [mixed, gates] = shape.rows_of_qkvz();
        // of each key head: two rows of its query, two of its key, one of each value, one of each gate
        assert_eq!(mixed, [0, 1, 8, 9, 2, 3, 10, 11, 4, 5, 12, 13]);
        assert_eq!(gates, [6, 7, 14, 15]);
        assert_eq!(shape.rows_of_ba(), [[0, 1, 4, 5], [2, 3, 6, 7]]);
    }

    #[test]
    fn tiled_and_grouped_heads_read_other_keys() {
        let mut weights = weights();
        weights.shape = DeltaShape { key_heads: 2, value_heads: 4, ..weights.shape };
        assert_eq!((0..4).map(|head| weights.key_head(head)).collect::<Vec<_>>(), [0, 0, 1, 1]);
        weights.order = HeadOrder::Tiled;
        assert_eq!((0..4).map(|head| weights.key_head(head)).collect::<Vec<_>>(), [0, 1, 0, 1]);
    }
}
