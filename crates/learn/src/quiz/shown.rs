//! What the screen shows of an item: the only data from which an answer may be judged.
//!
//! Invariant: numbers have the two digits that are on screen, so that a judge decides from what a
//! reader sees. The view and the sheet print these values and no others.

use std::fmt;

use serde::Serialize;
use unicode_width::UnicodeWidthStr;

use draftscope_protocol::{Candidate, NextKind, Outcome, Prediction, TokenId, VerifyRule};
use draftscope_session::text::inline;
use draftscope_session::{Round, draw_for};

use super::belief::Belief;
use super::item::Item;

/// Candidates that a row shows.
const BEST: usize = 3;

/// Choices of what is committed.
const CHOICES: usize = 4;

/// Columns that the panel has at 80×24 for a draft's token, and for the candidates of a row in a chain and in a tree.
const TOKEN_ROOM: usize = 11;
const ROW_ROOM: usize = 56;
const TREE_ROOM: usize = 37;

/// Mass that a row may lack and still count as whole.
const WHOLE: f32 = 1e-5;

/// A number from 0 to 1 with two digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Hundredths(pub u16);

impl Hundredths {
    fn of(value: f32) -> Self {
        Self((f64::from(value.clamp(0.0, 1.0)) * 100.0).round() as u16)
    }

    /// The least and the greatest value that are shown so.
    pub(super) fn range(self) -> (f64, f64) {
        let middle = f64::from(self.0) / 100.0;
        ((middle - 0.005).max(0.0), middle + 0.005)
    }
}

impl fmt::Display for Hundredths {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:02}", self.0 / 100, self.0 % 100)
    }
}

impl Serialize for Hundredths {
    fn serialize<S: serde::Serializer>(&self, json: S) -> Result<S::Ok, S::Error> {
        json.serialize_f64(f64::from(self.0) / 100.0)
    }
}

/// A draft.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ShownDraft {
    /// The token, with outer spaces as `·`.
    pub token: String,
    /// The drafter's probability of it; none where the drafter has none.
    pub q: Option<Hundredths>,
    /// The target's probability of it.
    pub p: Hundredths,
    /// The draw that is compared, where one is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub u: Option<Hundredths>,
    /// The row that judges it: 0 follows the text, i + 1 follows draft i.
    pub row: usize,
}

/// A candidate of the target.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ShownCandidate {
    /// The token, with outer spaces as `·`.
    pub token: String,
    /// The target's probability of it.
    pub p: Hundredths,
    /// The drafter's probability of it, where the rule uses it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub q: Option<Hundredths>,
    /// The draws that pick it, from the first value to below the second, where a token is drawn from the row.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub draws: Option<(Hundredths, Hundredths)>,
}

/// A token that the target might add, with how it is named.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Choice {
    /// "recovered", "bonus" or "nothing".
    pub kind: &'static str,
    /// Empty with "nothing".
    pub token: String,
    /// What somebody may believe who chooses it.
    #[serde(skip)]
    pub belief: Option<Belief>,
}

/// Verdicts on all drafts, and the choice of what is committed after them.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Answer {
    /// One for each draft, in the order of the round.
    pub verdicts: Vec<Outcome>,
    /// Index of the choice.
    pub committed: usize,
}

/// What is on screen, and the recorded verdict.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Shown {
    /// What was typed.
    pub prompt: String,
    /// The end of the answer when the round begins.
    pub context: String,
    /// The rule that judged.
    pub rule: VerifyRule,
    /// The rule with its limit, and how tokens are picked.
    pub settings: String,
    /// Whether the most probable token is picked, and none drawn.
    pub is_greedy: bool,
    /// Whether drafts branch.
    pub is_tree: bool,
    /// The limit of a rule that has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<Hundredths>,
    /// The tokens among which `top-k` accepts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accepts_best: Option<u8>,
    /// The drafts, in the order of the round.
    pub drafts: Vec<ShownDraft>,
    /// The target's three most probable tokens in each row.
    pub rows: Vec<Vec<ShownCandidate>>,
    /// The draw of the token after the drafts, where one is made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_u: Option<Hundredths>,
    /// What may be added after the accepted drafts; the recorded token is among them.
    pub choices: Vec<Choice>,
    /// The recorded verdict.
    #[serde(skip)]
    pub right: Answer,
}

impl Shown {
    /// What is shown of an item.
    #[must_use]
    pub fn of(item: &Item) -> Self {
        let round = &item.round;
        let (choices, committed) = choices(item);
        let verdicts = (0..round.drafts.len()).map(|index| round.outcome(index).unwrap_or(Outcome::NotReached));
        Self {
            prompt: item.prompt.clone(),
            context: item.context.clone(),
            rule: round.rule,
            settings: settings(round),
            is_greedy: round.sampling.is_greedy(),
            is_tree: round.is_tree(),
            limit: match round.rule {
                VerifyRule::Threshold => Some(Hundredths::of(round.leniency.threshold)),
                VerifyRule::Confidence => Some(Hundredths::of(round.leniency.confidence)),
                _ => None,
            },
            accepts_best: (round.rule == VerifyRule::TopK).then_some(round.leniency.top_k),
            drafts: (0..round.drafts.len()).map(|index| draft(round, index)).collect(),
            rows: (0..round.rows().len()).map(|row| candidates(round, row)).collect(),
            next_u: round.verdict.as_ref().and_then(|verdict| verdict.next_u).map(Hundredths::of),
            right: Answer { verdicts: verdicts.collect(), committed },
            choices,
        }
    }

    /// Whether nothing of it is cut on the smallest screen.
    pub(super) fn fits(&self) -> bool {
        let room = if self.is_tree { TREE_ROOM } else { ROW_ROOM };
        (0..self.rows.len()).all(|row| row_text(self, row, "  ").width() <= room)
            && self.drafts.iter().all(|draft| draft.token.width() <= TOKEN_ROOM)
    }

    /// The drafts that continue a row, in the order in which they are tried.
    pub(super) fn children(&self, row: usize) -> impl Iterator<Item = usize> {
        (0..self.drafts.len()).filter(move |index| self.drafts[*index].row == row)
    }

    /// The drafts in the order of the screen: each followed by those that continue it.
    #[must_use]
    pub fn order(&self) -> Vec<usize> {
        let mut order = Vec::new();
        let mut open: Vec<usize> = self.children(0).collect();
        open.reverse();
        while let Some(index) = open.pop().filter(|_| order.len() < self.drafts.len()) {
            order.push(index);
            let mut below: Vec<usize> = self.children(index + 1).collect();
            below.reverse();
            open.extend(below);
        }
        order
    }

    /// Index of a choice.
    pub(super) fn choice(&self, kind: &str, token: &str) -> Option<usize> {
        self.choices.iter().position(|choice| choice.kind == kind && choice.token == token)
    }

    /// Whether tokens are drawn from p by `rejection`.
    #[must_use]
    pub fn compares_ratio(&self) -> bool {
        self.rule == VerifyRule::Rejection && !self.is_greedy
    }
}

fn draft(round: &Round, index: usize) -> ShownDraft {
    let cell = &round.drafts[index];
    let judgement = round.judgement(index);
    let listed = round.prediction(index).and_then(|row| row.find(cell.token.id)).map(|found| found.1);
    ShownDraft {
        token: inline(&cell.token),
        q: cell.q.map(Hundredths::of),
        p: Hundredths::of(judgement.and_then(|judgement| judgement.p).or(listed).unwrap_or(0.0)),
        // also where none was made: which draws are shown must not say where the round ended
        u: draw_for(round, index).map(Hundredths::of),
        row: round.row_of(index),
    }
}

/// The best of a row; where a token is drawn from it, in the order of the draws.
fn candidates(round: &Round, row: usize) -> Vec<ShownCandidate> {
    let Some(prediction) = round.rows().get(row) else {
        return Vec::new();
    };
    let samples = !round.sampling.is_greedy();
    // a rejection draws from max(0, p − q), every other draw is from p
    let judges = (0..round.drafts.len()).any(|index| round.row_of(index) == row);
    let draws_from_p = samples && (!judges || round.rule != VerifyRule::Rejection);
    let drafter = (0..round.drafts.len())
        .find(|index| round.row_of(*index) == row && samples && round.rule == VerifyRule::Rejection)
        .map(|index| &round.drafts[index].top);
    let mut best: Vec<&Candidate> = prediction.top.iter().take(BEST).collect();
    if draws_from_p {
        best.sort_by_key(|candidate| candidate.piece.id);
    }
    let show = |candidate: &&Candidate| ShownCandidate {
        token: inline(&candidate.piece),
        p: Hundredths::of(candidate.prob),
        q: drafter.map(|top| Hundredths::of(top.find(candidate.piece.id).map_or(0.0, |found| found.1))),
        draws: if draws_from_p { draws(prediction, candidate.piece.id) } else { None },
    };
    best.iter().map(show).collect()
}

/// The draws that pick a token: tokens share the numbers from 0 to 1 in the order of their ids. None unless the row
/// has been recorded whole and is shown whole.
fn draws(row: &Prediction, token: TokenId) -> Option<(Hundredths, Hundredths)> {
    if row.tail > WHOLE || row.top.len() > BEST {
        return None;
    }
    let before: f32 = row.top.iter().filter(|c| c.piece.id < token).map(|c| c.prob).sum();
    let own = row.find(token)?.1;
    Some((Hundredths::of(before), Hundredths::of(before + own)))
}

/// "exact · temperature 0".
fn settings(round: &Round) -> String {
    let leniency = &round.leniency;
    let rule = match round.rule {
        VerifyRule::TopK => format!("top-k {}", leniency.top_k),
        VerifyRule::Threshold => format!("threshold {}", leniency.threshold),
        VerifyRule::Confidence => format!("confidence {}", leniency.confidence),
        rule => rule.name().to_owned(),
    };
    let mut text = format!("rule {rule} ({})", round.rule.label());
    let sampling = &round.sampling;
    text.push_str(&format!(" · temperature {}", sampling.temperature));
    if sampling.top_k > 0 {
        text.push_str(&format!(" · top-k {}", sampling.top_k));
    }
    if round.is_tree() {
        text.push_str(" · draft tree");
    }
    text
}

/// Up to four tokens that might be committed after the accepted drafts, and the index of the one that was.
fn choices(item: &Item) -> (Vec<Choice>, usize) {
    let round = &item.round;
    let next = inline(&round.next_piece().unwrap_or_default());
    let is_bonus = round.next_kind() == Some(NextKind::Bonus);
    let (own, other) = if is_bonus { ("bonus", "recovered") } else { ("recovered", "bonus") };
    let right = Choice { kind: own, token: next, belief: None };
    let mut all = vec![right.clone()];
    let mut wrong = wrong_tokens(round, is_bonus);
    wrong.push(("nothing", String::new(), Belief::NothingAdded));
    wrong.push((other, right.token.clone(), Belief::WrongName));
    // other ones for each item
    wrong.sort_by_key(|(kind, token, _)| scatter(&format!("{} {kind} {token}", item.id)));
    for (kind, token, belief) in wrong {
        let is_new = all.iter().all(|choice| choice.kind != kind || choice.token != token);
        if is_new && all.len() < CHOICES {
            all.push(Choice { kind, token, belief: Some(belief) });
        }
    }
    // which were taken must not say where the right one stands
    all.sort_by_key(|choice| scatter(&format!("{} {} of {}", choice.token, choice.kind, item.id)));
    let at = all.iter().position(|choice| *choice == right).unwrap_or(0);
    (all, at)
}

/// What somebody with a wrong idea takes for committed.
fn wrong_tokens(round: &Round, is_bonus: bool) -> Vec<(&'static str, String, Belief)> {
    let column = round.next_index().unwrap_or(0);
    let row = round.row_of(column);
    let best = |row: usize, rank: usize| round.rows().get(row)?.top.get(rank).map(|c| inline(&c.piece));
    let mut wrong = Vec::new();
    if is_bonus {
        wrong.extend(best(row, 1).map(|token| ("bonus", token, Belief::SecondBest)));
        let previous = best(row.saturating_sub(1), 1);
        wrong.extend(previous.map(|token| ("recovered", token, Belief::WrongPlace)));
        return wrong;
    }
    let rejected = (0..round.drafts.len()).rev().find(|index| round.outcome(*index) == Some(Outcome::Rejected));
    // a token of the residual may be right, so of none of these may p seem to be above q
    let may_be_left = |token: &str| {
        let mut listed = round.rows().get(row).into_iter().flat_map(|row| &row.top);
        let (Some(found), Some(draft)) = (listed.find(|c| inline(&c.piece) == token), round.drafts.get(column)) else {
            return false;
        };
        let q = draft.top.find(found.piece.id).map_or(0.0, |found| found.1);
        Hundredths::of(q) <= Hundredths::of(found.prob)
    };
    let ratio = round.rule == VerifyRule::Rejection && !round.sampling.is_greedy();
    let mut push = |kind, token: Option<String>, belief| {
        let token = token.filter(|token| !(ratio && kind == "recovered" && may_be_left(token)));
        wrong.extend(token.map(|token| (kind, token, belief)));
    };
    let last = round.rows().len().saturating_sub(1);
    push("recovered", rejected.map(|index| inline(&round.drafts[index].token)), Belief::KeptDraft);
    push("bonus", best(last, 0), Belief::BonusAfterRejection);
    push("recovered", best(row, 0), Belief::BestNotDraw);
    push("recovered", best(row + 1, 0), Belief::WrongPlace);
    push("recovered", best(row, 1), Belief::SecondBest);
    wrong
}

/// A number that scatters texts: FNV-1a, then the last step of MurmurHash3, which spreads the last characters.
fn scatter(text: &str) -> u64 {
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
    let mut hash = text.bytes().fold(0xcbf2_9ce4_8422_2325, step);
    for factor in [0xff51_afd7_ed55_8ccd_u64, 0xc4ce_b9fe_1a85_ec53] {
        hash = (hash ^ (hash >> 33)).wrapping_mul(factor);
    }
    hash ^ (hash >> 33)
}

/// A choice in words.
impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            "nothing" => f.write_str("nothing: the round ends with the accepted drafts"),
            kind => write!(f, "{kind} {}", self.token),
        }
    }
}

/// A mark in words.
#[must_use]
pub const fn word(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Accepted => "accepted",
        Outcome::Rejected => "rejected",
        Outcome::NotReached => "not reached",
    }
}

/// What the target says in a row, in one line: p, or p/q where the rule compares them, or the draws that pick each token.
#[must_use]
pub fn row_text(shown: &Shown, row: usize, between: &str) -> String {
    let candidates = shown.rows.get(row).into_iter().flatten().map(|candidate| match (candidate.draws, candidate.q) {
        (Some((from, to)), _) => format!("{} {from}–{to}", candidate.token),
        (None, Some(q)) => format!("{} {}/{q}", candidate.token, candidate.p),
        (None, None) => format!("{} {}", candidate.token, candidate.p),
    });
    candidates.collect::<Vec<_>>().join(between)
}

/// What the numbers of a row are.
#[must_use]
pub fn row_kind(shown: &Shown, row: usize) -> &'static str {
    match shown.rows.get(row).and_then(|row| row.first()) {
        Some(candidate) if candidate.draws.is_some() => "u picks",
        Some(candidate) if candidate.q.is_some() => "target p/q",
        _ => "target p",
    }
}
