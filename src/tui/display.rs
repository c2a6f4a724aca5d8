//! How the answer is displayed: which drafts it shows, and whether fates have marks as well as colours.
//!
//! Invariant: the mode changes only the display: the strip below shows the fate of every kept token in each mode, and
//! the round below shows every draft.

use clap::ValueEnum;

use crate::protocol::named_enum;

named_enum! {
    /// What the answer shows besides its text.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub(super) enum DisplayMode {
        /// Fates as colours; discarded drafts of the live and of the selected round only.
        #[default]
        Live = "live: colours, and the drafts of the round that runs",
        /// Every discarded draft in its place, and a mark at each fate.
        AllMarks = "all marks: every draft where it stood",
        /// The text alone, its Markdown rendered.
        Plain = "plain text, with its Markdown",
    }
}

impl DisplayMode {
    /// The mode after it.
    pub(super) const fn next(self) -> Self {
        Self::ALL[(self as usize + 1) % Self::ALL.len()]
    }
}

/// When fates have marks in the live display of an answer, and in the strip below it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Marks {
    /// Where fates have no colours of their own: `NO_COLOR`, the theme `mono`, `--ascii`
    #[default]
    Auto,
    /// Always
    Always,
    /// Never
    Never,
}
