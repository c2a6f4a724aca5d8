//! Copies of a decoder at the same place, for lanes that run beside: same weights, same committed
//! tokens, caches and clock of their own.

use std::time::Duration;

use super::Decoder;
use crate::protocol::{Settings, VerifyRule};
use crate::speculate::SpecError;
use crate::speculate::drafter::{Drafter, NoDrafter};

impl Decoder {
    /// A plain one (k = 0).
    ///
    /// # Errors
    /// When the cache cannot be copied.
    pub fn fork_plain(&self) -> Result<Self, SpecError> {
        let settings = Settings { draft_len: 0, probe_depth: 0, ..self.settings };
        self.fork_with(Box::new(NoDrafter), settings)
    }

    /// A plain one whose tokens are to be proposed as drafts. Under a rule that draws it has draws of its own: the
    /// verdict on a draft must not meet those that chose it.
    ///
    /// # Errors
    /// When the cache cannot be copied.
    pub fn fork_aside(&self) -> Result<Self, SpecError> {
        let mut fork = self.fork_plain()?;
        if self.settings.rule != VerifyRule::Exact {
            fork.draws = self.draws.aside();
        }
        Ok(fork)
    }

    /// One with a copy of the drafter, under other settings.
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
            told_short: self.told_short,
            told_refusal: self.told_refusal,
        })
    }
}
