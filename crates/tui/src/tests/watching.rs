//! The first minute: the empty screen and what it offers, the tour, a slow start, leaving.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use super::lessons::bundled_recordings;
use super::views::styled;
use super::*;
use crate::app::clock::pace::{Pace, RAMP_ROUNDS};
use crate::app::options::{FirstStart, Saver};
use crate::app::place::page::Page;
use crate::app::talk::starters::STARTERS;
use crate::app::{Ask, Overlay};
use draftscope_protocol::{Ability, EngineInfo, Settings};
use draftscope_session::Stop;

fn ramp() -> TuiOptions {
    TuiOptions { pace: Pace::Ramp, ..TuiOptions::default() }
}

/// Twenty rounds; every other one rejects its second draft.
fn twenty_rounds(script: &mut Script) {
    script.prompt("hi", "Hello");
    for round in 0..20 {
        let second = if round % 2 == 0 { (" b", 0.8) } else { (" x", 0.8) };
        script.round(&[(" a", 0.6), (" b", 0.5), (" c", 0.4)], &[(" a", 0.9), second, (" c", 0.7), (" d", 0.6)]);
    }
}

/// What an answer is made of, if the engine waits after each phase to be sent on.
struct Paced {
    stage: Stage,
    /// Time waited within each round.
    waited: Vec<Duration>,
}

impl Paced {
    /// Answers a prompt, up to where the pace lets the engine go on by itself.
    fn answer(options: TuiOptions) -> Self {
        let mut script = Script::started();
        let stage = Stage::new(&script, options).pressed("hi<Enter>");
        let met = script.events.len();
        twenty_rounds(&mut script);
        let mut paced = Self { stage, waited: Vec::new() };
        for event in script.events.drain(met..) {
            let ends_phase = Stop::Phase.is_at(&event);
            paced.stage.time.apply(event);
            paced.stage.app.follow(paced.stage.time.live());
            if ends_phase && paced.wait() {
                break;
            }
        }
        paced
    }

    /// Ticks until the engine is sent on; whether it is at full speed then.
    fn wait(&mut self) -> bool {
        let round = crate::app::clock::pacing::round_number(self.stage.time.live());
        self.waited.resize(self.waited.len().max(round + 1), Duration::ZERO);
        for _ in 0..20 {
            let Some(gap) = update::next_tick(&self.stage.app, &self.stage.time) else { return true };
            self.waited[round] += gap;
            let commands = update::tick(&mut self.stage.app, &mut self.stage.time);
            update::veil(&self.stage.app, &mut self.stage.time);
            if !commands.is_empty() {
                self.stage.sent.extend(commands);
                return self.stage.sent.last() == Some(&Command::Resume);
            }
        }
        panic!("the engine is never sent on");
    }
}

#[test]
fn the_first_answer_starts_slow_and_is_at_full_speed_by_its_fifteenth_round() {
    let Paced { mut stage, waited } = Paced::answer(ramp());
    assert!(matches!(stage.sent[..2], [Command::Pause, Command::Generate { .. }]), "{:?}", &stage.sent[..2]);
    assert_eq!(stage.sent.iter().filter(|command| **command == Command::Resume).count(), 1);
    let rounds = stage.time.live().turns()[0].answer(Lane::Speculative).rounds.len();
    assert!((RAMP_ROUNDS - 1..=RAMP_ROUNDS).contains(&rounds), "{rounds}");
    assert_eq!((stage.app.clock.pace, stage.app.clock.plays), (Pace::Full, false));
    for round in &waited[1..5] {
        assert!((0.35..0.65).contains(&round.as_secs_f32()), "about two rounds a second: {waited:?}");
    }
    assert!(waited[5..].windows(2).all(|pair| pair[1] < pair[0] + Duration::from_millis(50)), "{waited:?}");
    let whole: Duration = waited.iter().sum();
    assert!((3.0..6.0).contains(&whole.as_secs_f32()), "{whole:?}");
    for lane in [Lane::Plain, Lane::Speculative] {
        let kind = EventKind::Finished { reason: StopReason::Eos };
        stage.time.apply(Event { seq: 0, at_us: 0, lane, kind });
    }
    stage.app.follow(stage.time.live());
    stage.sent.clear();
    stage.press("<Enter>and?<Enter>");
    assert!(matches!(stage.sent[..], [Command::Generate { .. }]), "the second one does not: {:?}", stage.sent);
}

#[test]
fn a_pace_that_lasts_is_kept_to_the_end() {
    let Paced { stage, waited } = Paced::answer(TuiOptions { pace: Pace::Rounds(4.0), ..TuiOptions::default() });
    assert!(!stage.sent.contains(&Command::Resume));
    assert_eq!(waited.len(), 22, "twenty rounds, and what follows them");
    assert!(waited[1..20].iter().all(|round| (0.15..0.35).contains(&round.as_secs_f32())), "{waited:?}");
}

/// In the middle of the third round of a slow start, with one verdict on show.
fn slow_start(options: TuiOptions) -> Stage {
    let mut script = Script::started();
    let mut stage = Stage::new(&script, options).pressed("Why is the sky blue?<Enter>");
    stage.apply(EventKind::Paused);
    let met = script.events.len();
    twenty_rounds(&mut script);
    let judged = |event: &Event| matches!(event.kind, EventKind::Verified { round: 4, .. });
    let end = script.events.iter().position(judged).unwrap();
    for event in script.events.drain(met..=end) {
        stage.time.apply(event);
    }
    stage.app.follow(stage.time.live());
    update::veil(&stage.app, &mut stage.time);
    stage
}

#[test]
fn a_line_names_the_slow_start_and_its_keys() {
    let mut stage = slow_start(ramp());
    for (width, height) in [(140, 42), (100, 30), (80, 24)] {
        let screen = stage.screen(width, height);
        for says in ["Slow start, 2 rounds/s", "verdict: '·a' is accepted", "full speed by round 15"] {
            assert!(screen.contains(says), "{says}\n{screen}");
        }
        assert!(screen.contains("[ slower · ] full speed now · Space pauses"), "{screen}");
        assert!(screen.contains(" [ ] pace"), "the key bar too\n{screen}");
        assert!(!screen.contains("recovered ·x") && !screen.contains("✗ rejected  "), "not judged yet\n{screen}");
    }
    assert!(update::tick(&mut stage.app, &mut stage.time).is_empty(), "the next verdict");
    update::veil(&stage.app, &mut stage.time);
    stage.shows((100, 30), &["verdict: '·b' is rejected"]);
    stage.shows((100, 30), &["the target preferred '·x' 0.80"]);
    stage.press("<Space>");
    assert!(!stage.screen(100, 30).contains("Slow start"), "paused: all that is known is on show");
    stage.press("<Space>").shows((100, 30), &["Slow start"]);
}

#[test]
fn keys_end_a_slow_start_or_make_it_last() {
    let mut stage = slow_start(ramp());
    stage.press("]");
    assert_eq!((stage.app.clock.pace, stage.sent.last()), (Pace::Full, Some(&Command::Resume)));
    assert!(!stage.screen(80, 24).contains("Slow start"));
    let mut stage = slow_start(ramp());
    stage.press("[");
    assert_eq!((stage.app.clock.pace, stage.app.clock.plays), (Pace::Rounds(1.0), true));
    stage.shows((80, 24), &["1 round/s ·"]);
    let mut stage = slow_start(ramp());
    stage.press("<C-c>");
    assert_eq!(stage.sent.last(), Some(&Command::Stop));
    assert!(stage.app.clock.pace.is_full(), "the next answer is not the first");
}

#[test]
fn the_empty_screen_offers_prompts_on_keys() {
    let mut stage = Stage::new(&Script::started(), ramp());
    for (width, height) in [(140, 42), (100, 30), (80, 24), (60, 16)] {
        let screen = stage.screen(width, height);
        for says in
            ["Type a prompt, or take one with ↓ ↑; Enter sends it", "Why is the sky blue?", "eight lessons", "demo"]
        {
            assert!(screen.contains(says), "{says}\n{screen}");
        }
        assert!(height < 24 || screen.contains("The first answer starts slow"), "{screen}");
        assert!(width < 80 || screen.contains("a starter prompt"), "the key bar\n{screen}");
    }
    for (keys, index) in [("<Down>", 0), ("<Down>", 1), ("<Up><Up>", 4), ("<Down>", 0)] {
        stage.press(keys);
        assert_eq!(stage.app.talk.editor.text(), STARTERS[index].0);
    }
    stage.press("<Enter>");
    let Some(Command::Generate { prompt: Prompt::Chat(messages) }) = stage.sent.last() else { panic!("it is sent") };
    assert_eq!(messages[0].content, STARTERS[0].0);
    assert!(!stage.screen(80, 24).contains("take one with"));
}

#[test]
fn what_is_typed_on_the_empty_screen_is_kept() {
    let mut stage = Stage::new(&Script::started(), ramp()).pressed("hi<Down>");
    assert_eq!(stage.app.talk.editor.text(), "hi");
    stage.press("<Tab>").shows((80, 24), &["Press i to type a prompt"]);
}

#[test]
fn a_starter_prompt_can_be_clicked() {
    let mut stage = Stage::new(&Script::started(), ramp());
    for (width, height) in [(140, 42), (80, 24), (60, 16)] {
        stage.app.talk.editor.take();
        let screen = stage.screen(width, height);
        let y = screen.lines().position(|line| line.contains("Count from 1 to 20.")).unwrap();
        update::click(&mut stage.app, &mut stage.time, 10, y as u16);
        assert_eq!(stage.app.talk.editor.text(), "Count from 1 to 20.");
    }
}

fn first_start() -> (TuiOptions, Rc<Cell<usize>>) {
    let seen = Rc::new(Cell::new(0));
    let count = Rc::clone(&seen);
    let tour = FirstStart(Rc::new(move || count.set(count.get() + 1)));
    (TuiOptions { tour: Some(tour), ..ramp() }, seen)
}

#[test]
fn the_tour_is_shown_once_and_lasts_twenty_seconds() {
    let (options, seen) = first_start();
    let mut stage = Stage::new(&Script::started(), options);
    assert!(update::greet(&mut stage.app, &mut stage.time).is_empty());
    assert_eq!(seen.get(), 1);
    let (mut waited, mut shown) = (Duration::ZERO, Vec::new());
    while let Some(gap) = update::next_tick(&stage.app, &stage.time) {
        let screen = stage.screen(80, 24);
        shown.extend((1..=5).find(|stop| screen.contains(&format!("Tour, {stop} of 5: → next, Esc ends"))));
        waited += gap;
        assert!(update::tick(&mut stage.app, &mut stage.time).is_empty());
    }
    shown.dedup();
    assert_eq!((waited.as_secs(), shown), (20, vec![1, 2, 3, 4, 5]));
    stage.shows((80, 24), &["take one with"]);
    assert_eq!(stage.app.place.pane, Pane::Prompt);
    let commands = update::greet(&mut stage.app, &mut stage.time);
    assert!(commands.is_empty() && stage.app.clock.tour.is_none(), "once");
    stage.press("<F8>");
    assert!(stage.app.clock.tour.is_some(), "and at a key");
}

#[test]
fn the_tour_goes_on_at_a_key_and_ends_at_any_other_which_is_typed() {
    let mut stage = Stage::new(&Script::started(), first_start().0);
    update::greet(&mut stage.app, &mut stage.time);
    let stops = ["<Right>", "<Space>", "<Right>", "<Right>", "<Right>"].map(|key| {
        stage.press(key);
        stage.app.clock.tour.map(|seconds| seconds / 4)
    });
    assert_eq!(stops, [Some(1), Some(2), Some(3), Some(4), None]);
    for (key, typed) in [("<Esc>", ""), ("<Enter>", ""), ("W", "W")] {
        let mut stage = Stage::new(&Script::started(), first_start().0);
        update::greet(&mut stage.app, &mut stage.time);
        stage.press(key);
        assert_eq!((stage.app.clock.tour, stage.app.talk.editor.text().as_str()), (None, typed), "{key}");
        assert!(stage.sent.is_empty());
    }
    let (options, seen) = first_start();
    let mut stage = Stage::new(&Script::started(), TuiOptions { initial_prompt: Some("hi".to_owned()), ..options });
    update::greet(&mut stage.app, &mut stage.time);
    assert_eq!((stage.app.clock.tour, seen.get()), (None, 0), "who has a prompt sees its answer");
}

#[test]
fn the_tour_of_a_first_start_explains_a_recording_and_ends_at_the_prompt() {
    let options = TuiOptions { recordings: Some(bundled_recordings()), ..first_start().0 };
    let mut stage = Stage::new(&Script::started(), options);
    update::greet(&mut stage.app, &mut stage.time);
    for (width, height) in [(140, 42), (100, 30), (80, 24)] {
        stage.shows((width, height), &["Tour, 1 of 5", "accepted", "Speedup"]);
    }
    stage.press("<Right><Right><Right>").shows((100, 30), &["Tour, 4 of 5", "accepted"]);
    stage.press("<Right>").shows((100, 30), &["Tour, 5 of 5", "Type a prompt"]);
    assert!(stage.app.learning.aside.is_none() && !stage.screen(100, 30).contains("Recording of"));
    stage.press("<Right>").shows((100, 30), &["take one with"]);
    for (key, typed) in [("<Esc>", ""), ("W", "W")] {
        stage.press("<F8>");
        let said = stage.app.toast.clone();
        assert!(stage.app.learning.aside.is_some(), "{key}: nothing was asked yet, and it says {said:?}");
        stage.press(key);
        assert_eq!(
            (stage.app.learning.aside.is_none(), stage.app.place.pane, stage.app.talk.editor.text().as_str()),
            (true, Pane::Prompt, typed)
        );
    }
    assert!(stage.sent.is_empty());
}

#[test]
fn an_answer_plays_again_slowly_and_the_pace_of_answers_stays() {
    let mut script = Script::started();
    twenty_rounds(&mut script);
    for lane in [Lane::Speculative, Lane::Plain] {
        script.finish(lane, StopReason::Eos);
    }
    let mut stage = Stage::new(&script, TuiOptions::default()).pressed("<Esc>");
    stage.shows((100, 30), &["R replay"]);
    stage.press("R");
    assert!(stage.time.is_past() && stage.app.clock.plays);
    stage.shows((100, 30), &["again, 2 rounds/s", "round 0 of 20", "d drafts: all"]);
    let gap = |stage: &Stage| update::next_tick(&stage.app, &stage.time).unwrap().as_secs_f64();
    let steps = 3.0 + 1.0 + 1.0 + 1.0;
    assert!((gap(&stage) - 0.5 / steps).abs() < 0.02, "{}", gap(&stage));
    stage.press("[");
    assert!((gap(&stage) - 1.0 / steps).abs() < 0.04 && stage.app.clock.pace.is_full(), "{}", gap(&stage));
    let mut ticks = 0;
    while stage.time.is_past() {
        assert!(update::tick(&mut stage.app, &mut stage.time).is_empty());
        ticks += 1;
    }
    assert!((100..140).contains(&ticks), "every phase of twenty rounds: {ticks}");
    assert!(!stage.app.clock.plays && stage.app.clock.replay.is_none());
    stage.press("R<End>");
    assert!(!stage.time.is_past() && stage.app.clock.replay.is_none());
    let mut empty = Stage::new(&Script::started(), TuiOptions::default()).pressed("<Esc>R");
    empty.shows((100, 30), &["there is no answer to play again yet"]);
}

#[test]
fn who_drafts_is_told_that_a_word_would_go_on() {
    let mut script = Script::prompted("hi", "The");
    script.round(&[(" x", 0.5)], &[(" sky", 0.9), (" b", 0.9)]);
    script.push(Lane::Speculative, EventKind::DraftAsked { draft_len: 3 });
    let mut stage = Stage::new(&script, TuiOptions::default());
    stage.app.follow(stage.time.live());
    stage.shows((80, 24), &["You are the drafter"]);
    stage.press("is").shows((80, 24), &["This goes on in the word “sky”: a space first begins a new one"]);
    stage.press("<Backspace><Backspace> is").shows((80, 24), &["You are the drafter"]);
}

#[test]
fn a_model_that_is_loaded_is_no_longer_said_to_load() {
    let mut stage = Stage::new(&Script::default(), ramp());
    stage.press("h<Enter>");
    stage.shows((80, 24), &["still loading"]);
    update::greet(&mut stage.app, &mut stage.time);
    assert!(!stage.screen(80, 24).contains("still loading"));
}

/// An answered prompt that can be saved.
fn unsaved(options: TuiOptions) -> Stage {
    let save = Saver(Rc::new(|_| Ok("saved".to_owned())));
    Stage::new(&first_turn(), TuiOptions { save: Some(save), ..options })
}

#[test]
fn leaving_a_session_that_is_not_saved_asks() {
    for keys in ["<C-c>", "<Tab>q"] {
        let mut stage = unsaved(TuiOptions::default());
        stage.press(keys);
        assert_eq!((stage.app.quits(), &stage.app.place.overlay), (false, &Some(Overlay::Quit)), "{keys}");
        stage.shows((80, 24), &["This session is not saved"]);
        stage.press("<Esc>");
        assert_eq!((stage.app.quits(), &stage.app.place.overlay), (false, &None));
    }
    for keys in ["<C-c><C-c>", "<C-c>q"] {
        let mut stage = unsaved(TuiOptions::default());
        stage.press(keys);
        assert!(stage.app.quits() && stage.sent.last() == Some(&Command::Shutdown), "{keys}");
    }
    let mut stage = unsaved(TuiOptions::default());
    stage.press("<C-c>s");
    assert!(stage.app.requests.asks == [Ask::SaveAndQuit] && !stage.app.quits(), "once it is saved");
}

#[test]
fn nothing_is_asked_where_nothing_would_be_lost() {
    let mut saved = unsaved(TuiOptions::default());
    saved.app.leaving.saved = saved.time.live().stats(Lane::Speculative).output_tokens();
    let recorded = unsaved(TuiOptions { is_recorded: true, ..TuiOptions::default() });
    let save = Saver(Rc::new(|_| Ok(String::new())));
    let empty = Stage::new(&Script::started(), TuiOptions { save: Some(save), ..TuiOptions::default() });
    for (mut stage, what) in [(saved, "saved"), (recorded, "recorded"), (empty, "empty")] {
        stage.press("<C-c>");
        assert!(stage.app.quits(), "{what}");
    }
}

#[test]
fn autosave_saves_without_a_question() {
    let mut stage = unsaved(TuiOptions { autosave: true, ..TuiOptions::default() });
    stage.press("<C-c>");
    assert!(stage.app.requests.asks == [Ask::SaveAndQuit] && stage.app.place.overlay.is_none());
}

#[test]
fn ctrl_c_clears_a_typed_prompt_before_it_quits() {
    let mut stage = Stage::of(&first_turn()).pressed("a long prompt<C-c>");
    assert!(!stage.app.quits() && stage.app.talk.editor.is_empty());
    stage.shows((80, 24), &["the prompt is cleared: ↑ recalls it, Ctrl+C again quits"]);
    stage.press("<Up>");
    assert_eq!(stage.app.talk.editor.text(), "a long prompt");
    stage.press("<C-c><C-c>");
    assert!(stage.app.quits());
}

#[test]
fn a_refused_prompt_can_be_changed() {
    let mut stage = typed_twice();
    stage.apply(EventKind::Prompted { turn: 2, text: "hi".to_owned(), branch: None });
    stage.apply(EventKind::Notice { message: "the prompt is longer than the context".to_owned() });
    stage.apply(EventKind::Finished { reason: StopReason::Refused });
    assert_eq!((stage.app.place.pane, stage.app.talk.editor.text().as_str()), (Pane::Prompt, "hi"));
    stage.press("<Backspace>o");
    assert_eq!(stage.app.talk.editor.text(), "ho", "it comes back once");
}

#[test]
fn long_messages_wrap_and_keep_their_remedy() {
    let mut stage = Stage::of(&first_turn());
    let long = "this GGUF file has no tokenizer that draftscope reads, ".repeat(8);
    stage.apply(EventKind::Notice { message: format!("{long}so give one with --tokenizer FILE") });
    for (width, height) in [(140, 42), (100, 30), (80, 24)] {
        let screen = stage.screen(width, height);
        assert!(screen.contains("! this GGUF file"), "{screen}");
        let end: Vec<_> = screen.lines().rev().take(3).collect();
        let end = end.into_iter().rev().collect::<Vec<_>>().join(" ");
        assert!(end.contains("--tokenizer FILE"), "{screen}");
    }
}

#[test]
fn the_bar_of_loading_moves() {
    let mut stage = Stage::of(&Script::default());
    for (loading, moves) in [((0, 1), true), ((3, 10), false)] {
        let (done, total) = loading;
        stage.apply(EventKind::Loading { stage: "target".to_owned(), done, total });
        let before = stage.screen(80, 24);
        assert!(update::next_tick(&stage.app, &stage.time).is_some_and(|gap| gap < Duration::from_secs(1)));
        update::tick(&mut stage.app, &mut stage.time);
        assert_eq!(stage.screen(80, 24) != before, moves, "one thing has no part: the bar walks\n{before}");
    }
    stage.shows((80, 24), &["30%"]);
    let mut loaded = Stage::of(&Script::started());
    assert_eq!(update::next_tick(&loaded.app, &loaded.time), None, "{}", loaded.screen(80, 24));
}

#[test]
fn names_of_views_stay_where_they_are() {
    for (width, height) in [(140, 42), (80, 24), (64, 24)] {
        let mut stage = Stage::of(&first_turn());
        let names = |screen: String| {
            let line: Vec<char> = screen.lines().nth(1).unwrap().chars().collect();
            let line: String = line.iter().map(|c| if c.is_alphabetic() { *c } else { ' ' }).collect();
            ["Chat", "Rounds", "Inspect", "Speed"].map(|name| line.find(name).unwrap())
        };
        let typing = names(stage.screen(width, height));
        stage.press("<Tab>");
        assert_eq!(names(stage.screen(width, height)), typing, "at {width}");
    }
}

#[test]
fn the_first_line_names_a_tree_and_p_min_when_they_are_set() {
    let mut stage = Stage::of(&first_turn());
    let first = |stage: &mut Stage| stage.screen(140, 42).lines().next().unwrap().to_owned();
    assert!(!first(&mut stage).contains("tree") && !first(&mut stage).contains("p-min"));
    let mut settings = *stage.time.live().settings();
    (settings.drafting.tree, settings.drafting.p_min) = (Some(12), 0.35);
    stage.apply(EventKind::SettingsChanged { settings });
    assert!(first(&mut stage).contains("no tree → tree 12, p-min 0 → 0.35"), "{}", first(&mut stage));
}

#[test]
fn the_first_line_has_the_settings_of_the_answer_on_show() {
    let mut stage = Stage::of(&conversation());
    stage.apply(EventKind::Finished { reason: StopReason::Eos });
    let first = |stage: &mut Stage| stage.screen(140, 42).lines().next().unwrap().to_owned();
    let was = first(&mut stage);
    assert!(was.contains("Rule exact (lossless") && !was.contains('→'), "{was}");
    let before = *stage.time.live().settings();
    let mut settings = Settings { rule: VerifyRule::Typical, draft_len: 5, ..before };
    settings.sampling.temperature = 0.3;
    stage.apply(EventKind::SettingsChanged { settings });
    let now = first(&mut stage);
    for part in ["k = 3 → 5", "exact (lossless) → typical (not lossless)", " 0 → 0.3"] {
        assert!(now.contains(part), "{part}: the answer was written under what stands first: {now}");
    }
    // an answer under these, and then others again, as when a branch is left
    stage.apply(EventKind::Prompted { turn: 3, text: "hi".to_owned(), branch: None });
    assert!(first(&mut stage).contains("Rule typical (not lossless"), "{}", first(&mut stage));
    stage.apply(EventKind::Finished { reason: StopReason::Eos });
    stage.apply(EventKind::SettingsChanged { settings: before });
    stage.app.requests.wanted = Some((settings, before)); // what was asked for is no longer what is shown
    let left = first(&mut stage);
    assert!(left.contains("typical (not lossless) → exact (lossless)") && left.contains("k = 5 → 3"), "{left}");
    stage.press("<Tab><");
    let past = first(&mut stage);
    assert!(past.contains("◀ the past") && !past.contains('→'), "the past has its own settings: {past}");
}

#[test]
fn the_settings_panel_has_tree_p_min_theme_and_pace() {
    let mut stage = Stage::of(&first_turn()).pressed("<Tab>o<Down><Down><Down><Right>");
    assert!(matches!(stage.sent.last(), Some(Command::SetDrafting { drafting }) if drafting.tree == Some(2)));
    stage.press("<Down><Right>");
    assert!(matches!(stage.sent.last(), Some(Command::SetDrafting { drafting }) if drafting.p_min == 0.05));
    stage.press(&"<Down>".repeat(9)).press("<Right>");
    assert_eq!(stage.app.clock.pace, Pace::Ramp);
    stage.press("<Down><Right>");
    assert!(stage.app.leaving.autosave);
    let theme = stage.app.theme().name.clone();
    stage.press("<Down><Right>");
    assert_ne!(stage.app.theme().name, theme);
    stage.press("<Left>");
    assert_eq!(stage.app.theme().name, theme);
    assert!(!stage.screen(80, 24).contains("MTP:"), "folded");
    stage.press("<Down><Right><Down>");
    stage.shows((80, 24), &["expert settings", "below", "▸ dial"]);
}

/// An answer of which two rounds are there, paused by the user.
fn paused() -> Stage {
    let mut stage = Stage::of(&conversation()).pressed("<Tab><Space>");
    stage.apply(EventKind::Paused);
    stage.sent.clear();
    stage
}

#[test]
fn a_what_if_on_a_paused_answer_says_that_it_ends_it_and_return_brings_it_back() {
    let mut stage = paused();
    let kept = stage.time.live().turns()[1].answer(Lane::Speculative).tokens.len();
    stage.press("<S-Left>w<Down><Right>").shows((100, 30), &["ends the answer under way; u brings it back"]);
    stage.press("<Enter>");
    assert_eq!(stage.sent.first(), Some(&Command::Stop), "{:?}", stage.sent);
    let Some(Prompt::Branch(from)) = stage.sent.iter().find_map(|command| match command {
        Command::Generate { prompt } => Some(prompt.clone()),
        _ => None,
    }) else {
        panic!("the engine is asked: {:?}", stage.sent)
    };
    stage.apply(EventKind::Finished { reason: StopReason::Stopped });
    stage.apply(EventKind::Prompted { turn: 3, text: from.typed.clone(), branch: Some(from.branch) });
    stage.sent.clear();
    stage.press("u");
    let Some(Command::Generate { prompt: Prompt::Branch(back) }) =
        stage.sent.iter().rev().find(|command| matches!(command, Command::Generate { .. }))
    else {
        panic!("the answer goes on: {:?}", stage.sent)
    };
    assert_eq!((back.branch.turn, back.branch.kept as usize), (2, kept), "from where it was ended");
    assert_eq!(stage.sent.first(), Some(&Command::Stop), "the branch is under way");
    stage.shows((100, 30), &["turn 2 is back and goes on where it was ended"]);
}

#[test]
fn the_demo_plays_a_recording_and_leaves_as_it_came() {
    let events = first_turn().events;
    let recordings = crate::app::options::Recordings(Rc::new(move |_| Ok(events.clone())));
    let mut stage = Stage::new(&Script::started(), TuiOptions { recordings: Some(recordings), ..ramp() });
    stage.press("<F9>");
    assert!(stage.app.learning.is_demo() && stage.app.clock.plays);
    let screen = stage.screen(80, 24);
    assert!(screen.contains("recording") && !screen.contains("take one with"), "{screen}");
    stage.press("<Esc>");
    assert!(!stage.app.learning.is_demo() && stage.time.live().turns().is_empty());
    stage.shows((80, 24), &["take one with"]);
    assert_eq!(stage.app.place.page, Page::Chat);
}

fn look(name: &str) -> TuiOptions {
    match name {
        "colour" => TuiOptions { depth: ColorDepth::True, ..ramp() },
        "mono" => TuiOptions { no_color: true, ..ramp() },
        _ => TuiOptions { ascii: true, no_color: true, ..ramp() },
    }
}

fn scene(name: &str, options: TuiOptions) -> Stage {
    let (mut stage, keys) = match name {
        "welcome" => (Stage::new(&Script::started(), options), ""),
        "tour" => (Stage::new(&Script::started(), options), "<F8>"),
        "slow_start" => (slow_start(options), ""),
        "quit" => (unsaved(options), "<C-c>"),
        _ => (unsaved(options), "<Tab>o"),
    };
    stage.press(keys);
    stage
}

#[test]
fn the_first_minute_in_colour_in_monochrome_and_in_ascii() {
    for of in ["colour", "mono", "ascii"] {
        for name in ["welcome", "tour", "slow_start", "quit", "settings"] {
            for (width, height) in [(80, 24), (100, 30), (140, 42)] {
                let mut stage = scene(name, look(of));
                let buffer = stage.draw(width, height).backend().buffer().clone();
                let shown = if of == "ascii" { stage.screen(width, height) } else { styled(&buffer) };
                assert!(of != "ascii" || shown.is_ascii(), "{name} at {width}\n{shown}");
                insta::assert_snapshot!(format!("{of}_{name}_{width}"), shown);
            }
        }
    }
}

#[test]
fn footer_and_help_offer_nothing_that_an_attached_engine_cannot_do() {
    let screen = |abilities: Option<&[Ability]>, keys: &str| {
        let mut script = first_turn();
        let engine = |known: &[Ability]| EngineInfo { abilities: known.to_vec(), ..EngineInfo::default() };
        script.head(|header| header.engine = abilities.map(engine));
        Stage::of(&script).pressed(keys).screen(200, 30)
    };
    let footer = |abilities, keys: &str| screen(abilities, keys).lines().last().unwrap().to_owned();
    let (speed, compare) = ("<Esc>4", "<Esc>5");
    for (page, offer) in [(speed, " k "), (speed, " baseline "), (compare, " versus ")] {
        let (own, attached) = (footer(None, page), footer(Some(&[Ability::SetSampling]), page));
        assert!(own.contains(offer), "{offer:?} is not in {own}");
        assert!(!attached.contains(offer), "{offer:?} is in {attached}");
        assert!(attached.contains(" help "), "{attached}");
    }
    let all = [Ability::SetDraftLen, Ability::Compare];
    assert_eq!(footer(Some(&all), speed), footer(None, speed));
    // the keys of this page, which come first in the help
    let here = |abilities| {
        let help = screen(abilities, "<Esc>4?");
        assert!(help.contains("Here, on the page Speed"), "{help}");
        help.split("Ask the model").next().unwrap().to_owned()
    };
    let is_offered = |help: &str| help.contains("How plain decoding is measured");
    assert!(is_offered(&here(None)) && !is_offered(&here(Some(&[Ability::SetSampling]))));
}
