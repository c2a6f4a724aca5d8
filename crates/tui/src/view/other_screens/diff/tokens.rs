//! The tokens of a turn, pair by pair: round, fate, token, the target's p of it, and the margin
//! between its two best.
//!
//! Invariant: only pairs in view are laid out, and the chosen one is in view. The mark between the sides distinguishes
//! the first difference from later ones, before which the texts already differ.

use crate::other_screens::diff::{Compared, Laid};
use crate::view::compare::agreement::tokens;
use crate::view::prelude::*;
use draftscope_session::{Answer, Pair, Side};

/// Width of the index.
const INDEX: usize = 6;

/// Width of the mark between the sides.
const MARK: usize = 3;

/// Width of a side's round, p and margin.
const ROUND: usize = 5;
const PROB: usize = 6;

/// Returns the number of pairs shown, the first of them, and its line on the screen.
pub(super) fn render(screen: Screen, compared: &Compared, area: Rect, frame: &mut Frame) -> (usize, usize, u16) {
    let inner = framed(screen.panel(title(compared)).border_style(screen.theme[Role::PanelFocused]), area, frame);
    let (Some(laid), Some(answers)) = (compared.laid(), compared.answers()) else {
        let text = Line::styled("No turn stands in both recordings.", screen.theme[Role::TextDim]);
        frame.render_widget(text, inner);
        return (1, 0, inner.y);
    };
    let rows = usize::from(inner.height).saturating_sub(1).max(1);
    let top = compared.row.saturating_sub(rows / 2).min(laid.pairs.len().saturating_sub(rows));
    let token = (usize::from(inner.width).saturating_sub(INDEX + MARK) / 2).saturating_sub(ROUND + 2 + 2 * PROB);
    let mut lines = vec![head(screen, token)];
    for (row, pair) in laid.pairs.iter().enumerate().skip(top).take(rows) {
        let line = line(screen, laid, answers, (row, *pair), token);
        let is_chosen = row == compared.row;
        lines.push(if is_chosen { line.patch_style(screen.theme[Role::Selected]) } else { line });
    }
    put(lines, inner, frame);
    (rows, top, inner.y + 1)
}

fn title(compared: &Compared) -> String {
    let Some(laid) = compared.laid() else {
        return " Tokens ".to_owned();
    };
    let diff = &laid.diff;
    let prompt = if diff.same_prompt { "" } else { " · the prompts differ" };
    let same = match laid.differences.len() {
        0 => format!("identical, {}", tokens(diff.identical)),
        1 => format!("{} identical, then one difference", tokens(diff.identical)),
        more => format!("{} identical, then {more} differences", tokens(diff.identical)),
    };
    let place = compared.turns.len();
    format!(" Turn {} ({} of {place}): {same}{prompt} ", diff.turn, compared.turn + 1)
}

fn head(screen: Screen, token: usize) -> Line<'static> {
    let side = |name: &str| {
        let first = fit(&format!("  {name}"), token + 1);
        format!("{}{first} {}{}", fit("round", ROUND), fit("p", PROB), fit("margin", PROB))
    };
    let text = format!("{}{}{}{}", fit("   #", INDEX), side("first"), " ".repeat(MARK), side("second"));
    Line::styled(text, screen.theme[Role::TextDim])
}

fn line(screen: Screen, laid: &Laid, answers: [&Answer; 2], (row, pair): (usize, Pair), token: usize) -> Line<'static> {
    let index = pair.a.map_or(String::new(), |index| format!("{:>4} ", index + 1));
    let is_first = laid.differences.first() == Some(&row);
    let (mark, role) = match pair.is_same {
        true => (" = ", Role::TextDim),
        false if is_first => (" ◆ ", Role::Error),
        false => (" ≠ ", Role::Warning),
    };
    let mut spans = vec![Span::styled(fit(&index, INDEX), screen.theme[Role::TextDim])];
    spans.extend(side(screen, answers[0], pair.a, token));
    spans.push(Span::styled(mark, screen.theme[role]));
    spans.extend(side(screen, answers[1], pair.b, token));
    Line::from(spans)
}

fn side(screen: Screen, answer: &Answer, index: Option<usize>, token: usize) -> [Span<'static>; 3] {
    let Some(side) = index.and_then(|index| Side::at(answer, index)) else {
        let width = ROUND + 2 + token + 2 * PROB;
        return [Span::raw(" ".repeat(width)), Span::default(), Span::default()];
    };
    let fate = Fate::Committed(side.provenance);
    let round = if side.round == 0 { String::new() } else { side.round.to_string() };
    let number = |value: Option<f32>| value.map_or(String::new(), |v| format!("{v:.3}"));
    let numbers = format!(" {}{}", fit(&number(side.prob), PROB), fit(&number(side.margin), PROB));
    [
        Span::styled(fit(&round, ROUND), screen.theme[Role::TextDim]),
        Span::styled(
            fit(&format!("{}{}", fate::sign(fate), text::inline(&side.token)), token + 1),
            screen.theme[fate::role(fate)],
        ),
        Span::styled(numbers, screen.theme[Role::TextDim]),
    ]
}
