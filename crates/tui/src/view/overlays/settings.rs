//! The settings in force, and the requested ones.
//!
//! Invariant: a requested value that is not in force yet has a `→`, as in the status line.

use crate::app::App;
use crate::app::overlay::panel_row::{EXPERTS, PanelRow, SettingsPanel};
use draftscope_protocol::Settings;

use crate::view::prelude::*;
use crate::view::screen::keys_of_choices;
use crate::view::screens;

/// Width of the names and of the values.
const NAME: usize = 19;
const VALUE: usize = 28;

/// Width of the panel if there is room: hints are no longer than this leaves them.
const WIDTH: u16 = 100;

pub(in crate::view) fn render(screen: Screen, panel: SettingsPanel, area: Rect, frame: &mut Frame) {
    let live = screen.time.live();
    let both = [*live.settings(), screen.app.requests.settings(live)];
    let (mut lines, mut chosen) = (Vec::new(), 0);
    for (index, (group, row)) in panel.rows().enumerate() {
        lines.extend(group.map(|name| Line::styled(name, screen.theme[Role::TextDim])));
        if index == panel.row {
            chosen = lines.len();
        }
        lines.push(line(screen, panel, (row, index == panel.row, area.width >= WIDTH), both));
    }
    let height = (lines.len() as u16 + 3).min(area.height);
    let area = screens::centre(area, area.width.min(WIDTH), height);
    let block = screen.panel(" Settings; those of the run hold from the next round on ");
    let inner = screen.over(block.bottom(keys_of_choices(screen)), area, frame);
    let fits = usize::from(inner.height).saturating_sub(1).max(1); // one line for the hint
    let hidden = (chosen + 1).saturating_sub(fits);
    lines = lines.split_off(hidden);
    lines.truncate(fits);
    let hint = cut(panel.chosen().hint(), usize::from(inner.width).saturating_sub(2));
    lines.push(Line::styled(format!("  {hint}"), screen.theme[Role::Text]));
    put(lines, inner, frame);
}

/// A row: its name, its value in force or the requested one, and what it is about where all hints have room.
fn line(
    screen: Screen,
    panel: SettingsPanel,
    (row, is_chosen, has_hint): (PanelRow, bool, bool),
    [now, wanted]: [Settings; 2],
) -> Line<'static> {
    let [is, value] = [&now, &wanted].map(|settings| value(row, screen.app, settings, panel));
    let arrow = if value == is { "  " } else { "→ " };
    let line = Line::from(vec![
        Span::styled(if is_chosen { "▸ " } else { "  " }, screen.theme[Role::Key]),
        Span::styled(fit(row.name(), NAME), screen.theme[Role::Text]),
        Span::styled(fit(&format!("{arrow}{value}"), VALUE), screen.theme[Role::TextStrong]),
        Span::styled(if has_hint { row.hint() } else { "" }, screen.theme[Role::TextDim]),
    ]);
    if is_chosen { line.patch_style(screen.theme[Role::Selected]) } else { line }
}

/// The value of a row under these settings of the run.
fn value(row: PanelRow, app: &App, settings: &Settings, panel: SettingsPanel) -> String {
    match row {
        PanelRow::Run(setting) => setting.value(settings),
        PanelRow::Theme => app.theme().name.clone(),
        PanelRow::Pace => app.clock.pace.label(),
        PanelRow::Autosave => if app.leaving.autosave { "on" } else { "off" }.to_owned(),
        PanelRow::Experts if panel.is_unfolded => "below".to_owned(),
        PanelRow::Experts => format!("{} rows", EXPERTS.len()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::overlay::setting_row::SettingRow;
    use draftscope_protocol::VerifyRule;

    #[test]
    fn values_end_before_the_hints_and_hints_are_whole() {
        for rule in VerifyRule::ALL {
            let settings = Settings { rule: *rule, ..Settings::default() };
            assert!(SettingRow::Rule.value(&settings).chars().count() + 2 < VALUE, "{rule}");
        }
        let room = usize::from(WIDTH) - 2 - 2 - NAME - VALUE;
        for (_, setting) in (SettingsPanel { row: 0, is_unfolded: true }).rows() {
            assert!(setting.hint().chars().count() <= room, "{}", setting.hint());
        }
    }
}
