//! Speedup against k, or against acceptance where the dial sets it: the measured one of what is in use, and what the
//! account predicts for the rest.
//!
//! Invariant: a column is measured or predicted, and looks it; predictions are those of [`Account`], beyond the deepest
//! draft that was tested none.

use draftscope_learn::lesson::Hidden;
use draftscope_protocol::{DraftLenMode, DrafterKind};
use draftscope_session::SettingsSpan;
use draftscope_session::account::{Account, speedup_at};

use crate::view::learn::hidden::hides;
use crate::view::prelude::*;

/// Least and usual height of the panel.
pub(in crate::view) const LEAST: u16 = 5 + FRAME;

/// A column: its place on the axis, its speedup, and whether that was measured.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Worth {
    /// k, or the acceptance.
    at: f64,
    speedup: f64,
    is_measured: bool,
}

/// What the columns stand for.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Axis {
    /// k.
    DraftLen,
    /// The share of judged drafts that the target accepts, for this k.
    Acceptance(usize),
}

impl Axis {
    /// Acceptance while the dial sets it for chains of one k.
    fn of(turn: &Turn) -> Self {
        let newest = turn.settings_spans().last().map_or(&turn.begun, |span| &span.settings);
        let is_chain = newest.draft_len_mode == DraftLenMode::Fixed && newest.drafting.tree.is_none();
        match newest.drafter {
            DrafterKind::Dial if is_chain => Self::Acceptance(newest.draft_len.into()),
            _ => Self::DraftLen,
        }
    }

    fn title(self) -> String {
        match self {
            Self::DraftLen => " Speedup against k ".to_owned(),
            Self::Acceptance(k) => format!(" Speedup against acceptance, k = {k} "),
        }
    }

    /// Its sign at the left.
    const fn sign(self) -> &'static str {
        match self {
            Self::DraftLen => "k",
            Self::Acceptance(_) => "a",
        }
    }

    /// Width of a column, with the gap after it.
    const fn column(self) -> u16 {
        match self {
            Self::DraftLen => 7,
            Self::Acceptance(_) => 5,
        }
    }

    fn label(self, worth: Worth) -> String {
        match self {
            Self::DraftLen => format!("{:.0}", worth.at),
            Self::Acceptance(_) if worth.is_measured => format!("{:.2}", worth.at),
            Self::Acceptance(_) => format!("{:.1}", worth.at),
        }
    }
}

/// What is known of the shown turn, in so many columns at most.
fn worths(screen: Screen, axis: Axis, room: usize) -> Vec<Worth> {
    let Some(turn) = screen.turn() else { return Vec::new() };
    let Some(account) = Account::of_turn(turn) else { return Vec::new() };
    let mut worths = match axis {
        Axis::DraftLen => by_draft_len(turn, &account),
        Axis::Acceptance(k) => by_acceptance(turn.settings_spans().last(), &account, k, room),
    };
    worths.retain(|worth| worth.speedup.is_finite());
    let shows_all = !hides(screen, Hidden::Predicted);
    worths.retain(|worth| worth.is_measured || shows_all);
    worths.truncate(room);
    worths
}

/// The whole range of acceptance in steps that fit, the measured one in place of the nearest.
fn by_acceptance(span: Option<&SettingsSpan>, account: &Account, k: usize, room: usize) -> Vec<Worth> {
    let steps = if room > 10 { 10 } else { 5 };
    let predicted = (0..=steps).map(|step| f64::from(step) / f64::from(steps));
    let mut worths: Vec<Worth> = predicted
        .filter_map(|at| Some(Worth { at, speedup: speedup_at(&account.costs, k, at)?, is_measured: false }))
        .collect();
    let speedup = span.and_then(|span| span.speedup).filter(|speedup| !speedup.is_disturbed());
    if let Some((at, speedup)) = span.and_then(|span| span.acceptance).zip(speedup) {
        let nearest = worths.iter_mut().min_by(|a, b| (a.at - at).abs().total_cmp(&(b.at - at).abs()));
        nearest.into_iter().for_each(|column| *column = Worth { at, speedup: speedup.value, is_measured: true });
    }
    worths
}

/// Rounds of different k, and trees, have no place on the axis.
fn by_draft_len(turn: &Turn, account: &Account) -> Vec<Worth> {
    let rounds = &turn.answer(Lane::Speculative).rounds;
    let lengths = || rounds.iter().filter(|round| round.is_complete()).map(|round| round.draft_len());
    let is_fixed = turn.begun.draft_len_mode == DraftLenMode::Fixed && !rounds.iter().any(|round| round.is_tree());
    let own = lengths().next().filter(|k| is_fixed && lengths().all(|other| other == *k)).map(usize::from);
    let measured = own.zip(turn.speedup().filter(|speedup| !speedup.is_disturbed()));
    let predicted = account.worths.iter().map(|worth| match measured {
        Some((k, speedup)) if k == worth.draft_len => Worth { at: k as f64, speedup: speedup.value, is_measured: true },
        _ => Worth { at: worth.draft_len as f64, speedup: worth.speedup, is_measured: false },
    });
    predicted.collect()
}

/// Whether there is something to show.
pub(in crate::view) fn is_known(screen: Screen) -> bool {
    screen.turn().is_some_and(|turn| !worths(screen, Axis::of(turn), 1).is_empty())
}

pub(in crate::view) fn render(screen: Screen, area: Rect, frame: &mut Frame) {
    if area.is_empty() {
        return;
    }
    let legend = Line::from(vec![
        Span::styled(" █", screen.theme[Role::PlotSpeculative]),
        Span::styled(" measured ", screen.dim_title()),
        Span::styled("▒", screen.theme[Role::PlotPredicted]),
        Span::styled(" predicted ", screen.dim_title()),
    ]);
    let axis = screen.turn().map_or(Axis::DraftLen, Axis::of);
    let inner = framed(screen.panel(axis.title()).title_right(legend), area, frame);
    let room = usize::from(inner.width.saturating_sub(MARGIN) / axis.column());
    let worths = worths(screen, axis, room);
    if worths.is_empty() && hides(screen, Hidden::Predicted) {
        let text = "The speedup at each acceptance stands here once the question is answered.";
        put(wrapped(text, inner.width, screen.theme[Role::TextDim]), inner, frame);
    }
    if inner.height < 3 || worths.is_empty() {
        return;
    }
    let scale = Scale::of(&worths, inner.height - 1);
    line(screen, (axis, scale), inner, frame);
    for (index, worth) in worths.iter().enumerate() {
        let x = inner.x + MARGIN + index as u16 * axis.column();
        column(screen, (axis, *worth, scale), Rect { x, width: axis.column() - 1, ..inner }, frame);
    }
}

/// Columns of the labels at the left.
const MARGIN: u16 = 5;

/// Rows above the line of plain decoding and below it, and how much a row is.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Scale {
    above: u16,
    below: u16,
    row: f64,
}

impl Scale {
    /// For columns, each with its figure at its end, in so many rows.
    fn of(worths: &[Worth], rows: u16) -> Self {
        let ends = worths.iter().map(|worth| worth.speedup - 1.0);
        let (gain, loss) = ends.fold((0.0_f64, 0.0_f64), |(gain, loss), end| (gain.max(end), loss.max(-end)));
        let below = match loss > 0.0 {
            true => ((f64::from(rows) * loss / (gain + loss)).ceil() as u16).clamp(2, rows / 2),
            false => 0,
        };
        let above = rows - 1 - below; // the line has one
        // the figures at the ends have a row each
        let row =
            (gain / f64::from(above.saturating_sub(1).max(1))).max(loss / f64::from(below.saturating_sub(1).max(1)));
        Self { above, below, row: row.max(0.01) }
    }

    fn rows(self, speedup: f64) -> u16 {
        let rows = ((speedup - 1.0).abs() / self.row).round() as u16;
        rows.min(if speedup >= 1.0 { self.above.saturating_sub(1) } else { self.below.saturating_sub(1) })
    }
}

/// The line of plain decoding, and the name of the columns.
fn line(screen: Screen, (axis, scale): (Axis, Scale), area: Rect, frame: &mut Frame) {
    let line = Line::from(vec![
        Span::styled("  1× ", screen.theme[Role::TextDim]),
        Span::styled("─".repeat(usize::from(area.width.saturating_sub(MARGIN))), screen.theme[Role::PlotAxis]),
    ]);
    put(vec![line], Rect { y: area.y + scale.above, height: 1, ..area }, frame);
    let name = Line::styled(format!("   {} ", axis.sign()), screen.theme[Role::TextDim]);
    put(vec![name], Rect { y: area.bottom() - 1, height: 1, ..area }, frame);
}

fn column(screen: Screen, (axis, worth, scale): (Axis, Worth, Scale), area: Rect, frame: &mut Frame) {
    let (glyph, role) = match (worth.is_measured, worth.speedup < 1.0) {
        (true, false) => ("█", Role::PlotSpeculative),
        (true, true) => ("█", Role::PlotLoss),
        (false, _) => ("▒", Role::PlotPredicted),
    };
    let rows = scale.rows(worth.speedup);
    let line = area.y + scale.above;
    let (top, figure) = match worth.speedup < 1.0 {
        false => (line - rows, line.saturating_sub(rows + 1)),
        true => (line + 1, line + 1 + rows),
    };
    let width = usize::from(area.width);
    let block = vec![Line::styled(glyph.repeat(width), screen.theme[role]); rows.into()];
    put(block, Rect { y: top, height: rows, ..area }, frame);
    let strong = if worth.is_measured { Role::TextStrong } else { Role::Text };
    let text = |text: String| Line::styled(format!("{text:^width$}"), screen.theme[strong]);
    put(vec![text(format!("{:.2}", worth.speedup))], Rect { y: figure, height: 1, ..area }, frame);
    put(vec![text(axis.label(worth))], Rect { y: area.bottom() - 1, height: 1, ..area }, frame);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn worth(speedup: f64) -> Worth {
        Worth { at: 1.0, speedup, is_measured: false }
    }

    #[test]
    fn columns_and_their_figures_fit_on_either_side_of_the_line() {
        for rows in 4..30 {
            for speedups in [[1.2, 1.9, 0.7], [0.4, 0.9, 0.99], [1.0, 1.0, 1.0], [5.0, 1.01, 0.999]] {
                let worths = speedups.map(worth);
                let scale = Scale::of(&worths, rows);
                assert_eq!(scale.above + scale.below + 1, rows);
                for speedup in speedups {
                    let room = if speedup < 1.0 { scale.below } else { scale.above };
                    assert!(scale.rows(speedup) < room.max(1), "{speedup} of {speedups:?} in {rows}: {scale:?}");
                }
            }
        }
        let scale = Scale::of(&[1.5, 2.0].map(worth), 12);
        assert_eq!((scale.below, scale.rows(2.0), scale.rows(1.5)), (0, 10, 5));
    }
}
