//! An answer with the tokens that are not output: discarded drafts, and tokens that the grammar refused, where they were.

use std::ops::Range;

use draftscope_protocol::{Outcome, Piece};

use super::fate::{Fate, Provenance};
use super::round::Round;
use super::turn::{Answer, Token};

/// One token of a transcript that also contains discarded drafts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TranscriptToken<'a> {
    /// The token.
    pub piece: &'a Piece,
    /// Its fate.
    pub fate: Fate,
    /// Its round; 0 for the first token.
    pub round: u32,
    /// Its column in the round; of a refused token, the column in which the draft then went on or ended.
    pub column: usize,
    /// Whether it is output that a lossless rule would not have committed there.
    pub departs: bool,
    /// Whether it is a draft that the grammar forced.
    pub forced: bool,
    /// Whether it is output that the drafter's vocabulary lacks.
    pub undraftable: bool,
    /// Whether it is thought; a discarded draft is if the first token of its round is.
    pub is_thought: bool,
}

impl Answer {
    /// Every token in order: refused tokens before what was drafted in their place, discarded drafts before their
    /// replacement, unjudged ones at the end.
    pub fn transcript(&self) -> impl Iterator<Item = TranscriptToken<'_>> {
        self.transcript_between(0..self.rounds.len())
    }

    /// The same for some rounds only, by index; what came before the first round belongs to round 0.
    pub fn transcript_between(&self, rounds: Range<usize>) -> impl Iterator<Item = TranscriptToken<'_>> {
        let early = if rounds.start == 0 { self.tokens.len() } else { 0 };
        let before = self.tokens.iter().take(early).take_while(|t| t.round == 0).map(|t| output(t, 0, false));
        let rounds = self.rounds.get(rounds).unwrap_or_default();
        before.chain(rounds.iter().flat_map(|r| self.transcript_of(r)))
    }

    fn transcript_of<'a>(&'a self, round: &'a Round) -> impl Iterator<Item = TranscriptToken<'a>> {
        let own = self.tokens.get(round.first_token..).unwrap_or_default();
        let own = &own[..round.committed().len().min(own.len())];
        let (accepted, added) = own.split_at(round.accepted().min(own.len()));
        let is_thought = self.is_thought_at(round.first_token);
        let accepted = accepted.iter().enumerate().map(|(i, token)| {
            let column = round.column_of(i);
            output(token, column, round.drafts.get(column).is_some_and(|draft| draft.forced))
        });
        let is_out = |index: usize| {
            round.is_complete() && round.outcome(index) == Some(Outcome::Accepted) && !round.is_held(index)
        };
        let rest = (0..round.drafts.len()).filter(move |index| !is_out(*index));
        let rest = rest.map(move |column| draft(round, column, is_thought));
        let with_refused = move |token: TranscriptToken<'a>| {
            refused(round, token.column..token.column + 1, is_thought).chain(std::iter::once(token))
        };
        accepted
            .chain(rest)
            .flat_map(with_refused)
            .chain(refused(round, round.drafts.len()..usize::MAX, is_thought))
            .chain(added.iter().map(|token| TranscriptToken {
                undraftable: round.next_is_undraftable(),
                ..output(token, round.column_of(round.accepted()), false)
            }))
    }
}

fn output(token: &Token, column: usize, forced: bool) -> TranscriptToken<'_> {
    let Token { piece, provenance, round, instead, is_thought, .. } = token;
    let (fate, departs) = (Fate::Committed(*provenance), instead.is_some());
    let (round, is_thought) = (*round, *is_thought);
    TranscriptToken { piece, fate, round, column, departs, forced, undraftable: false, is_thought }
}

fn draft(round: &Round, column: usize, is_thought: bool) -> TranscriptToken<'_> {
    let cell = &round.drafts[column];
    let fate = draft_fate(round, column);
    let (piece, forced) = (&cell.token, cell.forced);
    let (round, departs, undraftable) = (round.number(), false, false);
    TranscriptToken { piece, fate, round, column, departs, forced, undraftable, is_thought }
}

/// What the grammar refused in these columns.
fn refused(round: &Round, columns: Range<usize>, is_thought: bool) -> impl Iterator<Item = TranscriptToken<'_>> {
    let found = round.refused.iter().filter(move |refused| columns.contains(&refused.index.into()));
    found.map(move |refused| TranscriptToken {
        piece: &refused.token,
        fate: Fate::Refused,
        round: round.number(),
        column: refused.index.into(),
        departs: false,
        forced: false,
        undraftable: false,
        is_thought,
    })
}

fn draft_fate(round: &Round, index: usize) -> Fate {
    match round.outcome(index) {
        Some(Outcome::Rejected) => Fate::Rejected,
        Some(Outcome::NotReached) => Fate::NotReached,
        Some(Outcome::Accepted) if round.is_held(index) => Fate::Pending,
        Some(Outcome::Accepted) => Fate::Committed(Provenance::Accepted),
        None => Fate::Pending,
    }
}
