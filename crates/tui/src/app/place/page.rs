//! The views and the panes each is made of.
//!
//! Invariant: a pane belongs to one or more pages; the user decides which has the focus, `view` draws it. Only a page
//! with [`Pane::Prompt`] accepts typing.

use clap::ValueEnum;

use draftscope_protocol::named_enum;

use crate::input::action::Action;

named_enum! {
    /// A page.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, ValueEnum)]
    pub enum Page {
        /// The conversation.
        #[default]
        Chat = "Chat",
        /// The ladder of rounds.
        Rounds = "Rounds",
        /// One position.
        Inspect = "Inspect",
        /// Where the time goes.
        Speed = "Speed",
        /// Plain against speculative.
        Compare = "Compare",
        /// Lessons.
        Learn = "Learn",
    }
}

/// A part of a page that can have the focus and the whole screen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum Pane {
    #[default]
    Prompt,
    Answer,
    Plots,
    Round,
    Ladder,
    Distributions,
    Numbers,
    Curves,
    Times,
    Positions,
    Costs,
    Memory,
    Account,
    Lanes,
    Table,
    Lesson,
}

impl Page {
    /// For a screen too narrow for all names.
    #[must_use]
    pub const fn short_name(self) -> &'static str {
        match self {
            Self::Inspect => "Insp.",
            Self::Compare => "Comp.",
            _ => self.name(),
        }
    }

    /// The action that shows it.
    #[must_use]
    pub const fn action(self) -> Action {
        match self {
            Self::Chat => Action::ViewChat,
            Self::Rounds => Action::ViewRounds,
            Self::Inspect => Action::ViewInspect,
            Self::Speed => Action::ViewSpeed,
            Self::Compare => Action::ViewCompare,
            Self::Learn => Action::ViewLearn,
        }
    }

    /// Its panes, in the order in which the key cycles them.
    pub(crate) const fn panes(self) -> &'static [Pane] {
        match self {
            Self::Chat => &[Pane::Prompt, Pane::Answer, Pane::Round, Pane::Plots],
            Self::Rounds => &[Pane::Ladder, Pane::Round],
            Self::Inspect => &[Pane::Distributions, Pane::Numbers],
            Self::Speed => &[Pane::Curves, Pane::Positions, Pane::Costs, Pane::Times, Pane::Memory, Pane::Account],
            Self::Compare => &[Pane::Lanes, Pane::Table],
            Self::Learn => &[Pane::Lesson, Pane::Round],
        }
    }

    /// The pane that gets the focus when the user looks rather than types.
    pub(crate) const fn home(self) -> Pane {
        match self {
            Self::Chat => Pane::Answer,
            _ => self.panes()[0],
        }
    }
}
