//! What follows from a recording beyond its rows: verdicts that depend on one number, tokens that the target picks
//! under any rule, and ids that no draw may use.
//!
//! Invariant: as in the whole module, nothing is guessed.

use super::case::{Case, lone};
use draftscope_protocol::verify::Draft;
use draftscope_protocol::{Candidate, FIRST_DIGESTED, Piece, Prediction, Verification, VerifyRule};

impl Case<'_> {
    /// Whether these tokens, each after a row, are the target's own under any rule: its most probable ones or, when
    /// sampling, those that it would have drawn.
    pub(super) fn is_own(&self, committed: &[Piece], rows: impl IntoIterator<Item = usize>) -> bool {
        let own = |place: usize, row: usize| {
            let row = self.round.rows().get(row)?;
            let draws_anew = matches!(self.rule, VerifyRule::Rejection | VerifyRule::Block);
            match self.sampling.is_greedy() {
                true => row.best().map(|best| best.piece.id),
                false if draws_anew => None,
                false => self.decides(row, None).then(|| self.judge(place, &[], row).next),
            }
        };
        let mut places = committed.iter().zip(rows).enumerate();
        places.all(|(place, (piece, row))| own(place, row) == Some(piece.id))
    }

    /// Whether token ids were renumbered, so that their order is not the vocabulary's: a draw depends on it.
    pub(super) fn is_digest(&self) -> bool {
        let mut listed = self.round.rows().iter().flat_map(|row| &row.top);
        listed.any(|c| c.piece.bytes.is_empty() && c.piece.id >= FIRST_DIGESTED)
    }

    /// Why nothing can be drawn again, if so.
    pub(super) fn undrawable(&self) -> Option<String> {
        let says = "the recording holds digests in place of text, so nothing can be drawn from it";
        (!self.sampling.is_greedy() && self.is_digest()).then(|| says.to_owned())
    }

    /// The verdict of a rule that needs one number of the draft, which its judgement contains: the target's p, or the
    /// drafter's q. The row need not list the draft.
    pub(super) fn by_number(&self, index: usize, draft: &Piece, row: &Prediction) -> Option<Verification> {
        let same = self.sampling.is_greedy() && self.sampling.temperature == self.round.sampling.temperature;
        let cell = self.round.drafts.get(index).filter(|cell| same && cell.token.id == draft.id)?;
        let p = self.round.judgement(index).and_then(|judgement| judgement.p);
        let p = match self.rule {
            VerifyRule::Threshold => p?,
            VerifyRule::Confidence => p.unwrap_or(0.0),
            _ => return None,
        };
        let mut row = row.clone();
        if row.find(draft.id).is_none() {
            row.top.push(Candidate { piece: draft.clone(), prob: p });
        }
        let draft = cell.q.map_or_else(|| Draft::certain(draft.id), |q| Draft::drawn(draft.id, lone(draft.id, q)));
        Some(self.judge(index, &[draft], &row))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::first_turn;
    use crate::fixture::fold;
    use crate::{Round, WhatIf, what_if};
    use draftscope_protocol::{Lane, Outcome, TokenId};

    /// Round 1 is rejected at its first draft, round 2 accepted as a whole.
    fn rounds() -> Vec<Round> {
        let session = fold(&first_turn().events);
        session.turns()[0].answer(Lane::Speculative).rounds.iter().map(|round| (**round).clone()).collect()
    }

    #[test]
    fn what_the_target_would_have_written_is_its_own_under_any_rule() {
        for rule in [VerifyRule::Confidence, VerifyRule::Threshold] {
            let reply = what_if(&rounds()[1], &WhatIf { rule: Some(rule), ..WhatIf::default() }).unwrap();
            assert_eq!((reply.committed, reply.is_lossless), (rounds()[1].committed().to_vec(), true), "{rule}");
        }
    }

    #[test]
    fn a_number_that_a_rule_asks_for_is_known_from_the_verdict() {
        let mut round = rounds()[0].clone();
        let line = round.leniency;
        for (p, q, rule, accepted) in [
            (line.threshold, 0.0, VerifyRule::Threshold, true),
            (line.threshold - 0.01, 1.0, VerifyRule::Threshold, false),
            (0.0, line.confidence, VerifyRule::Confidence, true),
            (1.0, line.confidence - 0.01, VerifyRule::Confidence, false),
        ] {
            let draft = round.drafts[0].token.id;
            round.rows_mut()[0].top.retain(|c| c.piece.id != draft);
            round.drafts[0].q = Some(q);
            round.verdict.as_mut().unwrap().judgements[0].p = Some(p);
            let reply = what_if(&round, &WhatIf { rule: Some(rule), ..WhatIf::default() }).unwrap();
            let outcome = if accepted { Outcome::Accepted } else { Outcome::Rejected };
            assert_eq!(reply.judged.first().map(|judged| judged.1), Some(outcome), "{rule} {p} {q}: {reply:?}");
            assert_eq!(reply.is_lossless, !accepted, "{rule}");
        }
    }

    #[test]
    fn nothing_is_drawn_from_digests() {
        let mut round = rounds()[1].clone();
        round.sampling.temperature = 1.0;
        round.verdict = None;
        for (number, row) in round.rows_mut().iter_mut().enumerate() {
            row.top.truncate(1);
            row.top[0] = Candidate { piece: Piece::new(TokenId(FIRST_DIGESTED.0 + number as u32), ""), prob: 1.0 };
            row.tail = 0.0;
        }
        let says = "the recording holds digests in place of text, so nothing can be drawn from it";
        for rule in [VerifyRule::Exact, VerifyRule::Block] {
            let reply = what_if(&round, &WhatIf { rule: Some(rule), ..WhatIf::default() }).unwrap();
            assert_eq!(reply.open.as_deref(), Some(says), "{rule}");
        }
        let cold = what_if(&round, &WhatIf { temperature: Some(0.0), ..WhatIf::default() }).unwrap();
        assert_eq!((cold.committed.len(), cold.open), (1, None), "the best is the best under any number");
    }
}
