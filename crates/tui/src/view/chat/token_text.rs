//! One token of an answer as text: its fate, and whether a grammar forced it, as a colour and, without colours or on request, as a mark.
//!
//! Invariant: a kept token looks the same with and without discarded drafts beside it; a control token is an end mark,
//! never text. Lines through and under a token decorate its word, never the spaces before it.

use crate::app::place::hit_map::PREFILL;
use draftscope_session::TranscriptToken;

use crate::view::chat::laid::{Fallen, Pen};
use crate::view::prelude::*;
use crate::view::rounds::grammar;

/// How a token looks besides its fate.
#[derive(Clone, Copy)]
pub(in crate::view) struct Look {
    /// It is of the selected round.
    pub(in crate::view) is_selected: bool,
    /// It is the selected token.
    pub(in crate::view) is_chosen: bool,
    /// How it is shown if it was discarded.
    pub(in crate::view) discarded: Discarded,
}

/// How a discarded draft is shown.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::view) enum Discarded {
    /// Where it was.
    InPlace,
    /// As one of those that a sign counts.
    Counted,
}

/// The round of a token as the mouse finds it; 0 is nothing.
pub(in crate::view) fn round_of(token: &TranscriptToken) -> u32 {
    if token.fate == Fate::Committed(Provenance::Prefill) { PREFILL } else { token.round }
}

/// Adds a token to the text.
pub(in crate::view) fn push(screen: Screen, token: TranscriptToken, look: Look, pen: &mut Pen) {
    let style = chosen(screen, style_of(screen, &token), look);
    match token.fate {
        Fate::Committed(_) => {
            pen.flow.tag(round_of(&token), token.column);
            let text = pen.joiner.push(token.piece.text_bytes());
            committed(screen, token, (&text, style, look), pen);
            pen.drafts = pen.joiner.clone();
        }
        _ if look.discarded == Discarded::Counted => {
            if pen.fallen.count == 0 {
                pen.fallen.place = (round_of(&token), token.column);
            }
            pen.fallen.count += usize::from(token.fate != Fate::Pending);
        }
        _ => {
            pen.flow.tag(round_of(&token), token.column);
            let text = match token.fate {
                // no draft goes on from it
                Fate::Refused => pen.drafts.clone().push(token.piece.text_bytes()),
                _ => pen.drafts.push(token.piece.text_bytes()),
            };
            discarded(screen, token, (&text, style), &mut pen.flow);
        }
    }
}

/// The colour and lines of a token's fate.
fn style_of(screen: Screen, token: &TranscriptToken) -> Style {
    if token.departs {
        return screen.theme[Role::TokenDeparted];
    }
    grammar::tinted(screen, (token.forced, token.fate), screen.theme[fate::role(token.fate)])
}

/// Adds the sign of the drafts that fell since the last kept token.
pub(in crate::view) fn sign(screen: Screen, pen: &mut Pen) {
    let Fallen { count, place } = std::mem::take(&mut pen.fallen);
    if count > 0 {
        pen.flow.tag(place.0, place.1);
        pen.flow.push(&fate::discarded_sign(count), screen.theme[Role::TokenCounted]);
    }
}

/// The style of a selected token.
pub(in crate::view) fn chosen(screen: Screen, style: Style, look: Look) -> Style {
    let style = if look.is_selected { style.patch(screen.theme[Role::Selected]) } else { style };
    if look.is_chosen { style.add_modifier(Modifier::REVERSED) } else { style }
}

/// Between the spaces of a token and its word stands what fell before it.
fn committed(screen: Screen, token: TranscriptToken, (text, style, look): (&str, Style, Look), pen: &mut Pen) {
    let mark = match token {
        TranscriptToken { departs: true, .. } => fate::DEPARTED,
        TranscriptToken { forced: true, .. } => fate::FORCED,
        _ => fate::mark(token.fate),
    };
    let inner = text.trim_start_matches(' ');
    pen.flow.push(&text[..text.len() - inner.len()], undecorated(style));
    sign(screen, pen);
    let flow = &mut pen.flow;
    flow.tag(round_of(&token), token.column);
    // where drafts are counted only, the text is for reading
    if token.undraftable && (screen.has_signs() || look.discarded == Discarded::InPlace) {
        flow.push(fate::UNDRAFTABLE, undecorated(style));
    } else if screen.has_signs() {
        flow.push(mark, undecorated(style));
    }
    if token.piece.special {
        flow.push(fate::END, undecorated(style));
        return;
    }
    let shown = text::printable(inner);
    for (i, part) in shown.split('\n').enumerate() {
        if i > 0 {
            if screen.has_signs() || look.is_selected {
                flow.push("⏎", chosen(screen, screen.theme[Role::TextDim], look));
            }
            flow.end_line();
        }
        flow.push(part, style);
    }
}

fn discarded(screen: Screen, token: TranscriptToken, (text, style): (&str, Style), flow: &mut Flow) {
    let inner = text.trim_start_matches(' ');
    let around = undecorated(style);
    flow.push(&text[..text.len() - inner.len()], around);
    if screen.has_signs() {
        flow.push(fate::mark(token.fate), around);
    }
    let shown = text::one_line(inner);
    match () {
        () if token.piece.special => flow.push(fate::END, style),
        () if shown.is_empty() => flow.push("·", style),
        () => flow.push(&shown, style),
    }
}
