//! A quiz under way: ten items, the user's marks, and how each answer was graded; the statements under way.

use std::time::{Duration, Instant};

use draftscope_protocol::Outcome;
use draftscope_session::Session;
use draftscope_session::round_at::rounds;

use super::bank::bank;
use super::belief::Belief;
use super::beliefs::{beliefs_of, explained};
use super::draw::draw;
use super::item::Item;
use super::results::Finished;
use super::shown::{Answer, Shown};
use super::statements::Truth;

/// Ten items and the answers so far.
#[derive(Debug)]
pub struct Run {
    /// The items, in the order in which they are asked.
    pub items: Vec<Item>,
    /// The item on show.
    pub at: usize,
    /// By the draft of the item on show, the mark that it has.
    pub marks: Vec<Option<Outcome>>,
    /// The choice of what is committed, once one was made.
    pub committed: Option<usize>,
    /// The drafts in the order of the screen.
    pub order: Vec<usize>,
    /// The line that keys change: of a draft, in that order, and after the drafts of a choice.
    pub cursor: usize,
    /// The answers so far, by the item.
    pub given: Vec<Given>,
    /// When the item on show was first seen; none once it is answered.
    since: Option<Instant>,
    /// Time of the answered items.
    pub took: Duration,
}

/// An answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Given {
    /// What was marked and chosen.
    pub answer: Answer,
    /// Whether all of it is.
    pub is_right: bool,
    /// What a wrong one fits, the most special belief first.
    pub beliefs: Vec<Belief>,
}

/// The statements under way.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sitting {
    /// Before the lessons nothing is revealed, so that the second answers measure what was learned.
    pub is_after: bool,
    /// The statement on show.
    pub at: usize,
    /// Index of the chosen verdict.
    pub choice: usize,
    /// The answers so far.
    pub answers: Vec<Truth>,
}

impl Run {
    /// A quiz of the bank and of the session on show.
    #[must_use]
    pub fn new(session: &Session, seed: u64) -> Self {
        let own: Vec<Item> = rounds(session).filter_map(|at| Item::of_round(session, at)).collect();
        Self::of(draw(&bank(), &own, seed))
    }

    /// A quiz of these items.
    #[must_use]
    pub fn of(items: Vec<Item>) -> Self {
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
    #[must_use]
    pub fn item(&self) -> Option<&Item> {
        self.items.get(self.at)
    }

    /// The answer to the item on show, once it was given.
    #[must_use]
    pub fn answered(&self) -> Option<&Given> {
        self.given.get(self.at)
    }

    /// Moves between drafts and choices; a choice that is moved to is taken.
    pub fn go_to(&mut self, cursor: usize) {
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
    pub fn mark(&mut self, outcome: Outcome) {
        if let Some(mark) = self.mark_here() {
            *mark = Some(outcome);
            self.cursor = (self.cursor + 1).min(self.order.len() - 1);
        }
    }

    /// Gives the draft under the cursor the mark after its own.
    pub fn mark_next(&mut self) {
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
    pub fn submit(&mut self) -> Result<(), &'static str> {
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
    pub fn go_on(&mut self) -> Option<Finished> {
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
    #[must_use]
    pub fn score(&self) -> usize {
        self.given.iter().filter(|given| given.is_right).count()
    }
}

impl Sitting {
    /// Begins with the first statement.
    #[must_use]
    pub fn new(is_after: bool) -> Self {
        Self { is_after, ..Self::default() }
    }

    /// Whether the reason of the statement on show is revealed.
    #[must_use]
    pub fn is_revealed(&self) -> bool {
        self.is_after && self.answers.len() > self.at
    }
}
