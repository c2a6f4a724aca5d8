//! The bank: rounds of real runs of the default model, in `assets/quiz/bank.toml`.
//!
//! `cargo test --release -p draftscope-learn make_bank -- --ignored` runs the model and writes the file again.

use serde::Deserialize;

use draftscope_protocol::{
    Candidate, Committed, Departure, Drafted, Judgement, Leniency, NextKind, Outcome, Piece, Prediction, RoundStarted,
    Sampling, Scored, TokenId, Verification, VerifyRule,
};
use draftscope_session::Round;

use super::item::{Category, Item};

const BANK: &str = include_str!("../../assets/quiz/bank.toml");

/// Mass below which a row counts as whole: what rounding leaves.
const ROUNDING: f32 = 1e-5;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Bank {
    item: Vec<Stored>,
}

type Token = (u32, String);
type Row = Vec<(u32, String, f32)>;

/// An item as the file has it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Stored {
    id: String,
    category: String,
    prompt: String,
    context: String,
    round: u32,
    base_len: u32,
    rule: VerifyRule,
    #[serde(default)]
    leniency: Leniency,
    #[serde(default)]
    sampling: Sampling,
    drafts: Vec<StoredDraft>,
    rows: Vec<Row>,
    next: Token,
    bonus: bool,
    next_u: Option<f32>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredDraft {
    token: Token,
    q: Option<f32>,
    /// The drafter's candidates, where the rule needs them.
    #[serde(default)]
    top: Row,
    row: Option<u8>,
    outcome: Outcome,
    p: f32,
    u: Option<f32>,
    /// What a lossless rule would have committed in its place.
    instead: Option<u32>,
}

/// All items of the bank.
#[must_use]
pub fn bank() -> Vec<Item> {
    read(BANK).unwrap_or_default()
}

/// Items from the text of the file.
pub(super) fn read(text: &str) -> Result<Vec<Item>, toml::de::Error> {
    Ok(toml::from_str::<Bank>(text)?.item.into_iter().map(Stored::item).collect())
}

fn piece((id, text): Token) -> Piece {
    Piece::new(TokenId(id), text)
}

fn prediction(row: Row) -> Prediction {
    let top: Vec<_> = row.into_iter().map(|(id, text, prob)| Candidate { piece: piece((id, text)), prob }).collect();
    let tail = 1.0 - top.iter().map(|candidate| candidate.prob).sum::<f32>();
    Prediction { top, tail: if tail < ROUNDING { 0.0 } else { tail } }
}

impl Stored {
    fn item(self) -> Item {
        let category = Category::ALL.iter().copied().find(|category| category.name() == self.category);
        let is_greedy = self.sampling.is_greedy();
        let judgement = |draft: &StoredDraft| Judgement {
            p: Some(draft.p),
            q: if is_greedy { Some(1.0) } else { draft.q },
            u: draft.u,
            limit: None,
            outcome: draft.outcome,
        };
        let departures = self
            .drafts
            .iter()
            .enumerate()
            .filter_map(|(index, draft)| Some(Departure { index: index as u8, instead: TokenId(draft.instead?) }));
        let verdict = Verification {
            lossless: self.rule.is_lossless(),
            departures: departures.collect(),
            ..Verification::new(
                self.drafts.iter().map(judgement).collect(),
                TokenId(self.next.0),
                if self.bonus { NextKind::Bonus } else { NextKind::Recovered },
                self.next_u,
            )
        };
        let is_tree = self.drafts.iter().any(|draft| draft.row.is_some());
        let accepted = self.drafts.iter().filter(|draft| draft.outcome == Outcome::Accepted);
        let tokens = accepted.map(|draft| draft.token.clone()).chain([self.next]).map(piece).collect();
        let round = self.round;
        let drafts = (0..).zip(self.drafts).map(|(index, draft)| Drafted {
            round,
            index,
            token: piece(draft.token),
            q: draft.q,
            top: prediction(draft.top),
            row: draft.row,
            ..Drafted::default()
        });
        let drafts: Vec<_> = drafts.collect();
        let round = Round {
            started: RoundStarted { round, base_len: self.base_len, draft_len: drafts.len() as u8 },
            rule: self.rule,
            sampling: self.sampling,
            leniency: self.leniency,
            shapes_drafts: is_tree,
            drafts,
            scored: Some(Scored { round, rows: self.rows.into_iter().map(prediction).collect(), ..Scored::default() }),
            verdict: Some(verdict),
            commit: Some(Committed { round, tokens, ..Committed::default() }),
            ..Round::default()
        };
        Item { id: self.id, category, prompt: self.prompt, context: self.context, round }
    }
}
