//! The plain answer that a drafter replays (the oracle, the dial): computed before the drafter needs it.
//!
//! Invariant: it is computed on a fork and on no lane's clock, and once for as long as it holds: other settings of the
//! drafter, such as a turn of the dial, need no other answer.

use std::time::Duration;

use crate::speculate::SpecError;
use draftscope_protocol::{DraftLenMode, Sampling, Settings, TokenId, VerifyRule};

use super::turn::{Runner, Turn};

/// What a plain answer depends on: how tokens are picked, and whether with the draws of the lane, as under `exact`.
#[derive(Clone, Copy, PartialEq)]
struct Picked {
    sampling: Sampling,
    is_exact: bool,
}

/// A plain answer.
pub(super) struct Replayed {
    picked: Picked,
    /// Prompt and answer.
    tokens: Vec<TokenId>,
    /// Whether nothing follows: the model ended it, or the context is full.
    is_whole: bool,
}

impl Replayed {
    /// Whether it is what would be computed now: the plain answer after these tokens, up to `goal` tokens in all.
    fn holds(&self, picked: Picked, committed: &[TokenId], goal: usize) -> bool {
        let is_long = self.is_whole || self.tokens.len() >= goal;
        self.picked == picked && is_long && self.tokens.starts_with(committed)
    }
}

impl Turn<'_> {
    /// Gives a drafter that replays the plain answer what it needs.
    ///
    /// # Errors
    /// When the target fails.
    pub(super) fn help_drafter(&mut self, lane: &mut Runner<'_>, settings: &Settings) -> Result<(), SpecError> {
        let settings = settings.of_lane(lane.lane);
        let is_plain = settings.draft_len == 0 && settings.draft_len_mode == DraftLenMode::Fixed;
        if !settings.drafter.replays_plain() || is_plain || lane.finished.is_some() {
            return Ok(());
        }
        let goal = lane.decoder.committed().len() + lane.limit.saturating_sub(lane.output) as usize;
        let picked = Picked { sampling: settings.sampling, is_exact: settings.rule == VerifyRule::Exact };
        let known = lane.replayed.take();
        let known = known.filter(|known| known.holds(picked, lane.decoder.committed(), goal));
        let replayed = match known {
            Some(known) => known,
            None => self.decode_plain(lane, picked, goal)?,
        };
        lane.decoder.offer(&replayed.tokens);
        lane.replayed = Some(replayed);
        Ok(())
    }

    fn decode_plain(&mut self, lane: &Runner<'_>, picked: Picked, goal: usize) -> Result<Replayed, SpecError> {
        let mut plain = lane.decoder.fork_independent()?;
        let mut is_whole = false;
        while !is_whole && plain.committed().len() < goal && !self.control.is_stopped_now(self.outbox) {
            let committed = plain.round(&mut |_| Duration::ZERO)?;
            is_whole = !plain.has_room() || committed.iter().any(|token| self.codec.is_end(*token));
        }
        Ok(Replayed { picked, tokens: plain.committed().to_vec(), is_whole })
    }
}
