//! What lies over the screen.

pub(crate) mod help_page;
pub(crate) mod panel_row;
pub(crate) mod setting_row;
pub(crate) mod what_if_form;

use draftscope_session::PassId;

use self::help_page::HelpPage;
use self::panel_row::SettingsPanel;
use self::what_if_form::WhatIfForm;
use crate::input::line_input::LineInput;

/// What covers the screen and takes the keys.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Overlay {
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
