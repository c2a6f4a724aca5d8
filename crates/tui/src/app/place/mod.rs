//! Where the user looks: page, pane and rounds, and what a frame measured of them.

pub(crate) mod filter;
pub(crate) mod hit_map;
pub(crate) mod marks;
pub(crate) mod page;
pub(crate) mod search;

/// Which line of the transcript is on top.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Scroll {
    /// The newest line is in view.
    #[default]
    Follow,
    /// This one.
    Top(usize),
    /// The selected round is in view.
    Selected,
    /// The turn of the selected round begins on top.
    Turn,
}
