//! The runs of lessons: on the engine, or played from a recording where there is none.

use crate::app::clock::pace::Pace;
use crate::app::place::page::Page;
use crate::app::{App, Overlay};
use crate::input::action::Action;
use crate::input::line_input::LineInput;
use draftscope_learn::lesson::{Run, drafted};
use draftscope_protocol::{Ability, Baseline, Capabilities, Command, EventKind, Message, Prompt, Speaker};
use draftscope_session::Timeline;

use super::super::{can, cannot_send, settings, watch};

/// The recording that the empty screen offers.
pub(in crate::update) const DEMO: &str = "code";

/// How fast it plays: the engine made some two hundred rounds a second.
const DEMO_SPEED: f32 = 0.02;

/// Plays a recording of the real engine in place of the own run, or ends it.
pub(in crate::update) fn demo(app: &mut App, time: &mut Timeline) -> Vec<Command> {
    if app.learning.is_demo() {
        app.end_recording(time);
        app.place.pane = app.place.page.panes()[0];
        return Vec::new();
    }
    let refusal = match () {
        () if app.learning.shows_recording() => Some("the lesson plays a recording already"),
        () if app.clock.is_recording => Some("this is a recording already"),
        () if app.is_busy(time.live()) => Some("an answer is under way: stop it first"),
        () => None,
    };
    if let Some(refusal) = refusal {
        return app.say(refusal);
    }
    app.go_to(Page::Chat);
    if show(app, time, DEMO) {
        (app.clock.plays, app.clock.playback.speed) = (true, DEMO_SPEED);
        app.follow(time.live());
        let (hold, leave) = (app.key(Action::PauseResume), app.key(Action::Leave));
        app.toast = Some(format!("a recording of the real engine plays slowly: {hold} pauses it, {leave} returns"));
    }
    Vec::new()
}

/// Whether there are recordings to show.
pub(in crate::update) fn has_recordings(app: &App) -> bool {
    app.options.recordings.is_some()
}

/// Puts a recording on show in place of the own run, at its start; whether there is one.
pub(in crate::update) fn show(app: &mut App, time: &mut Timeline, name: &str) -> bool {
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
    let is_shown = match &run.recording {
        Some(name) => show(app, time, name),
        None => {
            app.toast = Some("this lesson has no recording: run it with an engine".to_owned());
            false
        }
    };
    if !is_shown {
        return;
    }
    app.learning.study.is_revealed = true;
    app.clock.plays = !run.hold;
    super::tick(app);
    let key = |action| app.key(action);
    app.toast = Some(if run.hold {
        let (on, back) = (key(Action::StepPhase), key(Action::BackRound));
        format!("a recording of the real engine: {on} goes on by a phase, {back} goes back")
    } else {
        let (hold, end) = (key(Action::PauseResume), key(Action::Follow));
        format!("a recording of the real engine plays; {hold} pauses it, {end} skips to its end")
    });
}

/// Runs a step's prompt; where nothing can be sent, plays its recording. A text to draft is asked for first.
pub(super) fn begin(app: &mut App, time: &mut Timeline, run: &Run) -> Vec<Command> {
    let has_engine =
        !app.learning.shows_recording() && can(time.live(), Ability::Lessons) && app.requests.lost.is_none();
    if !has_engine && (app.learning.shows_recording() || time.live().header().is_some()) {
        replay(app, time, run);
        return Vec::new();
    }
    if let Some(refusal) = cannot_send(app, time.live()) {
        return app.say(refusal);
    }
    match &run.draft {
        Some(draft) => {
            app.place.overlay = Some(Overlay::Draft(LineInput::with(draft)));
            Vec::new()
        }
        None => start(app, time, run, None),
    }
}

/// The user has typed the draft of the step on show.
pub(in crate::update) fn draft_typed(app: &mut App, time: &mut Timeline, text: String) -> Vec<Command> {
    let run = app.learning.study.run(&app.learning.lessons).cloned();
    match (run, cannot_send(app, time.live())) {
        (_, Some(refusal)) => app.say(refusal),
        (None, _) => Vec::new(),
        _ if text.is_empty() => app.say("type the text that you expect, with its leading space"),
        (Some(run), _) => start(app, time, &run, Some(text)),
    }
}

/// Sends the prompt of a step, with its settings. With a draft of the user a first turn makes the prompt's tokens known,
/// and [`go_on`] sends the rest.
fn start(app: &mut App, time: &mut Timeline, run: &Run, draft: Option<String>) -> Vec<Command> {
    time.follow();
    app.learning.study.is_revealed = true;
    super::tick(app);
    let before = app.settings(time.live());
    app.begin_lesson_run(time);
    let mut wanted = run.settings(&before);
    let lent = (app.learning.study.lent.map_or(before, |(first, _)| first), wanted);
    app.learning.study.lent = Some(lent);
    if let Some(text) = draft {
        app.learning.study.drafting = Some((text, time.live().turns().len()));
        (wanted.max_tokens, wanted.baseline) = (1, Baseline::Off);
    }
    settings::want(app, time.live(), wanted);
    let message = Message { role: Speaker::User, content: run.prompt.clone() };
    let prompt = if run.raw { Prompt::Raw(run.prompt.clone()) } else { Prompt::Chat(vec![message]) };
    let mut commands = settings::set(&wanted);
    let holds = run.hold;
    let generate = ask(app, time, prompt);
    if holds {
        app.clock.plays = false;
        commands.push(Command::Pause);
    } else if app.learning.study.holds {
        commands.push(Command::Resume);
    }
    app.learning.study.holds = holds;
    commands.push(generate);
    commands
}

/// What sends a prompt of a lesson, which begins a conversation in the lesson's run.
fn ask(app: &mut App, time: &Timeline, prompt: Prompt) -> Command {
    let live = time.live();
    watch(app, live);
    if app.talk.conversations.last().is_none_or(|last| *last < live.turns().len()) {
        app.talk.conversations.push(live.turns().len());
    }
    app.await_answer(live, prompt.typed().to_owned());
    // what a lesson asks about is measured: the slow start is for the first prompt of one's own
    app.clock.plays &= app.clock.pace != Pace::Ramp;
    Command::Generate { prompt }
}

/// Sends the second turn of a run with a draft of the user, once the first one has shown the tokens of the prompt: its
/// anchor is the prompt's last token.
pub(crate) fn go_on(app: &mut App, time: &Timeline) -> Vec<Command> {
    super::show_judged(app, time);
    let live = time.live();
    let Some((text, before)) = &app.learning.study.drafting else { return Vec::new() };
    let Some(turn) = live.turns().get(*before).filter(|_| !app.learning.shows_recording() && !live.is_generating())
    else {
        return Vec::new();
    };
    let prompt = drafted(turn, text);
    app.learning.study.drafting = None;
    let Some((prompt, (_, wanted))) = prompt.zip(app.learning.study.lent) else { return Vec::new() };
    settings::want(app, live, wanted);
    let mut commands = settings::set(&wanted);
    commands.push(ask(app, time, prompt));
    commands
}

#[cfg(test)]
mod tests {
    use draftscope_learn::lesson::bundled;
    use draftscope_protocol::{Baseline, DraftLenMode, DrafterKind, Drafting, Sampling, Settings, VerifyRule};

    #[test]
    fn a_run_sets_all_that_its_questions_rest_on() {
        let drafting = Drafting { tree: Some(8), p_min: 0.5, ..Drafting::default() };
        let before = Settings {
            baseline: Baseline::Off,
            drafter: DrafterKind::Ngram,
            drafting,
            draft_len_mode: DraftLenMode::Auto,
            max_tokens: 77,
            sampling: Sampling { temperature: 0.1, seed: 9, top_k: 4, ..Sampling::default() },
            rule: VerifyRule::Rejection,
            ..Settings::default()
        };
        let steps = bundled().into_iter().flat_map(|entry| entry.lesson.step);
        let runs: Vec<_> = steps.filter_map(|step| step.run).collect();
        assert!(runs.len() > 4, "{}", runs.len());
        for run in runs {
            let wanted = run.settings(&before);
            assert_eq!((wanted.draft_len_mode, wanted.draft_len), (DraftLenMode::Fixed, run.k), "{}", run.prompt);
            let dial = run.dial.unwrap_or(Drafting::default().dial);
            assert_eq!((wanted.drafter, wanted.drafting), (run.drafter, Drafting { dial, ..Drafting::default() }));
            assert_eq!(wanted.baseline, Baseline::Race, "{}: plain decoding to its end", run.prompt);
            assert_eq!((wanted.max_tokens, wanted.sampling.seed, wanted.sampling.top_k), (run.tokens, run.seed, 0));
            // at a temperature of the user's, or under his rule, lanes would be compared whose draws are independent
            assert_eq!((wanted.sampling.temperature, wanted.rule), (run.temperature, run.rule), "{}", run.prompt);
            assert_eq!(wanted.rival.map(|rival| rival.rule), run.against);
        }
    }
}
