//! Tokens per second of both lanes over the lane's clock, and the speedup.
//!
//! Invariant: every number is measured in the shown turn; without a measured plain lane there is no speedup, a slowdown
//! is reported as plainly as a gain, and an impossible figure is dimmed.

use std::cmp::Ordering;

use ratatui::symbols::Marker;
use ratatui::widgets::{Axis, Chart, Dataset, GraphType};

use crate::protocol::{Baseline, DrafterKind};
use crate::session::{Answer, Speedup, WINDOW};

use super::prelude::*;
use super::values::{duration, number};

pub(super) fn render(screen: Screen, area: Rect, frame: &mut Frame) {
    let mut block = screen.panel(" Tokens/s, this turn ");
    if screen.session.turns().len() > 1 {
        block = block.title_bottom(whole_session(screen));
    }
    let inner = framed(block, area, frame);
    if inner.is_empty() {
        return;
    }
    let Some(turn) = screen.turn() else {
        let text = "Speed: drafts against plain";
        frame.render_widget(Line::styled(text, screen.theme[Role::TextDim]), inner);
        return;
    };
    let text = words(screen, turn, inner.width);
    // the words matter more than a curve that is two lines high
    let kept = if inner.height < 7 { 0 } else { 3 };
    let room = inner.height.saturating_sub(kept).min(text.len() as u16);
    let [top, rest] = Layout::vertical([Constraint::Length(room), Constraint::Min(0)]).areas(inner);
    frame.render_widget(Paragraph::new(text), top);
    chart(screen, turn, rest, frame);
}

/// The same numbers over all turns.
fn whole_session(screen: Screen) -> Line<'static> {
    let stats = screen.session.stats(Lane::Speculative);
    let speed = number(stats.tokens_per_second(), 1);
    let speedup = screen.session.speedup().map_or("measuring".to_owned(), |speedup| speedup.to_string());
    Line::styled(format!(" session {speed} · {speedup} "), screen.theme[Role::TextDim])
}

fn words(screen: Screen, turn: &Turn, width: u16) -> Vec<Line<'static>> {
    let speed = |lane| number(turn.tokens_per_second(lane), 1);
    let theme = screen.theme;
    let name = if width < 36 { "━ spec " } else { "━ speculative " };
    let mut lines = vec![Line::from(vec![
        Span::styled(name, theme[Role::PlotSpeculative]),
        Span::styled(speed(Lane::Speculative), theme[Role::TextStrong]),
        Span::styled(" • plain ", theme[Role::PlotPlain]),
        Span::styled(speed(Lane::Plain), theme[Role::TextStrong]),
    ])];
    let (text, role) = verdict(screen, turn);
    lines.extend(wrapped(&text, width, theme[role]));
    let note = turn.speedup().and_then(|speedup| speedup.note()).map(str::to_owned);
    for text in [note, rollback(screen, turn), sampled(screen, turn)].into_iter().flatten() {
        lines.extend(wrapped(&text, width, theme[Role::TextDim]));
    }
    lines
}

/// The cost of measuring plain decoding within the turn.
fn sampled(screen: Screen, turn: &Turn) -> Option<String> {
    let share = turn.plain_share().filter(|_| matches!(screen.session.settings().baseline, Baseline::Probe(_)))?;
    Some(format!("sampling plain decoding took {:.0} % of the time", share * 100.0))
}

/// The cost of rolling back rejected rows, with recurrent layers.
fn rollback(screen: Screen, turn: &Turn) -> Option<String> {
    let model = &screen.session.header().filter(|header| header.model.state_bytes > 0)?.model;
    let stats = turn.answer(Lane::Speculative).stats();
    let took = stats.rollback_us().checked_div(stats.timed_rounds())?;
    let how = if model.snapshot_bytes == model.state_bytes { "from copies of the state" } else { "by replaying rows" };
    Some(format!("rollback {how}: {took} µs a round"))
}

/// The speedup of this turn, in words.
fn verdict(screen: Screen, turn: &Turn) -> (String, Role) {
    let Some(speedup) = turn.speedup() else {
        let text = match screen.session.settings().baseline {
            Baseline::Off => "no speedup shown: plain decoding is not measured",
            _ if turn.answer(Lane::Speculative).finished.is_none() => "speedup: measuring plain decoding",
            _ => return (unmeasured(screen), Role::TextDim),
        };
        return (text.to_owned(), Role::TextDim);
    };
    let typed = screen.session.settings().drafter == DrafterKind::Human;
    let typed = if typed { " (without your time)" } else { "" };
    let cost = cost(turn, &speedup);
    if speedup.is_disturbed() {
        return (format!("{speedup} — disturbed by other work{typed}: {cost}"), Role::TextDim);
    }
    match speedup.against_one() {
        Ordering::Less => (format!("{speedup} — slower than plain here{typed}: {cost}"), Role::Warning),
        Ordering::Equal => (format!("{speedup} — no faster than plain here{typed}: {cost}"), Role::Text),
        Ordering::Greater => (format!("{speedup} — faster than plain here{typed}: {cost}"), Role::Good),
    }
}

/// Why a finished turn has no speedup, and how to measure one.
fn unmeasured(screen: Screen) -> String {
    let key = screen.app.key(Action::ViewCompare);
    format!("speedup: too few measurements in so short an answer; {key} runs plain decoding over all of it")
}

/// The cost of a round in plain tokens, and the tokens it writes: their quotient is the speedup.
fn cost(turn: &Turn, speedup: &Speedup) -> String {
    let yields = turn.answer(Lane::Speculative).stats().mean_tokens_per_round().unwrap_or(speedup.tokens_per_round);
    format!("a round takes as long as {:.2} plain tokens and writes {yields:.2}", yields / speedup.value)
}

/// Points of a curve; a wide plot has about so many columns of dots.
const MAX_POINTS: usize = 400;

/// Rounds that the curve leaves out: a window of one or two means nothing and spoils the scale.
const SETTLING: usize = 3;

fn points(answer: &Answer) -> Vec<(f64, f64)> {
    let series = answer.speed_series(WINDOW);
    thinned(&series).map(|p| (p.clock_us as f64 / 1e6, p.tokens_per_second)).collect()
}

/// Points of a settled curve, at most as many as a plot can show.
pub(super) fn thinned<T>(series: &[T]) -> impl Iterator<Item = &T> {
    let settled = series.get(SETTLING..).unwrap_or_default();
    let step = settled.len() / MAX_POINTS + 1;
    // counted from the newest, which is always included
    let first = settled.len().saturating_sub(1) % step;
    settled.iter().skip(first).step_by(step)
}

/// A probe's clock stands still most of the time: its curve continues level, at what it measured, as far as the other
/// lane has come.
fn continued(mut plain: Vec<(f64, f64)>, fast: &[(f64, f64)], speed: Option<f64>) -> Vec<(f64, f64)> {
    let ends = (plain.last(), fast.last(), speed);
    if let (Some((reached, _)), Some((end, _)), Some(speed)) = ends
        && reached < end
    {
        plain.push((*end, speed));
    }
    plain
}

fn chart(screen: Screen, turn: &Turn, area: Rect, frame: &mut Frame) {
    let fast = points(turn.answer(Lane::Speculative));
    let plain = continued(points(turn.answer(Lane::Plain)), &fast, turn.tokens_per_second(Lane::Plain));
    let set = |data, marker, role: Role| {
        Dataset::default().data(data).marker(marker).graph_type(GraphType::Line).style(screen.theme[role])
    };
    let sets = vec![set(&plain, Marker::Dot, Role::PlotPlain), set(&fast, Marker::Braille, Role::PlotSpeculative)];
    plot(screen, sets, extent(&[&fast, &plain]), area, frame);
}

/// Largest x and y of some curves, never zero.
pub(super) fn extent(curves: &[&[(f64, f64)]]) -> (f64, f64) {
    let all = || curves.iter().flat_map(|curve| curve.iter());
    let max = |values: &mut dyn Iterator<Item = f64>| values.fold(0.0, f64::max);
    let x = max(&mut all().map(|p| p.0));
    let y = max(&mut all().map(|p| p.1));
    (if x > 0.0 { x } else { 1.0 }, if y > 0.0 { y * 1.1 } else { 1.0 })
}

/// Curves over seconds of the lane's clock, from zero.
pub(super) fn plot(screen: Screen, sets: Vec<Dataset>, extent: (f64, f64), area: Rect, frame: &mut Frame) {
    if area.height < 2 || area.width < 10 {
        return;
    }
    let (x, y) = extent;
    let style = screen.theme[Role::PlotAxis];
    let digits = usize::from(y < 10.0);
    let x_axis = Axis::default().bounds([0.0, x]).style(style);
    let x_axis = if area.height >= 5 { x_axis.labels(["0".to_owned(), duration((x * 1e6) as u64)]) } else { x_axis };
    let y_axis = Axis::default().bounds([0.0, y]).labels(["0".to_owned(), format!("{y:.digits$}")]).style(style);
    // without a style a plot has the terminal's own background
    let chart = Chart::new(sets).style(screen.theme[Role::Text]).x_axis(x_axis).y_axis(y_axis).legend_position(None);
    frame.render_widget(chart, area);
}
