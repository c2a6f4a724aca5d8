//! Where the user is in the lessons.

use draftscope_protocol::Settings;
use draftscope_session::round_at::RoundAt;
use draftscope_session::{Moment, Session};

use draftscope_learn::lesson::{Entry, Lesson, Run, Step};
use draftscope_learn::theory::{MapChoice, Sliders};

/// Where the user is in the lessons.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Study {
    /// None shows the list.
    pub(crate) lesson: Option<usize>,
    pub(crate) step: usize,
    /// Chosen line: of the list, or of the choices.
    pub(crate) choice: usize,
    /// Of a question: the answer is on show. Of a run: it was started.
    pub(crate) is_revealed: bool,
    /// Wrong choices of this step, in the order in which they were taken.
    pub(crate) tried: Vec<usize>,
    /// Hints on show.
    pub(crate) hints: usize,
    /// What a run of this lesson set: the settings before the first one, and those it set last.
    pub(crate) lent: Option<(Settings, Settings)>,
    /// Its newest run holds the engine, and nobody has paused or resumed since.
    pub(crate) holds: bool,
    /// The text that the user drafts, until the tokens of the prompt are known from a first turn: the number of turns
    /// before that one.
    pub(crate) drafting: Option<(String, usize)>,
    /// A run on fewer threads is being answered on all of them first: the number of turns before that.
    pub(crate) on_all: Option<usize>,
    /// The sliders of this step, and the chosen one.
    pub(crate) sliders: Sliders,
    pub(crate) slider: usize,
    /// What the map is set to, from step to step.
    pub(crate) map: MapChoice,
    /// Lines of the text above the panel; none keeps its newest part in view.
    pub(crate) scroll: Option<usize>,
    /// The first panel on show where the step's panels have the whole page.
    pub(crate) panel: usize,
    /// Whether the presenter's notes are on show.
    pub(crate) shows_notes: bool,
    /// What the lesson showed when another page was opened from it.
    pub(crate) opened: Option<Opened>,
}

/// What a lesson showed when another page was opened: going back shows it again.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Opened {
    /// The moment, if it was in the past.
    pub(crate) moment: Option<Moment>,
    pub(crate) round: Option<RoundAt>,
    pub(crate) cell: Option<usize>,
}

impl Study {
    /// The lesson and the step on show.
    pub(crate) fn at<'a>(&self, entries: &'a [Entry]) -> Option<(&'a Lesson, &'a Step)> {
        let lesson = &entries.get(self.lesson?)?.lesson;
        Some((lesson, lesson.step.get(self.step)?))
    }

    /// The run that the step on show builds on.
    pub(crate) fn run<'a>(&self, entries: &'a [Entry]) -> Option<&'a Run> {
        entries.get(self.lesson?)?.lesson.run_at(self.step)
    }

    /// The right choice of a step, from 0.
    pub(crate) fn right_choice(&self, step: &Step, session: &Session, run: Option<&Run>) -> Option<usize> {
        match &step.measured {
            // what is measured over an answer may still change
            Some(measured) if session.is_generating() && !measured.fact.is_of_round() => None,
            Some(measured) => measured.right(session, run),
            None => step.answer?.checked_sub(1),
        }
    }

    /// Chooses the next of so many choices.
    pub(crate) fn choose_next(&mut self, choices: usize) {
        self.choice = (self.choice + 1).min(choices.saturating_sub(1));
    }

    /// Begins a step.
    pub(crate) fn begin(&mut self, step: usize, entries: &[Entry]) {
        (self.step, self.choice, self.is_revealed) = (step, 0, false);
        self.tried.clear();
        (self.hints, self.slider, self.scroll, self.panel) = (0, 0, None, 0);
        let map = self.at(entries).and_then(|(_, step)| MapChoice::on(step.hardware.as_deref()?));
        self.map = map.unwrap_or(self.map);
        let task = self.at(entries).and_then(|(_, step)| step.task.as_ref());
        if let Some(task) = task {
            self.sliders = task.start;
        }
    }
}
