//! Drawing: one position decided a thousand times under each rule, against p.
//!
//! Invariant: counts come from the engine's rules on the lesson's example, which is named as one; only what chance cannot
//! explain is marked as different from p.

use crate::view::prelude::*;
use draftscope_learn::lesson::grouped;
use draftscope_learn::theory::{DRAWS, Tally, tallies};

/// Width of a rule's name, and of what stands after the last candidate.
const NAME: usize = 11;
const TAIL: usize = 13;

/// Width of a share after its bar.
const SHARE: usize = 5;

pub(super) fn render(screen: Screen, area: Rect, frame: &mut Frame) {
    let title = format!(" {} draws at one position, under each rule: an example ", grouped(DRAWS as u64));
    let inner = framed(screen.panel(title), area, frame);
    put(content(screen, inner.width), inner, frame);
}

/// All lines in so many columns.
pub(super) fn content(screen: Screen, width: u16) -> Vec<Line<'static>> {
    let step = screen.app.learning.step();
    let Some(example) = step.and_then(|step| step.example.as_ref()).filter(|example| !example.p.is_empty()) else {
        return Vec::new();
    };
    let cell = (usize::from(width).saturating_sub(NAME + TAIL) / example.p.len()).max(SHARE + 3);
    let row = |name: &str, shares: &[f64], tail: String, (role, bars): (Role, Role)| {
        let mut spans = vec![Span::styled(fit(name, NAME), screen.theme[role])];
        for share in shares {
            spans.extend(bar(*share, cell.saturating_sub(SHARE + 1), screen.theme[bars], screen.theme[Role::PlotRest]));
            spans.push(Span::styled(fit(&format!("{:>3.0} % ", share * 100.0), SHARE + 1), screen.theme[Role::Text]));
        }
        spans.push(Span::styled(cut(&tail, TAIL), screen.theme[role]));
        Line::from(spans)
    };
    let names: String = example.tokens.iter().map(|token| fit(token, cell)).collect();
    let heading = format!("{}{names}{}", fit("", NAME), "accepted");
    let mut lines = vec![
        Line::styled(cut(&heading, width.into()), screen.theme[Role::TextDim]),
        row("target's p", &example.p, String::new(), (Role::PanelTitle, Role::PlotBar)),
    ];
    for tally in tallies(&example.p, &example.q) {
        let agrees = tally.agrees(&example.p);
        let name = tally.rule.map_or("plain".to_owned(), |rule| rule.to_string());
        let roles = if agrees { (Role::Text, Role::PlotPlain) } else { (Role::Warning, Role::PlotSpeculative) };
        lines.push(row(&name, &tally.shares, tail(&tally, agrees), roles));
    }
    let note = "≠ differs from p by more than chance explains (three standard errors).";
    lines.extend(wrapped(note, width, screen.theme[Role::TextDim]));
    lines
}

/// How often drafts were accepted, and whether the text follows p.
fn tail(tally: &Tally, agrees: bool) -> String {
    let accepted = tally.accepted.map_or("–".to_owned(), |share| format!("{:.0} %", share * 100.0));
    format!("{accepted:>5} {}", if agrees { "= p" } else { "≠ p" })
}
