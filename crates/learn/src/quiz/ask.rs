//! Which rounds of a session can be asked: those that what is shown decides.

use draftscope_protocol::{DrafterKind, Lane, NextKind, Outcome, VerifyRule};
use draftscope_session::round_at::{RoundAt, round_at};
use draftscope_session::text::printable;
use draftscope_session::{Round, Session};

use super::item::{Category, Item};
use super::judge::judge;
use super::shown::Shown;

/// Most drafts of a chain, and most nodes of a tree, that the screen has room for at 80×24.
const MOST_DRAFTS: usize = 4;
const MOST_NODES: usize = 6;

/// Bytes of the text before a round that an item shows, at most.
const CONTEXT: usize = 140;

/// A draft accepted as the target's best token with less than this is accepted "at low p".
const LOW_P: f32 = 0.35;

/// A draft rejected as the target's second token with at least this is rejected "at high p".
const HIGH_P: f32 = 0.25;

impl Item {
    /// A round of a session, if what an item shows of it decides every verdict.
    #[must_use]
    pub fn of_round(session: &Session, at: RoundAt) -> Option<Self> {
        let round = round_at(session, at)?;
        let most = if round.is_tree() { MOST_NODES } else { MOST_DRAFTS };
        let is_whole = round.is_complete() && !round.is_partial && round.unveiled.is_none();
        // a draft that was picked, not drawn, is certain to rejection sampling, whatever its q
        let is_drawn = |index: usize| round.judgement(index).is_some_and(|judged| judged.q == round.drafts[index].q);
        let is_known = |index: usize| {
            !round.drafts[index].token.id.is_unknown() && (round.sampling.is_greedy() || is_drawn(index))
        };
        let is_cut = (0..round.columns()).any(|column| round.is_cut(column));
        if !is_whole || !(0..round.drafts.len()).all(is_known) || is_cut || !(1..=most).contains(&round.drafts.len()) {
            return None;
        }
        // random tokens are rejected whatever one believes: nothing is learned from judging them
        let turn = session.turns().get(at.turn).filter(|turn| turn.begun.drafter != DrafterKind::Random)?;
        let tokens = &turn.answer(Lane::Speculative).tokens;
        let before = &tokens[..round.first_token.min(tokens.len())];
        let bytes: Vec<u8> = before.iter().flat_map(|token| token.piece.text_bytes()).copied().collect();
        let item = Self {
            id: format!("session turn {} round {}", turn.number, round.number()),
            category: category(round),
            prompt: printable(&turn.typed).into_owned(),
            context: end_of(&String::from_utf8_lossy(&bytes)),
            round: round.clone(),
        };
        (item.is_decided() && Shown::of(&item).fits()).then_some(item)
    }

    /// Whether a judge who sees only what is shown finds the recorded verdict.
    #[must_use]
    pub fn is_decided(&self) -> bool {
        let shown = Shown::of(self);
        judge(&shown).is_some_and(|answer| answer == shown.right)
    }
}

/// The end of a text, from the start of a word on.
fn end_of(text: &str) -> String {
    let mut from = text.len().saturating_sub(CONTEXT);
    while !text.is_char_boundary(from) {
        from += 1;
    }
    let tail = &text[from..];
    let word = if from > 0 { tail.find(' ').map_or(0, |space| space + 1) } else { 0 };
    let mark = if from > 0 { "…" } else { "" };
    format!("{mark}{}", &tail[word..])
}

/// What a judged round asks about, if it is one of the bank's categories.
pub(super) fn category(round: &Round) -> Option<Category> {
    let verdict = round.verdict.as_ref()?;
    if round.is_tree() {
        return Some(Category::Tree);
    }
    if !round.rule.is_lossless() {
        return Some(Category::Lossy);
    }
    let judged = |outcome| (0..round.drafts.len()).filter(move |index| round.outcome(*index) == Some(outcome));
    if !round.sampling.is_greedy() {
        let is_below = |index: &usize| round.judgement(*index).is_some_and(|j| j.p < j.q);
        return match round.rule {
            VerifyRule::Rejection if judged(Outcome::Rejected).next().is_some() => Some(Category::AboveRatio),
            VerifyRule::Rejection if judged(Outcome::Accepted).any(|index| is_below(&index)) => {
                Some(Category::BelowRatio)
            }
            _ => None,
        };
    }
    let p = |index: usize| round.judgement(index).and_then(|judgement| judgement.p).unwrap_or(0.0);
    let is_second = |index: usize| {
        round.prediction(index).and_then(|row| row.find(round.drafts[index].token.id)).is_some_and(|found| found.0 == 1)
    };
    if judged(Outcome::Rejected).any(|index| is_second(index) && p(index) >= HIGH_P) {
        return Some(Category::HighP);
    }
    if judged(Outcome::Accepted).any(|index| p(index) < LOW_P) {
        return Some(Category::LowP);
    }
    if verdict.next_kind == NextKind::Bonus {
        return Some(Category::Bonus);
    }
    (verdict.accepted() == 0).then_some(Category::First)
}
