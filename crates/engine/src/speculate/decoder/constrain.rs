//! Decoding under a grammar: every row of the target is masked before a rule judges it, and so are the tokens that rules pick
//! from it: the first of an answer, bonus and recovered ones.
//!
//! Invariant: a row's mask depends on the answer's tokens up to it alone, so plain decoding with the same grammar gives the
//! same text.

use super::Decoder;
use crate::grammar::{Constraint, GrammarError};
use crate::speculate::SpecError;
use crate::speculate::drafter::path_to;
use crate::speculate::report::micros;
use crate::speculate::sampler::{LogitRow, Sampler};
use draftscope_model::{Forward, ModelError};
use draftscope_protocol::distribution::Distribution;
use draftscope_protocol::verify::Draft;
use draftscope_protocol::{EventKind, Masked, MaskedRow, TokenId};

impl Decoder {
    /// Sets what every answer from the next prompt on must match; none for free text.
    pub fn constrain(&mut self, grammar: Option<Constraint>) {
        self.grammar = grammar;
        self.answer_from = self.committed.len();
    }

    /// What answers must match.
    #[must_use]
    pub fn grammar(&self) -> Option<&Constraint> {
        self.grammar.as_ref()
    }

    /// Says that the last `kept` tokens of the next prompt are the beginning of its answer.
    ///
    /// # Errors
    /// [`GrammarError::Broken`] when the grammar forbids them.
    pub(super) fn begin_answer(&mut self, prompt: &[TokenId], kept: usize) -> Result<(), GrammarError> {
        self.is_dead_end = false;
        self.answer_from = prompt.len() - kept.min(prompt.len());
        let kept = &prompt[self.answer_from..];
        self.grammar.as_mut().map_or(Ok(()), |grammar| grammar.check(kept))
    }

    /// Whether the answer so far, without its last `cut` tokens, is all that the grammar asks for; true without a grammar.
    pub fn is_complete(&mut self, cut: usize) -> bool {
        let end = self.committed.len().saturating_sub(cut);
        let answer = self.committed.get(self.answer_from..end).unwrap_or_default();
        self.grammar.as_mut().is_none_or(|grammar| grammar.is_complete(answer))
    }

    /// How many of these proposed tokens the grammar allows, one after the other.
    pub(super) fn allowed(&mut self, proposed: &[TokenId]) -> usize {
        let answer = self.committed.get(self.answer_from..).unwrap_or_default();
        let Some(grammar) = &mut self.grammar else {
            return proposed.len();
        };
        let permits = |at: &usize| grammar.mask(answer, &proposed[..*at]).allows(proposed[*at]);
        (0..proposed.len()).take_while(permits).count()
    }

    /// The distribution of one row, after the mask that follows the answer and the drafts of `path`.
    pub(super) fn row(
        &mut self,
        (sampler, row): (Sampler, &LogitRow<'_>),
        (answer, path): (&[TokenId], &[TokenId]),
        also: impl IntoIterator<Item = TokenId>,
        position: usize,
    ) -> Result<(Distribution, MaskedRow), SpecError> {
        let Some(grammar) = &mut self.grammar else {
            return Ok((sampler.distribution(row, also, position)?, MaskedRow::default()));
        };
        let mask = grammar.mask(answer, path);
        let masked = sampler.masked(row, &mask, also, position)?.ok_or_else(|| {
            ModelError::Unsupported("the tokens that the grammar allows are none that the target can predict".into())
        })?;
        let count = MaskedRow { allowed: mask.count() as u32, removed: masked.removed };
        Ok((masked.distribution, count))
    }

    /// One distribution per row: row 0 judges the drafts that continue the anchor, row i + 1 those that continue draft
    /// i. Under a grammar also what that did to each row.
    pub(super) fn distributions(
        &mut self,
        drafts: &[Draft],
        out: &Forward,
        base: usize,
    ) -> Result<(Vec<Distribution>, Vec<MaskedRow>), SpecError> {
        let sampler = self.judging_sampler();
        let answer = self.committed.get(self.answer_from..).unwrap_or_default().to_vec();
        let mut rows = Vec::with_capacity(out.scored());
        for row in 0..out.scored() {
            let judged = drafts.iter().enumerate().filter(|(index, draft)| draft.row_at(*index) == row);
            let judged = judged.map(|(_, draft)| draft.token);
            let path = if self.grammar.is_some() { path_to(drafts, row) } else { Vec::new() };
            let logits = LogitRow::of(out, row, None);
            rows.push(self.row((sampler, &logits), (&answer, &path), judged, base + row)?);
        }
        Ok(rows.into_iter().unzip())
    }

    /// What the grammar did in this round.
    pub(super) fn masked_event(&mut self, rows: Vec<MaskedRow>) -> Option<EventKind> {
        let took_us = micros(self.grammar.as_mut()?.take_cost());
        Some(EventKind::Masked(Masked { round: self.round, rows, took_us }))
    }

    /// Notes once that the grammar cannot go on after the tokens of this row, so that the answer ends there.
    pub(super) fn note_dead_end(&mut self, drafts: &[Draft], row: usize) {
        let answer = self.committed.get(self.answer_from..).unwrap_or_default();
        let Some(grammar) = &mut self.grammar else { return };
        let mask = grammar.mask(answer, &path_to(drafts, row));
        if let Some(reason) = mask.reason().filter(|_| !self.is_dead_end) {
            let why = if reason.is_empty() { String::new() } else { format!(" ({reason})") };
            let noun = grammar.noun();
            self.notices.push(format!("the {noun} allows no token after this{why}, so the answer ends here"));
            self.is_dead_end = true;
        }
    }
}
