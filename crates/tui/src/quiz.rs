//! Where the user is in the quiz.

use draftscope_learn::quiz::{Results, Run, Sitting};

/// Which screen of the quiz is on show.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Stage {
    /// The choice of what to do.
    #[default]
    Home,
    /// An item, or what became of the answer to it.
    Item,
    /// A statement; after the lessons with the reason once it was answered.
    Statement,
    /// Score, time and beliefs.
    Certificate,
}

/// What the first screen offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Offer {
    Before,
    Quiz,
    After,
    Certificate,
}

/// In the order of the screen.
pub(super) const OFFERS: [Offer; 4] = [Offer::Before, Offer::Quiz, Offer::After, Offer::Certificate];

/// The quiz under way and what is kept of earlier ones.
#[derive(Debug, Default)]
pub(super) struct Quiz {
    pub(super) stage: Stage,
    /// Chosen line of the first screen, and of the certificate.
    pub(super) choice: usize,
    pub(super) line: usize,
    pub(super) run: Option<Run>,
    pub(super) sitting: Option<Sitting>,
    pub(super) results: Results,
}

impl Quiz {
    /// Whether the item on show was answered.
    pub(super) fn is_answered(&self) -> bool {
        self.run.as_ref().is_some_and(|run| run.answered().is_some())
    }
}
