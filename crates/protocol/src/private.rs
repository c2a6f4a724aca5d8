//! What of an event reveals the text, for recordings without it.

use super::event::{Committed, DraftRefused, DraftStopped, Drafted, EventKind, Lattice, Prefilled, Probed, Scored};
use super::token::{Piece, Prediction, TokenId};

/// A part of an event that reveals the text.
pub enum Private<'a> {
    /// The text that the user typed.
    Typed(&'a mut String),
    /// A token with its bytes.
    Token(&'a mut Piece),
    /// A token without its bytes.
    Id(&'a mut TokenId),
}

impl EventKind {
    /// Calls `each` for every part that reveals the text. The match lists every kind: a new one cannot be forgotten.
    pub fn each_private(&mut self, each: &mut dyn FnMut(Private<'_>)) {
        fn tokens<'a>(pieces: impl IntoIterator<Item = &'a mut Piece>, each: &mut dyn FnMut(Private<'_>)) {
            pieces.into_iter().for_each(|piece| each(Private::Token(piece)));
        }
        fn row(row: &mut Prediction, each: &mut dyn FnMut(Private<'_>)) {
            tokens(row.top.iter_mut().map(|candidate| &mut candidate.piece), each);
        }
        match self {
            Self::Prompted { text, .. } => each(Private::Typed(text)),
            Self::Prefilled(Prefilled { prompt, first, row: top, .. }) => {
                tokens(prompt.iter_mut().chain([first]), each);
                row(top, each);
            }
            Self::Drafted(Drafted { token, top, .. }) => {
                tokens([token], each);
                row(top, each);
            }
            Self::DraftStopped(DraftStopped { token, .. }) => tokens([token], each),
            Self::DraftRefused(DraftRefused { token, expected, .. }) => {
                tokens([token], each);
                each(Private::Typed(expected));
            }
            Self::Lattice(Lattice { columns, .. }) => {
                let candidates = columns.iter_mut().flat_map(|column| &mut column.candidates);
                tokens(candidates.map(|candidate| &mut candidate.token), each);
            }
            Self::Started { header } => header.grammar.iter_mut().for_each(|g| each(Private::Typed(&mut g.text))),
            Self::Scored(Scored { rows, .. }) => rows.iter_mut().for_each(|top| row(top, each)),
            Self::Verified { verdict, .. } => {
                each(Private::Id(&mut verdict.next));
                verdict.departures.iter_mut().for_each(|departure| each(Private::Id(&mut departure.instead)));
            }
            Self::Probed(Probed { drafts, .. }) => drafts.iter_mut().for_each(|draft| {
                tokens([&mut draft.token], each);
                row(&mut draft.top, each);
            }),
            Self::Committed(Committed { tokens: committed, .. }) => tokens(committed, each),
            Self::RowAsked { row: top, .. } => row(top, each),
            Self::Recounted { .. }
            | Self::Masked(_)
            | Self::Loading { .. }
            | Self::Finished { .. }
            | Self::RoundStarted(_)
            | Self::LaneContinued { .. }
            | Self::DraftAsked { .. }
            | Self::Alternatives(_)
            | Self::CostsKnown { .. }
            | Self::DraftLenChosen { .. }
            | Self::SettingsChanged { .. }
            | Self::Paused
            | Self::Resumed
            | Self::Notice { .. }
            | Self::Noted { .. }
            | Self::Bookmarked { .. }
            | Self::TextDigest { .. }
            | Self::Failed { .. }
            | Self::Ended { .. }
            | Self::Unknown => {}
        }
    }
}
