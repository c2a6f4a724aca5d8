//! One position in numbers, and the reason for its verdict in one sentence.
//!
//! Invariant: each number is recorded or follows from recorded ones by the definition in `session::position`; an
//! unknown one is a dash.

use draftscope_session::{explain, facts};

use crate::view::prelude::*;
use crate::view::values::capital;

/// Name of the number that the page is about.
const P: &str = "p (target)";

/// Name of the draw, which is left out where the rule draws nothing.
const U: &str = "u (draw)";

/// Shown for a number that was not recorded.
const NONE: &str = "–";

/// Height with its frame.
pub(in crate::view) fn height(width: u16) -> u16 {
    if width < 100 { 7 } else { 6 }
}

pub(in crate::view) fn render(screen: Screen, area: Rect, frame: &mut Frame) {
    let inner = framed(screen.panel(" Why "), area, frame);
    let Some(round) = screen.app.round(screen.session).filter(|_| !inner.is_empty()) else {
        return;
    };
    let column = screen.app.place.cell.unwrap_or_else(|| round.deciding_column()).min(round.columns() - 1);
    let mut lines = Vec::new();
    if let Some(finding) = explain(round, column) {
        let sentence = capital(&finding.text);
        lines.extend(wrapped(&format!("{sentence}."), inner.width, screen.theme[Role::TextStrong]));
    }
    lines.extend(numbers(screen, round, column, inner.width));
    put(lines, inner, frame);
}

fn numbers(screen: Screen, round: &Round, column: usize, width: u16) -> Vec<Line<'static>> {
    let facts = facts(round, column);
    let shown = |value: Option<f32>, digits: usize| value.map_or(NONE.to_owned(), |v| format!("{v:.digits$}"));
    let pairs = [
        (P, shown(facts.p, 3)),
        ("q (drafter)", shown(facts.q, 3)),
        ("chance of acceptance", shown(facts.acceptance, 3)),
        (U, shown(facts.u, 3)),
        (
            "rank of the target's choice for the drafter",
            facts.rank.map_or(NONE.to_owned(), |rank| format!("{}", rank + 1)),
        ),
        ("margin of the target's best", shown(facts.margin, 3)),
        (
            "entropy p, q (bits, at least)",
            format!("{}, {}", shown(facts.target_entropy, 2), shown(facts.drafter_entropy, 2)),
        ),
        ("rule", rule(screen, round)),
    ];
    let mut flow = Flow::new(width);
    for (name, value) in pairs.into_iter().filter(|(name, value)| *name != U || value != NONE) {
        flow.keep_together(Span::raw(name).width() + Span::raw(&value).width() + 4);
        flow.push(&format!("{name} "), screen.theme[Role::TextDim]);
        match name {
            P => flow.push(&format!(" {value} "), screen.hero_style(Role::TextStrong)),
            _ => flow.push(&value, screen.theme[Role::TextStrong]),
        }
        flow.push("   ", screen.theme[Role::Text]);
    }
    flow.finish()
}

fn rule(screen: Screen, round: &Round) -> String {
    let temperature = round.sampling.temperature;
    match round.judged_by() {
        _ if !screen.session.reports_rule() => format!("set by the server, at T {temperature}"),
        rule if rule == round.rule => format!("{rule} at T {temperature}"),
        rule => format!("{rule} at T {temperature} ({} judges chains only)", round.rule),
    }
}
