//! Figures of a lane's run. Names of vLLM's per-request summary mean the same here as in vLLM.
//!
//! Invariant: all figures are sums and quotients of complete rounds; a quotient whose divisor is zero is none. vLLM's
//! figures count only rounds that drafted: a round without a draft counts only in `rounds`. The bonus or recovered
//! token counts only in `mean_acceptance_length`.

use serde::{Deserialize, Serialize};

/// Figures of all rounds of a lane.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct RunSummary {
    /// Rounds, with or without drafts: passes of the target after the prefill.
    #[cfg_attr(test, schemars(transform = super::schema::added_later))]
    pub rounds: u64,
    /// Rounds in which at least one token was drafted. None, as the next three, where an attached engine does not report
    /// what rounds drafted.
    pub num_spec_steps: Option<u64>,
    /// k: the most drafts that a round could have, even if the drafter proposed fewer; if k changed, the largest.
    pub num_spec_tokens: Option<u64>,
    /// Draft tokens proposed.
    pub num_draft_tokens: Option<u64>,
    /// Draft tokens accepted.
    pub num_accepted_draft_tokens: Option<u64>,
    /// Draft tokens that were copied from the text; absent without any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub num_copied_draft_tokens: Option<u64>,
    /// Copied draft tokens that were accepted; absent without copies.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub num_accepted_copied_draft_tokens: Option<u64>,
    /// Draft tokens that the grammar forced, which the target accepts; absent without any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub num_forced_draft_tokens: Option<u64>,
    /// Committed tokens that the drafter's vocabulary lacks, so that it could not have drafted them; absent, as the next one,
    /// where the drafter has all of the target's tokens or it is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub num_undraftable_tokens: Option<u64>,
    /// Committed tokens that the drafter's vocabulary has ÷ committed tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schemars(range(min = 0, max = 1)))]
    pub draftable_share: Option<f64>,
    /// 1 + accepted ÷ `num_spec_steps`: the bonus or recovered token included. None if nothing was drafted.
    #[cfg_attr(test, schemars(range(min = 1)))]
    pub mean_acceptance_length: Option<f64>,
    /// Accepted ÷ drafted. None without drafts.
    #[cfg_attr(test, schemars(range(min = 0, max = 1)))]
    pub draft_acceptance_rate: Option<f64>,
    /// Rounds that drafted, by number of accepted drafts: index 0 to `num_spec_tokens`, the sum is `num_spec_steps`.
    /// Empty if k was always 0.
    pub acceptance_histogram: Vec<u64>,
    /// Rounds that offered a draft at each position.
    pub offered_per_pos: Vec<u64>,
    /// Rounds whose draft at each position was accepted.
    pub accepted_per_pos: Vec<u64>,
    /// Time of the prefills.
    #[cfg_attr(test, schemars(range(min = 0)))]
    pub prefill_seconds: f64,
    /// Time of all rounds.
    #[cfg_attr(test, schemars(range(min = 0)))]
    pub decode_seconds: f64,
    /// Tokens committed in rounds ÷ `decode_seconds`. The first token of an answer comes from the prefill and does not
    /// count.
    pub tokens_per_second: Option<f64>,
    /// Part of `decode_seconds` that the drafter took; none if the engine reports whole rounds only, as are the next two.
    #[cfg_attr(test, schemars(range(min = 0)))]
    pub draft_seconds: Option<f64>,
    /// Part of `decode_seconds` that the target's passes took.
    #[cfg_attr(test, schemars(range(min = 0)))]
    pub verify_seconds: Option<f64>,
    /// The rest: sampling, verdicts, rollback, events.
    #[cfg_attr(test, schemars(range(min = 0)))]
    pub other_seconds: Option<f64>,
}
