//! What a user can do: actions, the keys that ask for them, and text that is typed.

pub(crate) mod action;
pub(crate) mod editor;
pub(crate) mod keymap;
pub(crate) mod line_input;
