//! The user's own run and the run of a lesson, which share one engine.
//!
//! Invariant: a turn that a lesson asked for is in the lesson's run alone. The user's own run, its figures and what is
//! recorded of it have none of its tokens, rounds and times. What the engine reports besides (settings, pauses, failures)
//! belongs to both.

use draftscope_protocol::{Event, EventKind, Header, Lane};
use draftscope_session::{Session, Timeline};

use crate::app::learning::Learning;
use crate::app::{App, LeftRun};

impl Learning {
    /// Whether an event is about a turn that a lesson asked for: the user's run and its consumers do not see it.
    pub(crate) fn is_of_lesson(&self, event: &Event) -> bool {
        (self.runs_lesson || self.left.is_some()) && is_of_turn(&event.kind)
    }

    /// The run in which the engine is at work now.
    pub(crate) fn engine_run<'a>(&'a self, time: &'a Timeline) -> &'a Timeline {
        match (&self.left, &self.aside) {
            (Some(left), _) => &left.run,
            (None, Some(own)) if !self.runs_lesson => own,
            _ => time,
        }
    }
}

impl App {
    /// Gives the engine to a lesson: a run of its own is on show, without turns.
    pub(crate) fn begin_lesson_run(&mut self, time: &mut Timeline) {
        if self.learning.aside.is_none() {
            let run = beginning(time.live());
            self.show_recording(time, run);
            self.learning.runs_lesson = true;
        }
    }

    /// Puts a lesson's run away that the user leaves: the rest of an answer is still to come.
    pub(crate) fn leave_lesson_run(&mut self, run: Timeline) {
        if std::mem::take(&mut self.learning.runs_lesson) && self.is_busy(run.live()) {
            let turns = run.live().turns().len() + usize::from(self.requests.is_awaiting(run.live()));
            self.learning.left = Some(LeftRun { run, turns });
        }
        self.requests.awaiting = None;
    }

    /// Gives an event of the source to the runs that it belongs to.
    pub(crate) fn deliver(&mut self, time: &mut Timeline, event: Event) {
        self.requests.pending.on_event(&event);
        let is_of_lesson = self.learning.is_of_lesson(&event);
        if let Some(left) = &mut self.learning.left {
            left.run.apply(event.clone());
            let live = left.run.live();
            let is_over = live.turns().len() >= left.turns && !live.is_generating();
            if is_over || live.failure().is_some() {
                self.learning.left = None;
            }
        }
        let runs_lesson = self.learning.runs_lesson;
        match &mut self.learning.aside {
            Some(own) if runs_lesson => {
                if !is_of_lesson {
                    own.apply(event.clone());
                }
                time.apply(event);
            }
            own => {
                let own = own.as_mut().unwrap_or(time);
                if !is_of_lesson {
                    own.apply(event);
                }
            }
        }
        let mut pending = std::mem::take(&mut self.requests.pending);
        pending.look(self.learning.engine_run(time).live());
        self.requests.pending = pending;
    }
}

/// A run without turns on the same engine, with the settings that are in force.
fn beginning(own: &Session) -> Timeline {
    let mut run = Timeline::new();
    let mut begin = |kind| run.apply(Event { seq: 0, at_us: own.at_us(), lane: Lane::Speculative, kind });
    if let Some(header) = own.header() {
        begin(EventKind::Started { header: Box::new(Header { settings: *own.settings(), ..header.clone() }) });
    }
    if own.is_paused() {
        begin(EventKind::Paused);
    }
    run
}

/// Whether an event is about a turn, and not about the engine.
fn is_of_turn(kind: &EventKind) -> bool {
    !matches!(
        kind,
        EventKind::Loading { .. }
            | EventKind::Started { .. }
            | EventKind::CostsKnown { .. }
            | EventKind::SettingsChanged { .. }
            | EventKind::Paused
            | EventKind::Resumed
            | EventKind::Failed { .. }
            | EventKind::Ended { .. }
            | EventKind::Unknown
    )
}
