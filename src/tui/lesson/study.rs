//! Where the user is in the lessons.

use crate::protocol::Settings;
use crate::session::Session;

use super::{Entry, Lesson, Run, Sliders, Step};

/// Where the user is in the lessons.
#[derive(Clone, Debug, Default, PartialEq)]
pub(in crate::tui) struct Study {
    /// None shows the list.
    pub(in crate::tui) lesson: Option<usize>,
    pub(in crate::tui) step: usize,
    /// Chosen line: of the list, or of the choices.
    pub(in crate::tui) choice: usize,
    /// Of a question: the answer is on show. Of a run: it was started.
    pub(in crate::tui) is_revealed: bool,
    /// Wrong choices of this step, in the order in which they were taken.
    pub(in crate::tui) tried: Vec<usize>,
    /// Hints on show.
    pub(in crate::tui) hints: usize,
    /// What a run of this lesson set: the settings before the first one, and those it set last.
    pub(in crate::tui) lent: Option<(Settings, Settings)>,
    /// Its newest run holds the engine, and nobody has paused or resumed since.
    pub(in crate::tui) holds: bool,
    /// The text that the user drafts, until the tokens of the prompt are known from a first turn: the number of turns
    /// before that one.
    pub(in crate::tui) drafting: Option<(String, usize)>,
    /// The sliders of this step, and the chosen one.
    pub(in crate::tui) sliders: Sliders,
    pub(in crate::tui) slider: usize,
    /// Lines of the text above the panel; none keeps its newest part in view.
    pub(in crate::tui) scroll: Option<usize>,
    /// Whether the presenter's notes are on show.
    pub(in crate::tui) shows_notes: bool,
}

impl Study {
    /// The lesson and the step on show.
    pub(in crate::tui) fn at<'a>(&self, entries: &'a [Entry]) -> Option<(&'a Lesson, &'a Step)> {
        let lesson = &entries.get(self.lesson?)?.lesson;
        Some((lesson, lesson.step.get(self.step)?))
    }

    /// The run that the step on show builds on.
    pub(in crate::tui) fn run<'a>(&self, entries: &'a [Entry]) -> Option<&'a Run> {
        entries.get(self.lesson?)?.lesson.run_at(self.step)
    }

    /// The right choice of a step, from 0.
    pub(in crate::tui) fn right_choice(&self, step: &Step, session: &Session, run: Option<&Run>) -> Option<usize> {
        match &step.measured {
            // what is measured over an answer may still change
            Some(measured) if session.is_generating() && !measured.fact.is_of_round() => None,
            Some(measured) => measured.right(session, run),
            None => step.answer?.checked_sub(1),
        }
    }

    /// Begins a step.
    pub(in crate::tui) fn begin(&mut self, step: usize, entries: &[Entry]) {
        (self.step, self.choice, self.is_revealed) = (step, 0, false);
        self.tried.clear();
        (self.hints, self.slider, self.scroll) = (0, 0, None);
        let task = self.at(entries).and_then(|(_, step)| step.task.as_ref());
        if let Some(task) = task {
            self.sliders = task.start;
        }
    }
}
