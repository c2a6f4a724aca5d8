//! The choice of a row's experts, and the weights of their results.
//!
//! Invariant: a choice depends on the numbers of its row alone; of equal scores the lower number counts as better.

use crate::ModelError;
use crate::files::TensorSource;
use crate::nn::{Choice, best_of};
use crate::plan::{Experts, Groups, Scoring};

/// What keeps the sum of scores from being zero (`modeling_deepseek_v3.py`).
const LEAST_SUM: f32 = 1e-20;

/// How a router's numbers become a choice.
#[derive(Clone, Debug)]
pub(crate) struct Router {
    scoring: Scoring,
    /// Added to scores when experts are chosen; empty: nothing.
    bias: Vec<f32>,
    groups: Option<Groups>,
    used: usize,
    rescaled: bool,
    factor: f32,
    /// Factors of the weights by expert; empty: none.
    per_expert: Vec<f32>,
}

impl Router {
    /// That of a plan's experts.
    ///
    /// # Errors
    /// When a vector is missing, misshapen or damaged.
    pub(crate) fn read(of: &Experts, files: &dyn TensorSource) -> Result<Self, ModelError> {
        let plan = &of.router;
        let vector = |vector: &Option<crate::plan::Vector>| match vector {
            Some(vector) => files.vector(&vector.name, vector.len),
            None => Ok(Vec::new()),
        };
        Ok(Self {
            scoring: plan.scoring,
            bias: vector(&plan.bias)?,
            groups: plan.groups,
            used: of.used,
            rescaled: plan.rescaled,
            factor: plan.factor as f32,
            per_expert: vector(&plan.per_expert)?,
        })
    }

    /// Experts of a row.
    pub(crate) fn used(&self) -> usize {
        self.used
    }

    /// Bytes of its vectors.
    pub(crate) fn bytes(&self) -> usize {
        size_of_val(self.bias.as_slice()) + size_of_val(self.per_expert.as_slice())
    }

    /// The experts of a row, ascending, and the weights of their results.
    pub(crate) fn choose(&self, logits: &[f32]) -> Choice {
        let scores = self.scores(logits);
        let mut biased = scores.clone();
        biased.iter_mut().zip(&self.bias).for_each(|(score, bias)| *score += bias);
        let mut chosen = match self.groups {
            Some(groups) => best_of(&biased, in_best_groups(&biased, groups), self.used),
            None => best_of(&biased, 0..biased.len(), self.used),
        };
        let sum = if self.rescaled { chosen.iter().map(|at| scores[*at]).sum::<f32>() + LEAST_SUM } else { 1.0 };
        chosen.sort_unstable();
        let weight = |at: usize| scores[at] / sum * self.factor * self.per_expert.get(at).copied().unwrap_or(1.0);
        chosen.into_iter().map(|at| (at, weight(at))).collect()
    }

    fn scores(&self, logits: &[f32]) -> Vec<f32> {
        match self.scoring {
            Scoring::Sigmoid => logits.iter().map(|x| 1.0 / (1.0 + (-x).exp())).collect(),
            Scoring::Softmax => {
                let largest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
                let exps: Vec<f32> = logits.iter().map(|x| (x - largest).exp()).collect();
                let sum: f32 = exps.iter().sum();
                exps.iter().map(|x| x / sum).collect()
            }
        }
    }
}

/// The experts of the groups whose two best ones have the largest sums.
fn in_best_groups(scores: &[f32], Groups { count, used }: Groups) -> impl Iterator<Item = usize> {
    let width = scores.len() / count;
    let worth = scores.chunks(width).map(|group| {
        let best = best_of(group, 0..width, 2);
        best.iter().map(|at| group[*at]).sum::<f32>()
    });
    let worth: Vec<f32> = worth.collect();
    best_of(&worth, 0..count, used).into_iter().flat_map(move |group| group * width..(group + 1) * width)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GROUPED: Groups = Groups { count: 3, used: 1 };
    const LOGITS: [f32; 6] = [3.0, -3.0, 1.0, 1.0, 0.5, 0.9];

    fn router(scoring: Scoring, groups: Option<Groups>, bias: &[f32]) -> Router {
        let bias = bias.to_vec();
        Router { scoring, bias, groups, used: 2, rescaled: true, factor: 2.0, per_expert: Vec::new() }
    }

    fn numbers(chosen: &[(usize, f32)]) -> Vec<usize> {
        chosen.iter().map(|(at, _)| *at).collect()
    }

    #[test]
    fn groups_and_bias_choose_and_scores_weigh() {
        let free = router(Scoring::Sigmoid, None, &[]).choose(&LOGITS);
        assert_eq!(numbers(&free), [0, 2], "of equal ones the first");
        let grouped = router(Scoring::Sigmoid, Some(GROUPED), &[0.0; 6]).choose(&LOGITS);
        assert_eq!(numbers(&grouped), [2, 3], "the second group is worth most");
        assert!(grouped.iter().all(|(_, weight)| (weight - 1.0).abs() < 1e-6), "{grouped:?}");
        let pushed = router(Scoring::Sigmoid, Some(GROUPED), &[0.0, 0.0, 0.0, 0.0, 0.5, 0.5]).choose(&LOGITS);
        assert_eq!(numbers(&pushed), [4, 5]);
        let sum: f32 = pushed.iter().map(|(_, weight)| weight).sum();
        assert!((sum - 2.0).abs() < 1e-6 && pushed[1].1 > pushed[0].1, "{pushed:?}");
        let plain = Router { rescaled: false, ..router(Scoring::Sigmoid, Some(GROUPED), &[]) }.choose(&LOGITS);
        assert!((plain[0].1 - 2.0 / (1.0 + (-1.0f32).exp())).abs() < 1e-6);
    }

    #[test]
    fn a_group_is_worth_its_two_best_experts() {
        // the best expert is in the first group, the largest sum in the third
        let logits = [3.0, -3.0, -3.0, -3.0, 1.0, 1.0, -3.0, -3.0, 0.5, 0.5, 0.5, 0.5];
        assert_eq!(numbers(&router(Scoring::Sigmoid, Some(GROUPED), &[]).choose(&logits)), [4, 5]);
    }

    #[test]
    fn softmax_weighs_by_probabilities_and_each_expert_by_its_own_factor() {
        let all: f32 = LOGITS.iter().map(|x| x.exp()).sum();
        let plain = Router { rescaled: false, ..router(Scoring::Softmax, None, &[]) };
        let chosen = plain.choose(&LOGITS);
        assert_eq!(numbers(&chosen), [0, 2]);
        assert!(chosen.iter().all(|(at, weight)| (weight - 2.0 * LOGITS[*at].exp() / all).abs() < 1e-6), "{chosen:?}");
        let scaled = Router { per_expert: vec![1.0, 0.0, 3.0, 0.0, 0.0, 0.0], ..plain }.choose(&LOGITS);
        assert_eq!([scaled[0].1, scaled[1].1], [chosen[0].1, chosen[1].1 * 3.0]);
        let both =
            Router { factor: 1.0, per_expert: vec![2.0; 6], ..router(Scoring::Softmax, None, &[]) }.choose(&LOGITS);
        let share = 1.0 / (1.0 + (LOGITS[2] - LOGITS[0]).exp());
        assert!(
            (both[0].1 - 2.0 * share).abs() < 1e-6,
            "weights sum to one before each expert scales its own: {both:?}"
        );
        let rescaled = router(Scoring::Softmax, None, &[]).choose(&LOGITS);
        assert!((rescaled.iter().map(|(_, weight)| weight).sum::<f32>() - 2.0).abs() < 1e-6, "{rescaled:?}");
    }

    #[test]
    fn numbers_that_are_none_choose_something_and_stop_nothing() {
        for scoring in [Scoring::Sigmoid, Scoring::Softmax] {
            assert_eq!(router(scoring, Some(GROUPED), &[]).choose(&[f32::NAN; 6]).len(), 2);
        }
    }
}
