//! The tokens of an answer with the discarded drafts between them.

use std::ops::Range;

use draftscope_protocol::{Outcome, Piece};

use super::fate::{Fate, Provenance};
use super::{Answer, Round, Token};

/// One token of a transcript that also contains discarded drafts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TranscriptToken<'a> {
    /// The token.
    pub piece: &'a Piece,
    /// Its fate.
    pub fate: Fate,
    /// Its round; 0 for the first token.
    pub round: u32,
    /// Its column in the round.
    pub column: usize,
    /// Whether it is output that a lossless rule would not have committed there.
    pub departs: bool,
    /// Whether it is output that the drafter's vocabulary lacks.
    pub undraftable: bool,
    /// Whether it is thought; a discarded draft is if the first token of its round is.
    pub is_thought: bool,
}

impl Answer {
    /// Every token in order: discarded drafts before their replacement, unjudged ones at the end.
    pub fn transcript(&self) -> impl Iterator<Item = TranscriptToken<'_>> {
        self.transcript_between(0..self.rounds.len())
    }

    /// The same for some rounds only, by index; what came before the first round belongs to round 0.
    pub fn transcript_between(&self, rounds: Range<usize>) -> impl Iterator<Item = TranscriptToken<'_>> {
        let early = if rounds.start == 0 { self.tokens.len() } else { 0 };
        let before = self.tokens.iter().take(early).take_while(|t| t.round == 0).map(|t| transcript_token(t, 0));
        let rounds = self.rounds.get(rounds).unwrap_or_default();
        before.chain(rounds.iter().flat_map(|r| self.transcript_of(r)))
    }

    fn transcript_of<'a>(&'a self, round: &'a Round) -> impl Iterator<Item = TranscriptToken<'a>> {
        let own = self.tokens.get(round.first_token..).unwrap_or_default();
        let own = &own[..round.committed.len().min(own.len())];
        let (before, after) = own.split_at(round.accepted().min(own.len()));
        let is_thought = self.is_thought_at(round.first_token);
        let is_out = |index: usize| {
            round.is_complete && round.outcome(index) == Some(Outcome::Accepted) && !round.is_held(index)
        };
        let rest = round.drafts.iter().enumerate().filter(move |(index, _)| !is_out(*index));
        before
            .iter()
            .enumerate()
            .map(|(i, token)| transcript_token(token, round.column_of(i)))
            .chain(rest.map(move |(column, cell)| TranscriptToken {
                piece: &cell.piece,
                fate: draft_fate(round, column),
                round: round.round,
                column,
                departs: false,
                undraftable: false,
                is_thought,
            }))
            .chain(after.iter().map(|token| TranscriptToken {
                undraftable: round.next_is_undraftable(),
                ..transcript_token(token, round.column_of(round.accepted()))
            }))
    }
}

fn transcript_token(token: &Token, column: usize) -> TranscriptToken<'_> {
    let Token { piece, provenance, round, instead, is_thought, .. } = token;
    let (fate, departs) = (Fate::Committed(*provenance), instead.is_some());
    TranscriptToken { piece, fate, round: *round, column, departs, undraftable: false, is_thought: *is_thought }
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
