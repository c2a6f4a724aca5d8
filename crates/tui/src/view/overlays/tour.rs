//! The tour: a box that explains the lit pane.

use crate::app::clock::tour::{SECONDS, STOPS, stop};

use crate::view::prelude::*;
use crate::view::screens;

pub(in crate::view) fn render(screen: Screen, area: Rect, frame: &mut Frame) {
    let Some((seconds, (index, _, text))) = screen.app.clock.tour.and_then(|seconds| Some((seconds, stop(seconds)?)))
    else {
        return;
    };
    let width = area.width.min(62);
    let mut lines = wrapped(text, width.saturating_sub(4), screen.theme[Role::Text]);
    lines.push(Line::default());
    let passed: String = (0..STOPS.len() * SECONDS).map(|second| if second <= seconds { '█' } else { '┈' }).collect();
    lines.push(Line::styled(passed, screen.theme[Role::TextDim]));
    // above the middle, so that the round and the prompt stay in view
    let upper = Rect { height: (area.height * 2 / 3).max(lines.len() as u16 + 2).min(area.height), ..area };
    let area = screens::centre(upper, width, (lines.len() as u16 + 2).min(upper.height));
    let title = format!(" Tour, {} of {}: → next, Esc ends ", index + 1, STOPS.len());
    let inner = screen.over(screen.panel(title), area, frame);
    put(lines, Rect { x: inner.x + 1, width: inner.width.saturating_sub(2), ..inner }, frame);
}
