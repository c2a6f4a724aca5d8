//! Rows of the settings panel: settings of the run, and those of the screen, in groups.
//!
//! Invariant: a row of the run asks the engine; a row of the screen applies at once. Rows for experts are there once they
//! are unfolded, and come last.

use crate::app::overlay::setting_row::SettingRow;
use draftscope_protocol::Convention;

/// A row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PanelRow {
    Run(SettingRow),
    Theme,
    Pace,
    Autosave,
    /// Unfolds the rows for experts.
    Experts,
}

/// The settings panel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SettingsPanel {
    /// Index of the chosen row.
    pub(crate) row: usize,
    /// Whether the rows for experts are there.
    pub(crate) is_unfolded: bool,
}

use PanelRow::{Autosave, Experts, Pace, Run, Theme};
use SettingRow::{
    Baseline, Dial, DraftLen, Drafter, MaxTokens, MinP, Mode, Mtp, PMin, Rule, Seed, Temperature, TopK, TopP, Tree,
};

/// Names of the groups, and their rows.
const GROUPS: [(&str, &[PanelRow]); 4] = [
    ("Drafts", &[Run(Drafter), Run(DraftLen), Run(Mode), Run(Tree), Run(PMin)]),
    ("Verification and sampling", &[Run(Rule), Run(Temperature), Run(TopK), Run(TopP), Run(MinP), Run(Seed)]),
    ("Answers", &[Run(MaxTokens), Run(Baseline), Pace, Autosave]),
    ("More", &[Theme, Experts]),
];

/// Rows for experts: the dial, which has keys of its own, and conventions of the MTP module.
pub(crate) const EXPERTS: [PanelRow; 8] = [
    Run(Dial),
    Run(Mtp(Convention::Feed)),
    Run(Mtp(Convention::Recycle)),
    Run(Mtp(Convention::Order)),
    Run(Mtp(Convention::Pairing)),
    Run(Mtp(Convention::Position)),
    Run(Mtp(Convention::SlotZero)),
    Run(Mtp(Convention::Norm)),
];

impl SettingsPanel {
    /// The rows, each with the name of the group that it begins.
    pub(crate) fn rows(self) -> impl Iterator<Item = (Option<&'static str>, PanelRow)> {
        let experts = if self.is_unfolded { EXPERTS.as_slice() } else { &[] };
        let named = |(name, rows): (&'static str, &'static [PanelRow])| {
            rows.iter().enumerate().map(move |(index, row)| ((index == 0).then_some(name), *row))
        };
        GROUPS.into_iter().flat_map(named).chain(experts.iter().map(|row| (None, *row)))
    }

    /// The chosen row.
    pub(crate) fn chosen(self) -> PanelRow {
        self.rows().nth(self.row).map_or(Experts, |(_, row)| row)
    }

    /// The panel with the row above or below chosen, if there is one.
    pub(crate) fn moved(self, down: bool) -> Self {
        let last = self.rows().count() - 1;
        let row = if down { (self.row + 1).min(last) } else { self.row.saturating_sub(1) };
        Self { row, ..self }
    }
}

impl PanelRow {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Run(setting) => setting.name(),
            Theme => "theme",
            Pace => "pace",
            Autosave => "autosave",
            Experts => "expert settings",
        }
    }

    /// A short description.
    pub(crate) const fn hint(self) -> &'static str {
        match self {
            Run(setting) => setting.hint(),
            Theme => "colours of the screen; T lists them and keeps one",
            Pace => "how fast answers appear; not what is measured",
            Autosave => "save the session when you quit",
            Experts => "how the MTP module is fed; → unfolds, ← folds",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_setting_has_one_row_and_experts_rows_are_folded() {
        let rows = |is_unfolded| SettingsPanel { row: 0, is_unfolded }.rows().map(|(_, row)| row).collect::<Vec<_>>();
        let unfolded = rows(true);
        let settings = SettingRow::ALL.iter().map(|setting| Run(*setting)).chain([Theme, Pace, Autosave, Experts]);
        for row in settings {
            assert_eq!(unfolded.iter().filter(|other| **other == row).count(), 1, "{row:?}");
        }
        let is_experts = |row: &PanelRow| matches!(row, Run(Mtp(_)));
        assert!(!rows(false).iter().any(is_experts), "folded");
        assert_eq!(rows(false), unfolded[..unfolded.len() - EXPERTS.len()], "and they come last");
    }
}
