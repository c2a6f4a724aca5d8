//! Drawing: one pass of the target over several positions. Below each token, which tokens its row sees and what it
//! predicts.
//!
//! Invariant: predictions are those of a round that ran; an example has none.

use crate::view::prelude::*;
use crate::view::rounds::token_cell::TokenCell;

/// Width of the row labels.
const LABEL: usize = 11;

/// Most columns.
const MOST: usize = 8;

/// A position of the pass.
struct Column {
    reads: String,
    predicts: Option<(String, f32)>,
}

pub(super) fn render(screen: Screen, area: Rect, frame: &mut Frame) {
    let title = match of_round(screen) {
        Some(_) => " One pass, every position: the round on show ",
        None => " One pass, every position ",
    };
    let inner = framed(screen.panel(title), area, frame);
    let all = content(screen, inner.width);
    // without the mask where there is no room for it
    let is_short = all.len() > inner.height.into();
    put(if is_short { drawn(screen, inner.width, false) } else { all }, inner, frame);
}

/// All lines in so many columns.
pub(super) fn content(screen: Screen, width: u16) -> Vec<Line<'static>> {
    drawn(screen, width, true)
}

fn drawn(screen: Screen, room: u16, with_mask: bool) -> Vec<Line<'static>> {
    let columns = of_round(screen).unwrap_or_else(|| of_example(screen));
    if columns.is_empty() {
        let text = "A column for each position of the pass stands here as soon as a round has begun.";
        return wrapped(text, room, screen.theme[Role::TextDim]);
    }
    let width = (usize::from(room).saturating_sub(LABEL) / columns.len()).clamp(6, 18);
    let row = |label: &str, cells: Vec<(String, Role)>| {
        let mut spans = vec![Span::styled(fit(label, LABEL), screen.theme[Role::TextDim])];
        let cell =
            |(text, role): (String, Role)| Span::styled(format!("{} ", fit(&text, width - 1)), screen.theme[role]);
        spans.extend(cells.into_iter().map(cell));
        Line::from(spans)
    };
    let is_scored = columns.iter().any(|column| column.predicts.is_some());
    let mut lines = vec![
        row("row", (0..columns.len()).map(|index| (index.to_string(), Role::TextDim)).collect()),
        row("reads", columns.iter().map(|column| (column.reads.clone(), Role::TextStrong)).collect()),
    ];
    if with_mask {
        for (index, seen) in columns.iter().enumerate() {
            let sees = (0..columns.len()).map(|at| if at >= index { ("■", Role::Good) } else { ("·", Role::TextDim) });
            let label = cut(&format!("sees {}", seen.reads), LABEL - 1);
            lines.push(row(&label, sees.map(|(sign, role)| (sign.to_owned(), role)).collect()));
        }
    }
    lines.push(row("", vec![("↓".to_owned(), Role::TextDim); columns.len()]));
    // a number that would cut its word has a row of its own
    let is_tight =
        columns.iter().filter_map(|column| column.predicts.as_ref()).any(|(name, _)| name.width() + 6 > width);
    let predicted = |column: &Column| match &column.predicts {
        Some((name, _)) if is_tight => (name.clone(), Role::Text),
        Some((name, p)) => {
            let cell = TokenCell::token(name.clone(), Some(*p), Style::new()).spans(width - 1, Style::new());
            (cell.iter().map(|span| span.content.as_ref()).collect(), Role::Text)
        }
        None => ("?".to_owned(), Role::TextDim),
    };
    lines.push(row("predicts", columns.iter().map(predicted).collect()));
    if is_tight {
        let number = |column: &Column| column.predicts.as_ref().map_or(String::new(), |(_, p)| format!("{p:.2}"));
        lines.push(row("with p", columns.iter().map(|column| (number(column), Role::Text)).collect()));
    }
    let note = if is_scored {
        "Each row predicts the token after its own; it sees nothing to its right."
    } else {
        "Each row will predict the token after its own; it sees nothing to its right."
    };
    lines.push(Line::default());
    lines.extend(wrapped(note, room, screen.theme[Role::TextDim]));
    lines
}

/// Anchor and drafts of the lesson's round on show, with what the target's rows said.
fn of_round(screen: Screen) -> Option<Vec<Column>> {
    let turn = screen.app.learning.run()?.turn(screen.session)?;
    let answer = turn.answer(Lane::Speculative);
    let shown = screen.app.round(screen.session).filter(|round| round.turn == turn.number && round.number() > 0);
    let round = shown
        .filter(|round| !round.drafts.is_empty() && !round.is_tree())
        .or_else(|| answer.rounds.iter().find(|round| !round.drafts.is_empty()).map(AsRef::as_ref))?;
    let anchor = answer.tokens.get(round.first_token.checked_sub(1)?)?;
    let reads = std::iter::once(&anchor.piece).chain(round.drafts.iter().map(|draft| &draft.token));
    let column = |(index, piece): (usize, &draftscope_protocol::Piece)| Column {
        reads: text::inline(piece),
        predicts: round.prediction(index).and_then(|row| row.best()).map(|best| (text::inline(&best.piece), best.prob)),
    };
    Some(reads.take(MOST).enumerate().map(column).collect())
}

fn of_example(screen: Screen) -> Vec<Column> {
    let step = screen.app.learning.step();
    let tokens = step.and_then(|step| step.example.as_ref()).map_or(&[][..], |example| &example.tokens);
    tokens.iter().take(MOST).map(|token| Column { reads: text::one_line(token).into_owned(), predicts: None }).collect()
}
