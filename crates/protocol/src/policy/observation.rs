//! Observations of a round, read from its events.

use crate::{
    DraftStopped, Drafted, EventKind, MAX_DRAFT_LEN, Outcome, Prediction, RoundStarted, Scored, TokenId, Verification,
};

const DRAFTS: usize = MAX_DRAFT_LEN as usize;

/// Figures of one round.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Observation {
    /// Drafts requested from the drafter: k.
    pub asked: usize,
    /// Drafts of the chain that it proposed.
    pub drafted: usize,
    /// Accepted drafts of the chain.
    pub accepted: usize,
    /// Alternatives to the chain's drafts, each judged by the row that judges the draft beside it.
    pub alternatives: usize,
    /// Sum of the probabilities of alternatives whose row was reached.
    pub promised_by_alternatives: f32,
    /// Whether one of them was accepted.
    pub took_alternative: bool,
    /// Drafts that were made and discarded because their probability was too low: 0 or 1.
    pub dropped: usize,
    /// Largest probability, 0 to 1, of the distribution of each draft, a copy's predicted chance of acceptance, or 1 of a forced
    /// token; none if
    /// neither is known.
    pub sure: [Option<f32>; DRAFTS],
    /// Whether some of the drafts cost no pass: copied from the text, or forced by the grammar.
    pub has_copies: bool,
    /// Whether one pass made all drafts (a block drafter), so that the first draft step contains it.
    pub one_pass: bool,
    /// Time of the first draft step in microseconds; 0 if there was none.
    pub first_draft_us: f64,
    /// Time of all draft steps in microseconds.
    pub draft_us: f64,
    /// Time of the target's pass in microseconds.
    pub verify_us: f64,
    /// Time of the whole round in microseconds; the caller sets it.
    pub round_us: f64,
    /// Each draft, in order, alternatives included.
    pub drafts: [ObservedDraft; DRAFTS],
}

/// A draft of a round.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ObservedDraft {
    /// The row that judges it.
    pub row: usize,
    /// The proposal.
    pub token: TokenId,
    /// Of an alternative, the probability, 0 to 1, by which it was chosen.
    pub q: f32,
}

impl Observation {
    /// Takes one of the round's events. The caller sets `round_us`.
    pub fn on_event(&mut self, kind: &EventKind) {
        match kind {
            EventKind::RoundStarted(RoundStarted { draft_len, .. }) => {
                *self = Self { asked: (*draft_len).into(), ..Self::default() }
            }
            EventKind::Drafted(Drafted { index, token, top, row: Some(row), copied, .. }) => {
                let chance = copied.and_then(|copied| copied.chance);
                let q = chance.unwrap_or_else(|| self.largest_left(top, (*row).into()));
                self.note((*index).into(), ObservedDraft { row: (*row).into(), token: token.id, q });
                self.alternatives += 1;
            }
            EventKind::Drafted(Drafted { index, token, top, more, copied, forced, took_us, .. }) => {
                self.note((*index).into(), ObservedDraft { row: (*index).into(), token: token.id, q: 0.0 });
                self.one_pass |= more;
                self.has_copies |= copied.is_some() || *forced;
                let chance = copied.and_then(|copied| copied.chance).or(forced.then_some(1.0));
                if let Some(sure) = self.sure.get_mut(self.drafted) {
                    *sure = chance.or_else(|| top.top.first().map(|best| best.prob));
                }
                self.took_draft(*took_us as f64);
                self.drafted += 1;
            }
            EventKind::DraftStopped(DraftStopped { took_us, .. }) => {
                self.took_draft(*took_us as f64);
                self.dropped += 1;
            }
            EventKind::Scored(Scored { verify_us, .. }) => self.verify_us = *verify_us as f64,
            EventKind::Verified { verdict, .. } => self.judged(verdict),
            _ => {}
        }
    }

    fn note(&mut self, index: usize, draft: ObservedDraft) {
        if let Some(place) = self.drafts.get_mut(index) {
            *place = draft;
        }
    }

    /// The largest probability of a token that is no draft at this row yet: by it an alternative was chosen.
    fn largest_left(&self, top: &Prediction, row: usize) -> f32 {
        let made = &self.drafts[..(self.drafted + self.alternatives).min(DRAFTS)];
        let is_left = |token: TokenId| !made.iter().any(|draft| draft.row == row && draft.token == token);
        top.top.iter().find(|candidate| is_left(candidate.piece.id)).map_or(0.0, |candidate| candidate.prob)
    }

    fn judged(&mut self, verdict: &Verification) {
        let accepted = |of: &crate::Judgement| of.outcome == Outcome::Accepted;
        let chain = &verdict.judgements[..self.drafted.min(verdict.judgements.len())];
        self.accepted = chain.iter().filter(|of| accepted(of)).count();
        self.took_alternative = verdict.judgements[chain.len()..].iter().any(accepted);
        let all = (self.drafted + self.alternatives).min(DRAFTS);
        let reached = self.drafts[self.drafted.min(all)..all].iter().filter(|draft| draft.row <= self.accepted);
        self.promised_by_alternatives = reached.map(|draft| draft.q).sum();
    }

    fn took_draft(&mut self, took_us: f64) {
        if self.drafted + self.dropped == 0 {
            self.first_draft_us = took_us;
        }
        self.draft_us += took_us;
    }
}
