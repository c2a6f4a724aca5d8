//! What the grammar did in a round: what it refused, and what its mask took away.

use draftscope_protocol::DraftRefused;

use crate::view::prelude::*;
use crate::view::values::duration;

/// Longest rule that is shown, in cells.
const RULE: usize = 60;

/// A forced draft has a colour of its own and is underlined: it comes from the grammar, not from the drafter. A discarded one
/// looks like others that were discarded.
pub(in crate::view) fn tinted(screen: Screen, (forced, fate): (bool, Fate), style: Style) -> Style {
    match fate {
        Fate::Committed(_) | Fate::Pending if forced => style.patch(screen.theme[Role::TokenForced]),
        _ => style,
    }
}

/// The refused tokens of a column, struck, with the rule that refused them; then the column's mask and what masks cost.
pub(in crate::view) fn lines(screen: Screen, round: &Round, column: usize, width: u16) -> Vec<Line<'static>> {
    let refused = round.refused.iter().filter(|refused| usize::from(refused.index) == column);
    let refused = refused.flat_map(|refused| refusal(screen, refused, width));
    let mask = mask(screen, round, column);
    refused.chain(mask.iter().flat_map(|text| wrapped(text, width, screen.theme[Role::TextDim]))).collect()
}

fn refusal(screen: Screen, refused: &DraftRefused, width: u16) -> Vec<Line<'static>> {
    let q = refused.q.map_or(String::new(), |q| format!(" (q {q:.2})"));
    let expected = cut(&text::one_line(&refused.expected), RULE);
    let mut flow = Flow::new(width);
    flow.push(&text::inline(&refused.token), screen.theme[Role::TokenRefused]);
    flow.push(&format!("{q} refused by the {}: it expects {expected}", noun(screen)), screen.theme[Role::Text]);
    flow.finish()
}

fn mask(screen: Screen, round: &Round, column: usize) -> Option<String> {
    let masked = round.masked.as_ref()?;
    let row = masked.rows.get(round.row_of(column))?;
    let allowed = if row.allowed == 1 { "1 token".to_owned() } else { format!("{} tokens", row.allowed) };
    let removed = f64::from(row.removed) * 100.0;
    Some(format!(
        "{}: {allowed} allowed, {removed:.1} % of p removed; masks of the round took {}",
        noun(screen),
        duration(masked.took_us)
    ))
}

/// What an attached server's p leaves out: it applies the grammar and does not report what that did.
pub(in crate::view) fn before_mask(screen: Screen) -> Option<String> {
    let header = screen.session.header().filter(|header| header.engine.is_some() && header.grammar.is_some())?;
    let grammar = header.grammar.as_ref()?;
    Some(format!("p is that before the mask of the {}: the server does not report p after it", grammar.kind.noun()))
}

/// What the grammar is.
pub(in crate::view) fn noun(screen: Screen) -> &'static str {
    let grammar = screen.session.header().and_then(|header| header.grammar.as_ref());
    grammar.map_or("grammar", |grammar| grammar.kind.noun())
}
