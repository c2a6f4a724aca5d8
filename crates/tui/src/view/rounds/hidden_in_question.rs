//! What a step of a lesson asks about the round on show: the round does not say it until the question is answered.

use draftscope_learn::lesson::Hidden;
use draftscope_protocol::Outcome;

use crate::view::learn::hidden::hides;
use crate::view::prelude::*;

/// Whether it is asked what became of a draft after the first rejected one.
pub(super) fn hides_fate(screen: Screen, round: &Round, index: usize) -> bool {
    round.outcome(index) == Some(Outcome::NotReached) && hides(screen, Hidden::NotReached)
}

/// Whether it is asked what the sentence about a column says.
pub(super) fn hides_reason(screen: Screen, round: &Round, index: usize) -> bool {
    hides(screen, Hidden::Reason) || hides_fate(screen, round, index)
}

/// Whether the number of accepted drafts would say what became of those after the first rejected one.
pub(super) fn hides_count(screen: Screen, round: &Round) -> bool {
    (0..round.drafts.len()).any(|index| hides_fate(screen, round, index))
}
