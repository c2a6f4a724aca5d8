//! What a server that others use says of itself.

use serde::{Deserialize, Serialize};

use super::engine::DraftTotals;

/// Sums since a server started; of several models or engines at one address, over all of them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Counters {
    /// Verification steps with drafts.
    pub steps: Option<u64>,
    /// Drafted tokens.
    pub drafted: Option<u64>,
    /// Accepted ones.
    pub accepted: Option<u64>,
    /// Accepted ones by position; as long as the longest draft. Empty if not published.
    pub accepted_per_pos: Vec<u64>,
    /// Tokens of answers. llama-server counts those of an answer when it ends.
    pub generated: Option<u64>,
    /// Requests being answered now.
    pub running: Option<u64>,
    /// Requests that wait.
    pub waiting: Option<u64>,
    /// Mean length of accepted runs with the target's token, where only that is published.
    pub mean_length: Option<f64>,
    /// Acceptance rate, where only that is published.
    pub rate: Option<f64>,
    /// Share of the KV cache in use, 0 to 1; of several engines, the mean.
    pub kv_use: Option<f64>,
    /// Tokens of prompts that were looked up in the prefix cache.
    pub prefix_queries: Option<u64>,
    /// Those of them that were found there.
    pub prefix_hits: Option<u64>,
    /// Share that was found, where only that is published.
    pub prefix_rate: Option<f64>,
    /// Seconds from a request to its first token.
    pub first_token: Option<Histogram>,
    /// Seconds between two tokens of an answer.
    pub between_tokens: Option<Histogram>,
    /// Seconds from a request to the end of its answer.
    pub whole: Option<Histogram>,
    /// Seconds in which answers were written, where only their sum is published.
    pub writing_seconds: Option<f64>,
}

/// A histogram as Prometheus publishes it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Histogram {
    /// Upper limit of each bucket in rising order, and how many values were at most that; without the last, unlimited one.
    pub buckets: Vec<(f64, u64)>,
    /// Sum of all values.
    pub sum: f64,
    /// Number of values.
    pub count: u64,
}

impl Histogram {
    /// What was counted since an earlier reading; everything if a count fell or the buckets are others.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        let is_same = self.buckets.len() == before.buckets.len()
            && self.count >= before.count
            && self.buckets.iter().zip(&before.buckets).all(|(now, then)| now.0 == then.0 && now.1 >= then.1);
        if !is_same {
            return self.clone();
        }
        let buckets = self.buckets.iter().zip(&before.buckets).map(|(now, then)| (now.0, now.1 - then.1)).collect();
        Self { buckets, sum: (self.sum - before.sum).max(0.0), count: self.count - before.count }
    }

    /// The mean; none without values.
    #[must_use]
    pub fn mean(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum / self.count as f64)
    }

    /// The value that this share (0 to 1) of the values does not exceed, interpolated within its bucket as Prometheus
    /// does. None without values, or where it lies beyond the last limit.
    #[must_use]
    pub fn quantile(&self, share: f64) -> Option<f64> {
        if self.count == 0 {
            return None;
        }
        let rank = share.clamp(0.0, 1.0) * self.count as f64;
        let (mut low, mut below) = (0.0, 0);
        for (limit, upto) in &self.buckets {
            if *upto as f64 >= rank && *upto > below {
                return Some(low + (limit - low) * ((rank - below as f64).max(0.0) / (upto - below) as f64));
            }
            (low, below) = (*limit, (*upto).max(below));
        }
        None
    }
}

impl Counters {
    /// Acceptance since the server started, in a sentence; none if nothing was drafted.
    #[must_use]
    pub fn sentence(&self) -> Option<String> {
        let (drafted, accepted) = (self.drafted.filter(|drafted| *drafted > 0)?, self.accepted?);
        let share = accepted as f64 / drafted as f64 * 100.0;
        Some(format!(
            "since its start the server accepted {accepted} of {drafted} drafts ({share:.0} %), all users together"
        ))
    }

    /// Steps, drafted and accepted tokens; none if they are not published, or nothing was drafted.
    #[must_use]
    pub fn totals(&self) -> Option<DraftTotals> {
        let drafted = self.drafted.filter(|drafted| *drafted > 0)?;
        Some(DraftTotals { steps: self.steps?, drafted, accepted: self.accepted? })
    }

    /// What was counted since an earlier reading; gauges as they are now. A counter that fell (the server was started
    /// anew) counts from 0.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        let less =
            |now: Option<u64>, then: Option<u64>| now.map(|now| now.checked_sub(then.unwrap_or(0)).unwrap_or(now));
        let then = |at: usize| before.accepted_per_pos.get(at).copied().unwrap_or(0);
        let per_pos = self.accepted_per_pos.iter().enumerate();
        Self {
            steps: less(self.steps, before.steps),
            drafted: less(self.drafted, before.drafted),
            accepted: less(self.accepted, before.accepted),
            accepted_per_pos: per_pos.map(|(at, now)| now.checked_sub(then(at)).unwrap_or(*now)).collect(),
            generated: less(self.generated, before.generated),
            prefix_queries: less(self.prefix_queries, before.prefix_queries),
            prefix_hits: less(self.prefix_hits, before.prefix_hits),
            first_token: grown(self.first_token.as_ref(), before.first_token.as_ref()),
            between_tokens: grown(self.between_tokens.as_ref(), before.between_tokens.as_ref()),
            whole: grown(self.whole.as_ref(), before.whole.as_ref()),
            writing_seconds: self.writing_seconds.map(|now| {
                let then = before.writing_seconds.unwrap_or(0.0);
                if now >= then { now - then } else { now }
            }),
            ..*self
        }
    }

    /// Whether a counter fell since an earlier reading, as it does when a server is started anew.
    #[must_use]
    pub fn fell_since(&self, before: &Self) -> bool {
        let fell = |now: Option<u64>, then: Option<u64>| now.zip(then).is_some_and(|(now, then)| now < then);
        fell(self.steps, before.steps)
            || fell(self.drafted, before.drafted)
            || fell(self.accepted, before.accepted)
            || fell(self.generated, before.generated)
            || fell(self.prefix_queries, before.prefix_queries)
    }
}

fn grown(now: Option<&Histogram>, before: Option<&Histogram>) -> Option<Histogram> {
    now.map(|now| before.map_or_else(|| now.clone(), |before| now.since(before)))
}

/// A slot of a server: a place for one request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SlotState {
    /// Its number.
    pub id: u32,
    /// Number of its request, of that which runs or of the last one.
    pub task: Option<u64>,
    /// Whether a request runs in it.
    pub is_busy: bool,
    /// Whether it drafts.
    pub speculates: Option<bool>,
    /// Tokens of the answer so far, if the server reports it.
    pub decoded: Option<u64>,
    /// Tokens that fit.
    pub context: Option<u64>,
}

/// One look at a server.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ServerSample {
    /// Its place in the list of servers, from 0.
    pub server: usize,
    /// Host and port.
    pub host: String,
    /// Milliseconds since the watch began.
    pub at_ms: u64,
    /// What it is: `llama-server`, `vLLM`, …; empty while that is not known.
    pub engine: String,
    /// Its model.
    pub model: String,
    /// Its counters; none if it publishes none.
    pub counters: Option<Counters>,
    /// Its slots; empty if it shows none.
    pub slots: Vec<SlotState>,
    /// Why nothing is known, or less than there could be: one sentence.
    pub problem: Option<String>,
}
