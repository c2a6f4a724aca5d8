//! The runs of lessons: on the engine, or played from a recording where there is none.

use crate::app::clock::pace::Pace;
use crate::app::{App, Overlay};
use crate::input::action::Action;
use crate::input::line_input::LineInput;
use draftscope_learn::lesson::{Run, drafted};
use draftscope_protocol::{Baseline, Command, Message, Prompt, Speaker};
use draftscope_session::Timeline;

use super::steps::{show_judged, show_models, tick};
use crate::update::recording::show;
use crate::update::sending::{cannot_send, watch};
use crate::update::wanted::set;

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
    tick(app);
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
    if app.plays_lessons(time.live()) {
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
    let run = app.learning.run().cloned();
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
    tick(app);
    let before = app.requests.settings(time.live());
    app.begin_lesson_run(time);
    let mut wanted = run.settings(&before);
    let own = app.learning.study.lent.map_or(before, |(own, _)| own);
    if let Some(text) = draft {
        app.learning.study.drafting = Some((text, time.live().turns().len()));
        (wanted.max_tokens, wanted.baseline) = (1, Baseline::Off);
    }
    app.learning.study.on_all = (wanted.threads > 0).then_some(time.live().turns().len());
    wanted.threads = 0;
    app.learning.study.lent = Some((own, wanted));
    app.requests.want(time.live(), wanted);
    let prompt = prompt_of(run);
    let mut commands = set(&wanted);
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

fn prompt_of(run: &Run) -> Prompt {
    let message = Message { role: Speaker::User, content: run.prompt.clone() };
    if run.raw { Prompt::Raw(run.prompt.clone()) } else { Prompt::Chat(vec![message]) }
}

/// What sends a prompt of a lesson, which begins a conversation in the lesson's run.
fn ask(app: &mut App, time: &Timeline, prompt: Prompt) -> Command {
    let live = time.live();
    watch(app, live);
    if app.talk.conversations.last().is_none_or(|last| *last < live.turns().len()) {
        app.talk.conversations.push(live.turns().len());
    }
    app.requests.await_answer(live, prompt.typed().to_owned());
    // what a lesson asks about is measured: the slow start is for the first prompt of one's own
    app.clock.plays &= app.clock.pace != Pace::Ramp;
    Command::Generate { prompt }
}

/// Sends the second turn of a run that has two: with a draft of the user, once the first turn has shown the tokens of the
/// prompt, whose last one is the anchor; on fewer threads, once it has answered on all of them.
pub(crate) fn go_on(app: &mut App, time: &mut Timeline) -> Vec<Command> {
    show_models(app, time);
    show_judged(app, time);
    let live = time.live();
    let study = &app.learning.study;
    let before = study.drafting.as_ref().map(|(_, before)| *before).or(study.on_all);
    let first = before.and_then(|before| live.turns().get(before));
    let Some(turn) = first.filter(|_| !app.learning.shows_recording() && !live.is_generating()) else {
        return Vec::new();
    };
    let run = app.learning.run();
    let prompt = match &study.drafting {
        Some((text, _)) => drafted(turn, text),
        None => run.map(prompt_of),
    };
    let set_for = run.zip(study.lent).map(|(run, (own, _))| (own, run.settings(&own)));
    (app.learning.study.drafting, app.learning.study.on_all) = (None, None);
    let Some((prompt, (own, wanted))) = prompt.zip(set_for) else { return Vec::new() };
    app.learning.study.lent = Some((own, wanted));
    app.requests.want(live, wanted);
    let mut commands = set(&wanted);
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
        // also after the default drafter, copies beside the module: lessons count the k drafts of a round
        let before = |drafter| Settings {
            baseline: Baseline::Off,
            drafter,
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
        let drafters = [DrafterKind::Ngram, DrafterKind::DEFAULT];
        for (run, before) in runs.iter().flat_map(|run| drafters.map(|drafter| (run, before(drafter)))) {
            let wanted = run.settings(&before);
            assert_eq!((wanted.draft_len_mode, wanted.draft_len), (DraftLenMode::Fixed, run.k), "{}", run.prompt);
            let dial = run.dial.unwrap_or(Drafting::default().dial);
            assert_eq!((wanted.drafter, wanted.drafting), (run.drafter, Drafting { dial, ..Drafting::default() }));
            assert_eq!(wanted.baseline, Baseline::Race, "{}: plain decoding to its end", run.prompt);
            assert_eq!((wanted.max_tokens, wanted.sampling.seed, wanted.sampling.top_k), (run.tokens, run.seed, 0));
            // at a temperature of the user's, or under his rule, lanes would be compared whose draws are independent
            assert_eq!((wanted.sampling.temperature, wanted.rule), (run.temperature, run.rule), "{}", run.prompt);
            let races = |rival: draftscope_protocol::Rival| (rival.rule, rival.draft_len);
            let raced = run.against.is_some() || run.against_k.is_some();
            let race = raced.then(|| (run.against.unwrap_or(run.rule), run.against_k.unwrap_or(run.k)));
            assert_eq!((wanted.rival.map(races), wanted.threads), (race, run.threads));
        }
    }
}
