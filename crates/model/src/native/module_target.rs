//! What draft modules on the kernels share with a target, wherever that runs: threads, embedding and head.

use std::sync::Arc;

use super::llama::{NativeLlama, Weights};
use super::load::{self, Source};
use super::matrix::Cpu;
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

    /// One whose passes run elsewhere: its embedding and head are read from its files once more.
    ///
    /// # Errors
    /// When a tensor is missing, misshapen or damaged, or the kernels do not run its width.
    pub(crate) fn beside(
        (source, config, plan): Source<'_>,
        ctx_len: usize,
        threads: Option<usize>,
    ) -> Result<Self, ModelError> {
        let (config, plan) = (
            TransformerConfig { layers: 0, ..config.clone() },
            Plan { layers: Vec::new(), angles: Vec::new(), modules: Vec::new(), ..plan.clone() },
        );
        let cpu = Cpu::new(Pool::new(threads.unwrap_or_else(threads::available)), Isa::detect());
        let ends = load::llama((source, &config, &plan), (ctx_len, cpu), &mut |_, _| {})?;
        Ok(Self { weights: ends.weights, ctx_len, exact: true })
    }
}
