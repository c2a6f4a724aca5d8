//! The quiz: ten rounds to judge, ten statements to judge before and after the lessons, and what came of both.
//!
//! ```text
//!   bank.toml ─┐
//!              ├─► Item (a real round) ──► Shown (what is on screen) ──► answer of the user ──► belief, score
//!   session  ──┘                                └──► judge: an item that the screen does not decide is not asked
//! ```
//!
//! Invariant: the right answer is the recorded verdict of the engine's rule; nothing here decides it. The answer is on
//! screen only after the user has given one.

mod ask;
mod bank;
mod belief;
mod beliefs;
mod draw;
mod item;
mod judge;
mod results;
mod run;
mod sheet;
mod shown;
mod statements;
#[cfg(test)]
mod tests;

pub use bank::bank;
pub use belief::Belief;
pub use item::{Category, Item, reason};
pub use results::{Finished, Results, certificate, changes, minutes};
pub use run::{Given, Run, Sitting};
pub use sheet::{Sheet, sheet};
pub use shown::{Answer, Choice, Hundredths, Shown, ShownCandidate, ShownDraft, row_kind, row_text, word};
pub use statements::{Statement, Truth, statements};
