//! The figures of a case, as papers and other engines report them.

use serde::Serialize;

use super::sample::Sample;

/// A figure over several answers, averaged in both ways; see the head of [`matrix`](super::matrix).
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(super) struct Averages {
    pub(super) pooled: Option<f64>,
    pub(super) mean_of_answers: Option<f64>,
}

/// The figures of a cell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(super) struct Figures {
    /// Committed tokens ÷ rounds, those without drafts included.
    pub(super) tokens_per_round: Averages,
    /// 1 + accepted ÷ rounds with drafts: the acceptance length of vLLM and AIPerf.
    pub(super) mean_acceptance_length: Averages,
    /// Accepted ÷ drafted.
    pub(super) draft_acceptance_rate: Averages,
    /// Speculative ÷ plain tokens per second; pooled, each answer counts by the time of its rounds.
    pub(super) speedup: Averages,
}

/// Σ of the first ÷ Σ of the second values.
fn quotient(parts: impl Iterator<Item = (f64, f64)>) -> Option<f64> {
    let (above, below) = parts.fold((0.0, 0.0), |(above, below), (a, b)| (above + a, below + b));
    (below > 0.0).then(|| above / below)
}

pub(super) fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    quotient(values.map(|value| (value, 1.0)))
}

impl Figures {
    pub(super) fn of(samples: &[Sample]) -> Self {
        let of = |parts: fn(&Sample) -> (u64, u64), plus: f64| {
            let parts = || samples.iter().map(parts).map(|(above, below)| (above as f64, below as f64));
            Averages {
                pooled: quotient(parts()).map(|value| value + plus),
                mean_of_answers: mean(parts().filter_map(|part| quotient(std::iter::once(part))))
                    .map(|value| value + plus),
            }
        };
        let speedups = || samples.iter().filter_map(|s| Some((s.speedup?.value, s.decode_us as f64)));
        Self {
            tokens_per_round: of(|s| (s.committed, s.rounds), 0.0),
            mean_acceptance_length: of(|s| (s.accepted, s.rounds_with_drafts), 1.0),
            draft_acceptance_rate: of(|s| (s.accepted, s.drafted), 0.0),
            speedup: Averages {
                pooled: quotient(speedups().map(|(value, us)| (value * us, us))),
                mean_of_answers: mean(speedups().map(|(value, _)| value)),
            },
        }
    }
}
