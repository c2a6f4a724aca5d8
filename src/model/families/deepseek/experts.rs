//! Feed-forward layers: an ordinary one, or experts of which each row chooses some.
//!
//! Invariant: a row's choice and the order in which its experts' results are added (by number, then the shared expert)
//! depend on that row alone. So with matrices on the native kernels its bits do not depend on the rows beside it.

use std::collections::BTreeMap;
use std::sync::Arc;

use candle_core::{Device, Tensor};

use crate::model::ModelError;
use crate::model::families::deepseek::config::ExpertShape;
use crate::model::nn::{Gated, Linear};

/// Chooses experts by their scores (DeepSeek-V3, arXiv:2412.19437, section 2.1.2).
#[derive(Clone, Debug)]
pub(super) struct Router {
    pub(super) shape: ExpertShape,
    /// `[experts, d]`
    pub(super) weight: Linear,
    /// Added to scores when experts are chosen, not when their results are weighted.
    pub(super) bias: Vec<f32>,
}

impl Router {
    /// The experts of a row and their weights, by number.
    fn choose(&self, logits: &[f32]) -> Vec<(usize, f32)> {
        let ExpertShape { count, used, groups, used_groups, normed, factor, .. } = self.shape;
        let scores: Vec<f32> = logits.iter().map(|x| 1.0 / (1.0 + (-x).exp())).collect();
        let biased: Vec<f32> = scores.iter().zip(&self.bias).map(|(score, bias)| score + bias).collect();
        let width = count / groups;
        let open = if used_groups < groups {
            // the score of a group is the sum of its two best experts
            let worth = biased.chunks(width).map(|group| {
                let best = best(group, 0..width, 2);
                best.iter().map(|at| group[*at]).sum::<f32>()
            });
            let worth: Vec<f32> = worth.collect();
            best(&worth, 0..groups, used_groups)
        } else {
            (0..groups).collect()
        };
        let candidates = open.iter().flat_map(|group| group * width..(group + 1) * width);
        let mut chosen = best(&biased, candidates, used);
        let sum = if normed { chosen.iter().map(|at| scores[*at]).sum::<f32>() + 1e-20 } else { 1.0 };
        chosen.sort_unstable();
        chosen.iter().map(|at| (*at, scores[*at] / sum * factor as f32)).collect()
    }
}

/// Indices of the largest candidates, best first; of equal ones the first.
fn best(values: &[f32], candidates: impl Iterator<Item = usize>, count: usize) -> Vec<usize> {
    let mut places: Vec<usize> = candidates.collect();
    places.sort_by(|a, b| values[*b].total_cmp(&values[*a]).then(a.cmp(b)));
    places.truncate(count);
    places
}

/// The feed-forward part of a layer.
#[derive(Clone, Debug)]
pub(super) enum FeedForward {
    Dense(Gated),
    Experts {
        router: Router,
        experts: Arc<Vec<Gated>>,
        /// The shared expert.
        shared: Option<Gated>,
    },
}

impl FeedForward {
    /// `[m, d] -> [m, d]`
    pub(super) fn forward(&self, x: &Tensor) -> Result<Tensor, ModelError> {
        let (router, experts, shared) = match self {
            Self::Dense(gated) => return gated.forward(x),
            Self::Experts { router, experts, shared } => (router, experts, shared),
        };
        let logits = router.weight.forward(x)?.to_device(&Device::Cpu)?.to_vec2::<f32>()?;
        let mut rows_of: BTreeMap<usize, (Vec<u32>, Vec<f32>)> = BTreeMap::new();
        for (row, logits) in logits.iter().enumerate() {
            for (expert, weight) in router.choose(logits) {
                let (rows, weights) = rows_of.entry(expert).or_default();
                rows.push(row as u32);
                weights.push(weight);
            }
        }
        let mut out = x.zeros_like()?;
        for (expert, (rows, weights)) in rows_of {
            let count = rows.len();
            let rows = Tensor::from_vec(rows, count, x.device())?;
            let weights = Tensor::from_vec(weights, (count, 1), x.device())?;
            let answers = experts[expert].forward(&x.index_select(&rows, 0)?)?.broadcast_mul(&weights)?;
            out = out.index_add(&rows, &answers, 0)?;
        }
        match shared {
            Some(shared) => Ok((out + shared.forward(x)?)?),
            None => Ok(out),
        }
    }

    /// Bytes the matrices take in memory.
    pub(super) fn bytes(&self) -> u64 {
        match self {
            Self::Dense(gated) => gated.bytes(),
            Self::Experts { router, experts, shared } => {
                let shared = shared.as_ref().map_or(0, Gated::bytes);
                router.weight.bytes() + experts.iter().map(Gated::bytes).sum::<u64>() + shared
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn router(shape: ExpertShape, bias: Vec<f32>) -> Router {
        Router {
            shape,
            weight: Linear::dense(Tensor::zeros((1, 1), candle_core::DType::F32, &Device::Cpu).unwrap()),
            bias,
        }
    }

    const SHAPE: ExpertShape =
        ExpertShape { count: 6, used: 2, width: 1, shared: 0, groups: 3, used_groups: 1, normed: true, factor: 2.0 };

    #[test]
    fn groups_and_bias_choose_and_scores_weigh() {
        let logits = [3.0, -3.0, 1.0, 1.0, 0.5, 0.9];
        let numbers = |chosen: &[(usize, f32)]| chosen.iter().map(|(at, _)| *at).collect::<Vec<_>>();
        let free = router(ExpertShape { groups: 1, used_groups: 1, ..SHAPE }, vec![0.0; 6]).choose(&logits);
        assert_eq!(numbers(&free), [0, 2], "of equal ones the first");
        let grouped = router(SHAPE, vec![0.0; 6]).choose(&logits);
        assert_eq!(numbers(&grouped), [2, 3], "the second group is worth most");
        assert!(grouped.iter().all(|(_, weight)| (weight - 1.0).abs() < 1e-6), "{grouped:?}");
        let pushed = router(SHAPE, vec![0.0, 0.0, 0.0, 0.0, 0.5, 0.5]).choose(&logits);
        assert_eq!(numbers(&pushed), [4, 5]);
        let sum: f32 = pushed.iter().map(|(_, weight)| weight).sum();
        assert!((sum - 2.0).abs() < 1e-6 && pushed[1].1 > pushed[0].1, "{pushed:?}");
        let plain = router(ExpertShape { normed: false, ..SHAPE }, vec![0.0; 6]).choose(&logits);
        assert!((plain[0].1 - 2.0 / (1.0 + (-1.0f32).exp())).abs() < 1e-6);
    }

    #[test]
    fn a_group_is_worth_its_two_best_experts() {
        let shape = ExpertShape { count: 12, used: 2, groups: 3, ..SHAPE };
        // the best expert is in the first group, the largest sum in the third
        let logits = [3.0, -3.0, -3.0, -3.0, 1.0, 1.0, -3.0, -3.0, 0.5, 0.5, 0.5, 0.5];
        let chosen = router(shape, vec![0.0; 12]).choose(&logits);
        assert_eq!(chosen.iter().map(|(at, _)| *at).collect::<Vec<_>>(), [4, 5]);
    }

    #[test]
    fn numbers_that_are_none_choose_something_and_stop_nothing() {
        assert_eq!(router(SHAPE, vec![0.0; 6]).choose(&[f32::NAN; 6]).len(), 2);
    }
}
