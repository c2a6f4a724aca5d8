//! A lane's run in numbers; where vLLM's per-request summary has a name, it means here what it means there.
//!
//! Invariant: sums and quotients of complete rounds only; a quotient whose divisor is zero is none. What vLLM
//! names counts the rounds that drafted, and no others: those without a draft are in `rounds` alone.
//! The bonus or recovered token counts in `mean_acceptance_length` and in nothing else here. Who adds
//! the numbers up is unknown here.

use serde::{Deserialize, Serialize};

/// What a lane's rounds came to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct RunSummary {
    /// Rounds, with drafts or without: passes of the target after the prompt's.
    #[cfg_attr(test, schemars(transform = super::schema::added_later))]
    pub rounds: u64,
    /// Rounds in which at least one token was drafted.
    pub num_spec_steps: u64,
    /// k: the most that a round was to draft, whether or not the drafter had so many; where k changed, the largest.
    pub num_spec_tokens: u64,
    /// Draft tokens proposed.
    pub num_draft_tokens: u64,
    /// Draft tokens accepted.
    pub num_accepted_draft_tokens: u64,
    /// 1 + accepted ÷ `num_spec_steps`: the bonus or recovered token included. None where nothing was drafted.
    #[cfg_attr(test, schemars(range(min = 1)))]
    pub mean_acceptance_length: Option<f64>,
    /// Accepted ÷ drafted. None without drafts.
    #[cfg_attr(test, schemars(range(min = 0, max = 1)))]
    pub draft_acceptance_rate: Option<f64>,
    /// Rounds that drafted by number of accepted drafts: index 0 to `num_spec_tokens`, and `num_spec_steps` in all.
    /// Empty where k was 0 throughout.
    pub acceptance_histogram: Vec<u64>,
    /// Rounds that offered a draft at each position.
    pub offered_per_pos: Vec<u64>,
    /// Rounds whose draft at each position was accepted.
    pub accepted_per_pos: Vec<u64>,
    /// Time of the prompts' passes.
    #[cfg_attr(test, schemars(range(min = 0)))]
    pub prefill_seconds: f64,
    /// Time of all rounds.
    #[cfg_attr(test, schemars(range(min = 0)))]
    pub decode_seconds: f64,
    /// Tokens committed in rounds ÷ `decode_seconds`; the first token of an answer comes from the
    /// prompt's pass and does not count.
    pub tokens_per_second: Option<f64>,
    /// Part of `decode_seconds` that the drafter took.
    #[cfg_attr(test, schemars(range(min = 0)))]
    pub draft_seconds: f64,
    /// Part that the target's passes took.
    #[cfg_attr(test, schemars(range(min = 0)))]
    pub verify_seconds: f64,
    /// The rest: sampling, verdicts, rollback, events.
    #[cfg_attr(test, schemars(range(min = 0)))]
    pub other_seconds: f64,
}
