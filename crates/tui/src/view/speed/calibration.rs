//! Whether the drafter knows when it is right: drafts by its q, and how many of them the target accepted.
//!
//! Invariant: only tested drafts with a q; the mark stands at the mean q of a range, where its bar would end if q foretold
//! acceptance.

use draftscope_session::{Calibration, Q_RANGES, QRange};

use crate::view::prelude::*;

/// Height of the panel.
pub(in crate::view) const HEIGHT: u16 = Q_RANGES as u16 + FRAME;

/// Names of the ranges.
const NAMES: [&str; Q_RANGES] = ["q < .2 ", ".2 – .4", ".4 – .6", ".6 – .8", "q ≥ .8 "];

/// Drafts of the shown turn; none if too few have a q.
fn known<'a>(screen: Screen<'a>) -> Option<&'a Calibration> {
    let calibration = screen.turn()?.answer(Lane::Speculative).stats().calibration();
    (calibration.tested() > 0).then_some(calibration)
}

/// Whether there is something to show.
pub(in crate::view) fn is_known(screen: Screen) -> bool {
    known(screen).is_some()
}

pub(in crate::view) fn render(screen: Screen, area: Rect, frame: &mut Frame) {
    if area.is_empty() {
        return;
    }
    let legend = Line::styled(format!(" {MARK} if it did "), screen.dim_title());
    let inner = framed(screen.panel(" Does q foretell acceptance? ").title_right(legend), area, frame);
    let Some(calibration) = known(screen) else { return };
    let lines = calibration.ranges().iter().zip(NAMES).map(|(range, name)| line(screen, name, range, inner.width));
    put(lines.collect(), inner, frame);
}

/// Where a bar would end.
const MARK: &str = "◆";

fn line(screen: Screen, name: &str, range: &QRange, width: u16) -> Line<'static> {
    let tail = match range.accepted_share() {
        Some(share) => format!(" {:>3.0}% {}/{}", share * 100.0, range.accepted, range.tested),
        None => "    –".to_owned(),
    };
    let tail = format!("{tail:<14}");
    let room = usize::from(width).saturating_sub(name.width() + 1 + tail.width());
    let mut spans = vec![Span::styled(format!("{name} "), screen.theme[Role::TextDim])];
    let (full, rest) = (screen.theme[Role::PlotBar], screen.theme[Role::PlotRest]);
    spans.extend(marked(bar(range.accepted_share().unwrap_or(0.0), room, full, rest), range.mean_q(), room, screen));
    spans.push(Span::styled(tail, screen.theme[Role::Text]));
    Line::from(spans)
}

/// A bar with the mark over one of its cells.
fn marked(bar: Vec<Span<'static>>, at: Option<f64>, room: usize, screen: Screen) -> Vec<Span<'static>> {
    let Some(at) = at.filter(|_| room > 0) else { return bar };
    let at = ((at * room as f64) as usize).min(room - 1);
    let (mut spans, mut passed) = (Vec::new(), 0);
    for span in bar {
        let cells: Vec<char> = span.content.chars().collect();
        let local = at.checked_sub(passed).filter(|local| *local < cells.len());
        passed += cells.len();
        match local {
            None => spans.push(span),
            Some(local) => {
                spans.push(Span::styled(cells[..local].iter().collect::<String>(), span.style));
                spans.push(Span::styled(MARK, screen.theme[Role::TextStrong]));
                spans.push(Span::styled(cells[local + 1..].iter().collect::<String>(), span.style));
            }
        }
    }
    spans
}
