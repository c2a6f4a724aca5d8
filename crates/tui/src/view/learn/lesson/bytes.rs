//! Drawing: what a pass over one row and one over k + 1 rows read and multiply, and how long they took here.
//!
//! Invariant: bytes are those of the weights in memory, the number of weights is that of the model's matrices, times are
//! measured in the lesson's run. What is not known, or disturbed by other work, is not shown as a number.

use crate::view::learn::hidden::hides;
use crate::view::prelude::*;
use draftscope_learn::lesson::{Hidden, grouped};

/// Width of the labels and of the numbers after the bars.
const LABEL: usize = 9;
const NUMBER: usize = 22;

pub(super) fn render(screen: Screen, area: Rect, frame: &mut Frame) {
    let inner = framed(screen.panel(" What a pass costs: one row, and all rows of a round "), area, frame);
    let mut lines = content(screen, inner.width);
    // times are what the lesson is about: where not all fits, they stay
    let over = lines.len().saturating_sub(inner.height.into());
    put(lines.split_off(over), inner, frame);
}

/// All lines in so many columns.
pub(super) fn content(screen: Screen, width: u16) -> Vec<Line<'static>> {
    let Some(header) = screen.session.header() else {
        let text = "The numbers of the target stand here as soon as a run has begun.";
        return wrapped(text, width, screen.theme[Role::TextDim]);
    };
    let run = screen.app.learning.run();
    let first = || screen.app.learning.on_show()?.0.step.iter().find_map(|step| step.run.as_ref());
    let k = run.or_else(first).map_or(screen.session.settings().draft_len, |run| run.k);
    let costs = run.and_then(|run| run.turn(screen.session)).and_then(|turn| turn.pass_costs());
    let line = |label: &str, share: f64, number: String| {
        let room = usize::from(width).saturating_sub(LABEL + NUMBER + 1);
        let mut spans = vec![Span::styled(fit(label, LABEL), screen.theme[Role::TextDim])];
        spans.extend(bar(share, room, screen.theme[Role::PhaseVerify], screen.theme[Role::PlotRest]));
        spans.push(Span::styled(format!(" {}", fit(&number, NUMBER)), screen.theme[Role::Text]));
        Line::from(spans)
    };
    let caption = |text: &str| Line::styled(cut(text, width.into()), screen.theme[Role::PanelTitle]);
    let rows = u32::from(k) + 1;
    let all = format!("{rows} rows");
    let megabytes = header.model.weight_bytes as f64 / 1e6;
    let mut lines = vec![caption("bytes of weights read")];
    lines.push(line("1 row", 1.0, format!("{megabytes:.1} MB")));
    lines.push(line(&all, 1.0, format!("{megabytes:.1} MB: once")));
    let weights = header.model.active_weights;
    if weights > 0 {
        let millions = |rows: u32| format!("{:.0} million", weights as f64 * f64::from(rows) / 1e6);
        lines.push(caption(&format!("multiplications: {} weights, one each a row", grouped(weights))));
        lines.push(line("1 row", 1.0 / f64::from(rows), millions(1)));
        lines.push(line(&all, 1.0, millions(rows)));
    }
    let is_disturbed = costs.is_some_and(|costs| costs.impossible().is_some());
    let costs = costs.filter(|_| !is_disturbed);
    let measured = costs.and_then(|costs| Some((*costs.rows(1)?, *costs.rows(rows as usize)?)));
    match measured {
        _ if hides(screen, Hidden::Measured) => {}
        Some((one, every)) => {
            let longest = one.us.max(every.us);
            lines.push(caption("time, measured in this run"));
            lines.push(line("T(1)", one.us / longest, format!("{:.2} ms", one.us / 1e3)));
            let number = format!("{:.2} ms = {:.2} × T(1)", every.us / 1e3, every.ratio);
            lines.push(line(&format!("T({rows})"), every.us / longest, number));
        }
        None if is_disturbed => {
            let text = format!("T(1) and T({rows}) are not known on this busy machine: other work disturbed the run.");
            lines.extend(wrapped(&text, width, screen.theme[Role::TextDim]));
        }
        None => {
            let text = format!("T(1) and T({rows}), the times of these passes, are not measured yet.");
            lines.extend(wrapped(&text, width, screen.theme[Role::TextDim]));
        }
    }
    lines
}

/// Bits that a weight takes, with its share of the scales; none for a dtype that is not listed.
pub(super) fn bits(dtype: &str) -> Option<f64> {
    Some(match dtype {
        "f32" => 32.0,
        "f16" | "bf16" => 16.0,
        "q8_0" => 8.5,
        "q6_k" => 6.5625,
        "q5_k" | "q5_0" => 5.5,
        "q4_1" => 5.0,
        "q4_k" | "q4_0" => 4.5,
        "f8_e4m3" => 8.0,
        _ => return None,
    })
}
