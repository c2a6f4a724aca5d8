//! Gated DeltaNet, as [`plan::Delta`] describes it: its projections are candle's, and its state goes from row to row as on
//! every CPU ([`delta_state`](crate::native::delta_state)).

use std::sync::Arc;

use candle_core::Tensor;
use draftscope_kernels::{DeltaHead, Isa};

use super::reader::Reader;
use crate::ModelError;
use crate::native::delta_state::{DeltaInput, DeltaWeights};
use crate::native::recurrent::Recurrence;
use crate::nn::{Linear, numbers_of};
use crate::plan;

/// Weights of a Gated DeltaNet.
#[derive(Clone)]
pub(super) struct Delta {
    /// Queries, keys and values; gates; α; β.
    projections: [Linear; 4],
    o: Linear,
    pub(super) weights: Arc<DeltaWeights>,
}

/// Runs value heads on the calling thread.
pub(super) fn run_heads(heads: &mut [DeltaHead<'_>]) {
    heads.iter_mut().for_each(|head| head.run_on(Isa::detect()));
}

impl Delta {
    pub(super) fn read(reader: &Reader<'_>, of: &plan::Delta) -> Result<Self, ModelError> {
        let [mixed, gate, alpha, beta] = [&of.mixed, &of.gate, &of.alpha, &of.beta].map(|matrix| reader.matrix(matrix));
        let weights = DeltaWeights::read(reader.tensors.source, of)?;
        reader.count(weights.bytes());
        Ok(Self { projections: [mixed?, gate?, alpha?, beta?], o: reader.matrix(&of.o)?, weights: Arc::new(weights) })
    }

    /// What it adds for rows, `[m, d] -> [m, d]`, which leave the state that is after them.
    pub(super) fn forward(&self, x: &Tensor, layer: Recurrence<'_>) -> Result<Tensor, ModelError> {
        let m = x.dim(0)?;
        let [mixed, gates, alpha, beta] = self.projections.each_ref().map(|linear| linear.forward(x));
        let numbers = numbers_of([&mixed?, &gates?, &alpha?, &beta?])?;
        let [mixed, gates, alpha, beta] = numbers.each_ref().map(|all| all.chunks(all.len() / m));
        let inputs = mixed.zip(alpha.zip(beta)).map(|(mixed, (alpha, beta))| DeltaInput {
            mixed: mixed.to_vec(),
            alpha: alpha.to_vec(),
            beta: beta.to_vec(),
        });
        let (inputs, gates): (Vec<_>, Vec<_>) = (inputs.collect(), gates.collect());
        let answers = layer.run(&self.weights, (inputs, &gates), &run_heads);
        self.o.forward(&Tensor::from_vec(answers, (m, self.weights.shape.value_width()), x.device())?)
    }
}
