//! The share of drafts accepted over the answer, below the curve of the speedup and on its clock.

use crate::widgets::area_plot::AreaPlot;
use draftscope_session::ACCEPTED_WINDOW;

use crate::view::prelude::*;
use crate::view::speed::speedup::{end, look};

/// Height of the panel.
pub(in crate::view) const HEIGHT: u16 = 4 + FRAME;

/// Whether there is a curve.
pub(in crate::view) fn is_known(screen: Screen) -> bool {
    screen.turn().is_some_and(|turn| !turn.accepted_series().is_empty())
}

pub(in crate::view) fn render(screen: Screen, area: Rect, frame: &mut Frame) {
    if area.is_empty() {
        return;
    }
    let name = Line::styled(format!(" mean of {ACCEPTED_WINDOW} rounds "), screen.dim_title());
    let inner = framed(screen.panel(" Drafts accepted ").title_right(name), area, frame);
    let series = screen.turn().map(Turn::accepted_series).unwrap_or_default();
    let points: Vec<_> = series.iter().map(|(clock_us, share)| (*clock_us as f64 / 1e6, share * 100.0)).collect();
    let plot = AreaPlot {
        points: &points,
        end: screen.turn().map_or(0.0, end),
        before: &[],
        base: 0.0,
        name: "",
        label: |percent| format!("{percent:.0}%"),
        marks: &[],
        has_times: false,
        look: look(screen),
    };
    plot.render(inner, frame.buffer_mut());
}
