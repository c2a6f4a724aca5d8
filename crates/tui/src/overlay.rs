//! What lies over the screen.

use draftscope_session::PassId;

use super::help_page::HelpPage;
use super::line_input::LineInput;
use super::panel_row::SettingsPanel;
use super::what_if_form::WhatIfForm;

/// What covers the screen and takes the keys.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Overlay {
    /// The help.
    Help(HelpPage),
    /// The list of actions.
    Palette(LineInput),
    Search(LineInput),
    /// A note being written about a place, else about this moment.
    Note(LineInput, Option<PassId>),
    /// The text that the user drafts in a lesson.
    Draft(LineInput),
    /// A moment being named.
    GoTo(LineInput),
    /// The settings.
    Settings(SettingsPanel),
    /// The rival's settings, with the chosen row.
    Versus(usize),
    /// The formats of an export, with the chosen one.
    Export(usize),
    WhatIf(Box<WhatIfForm>),
    /// The newest prompt as the model gets it, with the first line that is shown.
    SentPrompt(usize),
    /// Why a figure is disturbed.
    Why,
    /// Whether to leave a session that is not saved.
    Quit,
    /// The themes, with the index of the one used before.
    Themes(usize),
}
