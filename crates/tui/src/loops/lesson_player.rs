//! A lesson that plays by itself on its recordings, with a picture of its panels at every step: for pages and other places
//! without a terminal.
//!
//! Invariant: the lesson is played by the actions that a user performs, and drawn by the code that draws the screen. Where
//! there is no recording, panels of a run are left out.

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use draftscope_protocol::{Capabilities, EventKind, Lane};
use draftscope_session::Timeline;

use crate::app::App;
use crate::app::learning::study::Study;
use crate::app::options::{Recordings, TuiOptions};
use crate::app::place::page::Page;
use crate::input::action::Action;
use crate::terminal::color_depth::ColorDepth;
use crate::update;
use crate::view::View;
use draftscope_learn::lesson::{Entry, Goal, ShownStep, Step};

/// Most actions until the goal of a step is reached.
const MOST: usize = 60;

/// A step of a lesson that was played.
#[derive(Clone, Debug)]
pub struct PlayedStep {
    /// Its texts, with the numbers of the recorded run.
    pub shown: ShownStep,
    /// Its panels: one picture, or one for each action on the way to its goal; none where the step has no panel.
    pub frames: Vec<Buffer>,
    /// Its panels once the question is answered, where they show more then.
    pub answered: Option<Buffer>,
}

/// Plays a lesson to its end; pictures have so many columns.
#[must_use]
pub fn play_lesson(entry: &Entry, recordings: Recordings, columns: u16) -> Vec<PlayedStep> {
    let mut player = Player::new(entry, recordings, columns);
    (0..entry.lesson.step.len()).map(|step| player.play(entry, step)).collect()
}

struct Player {
    time: Timeline,
    app: App,
    view: View,
    columns: u16,
}

impl Player {
    fn new(entry: &Entry, recordings: Recordings, columns: u16) -> Self {
        let mut time = Timeline::of_the_present();
        // the models of the first run, which drawings have the sizes of; without an engine, runs are played
        let run = entry.lesson.step.iter().find_map(|step| step.run.as_ref());
        let events = run.and_then(|run| (recordings.0)(run.recording.as_deref()?).ok()).unwrap_or_default();
        for mut event in events {
            if let EventKind::Started { header } = &mut event.kind {
                header.capabilities = Capabilities::default();
                time.apply(event);
                break;
            }
        }
        let options = TuiOptions { page: Page::Learn, depth: ColorDepth::True, ..TuiOptions::default() };
        let mut app = App::new(TuiOptions { recordings: Some(recordings), ..options });
        app.learning.lessons = vec![entry.clone()];
        app.follow(time.live());
        Self { time, app, view: View::default(), columns }
    }

    fn act(&mut self, action: Action) {
        update::update(&mut self.app, &mut self.time, action);
        self.app.follow(self.time.live());
    }

    fn play(&mut self, entry: &Entry, index: usize) -> PlayedStep {
        if self.app.learning.study.lesson.is_none() || self.app.learning.study.step != index {
            self.app.learning.study = Study { lesson: Some(0), ..Study::default() };
            self.app.learning.study.begin(index, &self.app.learning.lessons);
        }
        let step = &entry.lesson.step[index];
        let mut frames = Vec::new();
        if let Some(run) = &step.run {
            self.act(Action::Open);
            if !run.hold {
                self.act(Action::Follow);
                // a recording sends nothing; the round of the user's draft is chosen
                update::go_on_with_lesson(&mut self.app, &mut self.time);
            }
        }
        frames.extend(self.picture());
        if let Some(goal) = step.goal {
            self.reach(step, goal, &mut frames);
        }
        if let Some(solution) = step.task.as_ref().and_then(|task| task.solution) {
            self.app.learning.study.sliders = solution;
        }
        let shown = entry.lesson.shown(index, self.time.shown());
        let mut answered = None;
        if let Some(right) = shown.right {
            self.app.learning.study.choice = right;
            self.act(Action::Open);
            answered = self.picture().filter(|picture| frames.last() != Some(picture));
        }
        self.act(Action::Open);
        PlayedStep { shown, frames, answered }
    }

    /// Acts until a goal is reached, with a picture after each action that changed something.
    fn reach(&mut self, step: &Step, goal: Goal, frames: &mut Vec<Buffer>) {
        for _ in 0..MOST {
            if update::goal_is_reached(&self.app, &self.time, step) {
                return;
            }
            let answer = self.time.shown().turn().map(|turn| turn.answer(Lane::Speculative));
            let is_over = answer.is_some_and(|answer| answer.finished.is_some());
            self.act(match goal {
                Goal::Finished => Action::Follow,
                Goal::Past => Action::BackPhase,
                Goal::Rejected if is_over => Action::RoundPrevious,
                _ => Action::StepPhase,
            });
            let picture = self.picture();
            frames.extend(picture.filter(|picture| frames.last() != Some(picture)));
        }
    }

    /// The panels beside the words, without the rows that stay blank.
    fn picture(&self) -> Option<Buffer> {
        let (time, app, view) = (&self.time, &self.app, &self.view);
        let rows = view.lesson_panel_rows(time, app, self.columns);
        if rows == 0 {
            return None;
        }
        let mut terminal = Terminal::new(TestBackend::new(self.columns, rows)).ok()?;
        terminal.draw(|frame| view.draw_lesson_panels(time, app, frame)).ok()?;
        let mut buffer = terminal.backend().buffer().clone();
        let is_blank = |y: u16| (0..buffer.area.width).all(|x| [" ", "│"].contains(&buffer[(x, y)].symbol()));
        let used = (0..rows).rev().find(|y| !is_blank(*y)).map_or(0, |last| last + 1);
        buffer.resize(Rect { height: used, ..buffer.area });
        (used > 0).then_some(buffer)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::rc::Rc;

    use super::*;
    use draftscope_learn::lesson::{Panel, bundled};

    fn recordings() -> Recordings {
        Recordings(Rc::new(|name: &str| {
            let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).join("assets/traces/lessons");
            let recording =
                draftscope_session::trace::Recording::open(&folder.join(format!("{name}.dscope.jsonl.zst")));
            let events = recording.and_then(|recording| recording.reader()?.collect::<Result<Vec<_>, _>>());
            events.map_err(|error| error.to_string())
        }))
    }

    #[test]
    fn every_lesson_plays_by_itself_with_a_drawing_at_each_step() {
        for entry in bundled().iter().filter(|entry| entry.name != "quiz") {
            let played = play_lesson(entry, recordings(), 92);
            assert_eq!(played.len(), entry.lesson.step.len());
            for (number, (step, played)) in (1..).zip(entry.lesson.step.iter().zip(&played)) {
                let place = format!("{} step {number}", entry.name);
                assert_eq!(played.shown.right.is_some(), !step.choices.is_empty(), "{place}");
                assert!(!played.shown.text.contains("(not measured yet)"), "{place}: {}", played.shown.text);
                assert!(!played.shown.reveal.contains("(not measured yet)"), "{place}: {}", played.shown.reveal);
                let only_sliders = step.show.iter().all(|panel| *panel == Panel::Sliders);
                let is_drawn = step.task.is_some() || !played.frames.is_empty() || only_sliders;
                assert!(is_drawn, "{place} has no drawing");
            }
            let steps = entry.lesson.step.iter().zip(&played);
            let stepped =
                steps.filter(|(step, _)| matches!(step.goal, Some(Goal::Drafted | Goal::Scored | Goal::Committed)));
            assert!(stepped.into_iter().all(|(_, played)| played.frames.len() > 1), "{}", entry.name);
        }
    }

    #[test]
    fn a_lesson_without_a_recording_plays_to_its_end() {
        let text = "title = \"t\"\nsummary = \"s\"\n[[step]]\ntext = \"Run.\"\nrun = { prompt = \"p\", k = 3 }\n\
            [[step]]\ntext = \"Wait.\"\ngoal = \"rejected\"\nhints = [\"Wait.\"]\n";
        let lesson = draftscope_learn::lesson::check(text).unwrap();
        let entry = Entry { name: "own".to_owned(), lesson, is_own: true };
        let played = play_lesson(&entry, recordings(), 92);
        assert_eq!(played.iter().map(|step| step.frames.len()).collect::<Vec<_>>(), [0, 0]);
    }
}
