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

mod bank;
mod beliefs;
mod draw;
mod item;
mod judge;
mod results;
mod sheet;
mod shown;
mod statements;
#[cfg(test)]
mod tests;

use std::time::{Duration, Instant};

use draftscope_protocol::Outcome;
use draftscope_session::Session;
use draftscope_session::text::one_line;

pub(super) use bank::bank;
use beliefs::explained;
pub(super) use beliefs::{Belief, beliefs_of};
pub(super) use draw::draw;
pub(super) use item::Item;
pub(super) use results::{Finished, Results, certificate, changes, minutes};
pub use sheet::{Sheet, sheet};
pub(super) use sheet::{row_kind, row_text, word};
pub(super) use shown::{Answer, Shown};
pub(super) use statements::{Statement, Truth, statements};

use super::selection::rounds;

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

/// Ten items and the answers so far.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) items: Vec<Item>,
    /// The item on show.
    pub(super) at: usize,
    pub(super) marks: Vec<Option<Outcome>>,
    pub(super) committed: Option<usize>,
    /// The drafts in the order of the screen.
    pub(super) order: Vec<usize>,
    /// The line that keys change: of a draft, in that order, and after the drafts of a choice.
    pub(super) cursor: usize,
    pub(super) given: Vec<Given>,
    /// When the item on show was first seen; none once it is answered.
    since: Option<Instant>,
    /// Time of the answered items.
    pub(super) took: Duration,
}

/// An answer.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Given {
    pub(super) answer: Answer,
    pub(super) is_right: bool,
    /// What a wrong one fits, the most special belief first.
    pub(super) beliefs: Vec<Belief>,
}

/// The statements under way.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Sitting {
    /// Before the lessons nothing is revealed, so that the second answers measure what was learned.
    pub(super) is_after: bool,
    pub(super) at: usize,
    pub(super) choice: usize,
    pub(super) answers: Vec<Truth>,
}

impl Run {
    /// A quiz of the bank and of the session on show.
    pub(super) fn new(session: &Session, seed: u64) -> Self {
        let own: Vec<Item> = rounds(session).filter_map(|at| Item::of_round(session, at)).collect();
        Self::of(draw(&bank(), &own, seed))
    }

    pub(super) fn of(items: Vec<Item>) -> Self {
        let mut run = Self {
            items,
            at: 0,
            marks: Vec::new(),
            committed: None,
            order: Vec::new(),
            cursor: 0,
            given: Vec::new(),
            since: None,
            took: Duration::ZERO,
        };
        run.begin();
        run
    }

    fn begin(&mut self) {
        self.order = self.items.get(self.at).map_or(Vec::new(), |item| Shown::of(item).order());
        (self.marks, self.committed, self.cursor) = (vec![None; self.order.len()], None, 0);
        self.since = Some(Instant::now());
    }

    /// The item on show.
    pub(super) fn item(&self) -> Option<&Item> {
        self.items.get(self.at)
    }

    /// The answer to the item on show, once it was given.
    pub(super) fn answered(&self) -> Option<&Given> {
        self.given.get(self.at)
    }

    /// Moves between drafts and choices; a choice that is moved to is taken.
    pub(super) fn go_to(&mut self, cursor: usize) {
        let Some(item) = self.item().filter(|_| self.answered().is_none()) else { return };
        let drafts = self.order.len();
        let lines = drafts + Shown::of(item).choices.len();
        self.cursor = cursor.min(lines.saturating_sub(1));
        self.committed = self.cursor.checked_sub(drafts).or(self.committed);
    }

    /// The mark under the cursor, while it may change.
    fn mark_here(&mut self) -> Option<&mut Option<Outcome>> {
        let draft = *self.order.get(self.cursor).filter(|_| self.given.len() == self.at)?;
        self.marks.get_mut(draft)
    }

    /// Marks the draft under the cursor and goes to the next line.
    pub(super) fn mark(&mut self, outcome: Outcome) {
        if let Some(mark) = self.mark_here() {
            *mark = Some(outcome);
            self.cursor = (self.cursor + 1).min(self.order.len() - 1);
        }
    }

    /// Gives the draft under the cursor the mark after its own.
    pub(super) fn mark_next(&mut self) {
        if let Some(mark) = self.mark_here() {
            *mark = Some(match mark {
                None | Some(Outcome::NotReached) => Outcome::Accepted,
                Some(Outcome::Accepted) => Outcome::Rejected,
                Some(Outcome::Rejected) => Outcome::NotReached,
            });
        }
    }

    /// Grades what is marked.
    ///
    /// # Errors
    /// What is still missing, as a sentence.
    pub(super) fn submit(&mut self) -> Result<(), &'static str> {
        let verdicts: Option<Vec<_>> = self.marks.iter().copied().collect();
        let verdicts = verdicts.ok_or("mark every draft first: accepted, rejected or not reached")?;
        let committed = self.committed.ok_or("choose what the target adds after the accepted drafts")?;
        let Some(item) = self.items.get(self.at).filter(|_| self.given.len() == self.at) else { return Ok(()) };
        let shown = Shown::of(item);
        let answer = Answer { verdicts, committed };
        let is_right = answer == shown.right;
        self.given.push(Given { beliefs: beliefs_of(&shown, &answer), is_right, answer });
        self.took += self.since.take().map_or(Duration::ZERO, |since| since.elapsed());
        Ok(())
    }

    /// Goes on to the next item; the finished quiz after the last one.
    pub(super) fn next(&mut self) -> Option<Finished> {
        self.at += 1;
        if self.at < self.items.len() {
            self.begin();
            return None;
        }
        let fitting: Vec<_> = self.given.iter().map(|given| given.beliefs.clone()).collect();
        let beliefs = explained(&fitting).into_iter().map(|belief| belief.name().to_owned());
        Some(Finished {
            score: self.score() as u8,
            of: self.items.len() as u8,
            seconds: self.took.as_secs(),
            beliefs: beliefs.collect(),
        })
    }

    /// Items judged rightly so far.
    pub(super) fn score(&self) -> usize {
        self.given.iter().filter(|given| given.is_right).count()
    }
}

impl Sitting {
    pub(super) fn new(is_after: bool) -> Self {
        Self { is_after, ..Self::default() }
    }

    /// Whether the reason of the statement on show is revealed.
    pub(super) fn is_revealed(&self) -> bool {
        self.is_after && self.answers.len() > self.at
    }
}

/// The reason for a verdict as the round panel gives it.
pub(super) fn reason(item: &Item) -> String {
    let column = item.round.deciding_column();
    let finding = draftscope_session::explain(&item.round, column);
    finding.map_or(String::new(), |finding| one_line(&finding.text).into_owned())
}
