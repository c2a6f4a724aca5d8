//! A lane's run in numbers, with the names vLLM uses for its per-request summary.
//!
//! Invariant: sums and quotients of complete rounds only; a quotient whose divisor is zero is none.
//! The bonus or recovered token counts in `mean_acceptance_length` and in nothing else here. Who adds
//! the numbers up is unknown here.

use serde::{Deserialize, Serialize};

/// What a lane's rounds came to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RunSummary {
    /// Rounds: passes of the target after the prompt's.
    pub num_spec_steps: u64,
    /// Longest draft of a round.
    pub num_spec_tokens: u64,
    /// Draft tokens proposed.
    pub num_draft_tokens: u64,
    /// Draft tokens accepted.
    pub num_accepted_draft_tokens: u64,
    /// 1 + accepted ÷ rounds: the bonus or recovered token included. None without rounds.
    pub mean_acceptance_length: Option<f64>,
    /// Accepted ÷ drafted. None without drafts.
    pub draft_acceptance_rate: Option<f64>,
    /// Rounds by number of accepted drafts: index 0 to k.
    pub acceptance_histogram: Vec<u64>,
    /// Rounds that offered a draft at each position.
    pub offered_per_pos: Vec<u64>,
    /// Rounds whose draft at each position was accepted.
    pub accepted_per_pos: Vec<u64>,
    /// Time of the prompts' passes.
    pub prefill_seconds: f64,
    /// Time of all rounds.
    pub decode_seconds: f64,
    /// Tokens committed in rounds ÷ `decode_seconds`; the first token of an answer comes from the
    /// prompt's pass and does not count.
    pub tokens_per_second: Option<f64>,
    /// Part of `decode_seconds` that the drafter took.
    pub draft_seconds: f64,
    /// Part that the target's passes took.
    pub verify_seconds: f64,
    /// The rest: sampling, verdicts, rollback, events.
    pub other_seconds: f64,
}
