//! What draft modules on the kernels share with a target, wherever that runs: threads, embedding and head.

use std::sync::Arc;

use super::llama::{NativeLlama, Weights};
use super::load::{self, Source};
use super::matrix::{Cpu, Matrix};
use super::threads;
use crate::ModelError;
use crate::nn::TransformerConfig;
use crate::plan::Plan;
use draftscope_kernels::{Isa, Pool};

/// A target as its modules see it.
#[derive(Clone, Debug)]
pub(crate) struct ModuleTarget {
    pub(crate) weights: Arc<Weights>,
    /// Positions of the context.
    pub(crate) ctx_len: usize,
    /// Whether modules multiply with their weights as stored, not with codes of fewer bits.
    pub(crate) exact: bool,
}

impl ModuleTarget {
    /// One whose passes run on the kernels.
    pub(crate) fn of(target: &NativeLlama) -> Self {
        Self { weights: Arc::clone(&target.weights), ctx_len: target.cache.shape().ctx_len, exact: false }
    }

    /// One whose passes run elsewhere: its embedding and head are read from its files once more; `in_f32`: as plain numbers,
    /// so that the head's inputs are not rounded either.
    ///
    /// # Errors
    /// When a tensor is missing, misshapen or damaged, or the kernels do not run its width.
    pub(crate) fn beside(
        (source, config, plan): Source<'_>,
        (ctx_len, in_f32): (usize, bool),
        threads: Option<usize>,
    ) -> Result<Self, ModelError> {
        let head = plan.head();
        let (config, ends) = (
            TransformerConfig { layers: 0, ..config.clone() },
            Plan { layers: Vec::new(), angles: Vec::new(), modules: Vec::new(), ..plan.clone() },
        );
        let cpu = Cpu::new(Pool::new(threads.unwrap_or_else(threads::available)), Isa::detect());
        let mut weights = load::llama((source, &config, &ends), (ctx_len, cpu), &mut |_, _| {})?.weights;
        if let Some(weights) = Arc::get_mut(&mut weights).filter(|_| in_f32) {
            let shape = [head.rows, head.columns];
            let numbers = source.stored(head.name(), &shape)?.to_f32(&shape)?;
            source.release(head.name());
            weights.head = Matrix::of_numbers(&weights.cpu, head.columns, &numbers);
        }
        Ok(Self { weights, ctx_len, exact: true })
    }
}
