//! Drawing: p and q of each candidate, the chance min(1, p/q) that a draft of it is accepted, and the residual
//! max(0, p − q) from which a rejected draft is replaced (Leviathan et al., arXiv:2211.17192, section 2.3).
//!
//! Invariant: the numbers are those of the lesson's example, computed here; an example is named as one.

use crate::view::learn::hidden::hides;
use crate::view::prelude::*;
use draftscope_learn::lesson::{Example, Hidden};

/// Width of a candidate's name, and of what stands after its bar.
const NAME: usize = 9;
const TAIL: usize = 31;

pub(super) fn render(screen: Screen, area: Rect, frame: &mut Frame) {
    let inner = framed(screen.panel(" p, q, min(1, p/q) and max(0, p − q): an example "), area, frame);
    put(content(screen, inner.width), inner, frame);
}

/// All lines in so many columns.
pub(super) fn content(screen: Screen, width: u16) -> Vec<Line<'static>> {
    let step = screen.app.learning.step();
    let Some(example) = step.and_then(|step| step.example.as_ref()) else { return Vec::new() };
    let left: f64 = example.p.iter().zip(&example.q).map(|(p, q)| (p - q).max(0.0)).sum();
    let room = usize::from(width).saturating_sub(NAME + TAIL + 4).max(4);
    let line = |name: &str, letter: &str, share: f64, tail: String, role: Role| {
        let mut spans = vec![
            Span::styled(fit(name, NAME), screen.theme[Role::TextStrong]),
            Span::styled(format!("{letter} {share:.2} "), screen.theme[Role::Text]),
        ];
        spans.extend(bar(share, room.saturating_sub(3), screen.theme[role], screen.theme[Role::PlotRest]));
        spans.push(Span::styled(format!(" {}", fit(&tail, TAIL)), screen.theme[Role::Text]));
        Line::from(spans)
    };
    let mut lines = Vec::new();
    for (index, token) in example.tokens.iter().enumerate() {
        let (Some(p), Some(q)) = (example.p.get(index), example.q.get(index)) else { continue };
        let chance = match () {
            () if hides(screen, Hidden::Chance) => String::new(),
            () if *q > 0.0 => format!("accepted: min(1, p/q) = {:.2}", (p / q).min(1.0)),
            () => "never drafted".to_owned(),
        };
        let over = (p - q).max(0.0);
        let share = if left > 0.0 { format!(", {:.0} % of it", 100.0 * over / left) } else { String::new() };
        let over = if hides(screen, Hidden::LeftOver) { String::new() } else { format!("left over: {over:.2}{share}") };
        lines.push(line(token, "p", *p, chance, Role::PlotSpeculative));
        lines.push(line("", "q", *q, over, Role::PlotPlain));
    }
    if !hides(screen, Hidden::Chance) {
        let said = match example.top_k {
            0 => format!(
                "In all Σ min(p, q) = {:.2} of the drafts are accepted. The other {left:.2} are replaced by a draw from what \
                 is left over.",
                1.0 - left
            ),
            k => side_by_side(example, k.into()),
        };
        lines.extend(wrapped(&said, width, screen.theme[Role::TextDim]));
    }
    lines
}

/// How often a draft is accepted by two lossless rules and by one that is not.
fn side_by_side(example: &Example, k: usize) -> String {
    let pairs = || example.p.iter().zip(&example.q);
    let [both, least] = [pairs().map(|(p, q)| p * q).sum::<f64>(), pairs().map(|(p, q)| p.min(*q)).sum::<f64>()];
    let better = |p: &f64| example.p.iter().filter(|other| *other > p).count();
    let among: f64 = pairs().filter(|(p, _)| better(p) < k).map(|(_, q)| q).sum();
    format!(
        "Accepted by exact: Σ p·q = {both:.2}. By rejection: Σ min(p, q) = {least:.2}. By top-k with k = {k}: {among:.2}."
    )
}
