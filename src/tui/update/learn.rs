//! Keys in the lessons.

use crate::protocol::{
    Ability, Baseline, Capabilities, Command, DraftLenMode, DrafterKind, EventKind, MAX_DRAFT_LEN, Message, Outcome,
    Prompt, Rival, Sampling, Settings, Speaker,
};
use crate::session::{Round, Session, Timeline};
use crate::tui::action::Action;
use crate::tui::app::App;
use crate::tui::lesson::{BUNDLED, Run, Step, Study};
use crate::tui::pace::Pace;
use crate::tui::page::Page;
use crate::tui::selection::{RoundAt, round_at, rounds};

use super::{cannot_send, navigation, settings, watch};

/// Performs an action in the lessons; `None` leaves it to others.
pub(super) fn update(app: &mut App, time: &mut Timeline, action: Action) -> Option<Vec<Command>> {
    let Some((lesson, step)) = app.lesson.at() else {
        return list(app, action);
    };
    match action {
        Action::Up => app.lesson.choice = app.lesson.choice.saturating_sub(1),
        Action::Down => {
            let last = choices(&step).saturating_sub(1);
            app.lesson.choice = (app.lesson.choice + 1).min(last);
        }
        Action::Left => turn_to(app, time, app.lesson.step.saturating_sub(1)),
        Action::Right => turn_to(app, time, (app.lesson.step + 1).min(lesson.step.len() - 1)),
        Action::Leave => return Some(leave(app, time, app.lesson.lesson.unwrap_or(0))),
        Action::Open => return Some(enter(app, time, &step, lesson.step.len())),
        _ => return None,
    }
    Some(Vec::new())
}

fn list(app: &mut App, action: Action) -> Option<Vec<Command>> {
    match action {
        Action::Up => app.lesson.choice = app.lesson.choice.saturating_sub(1),
        Action::Down => app.lesson.choice = (app.lesson.choice + 1).min(BUNDLED.len() - 1),
        Action::Open | Action::Right => app.lesson = Study { lesson: Some(app.lesson.choice), ..Study::default() },
        _ => return None,
    }
    Some(Vec::new())
}

fn choices(step: &Step) -> usize {
    if step.quiz { 2 } else { step.choices.len() }
}

fn turn_to(app: &mut App, time: &mut Timeline, step: usize) {
    let study = &mut app.lesson;
    study.step = step;
    study.choice = 0;
    study.is_revealed = false;
    let needs_all = study.at().is_some_and(|(_, step)| step.quiz || step.measured.is_some());
    if app.aside.is_some() && needs_all {
        time.follow(); // what is asked is about the whole recording
        app.plays = false;
    }
    let study = &mut app.lesson;
    let session = time.shown();
    study.quiz = study.at().filter(|(_, step)| step.quiz).and_then(|_| quiz_round(session, study.asked));
    if let Some((at, index)) = study.quiz {
        navigation::choose(app, at, Some(index));
    }
}

/// Enter: run what the step runs, answer what it asks, or go on.
fn enter(app: &mut App, time: &mut Timeline, step: &Step, steps: usize) -> Vec<Command> {
    if let Some(run) = step.run.as_ref().filter(|_| !app.lesson.is_revealed) {
        app.lesson.is_revealed = true;
        return start(app, time, run);
    }
    if choices(step) > 0 && !app.lesson.is_revealed {
        if step.quiz && app.lesson.quiz.is_none() {
            let next = app.lesson.step;
            turn_to(app, time, next);
            if app.lesson.quiz.is_none() {
                app.toast = Some("the quiz needs some rounds: run a prompt in Chat first".to_owned());
            }
            return Vec::new();
        }
        let Some(right) = app.lesson.right_choice(step, time.shown()) else {
            let is_running = time.shown().is_generating();
            let why = if is_running { "wait for the answer to end" } else { "run the prompt of this lesson first" };
            return app.say(format!("not measured yet: {why}"));
        };
        app.lesson.is_revealed = true;
        app.lesson.asked += 1;
        app.lesson.right += u32::from(app.lesson.choice == right);
        return Vec::new();
    }
    if step.quiz {
        let again = app.lesson.step;
        turn_to(app, time, again);
    } else if app.lesson.step + 1 < steps {
        let next = app.lesson.step + 1;
        turn_to(app, time, next);
    } else {
        let done = app.lesson.lesson.unwrap_or(0);
        return leave(app, time, (done + 1).min(BUNDLED.len() - 1));
    }
    Vec::new()
}

/// Back to the list, with this lesson chosen; restores what the lesson set.
fn leave(app: &mut App, time: &mut Timeline, choice: usize) -> Vec<Command> {
    let left = std::mem::replace(&mut app.lesson, Study { choice, ..Study::default() });
    app.end_recording(time);
    let mut commands = if left.holds { release(app, time) } else { Vec::new() };
    if let Some(lent) = left.lent
        && let Some(back) = settings::give_back(app, time.live(), lent)
    {
        app.toast = Some("the settings from before the lesson are back".to_owned());
        commands.extend(back);
    }
    commands
}

/// Resumes an engine that a lesson paused.
fn release(app: &mut App, time: &Timeline) -> Vec<Command> {
    let live = time.live();
    if time.is_past() && app.pending.is_held(live) {
        app.holds = true; // the return from the past lets it go
    } else if app.is_paced(live) {
        app.plays = true; // at its pace, a phase a tick
    } else {
        return vec![Command::Resume];
    }
    Vec::new()
}

/// A judged draft of the session, a different one for each number.
fn quiz_round(session: &Session, number: u32) -> Option<(RoundAt, usize)> {
    let judged = |round: &Round| {
        let told = |index: &usize| matches!(round.outcome(*index), Some(Outcome::Accepted | Outcome::Rejected));
        (0..round.drafts.len()).filter(told).collect::<Vec<_>>()
    };
    let asks = |at: &RoundAt| round_at(session, *at).is_some_and(|r| r.is_complete && !judged(r).is_empty());
    let all: Vec<_> = rounds(session).filter(asks).collect();
    // a step that shares no factor with most counts, so that neighbours do not follow each other
    let at = *all.get((number as usize).wrapping_mul(7919).checked_rem(all.len())?)?;
    let judged = judged(round_at(session, at)?);
    Some((at, *judged.get((number as usize).checked_rem(judged.len())?)?))
}

/// The recording that the empty screen offers.
const DEMO: &str = "code";

/// How fast it plays: the engine made some two hundred rounds per second.
const DEMO_SPEED: f32 = 0.05;

/// Plays a recording of the real engine instead of the own run, or ends it.
pub(super) fn demo(app: &mut App, time: &mut Timeline) -> Vec<Command> {
    if app.is_demo() {
        app.end_recording(time);
        app.pane = app.page.panes()[0];
        return Vec::new();
    }
    let refusal = match () {
        () if app.aside.is_some() => Some("the lesson plays a recording already"),
        () if app.is_recording => Some("this is a recording already"),
        () if app.is_busy(time.live()) => Some("an answer is under way: stop it first"),
        () => None,
    };
    if let Some(refusal) = refusal {
        return app.say(refusal);
    }
    app.go_to(Page::Chat);
    if show(app, time, DEMO) {
        (app.plays, app.playback.speed) = (true, DEMO_SPEED);
        app.follow(time.live());
        let (hold, leave) = (app.key(Action::PauseResume), app.key(Action::Leave));
        app.toast = Some(format!("a recording of the real engine plays slowly: {hold} pauses it, {leave} returns"));
    }
    Vec::new()
}

/// Shows a recording instead of the own run, at its start; returns whether there is one.
fn show(app: &mut App, time: &mut Timeline, name: &str) -> bool {
    let read = app.options.recordings.as_ref().map(|recordings| (recordings.0)(name));
    let events = match read {
        Some(Ok(events)) => events,
        Some(Err(error)) => {
            app.toast = Some(error);
            return false;
        }
        None => {
            app.toast = Some("this needs an engine: run draftscope without a recording".to_owned());
            return false;
        }
    };
    let ends_at_us = events.last().map(|event| event.at_us);
    let mut recording = Timeline::new();
    for mut event in events {
        if let EventKind::Started { header } = &mut event.kind {
            header.capabilities = Capabilities { ends_at_us, ..Capabilities::default() };
        }
        recording.apply(event);
    }
    recording.go(recording.start());
    app.show_recording(time, recording);
    true
}

/// Plays the recording of a step.
fn replay(app: &mut App, time: &mut Timeline, run: &Run) {
    if !show(app, time, &run.recording) {
        app.lesson.is_revealed = false;
        return;
    }
    app.plays = !run.hold;
    let key = |action| app.key(action);
    app.toast = Some(if run.hold {
        let (on, back) = (key(Action::StepPhase), key(Action::BackRound));
        format!("a recording of the real engine: {on} goes on by a phase, {back} goes back")
    } else {
        let (hold, end) = (key(Action::PauseResume), key(Action::Follow));
        format!("a recording of the real engine plays; {hold} pauses it, {end} skips to its end")
    });
}

/// What a lesson's run relies on, and of the user's settings what it does not care about.
fn settings_of(run: &Run, before: &Settings) -> Settings {
    let usual = Settings::default();
    let mut wanted = Settings {
        draft_len_mode: DraftLenMode::Fixed,
        draft_len: run.k.min(MAX_DRAFT_LEN),
        drafter: if before.drafter.chain().contains(&DrafterKind::Mtp) { before.drafter } else { usual.drafter },
        drafting: usual.drafting,
        rule: run.rule,
        leniency: usual.leniency,
        sampling: Sampling { temperature: run.temperature, seed: before.sampling.seed, ..usual.sampling },
        baseline: if before.baseline == Baseline::Off { usual.baseline } else { before.baseline },
        ..*before
    };
    wanted.rival = run.against.map(|rule| Rival { rule, ..Rival::like(&wanted) });
    wanted
}

/// Sends the prompt of a step, with its settings; where nothing can be sent, plays its recording.
fn start(app: &mut App, time: &mut Timeline, run: &Run) -> Vec<Command> {
    let has_engine = app.aside.is_none() && super::can(time.live(), Ability::Lessons) && app.lost.is_none();
    if !has_engine && (app.aside.is_some() || time.live().header().is_some()) {
        replay(app, time, run);
        return Vec::new();
    }
    if let Some(refusal) = cannot_send(app, time.live()) {
        app.toast = Some(refusal);
        app.lesson.is_revealed = false;
        return Vec::new();
    }
    time.follow();
    let before = app.settings(time.live());
    let wanted = settings_of(run, &before);
    settings::want(app, time.live(), wanted);
    app.lesson.lent = Some((app.lesson.lent.map_or(before, |(first, _)| first), wanted));
    watch(app, time.live());
    app.conversations.push(time.live().turns().len());
    app.await_answer(time.live(), run.prompt.clone());
    let message = Message { role: Speaker::User, content: run.prompt.clone() };
    let prompt = if app.options.raw { Prompt::Raw(run.prompt.clone()) } else { Prompt::Chat(vec![message]) };
    let mut commands = settings::set(&wanted);
    // what a lesson asks about is measured: the slow start is for the first prompt of one's own
    app.plays &= app.pace != Pace::Ramp;
    if run.hold {
        app.plays = false;
        commands.push(Command::Pause);
    } else if app.lesson.holds {
        commands.push(Command::Resume);
    }
    app.lesson.holds = run.hold;
    commands.push(Command::Generate { prompt });
    commands
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::Drafting;
    use crate::tui::lesson::lesson;

    #[test]
    fn a_run_sets_all_that_its_questions_rest_on() {
        let drafting = Drafting { tree: Some(8), p_min: 0.5, ..Drafting::default() };
        let before = Settings {
            baseline: Baseline::Off,
            drafter: DrafterKind::Random,
            drafting,
            draft_len_mode: DraftLenMode::Auto,
            max_tokens: 77,
            ..Settings::default()
        };
        let steps = (0..BUNDLED.len()).filter_map(lesson).flat_map(|lesson| lesson.step);
        let runs: Vec<_> = steps.filter_map(|step| step.run).collect();
        assert!(runs.len() > 4, "{}", runs.len());
        for run in runs {
            let wanted = settings_of(&run, &before);
            assert_eq!((wanted.draft_len_mode, wanted.draft_len), (DraftLenMode::Fixed, run.k), "{}", run.prompt);
            assert_eq!((wanted.drafter, wanted.drafting), (DrafterKind::Mtp, Drafting::default()));
            assert_ne!(wanted.baseline, Baseline::Off, "{}", run.prompt);
            assert_eq!(wanted.max_tokens, 77, "no lesson cares");
            assert_eq!(wanted.rival.map(|rival| rival.rule), run.against);
        }
    }
}
