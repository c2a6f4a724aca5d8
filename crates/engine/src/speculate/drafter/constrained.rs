//! Drafting under a grammar.
//!
//! Drafts that the grammar forbids are never proposed: a drafter's distribution is masked before a token is drawn from it,
//! so q is what the draft was drawn from, and a copy that is forbidden ends the draft there. Tokens that the grammar
//! forces are drafts that cost nothing: they are proposed as soon as they are known, k does not count them, and the
//! drafter goes on after them. Invariant, needed for losslessness: what is masked, refused or forced follows from the
//! tokens before it, never from a draw of its own.

use std::rc::Rc;

use super::DraftCtx;
use crate::grammar::{Constraint, Mask};
use crate::speculate::report::bare;
use crate::speculate::sampler::LogitRow;
use crate::speculate::sampler::masked::Masked;
use draftscope_model::ModelError;
use draftscope_protocol::distribution::Distribution;
use draftscope_protocol::verify::Draft;
use draftscope_protocol::{DraftRefused, TokenId};

/// A grammar, and what it did in a round.
pub(in crate::speculate) struct Constrained<'a> {
    pub(in crate::speculate) grammar: &'a mut Constraint,
    /// Index in the committed tokens at which the answer begins.
    pub(in crate::speculate) from: usize,
    /// Whether forced tokens are drafted: neither where a person drafts nor in plain decoding.
    pub(in crate::speculate) forces: bool,
    /// What it refused. The round is set when it is reported.
    pub(in crate::speculate) refused: Vec<DraftRefused>,
}

/// Tokens of the path that ends at a row of these drafts: row 0 is the anchor's, i + 1 that after draft i.
pub(in crate::speculate) fn path_to(drafts: &[Draft], mut row: usize) -> Vec<TokenId> {
    let mut path = Vec::new();
    while let Some(draft) = row.checked_sub(1).and_then(|index| drafts.get(index)) {
        path.push(draft.token);
        row = draft.row_at(row - 1).min(row - 1);
    }
    path.reverse();
    path
}

impl DraftCtx<'_> {
    /// The grammar's mask after the drafts of `path`; none without a grammar.
    pub(super) fn mask(&mut self, path: &[TokenId]) -> Option<Rc<Mask>> {
        let constrained = self.constrained.as_mut()?;
        let answer = self.committed.get(constrained.from..).unwrap_or_default();
        Some(constrained.grammar.mask(answer, path))
    }

    /// The tokens drafted so far.
    pub(super) fn path(&self) -> Vec<TokenId> {
        path_to(&self.drafts, self.drafts.len())
    }

    /// Whether the grammar allows a token after the drafts of `path`. One that it forbids is noted.
    pub(super) fn permits(&mut self, path: &[TokenId], token: TokenId) -> bool {
        let permits = self.mask(path).is_none_or(|mask| mask.allows(token));
        if !permits {
            self.refuse(path, token, None);
        }
        permits
    }

    /// A drafter's distribution after the drafts of `path`: after the mask, if there is a grammar. None if the drafter knows
    /// none of the allowed tokens.
    pub(super) fn distribution(
        &mut self,
        row: &LogitRow<'_>,
        path: &[TokenId],
        position: usize,
    ) -> Result<Option<Distribution>, ModelError> {
        let Some(mask) = self.mask(path) else {
            return self.sampler.distribution(row, None, position).map(Some);
        };
        let Some(Masked { distribution, best, best_prob, .. }) = self.sampler.masked(row, &mask, None, position)?
        else {
            return Ok(None);
        };
        if !mask.allows(best) {
            self.refuse(path, best, Some(best_prob));
        }
        Ok(Some(distribution))
    }

    fn refuse(&mut self, path: &[TokenId], token: TokenId, q: Option<f32>) {
        let index = self.drafts.len() as u8; // at most MAX_DRAFT_LEN
        let Some(constrained) = &mut self.constrained else { return };
        if !constrained.refused.iter().any(|known| (known.index, known.token.id) == (index, token)) {
            let expected = constrained.grammar.expected(path);
            constrained.refused.push(DraftRefused {
                index,
                token: bare(token),
                q,
                expected,
                ..DraftRefused::default()
            });
        }
    }

    /// Begins a round with the tokens that the grammar forces. Returns whether the drafter is asked, too.
    pub(in crate::speculate) fn begin_forced(&mut self) -> bool {
        let forced = self.propose_forced();
        forced <= self.left()
    }

    /// Proposes the tokens that the grammar forces after the drafts so far. Returns how many.
    pub(in crate::speculate) fn propose_forced(&mut self) -> usize {
        let before = self.drafts.len();
        let vocab = self.target.spec().info.vocab;
        while self.constrained.as_ref().is_some_and(|constrained| constrained.forces) {
            let path = self.path();
            if path.last().is_some_and(|last| self.ends_answer(*last)) {
                break;
            }
            let forced = self.mask(&path).and_then(|mask| mask.only());
            let Some(token) = forced.filter(|token| self.drafts.len() < self.most_copied && token.0 < vocab) else {
                break;
            };
            if let Some(progress) = &mut self.progress {
                progress.copy(1.0);
            }
            let draft = Draft::forced(token);
            (self.on_draft)(self.drafts.len(), &draft);
            self.drafts.push(draft);
        }
        self.drafts.len() - before
    }

    /// Whether nothing may follow a draft, because it ends the answer.
    pub(super) fn ends_answer(&self, token: TokenId) -> bool {
        self.constrained.as_ref().is_some_and(|constrained| constrained.grammar.is_end(token))
    }

    /// Drafts so far that k counts: all but the forced ones.
    pub(super) fn counted(&self) -> usize {
        self.drafts.iter().filter(|draft| !draft.forced).count()
    }
}
