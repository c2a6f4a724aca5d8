//! What an action does to an overlay.

use crate::app::{App, Overlay};
use crate::input::action::Action;
use draftscope_protocol::Command;

/// The effect of an action on an overlay.
pub(super) enum Done {
    /// The overlay handled it.
    Yes(Vec<Command>),
    /// The overlay is closed and this is to be done instead.
    Run(Action),
    /// It is for what lies under the overlay.
    No,
}

/// Restores the overlay: only actions that concern no overlay are passed on.
pub(super) fn keep(app: &mut App, overlay: Overlay) -> Done {
    app.place.overlay = Some(overlay);
    Done::Yes(Vec::new())
}

pub(super) fn below(app: &mut App, overlay: Overlay, action: Action) -> Done {
    if matches!(action, Action::Palette | Action::Help) {
        return Done::Run(action);
    }
    let stays = matches!(
        action,
        Action::StopOrQuit
            | Action::Suspend
            | Action::Picture
            | Action::PauseResume
            | Action::DraftLenUp
            | Action::DraftLenDown
            | Action::DialUp
            | Action::DialDown
    );
    if !stays {
        return keep(app, overlay);
    }
    // what is below must not open or close anything: none of these does
    app.place.overlay = Some(overlay);
    Done::No
}
