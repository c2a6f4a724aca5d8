//! The prefill: keeps the part of a prompt that is cached, and runs the rest through the target in blocks.
//!
//! Invariant: between two blocks the decoder is in the same state as between two rounds, with the next token of the
//! prompt as the anchor. So the prefill can stop there, and the part that was read is not read again.

use std::time::{Duration, Instant};

use super::Decoder;
use crate::speculate::SpecError;
use crate::speculate::report::{bare, micros, prediction};
use crate::speculate::sampler::LogitRow;
use draftscope_model::{Checkpoint, LogitRows};
use draftscope_protocol::{Prefilled, TokenId};

/// Tokens of a block: longer passes would not be cheaper per token.
const PROMPT_BLOCK: usize = 512;

impl Decoder {
    /// Reads a prompt, except the part that is cached, and commits the first token of the answer.
    ///
    /// # Errors
    /// [`SpecError::EmptyPrompt`], or [`SpecError::Model`] when a model fails.
    pub fn prefill(&mut self, turn: u32, prompt: &[TokenId]) -> Result<Prefilled, SpecError> {
        self.prefill_to(turn, prompt, None, &mut || true)
    }

    /// As [`Self::prefill_to`], where the last `kept` tokens of the prompt are the beginning of its answer.
    ///
    /// # Errors
    /// As [`Self::prefill_to`], and [`SpecError::Grammar`] when the grammar forbids one of them.
    pub fn prefill_from(
        &mut self,
        turn: u32,
        (prompt, kept): (&[TokenId], usize),
        given: Option<TokenId>,
        go_on: &mut dyn FnMut() -> bool,
    ) -> Result<Prefilled, SpecError> {
        if !prompt.is_empty() {
            let answer: Vec<TokenId> = prompt.iter().copied().chain(given).collect();
            self.begin_answer(&answer, kept + usize::from(given.is_some()))?;
        }
        self.read_prompt(turn, prompt, given, go_on)
    }

    /// As [`Self::prefill`], but with an optional first token `given`, which is else picked. Between two blocks of a
    /// long prompt it calls `go_on`, and stops if that returns false.
    ///
    /// # Errors
    /// As [`Self::prefill`], and [`SpecError::Stopped`] when `go_on` returned false; the part that was read stays
    /// cached.
    pub fn prefill_to(
        &mut self,
        turn: u32,
        prompt: &[TokenId],
        given: Option<TokenId>,
        go_on: &mut dyn FnMut() -> bool,
    ) -> Result<Prefilled, SpecError> {
        self.prefill_from(turn, (prompt, 0), given, go_on)
    }

    fn read_prompt(
        &mut self,
        turn: u32,
        prompt: &[TokenId],
        given: Option<TokenId>,
        go_on: &mut dyn FnMut() -> bool,
    ) -> Result<Prefilled, SpecError> {
        (self.proposal, self.reported_short) = (None, false);
        if prompt.is_empty() {
            return Err(SpecError::EmptyPrompt);
        }
        let started = Instant::now();
        let cached = self.rewind_to(prompt)?;
        self.committed.truncate(cached);
        let read = self.read(cached, prompt, go_on)?;
        let out = self.target.forward(&prompt[read..], LogitRows::Last)?;
        let begun = prompt.get(self.answer_from..).unwrap_or_default();
        let row = LogitRow::of(&out, 0, None);
        let (p, _) = self.row((self.sampler, &row), (begun, &[]), None, prompt.len() - 1)?;
        self.committed.truncate(read);
        self.committed.extend_from_slice(&prompt[read..]);
        let first = given.unwrap_or_else(|| self.round_ctx(0).pick(&p, 0).0);
        self.committed.push(first);
        // hidden row i has position read + i and predicted the token after it
        let observed = self.drafter.observe(&self.committed[read + 1..], &out.hidden);
        if let Err(error) = observed.and_then(|()| self.drafter.settle(&self.committed)) {
            self.dismiss(&error);
        }
        self.collect_notices();
        self.clock = Duration::ZERO;
        Ok(Prefilled {
            turn,
            prompt: prompt.iter().map(|id| bare(*id)).collect(),
            cached: cached as u32,
            first: bare(first),
            row: prediction(&p),
            took_us: micros(started.elapsed()),
        })
    }

    /// Reads all blocks of the prompt from position `from` on except the last. Returns where the last one begins.
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

    /// Rolls both caches back to the beginning that the prompt shares with the committed tokens, without the prompt's
    /// last token: it must run again for its logits. Returns the number of positions that stay cached.
    fn rewind_to(&mut self, prompt: &[TokenId]) -> Result<usize, SpecError> {
        let shared = self.committed.iter().zip(prompt).take_while(|(a, b)| a == b).count();
        let cached = self.target.rewindable(shared.saturating_sub(1).min(prompt.len() - 1));
        self.target.truncate(cached, &Checkpoint { len: 0 })?;
        self.drafter.rewind(cached)?;
        Ok(cached)
    }
}
