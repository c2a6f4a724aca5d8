//! Rows of the settings panel: settings of the run, and those of the screen.
//!
//! Invariant: a row of the run asks the engine; a row of the screen applies at once.

use super::app::App;
use super::setting_row::SettingRow;
use crate::protocol::Settings;

/// A row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PanelRow {
    Run(SettingRow),
    Theme,
    Pace,
    Autosave,
}

/// Rows of the run before those of the screen; the conventions of the MTP module are for experts and come last.
const FIRST: usize = 13;

/// Every row, in the order of the panel.
const ROWS: [PanelRow; SettingRow::ALL.len() + 3] = {
    let mut rows = [PanelRow::Theme; SettingRow::ALL.len() + 3];
    let mut at = 0;
    while at < SettingRow::ALL.len() {
        rows[if at < FIRST { at } else { at + 3 }] = PanelRow::Run(SettingRow::ALL[at]);
        at += 1;
    }
    rows[FIRST + 1] = PanelRow::Pace;
    rows[FIRST + 2] = PanelRow::Autosave;
    rows
};

impl PanelRow {
    /// Every row, in the order of the panel.
    pub(super) const ALL: &'static [Self] = &ROWS;

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Run(setting) => setting.name(),
            Self::Theme => "theme",
            Self::Pace => "pace",
            Self::Autosave => "autosave",
        }
    }

    /// A short description.
    pub(super) const fn hint(self) -> &'static str {
        match self {
            Self::Run(setting) => setting.hint(),
            Self::Theme => "colours of the screen",
            Self::Pace => "how fast answers appear; not what is measured",
            Self::Autosave => "save the session when you quit",
        }
    }

    /// Its value under these settings of the run.
    pub(super) fn value(self, app: &App, settings: &Settings) -> String {
        match self {
            Self::Run(setting) => setting.value(settings),
            Self::Theme => app.theme().name.clone(),
            Self::Pace => app.pace.label(),
            Self::Autosave => if app.autosave { "on" } else { "off" }.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::Convention;

    #[test]
    fn every_row_is_there_once_and_experts_rows_are_last() {
        let rows = PanelRow::ALL;
        let settings: Vec<_> = SettingRow::ALL.iter().map(|setting| PanelRow::Run(*setting)).collect();
        let screen = [PanelRow::Theme, PanelRow::Pace, PanelRow::Autosave];
        assert!(settings.iter().chain(&screen).all(|row| rows.iter().filter(|other| *other == row).count() == 1));
        assert_eq!(rows[FIRST - 1], PanelRow::Run(SettingRow::Baseline));
        assert_eq!(rows[FIRST + 3], PanelRow::Run(SettingRow::Mtp(Convention::Feed)));
    }
}
