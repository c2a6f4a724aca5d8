//! Both runs in numbers, and the header fields that differ.
//!
//! Invariant: numbers are those of the whole speculative lane; a quotient without measurements is a dash.

use crate::other_screens::diff::Compared;
use crate::view::prelude::*;
use crate::view::values::number;
use draftscope_protocol::RunSummary;

/// Width of the names of rows.
const LABEL: usize = 20;

/// Reads a figure off a run.
type Figure = fn(&RunSummary) -> String;

const FIGURES: [(&str, Figure); 4] = [
    ("tokens/s", |run| number(run.tokens_per_second, 1)),
    ("accepted", |run| number(run.draft_acceptance_rate, 3)),
    ("tokens/round", |run| number(tokens_per_round(run), 2)),
    ("rounds", |run| run.rounds.to_string()),
];

/// Committed ÷ rounds, as everywhere on the screen: the end of an answer may cut accepted drafts.
fn tokens_per_round(run: &RunSummary) -> Option<f64> {
    let committed = run.tokens_per_second? * run.decode_seconds;
    (run.rounds > 0).then(|| committed / run.rounds as f64)
}

/// Height with its frame: more where there is room for more that differs.
pub(super) fn height(compared: &Compared, area: Rect) -> u16 {
    let rows = compared.diff.differs_in.len().max(FIGURES.len()) as u16;
    let room = if area.height < 30 { FIGURES.len() as u16 } else { 11 };
    rows.min(room) + 3
}

pub(super) fn render(screen: Screen, compared: &Compared, area: Rect, frame: &mut Frame) {
    let [left, right] = Layout::horizontal([Constraint::Fill(1), Constraint::Fill(1)]).areas(area);
    let heads = ["first".to_owned(), "second".to_owned()];
    let figures = FIGURES.iter().map(|(name, of)| {
        let row = [of(&compared.diff.runs[0]), of(&compared.diff.runs[1])];
        ((*name).to_owned(), row)
    });
    let ratio = compared.diff.speed_ratio.map_or(String::new(), |ratio| format!("· second ÷ first {ratio:.2}× "));
    table(screen, &format!(" Runs {ratio}"), (&heads, figures.collect()), left, frame);
    let clean = |value: &str| text::one_line(value).into_owned();
    let differs = compared.diff.differs_in.iter().map(|(name, a, b)| (name.clone(), [clean(a), clean(b)]));
    table(screen, " They differ in ", (&heads, differs.collect()), right, frame);
}

fn table(
    screen: Screen,
    title: &str,
    (heads, rows): (&[String; 2], Vec<(String, [String; 2])>),
    area: Rect,
    frame: &mut Frame,
) {
    let inner = framed(screen.panel(title.to_owned()), area, frame);
    let label = LABEL.min(usize::from(inner.width) * 2 / 5);
    let value = usize::from(inner.width).saturating_sub(label) / 2;
    let line = |name: &str, values: &[String; 2], role| {
        Line::from(vec![
            Span::styled(fit(name, label), screen.theme[Role::TextDim]),
            Span::styled(fit(&values[0], value), screen.theme[role]),
            Span::styled(fit(&values[1], value), screen.theme[role]),
        ])
    };
    let mut lines = vec![line("", heads, Role::TextDim)];
    let room = usize::from(inner.height).saturating_sub(1);
    let shown = if rows.len() > room { room.saturating_sub(1) } else { rows.len() };
    lines.extend(rows[..shown].iter().map(|(name, values)| line(name, values, Role::Text)));
    match rows.len() - shown {
        0 if rows.is_empty() => lines = vec![Line::styled("nothing they were made of", screen.theme[Role::TextDim])],
        0 => {}
        more => {
            let text = cut(&format!("and {more} more: diff without --tui"), inner.width.into());
            lines.push(Line::styled(text, screen.theme[Role::TextDim]));
        }
    }
    put(lines, inner, frame);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_that_were_cut_are_not_counted() {
        let run = RunSummary {
            rounds: 4,
            mean_acceptance_length: Some(2.5),
            decode_seconds: 0.5,
            tokens_per_second: Some(16.0),
            ..RunSummary::default()
        };
        assert_eq!(tokens_per_round(&run), Some(2.0));
        assert_eq!(tokens_per_round(&RunSummary::default()), None);
    }
}
