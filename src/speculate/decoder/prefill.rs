//! Reading a prompt: what is cached of it stays, the rest goes through the target in blocks.
//!
//! Invariant: between two blocks the decoder is what it is between two rounds, the last token that was read up to
//! standing for the anchor. So a prompt can be given up there, and what was read of it is not read again.

use std::time::{Duration, Instant};

use super::Decoder;
use crate::model::{Checkpoint, LogitRows};
use crate::protocol::{EventKind, TokenId};
use crate::speculate::SpecError;
use crate::speculate::report::{bare, micros, prediction};
use crate::speculate::sampler::LogitRow;

/// Tokens of a block: enough for a pass to be no dearer a token than a longer one.
const PROMPT_BLOCK: usize = 512;

impl Decoder {
    /// Reads a prompt, keeping what is cached of it, and commits the first token of the answer.
    ///
    /// # Errors
    /// [`SpecError::EmptyPrompt`], or what the models report.
    pub fn prefill(&mut self, turn: u32, prompt: &[TokenId]) -> Result<EventKind, SpecError> {
        self.prefill_to(turn, prompt, None, &mut || true)
    }

    /// The same with a first token that may be given instead of picked, and for as long as `go_on` says: it is
    /// asked between two blocks of a long prompt.
    ///
    /// # Errors
    /// As [`Self::prefill`]; [`SpecError::Stopped`] where the rest was not wanted any more. What was read stays
    /// cached.
    pub fn prefill_to(
        &mut self,
        turn: u32,
        prompt: &[TokenId],
        given: Option<TokenId>,
        go_on: &mut dyn FnMut() -> bool,
    ) -> Result<EventKind, SpecError> {
        (self.proposal, self.told_short) = (None, false);
        if prompt.is_empty() {
            return Err(SpecError::EmptyPrompt);
        }
        let started = Instant::now();
        let cached = self.rewind_to(prompt)?;
        self.committed.truncate(cached);
        let read = self.read(cached, prompt, go_on)?;
        let out = self.target.forward(&prompt[read..], LogitRows::Last)?;
        let p = self.sampler.distribution(&LogitRow::of(&out, 0, None), None, prompt.len() - 1)?;
        self.committed.truncate(read);
        self.committed.extend_from_slice(&prompt[read..]);
        let first = given.unwrap_or_else(|| self.round_ctx(0).pick(&p, 0).0);
        self.committed.push(first);
        // hidden row i stands at position read + i and predicted the token behind it
        let learnt = self.drafter.observe(&self.committed[read + 1..], &out.hidden);
        if let Err(error) = learnt.and_then(|()| self.drafter.settle(&self.committed)) {
            self.dismiss(&error);
        }
        self.hear_drafter();
        self.clock = Duration::ZERO;
        Ok(EventKind::Prefilled {
            turn,
            prompt: prompt.iter().map(|id| bare(*id)).collect(),
            cached: cached as u32,
            first: bare(first),
            row: prediction(&p),
            took_us: micros(started.elapsed()),
        })
    }

    /// Reads blocks of the prompt from position `from` on, all but the last; where that begins.
    fn read(
        &mut self,
        mut from: usize,
        prompt: &[TokenId],
        go_on: &mut dyn FnMut() -> bool,
    ) -> Result<usize, SpecError> {
        while prompt.len() - from > PROMPT_BLOCK {
            let end = from + PROMPT_BLOCK;
            let out = self.target.forward(&prompt[from..end], LogitRows::Last)?;
            self.committed.truncate(from);
            self.committed.extend_from_slice(&prompt[from..=end]);
            if let Err(error) = self.drafter.observe(&self.committed[from + 1..], &out.hidden) {
                self.dismiss(&error);
            }
            from = end;
            if !go_on() {
                return Err(SpecError::Stopped);
            }
        }
        Ok(from)
    }

    /// Cuts both caches back to what the prompt shares with what is committed; at least the
    /// prompt's last token stays to be run.
    fn rewind_to(&mut self, prompt: &[TokenId]) -> Result<usize, SpecError> {
        let shared = self.committed.iter().zip(prompt).take_while(|(a, b)| a == b).count();
        let cached = self.target.rewindable(shared.saturating_sub(1).min(prompt.len() - 1));
        self.target.truncate(cached, &Checkpoint { len: 0 })?;
        self.drafter.rewind(cached)?;
        Ok(cached)
    }
}
