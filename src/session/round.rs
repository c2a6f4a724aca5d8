//! One round of a lane, filled in as its events arrive.
//!
//! Invariant: a round may be incomplete at any point (live, or a torn trace); every field that has
//! not been told is empty or `None`, and nothing here guesses it. `rows[i]` judges `drafts[i]`, row
//! `drafts.len()` yields the bonus.

use crate::protocol::{Judgement, NextKind, Outcome, Piece, Prediction, Verification, VerifyRule};

/// One proposed token.
#[derive(Clone, Debug, PartialEq)]
pub struct DraftCell {
    /// The proposal.
    pub piece: Piece,
    /// Drafter's probability of it, 0 to 1; none when it has no distribution.
    pub q: Option<f32>,
    /// What it was drawn from.
    pub top: Prediction,
    /// Time of this draft step.
    pub took_us: u64,
}

/// One draft + verify.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Round {
    /// 1, 2, 3 … per lane, over all turns.
    pub round: u32,
    /// Number of the turn it belongs to.
    pub turn: u32,
    /// Positions in the target's cache when it began.
    pub base_len: u32,
    /// k asked of the drafter.
    pub draft_len: u8,
    /// Rule in force when it began.
    pub rule: VerifyRule,
    /// Proposals so far.
    pub drafts: Vec<DraftCell>,
    /// What the target says at every position; empty until scored.
    pub rows: Vec<Prediction>,
    /// Time of the one target pass.
    pub verify_us: u64,
    /// Time from logits to distributions and candidates.
    pub sample_us: u64,
    /// What the rule decided; none until judged.
    pub verdict: Option<Verification>,
    /// Output tokens of the round; may be cut where the answer ends.
    pub committed: Vec<Piece>,
    /// Index of the first committed token in [`super::Answer::tokens`].
    pub first_token: usize,
    /// Time of the rollback.
    pub rollback_us: u64,
    /// The lane's clock in this turn after the round.
    pub clock_us: u64,
    /// Whether the commit has been told.
    pub is_complete: bool,
}

impl Round {
    /// Length of the accepted prefix, 0 until judged.
    #[must_use]
    pub fn accepted(&self) -> usize {
        self.verdict.as_ref().map_or(0, |v| v.accepted().min(self.drafts.len()))
    }

    /// The verdict on draft `index`.
    #[must_use]
    pub fn judgement(&self, index: usize) -> Option<&Judgement> {
        self.verdict.as_ref()?.judgements.get(index)
    }

    /// What became of draft `index`; none until judged.
    #[must_use]
    pub fn outcome(&self, index: usize) -> Option<Outcome> {
        self.judgement(index).map(|judgement| judgement.outcome)
    }

    /// Column in which the target added its own token; none until judged.
    #[must_use]
    pub fn next_index(&self) -> Option<usize> {
        self.verdict.as_ref().map(|_| self.accepted())
    }

    /// Bonus or recovered; none until judged.
    #[must_use]
    pub fn next_kind(&self) -> Option<NextKind> {
        self.verdict.as_ref().map(|v| v.next_kind)
    }

    /// The token that the target added, with its text where the events told it.
    #[must_use]
    pub fn next_piece(&self) -> Option<Piece> {
        let verdict = self.verdict.as_ref()?;
        let row = self.rows.get(self.accepted());
        let in_row = row.and_then(|row| row.top.iter().find(|c| c.piece.id == verdict.next));
        let piece = match in_row {
            Some(candidate) => candidate.piece.clone(),
            None => self.committed.get(self.accepted()).cloned().unwrap_or(Piece::new(verdict.next, Vec::new())),
        };
        Some(piece)
    }

    /// Whether the token of a column was accepted or added, and then cut off by a stop rule.
    #[must_use]
    pub fn is_cut(&self, index: usize) -> bool {
        let kept = self.outcome(index) == Some(Outcome::Accepted) || self.next_index() == Some(index);
        self.is_complete && kept && index >= self.committed.len()
    }

    /// Time of all draft steps.
    #[must_use]
    pub fn draft_us(&self) -> u64 {
        self.drafts.iter().fold(0, |sum, draft| sum.saturating_add(draft.took_us))
    }

    /// Columns of the round's table: every draft (announced or told) and the one after them.
    #[must_use]
    pub fn columns(&self) -> usize {
        let told = self.drafts.len().max(self.rows.len().saturating_sub(1));
        if self.rows.is_empty() { told.max(self.draft_len.into()) + 1 } else { told + 1 }
    }

    /// Places a proposal. A gap is not filled: a proposal behind one is dropped.
    pub(super) fn draft(&mut self, index: usize, cell: DraftCell) {
        if let Some(known) = self.drafts.get_mut(index) {
            *known = cell;
        } else if index == self.drafts.len() {
            self.drafts.push(cell);
        }
    }

    /// Forgets candidates beyond what the round table shows: the best two and the token judged.
    pub(super) fn shrink(&mut self) {
        let drafts: Vec<_> = self.drafts.iter().map(|d| d.piece.id).collect();
        for (index, row) in self.rows.iter_mut().enumerate() {
            keep_best(row, drafts.get(index).copied());
        }
        for cell in &mut self.drafts {
            keep_best(&mut cell.top, None);
        }
    }
}

fn keep_best(row: &mut Prediction, also: Option<crate::protocol::TokenId>) {
    let mut rank = 0;
    let mut dropped = 0.0;
    row.top.retain(|candidate| {
        rank += 1;
        let keep = rank <= 2 || Some(candidate.piece.id) == also;
        if !keep {
            dropped += candidate.prob;
        }
        keep
    });
    row.tail += dropped;
    row.top.shrink_to_fit();
}
