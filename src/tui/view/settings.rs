//! The settings in force, and the requested ones.
//!
//! Invariant: a requested value that is not in force yet has a `→`, as in the status line.

use crate::tui::panel_row::PanelRow;

use super::prelude::*;
use super::screen::keys_of_choices;
use super::screens;

/// Width of the names and of the values.
const NAME: usize = 19;
const VALUE: usize = 28;

/// Width of the panel if there is room: hints are no longer than this leaves them.
const WIDTH: u16 = 100;

pub(super) fn render(screen: Screen, row: usize, area: Rect, frame: &mut Frame) {
    let height = PanelRow::ALL.len() as u16 + 4;
    let area = screens::centre(area, area.width.min(WIDTH), height.min(area.height));
    let block = screen.panel(" Settings ");
    let inner = screen.over(block.bottom(keys_of_choices(screen)), area, frame);
    let live = screen.time.live();
    let (now, wanted) = (*live.settings(), screen.app.settings(live));
    let fits = usize::from(inner.height).saturating_sub(2).max(1); // two lines of hints
    let mut lines: Vec<_> = PanelRow::ALL
        .iter()
        .enumerate()
        .skip((row + 1).saturating_sub(fits))
        .take(fits)
        .map(|(index, setting)| {
            let (value, is) = (setting.value(screen.app, &wanted), setting.value(screen.app, &now));
            let arrow = if value == is { "  " } else { "→ " };
            let chosen = index == row;
            let room = usize::from(inner.width).saturating_sub(2 + NAME + VALUE);
            let line = Line::from(vec![
                Span::styled(if chosen { "▸ " } else { "  " }, screen.theme[Role::Key]),
                Span::styled(fit(setting.name(), NAME), screen.theme[Role::Text]),
                Span::styled(fit(&format!("{arrow}{value}"), VALUE), screen.theme[Role::TextStrong]),
                // whole or not at all: the one of the chosen row stands below
                Span::styled(
                    if setting.hint().width() > room { "" } else { setting.hint() },
                    screen.theme[Role::TextDim],
                ),
            ]);
            if chosen { line.patch_style(screen.theme[Role::Selected]) } else { line }
        })
        .collect();
    let whole = PanelRow::ALL.get(row).map_or("", |setting| setting.hint());
    lines.push(Line::styled(
        format!("  {}", cut(whole, usize::from(inner.width).saturating_sub(2))),
        screen.theme[Role::Text],
    ));
    lines.push(Line::styled("  changes of the run hold from the next round on", screen.theme[Role::TextDim]));
    put(lines, inner, frame);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::{Settings, VerifyRule};
    use crate::tui::setting_row::SettingRow;

    #[test]
    fn values_end_before_the_hints_and_hints_are_whole() {
        for rule in VerifyRule::ALL {
            let settings = Settings { rule: *rule, ..Settings::default() };
            assert!(SettingRow::Rule.value(&settings).chars().count() + 2 < VALUE, "{rule}");
        }
        let room = usize::from(WIDTH) - 2 - 2 - NAME - VALUE;
        for setting in PanelRow::ALL {
            assert!(setting.hint().chars().count() <= room, "{}", setting.hint());
        }
    }
}
