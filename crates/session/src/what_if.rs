//! What a round would have yielded under other settings, from its recording.
//!
//! Invariant: nothing is guessed. Each position is judged by the engine's rules, on the recorded rows and the run's own
//! draws; if the recording lacks what the rule needs (a row cut to its best candidates, a text the target has not
//! read), [`Reply::open`] says what is missing, and the engine must be asked. Rows after a rejection were computed from
//! the drafts before them, so they serve when that rejection is overruled.

mod known;
mod together;

use draftscope_protocol::distribution::Distribution;
use draftscope_protocol::random::SeededDraws;
use draftscope_protocol::verify::{Draft, OfRound, RoundCtx, verifier};
use draftscope_protocol::{Outcome, Piece, Prediction, Sampling, TokenId, Verification, VerifyRule};

use super::{Round, text::quoted};
use together::together;

/// Probability that a row may lack and still count as whole.
const WHOLE: f32 = 1e-6;

/// What should have been different; `None` leaves it as it was.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WhatIf {
    /// k.
    pub draft_len: Option<usize>,
    /// The rule.
    pub rule: Option<VerifyRule>,
    /// The temperature.
    pub temperature: Option<f32>,
    /// A draft whose verdict is reversed.
    pub overrule: Option<usize>,
    /// Another draft token at a position, by its text.
    pub replace: Option<(usize, String)>,
}

impl WhatIf {
    /// Whether everything stays as it was.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// What would have happened.
#[derive(Clone, Debug, PartialEq)]
pub struct Reply {
    /// Drafts and their outcomes, as far as known.
    pub judged: Vec<(Piece, Outcome)>,
    /// Tokens that the round would have committed, as far as known.
    pub committed: Vec<Piece>,
    /// What the recording lacks; `None` if the reply is whole.
    pub open: Option<String>,
    /// Whether the text still follows the target's own distribution.
    pub is_lossless: bool,
}

/// The outcome of one draft.
enum Ruling {
    Accept,
    /// With the token in its place, as far as known.
    Reject(Option<TokenId>),
}

/// A round and what should have been different.
struct Case<'a> {
    round: &'a Round,
    change: &'a WhatIf,
    rule: VerifyRule,
    sampling: Sampling,
    draws: SeededDraws,
}

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

    fn replaced(&self) -> Option<usize> {
        self.change.replace.as_ref().map(|(index, _)| *index)
    }

    fn unread(&self, at: usize) -> String {
        let text = self.draft(at).map_or(String::new(), |piece| quoted(&piece));
        format!("the target has not read on from {text}: it must be asked")
    }

    /// The draft at a position: the recorded one, or its replacement. A replacement that no row lists has a text and no
    /// id.
    fn draft(&self, index: usize) -> Option<Piece> {
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

    fn ruling(&self, index: usize, draft: &Piece) -> Result<Ruling, String> {
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
    fn is_joint(&self) -> bool {
        let same = self.rule == self.round.rule && self.sampling == self.round.sampling;
        self.rule == VerifyRule::Block && !self.sampling.is_greedy() && !(same && self.change.draft_len.is_none())
    }

    /// The rule's verdict, none overruled.
    fn natural(&self, index: usize, draft: &Piece) -> Result<Ruling, String> {
        if let Some(ruling) = self.recorded(index, draft) {
            return Ok(ruling);
        }
        let row = self.round.rows().get(index).ok_or("the target has not scored this place")?;
        let told = self.by_number(index, draft, row);
        let whole = || {
            let knows = self.decides(row, Some(draft)) && self.knows_q(index, draft);
            knows.then(|| self.judge(index, &[self.drawn(index, draft)], row))
        };
        if let Some(verdict) = told.or_else(whole) {
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
    fn has(&self, row: &Prediction, draft: Option<&Piece>) -> bool {
        let same_temperature = self.sampling.temperature == self.round.sampling.temperature;
        if self.sampling.is_greedy() {
            self.decides(row, draft)
        } else {
            same_temperature && row.tail <= WHOLE && !self.is_digest()
        }
    }

    /// Whether a row contains all that the rule uses when it judges one draft after the other.
    fn decides(&self, row: &Prediction, draft: Option<&Piece>) -> bool {
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
    fn drawn(&self, index: usize, draft: &Piece) -> Draft {
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
    fn own(&self, index: usize) -> Option<TokenId> {
        let round = self.round;
        let same = self.sampling == round.sampling;
        let told = round.verdict.as_ref().filter(|_| same && round.next_index() == Some(index));
        let was_bonus = told.filter(|verdict| verdict.accepted() == round.drafts.len());
        if let Some(verdict) = was_bonus {
            return Some(verdict.next);
        }
        let row = round.rows().get(index)?;
        self.decides(row, None).then(|| self.judge(index, &[], row).next)
    }

    fn judge(&self, index: usize, drafts: &[Draft], row: &Prediction) -> Verification {
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

    fn piece(&self, index: usize, token: TokenId) -> Piece {
        let listed = self.round.rows().get(index).and_then(|row| row.top.iter().find(|c| c.piece.id == token));
        let committed_piece = self.round.committed().iter().find(|piece| piece.id == token);
        let piece = listed.map(|candidate| &candidate.piece).or(committed_piece);
        piece.cloned().unwrap_or_else(|| Piece::new(token, Vec::new()))
    }
}

/// A recorded row as a distribution, its tail kept apart.
fn distribution(row: &Prediction) -> Distribution {
    let mut entries: Vec<_> = row.top.iter().map(|c| (c.piece.id, c.prob)).collect();
    entries.sort_by_key(|entry| entry.0);
    entries.dedup_by_key(|entry| entry.0);
    Distribution::new(entries, row.best().map_or(TokenId(0), |best| best.piece.id), row.tail)
}

/// One known probability, the rest unknown.
fn lone(token: TokenId, prob: f32) -> Distribution {
    Distribution::new(vec![(token, prob)], token, 1.0 - prob)
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{first_turn, piece};
    use super::*;
    use crate::fixture::fold;
    use draftscope_protocol::Lane;

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
