//! How the answer is displayed: which discarded drafts it shows, and whether fates have marks as well as colours.
//!
//! Invariant: the mode changes only the display: the counts below the answer are those of every draft in each mode, and
//! the panel of the round shows every draft.

use clap::ValueEnum;

use draftscope_protocol::named_enum;

named_enum! {
    /// What the answer shows of drafts that were discarded.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub(crate) enum DisplayMode {
        /// A sign where drafts fell, with their number; the drafts of the running and of the selected round.
        #[default]
        Signs = "signs",
        /// Every discarded draft where it was, struck through.
        All = "all",
        /// Nothing: the text alone, its Markdown rendered.
        Text = "none",
    }
}

impl DisplayMode {
    /// The mode after it.
    pub(crate) const fn next(self) -> Self {
        Self::ALL[(self as usize + 1) % Self::ALL.len()]
    }
}

/// When fates have marks in the answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Marks {
    /// With `--ascii`, and where a theme gives fates the same look
    #[default]
    Auto,
    /// Always
    Always,
    /// Never
    Never,
}
