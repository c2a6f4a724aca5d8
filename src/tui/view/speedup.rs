//! Speedup over time, with the break-even line at 1.
//!
//! Invariant: rounds are compared with plain passes that ran next to them; without any the curve is empty.

use ratatui::symbols::Marker;
use ratatui::widgets::{Dataset, GraphType};

use super::prelude::*;
use super::speed::{extent, plot, thinned};

pub(super) fn render(screen: Screen, area: Rect, frame: &mut Frame) {
    if area.is_empty() {
        return;
    }
    let inner = framed(screen.panel(" Speedup over time (• = plain, 1×) "), area, frame);
    let curve = screen.turn().map(curve).unwrap_or_default();
    if curve.is_empty() {
        return;
    }
    let (x, y) = extent(&[&curve, &[(0.0, 1.2)]]);
    let even = [(0.0, 1.0), (x, 1.0)];
    let set =
        |marker, role: Role| Dataset::default().marker(marker).graph_type(GraphType::Line).style(screen.theme[role]);
    let sets =
        vec![set(Marker::Dot, Role::PlotPlain).data(&even), set(Marker::Braille, Role::PlotSpeculative).data(&curve)];
    plot(screen, sets, (x, y), inner, frame);
}

fn curve(turn: &Turn) -> Vec<(f64, f64)> {
    let series = turn.speedup_series();
    thinned(series).map(|(clock_us, speedup)| (*clock_us as f64 / 1e6, *speedup)).collect()
}
