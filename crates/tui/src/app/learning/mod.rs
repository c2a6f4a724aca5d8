//! Where the user is in the lessons and in the quiz, and the run that a lesson asked for.

pub(crate) mod lesson_row;
mod lesson_run;
pub(crate) mod quiz;
pub(crate) mod study;

use draftscope_session::Timeline;
use std::collections::HashSet;

use draftscope_learn::lesson;
use draftscope_learn::quiz::Results;

use self::lesson_row::row_of;
use self::quiz::Quiz;
use self::study::Study;
use crate::app::clock::playback::Playback;
use crate::app::options::TuiOptions;

/// The lessons and the quiz, and the runs that are shown in place of the user's own.
///
/// Invariant: `runs_lesson` is set only while `aside` holds the user's own run, and `left` holds a run only while its answer is
/// under way.
pub(crate) struct Learning {
    /// Where the user is in the lessons.
    pub(crate) study: Study,
    /// Where the user is in the quiz.
    pub(crate) quiz: Quiz,
    /// All lessons, the user's own last.
    pub(crate) lessons: Vec<lesson::Entry>,
    /// What of them was done.
    pub(crate) progress: lesson::Progress,
    /// The source's own run, while a recording or a lesson's run is shown in its place.
    pub(crate) aside: Option<Timeline>,
    /// Parts of the state that belong to that run: where conversations begin, abandoned branches, how it plays.
    pub(super) aside_places: (Vec<usize>, HashSet<u32>, Playback),
    /// What is in its place is no recording but a lesson's run on the engine.
    pub(crate) runs_lesson: bool,
    /// A lesson's run that was left while its answer was under way.
    pub(crate) left: Option<LeftRun>,
}

impl Learning {
    /// The list of lessons with what was done of them, and a sentence about each file of the user that is not valid.
    pub(crate) fn new(options: &TuiOptions) -> (Self, Vec<String>) {
        let (lessons, warnings) = lesson::all(&options.lessons);
        let progress = options.progress.as_ref().map(|kept| lesson::Progress::read(&kept.text));
        let results = options.quiz.as_ref().and_then(|files| (files.read)());
        let results = results.map_or_else(Results::default, |text| Results::read(&text));
        let learning = Self {
            study: Study { choice: row_of(0), ..Default::default() },
            quiz: Quiz { results, ..Default::default() },
            lessons,
            progress: progress.unwrap_or_default(),
            aside: None,
            aside_places: Default::default(),
            runs_lesson: false,
            left: None,
        };
        (learning, warnings)
    }

    /// The lesson and the step on show.
    pub(crate) fn on_show(&self) -> Option<(&lesson::Lesson, &lesson::Step)> {
        self.study.at(&self.lessons)
    }

    /// The step on show.
    pub(crate) fn step(&self) -> Option<&lesson::Step> {
        self.on_show().map(|(_, step)| step)
    }

    /// The run that the step on show builds on.
    pub(crate) fn run(&self) -> Option<&lesson::Run> {
        self.study.run(&self.lessons)
    }

    /// Whether a recording is on show in place of the source's own run.
    pub(crate) fn shows_recording(&self) -> bool {
        self.aside.is_some() && !self.runs_lesson
    }

    /// Whether a recording is shown instead of the own run, and no lesson plays it.
    pub(crate) fn is_demo(&self) -> bool {
        self.aside.is_some() && self.study.lesson.is_none()
    }
}

/// A lesson's run that the user left before its answer ended.
pub(crate) struct LeftRun {
    pub(crate) run: Timeline,
    /// Turns that it has once the last one that was asked for has begun.
    pub(crate) turns: usize,
}
