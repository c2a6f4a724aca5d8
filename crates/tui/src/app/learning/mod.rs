//! Where the user is in the lessons and in the quiz, and the run that a lesson asked for.

pub(crate) mod lesson_row;
mod lesson_run;
pub(crate) mod quiz;
pub(crate) mod study;

use draftscope_session::Timeline;

/// A lesson's run that the user left before its answer ended.
pub(crate) struct LeftRun {
    pub(crate) run: Timeline,
    /// Turns that it has once the last one that was asked for has begun.
    pub(crate) turns: usize,
}
