//! What a server that others use says of itself.

use serde::Serialize;

use super::DraftTotals;

/// Sums since a server started; of several models or engines at one address, over all of them.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Counters {
    /// Verification steps with drafts.
    pub steps: Option<u64>,
    /// Drafted tokens.
    pub drafted: Option<u64>,
    /// Accepted ones.
    pub accepted: Option<u64>,
    /// Accepted ones by position; as long as the longest draft. Empty if not published.
    pub accepted_per_pos: Vec<u64>,
    /// Tokens of answers.
    pub generated: Option<u64>,
    /// Requests being answered now.
    pub running: Option<u64>,
    /// Requests that wait.
    pub waiting: Option<u64>,
    /// Mean length of accepted runs with the target's token, where only that is published.
    pub mean_length: Option<f64>,
    /// Acceptance rate, where only that is published.
    pub rate: Option<f64>,
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
            ..*self
        }
    }
}

/// A slot of a server: a place for one request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SlotState {
    /// Its number.
    pub id: u32,
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
#[derive(Clone, Debug, PartialEq, Serialize)]
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
