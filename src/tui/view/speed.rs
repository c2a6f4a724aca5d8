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
        block = block.bottom(whole_session(screen));
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
    // the words matter more than a curve that is two lines high
    let kept = if inner.height < 7 { 0 } else { 3 };
    let room = inner.height.saturating_sub(kept);
    let text = words(screen, turn, inner.width, room.into());
    let room = room.min(text.len() as u16);
    let [top, rest] = Layout::vertical([Constraint::Length(room), Constraint::Min(0)]).areas(inner);
    put(text, top, frame);
    chart(screen, turn, rest, frame);
}

/// The same numbers over all turns.
fn whole_session(screen: Screen) -> Line<'static> {
    let stats = screen.session.stats(Lane::Speculative);
    let speed = number(stats.tokens_per_second(), 1);
    let speedup = screen.session.speedup().map_or("measuring".to_owned(), |speedup| speedup.to_string());
    Line::styled(format!(" session {speed} · {speedup} "), screen.theme[Role::TextDim])
}

/// What speculation is worth, both speeds, and remarks: as much of it as there is room for.
fn words(screen: Screen, turn: &Turn, width: u16, room: usize) -> Vec<Line<'static>> {
    let speed = |lane| number(turn.tokens_per_second(lane), 1);
    let theme = screen.theme;
    let name = if width < 36 { "━ spec " } else { "━ speculative " };
    let speeds = Line::from(vec![
        Span::styled(name, theme[Role::PlotSpeculative]),
        Span::styled(speed(Lane::Speculative), theme[Role::TextStrong]),
        Span::styled(" • plain ", theme[Role::PlotPlain]),
        Span::styled(speed(Lane::Plain), theme[Role::TextStrong]),
    ]);
    let with = |says: &Verdict, remarks: &[String]| {
        let mut lines = says.lines(screen, width);
        lines.push(speeds.clone());
        lines.extend(remarks.iter().flat_map(|text| wrapped(text, width, theme[Role::TextDim])));
        lines
    };
    let note = turn.speedup().and_then(|speedup| speedup.note()).map(str::to_owned);
    let remarks = [note, thought(turn), rollback(screen, turn), sampled(screen, turn)];
    let remarks: Vec<_> = remarks.into_iter().flatten().collect();
    let verdict = verdict(screen, turn);
    let in_short = Verdict { why: String::new(), ..verdict.clone() };
    let forms =
        [(&verdict, &remarks[..]), (&verdict, &remarks[..remarks.len().min(1)]), (&verdict, &[]), (&in_short, &[])];
    let all = forms.map(|(says, remarks)| with(says, remarks));
    let fits = all.iter().position(|lines| lines.len() <= room).unwrap_or(all.len() - 1);
    all.into_iter().nth(fits).unwrap_or_default()
}

/// What speculation is worth, in words.
#[derive(Clone)]
struct Verdict {
    /// The number, where there is one.
    speedup: Option<String>,
    says: String,
    why: String,
    role: Role,
}

impl Verdict {
    fn lines(&self, screen: Screen, width: u16) -> Vec<Line<'static>> {
        let mut flow = Flow::new(width);
        if let Some(speedup) = &self.speedup {
            flow.push(&format!(" {speedup} "), screen.hero_style(self.role));
            flow.push("— ", screen.theme[self.role]);
        }
        flow.push(&self.says, screen.theme[self.role]);
        if !self.why.is_empty() {
            flow.push(&format!(": {}", self.why), screen.theme[Role::Text]);
        }
        flow.finish()
    }
}

/// The cost of measuring plain decoding within the turn.
fn sampled(screen: Screen, turn: &Turn) -> Option<String> {
    let is_sampled = matches!(screen.session.settings().baseline, Baseline::Probe(_)) && !turn.is_whole(Lane::Plain);
    let share = turn.plain_share().filter(|_| is_sampled)?;
    Some(format!("sampling plain decoding took {:.0} % of the time", share * 100.0))
}

/// Acceptance of thought and answer apart.
fn thought(turn: &Turn) -> Option<String> {
    let parts = turn.answer(Lane::Speculative).stats().thought_and_answer()?;
    let [thought, answer] = parts.map(|part| {
        if part.rounds == 0 {
            return "no round yet".to_owned();
        }
        let percent = part.acceptance_rate().map_or("–".to_owned(), |rate| format!("{:.0} %", rate * 100.0));
        format!("{percent} of drafts, {} tokens a round", number(part.tokens_per_round(), 2))
    });
    Some(format!("accepted in the thought: {thought}; in the answer: {answer}"))
}

/// The cost of rolling back rejected rows, with recurrent layers.
fn rollback(screen: Screen, turn: &Turn) -> Option<String> {
    let model = &screen.session.header().filter(|header| header.model.state_bytes > 0)?.model;
    let stats = turn.answer(Lane::Speculative).stats();
    let took = stats.rollback_us().checked_div(stats.timed_rounds())?;
    let how = if model.snapshot_bytes == model.state_bytes { "from copies of the state" } else { "by replaying rows" };
    Some(format!("rollback {how}: {took} µs a round"))
}

/// What speculation is worth in this turn.
fn verdict(screen: Screen, turn: &Turn) -> Verdict {
    let Some(speedup) = turn.speedup() else {
        let says = match screen.session.settings().baseline {
            Baseline::Off => "no speedup shown: plain decoding is not measured".to_owned(),
            _ if turn.answer(Lane::Speculative).finished.is_none() => "speedup: measuring plain decoding".to_owned(),
            _ => unmeasured(screen),
        };
        return Verdict { speedup: None, says, why: String::new(), role: Role::TextDim };
    };
    let (says, role) = match speedup.against_one() {
        _ if speedup.is_disturbed() => ("disturbed by other work", Role::TextDim),
        Ordering::Less => ("slower than plain here", Role::Warning),
        Ordering::Equal => ("no faster than plain here", Role::Text),
        Ordering::Greater => ("faster than plain here", Role::Good),
    };
    let is_typed = screen.session.settings().drafter == DrafterKind::Human;
    let says = format!("{says}{}", if is_typed { " (without your time)" } else { "" });
    Verdict { speedup: Some(speedup.to_string()), says, why: cost(turn, &speedup), role }
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
