//! The record of the lessons: ticks, how each question was first answered, and the step on show, which notes in another
//! terminal follow.
//!
//! Invariant: the first answer to a question counts, and it alone; a lesson whose number of steps has changed since
//! counts as not begun. Kept as JSON; whatever cannot be read counts as nothing done.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::content::Lesson;

/// Largest record that is read, in bytes.
const MAX_BYTES: usize = 256 << 10;

/// Version of the record.
const VERSION: u32 = 1;

/// Everything that was done.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    #[serde(default)]
    version: u32,
    #[serde(default)]
    lessons: BTreeMap<String, Done>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    on_show: Option<StepOnShow>,
}

/// The step that a screen shows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepOnShow {
    /// Name of the lesson.
    pub lesson: String,
    /// Index of the step, from 0.
    pub step: usize,
}

impl StepOnShow {
    /// The step of a record that is kept; none if no lesson was on show yet.
    #[must_use]
    pub fn read(record: &str) -> Option<Self> {
        Progress::read(record).on_show
    }
}

/// What of a lesson was done.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Done {
    /// How many steps the lesson had.
    steps: usize,
    /// Indices of the steps that were done.
    done: BTreeSet<usize>,
    /// By the index of its step, whether the first answer to a question was right.
    first: BTreeMap<usize, bool>,
}

impl Progress {
    /// Reads a record; empty from anything that is not one.
    #[must_use]
    pub fn read(text: &str) -> Self {
        let read = (text.len() <= MAX_BYTES).then(|| serde_json::from_str::<Self>(text).ok()).flatten();
        read.filter(|read| read.version == VERSION).unwrap_or_default()
    }

    /// As it is kept.
    #[must_use]
    pub fn written(&self) -> String {
        serde_json::to_string(&Self { version: VERSION, ..self.clone() }).unwrap_or_default()
    }

    fn of(&self, name: &str, lesson: &Lesson) -> Option<&Done> {
        self.lessons.get(name).filter(|done| done.steps == lesson.step.len())
    }

    fn of_mut(&mut self, name: &str, lesson: &Lesson) -> &mut Done {
        let steps = lesson.step.len();
        let done = self.lessons.entry(name.to_owned()).or_default();
        if done.steps != steps {
            *done = Done { steps, ..Done::default() };
        }
        done
    }

    /// Notes the step on show; whether it is another one than before.
    pub fn show(&mut self, lesson: &str, step: usize) -> bool {
        let now = Some(StepOnShow { lesson: lesson.to_owned(), step });
        let is_new = self.on_show != now;
        self.on_show = now;
        is_new
    }

    /// Ticks a step; whether that is new.
    pub fn tick(&mut self, name: &str, lesson: &Lesson, step: usize) -> bool {
        step < lesson.step.len() && self.of_mut(name, lesson).done.insert(step)
    }

    /// Notes the first answer to a question; later ones change nothing.
    pub fn answer(&mut self, name: &str, lesson: &Lesson, step: usize, is_right: bool) {
        self.of_mut(name, lesson).first.entry(step).or_insert(is_right);
    }

    /// Whether a step is done.
    #[must_use]
    pub fn is_done(&self, name: &str, lesson: &Lesson, step: usize) -> bool {
        self.of(name, lesson).is_some_and(|done| done.done.contains(&step))
    }

    /// How many steps are done.
    #[must_use]
    pub fn done(&self, name: &str, lesson: &Lesson) -> usize {
        self.of(name, lesson).map_or(0, |done| done.done.len())
    }

    /// Questions whose first answer was right, and questions answered.
    #[must_use]
    pub fn score(&self, name: &str, lesson: &Lesson) -> (usize, usize) {
        let first = self.of(name, lesson).map(|done| &done.first);
        first.map_or((0, 0), |first| (first.values().filter(|right| **right).count(), first.len()))
    }
}

#[cfg(test)]
mod tests {
    use super::super::content::Step;
    use super::*;

    fn lesson(steps: usize) -> Lesson {
        Lesson { step: vec![Step::default(); steps], ..Lesson::default() }
    }

    #[test]
    fn the_first_answer_counts_and_ticks_are_kept() {
        let (mut progress, lesson) = (Progress::default(), lesson(3));
        assert!(progress.tick("a", &lesson, 1) && !progress.tick("a", &lesson, 1) && !progress.tick("a", &lesson, 3));
        progress.answer("a", &lesson, 1, false);
        progress.answer("a", &lesson, 1, true);
        progress.answer("a", &lesson, 2, true);
        assert_eq!((progress.score("a", &lesson), progress.done("a", &lesson)), ((1, 2), 1));
        let read = Progress::read(&progress.written());
        assert!(read.is_done("a", &lesson, 1) && !read.is_done("a", &lesson, 0) && !read.is_done("b", &lesson, 1));
        assert_eq!(read.score("a", &lesson), (1, 2));
        assert!(StepOnShow::read(&progress.written()).is_none() && progress.show("a", 2) && !progress.show("a", 2));
        let on_show = StepOnShow { lesson: "a".to_owned(), step: 2 };
        assert_eq!(StepOnShow::read(&progress.written()), Some(on_show));
        assert_eq!(Progress::read(&progress.written()).score("a", &lesson), (1, 2));
    }

    #[test]
    fn a_lesson_with_another_number_of_steps_begins_anew() {
        let mut progress = Progress::default();
        progress.tick("a", &lesson(3), 1);
        assert_eq!(progress.done("a", &lesson(4)), 0);
        progress.tick("a", &lesson(4), 0);
        assert!(!progress.is_done("a", &lesson(4), 1));
    }

    #[test]
    fn what_is_no_record_counts_as_nothing() {
        let long = "[".repeat(MAX_BYTES + 1);
        for text in ["", "[]", "{\"version\":2,\"lessons\":{}}", "{\"version\":1,\"lessons\":7}", &long] {
            assert_eq!(Progress::read(text), Progress::default(), "{text:.20}");
        }
    }
}
