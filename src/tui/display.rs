//! How the answer reads: which drafts it shows, and whether fates have marks as well as colours.
//!
//! Invariant: the mode changes how the answer reads, never what is known of it: the strip below shows the fate of
//! every kept token in each mode, the round below every draft.

use clap::ValueEnum;

/// What the answer shows beside its text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) enum DisplayMode {
    /// Fates as colours; discarded drafts of the live and of the selected round only.
    #[default]
    Live,
    /// Every discarded draft where it stood, and a mark at each fate.
    AllMarks,
    /// The text alone, its Markdown rendered.
    Plain,
}

impl DisplayMode {
    /// The one that the key takes next.
    pub(super) const fn next(self) -> Self {
        match self {
            Self::Live => Self::AllMarks,
            Self::AllMarks => Self::Plain,
            Self::Plain => Self::Live,
        }
    }

    /// On screen.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Live => "live: colours, and the drafts of the round that runs",
            Self::AllMarks => "all marks: every draft where it stood",
            Self::Plain => "plain text, with its Markdown",
        }
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
