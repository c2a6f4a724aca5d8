//! Copies of a decoder at the same position, for plain and rival lanes: the same weights and committed tokens, but own
//! caches and an own clock.

use std::time::Duration;

use super::Decoder;
use crate::grammar::Constraint;
use crate::speculate::SpecError;
use crate::speculate::drafter::{Drafter, NoDrafter};
use draftscope_protocol::{Sampling, Settings, TokenId, VerifyRule};

impl Decoder {
    /// A plain copy (k = 0).
    ///
    /// # Errors
    /// When the cache cannot be copied.
    pub fn fork_plain(&self) -> Result<Self, SpecError> {
        let settings = Settings { draft_len: 0, probe_depth: 0, ..self.settings };
        self.fork_with(Box::new(NoDrafter), settings)
    }

    /// A plain copy with these sampling settings.
    ///
    /// # Errors
    /// As [`Self::fork_plain`].
    pub fn fork_plain_under(&self, sampling: Sampling) -> Result<Self, SpecError> {
        let mut plain = self.fork_plain()?;
        plain.set(&Settings { sampling, ..plain.settings });
        Ok(plain)
    }

    /// A plain copy that continues an answer of these tokens, prompt and answer, the anchor last, of which the last
    /// `written` are the answer's, after so many rounds and so much measured time. `go_on` is asked while the tokens are read that no cache has.
    ///
    /// # Errors
    /// As [`Self::fork_plain`] and [`Self::prefill_to`].
    pub fn fork_plain_at(
        &self,
        (tokens, written): (&[TokenId], usize),
        (rounds, clock): (u32, Duration),
        sampling: Sampling,
        go_on: &mut dyn FnMut() -> bool,
    ) -> Result<Self, SpecError> {
        let mut plain = self.fork_plain_under(sampling)?;
        let (anchor, before) = tokens.split_last().ok_or(SpecError::EmptyPrompt)?;
        plain.prefill_from(0, (before, written.saturating_sub(1)), Some(*anchor), go_on)?;
        (plain.round, plain.clock) = (rounds, clock);
        Ok(plain)
    }

    /// A plain copy whose tokens will be proposed as drafts. Under a rule that draws, it uses other draws: a draft must
    /// not be judged by the draws that chose it.
    ///
    /// # Errors
    /// When the cache cannot be copied.
    pub fn fork_independent(&self) -> Result<Self, SpecError> {
        let mut fork = self.fork_plain()?;
        if self.settings.rule != VerifyRule::Exact {
            fork.draws = self.draws.independent();
        }
        Ok(fork)
    }

    /// A copy with a copy of the drafter, under other settings.
    ///
    /// # Errors
    /// When a cache cannot be copied.
    pub fn fork(&self, settings: &Settings) -> Result<Self, SpecError> {
        let mut fork = self.fork_with(self.drafter.fork()?, self.settings)?;
        fork.set(settings);
        Ok(fork)
    }

    fn fork_with(&self, drafter: Box<dyn Drafter>, settings: Settings) -> Result<Self, SpecError> {
        Ok(Self {
            target: self.target.fork()?,
            drafter,
            settings,
            shapes_drafts: self.shapes_drafts,
            sampler: self.sampler,
            draws: self.draws.clone(),
            committed: self.committed.clone(),
            round: 0,
            clock: Duration::ZERO,
            notices: Vec::new(),
            proposal: None,
            stop_rule: None,
            reported_short: self.reported_short,
            reported_no_trees: self.reported_no_trees,
            grammar: self.grammar.as_ref().map(Constraint::fork),
            answer_from: self.answer_from,
            is_dead_end: self.is_dead_end,
        })
    }
}
