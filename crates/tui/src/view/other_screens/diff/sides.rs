//! What each side reports about the chosen pair: its token, its two best candidates, the margin.
//!
//! Invariant: a row that the recording lacks is reported as missing, not guessed.

use crate::other_screens::diff::Compared;
use draftscope_session::{NEAR_TIE, Side};

use crate::view::prelude::*;

/// Names of the two sides, here and in the text report.
pub(super) const NAMES: [&str; 2] = ["first", "second"];

/// Height with its frame.
pub(super) const HEIGHT: u16 = 6;

/// Width of a candidate and its probability.
const NAME: usize = 16;
const PROB: usize = 8;

pub(super) fn render(screen: Screen, compared: &Compared, area: Rect, frame: &mut Frame) {
    let areas: [Rect; 2] = Layout::horizontal([Constraint::Fill(1), Constraint::Fill(1)]).areas(area);
    let pair = compared.laid().and_then(|laid| laid.pairs.get(compared.row));
    let answers = compared.answers();
    for (place, area) in areas.into_iter().enumerate() {
        let index = pair.and_then(|pair| [pair.a, pair.b][place]);
        let side = index.zip(answers).and_then(|(index, answers)| Side::at(answers[place], index));
        let title = match &side {
            Some(side) if side.round > 0 => format!(" {} · round {} ", NAMES[place], side.round),
            Some(_) => format!(" {} · from the prompt ", NAMES[place]),
            None => format!(" {} ", NAMES[place]),
        };
        let inner = framed(screen.panel(title), area, frame);
        let lines = match &side {
            Some(side) => lines(screen, side, inner.width.into()),
            None => vec![Line::styled("no token here", screen.theme[Role::TextDim])],
        };
        put(lines, inner, frame);
    }
}

fn lines(screen: Screen, side: &Side, width: usize) -> Vec<Line<'static>> {
    let of = Fate::Committed(side.provenance);
    let word = fate::LEGEND.iter().find(|(fate, _)| *fate == of).map_or("", |(_, names)| names[0]);
    let prob = side.prob.map_or(String::new(), |p| format!(" p {p:.4}"));
    let mut lines = vec![Line::from(vec![
        Span::styled("took ", screen.theme[Role::TextDim]),
        Span::styled(format!("{}{}", fate::sign(of), text::quoted(&side.token)), screen.theme[fate::role(of)]),
        Span::styled(format!(" {word}{prob}"), screen.theme[Role::TextDim]),
    ])];
    for candidate in &side.top {
        let room = width.saturating_sub(NAME + PROB);
        let name = format!("{}{:.4}", fit(&text::quoted(&candidate.piece), NAME), candidate.prob);
        let mut spans = vec![Span::styled(fit(&name, NAME + PROB), screen.theme[Role::Text])];
        let (full, rest) = (screen.theme[Role::PlotBar], screen.theme[Role::PlotRest]);
        spans.extend(bar(candidate.prob.into(), room, full, rest));
        lines.push(Line::from(spans));
    }
    lines.push(match side.margin {
        Some(margin) if margin < NEAR_TIE => {
            Line::styled(format!("margin {margin:.4}: a near tie"), screen.theme[Role::Warning])
        }
        Some(margin) => Line::styled(format!("margin {margin:.4}"), screen.theme[Role::TextDim]),
        None => Line::styled("the recording does not hold what it was picked from", screen.theme[Role::TextDim]),
    });
    lines
}
