//! One token of an answer as text: its fate as a colour and, without colours or on request, as a mark.
//!
//! Invariant: a kept token looks the same with and without discarded drafts beside it; a control token is an end mark,
//! never text.

use crate::session::TranscriptToken;
use crate::tui::hit_map::PREFILL;

use super::prelude::*;
use super::transcript_cache::Pen;

/// How a token looks besides its fate.
#[derive(Clone, Copy)]
pub(super) struct Look {
    /// It is of the selected round.
    pub(super) is_selected: bool,
    /// It is the selected token.
    pub(super) is_chosen: bool,
    pub(super) shows_discarded: bool,
}

/// The round of a token as the mouse finds it; 0 is nothing.
pub(super) fn round_of(token: &TranscriptToken) -> u32 {
    if token.fate == Fate::Committed(Provenance::Prefill) { PREFILL } else { token.round }
}

/// Adds a token to the text.
pub(super) fn push(screen: Screen, token: TranscriptToken, look: Look, pen: &mut Pen) {
    let style = chosen(screen, own_style(screen, &token), look);
    pen.flow.tag(round_of(&token), token.column);
    match token.fate {
        Fate::Committed(_) => {
            let text = pen.joiner.push(token.piece.text_bytes());
            committed(screen, token, (&text, style, look), &mut pen.flow);
            pen.drafts = pen.joiner.clone();
        }
        _ if !look.shows_discarded => {}
        _ => {
            let text = pen.drafts.push(token.piece.text_bytes());
            discarded(screen, token, (&text, style), &mut pen.flow);
        }
    }
}

/// The style of a fate. If accepted drafts have a colour, they are not underlined: they are most of the text.
fn own_style(screen: Screen, token: &TranscriptToken) -> Style {
    let role = if token.departs { Role::TokenDeparted } else { fate::role(token.fate) };
    let is_plain = role == Role::TokenAccepted && !screen.has_marks();
    if is_plain { screen.theme[role].remove_modifier(Modifier::UNDERLINED) } else { screen.theme[role] }
}

/// The style of a selected token.
pub(super) fn chosen(screen: Screen, style: Style, look: Look) -> Style {
    let style = if look.is_selected { style.patch(screen.theme[Role::Selected]) } else { style };
    if look.is_chosen { style.add_modifier(Modifier::REVERSED) } else { style }
}

fn committed(screen: Screen, token: TranscriptToken, (text, style, look): (&str, Style, Look), flow: &mut Flow) {
    let mark = if token.departs { fate::DEPARTED } else { fate::mark(token.fate) };
    let inner = text.trim_start_matches(' ');
    flow.push(&text[..text.len() - inner.len()], style);
    if screen.has_marks() {
        flow.push(mark, style);
    }
    if token.piece.special {
        flow.push(fate::END, style.remove_modifier(Modifier::UNDERLINED));
        return;
    }
    let shown = text::printable(inner);
    for (i, part) in shown.split('\n').enumerate() {
        if i > 0 {
            if screen.has_marks() || look.is_selected {
                flow.push("⏎", chosen(screen, screen.theme[Role::TextDim], look));
            }
            flow.end_line();
        }
        flow.push(part, style);
    }
}

fn discarded(screen: Screen, token: TranscriptToken, (text, style): (&str, Style), flow: &mut Flow) {
    let inner = text.trim_start_matches(' ');
    // The mark is not part of the draft: it is not struck through.
    let mark_style = style.remove_modifier(Modifier::CROSSED_OUT);
    flow.push(&text[..text.len() - inner.len()], mark_style);
    if screen.has_marks() {
        flow.push(fate::mark(token.fate), mark_style);
    }
    let shown = text::one_line(inner);
    match () {
        () if token.piece.special => flow.push(fate::END, style),
        () if shown.is_empty() => flow.push("·", style),
        () => flow.push(&shown, style),
    }
}
