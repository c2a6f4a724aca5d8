//! What changes as the context grows: the share of drafts accepted, tokens per round, times of passes, and the speedup.
//!
//! Invariant: columns are ranges of positions of equal width in the shown turn; what was not measured in a range is a dash.

use draftscope_session::{ContextSlice, by_context};

use crate::view::prelude::*;
use crate::view::screen::listed;
use crate::view::values::number;

/// Height of the panel, and the least: the last rows are left out where there is no room.
pub(in crate::view) const HEIGHT: u16 = 6 + FRAME;
pub(in crate::view) const LEAST: u16 = 3 + FRAME;

/// Width of the names, and of a column.
const NAME: usize = 11;
const COLUMN: usize = 12;

/// Width of a bar in a column.
const BAR: usize = 3;

pub(in crate::view) fn render(screen: Screen, area: Rect, frame: &mut Frame) {
    if area.is_empty() {
        return;
    }
    let inner = framed(screen.panel(" With more context "), area, frame);
    let slices = slices(screen, inner.width);
    let most = slices.iter().flat_map(|slice| [slice.one_row_us, slice.drafted_us]).flatten().fold(0.0, f64::max);
    let best = slices.iter().filter_map(|slice| slice.speedup).fold(1.0, f64::max);
    let row = |name: &str, cells: Vec<(String, Option<f64>)>| {
        let mut spans = vec![Span::styled(fit(name, NAME), screen.theme[Role::TextDim])];
        for (text, share) in cells {
            spans.push(Span::styled(format!("{text:<width$}", width = COLUMN - BAR - 1), screen.theme[Role::Text]));
            let drawn = share.map_or_else(Vec::new, |share| {
                bar(share, BAR, screen.theme[Role::PlotBar], screen.theme[Role::PlotRest])
            });
            let gap = COLUMN - (COLUMN - BAR - 1) - drawn.iter().map(Span::width).sum::<usize>();
            spans.extend(drawn);
            spans.push(Span::raw(" ".repeat(gap)));
        }
        Line::from(spans)
    };
    let column = |of: &dyn Fn(&ContextSlice) -> (String, Option<f64>)| slices.iter().map(of).collect::<Vec<_>>();
    let lines = vec![
        row("positions", column(&|slice| (format!("{}–{}", slice.from, slice.to), None))),
        row("accepted", column(&|slice| (of_share(slice.accepted_share), slice.accepted_share))),
        row("T(1) in ms", column(&|slice| (of_time(slice.one_row_us), slice.one_row_us.map(|us| us / most)))),
        row("T(k+1)", column(&|slice| (of_time(slice.drafted_us), slice.drafted_us.map(|us| us / most)))),
        row("tok/round", column(&|slice| (number(slice.tokens_per_round, 2), None))),
        row("speedup", column(&|slice| (of_speedup(slice.speedup), slice.speedup.map(|speedup| speedup / best)))),
    ];
    put(listed(screen, lines, inner), inner, frame);
}

/// Whether there is more than one range to compare.
pub(in crate::view) fn is_known(screen: Screen, width: u16) -> bool {
    slices(screen, width.saturating_sub(2)).len() > 1
}

fn slices(screen: Screen, width: u16) -> Vec<ContextSlice> {
    let most = usize::from(width).saturating_sub(NAME) / COLUMN;
    let Some(turn) = screen.turn().filter(|_| most > 0) else { return Vec::new() };
    by_context(turn.answer(Lane::Speculative).stats(), turn.answer(Lane::Plain).stats(), most)
}

fn of_share(share: Option<f64>) -> String {
    share.map_or_else(|| "–".to_owned(), |share| format!("{:.0} %", share * 100.0))
}

fn of_speedup(speedup: Option<f64>) -> String {
    speedup.map_or_else(|| "–".to_owned(), |speedup| format!("{speedup:.2}×"))
}

fn of_time(us: Option<f64>) -> String {
    us.map_or_else(|| "–".to_owned(), |us| format!("{:.1}", us / 1e3))
}
