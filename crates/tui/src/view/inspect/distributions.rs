//! One position: the drafter's and the target's best candidates as bars, side by side, and below them the residual.
//!
//! Invariant: bars are recorded probabilities; the draft is always among them, and the last one is all tokens not listed. The residual
//! is computed from the listed tokens, not normalised, and says where a value is only a bound.

use draftscope_protocol::{Ability, Candidate, Piece, Prediction};
use draftscope_session::{Residual, residual};

use crate::view::prelude::*;
use crate::view::rounds::grammar;
use crate::view::speed::hero;
use crate::view::values::{fate_of, next_fate, position, sign};

/// Width of a token's name.
const NAME: usize = 13;

/// All tokens that are not listed.
const REST: &str = "all others";

pub(in crate::view) fn render(screen: Screen, area: Rect, frame: &mut Frame) {
    let Some(round) = screen.app.round(screen.session) else {
        let inner = framed(screen.panel(" Inspect "), area, frame);
        let keys = screen.keys(Context::Browse, &[(CHANGE, "select a token"), (&[Action::Open], "opens it here")]);
        let text = format!("Nothing to inspect yet. Send a prompt in Chat; there {keys}.");
        put(wrapped(&text, inner.width, screen.theme[Role::TextDim]), inner, frame);
        return;
    };
    let column = screen.app.place.cell.unwrap_or_else(|| round.deciding_column()).min(round.columns() - 1);
    let [drafter, target] = Layout::horizontal([Constraint::Fill(1), Constraint::Fill(1)]).areas(area);
    drafters(screen, round, column, drafter, frame);
    targets(screen, round, column, target, frame);
}

fn drafters(screen: Screen, round: &Round, column: usize, area: Rect, frame: &mut Frame) {
    let inner = framed(screen.panel(title(round, column)), area, frame);
    let cell = round.drafts.get(column);
    let acts = grammar::lines(screen, round, column, inner.width);
    let below = if acts.is_empty() { 0 } else { acts.len() as u16 + 1 };
    let mut lines = match cell {
        Some(cell) if !cell.top.top.is_empty() => {
            let role = sign(fate_of(round, column)).0;
            let named = [Named { piece: &cell.token, note: "draft", role, prob: cell.q }];
            let above = Rect { height: inner.height.saturating_sub(below).max(4), ..inner };
            bars(screen, &cell.top, &named, REST, above)
        }
        Some(cell) if cell.forced => {
            let name = text::quoted(&cell.token);
            let text = format!("The grammar allows {name} alone here. It is a draft without a pass: p = q = 1.");
            wrapped(&text, inner.width, screen.theme[Role::Text])
        }
        Some(cell) if cell.token.id.is_unknown() => {
            let text = "A draft that the engine did not keep. It does not report which token, nor the drafter's q.";
            wrapped(text, inner.width, screen.theme[Role::TextDim])
        }
        Some(cell) if screen.engine().is_some() => {
            let text =
                format!("{} was drafted; the engine does not report the drafter's q.", text::quoted(&cell.token));
            wrapped(&text, inner.width, screen.theme[Role::Text])
        }
        Some(cell) => {
            let name = text::quoted(&cell.token);
            let text = format!("{name} was proposed without a distribution: it counts as certain (q = 1).");
            wrapped(&text, inner.width, screen.theme[Role::Text])
        }
        None => wrapped(no_draft(round), inner.width, screen.theme[Role::TextDim]),
    };
    if below > 0 {
        lines.push(Line::default());
        lines.extend(acts);
    }
    put(lines, inner, frame);
}

/// Why there is no draft.
fn no_draft(round: &Round) -> &'static str {
    match round.drafts.len() {
        0 if round.number() == 0 => "Not a draft: the prompt's own pass gives the first token of every answer.",
        _ if round.drafts_unknown => "The server does not report whether further drafts of this round were rejected.",
        0 => "No drafts in this round: a plain pass over one row.",
        _ => "No draft stands here: this is the row after the last draft, from which the bonus comes.",
    }
}

fn targets(screen: Screen, round: &Round, column: usize, area: Rect, frame: &mut Frame) {
    let asked = if round.is_asked { ", asked afterwards" } else { "" };
    let title = format!(" Target's p after {}{asked} ", counted(position(round, column) as usize, "token"));
    let room = area.width.saturating_sub(title.width() as u16 + 3);
    let inner = framed(screen.panel(title).title_right(hero::in_title(screen, room)), area, frame);
    let is_reported = |row: &&Prediction| !row.top.is_empty() || screen.engine().is_none();
    let Some(row) = round.prediction(column).filter(is_reported) else {
        let text = unreported(screen, round);
        put(wrapped(&text, inner.width, screen.theme[Role::TextDim]), inner, frame);
        return;
    };
    let mut named = Vec::new();
    let taken = round.next_piece().filter(|_| round.next_index() == Some(column));
    if let Some(piece) = &taken {
        named.push(Named { piece, note: "taken", role: sign(next_fate(round)).0, prob: None });
    }
    if let Some(cell) = round.drafts.get(column) {
        let prob = round.judgement(column).and_then(|judgement| judgement.p);
        named.push(Named { piece: &cell.token, note: "draft", role: sign(fate_of(round, column)).0, prob });
    }
    let residual = residual(round, column).filter(|_| inner.height >= 8);
    // the residual gets half of the height
    let below = if grammar::before_mask(screen).is_some() { 4 } else { 0 };
    let height = inner.height.saturating_sub(below).max(4) / if residual.is_some() { 2 } else { 1 };
    let upper = Rect { height, ..inner };
    let mut lines = bars(screen, row, &named, REST, upper);
    if let Some(residual) = residual {
        let left = usize::from(inner.height).saturating_sub(lines.len() + usize::from(below));
        lines.push(Line::default());
        let room = Rect { height: left.saturating_sub(1) as u16, ..inner };
        lines.extend(redraw(screen, round, column, &residual, room));
    }
    if let Some(text) = grammar::before_mask(screen) {
        lines.push(Line::default());
        lines.extend(wrapped(&text, inner.width, screen.theme[Role::TextDim]));
    }
    put(lines, inner, frame);
}

/// Why there is no prediction.
fn unreported(screen: Screen, round: &Round) -> String {
    let Some(engine) = screen.engine().filter(|_| round.is_complete()) else {
        return "The target has not run yet.".to_owned();
    };
    let name = text::one_line(&engine.name);
    match engine.abilities.contains(&Ability::AskRows) && !round.is_asked {
        true => {
            let key = screen.app.key(Action::AskRows);
            format!("{name} does not report its predictions; {key} asks for them, one request a token.")
        }
        false => format!("{name} reports no prediction for this row."),
    }
}

/// The residual, and the token that was drawn from it.
fn redraw(screen: Screen, round: &Round, column: usize, residual: &Residual, area: Rect) -> Vec<Line<'static>> {
    let all: f32 = residual.left.top.iter().map(|candidate| candidate.prob).sum::<f32>() + residual.left.tail;
    let title = match residual.is_bound {
        true => "left over for a redraw: max(0, p − q), not normalised".to_owned(),
        false => format!("left over for a redraw: max(0, p − q), {all:.3} in all, not normalised"),
    };
    let mut lines = wrapped(&title, area.width, screen.theme[Role::PanelTitle]);
    let drawn = round.next_piece().filter(|_| round.next_index() == Some(column));
    let role = sign(next_fate(round)).0;
    let named: Vec<_> = drawn.iter().map(|piece| Named { piece, note: "drawn", role, prob: None }).collect();
    let is_listed = drawn.as_ref().is_none_or(|piece| residual.left.find(piece.id).is_some());
    let note = drawn.as_ref().filter(|_| !is_listed).map(|piece| {
        let text = format!("{} was drawn from the others", text::quoted(piece));
        Line::styled(cut(&text, area.width.into()), screen.theme[Role::TextDim])
    });
    let room = Rect { height: area.height.saturating_sub((lines.len() + note.iter().len()) as u16), ..area };
    lines.extend(bars(screen, &residual.left, &named, if residual.is_bound { "others, ≤" } else { REST }, room));
    lines.extend(note);
    lines
}

fn title(round: &Round, column: usize) -> String {
    match round.number() {
        0 => " Drafter's q, first token ".to_owned(),
        number => format!(" Drafter's q, round {number} position {} ", round.depth(column) + 1),
    }
}

/// A token with a part in the round, which is listed also where it is not among the best.
struct Named<'a> {
    piece: &'a Piece,
    note: &'static str,
    role: Role,
    /// Its probability, if it is known apart from the list.
    prob: Option<f32>,
}

/// A bar per candidate, and one for the tail, which is called `rest_name`. What is named is always listed, if its
/// probability is known.
fn bars(screen: Screen, row: &Prediction, named: &[Named], rest_name: &str, area: Rect) -> Vec<Line<'static>> {
    let room = usize::from(area.width).saturating_sub(NAME + 7 + 6);
    let line = |name: &str, prob: f32, note: &str, role: Role| {
        let (style, name) = (screen.theme[role], cut(name, NAME));
        let padding = " ".repeat(NAME.saturating_sub(name.width()));
        let mut spans = vec![Span::styled(name, style), Span::styled(padding, undecorated(style))];
        spans.push(Span::styled(format!(" {prob:.3} "), screen.theme[Role::Text]));
        spans.extend(bar(prob.into(), room, screen.theme[Role::PlotBar], screen.theme[Role::PlotRest]));
        spans.push(Span::styled(fit(&format!(" {note}"), 6), undecorated(style)));
        Line::from(spans)
    };
    let (shown, below) = listed(row, named, usize::from(area.height).saturating_sub(1));
    let listed = shown.iter().map(|candidate| candidate.prob).chain(below.iter().map(|(_, prob)| *prob));
    let all = row.top.iter().map(|candidate| candidate.prob).sum::<f32>() + row.tail;
    let rest = (all - listed.sum::<f32>()).max(0.0);
    let mut lines: Vec<_> = shown
        .iter()
        .map(|candidate| {
            let known = named.iter().find(|named| named.piece.id == candidate.piece.id && !named.piece.id.is_unknown());
            let (note, role) = known.map_or(("", Role::Text), |known| (known.note, known.role));
            line(&text::inline(&candidate.piece), candidate.prob, note, role)
        })
        .collect();
    lines.extend(below.iter().map(|(named, prob)| line(&text::inline(named.piece), *prob, named.note, named.role)));
    lines.push(line(rest_name, rest, "", Role::TextDim));
    lines
}

/// What fits in so many lines: the best candidates, and the named tokens that are not among these.
fn listed<'a>(row: &'a Prediction, named: &'a [Named], lines: usize) -> (&'a [Candidate], Vec<(&'a Named<'a>, f32)>) {
    let mut count = lines.min(row.top.len());
    loop {
        let shown = &row.top[..count];
        let is_below = |named: &&Named| shown.iter().all(|candidate| candidate.piece.id != named.piece.id);
        let prob = |named: &Named| row.find(named.piece.id).map(|found| found.1).or(named.prob);
        let below: Vec<_> = named.iter().filter(is_below).filter_map(|named| Some((named, prob(named)?))).collect();
        if count == 0 || count + below.len() <= lines {
            return (shown, below);
        }
        count -= 1;
    }
}
