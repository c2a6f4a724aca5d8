//! The choice of experts in DeepSeek-V3's layout.

use crate::model::families::deepseek::config::ExpertShape;
use crate::model::nn::{Choice, Router, best_of};

/// Chooses experts by their scores (DeepSeek-V3, arXiv:2412.19437, section 2.1.2).
#[derive(Clone, Debug)]
pub(super) struct GroupedRouter {
    pub(super) shape: ExpertShape,
    /// Added to scores when experts are chosen, not when their results are weighted.
    pub(super) bias: Vec<f32>,
}

impl Router for GroupedRouter {
    fn choose(&self, logits: &[f32]) -> Choice {
        let ExpertShape { count, used, groups, used_groups, normed, factor, .. } = self.shape;
        let scores: Vec<f32> = logits.iter().map(|x| 1.0 / (1.0 + (-x).exp())).collect();
        let biased: Vec<f32> = scores.iter().zip(&self.bias).map(|(score, bias)| score + bias).collect();
        let width = count / groups;
        let open = if used_groups < groups {
            // the score of a group is the sum of its two best experts
            let worth = biased.chunks(width).map(|group| {
                let best = best_of(group, 0..width, 2);
                best.iter().map(|at| group[*at]).sum::<f32>()
            });
            let worth: Vec<f32> = worth.collect();
            best_of(&worth, 0..groups, used_groups)
        } else {
            (0..groups).collect()
        };
        let candidates = open.iter().flat_map(|group| group * width..(group + 1) * width);
        let mut chosen = best_of(&biased, candidates, used);
        let sum = if normed { chosen.iter().map(|at| scores[*at]).sum::<f32>() + 1e-20 } else { 1.0 };
        chosen.sort_unstable();
        chosen.iter().map(|at| (*at, scores[*at] / sum * factor as f32)).collect()
    }

    fn used(&self) -> usize {
        self.shape.used
    }

    fn bytes(&self) -> u64 {
        size_of_val(self.bias.as_slice()) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn router(shape: ExpertShape, bias: Vec<f32>) -> GroupedRouter {
        GroupedRouter { shape, bias }
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
