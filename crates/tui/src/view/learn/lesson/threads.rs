//! Drawing: how long passes over one row and over several took on all threads, and on fewer.
//!
//! Invariant: times are measured in the lesson's run, each width beside one row. What is not known, or disturbed by other
//! work, is not shown as a number.

use crate::view::learn::hidden::hides;
use crate::view::prelude::*;
use draftscope_learn::lesson::Hidden;
use draftscope_protocol::Lane;
use draftscope_session::{PassCost, PassCosts, Turn};

/// Width of the labels and of the numbers after the bars.
const LABEL: usize = 7;
const NUMBER: usize = 24;

pub(super) fn render(screen: Screen, area: Rect, frame: &mut Frame) {
    let inner = framed(screen.panel(" What passes cost, by the number of threads "), area, frame);
    put(content(screen, inner.width), inner, frame);
}

/// All lines in so many columns.
pub(super) fn content(screen: Screen, width: u16) -> Vec<Line<'static>> {
    let run = screen.app.learning.run();
    let all = screen.session.header().map(|header| u16::try_from(header.threads).unwrap_or(u16::MAX));
    let Some(((run, all), false)) = run.zip(all).map(|known| (known, hides(screen, Hidden::Measured))) else {
        let text = "Times of passes on all threads, and on fewer, stand here once they are measured.";
        return wrapped(text, width, screen.theme[Role::TextDim]);
    };
    let mut groups = vec![(run.threads.min(all), run.turn(screen.session).map(widths))];
    if all > run.threads {
        groups.insert(0, (all, run.turn_on_all(screen.session).map(widths)));
    }
    let times = groups.iter().filter_map(|(_, widths)| widths.as_deref()).flatten().map(|cost| cost.us);
    let longest = times.fold(f64::EPSILON, f64::max);
    let mut lines = Vec::new();
    for (threads, widths) in &groups {
        let noun = if *threads == 1 { "thread" } else { "threads" };
        let alone = if groups.len() == 1 { ": this engine has no more" } else { "" };
        lines.push(Line::styled(format!("on {threads} {noun}{alone}"), screen.theme[Role::PanelTitle]));
        match widths {
            Some(widths) if !widths.is_empty() => {
                lines.extend(widths.iter().map(|cost| line(screen, cost, longest, width)));
            }
            found => {
                let why = if found.is_some() { "other work disturbed the run" } else { "not measured yet" };
                lines.extend(wrapped(why, width, screen.theme[Role::TextDim]));
            }
        }
    }
    lines
}

/// Passes over one row, and the widths of both lanes that draft; none if other work disturbed them.
fn widths(turn: &Turn) -> Vec<PassCost> {
    let rival = PassCosts::of_lane(turn, Lane::Rival);
    let lanes: Vec<&PassCosts> = turn.pass_costs().into_iter().chain(&rival).collect();
    if lanes.iter().any(|costs| costs.impossible().is_some()) {
        return Vec::new();
    }
    let mut widths: Vec<PassCost> = lanes.iter().flat_map(|costs| costs.widths.iter().copied()).collect();
    widths.sort_by_key(|cost| cost.rows);
    widths.dedup_by_key(|cost| cost.rows);
    widths
}

fn line(screen: Screen, cost: &PassCost, longest: f64, width: u16) -> Line<'static> {
    let room = usize::from(width).saturating_sub(LABEL + NUMBER + 1);
    let ratio = if cost.rows > 1 { format!(" = {:.2} × T(1)", cost.ratio) } else { String::new() };
    let mut spans = vec![Span::styled(fit(&format!("T({})", cost.rows), LABEL), screen.theme[Role::TextDim])];
    spans.extend(bar(cost.us / longest, room, screen.theme[Role::PhaseVerify], screen.theme[Role::PlotRest]));
    spans.push(Span::styled(
        format!(" {}", fit(&format!("{:.2} ms{ratio}", cost.us / 1e3), NUMBER)),
        screen.theme[Role::Text],
    ));
    Line::from(spans)
}
