//! A round and what should have been different: how its drafts are judged.

use draftscope_protocol::distribution::Distribution;
use draftscope_protocol::random::SeededDraws;
use draftscope_protocol::verify::{Draft, OfRound, RoundCtx, verifier};
use draftscope_protocol::{Outcome, Piece, Prediction, Sampling, TokenId, Verification, VerifyRule};

use super::question::WhatIf;
use crate::round::Round;
use crate::text::quoted;

/// Probability that a row may lack and still count as whole.
pub(super) const WHOLE: f32 = 1e-6;

/// The outcome of one draft.
pub(super) enum Ruling {
    Accept,
    /// With the token in its place, as far as known.
    Reject(Option<TokenId>),
}

/// A round and what should have been different.
pub(super) struct Case<'a> {
    pub(super) round: &'a Round,
    pub(super) change: &'a WhatIf,
    pub(super) rule: VerifyRule,
    pub(super) sampling: Sampling,
    pub(super) draws: SeededDraws,
}

impl Case<'_> {
    pub(super) fn replaced(&self) -> Option<usize> {
        self.change.replace.as_ref().map(|(index, _)| *index)
    }

    pub(super) fn unread(&self, at: usize) -> String {
        let text = self.draft(at).map_or(String::new(), |piece| quoted(&piece));
        format!("the target has not read on from {text}: it must be asked")
    }

    /// The draft at a position: the recorded one, or its replacement. A replacement that no row lists has a text and no
    /// id.
    pub(super) fn draft(&self, index: usize) -> Option<Piece> {
        match &self.change.replace {
            Some((at, text)) if *at == index => Some(self.named(index, text)),
            _ => self.round.drafts.get(index).map(|draft| draft.token.clone()),
        }
    }

    fn named(&self, index: usize, text: &str) -> Piece {
        let candidates = self.round.rows().get(index).map_or(&[][..], |row| &row.top);
        let spaced = format!(" {text}");
        let same = |wanted: &str| candidates.iter().find(|c| *c.piece.bytes == *wanted.as_bytes());
        let found = same(text).or_else(|| same(&spaced));
        found.map_or_else(|| Piece::new(TokenId::UNKNOWN, text), |candidate| candidate.piece.clone())
    }

    pub(super) fn ruling(&self, index: usize, draft: &Piece) -> Result<Ruling, String> {
        if let Some(at) = self.replaced().filter(|at| *at < index) {
            return Err(self.unread(at));
        }
        let natural = self.natural(index, draft);
        if self.change.overrule != Some(index) {
            return natural;
        }
        Ok(match natural {
            Ok(Ruling::Accept) => {
                let others = self.round.rows().get(index).map_or(&[][..], |row| &row.top);
                Ruling::Reject(others.iter().map(|c| c.piece.id).find(|id| *id != draft.id))
            }
            // a draft whose verdict is not known is kept
            Ok(Ruling::Reject(_)) | Err(_) => Ruling::Accept,
        })
    }

    /// Whether the rule judges the drafts of the chain together, and has to judge again.
    pub(super) fn is_joint(&self) -> bool {
        let same = self.rule == self.round.rule && self.sampling == self.round.sampling;
        self.rule == VerifyRule::Block && !self.sampling.is_greedy() && !(same && self.change.draft_len.is_none())
    }

    /// The rule's verdict, none overruled.
    fn natural(&self, index: usize, draft: &Piece) -> Result<Ruling, String> {
        if let Some(ruling) = self.recorded(index, draft) {
            return Ok(ruling);
        }
        let row = self.round.rows().get(index).ok_or("the target has not scored this place")?;
        let found = self.by_number(index, draft, row);
        let whole = || {
            let knows = self.decides(row, Some(draft)) && self.knows_q(index, draft);
            knows.then(|| self.judge(index, &[self.drawn(index, draft)], row))
        };
        if let Some(verdict) = found.or_else(whole) {
            return Ok(match verdict.judgements.first().map(|judgement| judgement.outcome) {
                Some(Outcome::Accepted) => Ruling::Accept,
                _ => Ruling::Reject(Some(verdict.next)),
            });
        }
        let count = row.top.len();
        let cut = || format!("place {} was recorded with its best {count} candidates only", index + 1);
        self.by_ratio(index, draft).ok_or_else(|| self.undrawable().unwrap_or_else(cut))
    }

    /// Whether a row contains all that the rule uses, whether drafts are judged together or one by one.
    pub(super) fn has(&self, row: &Prediction, draft: Option<&Piece>) -> bool {
        let same_temperature = self.sampling.temperature == self.round.sampling.temperature;
        if self.sampling.is_greedy() {
            self.decides(row, draft)
        } else {
            same_temperature && row.tail <= WHOLE && !self.is_digest()
        }
    }

    /// Whether a row contains all that the rule uses when it judges one draft after the other.
    pub(super) fn decides(&self, row: &Prediction, draft: Option<&Piece>) -> bool {
        let same_temperature = self.sampling.temperature == self.round.sampling.temperature;
        let is_whole = same_temperature && row.tail <= WHOLE;
        let is_listed = draft.is_none_or(|draft| row.find(draft.id).is_some());
        match self.rule {
            _ if !self.sampling.is_greedy() => is_whole && self.rule != VerifyRule::Block && !self.is_digest(),
            VerifyRule::Exact | VerifyRule::Rejection | VerifyRule::Block => true,
            // the target's own token is the most probable one, whichever rule judges drafts
            _ if draft.is_none() => true,
            VerifyRule::TopK => row.top.len() >= self.round.leniency.top_k.into(),
            VerifyRule::Threshold | VerifyRule::Confidence => same_temperature && is_listed,
            VerifyRule::Typical => is_whole,
        }
    }

    /// Whether the recording contains all that the rule uses of the drafter's distribution: all of it, since a
    /// rejection draws from the residual.
    fn knows_q(&self, index: usize, draft: &Piece) -> bool {
        let looks = !self.sampling.is_greedy() && self.rule == VerifyRule::Rejection;
        let cell = self.round.drafts.get(index).filter(|cell| looks && cell.token.id == draft.id);
        cell.is_none_or(|cell| cell.q.is_none() || cell.top.tail <= WHOLE)
    }

    /// A draft with the distribution that it was drawn from, if it was.
    pub(super) fn drawn(&self, index: usize, draft: &Piece) -> Draft {
        let cell = self.round.drafts.get(index).filter(|cell| cell.token.id == draft.id && !cell.top.top.is_empty());
        let was_drawn = self.round.judgement(index).is_none_or(|judgement| cell.is_some_and(|c| c.q == judgement.q));
        match cell {
            Some(cell) => Draft { drawn: was_drawn, ..Draft::drawn(draft.id, distribution(&cell.top)) },
            None => Draft::certain(draft.id),
        }
    }

    /// The recorded verdict, if nothing that it depends on is different.
    fn recorded(&self, index: usize, draft: &Piece) -> Option<Ruling> {
        let round = self.round;
        let same = self.rule == round.rule && self.sampling == round.sampling;
        if !same || round.drafts.get(index)?.token.id != draft.id {
            return None;
        }
        match round.outcome(index)? {
            Outcome::Accepted => Some(Ruling::Accept),
            Outcome::Rejected => Some(Ruling::Reject(round.verdict.as_ref().map(|verdict| verdict.next))),
            Outcome::NotReached => None,
        }
    }

    /// To accept a draft, speculative sampling needs only the draft's own p and q.
    fn by_ratio(&self, index: usize, draft: &Piece) -> Option<Ruling> {
        let same = self.sampling == self.round.sampling && self.rule == VerifyRule::Rejection;
        let cell = self.round.drafts.get(index).filter(|cell| same && cell.token.id == draft.id)?;
        let judgement = self.round.judgement(index)?;
        let drafts = [match cell.q.filter(|q| Some(*q) == judgement.q) {
            Some(q) => Draft::drawn(draft.id, lone(draft.id, q)),
            None => Draft::certain(draft.id),
        }];
        let verdict = self.judge_by(index, &drafts, &lone(draft.id, judgement.p?));
        Some(match verdict.judgements.first()?.outcome {
            Outcome::Accepted => Ruling::Accept,
            _ => Ruling::Reject(None),
        })
    }

    /// The target's own token after `index` accepted drafts.
    pub(super) fn own(&self, index: usize) -> Option<TokenId> {
        let round = self.round;
        let same = self.sampling == round.sampling;
        let recorded = round.verdict.as_ref().filter(|_| same && round.next_index() == Some(index));
        let was_bonus = recorded.filter(|verdict| verdict.accepted() == round.drafts.len());
        if let Some(verdict) = was_bonus {
            return Some(verdict.next);
        }
        let row = round.rows().get(index)?;
        self.decides(row, None).then(|| self.judge(index, &[], row).next)
    }

    pub(super) fn judge(&self, index: usize, drafts: &[Draft], row: &Prediction) -> Verification {
        self.judge_by(index, drafts, &distribution(row))
    }

    fn judge_by(&self, index: usize, drafts: &[Draft], row: &Distribution) -> Verification {
        let start = self.round.base_len() as usize + 1;
        let ctx = RoundCtx {
            position: start + index,
            draft_len: drafts.len(),
            greedy: self.sampling.is_greedy(),
            fresh: self.round.shapes_drafts.then_some(OfRound { start, first: index }),
            leniency: self.round.leniency,
            draws: &self.draws,
        };
        verifier(self.rule).verify(&ctx, drafts, &[row.clone(), row.clone()])
    }

    pub(super) fn piece(&self, index: usize, token: TokenId) -> Piece {
        let listed = self.round.rows().get(index).and_then(|row| row.top.iter().find(|c| c.piece.id == token));
        let committed_piece = self.round.committed().iter().find(|piece| piece.id == token);
        let piece = listed.map(|candidate| &candidate.piece).or(committed_piece);
        piece.cloned().unwrap_or_else(|| Piece::new(token, Vec::new()))
    }
}

/// A recorded row as a distribution, its tail kept apart.
pub(super) fn distribution(row: &Prediction) -> Distribution {
    let mut entries: Vec<_> = row.top.iter().map(|c| (c.piece.id, c.prob)).collect();
    entries.sort_by_key(|entry| entry.0);
    entries.dedup_by_key(|entry| entry.0);
    Distribution::new(entries, row.best().map_or(TokenId(0), |best| best.piece.id), row.tail)
}

/// One known probability, the rest unknown.
pub(super) fn lone(token: TokenId, prob: f32) -> Distribution {
    Distribution::new(vec![(token, prob)], token, 1.0 - prob)
}
