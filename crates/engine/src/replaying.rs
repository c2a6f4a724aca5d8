//! Decodes the plain answer ahead of a lane whose drafter replays it.

use std::time::Duration;

use draftscope_protocol::{DraftLenMode, Settings, VerifyRule};

use super::replayed::{Picked, Replayed};
use super::turn::{Runner, Turn};
use crate::speculate::SpecError;

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
