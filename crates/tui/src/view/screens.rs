//! Whole-screen states: too small, loading, the engine has stopped.
//!
//! Invariant: a failure is always readable and says how to leave; the conversation stays visible around it.

use ratatui::layout::Flex;
use ratatui::widgets::{Clear, Gauge};

use super::prelude::*;
use super::screen::MIN_SIZE;
use crate::view::bars::footer;

pub(super) fn too_small(screen: Screen, area: Rect, frame: &mut Frame) {
    let (width, height) = MIN_SIZE;
    let text = format!("too small: {}×{}, needs {width}×{height}", area.width, area.height);
    let lines = wrapped(&text, area.width, screen.theme[Role::Warning]);
    put(lines, area, frame);
}

/// Whether there is nothing to show yet but progress (until the user begins to type).
pub(super) fn is_loading(screen: Screen) -> bool {
    let live = screen.time.live();
    let has_begun = live.header().is_some() || live.failure().is_some();
    !has_begun
        && screen.app.requests.lost.is_none()
        && screen.app.talk.editor.is_empty()
        && screen.app.place.page == Page::Chat
}

/// Says why the engine has stopped, over what can still be read.
pub(super) fn failure(screen: Screen, area: Rect, frame: &mut Frame) {
    if let Some(failure) = screen.time.live().failure().or(screen.app.requests.lost.as_deref()) {
        failed(screen, failure, area, frame);
    }
}

fn failed(screen: Screen, message: &str, area: Rect, frame: &mut Frame) {
    let width = area.width.min(76);
    let mut lines = wrapped(&text::printable(message), width.saturating_sub(4), screen.theme[Role::Text]);
    let mut other = Vec::new();
    if let Some(text) = screen.app.without_engine(screen.time.live()) {
        other.push(Line::default());
        other.extend(wrapped(text, width.saturating_sub(4), screen.theme[Role::Text]));
    }
    let most = usize::from(area.height).saturating_sub(4 + other.len()).max(1);
    lines = footer::without_middle(lines, most, screen.theme[Role::Text]);
    lines.push(Line::default());
    lines.extend(other);
    let quit = screen.app.keymap.binding(Context::Browse, Action::StopOrQuit);
    let keys = quit.map_or(String::new(), |binding| screen.app.keymap.keys(binding));
    lines.push(Line::styled(format!("{keys} quits."), screen.theme[Role::TextDim]));
    let height = lines.len().saturating_add(2).min(area.height.into()) as u16;
    let area = centre(area, width, height);
    let block = screen
        .panel(" The engine has stopped ")
        .title_style(screen.theme[Role::Error])
        .border_style(screen.theme[Role::Error]);
    frame.render_widget(Clear, area);
    let inner = boxed(block, area, frame);
    put(lines, inner, frame);
}

pub(super) fn loading(screen: Screen, area: Rect, frame: &mut Frame) {
    let area = centre(area, area.width.min(60), 3);
    let (title, ratio, label) = match screen.session.loading() {
        Some(loading) => {
            let ratio =
                if loading.total == 0 { 0.0 } else { (loading.done as f64 / loading.total as f64).clamp(0.0, 1.0) };
            // a single step has nothing between none and all
            let percent = (loading.total > 1).then(|| format!("{:.0}%", ratio * 100.0));
            (format!(" Loading: {} ", text::one_line(&loading.stage)), ratio, percent.unwrap_or_default())
        }
        None => (" Starting ".to_owned(), 0.0, String::new()),
    };
    let inner = boxed(screen.panel(title), area, frame);
    if label.is_empty() {
        return goes_on(screen, inner, frame);
    }
    let gauge = Gauge::default().gauge_style(screen.theme[Role::PlotBar]).ratio(ratio).label(label);
    frame.render_widget(gauge, inner);
}

/// A bar that only shows activity: a part of it moves from side to side.
fn goes_on(screen: Screen, inner: Rect, frame: &mut Frame) {
    let width = usize::from(inner.width / 5).max(1);
    let way = usize::from(inner.width).saturating_sub(width).max(1);
    let at = screen.app.clock.loading_ticks * 2 % (2 * way);
    let x = inner.x + at.min(2 * way - at) as u16;
    let part = Rect { x, width: width as u16, ..inner }.intersection(inner);
    frame.render_widget(Line::styled("█".repeat(part.width.into()), screen.theme[Role::PlotBar]), part);
}

pub(super) fn centre(area: Rect, width: u16, height: u16) -> Rect {
    let [row] = Layout::vertical([Constraint::Length(height)]).flex(Flex::Center).areas(area);
    let [cell] = Layout::horizontal([Constraint::Length(width)]).flex(Flex::Center).areas(row);
    cell
}
