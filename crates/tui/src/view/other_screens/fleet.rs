//! Servers that others use: a row each, a row for all of them, and the chosen one in detail.
//!
//! ```text
//!   title ─────────────────────────────────────────────
//!   server  model  running  tokens/s  accepted  … a row each
//!   over time: tokens/s, accepted │ by position │ times │ requests
//!   footer ────────────────────────────────────────────
//! ```
//!
//! Invariant: as of every screen: drawing changes nothing, any size draws. A rate that was not measured is a dash.

use crate::app::Overlay;
use crate::other_screens::fleet::FleetView;
use crate::terminal::plain_glyphs;
use draftscope_session::{Rates, Watched};

use crate::view::chat::transcript_cache::TranscriptCache;
use crate::view::other_screens::fleet_detail::{self, percent, seconds};
use crate::view::overlays::help;
use crate::view::prelude::*;
use crate::view::screen::MIN_SIZE;
use crate::view::screens;
use crate::view::values::number;

/// Width of the columns from `running` on.
const FIGURES: usize = 50;

/// Width of those that are left out on a small screen.
const MORE: usize = 22;

/// Smallest width of a screen with all columns.
const WIDE: usize = 110;

/// Draws one frame; returns its measurements.
pub(crate) fn render(view: &FleetView, frame: &mut Frame) -> HitMap {
    let (app, lines) = (&view.app, TranscriptCache::default());
    let screen = Screen { time: &view.time, session: view.time.shown(), app, theme: app.theme(), lines: &lines };
    let area = frame.area();
    let mut measured = HitMap { page: area.height.saturating_sub(4).into(), ..app.place.hit_map.clone() };
    frame.buffer_mut().set_style(area, screen.theme[Role::Text]);
    if area.width < MIN_SIZE.0 || area.height < MIN_SIZE.1 {
        screens::too_small(screen, area, frame);
    } else {
        main(screen, view, area, frame);
        if let Some(Overlay::Help(help)) = &app.place.overlay {
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
    let sum = usize::from(servers.len() > 1);
    let rows = u16::try_from(servers.len() + sum).unwrap_or(u16::MAX).clamp(1, most);
    let [titled, table, detail, footer] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(rows + 1),
        Constraint::Min(6),
        Constraint::Length(1),
    ])
    .areas(area);
    title(screen, view, titled, frame);
    put(self::table(screen, view, table), table, frame);
    if let Some(server) = servers.get(view.chosen) {
        fleet_detail::render(screen, server, detail, frame);
    }
    let hint = match &screen.app.toast {
        Some(toast) => format!(" · {}", text::one_line(toast)),
        None => {
            let mut keys: Vec<(&[Action], &str)> = vec![(CHOOSE, "choose")];
            if view.is_replay() {
                keys.push((&[Action::BackRound, Action::StepRound], "earlier, later"));
                keys.push((&[Action::PauseResume], "play"));
            }
            keys.extend([
                (&[Action::NextTheme] as &[Action], "theme"),
                (&[Action::Help], "help"),
                (&[Action::Quit], "quit"),
            ]);
            format!(" {}", screen.keys(Context::Watch, &keys))
        }
    };
    frame.render_widget(Line::styled(cut(&hint, footer.width.into()), screen.theme[Role::TextDim]), footer);
}

/// What is watched, the moment of a history, and the conditions that hold.
fn title(screen: Screen, view: &FleetView, area: Rect, frame: &mut Frame) {
    let count = view.fleet.servers().len();
    let mut text = format!(" {count} server{} watched; no prompt is sent", if count == 1 { "" } else { "s" });
    if let Some(moment) = view.moment() {
        text = format!(" history of {count} server{}: {moment}", if count == 1 { "" } else { "s" });
    }
    let held = view.fleet.servers().iter().enumerate().find_map(|(index, server)| {
        let alert = view.fleet.alerts(index).next()?;
        let host = server.newest.as_ref().map_or("", |sample| sample.host.as_str());
        Some(format!(" · {}: {}", text::one_line(host), text::one_line(alert)))
    });
    let mut line = vec![Span::styled(text, screen.theme[Role::Status])];
    line.extend(held.map(|held| Span::styled(held, screen.theme[Role::Warning])));
    put(vec![Line::from(line)], area, frame);
}

/// Widths of the names, and whether all columns fit.
#[derive(Clone, Copy)]
struct Widths {
    host: usize,
    model: usize,
    is_wide: bool,
}

fn table(screen: Screen, view: &FleetView, area: Rect) -> Vec<Line<'static>> {
    let servers = view.fleet.servers();
    let width = usize::from(area.width);
    let is_wide = width >= WIDE;
    let room = width.saturating_sub(FIGURES + 2 + if is_wide { MORE } else { 0 });
    let host = (room / 2).clamp(12, 28).min(room);
    let widths = Widths { host, model: room.saturating_sub(host + 1), is_wide };
    let shown = usize::from(area.height).saturating_sub(1 + usize::from(servers.len() > 1)).max(1);
    let first = view.chosen.saturating_sub(shown.saturating_sub(1)).min(servers.len().saturating_sub(shown));
    let mut lines = vec![Line::styled(cut(&headline(widths), width), screen.theme[Role::TextDim])];
    for (index, server) in servers.iter().enumerate().skip(first).take(shown) {
        lines.push(row(screen, (server, index == view.chosen), widths, width));
    }
    if servers.len() > 1 {
        let up = servers.iter().filter(|server| server.is_up()).count();
        let which = if up == servers.len() { format!("all {up}") } else { format!("{up} that answer") };
        let all = format!("  {} ", fit(&which, host + 1 + widths.model));
        let text = format!("{all}{}", figures(&view.fleet.together(), is_wide));
        lines.push(Line::styled(cut(&text, width), screen.theme[Role::TextDim]));
    }
    lines
}

fn headline(Widths { host, model, is_wide }: Widths) -> String {
    let more = if is_wide { format!(" {:>9} {:>11}", "drafting", "first token") } else { String::new() };
    format!(
        "  {} {} {:>7} {:>7} {:>9} {:>9} {:>12}{more}",
        fit("server", host),
        fit("model", model),
        "running",
        "waiting",
        "tokens/s",
        "accepted",
        "tokens/step"
    )
}

fn row(screen: Screen, (server, is_chosen): (&Watched, bool), widths: Widths, width: usize) -> Line<'static> {
    let mark = if is_chosen { "▸ " } else { "  " };
    let role = if is_chosen { Role::TextStrong } else { Role::Text };
    let Some(sample) = &server.newest else {
        return Line::styled(format!("{mark}asking …"), screen.theme[Role::TextDim]);
    };
    let (host, model) = (text::one_line(&sample.host), text::one_line(&sample.model));
    let name = format!("{mark}{} {} ", fit(&host, widths.host), fit(&model, widths.model));
    if !server.is_up() {
        let problem = text::one_line(sample.problem.as_deref().unwrap_or("nothing is known")).into_owned();
        let left = width.saturating_sub(Span::raw(&name).width());
        return Line::from(vec![
            Span::styled(name, screen.theme[role]),
            Span::styled(cut(&problem, left), screen.theme[Role::Warning]),
        ]);
    }
    Line::styled(cut(&format!("{name}{}", figures(&server.recent(), widths.is_wide)), width), screen.theme[role])
}

fn figures(rates: &Rates, is_wide: bool) -> String {
    let count = |value: Option<u64>| value.map_or("–".to_owned(), |value| value.to_string());
    let first = rates.first_token.map_or("–".to_owned(), |time| seconds(time.mean));
    let more = if is_wide { format!(" {:>9} {:>11}", percent(rates.drafting_share), first) } else { String::new() };
    format!(
        "{:>7} {:>7} {:>9} {:>9} {:>12}{more}",
        count(rates.running),
        count(rates.waiting),
        number(rates.tokens_per_second, 1),
        percent(rates.acceptance_rate),
        number(rates.tokens_per_step, 2)
    )
}
