//! What the grammar did in a round: what it refused, and what its mask took away.

use draftscope_session::{DraftCell, Refused};

use super::prelude::*;
use super::values::duration;

/// Longest rule that is shown, in cells.
const RULE: usize = 40;

/// A forced draft has the colour of keys and is underlined: it comes from the grammar, not from the drafter.
pub(super) fn tinted(screen: Screen, draft: &DraftCell, style: Style) -> Style {
    match draft.forced {
        true => style.patch(screen.theme[Role::Key]).add_modifier(Modifier::UNDERLINED),
        false => style,
    }
}

/// The refused token of a column, struck, with the rule that refused it; then the column's mask and what masks cost.
pub(super) fn lines(screen: Screen, round: &Round, column: usize, width: u16) -> Vec<Line<'static>> {
    let refused = round.refused.iter().find(|refused| refused.index == column);
    let refused = refused.map(|refused| refusal(screen, refused, width));
    let mask =
        mask(screen, round, column).map(|text| Line::styled(cut(&text, width.into()), screen.theme[Role::TextDim]));
    refused.into_iter().chain(mask).collect()
}

fn refusal(screen: Screen, refused: &Refused, width: u16) -> Line<'static> {
    let struck = screen.theme[Role::TokenRejected].add_modifier(Modifier::CROSSED_OUT);
    let q = refused.q.map_or(String::new(), |q| format!(" (q {q:.2})"));
    let expected = cut(&text::one_line(&refused.expected), RULE);
    let name = text::inline(&refused.piece);
    let rest = format!("{q} refused by the {}: it expects {expected}", noun(screen));
    let room = usize::from(width).saturating_sub(name.width() + 1);
    Line::from(vec![Span::styled(name, struck), Span::styled(cut(&rest, room), screen.theme[Role::Text])])
}

fn mask(screen: Screen, round: &Round, column: usize) -> Option<String> {
    let row = round.masked.get(round.row_of(column))?;
    let allowed = if row.allowed == 1 { "1 token".to_owned() } else { format!("{} tokens", row.allowed) };
    let removed = f64::from(row.removed) * 100.0;
    Some(format!(
        "{}: {allowed} allowed, {removed:.1} % of p removed; masks of the round took {}",
        noun(screen),
        duration(round.mask_us)
    ))
}

/// What the grammar is.
pub(super) fn noun(screen: Screen) -> &'static str {
    let grammar = screen.session.header().and_then(|header| header.grammar.as_ref());
    grammar.map_or("grammar", |grammar| grammar.kind.noun())
}
