//! Feed-forward layers: an ordinary one, or a mixture of experts of which each row chooses some.
//!
//! Invariant: a row's choice depends on that row alone, and its results are added in a fixed order: experts by number, then
//! the shared expert. So with matrices on the native kernels its bits do not depend on the rows beside it.

use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use candle_core::{Device, Tensor};

use crate::nn::{Choice, Experts, Gated, Linear, best_of, by_expert};
use crate::{ExpertsMet, ModelError};

/// Chooses the experts of a row.
pub trait Router: Debug + Send + Sync {
    /// From one number for each expert.
    fn choose(&self, logits: &[f32]) -> Choice;

    /// Experts of a row.
    fn used(&self) -> usize;

    /// Bytes of its own numbers.
    fn bytes(&self) -> u64 {
        0
    }
}

/// The most probable experts, weighted by their probabilities, which may be scaled to the sum 1 (Qwen3-Next).
#[derive(Clone, Copy, Debug)]
pub struct MostProbable {
    /// Experts of a row.
    pub used: usize,
    /// Whether the weights of a row are scaled to the sum 1.
    pub normed: bool,
}

impl Router for MostProbable {
    fn choose(&self, logits: &[f32]) -> Choice {
        let largest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let exps: Vec<f32> = logits.iter().map(|x| (x - largest).exp()).collect();
        let mut chosen = best_of(&exps, 0..exps.len(), self.used);
        chosen.sort_unstable();
        let sum: f32 = if self.normed { chosen.iter().map(|at| exps[*at]).sum() } else { exps.iter().sum() };
        chosen.into_iter().map(|at| (at, exps[at] / sum)).collect()
    }

    fn used(&self) -> usize {
        self.used
    }
}

/// The expert that every row runs.
#[derive(Clone, Debug)]
pub struct SharedExpert {
    /// The expert.
    pub expert: Gated,
    /// `[1, d]`: its result is multiplied by the sigmoid of this.
    pub gate: Option<Linear>,
}

impl SharedExpert {
    fn forward(&self, x: &Tensor) -> Result<Tensor, ModelError> {
        let out = self.expert.forward(x)?;
        match &self.gate {
            Some(gate) => Ok(out.broadcast_mul(&candle_nn::ops::sigmoid(&gate.forward(x)?)?)?),
            None => Ok(out),
        }
    }

    fn bytes(&self) -> u64 {
        self.expert.bytes() + self.gate.as_ref().map_or(0, Linear::bytes)
    }
}

/// Experts, and what chooses them.
#[derive(Clone, Debug)]
pub struct Mixture {
    /// `[experts, d]`
    weight: Linear,
    router: Arc<dyn Router>,
    experts: Experts,
    shared: Option<SharedExpert>,
    /// Different experts that the last pass ran.
    met: Arc<AtomicUsize>,
}

impl Mixture {
    /// A mixture; `weight` gives the router's numbers.
    #[must_use]
    pub fn new((weight, router): (Linear, Arc<dyn Router>), experts: Experts, shared: Option<SharedExpert>) -> Self {
        Self { weight, router, experts, shared, met: Arc::default() }
    }

    /// `[m, d] -> [m, d]`, experts chosen by the rows of `by`, `[m, d]`.
    ///
    /// # Errors
    /// When shapes do not fit.
    pub fn forward_by(&self, by: &Tensor, x: &Tensor) -> Result<Tensor, ModelError> {
        let logits = self.weight.forward(by)?.to_device(&Device::Cpu)?.to_vec2::<f32>()?;
        let chosen: Vec<Choice> = logits.iter().map(|logits| self.router.choose(logits)).collect();
        self.met.store(by_expert(&chosen).len(), Ordering::Relaxed);
        let out = self.experts.forward(x, &chosen)?;
        match &self.shared {
            Some(shared) => Ok((out + shared.forward(x)?)?),
            None => Ok(out),
        }
    }

    /// Bytes the matrices take in memory.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let router = self.weight.bytes() + self.router.bytes();
        router + self.experts.bytes() + self.shared.as_ref().map_or(0, SharedExpert::bytes)
    }

    /// Experts that the last pass ran.
    #[must_use]
    pub fn experts_met(&self) -> ExpertsMet {
        let (count, bytes) = (self.experts.count(), self.experts.bytes());
        let (one, met) = (bytes / count.max(1) as u64, self.met.load(Ordering::Relaxed));
        ExpertsMet {
            layers: 1,
            count,
            met,
            bytes,
            bytes_met: one * met as u64,
            row_bytes: one * self.router.used() as u64,
        }
    }
}

/// The feed-forward part of a layer.
#[derive(Clone, Debug)]
pub enum FeedForward {
    /// One gated layer.
    Dense(Gated),
    /// Experts.
    Mixture(Mixture),
}

impl FeedForward {
    /// `[m, d] -> [m, d]`
    ///
    /// # Errors
    /// When shapes do not fit.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor, ModelError> {
        match self {
            Self::Dense(gated) => gated.forward(x),
            Self::Mixture(mixture) => mixture.forward_by(x, x),
        }
    }

    /// Bytes the matrices take in memory.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        match self {
            Self::Dense(gated) => gated.bytes(),
            Self::Mixture(mixture) => mixture.bytes(),
        }
    }

    /// Experts that the last pass ran; `None` for a dense layer.
    #[must_use]
    pub fn experts_met(&self) -> Option<ExpertsMet> {
        match self {
            Self::Dense(_) => None,
            Self::Mixture(mixture) => Some(mixture.experts_met()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_probable_experts_are_chosen_and_weighted() {
        let logits = [0.5f32, 2.0, -1.0, 2.0, 0.0];
        let all: f32 = logits.iter().map(|x| x.exp()).sum();
        let plain = MostProbable { used: 3, normed: false }.choose(&logits);
        assert_eq!(plain.iter().map(|(at, _)| *at).collect::<Vec<_>>(), [0, 1, 3]);
        assert!(plain.iter().all(|(at, weight)| (weight - logits[*at].exp() / all).abs() < 1e-6), "{plain:?}");
        let normed = MostProbable { used: 1, normed: true }.choose(&logits);
        assert_eq!(normed, [(1, 1.0)], "of equal ones the first");
        assert_eq!(MostProbable { used: 2, normed: true }.choose(&[f32::NAN; 4]).len(), 2);
    }
}
