//! What happened at a server between two looks.

use serde::{Deserialize, Serialize};

use draftscope_protocol::{Counters, Histogram};

use super::positions::{Share, shares};

/// What happened between two looks.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Rates {
    /// Time between them in seconds.
    pub seconds: f64,
    /// Tokens of answers per second, all requests together, those of answers that are not over included.
    pub tokens_per_second: Option<f64>,
    /// Accepted ÷ drafted.
    pub acceptance_rate: Option<f64>,
    /// Tokens ÷ steps, steps without drafts included where tokens are counted; else of steps with drafts alone.
    pub tokens_per_step: Option<f64>,
    /// Steps that drafted ÷ all steps.
    pub drafting_share: Option<f64>,
    /// Accepted at each position ÷ steps that drafted that far; none where sums do not tell how many did.
    pub accepted_per_pos: Vec<Option<f64>>,
    /// Limits of these shares.
    pub accepted_per_pos_limits: Vec<Share>,
    /// Requests that are answered, and those that wait.
    pub running: Option<u64>,
    /// Requests that wait.
    pub waiting: Option<u64>,
    /// Share of the KV cache in use.
    pub kv_use: Option<f64>,
    /// Tokens of prompts that were found in the prefix cache ÷ those that were looked up.
    pub prefix_hit_rate: Option<f64>,
    /// Time to the first token.
    pub first_token: Option<Latency>,
    /// Time between two tokens of an answer.
    pub between_tokens: Option<Latency>,
    /// Time of whole requests.
    pub whole: Option<Latency>,
    #[serde(skip)]
    counted: Counters,
}

/// A time that requests took, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// The mean.
    pub mean: f64,
    /// The median, interpolated within a bucket of the server's histogram; none where it publishes no histogram.
    pub median: Option<f64>,
    /// The time that 95 % of the requests kept.
    pub p95: Option<f64>,
}

impl Latency {
    fn of(histogram: &Histogram) -> Option<Self> {
        let (median, p95) = (histogram.quantile(0.5), histogram.quantile(0.95));
        Some(Self { mean: histogram.mean()?, median, p95 })
    }
}

/// Whether there is something to divide by, and the quotient.
fn ratio(part: Option<u64>, whole: Option<u64>) -> Option<f64> {
    part.zip(whole).filter(|(_, whole)| *whole > 0).map(|(part, whole)| part as f64 / whole as f64)
}

impl Rates {
    /// From what was counted in so many milliseconds, and tokens of answers if they are known better.
    pub(super) fn of(news: &Counters, tokens: Option<u64>, ms: u64) -> Self {
        let seconds = ms as f64 / 1e3;
        let found = shares(&news.accepted_per_pos, news.steps.unwrap_or(0), news.drafted.unwrap_or(0));
        let steps = all_steps(news);
        let tokens = tokens.or(news.generated);
        let between = news.between_tokens.as_ref().and_then(Latency::of).or_else(|| mean_between(news));
        Self {
            seconds,
            tokens_per_second: tokens.filter(|_| ms > 0).map(|tokens| tokens as f64 / seconds),
            // gauges stand in where a server counts nothing
            acceptance_rate: ratio(news.accepted, news.drafted).or(news.rate),
            tokens_per_step: steps
                .and_then(|(steps, tokens)| ratio(Some(tokens), Some(steps)))
                .or_else(|| ratio(news.accepted, news.steps).map(|mean| 1.0 + mean))
                .or(news.mean_length),
            drafting_share: steps.and_then(|(steps, _)| ratio(news.steps, Some(steps))),
            accepted_per_pos: found.iter().map(Share::exact).collect(),
            accepted_per_pos_limits: found,
            running: news.running,
            waiting: news.waiting,
            kv_use: news.kv_use,
            prefix_hit_rate: ratio(news.prefix_hits, news.prefix_queries).or(news.prefix_rate),
            first_token: news.first_token.as_ref().and_then(Latency::of),
            between_tokens: between,
            whole: news.whole.as_ref().and_then(Latency::of),
            counted: news.clone(),
        }
    }

    /// What is known from one look alone.
    pub(super) fn gauges(now: &Counters) -> Self {
        let Counters { running, waiting, mean_length, rate, kv_use, prefix_rate, .. } = now.clone();
        Self::of(&Counters { running, waiting, mean_length, rate, kv_use, prefix_rate, ..Counters::default() }, None, 0)
    }

    /// Of several servers together: speeds and counts are added up, shares are those of the sums.
    pub(super) fn sum(all: impl Iterator<Item = Self>) -> Self {
        let (mut counted, mut speed, mut seconds) = (Counters::default(), None, 0.0_f64);
        let add = |sum: &mut Option<u64>, part: Option<u64>| {
            if let Some(part) = part {
                *sum = Some(sum.unwrap_or(0).saturating_add(part));
            }
        };
        let mut counts_tokens = true;
        for rates in all {
            let own = &rates.counted;
            // a server of which a part is not known does not enter a quotient
            if own.drafted.is_some() && own.accepted.is_some() && own.steps.is_some() {
                add(&mut counted.steps, own.steps);
                add(&mut counted.drafted, own.drafted);
                add(&mut counted.accepted, own.accepted);
                add(&mut counted.generated, own.generated);
                counts_tokens &= own.generated.is_some();
            }
            add(&mut counted.running, own.running);
            add(&mut counted.waiting, own.waiting);
            if own.prefix_queries.is_some() && own.prefix_hits.is_some() {
                add(&mut counted.prefix_queries, own.prefix_queries);
                add(&mut counted.prefix_hits, own.prefix_hits);
            }
            seconds = seconds.max(rates.seconds);
            speed = rates.tokens_per_second.map(|own| own + speed.unwrap_or(0.0)).or(speed);
        }
        counted.generated = counted.generated.filter(|_| counts_tokens);
        Self { tokens_per_second: speed, seconds, ..Self::of(&counted, None, 0) }
    }
}

/// All steps, and the tokens that they gave: each step gives its accepted drafts and one token of the target. The first
/// token of an answer comes from its prompt, where the server says how many answers have begun. None where sums are
/// missing, or contradict each other for a moment.
fn all_steps(news: &Counters) -> Option<(u64, u64)> {
    let first = news.first_token.as_ref().map_or(0, |histogram| histogram.count);
    let tokens = news.generated?.checked_sub(first)?;
    let steps = tokens.checked_sub(news.accepted?)?;
    (steps >= news.steps?).then_some((steps, tokens))
}

/// The mean, where only sums are published.
fn mean_between(news: &Counters) -> Option<Latency> {
    let tokens = news.generated.filter(|tokens| *tokens > 0)?;
    Some(Latency { mean: news.writing_seconds? / tokens as f64, median: None, p95: None })
}
