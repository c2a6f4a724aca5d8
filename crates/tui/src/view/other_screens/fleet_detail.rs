//! One watched server in detail: speed and acceptance over time, acceptance by position, times of requests, and the
//! requests themselves.
//!
//! Invariant: a figure that is not known is left out, or a gap in its curve; it is never drawn as 0.

use std::collections::VecDeque;

use ratatui::widgets::{Sparkline, SparklineBar};

use draftscope_protocol::SlotState;
use draftscope_session::{Latency, Rates, Share, Watched};

use crate::view::prelude::*;
use crate::view::values::number;

/// Width of the scale beside a curve.
const SCALE: u16 = 6;

/// Most positions that are drawn.
const POSITIONS: usize = 16;

pub(in crate::view) fn render(screen: Screen, server: &Watched, area: Rect, frame: &mut Frame) {
    let side = if area.width >= 76 { (area.width / 3).clamp(26, 44) } else { 0 };
    let [left, right] = Layout::horizontal([Constraint::Min(0), Constraint::Length(side)]).areas(area);
    let [speed, rate] = Layout::vertical([Constraint::Ratio(1, 2), Constraint::Ratio(1, 2)]).areas(left);
    let (since, recent) = (server.since_start(), server.recent());
    let title = format!(" tokens/s, all requests: {} now ", number(recent.tokens_per_second, 1));
    curve(screen, (&title, None), &server.history, |rates| rates.tokens_per_second, speed, frame);
    let title = format!(
        " accepted ÷ drafted: {} now, {} since the server started ",
        percent(recent.acceptance_rate),
        percent(since.acceptance_rate)
    );
    let share = |rates: &Rates| rates.acceptance_rate.map(|rate| rate * 100.0);
    curve(screen, (&title, Some(100.0)), &server.history, share, rate, frame);
    if right.width > 0 {
        beside(screen, server, (&recent, &since), right, frame);
    }
}

fn beside(screen: Screen, server: &Watched, (recent, since): (&Rates, &Rates), area: Rect, frame: &mut Frame) {
    let facts = facts(recent, since);
    let height = |lines: usize| u16::try_from(lines).unwrap_or(u16::MAX).saturating_add(1);
    let positions = height(since.accepted_per_pos_limits.len().clamp(1, POSITIONS));
    let has_slots = !server.slots().is_empty();
    let requests = if has_slots { 3 } else { 0 };
    let facts_height = if facts.is_empty() { 0 } else { height(facts.len()) };
    let facts_height = facts_height.min(area.height.saturating_sub(requests + 4));
    let room = area.height.saturating_sub(facts_height + requests);
    let top = if has_slots || facts_height > 0 { positions.min(room) } else { area.height };
    let last = if has_slots { Constraint::Min(0) } else { Constraint::Length(0) };
    let middle = if has_slots { Constraint::Length(facts_height) } else { Constraint::Min(facts_height) };
    let [top, middle, bottom] = Layout::vertical([Constraint::Length(top), middle, last]).areas(area);
    by_position(screen, (recent, since), top, frame);
    if middle.height > 1 {
        let inner = framed(screen.panel(" Times and caches ".to_owned()), middle, frame);
        let line = |(name, value): &(&str, String)| {
            let room = usize::from(inner.width).saturating_sub(name.len() + 2);
            Line::from(vec![
                Span::styled(format!(" {name} "), screen.theme[Role::TextDim]),
                Span::styled(format!("{:>room$}", cut(value, room)), screen.theme[Role::Text]),
            ])
        };
        put(facts.iter().map(line).collect(), inner, frame);
    }
    if has_slots {
        slots(screen, server, bottom, frame);
    }
}

/// What is known besides, of the last seconds, else since the server started.
fn facts(recent: &Rates, since: &Rates) -> Vec<(&'static str, String)> {
    let share = |rate: Option<f64>| rate.map(|rate| percent(Some(rate)));
    let time = |of: fn(&Rates) -> Option<draftscope_session::Latency>| of(recent).or_else(|| of(since)).map(latency);
    let all = [
        ("steps that draft", share(recent.drafting_share.or(since.drafting_share))),
        ("first token", time(|rates| rates.first_token)),
        ("between tokens", time(|rates| rates.between_tokens)),
        ("whole request", time(|rates| rates.whole)),
        ("KV cache in use", share(recent.kv_use)),
        ("prefix found", share(recent.prefix_hit_rate.or(since.prefix_hit_rate))),
    ];
    all.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
}

/// A figure of each look, the newest at the right, with its scale and the time that is shown. Without a top the largest
/// value gives it.
fn curve(
    screen: Screen,
    (title, top): (&str, Option<f64>),
    history: &VecDeque<(u64, Rates)>,
    of: impl Fn(&Rates) -> Option<f64>,
    area: Rect,
    frame: &mut Frame,
) {
    let inner = framed(screen.panel(cut(title, area.width.saturating_sub(2).into())), area, frame);
    let plot = Rect { x: inner.x + SCALE.min(inner.width), width: inner.width.saturating_sub(SCALE), ..inner };
    let plot = Rect { height: plot.height.saturating_sub(1), ..plot };
    let width = usize::from(plot.width);
    let shown: Vec<&(u64, Rates)> = history.iter().skip(history.len().saturating_sub(width)).collect();
    let values: Vec<Option<f64>> = shown.iter().map(|(_, rates)| of(rates)).collect();
    if values.iter().all(Option::is_none) || plot.height == 0 {
        let text = if history.len() < 2 { "one more look is needed" } else { "nothing was counted in this time" };
        let line = Line::styled(cut(text, inner.width.into()), screen.theme[Role::TextDim]);
        frame.render_widget(line, inner);
        return;
    }
    let largest = values.iter().flatten().copied().fold(0.0, f64::max);
    let top = top.unwrap_or_else(|| round_up(largest));
    let bar = |value: &Option<f64>| SparklineBar::from(value.map(|value| (value / top * 1e4).round() as u64));
    let blank = std::iter::repeat_n(SparklineBar::from(None), width.saturating_sub(values.len()));
    let bars = blank.chain(values.iter().map(bar));
    let line = Sparkline::default().data(bars).max(10_000).style(screen.theme[Role::PlotSpeculative]);
    frame.render_widget(line, plot);
    scale(screen, top, Rect { width: SCALE, ..plot }, (inner, plot), frame);
    let (first, last) = (shown.first().map_or(0, |(ms, _)| *ms), shown.last().map_or(0, |(ms, _)| *ms));
    let ago = format!("{} ago", span(last.saturating_sub(first)));
    let room = shown.len().saturating_sub("now".len());
    let axis = if ago.len() < room { format!("{ago:<room$}now") } else { format!("{:>1$}", "now", shown.len()) };
    let axis = format!("{axis:>width$}");
    let below = Rect { y: plot.bottom(), height: 1, ..plot };
    frame.render_widget(Line::styled(cut(&axis, width), screen.theme[Role::TextDim]), below);
}

/// The scale left of a curve: its top, its middle if there is room, and 0.
fn scale(screen: Screen, top: f64, size: Rect, (inner, plot): (Rect, Rect), frame: &mut Frame) {
    let digits = usize::from(top < 10.0);
    let mut at = |row: u16, value: f64| {
        let area = Rect { x: inner.x, y: plot.y + row, width: size.width.min(inner.width), height: 1 };
        let text = format!("{value:>width$.digits$} ", width = usize::from(SCALE) - 1);
        frame.render_widget(Line::styled(text, screen.theme[Role::TextDim]), area);
    };
    at(0, top);
    if plot.height >= 5 && plot.height % 2 == 1 {
        at(plot.height / 2, top / 2.0);
    }
    if plot.height > 1 {
        at(plot.height - 1, 0.0);
    }
}

/// The next of 1, 2, 5, 10, 20 … that is not below the value.
fn round_up(value: f64) -> f64 {
    if value <= 0.0 || !value.is_finite() {
        return 1.0;
    }
    let unit = 10_f64.powf(value.log10().floor());
    [1.0, 2.0, 5.0, 10.0].into_iter().map(|step| step * unit).find(|top| *top >= value * 0.999).unwrap_or(value)
}

/// A time in words.
fn span(ms: u64) -> String {
    match ms / 1000 {
        seconds @ 0..=119 => format!("{seconds} s"),
        seconds @ 120..=7199 => format!("{} min", seconds / 60),
        seconds => format!("{} h", seconds / 3600),
    }
}

/// Accepted at each position, of the steps that drafted that far: in the last seconds, else since the server started.
fn by_position(screen: Screen, (recent, since): (&Rates, &Rates), area: Rect, frame: &mut Frame) {
    let (shares, when) = match recent.accepted_per_pos_limits.is_empty() {
        true => (&since.accepted_per_pos_limits, "since its start"),
        false => (&recent.accepted_per_pos_limits, "now"),
    };
    let inner = framed(screen.panel(format!(" Accepted by position, {when} ")), area, frame);
    let line = |(index, share): (usize, &Share)| {
        let (low, high) = (share.low * 100.0, share.high * 100.0);
        let tail = match share.exact() {
            Some(exact) => format!(" {:>6.0} %", exact * 100.0),
            None => format!(" {:>6} %", format!("{low:.0}–{high:.0}")),
        };
        let label = format!("{:>2} ", index + 1);
        let room = usize::from(inner.width).saturating_sub(label.len() + Span::raw(&tail).width());
        let mut spans = vec![Span::styled(label, screen.theme[Role::TextDim])];
        spans.extend(bar(share.low, room, screen.theme[Role::PlotBar], screen.theme[Role::PlotRest]));
        spans.push(Span::styled(tail, screen.theme[Role::Text]));
        Line::from(spans)
    };
    let mut lines: Vec<Line> = shares.iter().enumerate().take(inner.height.into()).map(line).collect();
    if lines.is_empty() {
        lines.push(Line::styled(cut("not published", inner.width.into()), screen.theme[Role::TextDim]));
    }
    put(lines, inner, frame);
}

/// A row a slot: its request, how far it has come and how fast.
fn slots(screen: Screen, server: &Watched, area: Rect, frame: &mut Frame) {
    let all = server.slots();
    let busy = all.iter().filter(|slot| slot.is_busy).count();
    let inner = framed(screen.panel(format!(" Requests: {busy} of {} slots busy ", all.len())), area, frame);
    let line = |slot: &SlotState| {
        let drafts = match slot.speculates {
            Some(true) => "drafts",
            Some(false) => "plain",
            None => "",
        };
        if !slot.is_busy {
            return Line::styled(format!("{:>3} idle", slot.id), screen.theme[Role::TextDim]);
        }
        let request = slot.task.map_or(String::new(), |task| format!("#{task}"));
        let decoded = slot.decoded.map_or(String::new(), |tokens| counted(tokens as usize, "token"));
        let speed = server.slot_speed(slot).map_or(String::new(), |speed| format!(", {speed:.0}/s"));
        let text = format!("{:>3} {request:<5} {decoded}{speed}  {drafts}", slot.id);
        Line::styled(cut(&text, inner.width.into()), screen.theme[Role::StatusActive])
    };
    // busy ones first, where not all fit
    let mut shown: Vec<&SlotState> = all.iter().collect();
    if all.len() > usize::from(inner.height) {
        shown.sort_by_key(|slot| !slot.is_busy);
    }
    put(shown.into_iter().map(line).collect(), inner, frame);
}

/// A share, if there is one.
pub(super) fn percent(rate: Option<f64>) -> String {
    rate.map_or("–".to_owned(), |rate| format!("{:.0} %", rate * 100.0))
}

/// A time in its unit.
pub(super) fn seconds(time: f64) -> String {
    match time {
        _ if time < 0.0995 => format!("{:.1} ms", time * 1e3),
        _ if time < 0.9995 => format!("{:.0} ms", time * 1e3),
        _ if time < 99.95 => format!("{time:.1} s"),
        _ => format!("{time:.0} s"),
    }
}

/// The mean of a time, and what 95 % of the requests keep.
fn latency(time: Latency) -> String {
    let p95 = time.p95.map_or(String::new(), |p95| format!(", 95 % {}", seconds(p95)));
    format!("{}{p95}", seconds(time.mean))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scale_ends_in_a_round_number() {
        let tops = [0.0, 0.3, 1.0, 1.2, 40.0, 51.0, 108.0, 4999.0].map(round_up);
        assert_eq!(tops.map(|top| (top * 10.0).round()), [10.0, 5.0, 10.0, 20.0, 500.0, 1000.0, 2000.0, 50_000.0]);
        assert_eq!([0, 119_000, 120_000, 7_200_000].map(span), ["0 s", "119 s", "2 min", "2 h"]);
    }
}
