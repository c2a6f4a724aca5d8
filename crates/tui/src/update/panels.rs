//! Panels of which one row is chosen: settings, the rival's settings, exports, the sent prompt, themes.

use crate::app::overlay::panel_row::{PanelRow, SettingsPanel};
use crate::app::overlay::setting_row::SettingRow;
use crate::app::{App, Ask, Overlay};
use crate::input::action::Action;
use draftscope_session::Session;

use super::done::{Done, below, keep};
use super::settings as change;

pub(super) fn settings(app: &mut App, live: &Session, mut panel: SettingsPanel, action: Action) -> Done {
    let mut commands = Vec::new();
    match (action, panel.chosen()) {
        (Action::Up | Action::Down, _) => panel = panel.moved(action == Action::Down),
        (Action::Left | Action::Right, PanelRow::Experts) => panel.is_unfolded = action == Action::Right,
        (Action::Left | Action::Right, row) => commands = change::turn_row(app, live, row, action == Action::Right),
        (Action::Confirm, PanelRow::Experts) => panel.is_unfolded = !panel.is_unfolded,
        (Action::Confirm, _) => return Done::Yes(commands),
        _ => return below(app, Overlay::Settings(panel), action),
    }
    app.place.overlay = Some(Overlay::Settings(panel));
    Done::Yes(commands)
}

pub(super) fn versus(app: &mut App, live: &Session, row: usize, action: Action) -> Done {
    let last = SettingRow::RIVAL.len(); // after the row that says whether anything races at all
    let row = row.min(last);
    let commands = match action {
        Action::Up => return keep(app, Overlay::Versus(row.saturating_sub(1))),
        Action::Down => return keep(app, Overlay::Versus((row + 1).min(last))),
        Action::Left | Action::Right => change::oppose(app, live, row, action == Action::Right),
        Action::Confirm => return Done::Yes(Vec::new()),
        _ => return below(app, Overlay::Versus(row), action),
    };
    app.place.overlay = Some(Overlay::Versus(row));
    Done::Yes(commands)
}

pub(super) fn export(app: &mut App, row: usize, action: Action) -> Done {
    let last = app.options.export.as_ref().map_or(0, |exporter| exporter.formats.len()).saturating_sub(1);
    match action {
        Action::Up => keep(app, Overlay::Export(row.saturating_sub(1))),
        Action::Down => keep(app, Overlay::Export((row + 1).min(last))),
        Action::Confirm => {
            app.requests.asks.push(Ask::Export(row));
            Done::Yes(Vec::new())
        }
        _ => below(app, Overlay::Export(row), action),
    }
}

/// Scrolls by lines and pages.
pub(super) fn sent_prompt(app: &mut App, line: usize, action: Action) -> Done {
    const PAGE: usize = 10;
    let line = line.min(app.place.hit_map.help_max);
    let line = match action {
        Action::Up => line.saturating_sub(1),
        Action::Down => line.saturating_add(1),
        Action::PageUp => line.saturating_sub(PAGE),
        Action::PageDown => line.saturating_add(PAGE),
        Action::Confirm => return Done::Yes(Vec::new()),
        _ => return below(app, Overlay::SentPrompt(line), action),
    };
    keep(app, Overlay::SentPrompt(line))
}

/// A theme applies as soon as it is chosen; leaving restores the one before, and Enter keeps it for later starts.
pub(super) fn themes(app: &mut App, before: usize, action: Action) -> Done {
    let chosen = app.themes().1;
    match action {
        Action::Up => app.choose_theme(chosen.saturating_sub(1)),
        Action::Down => app.choose_theme(chosen + 1),
        Action::Confirm => {
            app.requests.asks.push(Ask::KeepTheme(app.theme().name.clone()));
            return Done::Yes(Vec::new());
        }
        _ => return below(app, Overlay::Themes(before), action),
    }
    keep(app, Overlay::Themes(before))
}
