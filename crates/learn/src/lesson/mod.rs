//! Lessons: their texts, the check of a file, the numbers that they ask about, and the record of what was done.
//!
//! ```text
//!   assets/lessons/*.toml ─► check ─► Lesson ──► shown(step, Session) ─► ShownStep: texts with measured numbers
//!   a file of the user    ──┘           └──► Run: the prompt and the settings that a step rests on
//! ```

mod answers;
mod check;
mod content;
mod fact;
mod library;
mod progress;
mod run;
mod texts;

pub use check::{LessonError, check};
pub use content::{Choice, Example, Goal, Hidden, Lesson, Measured, Panel, ShownStep, Step, Task};
pub use fact::{Fact, UNKNOWN, filled, grouped};
pub use library::{Entry, all, bundled, find};
pub use progress::{Progress, StepOnShow};
pub use run::{Run, drafted};

#[cfg(test)]
mod tests;
