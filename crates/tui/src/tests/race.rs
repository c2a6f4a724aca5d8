//! Token by token through time, rivals, exports, lessons without an engine, rounds that are run again.

use std::rc::Rc;

use super::*;
use crate::app::Ask;
use crate::app::options::{Exporter, Recordings};
use draftscope_protocol::{Again, Committed, Continuation, DrafterKind, Rival, Settings};
use draftscope_session::Provenance;

/// The conversation with a rival that wrote what the plain lane wrote.
pub(super) fn race() -> Script {
    let mut script = Script::started();
    let rival = Rival { draft_len: 5, ..Rival::like(&header().settings) };
    let settings = Settings { rival: Some(rival), ..header().settings };
    script.push(Lane::Speculative, EventKind::SettingsChanged { settings });
    for event in first_turn().events.into_iter().skip(1) {
        let copy = (event.lane == Lane::Plain).then(|| event.kind.clone());
        script.push(event.lane, event.kind);
        if let Some(kind) = copy {
            script.push(Lane::Rival, kind);
        }
    }
    script
}

fn browse(script: &Script) -> Stage {
    let mut stage = Stage::of(script);
    stage.press("<Tab>");
    stage
}

fn tokens(stage: &Stage) -> usize {
    stage.time.shown().turns().iter().map(|turn| turn.answer(Lane::Speculative).tokens.len()).sum()
}

#[test]
fn time_is_scrubbed_token_by_token() {
    let mut stage = browse(&conversation());
    let all = tokens(&stage);
    for left in (1..all).rev() {
        stage.press(";");
        assert_eq!(tokens(&stage), left, "one token less each time");
        assert!(stage.app.place.selected.is_some(), "the newest token is selected");
        stage.draw(80, 24);
    }
    stage.press(";").shows((80, 24), &["this is the beginning"]);
    for more in 2..=all {
        stage.press("'");
        assert_eq!(tokens(&stage), more, "and one more on the way back");
    }
    stage.press("'");
    assert!(!stage.time.is_past());
    assert_eq!(tokens(&stage), all);
}

#[test]
fn within_a_commit_the_rest_waits_and_an_answer_can_go_on_from_there() {
    let mut stage = browse(&first_turn());
    while stage.time.moment().tokens == 0 {
        stage.press(";");
    }
    let answer = stage.time.shown().turns()[0].answer(Lane::Speculative);
    let round = answer.rounds.last().unwrap();
    assert!(round.is_partial && round.committed().len() < round.accepted() + 1);
    let whole = answer.tokens.len();
    assert_eq!(answer.transcript().filter(|s| matches!(s.fate, draftscope_session::Fate::Committed(_))).count(), whole);
    assert!(!stage.screen(120, 40).contains("cut off"), "no stop rule cut it");
    stage.press(",");
    assert_eq!(stage.time.moment().tokens, 0, "a phase back: before the commit");
    stage.press("';g");
    stage.press("'");
    let mut again = browse(&first_turn());
    while again.time.moment().tokens == 0 {
        again.press(";");
    }
    again.press("g");
    let Some(Command::Generate { prompt: Prompt::Branch(from) }) = again.sent.last() else {
        panic!("{:?}", again.sent)
    };
    assert_eq!(from.branch.kept as usize, whole, "behind the very token on show");
}

#[test]
fn the_first_token_is_inspected_like_any_other() {
    let mut stage = browse(&first_turn()).pressed("{");
    assert_eq!(tokens(&stage), 1);
    stage.press("<Enter>").shows((120, 40), &["first token", "The prompt's last row gives"]);
    stage.press("<End>1<S-Left><S-Left><S-Left><S-Left><S-Left><S-Left><S-Left><Left><Left><Left><Left><Left>");
    assert_eq!(stage.app.place.selected, Some(RoundAt { turn: 0, round: None }), "left of the first round");
    stage.press("w<Down><Down><Right>");
    stage.screen(80, 24);
    let first = stage.time.shown().turns()[0].answer(Lane::Speculative);
    assert_eq!(first.tokens[0].provenance, Provenance::Prefill);
    assert_eq!(first.prefill.committed()[0], first.tokens[0].piece);
}

#[test]
fn a_rival_is_set_in_its_panel() {
    let mut stage = browse(&first_turn()).pressed("v<Right>");
    let own = *stage.time.live().settings();
    let like = Rival::like(&own);
    assert_eq!(stage.sent, [Command::SetRival { rival: Some(like) }]);
    stage.press("<Down><Right><Down><Right><Down><Down><Right>").shows((80, 24), &["the rival", "→ 4"]);
    let Some(Command::SetRival { rival: Some(rival) }) = stage.sent.last() else { panic!("{:?}", stage.sent) };
    assert_eq!((rival.draft_len, rival.temperature), (own.draft_len + 1, 0.1));
    assert_ne!(rival.rule, own.rule);
    assert_ne!(rival.drafter, DrafterKind::Human);
    stage.press("<Up><Up><Up><Up><Left>");
    assert_eq!(stage.sent.last(), Some(&Command::SetRival { rival: None }));
    stage.press("<Esc>");
    assert_eq!(stage.app.place.overlay, None);
}

#[test]
fn one_key_holds_a_lossless_rule_against_one_that_is_not() {
    let mut stage = browse(&first_turn());
    let own = *stage.time.live().settings();
    stage.press("L");
    let rival = Rival { rule: VerifyRule::Typical, ..Rival::like(&own) };
    let [Command::SetRival { rival: Some(sent) }, Command::Generate { prompt: Prompt::Branch(from) }] = &stage.sent[..]
    else {
        panic!("{:?}", stage.sent)
    };
    let turn = &stage.time.live().turns()[0];
    assert_eq!(
        (sent, &from.tokens),
        (&rival, &turn.answer(Lane::Speculative).prompt.to_vec()),
        "the prompt, no answer"
    );
    assert_eq!(from.branch.kept, 0);
    stage.shows((120, 40), &["exact (lossless) against typical (not lossless)"]);
    assert_eq!(stage.app.place.page, crate::app::place::page::Page::Compare);
    stage.press("L");
    assert_eq!(stage.sent.last(), Some(&Command::SetRival { rival: None }));
    let branch = Some(draftscope_protocol::Branch { turn: 1, kept: 0, forced: false });
    stage.apply(EventKind::Prompted { turn: 2, text: "again".to_owned(), branch });
    stage.press("1").shows((120, 40), &["⑂ turn 1, its prompt once more"]);
    let busy = browse(&conversation()).pressed("L");
    assert_eq!(busy.sent.len(), 1, "an answer under way is not cut off for it");
}

#[test]
fn what_a_rule_that_is_not_lossless_changed_is_counted() {
    let mut script = Script::started();
    let rival = Rival { rule: VerifyRule::Typical, ..Rival::like(&header().settings) };
    let settings = Settings { rival: Some(rival), ..header().settings };
    script.push(Lane::Speculative, EventKind::SettingsChanged { settings });
    for event in first_turn().events.into_iter().skip(1) {
        let is_own = event.lane == Lane::Speculative;
        let mut copy = event.kind.clone();
        script.push(event.lane, event.kind);
        match &mut copy {
            EventKind::Verified { round: 4, verdict } => {
                let instead = verdict.next;
                verdict.departures = vec![draftscope_protocol::Departure { index: 0, instead }];
                verdict.lossless = false;
            }
            EventKind::Committed(Committed { round: 4, tokens, .. }) if is_own => tokens[0] = tokens[1].clone(),
            _ => {}
        }
        if is_own && !matches!(copy, EventKind::Prompted { .. }) {
            script.push(Lane::Rival, copy);
        }
    }
    let mut stage = browse(&script).pressed("5");
    let screen = stage.screen(200, 60);
    let told = "typical is not lossless: 1 draft accepted that the target would not have picked, 1 place differs";
    assert!(screen.contains(told), "{screen}");
}

#[test]
fn a_draft_that_the_target_would_not_have_picked_is_marked() {
    let mut stage = browse(&draftscope_session::fixture::departing());
    stage.shows((120, 40), &["is blue", "not the target's choice"]);
    stage.press("d").shows((120, 40), &["is blue", "not the target's choice"]);
    for _ in 0..5 {
        stage.press("<S-Left>");
    }
    let screen = stage.screen(120, 40);
    assert!(screen.contains("≠ accepted") && screen.contains("·not 0."), "its own token with p: {screen}");
    stage.walk((120, 40), &[("2", "≠ ·blue"), ("?/choice", "≠                   accepted, not the target's choice")]);
    assert!(!browse(&first_turn()).screen(120, 40).contains('≠'), "none, no mark");
}

#[test]
fn formats_are_chosen_and_asked_of_the_caller() {
    let formats = [("html", "a page"), ("csv", "a table")].map(|(name, about)| (name.to_owned(), about.to_owned()));
    fn write(_: usize, _: &mut dyn Iterator<Item = &Event>) -> Result<String, String> {
        Ok("done".to_owned())
    }
    let exporter = Exporter { formats: formats.to_vec(), write: Rc::new(write) };
    let options = TuiOptions { export: Some(exporter), ..TuiOptions::default() };
    let mut stage = Stage::new(&first_turn(), options);
    stage.press("<Tab>e").shows((80, 24), &["a page", "a table"]);
    stage.press("<Down><Down><Enter>");
    assert_eq!(stage.app.requests.asks, [Ask::Export(1)]);
    assert_eq!(stage.app.place.overlay, None);
    let mut none = browse(&first_turn());
    none.press("e").shows((80, 24), &["cannot be exported"]);
}

fn without_engine() -> Stage {
    let mut script = conversation();
    script.head(|head| head.capabilities = Capabilities::default());
    let read = Recordings(Rc::new(|name: &str| match name {
        "cost" => Ok(first_turn().events),
        other => Err(format!("there is no recording '{other}'")),
    }));
    Stage::new(&script, TuiOptions { page: Page::Learn, recordings: Some(read), ..TuiOptions::default() })
}

#[test]
fn a_lesson_without_an_engine_plays_its_recording() {
    let mut stage = without_engine();
    stage.press("<Down><Enter><Right><Enter>");
    assert!(stage.app.learning.aside.is_some() && stage.time.is_past() && stage.app.clock.plays);
    stage.shows((120, 40), &["a recording of the real engine"]);
    assert_eq!(stage.time.live().turns().len(), 1, "the lesson's own run");
    // what is on show is a recording like any other, and nobody's source
    assert!(
        stage.app.clock.is_recording && stage.app.requests.awaiting.is_none() && stage.app.requests.wanted.is_none()
    );
    stage.walk(
        (80, 24),
        &[("1i", "it takes no prompt"), ("m]ng<End><Space>", "this is the end of the lesson's recording")],
    );
    assert_eq!((stage.app.clock.playback.speed, stage.app.clock.holds), (2.0, false));
    stage.press("2<End>").shows((80, 24), &["Rounds: 7 of 7"]);
    stage.press("6<Enter>");
    assert_eq!(stage.app.learning.study.step, 2);
    stage.press("<Esc>");
    assert!(stage.app.learning.aside.is_none());
    assert_eq!(stage.time.live().turns().len(), 2, "the run that was there before");
    assert!(stage.sent.is_empty(), "nothing of it went to the source");
    assert_eq!(stage.app.clock.playback.speed, 1.0, "as the source plays");
    stage.press("<Down><Enter><Enter>").shows((80, 24), &["there is no recording 'round'"]);
}

fn asked(stage: &Stage) -> (&Continuation, bool) {
    let generate = stage.sent.iter().find_map(|command| match command {
        Command::Generate { prompt: Prompt::Branch(from) } => Some(from),
        _ => None,
    });
    (generate.expect("a branch"), stage.sent.last() == Some(&Command::StepRound))
}

#[test]
fn what_the_record_does_not_hold_is_asked_of_the_engine_in_the_same_round() {
    let mut stage = browse(&first_turn()).pressed("<S-Left>");
    let (round, anchor) = {
        let turn = &stage.time.shown().turns()[0];
        let round = stage.app.round(stage.time.shown()).unwrap().clone();
        (round.clone(), turn.answer(Lane::Speculative).tokens[round.first_token - 1].piece.id)
    };
    stage.press("w<Right>").shows((80, 24), &["Enter the engine"]);
    stage.press("<Enter>");
    let (from, steps) = asked(&stage);
    assert!(steps, "the engine holds behind the reply");
    assert_eq!(from.again, Some(Again::default()), "the drafter is asked for the one more");
    assert_eq!(from.tokens.last(), Some(&anchor));
    assert_eq!(from.branch.kept as usize, round.first_token - 1);
}

#[test]
fn a_typed_draft_that_the_target_would_have_to_read_on_from_goes_to_the_engine() {
    let mut stage = browse(&first_turn()).pressed("<S-Left>");
    let round = stage.app.round(stage.time.shown()).unwrap().clone();
    let best = round.rows()[0].best().unwrap().piece.clone();
    stage.press("w<Down><Down><Down><Down><Right><Down>");
    for c in String::from_utf8_lossy(&best.bytes).trim().chars() {
        stage.key(KeyEvent::from(KeyCode::Char(c)));
    }
    let screen = stage.screen(80, 24);
    let asks = screen.contains("Enter the engine");
    stage.press("<Enter>");
    if asks {
        let (from, _) = asked(&stage);
        assert_eq!(from.again, Some(Again { drafts: vec![best.id], text: String::new() }), "{screen}");
    } else {
        assert!(screen.contains("computed from the recorded"), "{screen}");
    }
}

/// An answer of three tokens a round, every one with drafts.
fn long(rounds: u32) -> Timeline {
    let mut script = Script::prompted("go on", "It");
    let mut time = Timeline::new();
    for _ in 0..rounds {
        script.round(&[(" one", 0.5), (" two", 0.4)], &[(" one", 0.6), (" two", 0.5), (" three", 0.9)]);
        std::mem::take(&mut script.events).into_iter().for_each(|event| time.apply(event));
    }
    time
}

/// Processor time of this thread, so that what else the machine does has no part in it; where the system does not say,
/// the time since `start`.
fn processor_time(start: std::time::Instant) -> std::time::Duration {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanoseconds = stat.split(' ').next().and_then(|first| first.parse().ok()).filter(|time| *time > 0);
    nanoseconds.map_or_else(|| start.elapsed(), std::time::Duration::from_nanos)
}

/// Mean time of nine frames of each page, the worst of them, after a first one that fills the caches.
fn frame(time: Timeline) -> std::time::Duration {
    const FRAMES: u32 = 9;
    let start = std::time::Instant::now();
    let mut stage = Stage { time, app: App::new(TuiOptions::default()), view: View::default(), sent: Vec::new() };
    let mut worst = std::time::Duration::ZERO;
    for page in Page::ALL {
        stage.app.go_to(*page);
        stage.draw(120, 40);
        let began = processor_time(start);
        (0..FRAMES).for_each(|_| drop(stage.draw(120, 40)));
        let took = (processor_time(start) - began) / FRAMES;
        println!("{page:?}: {took:?}");
        worst = worst.max(took);
    }
    worst
}

#[test]
fn an_answer_of_100_000_tokens_stays_smooth() {
    let short = frame(long(300));
    let long = frame(long(33_334));
    println!("a frame: {short:?} of 900 tokens, {long:?} of 100,000");
    // what is on screen is what is laid out; walking over the rounds for a curve is all that may grow
    assert!(long < short + std::time::Duration::from_millis(33), "{long:?} against {short:?}");
}
