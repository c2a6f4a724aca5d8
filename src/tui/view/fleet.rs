//! Servers that others use: a row each, and the chosen one in detail.
//!
//! ```text
//!   title ─────────────────────────────────────────────
//!   server  model  running  tokens/s  accepted  … a row each
//!   over time: tokens/s, accepted │ by position │ slots
//!   footer ────────────────────────────────────────────
//! ```
//!
//! Invariant: as of every screen: drawing changes nothing, any size draws. A rate that was not measured is a dash.

use std::collections::VecDeque;

use ratatui::widgets::Sparkline;

use crate::session::{Rates, Watched};
use crate::tui::app::Overlay;
use crate::tui::fleet::FleetView;
use crate::tui::plain_glyphs;

use super::prelude::*;
use super::screen::MIN_SIZE;
use super::transcript_cache::TranscriptCache;
use super::values::number;
use super::{help, screens};

/// Width of the columns from `running` on.
const FIGURES: usize = 50;

/// Draws one frame; returns its measurements.
pub(in crate::tui) fn render(view: &FleetView, frame: &mut Frame) -> HitMap {
    let (app, lines) = (&view.app, TranscriptCache::default());
    let screen = Screen { time: &view.time, session: view.time.shown(), app, theme: app.theme(), lines: &lines };
    let area = frame.area();
    let mut measured = HitMap { page: area.height.saturating_sub(4).into(), ..app.hit_map.clone() };
    frame.buffer_mut().set_style(area, screen.theme[Role::Text]);
    if area.width < MIN_SIZE.0 || area.height < MIN_SIZE.1 {
        screens::too_small(screen, area, frame);
    } else {
        main(screen, view, area, frame);
        if let Some(Overlay::Help(help)) = &app.overlay {
            measured.help_max = help::render(screen, (Context::Watch, help), area, frame);
        }
    }
    if app.options.ascii {
        plain_glyphs::replace(frame.buffer_mut());
    }
    measured
}

fn main(screen: Screen, view: &FleetView, area: Rect, frame: &mut Frame) {
    let servers = view.fleet.servers();
    let most = area.height.saturating_sub(13).max(1);
    let rows = u16::try_from(servers.len()).unwrap_or(u16::MAX).clamp(1, most);
    let [title, table, detail, footer] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(rows + 1),
        Constraint::Min(6),
        Constraint::Length(1),
    ])
    .areas(area);
    let count = servers.len();
    let name = format!(" {count} server{} watched; no prompt is sent", if count == 1 { "" } else { "s" });
    frame.render_widget(Line::styled(name, screen.theme[Role::Status]), title);
    put(self::table(screen, view, table), table, frame);
    if let Some(server) = servers.get(view.chosen) {
        self::detail(screen, server, detail, frame);
    }
    let hint = match &screen.app.toast {
        Some(toast) => format!(" · {}", text::one_line(toast)),
        None => {
            let keys: [(&[Action], &str); 4] = [
                (CHOOSE, "choose"),
                (&[Action::NextTheme], "theme"),
                (&[Action::Help], "help"),
                (&[Action::Quit], "quit"),
            ];
            format!(" {}", screen.keys(Context::Watch, &keys))
        }
    };
    frame.render_widget(Line::styled(cut(&hint, footer.width.into()), screen.theme[Role::TextDim]), footer);
}

fn table(screen: Screen, view: &FleetView, area: Rect) -> Vec<Line<'static>> {
    let servers = view.fleet.servers();
    let width = usize::from(area.width);
    let room = width.saturating_sub(FIGURES + 2);
    let host = (room / 2).clamp(12, 28).min(room);
    let model = room.saturating_sub(host + 1);
    let head = format!(
        "  {} {} {:>7} {:>7} {:>9} {:>9} {:>12}",
        fit("server", host),
        fit("model", model),
        "running",
        "waiting",
        "tokens/s",
        "accepted",
        "tokens/step"
    );
    let shown = usize::from(area.height).saturating_sub(1);
    let first = view.chosen.saturating_sub(shown.saturating_sub(1)).min(servers.len().saturating_sub(shown));
    let mut lines = vec![Line::styled(cut(&head, width), screen.theme[Role::TextDim])];
    for (index, server) in servers.iter().enumerate().skip(first).take(shown) {
        let is_chosen = index == view.chosen;
        let mark = if is_chosen { "▸ " } else { "  " };
        let role = if is_chosen { Role::TextStrong } else { Role::Text };
        let Some(sample) = &server.newest else {
            lines.push(Line::styled(format!("{mark}asking …"), screen.theme[Role::TextDim]));
            continue;
        };
        let name = format!(
            "{mark}{} {} ",
            fit(&text::one_line(&sample.host), host),
            fit(&text::one_line(&sample.model), model)
        );
        let Some(counters) = &sample.counters else {
            let problem = text::one_line(sample.problem.as_deref().unwrap_or("nothing is known")).into_owned();
            let left = width.saturating_sub(Span::raw(&name).width());
            lines.push(Line::from(vec![
                Span::styled(name, screen.theme[role]),
                Span::styled(cut(&problem, left), screen.theme[Role::Warning]),
            ]));
            continue;
        };
        let rates = server.recent();
        let count = |value: Option<u64>| value.map_or("–".to_owned(), |value| value.to_string());
        let figures = format!(
            "{:>7} {:>7} {:>9} {:>9} {:>12}",
            count(counters.running),
            count(counters.waiting),
            number(rates.tokens_per_second, 1),
            percent(rates.acceptance_rate),
            number(rates.tokens_per_step, 2)
        );
        lines.push(Line::styled(cut(&format!("{name}{figures}"), width), screen.theme[role]));
    }
    lines
}

fn percent(rate: Option<f64>) -> String {
    rate.map_or("–".to_owned(), |rate| format!("{:.0} %", rate * 100.0))
}

fn detail(screen: Screen, server: &Watched, area: Rect, frame: &mut Frame) {
    let side = if area.width >= 76 { (area.width / 3).clamp(24, 44) } else { 0 };
    let [left, right] = Layout::horizontal([Constraint::Min(0), Constraint::Length(side)]).areas(area);
    let [speed, rate] = Layout::vertical([Constraint::Ratio(1, 2), Constraint::Ratio(1, 2)]).areas(left);
    let since = server.since_start();
    let recent = server.recent();
    let title = format!(" tokens/s, all requests: {} now ", number(recent.tokens_per_second, 1));
    curve(screen, (&title, None), &server.history, |rates| rates.tokens_per_second, speed, frame);
    let title = format!(
        " accepted ÷ drafted: {} now, {} since the server started ",
        percent(recent.acceptance_rate),
        percent(since.acceptance_rate)
    );
    // all of the height is 100 %
    curve(
        screen,
        (&title, Some(1000)),
        &server.history,
        |rates| rates.acceptance_rate.map(|rate| rate * 100.0),
        rate,
        frame,
    );
    if right.width == 0 {
        return;
    }
    let positions = u16::try_from(since.accepted_per_pos.len()).unwrap_or(u16::MAX).clamp(1, 16) + 2;
    let has_slots = !server.slots().is_empty();
    let height = if has_slots { positions.min(right.height.saturating_sub(3)) } else { right.height };
    let [top, bottom] = Layout::vertical([Constraint::Length(height), Constraint::Min(0)]).areas(right);
    by_position(screen, (&recent, &since), top, frame);
    if has_slots {
        slots(screen, server, bottom, frame);
    }
}

/// A figure of each second, the newest at the right.
fn curve(
    screen: Screen,
    (title, top): (&str, Option<u64>),
    history: &VecDeque<Rates>,
    of: impl Fn(&Rates) -> Option<f64>,
    area: Rect,
    frame: &mut Frame,
) {
    let inner = framed(screen.panel(cut(title, area.width.saturating_sub(2).into())), area, frame);
    let width = usize::from(inner.width);
    let shown = history.iter().skip(history.len().saturating_sub(width));
    let mut points: Vec<u64> = shown.map(|rates| of(rates).map_or(0, |value| (value * 10.0).round() as u64)).collect();
    if points.iter().all(|point| *point == 0) {
        let text = if history.len() < 2 { "one look a second" } else { "nothing was counted in this time" };
        frame.render_widget(Line::styled(cut(text, width), screen.theme[Role::TextDim]), inner);
        return;
    }
    let mut padded = vec![0; width.saturating_sub(points.len())];
    padded.append(&mut points);
    let most = top.or(padded.iter().copied().max()).unwrap_or(1);
    let line = Sparkline::default().data(padded).max(most).style(screen.theme[Role::PlotSpeculative]);
    frame.render_widget(line, inner);
}

/// Accepted at each position: in the last seconds, else since the server started.
fn by_position(screen: Screen, (recent, since): (&Rates, &Rates), area: Rect, frame: &mut Frame) {
    let (shares, when) = match recent.accepted_per_pos.is_empty() {
        true => (&since.accepted_per_pos, "since its start"),
        false => (&recent.accepted_per_pos, "now"),
    };
    let inner = framed(screen.panel(format!(" Accepted by position, {when} ")), area, frame);
    let line = |(index, share): (usize, &f64)| {
        let (label, tail) = (format!("{:>2} ", index + 1), format!(" {:>3.0} %", share * 100.0));
        let room = usize::from(inner.width).saturating_sub(label.len() + tail.len());
        let mut spans = vec![Span::styled(label, screen.theme[Role::TextDim])];
        spans.extend(bar(*share, room, screen.theme[Role::PlotBar], screen.theme[Role::PlotRest]));
        spans.push(Span::styled(tail, screen.theme[Role::Text]));
        Line::from(spans)
    };
    let mut lines: Vec<Line> = shares.iter().enumerate().take(inner.height.into()).map(line).collect();
    if lines.is_empty() {
        lines.push(Line::styled(cut("not published", inner.width.into()), screen.theme[Role::TextDim]));
    }
    put(lines, inner, frame);
}

fn slots(screen: Screen, server: &Watched, area: Rect, frame: &mut Frame) {
    let all = server.slots();
    let busy = all.iter().filter(|slot| slot.is_busy).count();
    let inner = framed(screen.panel(format!(" Slots: {busy} of {} busy ", all.len())), area, frame);
    let line = |slot: &crate::protocol::SlotState| {
        let drafts = match slot.speculates {
            Some(true) => "drafts",
            Some(false) => "plain",
            None => "",
        };
        let decoded = slot.decoded.map_or(String::new(), |tokens| format!("{tokens} tokens"));
        let state = if slot.is_busy { "busy" } else { "idle" };
        let role = if slot.is_busy { Role::StatusActive } else { Role::TextDim };
        Line::styled(
            cut(&format!("{:>3} {state}  {drafts:<7} {decoded}", slot.id), inner.width.into()),
            screen.theme[role],
        )
    };
    let lines: Vec<Line> = all.iter().take(inner.height.into()).map(line).collect();
    put(lines, inner, frame);
}
