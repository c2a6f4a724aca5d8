//! A row of the table: a case, and what was measured of it.

use draftscope::protocol::VerifyRule;
use serde::{Deserialize, Serialize};

use super::figures::Figures;
use super::sample::{DraftTimings, Quantiles, Sample};

/// Answers of a case that a spread needs at least.
pub(super) const ENOUGH: usize = 5;

/// Settings that are columns of the rows, or fields of the report, and so are not compared in the headers.
pub(super) const OF_ROWS: [&str; 4] = ["k", "rule", "max-tokens", "temperature"];

/// A property of two reports: its name, and its value in the new and the old one.
pub(super) type Fact = (String, [String; 2]);

/// Rule and k of a server, and its drafter where that is not known: what they are is set where it is started.
pub(super) const SERVER: &str = "server";

/// What was measured.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct Case {
    pub(super) drafter: String,
    pub(super) rule: String,
    /// k: a number, or auto.
    pub(super) k: String,
    pub(super) category: String,
}

impl Case {
    /// Whether both are the same case. A server has one drafter, rule and k at a time, and may be started anew with others.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        let are_servers = [self, other].iter().all(|case| case.rule == SERVER && case.k == SERVER);
        if are_servers { self.category == other.category } else { self == other }
    }
}

/// The figures of a case.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Row {
    #[serde(flatten)]
    pub(super) case: Case,
    pub(super) answers: usize,
    /// Drafts over all answers under the names of llama.cpp's server.
    #[serde(default)]
    pub(super) timings: DraftTimings,
    /// For the matrix.
    #[serde(skip)]
    pub(super) figures: Figures,
    pub(super) speedup: Option<Quantiles>,
    /// Medians of the ends of the answers' intervals.
    #[serde(default)]
    pub(super) speedup_low: Option<f64>,
    #[serde(default)]
    pub(super) speedup_high: Option<f64>,
    /// Whether an answer's speedup cannot be.
    #[serde(default)]
    pub(super) disturbed: bool,
    pub(super) speculative_tokens_per_second: Option<Quantiles>,
    pub(super) plain_tokens_per_second: Option<Quantiles>,
    pub(super) tokens_per_round: Option<Quantiles>,
    /// Tokens of the prompts; null where a server does not report them.
    #[serde(default)]
    pub(super) prompt_tokens: Option<Quantiles>,
    /// T(1) and T(k + 1) in microseconds; null where a server does not report them.
    #[serde(default)]
    pub(super) one_row_us: Option<Quantiles>,
    #[serde(default)]
    pub(super) drafted_us: Option<Quantiles>,
    pub(super) draft_acceptance_rate: Option<f64>,
    /// The same of each answer, in the order of repeats and prompts; null where nothing was drafted.
    #[serde(default)]
    pub(super) acceptance_by_answer: Vec<Option<f64>>,
    /// Rounds that offered a draft at each position, and in which it was accepted.
    #[serde(default)]
    pub(super) offered_per_pos: Vec<u64>,
    #[serde(default)]
    pub(super) accepted_per_pos: Vec<u64>,
    /// Answers that equal the plain ones; null where nothing was decoded plainly.
    pub(super) identical: Option<usize>,
}

impl Row {
    pub(super) fn of(case: Case, samples: &[Sample]) -> Self {
        let all = |value: fn(&Sample) -> Option<f64>| Quantiles::of(samples.iter().filter_map(value));
        let (accepted, drafted) =
            samples.iter().fold((0, 0), |(accepted, drafted), s| (accepted + s.accepted, drafted + s.drafted));
        Self {
            case,
            answers: samples.len(),
            timings: DraftTimings {
                draft_n: (drafted > 0).then_some(drafted),
                draft_n_accepted: (drafted > 0).then_some(accepted),
            },
            figures: Figures::of(samples),
            speedup: all(|s| s.speedup.map(|speedup| speedup.value)),
            speedup_low: all(|s| s.speedup.map(|speedup| speedup.low)).map(|q| q.median),
            speedup_high: all(|s| s.speedup.map(|speedup| speedup.high)).map(|q| q.median),
            disturbed: samples.iter().any(|s| s.speedup.is_some_and(|speedup| speedup.is_disturbed())),
            speculative_tokens_per_second: all(|s| s.speculative),
            plain_tokens_per_second: all(|s| s.plain),
            tokens_per_round: all(|s| s.tokens_per_round),
            prompt_tokens: all(|s| s.prompt_tokens),
            one_row_us: all(|s| s.one_row_us),
            drafted_us: all(|s| s.drafted_us),
            draft_acceptance_rate: (drafted > 0).then(|| accepted as f64 / drafted as f64),
            acceptance_by_answer: samples.iter().map(Sample::acceptance).collect(),
            offered_per_pos: sums(samples.iter().map(|s| s.offered_per_pos.as_slice())),
            accepted_per_pos: sums(samples.iter().map(|s| s.accepted_per_pos.as_slice())),
            identical: samples.iter().map(|s| s.is_identical.map(usize::from)).sum(),
        }
    }
}

impl Row {
    /// Answers that equal the plain ones, and all answers; `None` where nothing was decoded plainly.
    pub(super) fn same(&self) -> Option<(usize, usize)> {
        Some((self.identical?, self.answers))
    }

    /// Whether greedy answers differ from plain ones where they must not.
    pub(super) fn differs(&self) -> bool {
        self.identical.is_some_and(|identical| identical < self.answers) && self.is_lossless()
    }

    pub(super) fn is_lossless(&self) -> bool {
        self.case.rule == SERVER || self.case.rule.parse().is_ok_and(|rule: VerifyRule| rule.is_lossless())
    }
}

pub(super) fn spread(value: Option<Quantiles>, digits: usize) -> String {
    value.map_or("–".to_owned(), |q| format!("{:.digits$} ({:.digits$}–{:.digits$})", q.median, q.p10, q.p90))
}

/// Ends the category of answers to prompts that the server had not met before in this run; the category itself has these
/// and later ones.
pub(super) const FIRST: &str = ", first";

/// Adds lists up, place by place.
pub(super) fn sums<'a>(lists: impl Iterator<Item = &'a [u64]>) -> Vec<u64> {
    let mut sums = Vec::new();
    for list in lists {
        sums.resize(sums.len().max(list.len()), 0);
        sums.iter_mut().zip(list).for_each(|(sum, part)| *sum += part);
    }
    sums
}
