//! What a round would have yielded under other settings, from its recording.
//!
//! Invariant: nothing is guessed. Each position is judged by the engine's rules, on the recorded rows and the run's own
//! draws; if the recording lacks what the rule needs (a row cut to its best candidates, a text the target has not
//! read), [`Reply::open`] says what is missing, and the engine must be asked. Rows after a rejection were computed from
//! the drafts before them, so they serve when that rejection is overruled.

mod case;
mod known;
mod question;
mod together;

use draftscope_protocol::random::SeededDraws;
use draftscope_protocol::{Outcome, Piece, TokenId};

use super::round::Round;
use case::{Case, Ruling};
pub use question::{Reply, WhatIf};
use together::together;

/// Judges a scored round again. None while the target has not run.
#[must_use]
pub fn what_if(round: &Round, change: &WhatIf) -> Option<Reply> {
    if round.rows().is_empty() {
        return None;
    }
    let mut sampling = round.sampling;
    sampling.temperature = change.temperature.unwrap_or(sampling.temperature);
    let draws = SeededDraws::new(sampling.seed);
    let case = Case { round, change, rule: change.rule.unwrap_or(round.rule), sampling, draws };
    Some(case.reply())
}

impl Case<'_> {
    fn reply(&self) -> Reply {
        let wanted = self.change.draft_len.unwrap_or(self.round.drafts.len());
        if self.round.is_tree() || self.is_joint() {
            return together(self);
        }
        let mut reply = Reply {
            judged: Vec::new(),
            committed: Vec::new(),
            open: None,
            is_lossless: self.rule.is_lossless() && self.change.overrule.is_none_or(|index| index >= wanted),
        };
        self.walk(wanted, &mut reply);
        reply.is_lossless |= self.is_own(&reply.committed, 0..);
        reply
    }

    /// Judges one draft after the other.
    fn walk(&self, wanted: usize, reply: &mut Reply) {
        for index in 0..wanted {
            let Some(draft) = self.draft(index) else {
                reply.open = Some(format!("draft {} was never made: the drafter must be asked", index + 1));
                return;
            };
            match self.ruling(index, &draft) {
                Err(missing) => {
                    reply.open = Some(missing);
                    return;
                }
                Ok(Ruling::Accept) => {
                    reply.judged.push((draft.clone(), Outcome::Accepted));
                    reply.committed.push(draft);
                }
                Ok(Ruling::Reject(next)) => return self.reject(index, draft, next, reply),
            }
        }
        self.bonus(wanted, reply);
    }

    /// Ends the round at a rejected draft.
    fn reject(&self, index: usize, draft: Piece, next: Option<TokenId>, reply: &mut Reply) {
        let wanted = self.change.draft_len.unwrap_or(self.round.drafts.len());
        reply.judged.push((draft, Outcome::Rejected));
        let behind = (index + 1..wanted).filter_map(|i| self.draft(i));
        reply.judged.extend(behind.map(|piece| (piece, Outcome::NotReached)));
        match next {
            Some(token) => reply.committed.push(self.piece(index, token)),
            None => {
                let at = index + 1;
                reply.open = Some(format!("the token in place of draft {at} is drawn from more than was recorded"));
            }
        }
    }

    fn bonus(&self, index: usize, reply: &mut Reply) {
        if let Some(at) = self.replaced().filter(|at| *at < index) {
            reply.open = Some(self.unread(at));
            return;
        }
        match self.own(index) {
            Some(token) => reply.committed.push(self.piece(index, token)),
            None => {
                let says = || "the bonus token is drawn from more than was recorded".to_owned();
                reply.open = Some(self.undrawable().unwrap_or_else(says));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{first_turn, piece};
    use super::*;
    use crate::fixture::fold;
    use draftscope_protocol::{Lane, VerifyRule};

    /// Round 1: drafts " color" " of" " the", rejected at once for " sky".
    /// Round 2: all three accepted, bonus " of".
    fn rounds() -> Vec<Round> {
        let session = fold(&first_turn().events);
        session.turns()[0].answer(Lane::Speculative).rounds.iter().map(|round| (**round).clone()).collect()
    }

    fn texts(reply: &Reply) -> Vec<String> {
        reply.committed.iter().map(|piece| piece.lossy().into_owned()).collect()
    }

    #[test]
    fn nothing_different_gives_what_happened() {
        for round in rounds() {
            let reply = what_if(&round, &WhatIf::default()).unwrap();
            assert_eq!(reply.committed, round.committed());
            assert_eq!((reply.open, reply.is_lossless), (None, true));
        }
    }

    #[test]
    fn a_smaller_k_ends_in_a_bonus_from_a_recorded_row() {
        let round = &rounds()[1];
        let change = |k| WhatIf { draft_len: Some(k), ..WhatIf::default() };
        assert_eq!(texts(&what_if(round, &change(1)).unwrap()), [" is", " blue"]);
        assert_eq!(texts(&what_if(round, &change(0)).unwrap()), [" is"]);
        let more = what_if(round, &change(5)).unwrap();
        assert_eq!(texts(&more), [" is", " blue", " because"]);
        assert_eq!(more.open.unwrap(), "draft 4 was never made: the drafter must be asked");
        let rejected = what_if(&rounds()[0], &change(5)).unwrap();
        assert_eq!(
            (texts(&rejected), rejected.open),
            (vec![" sky".to_owned()], None),
            "a longer draft changes nothing"
        );
    }

    #[test]
    fn an_overruled_rejection_goes_on_with_the_rows_behind_it() {
        let change = WhatIf { overrule: Some(0), ..WhatIf::default() };
        let reply = what_if(&rounds()[0], &change).unwrap();
        assert_eq!(texts(&reply), [" color", " is"]);
        assert!(!reply.is_lossless);
        let outcomes: Vec<_> = reply.judged.iter().map(|(_, outcome)| *outcome).collect();
        assert_eq!(outcomes, [Outcome::Accepted, Outcome::Rejected, Outcome::NotReached]);
        let kept = WhatIf { overrule: Some(1), ..WhatIf::default() };
        let reply = what_if(&rounds()[1], &kept).unwrap();
        assert_eq!(texts(&reply), [" is", " not"], "the target's second choice");
    }

    #[test]
    fn another_draft_is_judged_where_the_record_reaches() {
        let replace = |index, text: &str| WhatIf { replace: Some((index, text.to_owned())), ..WhatIf::default() };
        let right = what_if(&rounds()[0], &replace(0, "sky")).unwrap();
        assert_eq!(texts(&right), [" sky"]);
        assert_eq!(right.open.unwrap(), "the target has not read on from '·sky': it must be asked");
        let wrong = what_if(&rounds()[1], &replace(1, "green")).unwrap();
        assert_eq!((texts(&wrong), wrong.open), (vec![" is".to_owned(), " blue".to_owned()], None));
    }

    #[test]
    fn a_row_cut_to_its_best_does_not_decide_a_draw() {
        let change = WhatIf { temperature: Some(0.7), ..WhatIf::default() };
        let reply = what_if(&rounds()[1], &change).unwrap();
        assert_eq!(reply.open.unwrap(), "place 1 was recorded with its best 2 candidates only");
        let mut whole = rounds()[1].clone();
        whole.sampling.temperature = 1.0;
        whole.verdict = None;
        for row in whole.rows_mut() {
            row.top.truncate(1);
            row.top[0].prob = 1.0;
            row.tail = 0.0;
        }
        let reply = what_if(&whole, &WhatIf::default()).unwrap();
        assert_eq!(texts(&reply), [" is", " blue", " because", " of"], "one candidate is drawn with certainty");
        let cold = what_if(&whole, &WhatIf { temperature: Some(0.0), ..WhatIf::default() }).unwrap();
        assert_eq!((texts(&cold).len(), cold.open), (4, None));
    }

    #[test]
    fn a_ratio_is_judged_by_its_own_numbers() {
        let mut round = rounds()[0].clone();
        round.sampling.temperature = 1.0;
        round.rule = VerifyRule::Rejection;
        let q = round.drafts[1].q.unwrap();
        let certain = draftscope_protocol::Judgement {
            p: Some(q + 0.01),
            q: Some(q),
            u: None,
            limit: None,
            outcome: Outcome::NotReached,
        };
        if let Some(verdict) = &mut round.verdict {
            verdict.judgements[1] = certain;
            verdict.judgements[2] = draftscope_protocol::Judgement { p: Some(0.0), q: round.drafts[2].q, ..certain };
        }
        let reply = what_if(&round, &WhatIf { overrule: Some(0), ..WhatIf::default() }).unwrap();
        assert_eq!(reply.committed, [piece(" color"), piece(" of")]);
        assert!(reply.open.unwrap().contains("in place of draft 3"));
    }

    #[test]
    fn an_unscored_round_has_no_answer() {
        let round = Round { scored: None, ..rounds()[0].clone() };
        assert_eq!(what_if(&round, &WhatIf::default()), None);
    }
}
