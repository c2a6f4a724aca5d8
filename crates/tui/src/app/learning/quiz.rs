//! Where the user is in the quiz.

use draftscope_learn::quiz::{Results, Run, Sitting};

/// Which screen of the quiz is on show.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Stage {
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
pub(crate) enum Offer {
    Before,
    Quiz,
    After,
    Certificate,
}

/// In the order of the screen.
pub(crate) const OFFERS: [Offer; 4] = [Offer::Before, Offer::Quiz, Offer::After, Offer::Certificate];

/// The quiz under way and what is kept of earlier ones.
#[derive(Debug, Default)]
pub(crate) struct Quiz {
    pub(crate) stage: Stage,
    /// Chosen line of the first screen, and of the certificate.
    pub(crate) choice: usize,
    pub(crate) line: usize,
    pub(crate) run: Option<Run>,
    pub(crate) sitting: Option<Sitting>,
    pub(crate) results: Results,
}

impl Quiz {
    /// Whether the item on show was answered.
    pub(crate) fn is_answered(&self) -> bool {
        self.run.as_ref().is_some_and(|run| run.answered().is_some())
    }
}
