//! The figures of one answer, and spreads of such figures.

use draftscope::protocol::Lane;
use draftscope::protocol::statistics::quantiles;
use draftscope::session::{Speedup, Turn, by_context};
use serde::{Deserialize, Serialize};

/// Median, 10th and 90th percentile of repeated measurements.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Quantiles {
    pub(super) p10: f64,
    pub(super) median: f64,
    pub(super) p90: f64,
}

impl Quantiles {
    /// Interpolates linearly between two values; none without values.
    pub(super) fn of(values: impl Iterator<Item = f64>) -> Option<Self> {
        quantiles(values.collect(), [0.1, 0.5, 0.9]).map(|[p10, median, p90]| Self { p10, median, p90 })
    }
}

/// Drafts as llama.cpp's server reports them; absent where nothing was drafted or drafts are not known.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(super) struct DraftTimings {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) draft_n: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) draft_n_accepted: Option<u64>,
}

/// The figures of one answer.
#[derive(Clone, Default)]
pub(super) struct Sample {
    pub(super) speedup: Option<Speedup>,
    pub(super) speculative: Option<f64>,
    pub(super) plain: Option<f64>,
    pub(super) tokens_per_round: Option<f64>,
    pub(super) prompt_tokens: Option<f64>,
    /// Median times of the answer's passes over one row, T(1), and over a draft, T(k + 1), in microseconds.
    pub(super) one_row_us: Option<f64>,
    pub(super) drafted_us: Option<f64>,
    pub(super) accepted: u64,
    pub(super) drafted: u64,
    pub(super) rounds: u64,
    pub(super) rounds_with_drafts: u64,
    pub(super) committed: u64,
    /// Time of the rounds in microseconds.
    pub(super) decode_us: u64,
    pub(super) offered_per_pos: Vec<u64>,
    pub(super) accepted_per_pos: Vec<u64>,
    pub(super) is_identical: Option<bool>,
}

/// Tokens of a turn's prompt, as far as the engine reports them.
pub(super) fn prompt_tokens(turn: &Turn) -> Option<usize> {
    Some(turn.answer(Lane::Speculative).prompt.len()).filter(|count| *count > 0)
}

impl Sample {
    pub(super) fn of(turn: &Turn, has_plain: bool) -> Self {
        let [fast, plain] = [Lane::Speculative, Lane::Plain].map(|lane| turn.answer(lane).stats());
        let whole = by_context(fast, plain, 1).first().copied();
        Self {
            speedup: turn.speedup(),
            speculative: fast.tokens_per_second(),
            plain: turn.tokens_per_second(Lane::Plain),
            tokens_per_round: fast.mean_tokens_per_round(),
            prompt_tokens: prompt_tokens(turn).map(|count| count as f64),
            one_row_us: whole.and_then(|whole| whole.one_row_us),
            drafted_us: whole.and_then(|whole| whole.drafted_us),
            accepted: fast.accepted(),
            drafted: fast.drafted(),
            rounds: fast.rounds(),
            rounds_with_drafts: fast.rounds_with_drafts(),
            committed: fast.committed(),
            decode_us: fast.decode_us(),
            offered_per_pos: fast.offered_per_pos().to_vec(),
            accepted_per_pos: fast.accepted_per_pos().to_vec(),
            is_identical: has_plain.then(|| turn.agreement().is_some_and(|agreement| agreement.divergence.is_none())),
        }
    }

    pub(super) fn acceptance(&self) -> Option<f64> {
        (self.drafted > 0).then(|| self.accepted as f64 / self.drafted as f64)
    }
}
