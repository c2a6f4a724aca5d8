//! Gated DeltaNet, one token after the other (Yang et al., arXiv:2412.06464): a short causal convolution,
//! then a matrix of state per head that forgets, corrects itself towards the new value and answers the query.
//!
//! Invariant: a row goes through the same operations in the same order whatever rows run with it, so its bits depend
//! only on the tokens before it; running rows again from a stored state gives the same bits. The caller computes
//! projections, and says what runs value heads.

use std::sync::{Arc, Mutex, PoisonError};

use draftscope_kernels::{DeltaHead, DeltaLayer};

use crate::ModelError;
use crate::files::TensorSource;
use crate::plan::{self, Decay, DeltaShape, HeadOrder};

/// Runs value heads.
pub(crate) type RunHeads<'a> = &'a dyn Fn(&mut [DeltaHead<'_>]);

/// The recurrent layers of a model, and what runs their heads.
#[derive(Clone, Copy)]
pub(crate) struct DeltaLayers<'a> {
    pub(crate) weights: &'a [&'a DeltaWeights],
    pub(crate) run: RunHeads<'a>,
}

/// Weights of a linear layer except its projections.
#[derive(Debug)]
pub(crate) struct DeltaWeights {
    /// Sizes.
    pub(crate) shape: DeltaShape,
    /// Which key head a value head reads.
    pub(crate) order: HeadOrder,
    /// Weights of the convolution, `[kernel, channels]`.
    pub(crate) taps: Vec<f32>,
    /// `−exp(A_log)`, one per value head.
    pub(crate) decay: Vec<f32>,
    /// Added to α before softplus, one per value head.
    pub(crate) dt_bias: Vec<f32>,
    /// Output norm, `[value_dim]`; a plain factor in all files.
    pub(crate) norm: Vec<f32>,
    /// Epsilon of the output norm.
    pub(crate) eps: f32,
    /// Memory for states.
    pub(crate) spare: Arc<Spare>,
}

impl DeltaWeights {
    /// Reads them from a model's files.
    ///
    /// # Errors
    /// When a tensor is missing, misshapen or damaged, or lets a state grow.
    pub(crate) fn read(files: &dyn TensorSource, plan: &plan::Delta) -> Result<Self, ModelError> {
        let (shape, tensor) = (plan.shape, &plan.convolution);
        let taps = files.stored(&tensor.name, &tensor.shape)?.to_f32(&tensor.shape)?;
        let (decay, stored) = match &plan.decay {
            Decay::Log(log) => {
                (files.vector(&log.name, log.len)?.into_iter().map(|log| -log.exp()).collect::<Vec<_>>(), log)
            }
            Decay::Negative(decay) => (files.vector(&decay.name, decay.len)?, decay),
        };
        if decay.iter().any(|decay| !decay.is_finite() || *decay > 0.0) {
            return Err(ModelError::Metadata(format!("'{}' lets a state grow, which it never does", stored.name)));
        }
        Ok(Self {
            shape,
            order: plan.order,
            taps: transposed(&taps, shape.kernel),
            decay,
            dt_bias: files.vector(&plan.dt.name, plan.dt.len)?,
            norm: plan.norm.read(files, shape.value_dim)?,
            eps: plan.norm.eps,
            spare: Arc::default(),
        })
    }

    /// Bytes in memory.
    pub(crate) fn bytes(&self) -> u64 {
        let numbers = [&self.taps, &self.decay, &self.dt_bias, &self.norm];
        numbers.iter().map(|numbers| size_of_val(numbers.as_slice()) as u64).sum()
    }
}

/// Rows of `width` numbers as columns.
fn transposed(rows: &[f32], width: usize) -> Vec<f32> {
    (0..width).flat_map(|column| rows.iter().skip(column).step_by(width)).copied().collect()
}

/// Memory of states that are gone, for those to come: fresh memory costs a page fault for every 4 KiB.
#[derive(Debug, Default)]
pub(crate) struct Spare(Mutex<Vec<Vec<f32>>>);

/// States whose memory is kept; that of further ones is returned at once.
const MOST_SPARE: usize = 4;

impl Spare {
    /// Numbers to be overwritten.
    fn take(self: &Arc<Self>, len: usize) -> Matrices {
        let spare = self.0.lock().unwrap_or_else(PoisonError::into_inner).pop().filter(|numbers| numbers.len() == len);
        Matrices { numbers: spare.unwrap_or_else(|| vec![0.0; len]), home: Arc::clone(self) }
    }
}

/// Numbers whose memory returns to where it came from.
#[derive(Debug)]
struct Matrices {
    numbers: Vec<f32>,
    home: Arc<Spare>,
}

impl Drop for Matrices {
    fn drop(&mut self) {
        let mut spare = self.home.0.lock().unwrap_or_else(PoisonError::into_inner);
        if spare.len() < MOST_SPARE {
            spare.push(std::mem::take(&mut self.numbers));
        }
    }
}

impl PartialEq for Matrices {
    fn eq(&self, other: &Self) -> bool {
        self.numbers == other.numbers
    }
}

/// A layer's state from row to row.
#[derive(Debug, PartialEq)]
pub(crate) struct DeltaState {
    matrices: Matrices, // [value_heads][key_dim][value_dim]
    window: Vec<f32>,   // [kernel − 1][channels], the oldest row first
}

impl DeltaState {
    /// Before the first token.
    pub(crate) fn new(shape: &DeltaShape) -> Self {
        let matrices = Matrices { numbers: vec![0.0; shape.value_width() * shape.key_dim], home: Arc::default() };
        Self { matrices, window: vec![0.0; (shape.kernel - 1) * shape.channels()] }
    }
}

/// A row's inputs that change the state.
#[derive(Clone, Debug, Default)]
pub(crate) struct DeltaInput {
    /// `[channels]`: queries, keys, values before the convolution.
    pub(crate) mixed: Vec<f32>,
    /// `[value_heads]`: the decay, before softplus.
    pub(crate) alpha: Vec<f32>,
    /// `[value_heads]`: the strength of the correction, before the sigmoid.
    pub(crate) beta: Vec<f32>,
}

fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + (-x).exp())
}

/// `ln(1 + e^x)`
fn softplus(x: f32) -> f32 {
    if x > 20.0 { x } else { x.exp().ln_1p() }
}

impl DeltaWeights {
    fn key_head(&self, value_head: usize) -> usize {
        match self.order {
            HeadOrder::Grouped => value_head / (self.shape.value_heads / self.shape.key_heads),
            HeadOrder::Tiled => value_head % self.shape.key_heads,
        }
    }

    /// Runs rows after `before`: their results `[m][value width]`, normed and gated, and the states after the rows that
    /// `marks` names, ascending. Without gates there are no results.
    pub(crate) fn pass(
        &self,
        before: &DeltaState,
        (rows, gates): (&[&DeltaInput], &[&[f32]]),
        marks: &[usize],
        run: RunHeads<'_>,
    ) -> (Vec<f32>, Vec<DeltaState>) {
        let (shape, m) = (&self.shape, rows.len());
        let window = before.window.chunks_exact(shape.channels());
        let seen: Vec<&[f32]> = window.chain(rows.iter().map(|row| &row.mixed[..])).collect();
        let mut after: Vec<_> = marks.iter().map(|_| self.spare.take(before.matrices.numbers.len())).collect();
        let mut out = vec![0.0; m * shape.value_width()]; // [value heads][m][value_dim]
        let mut heads = self.heads(before, (rows, &seen, gates), &mut out);
        let each = shape.key_dim * shape.value_dim;
        for (&row, matrices) in marks.iter().zip(&mut after) {
            for (head, state) in heads.iter_mut().zip(matrices.numbers.chunks_exact_mut(each)) {
                head.after.push((row, state));
            }
        }
        run(&mut heads);
        drop(heads);
        let states = marks.iter().zip(after).map(|(row, matrices)| {
            let window = seen[row + 1..row + shape.kernel].concat();
            DeltaState { matrices, window }
        });
        (by_rows(&out, shape), states.collect())
    }

    /// The value heads of a pass, which stores no states yet.
    fn heads<'a>(
        &'a self,
        before: &'a DeltaState,
        (rows, seen, gates): (&[&DeltaInput], &'a [&'a [f32]], &'a [&'a [f32]]),
        out: &'a mut [f32],
    ) -> Vec<DeltaHead<'a>> {
        let DeltaShape { key_heads, key_dim, value_dim, .. } = self.shape;
        let layer = DeltaLayer { seen, taps: &self.taps, gates, norm: &self.norm, eps: self.eps, key_dim, value_dim };
        let states = before.matrices.numbers.chunks_exact(key_dim * value_dim);
        let heads = states.zip(out.chunks_exact_mut(rows.len() * value_dim)).enumerate();
        let head = |(head, (before, out)): (usize, (&'a [f32], &'a mut [f32]))| {
            let (key, value) = (self.key_head(head) * key_dim, 2 * key_heads * key_dim + head * value_dim);
            let rates = rows.iter().map(|row| self.rates(row, head)).collect();
            let channels = [key, key_heads * key_dim + key, value];
            DeltaHead { layer, channels, gate: head * value_dim, rates, before, after: Vec::new(), out }
        };
        heads.map(head).collect()
    }

    /// What remains of a head's state, and the strength of its correction.
    fn rates(&self, row: &DeltaInput, head: usize) -> [f32; 2] {
        let keep = (self.decay[head] * softplus(row.alpha[head] + self.dt_bias[head])).exp();
        [keep, sigmoid(row.beta[head])]
    }

    /// The state after these rows.
    pub(crate) fn replay<'a>(
        &self,
        from: &Arc<DeltaState>,
        rows: impl Iterator<Item = &'a DeltaInput>,
        run: RunHeads<'_>,
    ) -> Arc<DeltaState> {
        let rows: Vec<_> = rows.collect();
        let Some(last) = rows.len().checked_sub(1) else { return Arc::clone(from) };
        let (_, mut states) = self.pass(from, (&rows, &[]), &[last], run);
        states.pop().map_or_else(|| Arc::clone(from), Arc::new)
    }
}

/// `[value heads][m][value_dim] -> [m][value heads · value_dim]`
fn by_rows(heads: &[f32], shape: &DeltaShape) -> Vec<f32> {
    let m = heads.len() / shape.value_width();
    let row = |row| heads.chunks_exact(shape.value_dim).skip(row).step_by(m);
    (0..m).flat_map(row).flatten().copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use draftscope_kernels::Isa;

    fn weights() -> DeltaWeights {
        let shape = DeltaShape { key_heads: 1, value_heads: 2, key_dim: 2, value_dim: 2, kernel: 2 };
        DeltaWeights {
            shape,
            order: HeadOrder::Grouped,
            taps: [0.0, 1.0].iter().flat_map(|tap| vec![*tap; shape.channels()]).collect(),
            decay: vec![-1.0, 0.0],
            dt_bias: vec![0.0; 2],
            norm: vec![1.0; 2],
            eps: 0.0,
            spare: Arc::default(),
        }
    }

    fn run(heads: &mut [DeltaHead<'_>]) {
        heads.iter_mut().for_each(|head| head.run_on(Isa::detect()));
    }

    #[test]
    fn a_full_correction_stores_the_value_under_the_key() {
        let weights = weights();
        // query and key along the first axis; β = 1, so that the state returns the value at once
        let mut mixed = vec![9.0, 0.0, 9.0, 0.0];
        mixed.extend([2.0, 3.0, 4.0, 5.0]);
        let input = DeltaInput { mixed, alpha: vec![0.0; 2], beta: vec![100.0; 2] };
        let empty = DeltaState::new(&weights.shape);
        let gates = [30.0; 4]; // SiLU leaves them as they are
        let (out, mut states) = weights.pass(&empty, (&[&input, &input], &[&gates, &gates]), &[0, 1], &run);
        let (again, state) = (states.pop().unwrap(), states.pop().unwrap());
        let silu = |x: f32| x * sigmoid(x);
        let values = [2.0, 3.0, 4.0, 5.0].map(silu);
        let stored = &state.matrices.numbers; // [heads][key][value]: the key is the first axis
        for (stored, value) in [stored[0], stored[1], stored[4], stored[5]].into_iter().zip(values) {
            assert!((stored - value).abs() < 1e-4, "{stored} for {value}");
        }
        assert!([2, 3, 6, 7].iter().all(|at| stored[*at] == 0.0));
        // a head's result is its value, normed, times the gate
        for (out, value) in out[..4].chunks_exact(2).zip(values.chunks_exact(2)) {
            let size = ((value[0] * value[0] + value[1] * value[1]) / 2.0).sqrt();
            assert!((out[0] / 30.0 - value[0] / size).abs() < 1e-4 && (out[1] / 30.0 - value[1] / size).abs() < 1e-4);
        }
        assert_eq!(state.window, input.mixed);
        // the same again: nothing is left to correct in the head without decay
        let half = stored.len() / 2;
        let moved = again.matrices.numbers[half..].iter().zip(&stored[half..]).map(|(a, b)| (a - b).abs());
        assert!(moved.fold(0.0, f32::max) < 1e-5);
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
