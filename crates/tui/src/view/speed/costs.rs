//! What passes cost in the shown turn: T(m) ÷ T(1), and a drafted token.
//!
//! Invariant: the panel shows the account's numbers; only widths that occurred are shown, the current one always among
//! them; one that costs less than one row is dimmed where that is impossible.

use crate::view::prelude::*;
use draftscope_session::{PassCost, PassCosts};

pub(in crate::view) fn render(screen: Screen, area: Rect, frame: &mut Frame) {
    let title =
        if area.width < 46 { " Cost of a pass: T(m) ÷ T(1) " } else { " Cost of a pass: T(m) ÷ T(1), this turn " };
    let inner = framed(screen.panel(title), area, frame);
    if inner.is_empty() {
        return;
    }
    put(content(screen, inner), inner, frame);
}

/// Height that shows all of it, with its frame.
pub(in crate::view) fn height(screen: Screen, width: u16) -> u16 {
    let area = Rect { width: width.saturating_sub(2), height: u16::MAX, ..Rect::default() };
    content(screen, area).len() as u16 + FRAME
}

fn content(screen: Screen, inner: Rect) -> Vec<Line<'static>> {
    match screen.turn().and_then(|turn| Some((turn, turn.pass_costs()?))) {
        Some((turn, costs)) => table(screen, turn, costs, inner),
        None => {
            let text = match screen.engine() {
                Some(_) => "Not known: the server reports whole rounds, or too few of them with and without drafts.",
                None => {
                    "Rounds with and without drafts are needed: plain decoding runs beside a turn as a probe or a race."
                }
            };
            wrapped(text, inner.width, screen.theme[Role::TextDim])
        }
    }
}

/// A line a width: as many as fit, one row and the current width first, then the cost of a draft.
fn table(screen: Screen, turn: &Turn, costs: &PassCosts, area: Rect) -> Vec<Line<'static>> {
    let in_use =
        turn.answer(Lane::Speculative).rounds.iter().rev().map(|round| round.rows().len()).find(|rows| *rows > 0);
    let measured = measured(screen, turn, &costs.widths, area.width.into());
    let unmeasured = costs.unmeasured.iter().map(|rows| {
        let text = format!("{} measuring", label(*rows));
        (*rows, Line::styled(text, screen.theme[Role::TextDim]))
    });
    let mut rows: Vec<(usize, Line)> = measured.into_iter().chain(unmeasured).collect();
    rows.sort_by_key(|(rows, _)| *rows);
    let room = usize::from(area.height);
    // one row, the unit, and the current width stay; of the others the widest go first
    while rows.len() + 1 > room
        && let Some(at) = rows.iter().position(|(rows, _)| *rows != 1 && Some(*rows) != in_use)
    {
        rows.remove(at);
    }
    let mut lines: Vec<Line> = rows.into_iter().map(|(_, line)| line).collect();
    let (what, us) = match costs.draft_pass_us > 0.0 {
        true => ("the drafts' one pass", costs.draft_pass_us),
        false => ("a draft", costs.draft_us),
    };
    if us > 0.0 {
        let share = costs.widths.first().map_or(0.0, |one| us / one.us);
        lines.push(Line::styled(format!("{what} (median): {share:.2} of T(1)"), screen.theme[Role::Text]));
    }
    lines.truncate(room); // a row that ends in dots would look like a number that is cut
    lines
}

fn label(rows: usize) -> String {
    format!("{rows:>2} row{} ", if rows == 1 { " " } else { "s" })
}

/// Rows of the measured widths: bars of one scale, then the ratio with its interval, the time, on a GPU also that on the device,
/// and how many passes. Intervals are left out first where there is no room, then times on the device.
fn measured(screen: Screen, turn: &Turn, widths: &[PassCost], width: usize) -> Vec<(usize, Line<'static>)> {
    const LABEL: usize = 8;
    let ends = |(with_margin, on_device): (bool, bool)| -> (Vec<String>, usize) {
        let end = |cost: &PassCost| {
            let margin = cost.margin().filter(|_| with_margin).map_or(String::new(), |margin| format!(" ±{margin:.2}"));
            let device =
                cost.device_us.filter(|_| on_device).map_or(String::new(), |us| format!(", GPU {:.2}", us / 1e3));
            format!(" {:.2}×{margin} {:>6.2} ms{device} ({})", cost.ratio, cost.us / 1e3, cost.count)
        };
        let ends: Vec<String> = widths.iter().map(end).collect();
        let widest = ends.iter().map(|end| Span::raw(end).width()).max().unwrap_or(0);
        (ends, width.saturating_sub(LABEL + widest))
    };
    let mut forms = [(true, true), (false, true), (true, false)].into_iter().map(&ends);
    let (ends, room) = forms.find(|(_, room)| *room >= 4).unwrap_or_else(|| ends((false, false)));
    let most = widths.iter().map(|cost| cost.ratio).fold(1.0, f64::max);
    let row = |(cost, end): (&PassCost, String)| {
        let is_disturbed = turn.has_ceiling() && cost.is_below_one_row();
        let role = if is_disturbed { Role::TextDim } else { Role::Text };
        let mut spans = vec![Span::styled(label(cost.rows), screen.theme[Role::TextDim])];
        spans.extend(bar(cost.ratio / most, room, screen.theme[Role::PhaseVerify], screen.theme[Role::PlotRest]));
        spans.push(Span::styled(end, screen.theme[role]));
        (cost.rows, Line::from(spans))
    };
    widths.iter().zip(ends).map(row).collect()
}
