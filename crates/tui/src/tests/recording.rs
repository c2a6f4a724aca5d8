//! A recording on the screen: no prompt, the line of time, marks, places to go to.

use std::time::Duration;

use super::*;
use crate::app::place::page::Page;
use draftscope_protocol::{Landmark, Listed};

/// The first so many events of a conversation that was recorded.
fn recorded(events: usize) -> Stage {
    let mut script = conversation();
    let ends_at_us = script.events.last().map(|event| event.at_us + 40_000);
    let mut recorded = header();
    recorded.capabilities = Capabilities { ends_at_us, ..Capabilities::default() };
    script.events[0].kind = EventKind::Started { header: Box::new(recorded) };
    let playback = Playback { speed: 0.5, idle_limit: Duration::from_millis(1500), loops: true };
    let options = TuiOptions { playback: Some(playback), ..TuiOptions::default() };
    let mut stage = Stage::folded(&script.events[..events], options);
    stage.app.follow(stage.time.live());
    stage
}

/// Sends back the events of marks, as a source does.
fn answer_marks(stage: &mut Stage) {
    for command in std::mem::take(&mut stage.sent) {
        let kind = match command {
            Command::Bookmark { round, turn, label } => EventKind::Bookmarked { round, turn, label },
            Command::Note { text, round, turn } => EventKind::Noted { text, round, turn },
            _ => continue,
        };
        let at_us = stage.time.live().at_us();
        stage.time.apply(Event { seq: 0, at_us, lane: Lane::Speculative, kind });
    }
}

#[test]
fn a_recording_says_what_it_is_and_how_it_plays() {
    let mut stage = recorded(70);
    insta::assert_snapshot!("recording_80_24", stage.screen(80, 24));
    insta::assert_snapshot!("recording_120_40", stage.screen(120, 40));
}

#[test]
fn nothing_is_typed_into_a_recording() {
    let mut stage = recorded(70);
    assert_eq!(stage.app.context(), Context::Browse);
    stage.press("i").shows((80, 24), &["this is a recording: it takes no prompt"]);
    paste(&mut stage.app, &mut stage.time, "hello");
    assert!(stage.app.talk.editor.is_empty() && stage.app.context() == Context::Browse);
    for _ in 0..6 {
        stage.press("<Tab>");
        assert_ne!(stage.app.place.pane, Pane::Prompt);
    }
    stage.press("<Esc><Esc>");
    assert_ne!(stage.app.place.pane, Pane::Prompt);
    stage.press("<Enter>");
    assert_eq!(stage.app.place.page, Page::Inspect, "Enter opens the token");
    assert!(stage.sent.is_empty());
    stage.press("<C-c>");
    assert!(stage.app.quits(), "nothing runs that could be stopped first");
}

#[test]
fn its_speed_is_the_source_s() {
    let mut stage = recorded(70);
    stage.press("]]");
    assert_eq!(stage.sent, [Command::SetSpeed { speed: 1.0 }, Command::SetSpeed { speed: 2.0 }]);
    stage.shows((120, 40), &["2× · waits ≤ 1.5 s · loop"]);
    stage.press("{<Space>");
    let gap = update::next_tick(&stage.app, &stage.time).unwrap();
    let recorded = Duration::from_micros(stage.time.gap_us(draftscope_session::Stop::Phase));
    assert_eq!(gap, recorded / 2, "at twice its pace");
}

#[test]
fn several_recordings_are_named_and_gone_through() {
    let mut stage = recorded(70);
    assert!(!stage.screen(120, 40).contains(" p recording "));
    let play = |stage: &mut Stage, number: u32| {
        let mut header = stage.time.live().header().unwrap().clone();
        header.capabilities.listed = Some(Listed { name: "list\u{1b}".to_owned(), number, of: 3 });
        let kind = EventKind::Started { header: Box::new(header) };
        stage.time.apply(Event { seq: 0, at_us: 0, lane: Lane::Speculative, kind });
    };
    play(&mut stage, 2);
    stage.shows((120, 40), &["list␛ 2/3 · ", " p recording "]);
    stage.press("pP");
    assert_eq!(stage.sent, [Command::PlayListed { number: 3 }, Command::PlayListed { number: 1 }]);
    stage.sent.clear();
    play(&mut stage, 3);
    stage.press("p");
    assert!(stage.sent.is_empty() && stage.screen(120, 40).contains("this is the last of 3 recordings"));
    play(&mut stage, 1);
    stage.press("P");
    assert!(stage.sent.is_empty() && stage.screen(120, 40).contains("this is the first of 3 recordings"));
    let mut alone = recorded(70);
    alone.press("p");
    assert!(alone.sent.is_empty() && alone.screen(120, 40).contains("one recording plays"));
}

#[test]
fn marks_are_made_shown_and_found_again() {
    for mut stage in [recorded(70), Stage::of(&conversation())] {
        if stage.app.context() == Context::Prompt {
            stage.press("<Tab>");
        }
        stage.press("<S-Left><S-Left>");
        let about = stage.app.round(stage.time.shown()).unwrap().number();
        stage.press("m");
        assert_eq!(
            stage.sent.last(),
            Some(&Command::Bookmark { round: Some(about), turn: None, label: String::new() })
        );
        stage.press("<S-Left>aodd one<Enter>");
        let note = Command::Note { text: "odd one".to_owned(), round: Some(about - 1), turn: None };
        assert_eq!(stage.sent.last(), Some(&note));
        answer_marks(&mut stage);
        stage.press("<C-Down>");
        assert_eq!(stage.app.round(stage.time.shown()).unwrap().number(), about);
        assert!(stage.screen(80, 24).contains(&format!("round {about}: ★")));
        stage.press("<C-Up>");
        let screen = stage.screen(120, 40);
        assert!(
            screen.contains(&format!("Round {} (selected)", about - 1)) && screen.contains("✎ odd one"),
            "{screen}"
        );
        stage.press("2");
        let ladder = stage.screen(120, 40);
        assert!(ladder.contains(&format!(" {about}★")) && ladder.contains(&format!(" {}✎", about - 1)), "{ladder}");
        stage.press("<C-Up>").shows((80, 24), &["there is no bookmark or note before"]);
        stage.press("a<Esc>a  <Enter>");
        assert!(stage.sent.is_empty(), "nothing written, nothing noted");
        // from the past, a mark that lies ahead is gone to in time
        stage.press("{<C-Down>");
        assert!(stage.time.is_past());
        assert_eq!(stage.app.round(stage.time.shown()).unwrap().number(), about - 1);
    }
}

#[test]
fn a_mark_on_a_prompt_s_pass_leads_back_to_that_turn() {
    let mut stage = Stage::of(&conversation()).pressed("<Tab>{m");
    assert_eq!(stage.app.round(stage.time.shown()).map(|round| (round.turn, round.number())), Some((1, 0)));
    let mark = Command::Bookmark { round: None, turn: Some(1), label: String::new() };
    assert_eq!(stage.sent.last(), Some(&mark));
    stage.shows((120, 40), &["bookmark at the prompt of turn 1"]);
    answer_marks(&mut stage);
    stage.press("<End><C-Up>");
    let shown = stage.app.round(stage.time.shown()).unwrap();
    assert_eq!((shown.turn, shown.number()), (1, 0), "not the second turn's");
    stage.shows((120, 40), &["the prompt of turn 1: ★"]);
}

#[test]
fn what_has_not_played_is_skipped_to() {
    let mut stage = recorded(40);
    stage.press("<C-Down>");
    assert_eq!(stage.sent.pop(), Some(Command::SkipToNext { landmark: Landmark::Mark }));
    stage.press("nnnnnnnn");
    assert_eq!(stage.sent.pop(), Some(Command::SkipToNext { landmark: Landmark::Reject }));
    stage.sent.clear();
    stage.press("%99<Enter>");
    assert_eq!(stage.sent.pop(), Some(Command::SkipToNext { landmark: Landmark::Round(99) }));
    stage.press("%100%<Enter>");
    let ends_at_us = stage.time.live().header().unwrap().capabilities.ends_at_us.unwrap();
    assert_eq!(stage.sent.pop(), Some(Command::SkipTo { at_us: u64::MAX }), "the end itself");
    stage.press("<C-Right>");
    let Some(Command::SkipTo { at_us }) = stage.sent.pop() else { panic!("a twentieth on") };
    let turn_us = ends_at_us - stage.time.turn_span().unwrap().time_us.start;
    assert_eq!(at_us, stage.time.at_us() + turn_us / 20);
    stage.press("%nowhere<Enter>");
    assert!(stage.screen(80, 24).contains("name a round (12)"), "and the line stays open");
    assert!(matches!(stage.app.place.overlay, Some(crate::app::Overlay::GoTo(_))));
}

#[test]
fn what_has_played_is_gone_back_to() {
    let mut stage = recorded(70);
    stage.press("%2<Enter>");
    assert!(stage.time.is_past());
    assert_eq!(stage.app.round(stage.time.shown()).unwrap().number(), 2);
    assert_eq!(stage.sent, [Command::Pause], "the recording waits");
    stage.press("%20ms<Enter>");
    assert_eq!(stage.time.at_us(), stage.time.turn_span().unwrap().time_us.start + 20_000);
    let before = stage.time.at_us();
    stage.press("<C-Left>");
    assert!(stage.time.at_us() < before);
    stage.press("n");
    assert!(stage.time.is_past(), "a rejection behind the moment on show, in what has played");
    stage.press("<End>");
    assert!(!stage.time.is_past());
}

#[test]
fn a_live_run_goes_to_places_too() {
    let mut stage = Stage::of(&conversation()).pressed("<Tab>%3<Enter>");
    assert_eq!(stage.app.round(stage.time.shown()).unwrap().number(), 3);
    stage.press("%99<Enter>").shows((80, 24), &["round 99 is not there"]);
    let mut steps = 0;
    while stage.time.is_past() && steps < 60 {
        stage.press("<C-Right>"); // at most a twentieth of the turn, to an event
        steps += 1;
    }
    assert!((20..60).contains(&steps), "{steps}");
    stage.press("n");
    assert!(stage.sent.iter().all(|command| matches!(command, Command::Pause | Command::Resume)));
}

#[test]
fn a_click_on_the_line_goes_to_that_time() {
    let mut stage = recorded(70);
    let screen = stage.screen(120, 40);
    let (y, line) = screen.lines().enumerate().find(|(_, line)| line.contains('●') && line.contains("waits")).unwrap();
    let x = line.chars().position(|c| c == '━').unwrap() as u16;
    stage.draw(120, 40);
    update::click(&mut stage.app, &mut stage.time, x + 1, y as u16);
    assert!(stage.time.is_past());
    let commands = update::click(
        &mut stage.app,
        &mut stage.time,
        line.chars().position(|c| c == '─').unwrap() as u16 + 3,
        y as u16,
    );
    assert!(matches!(commands[..], [.., Command::SkipTo { .. }]), "{commands:?}");
}

#[test]
fn a_recording_is_judged_again_and_not_asked() {
    let mut stage = recorded(70);
    stage.press("w<Right><Right>");
    let screen = stage.screen(80, 24);
    assert!(
        screen.contains("What if") && !screen.contains("Enter asks") && !screen.contains("Enter goes on"),
        "{screen}"
    );
    stage.press("<Enter>");
    assert!(stage.app.place.overlay.is_some(), "what was wished for stays");
    stage.shows((80, 24), &["it cannot be asked"]);
    assert!(stage.sent.is_empty());
}
