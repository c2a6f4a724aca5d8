//! Speedup over the answer: gain above the line of plain decoding, loss below it.
//!
//! Invariant: rounds are compared with plain passes that ran next to them. Without any there is no axis and no line:
//! until the speed is known, what came of each round stands in its place. The axis is the clock of the answer, so it ends
//! where that ends; where it has no curve yet, it says why.

use crate::widgets::area_plot::{AreaPlot, Look};
use draftscope_session::WINDOW;

use crate::view::prelude::*;
use crate::view::speed::per_round;

/// Rounds that the curve leaves out: a window of one or two means nothing and spoils the scale.
const SETTLING: usize = 3;

pub(in crate::view) fn render(screen: Screen, area: Rect, frame: &mut Frame) {
    if area.is_empty() {
        return;
    }
    let points = screen.turn().map(points).unwrap_or_default();
    if points.is_empty() {
        per_round::columns(screen, area, frame);
        return;
    }
    let name = Line::styled(format!(" mean of {WINDOW} tokens "), screen.dim_title());
    let inner = framed(screen.panel(" Speedup over the answer ").title_right(name), area, frame);
    let plot = AreaPlot {
        points: &points,
        end: screen.turn().map_or(0.0, end),
        before: screen.turn().map_or(&[], before),
        base: 1.0,
        name: "plain decoding",
        label,
        marks: &screen.turn().map(changes).unwrap_or_default(),
        has_times: true,
        look: look(screen),
    };
    plot.render(inner, frame.buffer_mut());
}

/// Whether there is a curve.
pub(in crate::view) fn is_known(screen: Screen) -> bool {
    screen.turn().is_some_and(|turn| turn.speedup_series().len() > SETTLING)
}

fn points(turn: &Turn) -> Vec<(f64, f64)> {
    let settled = turn.speedup_series().get(SETTLING..).unwrap_or_default();
    settled.iter().map(|(clock_us, speedup)| (*clock_us as f64 / 1e6, *speedup)).collect()
}

/// Where the clock of the answer stands, in seconds.
pub(super) fn end(turn: &Turn) -> f64 {
    turn.round_clock().last().map_or(0.0, |us| *us as f64 / 1e6)
}

/// Why the curve does not begin with the answer, the longest words first.
fn before(turn: &Turn) -> &'static [&'static str] {
    match turn.answer(Lane::Speculative).rounds.first().is_some_and(|round| !round.is_timed()) {
        true => &["slow rounds are not timed", "slow: not timed", "not timed", "slow"],
        false => &["first measurements", "measuring", "start"],
    }
}

/// When other settings came into force, on the clock of the answer.
fn changes(turn: &Turn) -> Vec<f64> {
    let clock = turn.round_clock();
    let starts = turn.settings_spans().iter().filter_map(|span| span.rounds.start.checked_sub(1));
    starts.filter_map(|before| Some(*clock.get(before)? as f64 / 1e6)).collect()
}

/// A multiple as ticks name it.
fn label(value: f64) -> String {
    let tenths = (value * 10.0).round() / 10.0;
    if (tenths - tenths.round()).abs() < 1e-6 { format!("{tenths:.0}×") } else { format!("{tenths:.1}×") }
}

/// Gain and loss; a disturbed measurement has neither.
pub(in crate::view) fn look(screen: Screen) -> Look {
    let is_disturbed = screen.turn().and_then(Turn::disturbance).is_some();
    let of = |role: Role| screen.theme[if is_disturbed { Role::TextDim } else { role }];
    Look {
        gain: of(Role::PlotSpeculative),
        loss: of(Role::PlotLoss),
        axis: screen.theme[Role::PlotAxis],
        label: screen.theme[Role::TextDim],
        is_ascii: screen.app.options.ascii,
    }
}
