//! Lessons played to their end on their recordings, and what is on show meanwhile, at every size.

use std::path::Path;
use std::rc::Rc;

use super::*;
use crate::app::Overlay;
use crate::app::place::page::Page;
use draftscope_learn::lesson::{Goal, Step, bundled};
use draftscope_protocol::Prefilled;

const SIZES: [(u16, u16); 3] = [(80, 24), (100, 30), (140, 42)];

/// Keys pressed at most until a goal is reached.
const MOST_KEYS: usize = 60;

/// The recordings that come with the program.
pub(super) fn bundled_recordings() -> Recordings {
    Recordings(Rc::new(|name: &str| {
        let traces = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../assets/traces"));
        let file = format!("{name}.dscope.jsonl.zst");
        let places = [traces.join("lessons").join(&file), traces.join(&file)];
        let path = places.iter().find(|path| path.exists()).unwrap_or(&places[0]);
        let recording = draftscope_session::trace::Recording::open(path);
        let events = recording.and_then(|recording| recording.reader()?.collect::<Result<Vec<_>, _>>());
        events.map_err(|error| error.to_string())
    }))
}

/// Without an engine: lessons play the recordings that come with the program.
fn demo() -> Stage {
    let mut script = first_turn();
    script.head(|head| head.capabilities = Capabilities::default());
    Stage::new(
        &script,
        TuiOptions { page: Page::Learn, recordings: Some(bundled_recordings()), ..TuiOptions::default() },
    )
}

fn open(stage: &mut Stage, index: usize) {
    stage.press(&"<Down>".repeat(index)).press("<Enter>");
    assert_eq!(stage.app.learning.study.lesson, Some(index));
}

fn step(stage: &Stage) -> Step {
    stage.app.learning.on_show().unwrap().1.clone()
}

/// Presses keys until the step is done, as a user would.
fn reach(stage: &mut Stage, goal: Goal) {
    let (place, key) = match goal {
        Goal::Finished => (stage.app.learning.study.step, "<End><Enter>"),
        // rounds with a rejection are among the last ones of an answer that is over
        Goal::Rejected
            if stage.time.shown().turn().is_some_and(|turn| turn.answer(Lane::Speculative).finished.is_some()) =>
        {
            (stage.app.learning.study.step, "<S-Left><Enter>")
        }
        _ => (stage.app.learning.study.step, ".<Enter>"),
    };
    for _ in 0..MOST_KEYS {
        stage.press(key);
        if stage.app.learning.study.step != place {
            return;
        }
    }
    panic!("{goal:?} was not reached: {}", stage.screen(100, 30));
}

/// Takes one choice after the other until the question of the step on show is answered.
fn answer(stage: &mut Stage) {
    for _ in 0..step(stage).choices.len() {
        stage.press("<Enter>");
        if stage.app.learning.study.is_revealed {
            return;
        }
        stage.press("<Down>");
    }
}

/// No panel is blank, no number is missing that the step rests on, and nothing is left of the file's own marks.
fn looks_right(stage: &mut Stage, is_measured: bool) {
    for (width, height) in SIZES {
        let screen = stage.screen(width, height);
        let rows: Vec<&str> = screen.lines().collect();
        let blank = rows.windows(3).any(|rows| {
            let is_blank = |row: &str| row.chars().all(|c| " │┌┐└┘─".contains(c)) && row.contains("│");
            rows[0].contains('┌') && is_blank(rows[1]) && is_blank(rows[2]) && !rows[1].contains("││")
        });
        assert!(!blank, "a blank panel at {width}: {screen}");
        assert!(!is_measured || !screen.contains("(not measured yet)"), "at {width}: {screen}");
        let is_filled =
            draftscope_learn::lesson::Fact::ALL.iter().all(|(name, _)| !screen.contains(&format!("{{{name}}}")));
        assert!(is_filled && !screen.contains('\\'), "the file's own marks at {width}: {screen}");
    }
}

#[test]
fn every_lesson_is_played_to_its_end_on_its_recordings() {
    for (index, entry) in bundled().iter().enumerate().filter(|(_, entry)| entry.name != "quiz") {
        let mut stage = demo();
        open(&mut stage, index);
        for number in 0..entry.lesson.step.len() {
            assert_eq!(stage.app.learning.study.step, number, "{}", entry.name);
            let step = step(&stage);
            looks_right(&mut stage, false);
            if let Some(run) = &step.run {
                let screen = stage.screen(140, 42);
                let top = screen.lines().next().unwrap();
                let is_drafted = stage.time.live().available(run.drafter).is_some();
                let k = format!("k = {}", run.k);
                assert!(!is_drafted || top.contains(&k), "before the run that {} begins: {top}", entry.name);
                stage.press("<Enter>");
                assert!(stage.app.learning.aside.is_some(), "{}: {:?}", entry.name, stage.app.toast);
                if !run.hold {
                    stage.press("<End>");
                }
            } else if !step.choices.is_empty() {
                let run = stage.app.learning.run().cloned();
                let right = stage.app.learning.study.right_choice(&step, stage.time.shown(), run.as_ref());
                let right = right.unwrap_or_else(|| panic!("{} step {}: not measured", entry.name, number + 1));
                // a wrong choice first: it answers its own belief
                let wrong = usize::from(right == 0);
                stage.press(&"<Down>".repeat(wrong)).press("<Enter>");
                assert!(stage.screen(140, 42).contains("No. "), "{}", step.text);
                let is_last = step.choices.len() == 2;
                assert_eq!(stage.app.learning.study.is_revealed, is_last, "{}", step.text);
                if !is_last {
                    stage.press(&"<Up>".repeat(9)).press(&"<Down>".repeat(right)).press("<Enter>");
                }
                assert!(stage.screen(140, 42).contains("Answer: "), "{}", step.text);
                looks_right(&mut stage, true);
            } else if let Some(goal) = step.goal {
                reach(&mut stage, goal);
                continue;
            } else if let Some(task) = &step.task {
                stage.press("<Enter>").shows((140, 42), &["Hint 1: "]);
                assert_eq!(stage.app.learning.study.step, number, "the task is not done yet");
                solve(&mut stage, task.speedup);
            }
            stage.press("<Enter>");
        }
        assert_eq!(stage.app.learning.study.lesson, None, "{} is over", entry.name);
        let steps = entry.lesson.step.len();
        assert_eq!(
            stage.app.learning.progress.done(&entry.name, &entry.lesson),
            steps,
            "{}: a tick a step",
            entry.name
        );
        let (right, _) = stage.app.learning.progress.score(&entry.name, &entry.lesson);
        assert_eq!(right, 0, "{}: every first answer was wrong", entry.name);
    }
}

/// Turns the free sliders until the speedup is in its range.
fn solve(stage: &mut Stage, [low, high]: [f64; 2]) {
    for _ in 0..300 {
        let speedup = stage.app.learning.study.sliders.speedup();
        if (low..=high).contains(&speedup) {
            return;
        }
        let key = if speedup < low { "+" } else { "-" };
        stage.press(key);
    }
    panic!("no speedup of {low} to {high}: {}", stage.screen(100, 30));
}

#[test]
fn a_question_asked_again_does_not_score() {
    let mut stage = demo();
    open(&mut stage, 0);
    stage.press("<Enter><Enter>").shows((100, 30), &["No. The row at", "right: 0 of 1"]);
    stage.press("<Down><Enter>").shows((100, 30), &["Answer: ", "right: 0 of 1"]);
    stage.press("<Left><Right><Down><Enter>").shows((100, 30), &["Right. ", "right: 0 of 1"]);
}

#[test]
fn a_goal_is_seen_and_hints_come_one_by_one() {
    let mut stage = demo();
    open(&mut stage, 2);
    stage.press("<Enter><Enter>");
    assert_eq!(stage.app.learning.study.step, 1);
    stage.press("<Enter>").shows((100, 30), &["Hint 1: Press . once for each draft", "not done yet"]);
    stage.press("<Enter>").shows((100, 30), &["Hint 2: "]);
    stage.press("..<Tab><Left><Tab>");
    assert!(stage.app.place.selected.is_some(), "a token of the first draft");
    stage.press("..<Enter>");
    let screen = stage.screen(100, 30);
    assert_eq!((stage.app.learning.study.step, stage.app.place.selected), (2, None), "{screen}");
}

#[test]
fn the_footer_says_what_enter_does() {
    let mut stage = demo();
    stage.shows((80, 24), &["Enter begin"]);
    open(&mut stage, 2);
    stage.walk(
        (80, 24),
        &[
            ("", "Enter run "),
            ("<Enter><Up>", "Enter go on"),
            ("<Enter>", "Enter check"),
            ("<Right><Right>", "Enter answer"),
        ],
    );
    stage.press("<Right><Right><Right><Right><Right><Right><Right>").shows((80, 24), &["Enter end the lesson"]);
    assert!(!stage.screen(80, 24).contains("Enter open"));
}

#[test]
fn where_the_words_do_not_fit_the_keys_that_scroll_are_named() {
    for entry in bundled().iter().enumerate().filter(|(_, entry)| entry.name != "quiz") {
        let mut stage = demo();
        open(&mut stage, entry.0);
        for number in 1..=entry.1.lesson.step.len() {
            for answer in 0..2 {
                if answer == 1 {
                    self::answer(&mut stage);
                }
                for (width, height) in SIZES {
                    let screen = stage.screen(width, height);
                    let is_cut = stage.app.place.hit_map.lesson_max > 0;
                    assert!(
                        !is_cut || screen.contains("PgUp PgDn more"),
                        "{} {number} at {width}: {screen}",
                        entry.1.name
                    );
                }
            }
            stage.press("<Right>");
        }
    }
}

/// Draws a step and looks for what its panels cut: there has to be a key that shows all of it, and then nothing is cut.
fn nothing_is_cut_unseen(stage: &mut Stage, place: &str) {
    for (width, height) in SIZES {
        drop(crate::view::cuts::taken());
        let screen = stage.screen(width, height);
        let cuts = crate::view::cuts::taken();
        assert!(cuts.is_empty() || screen.contains("z shows all"), "{place} at {width} is cut: {cuts:?}\n{screen}");
        if screen.contains("z shows all") {
            stage.press("z");
            for _ in 0..4 {
                drop(crate::view::cuts::taken());
                let screen = stage.screen(width, height);
                let cuts = crate::view::cuts::taken();
                assert!(cuts.is_empty() && screen.contains("z the words"), "{place} at {width}: {cuts:?}\n{screen}");
                stage.press("<PageDown>");
            }
            stage.press("<Esc>");
            assert_eq!((stage.app.place.is_zoomed, stage.app.place.page), (false, Page::Learn), "{place}");
        }
    }
}

#[test]
fn no_panel_is_cut_without_a_key_that_shows_all_of_it() {
    for (index, entry) in bundled().iter().enumerate().filter(|(_, entry)| entry.name != "quiz") {
        let mut stage = demo();
        open(&mut stage, index);
        for number in 1..=entry.lesson.step.len() {
            let place = format!("{} step {number}", entry.name);
            nothing_is_cut_unseen(&mut stage, &place);
            let step = step(&stage);
            if let Some(run) = &step.run {
                stage.press("<Enter>").press(if run.hold { "......" } else { "<End>" });
            }
            answer(&mut stage);
            nothing_is_cut_unseen(&mut stage, &format!("{place}, answered"));
            stage.press("<Right>");
        }
    }
}

#[test]
fn figures_of_models_are_those_of_the_lesson_s_recording_before_and_after_its_run() {
    let mut stage = demo();
    open(&mut stage, 1);
    let megabytes = |stage: &mut Stage| {
        let screen = stage.screen(140, 42);
        let line =
            screen.lines().find(|line| line.contains("4 rows") && line.contains(" MB")).unwrap_or_default().to_owned();
        line.split_whitespace().rev().nth(2).map(str::to_owned)
    };
    let before = megabytes(&mut stage);
    assert_eq!(before.as_deref(), Some("96.6"), "{}", stage.screen(140, 42));
    stage.press("<Right><Enter><End><Left>");
    assert_eq!(megabytes(&mut stage), before);
    stage.press("<Esc><Esc>");
    assert!(stage.app.learning.aside.is_none(), "the recording that was on show is back");
}

#[test]
fn a_recording_asks_for_nothing_that_only_an_engine_can_do() {
    for (index, entry) in bundled().iter().enumerate() {
        for (number, step) in entry.lesson.step.iter().enumerate().filter(|(_, step)| !step.recorded.is_empty()) {
            let keys = "<Right>".repeat(number);
            let shown = |stage: &mut Stage| {
                open(stage, index);
                stage.press(&keys).screen(90, 60).split_whitespace().collect::<Vec<_>>().join(" ")
            };
            let begin = |text: &str| text.split_whitespace().skip(20).take(4).collect::<Vec<_>>().join(" ");
            assert_ne!(begin(&step.text), begin(&step.recorded));
            assert!(shown(&mut demo()).contains("Only a running"), "{} {number}", entry.name);
            let options = TuiOptions { page: Page::Learn, ..TuiOptions::default() };
            assert!(
                !shown(&mut Stage::new(&first_turn(), options)).contains("Only a running"),
                "{} {number}",
                entry.name
            );
        }
    }
}

#[test]
fn notes_and_sources_are_for_the_presenter() {
    let mut stage = demo();
    open(&mut stage, 0);
    assert!(!stage.screen(140, 42).contains("Say: "));
    stage.shows((140, 42), &["Sources: arXiv:2211.17192"]);
    assert!(!stage.screen(100, 30).contains("Sources: "), "a small screen has no room for them");
    let notes = ["Say: point at a column", "Ask: which row", "Often: ", "Sources: arXiv:2211.17192"];
    stage.press("n").shows((140, 42), &notes);
    stage.press("n");
    assert!(!stage.screen(140, 42).contains("Say: "));
}

#[test]
fn a_draft_of_the_user_is_judged_from_the_last_token_of_the_prompt() {
    let mut stage = Stage::new(&first_turn(), TuiOptions { page: Page::Learn, ..TuiOptions::default() });
    open(&mut stage, 0);
    stage.press("<Right><Right><Enter><Enter>");
    let before = stage.sent.len();
    assert!(stage.sent.contains(&Command::SetMaxTokens { max_tokens: 1 }));
    // the first turn shows the tokens of the prompt
    let prompt: Vec<_> = ["The", " United"].map(draftscope_session::fixture::piece).to_vec();
    stage.apply(EventKind::Prompted { turn: 2, text: "The United".to_owned(), branch: None });
    let row = draftscope_protocol::Prediction::default();
    let first = draftscope_session::fixture::piece(" States");
    let kind = EventKind::Prefilled(Prefilled {
        turn: 2,
        prompt: prompt.clone(),
        first,
        row,
        took_us: 1,
        ..Prefilled::default()
    });
    stage.apply(kind);
    assert!(update::go_on_with_lesson(&mut stage.app, &mut stage.time).is_empty(), "it is still under way");
    stage.apply(EventKind::Finished { reason: StopReason::MaxTokens });
    let commands = update::go_on_with_lesson(&mut stage.app, &mut stage.time);
    let Some(Command::Generate { prompt: Prompt::Branch(from) }) = commands.last() else {
        panic!("{commands:?} after {before} commands");
    };
    assert_eq!(from.tokens, prompt.iter().map(|piece| piece.id).collect::<Vec<_>>());
    assert_eq!(from.again.as_ref().map(|again| again.text.as_str()), Some(" States of America"));
    assert!(update::go_on_with_lesson(&mut stage.app, &mut stage.time).is_empty(), "once");
}

#[test]
fn a_run_on_one_thread_follows_the_same_on_all() {
    let mut stage = Stage::new(&first_turn(), TuiOptions { page: Page::Learn, ..TuiOptions::default() });
    open(&mut stage, 1);
    let with_threads = |step: &Step| step.run.as_ref().is_some_and(|run| run.threads == 1);
    let index = bundled()[1].lesson.step.iter().position(with_threads).unwrap();
    stage.press(&"<Right>".repeat(index)).press("<Enter>");
    assert!(stage.sent.contains(&Command::SetThreads { threads: 0 }), "all threads first: {:?}", stage.sent);
    stage.apply(EventKind::Prompted { turn: 2, text: "Why is the sky blue?".to_owned(), branch: None });
    assert!(update::go_on_with_lesson(&mut stage.app, &mut stage.time).is_empty(), "it is still under way");
    stage.apply(EventKind::Finished { reason: StopReason::MaxTokens });
    let commands = update::go_on_with_lesson(&mut stage.app, &mut stage.time);
    assert!(commands.contains(&Command::SetThreads { threads: 1 }), "{commands:?}");
    assert!(matches!(commands.last(), Some(Command::Generate { prompt: Prompt::Chat(_) })), "{commands:?}");
    assert!(update::go_on_with_lesson(&mut stage.app, &mut stage.time).is_empty(), "once");
    let wanted = stage.app.requests.settings(stage.time.live());
    stage.apply(EventKind::SettingsChanged { settings: wanted });
    stage.sent.clear();
    stage.press("<Esc>");
    assert!(stage.sent.contains(&Command::SetThreads { threads: 0 }), "all of them again: {:?}", stage.sent);
}

#[test]
fn the_round_that_judged_the_user_s_draft_is_shown() {
    let mut stage = demo();
    open(&mut stage, 0);
    stage.press("<Right><Right><Enter><End><Enter>");
    stage.shows((140, 42), &["Round 1 (selected) · 1 of 3 accepted", "✓ accepted", "✗ rejected", "○ not reached"]);
}

#[test]
fn the_answer_to_a_draft_of_the_user_does_not_repeat_the_end_of_its_prompt() {
    let mut stage = demo();
    open(&mut stage, 3);
    let run = bundled()[3].lesson.step.iter().rposition(|step| step.run.is_some()).unwrap();
    stage.press(&"<Right>".repeat(run)).press("<Enter><End>1");
    let screen = stage.screen(140, 42);
    let session = stage.time.shown();
    let turn = session.turn().unwrap();
    assert!(session.begins_in_prompt(turn, Lane::Speculative), "{screen}");
    let written = turn.answer(Lane::Speculative).tokens.len() - 1;
    assert!(screen.contains(&format!("└ {written} tokens")) && !screen.contains("Barack Obama's"), "{screen}");
}

#[test]
fn the_wiring_of_a_drafter_that_shares_the_cache_is_its_own() {
    let mut stage = demo();
    open(&mut stage, 5);
    stage.shows((140, 42), &["norm                       norm", "projection: 2 d → d", "shared head"]);
    stage.press("<Right><Right><Right><Right>");
    let drawn = ["2 d → its own width", "projected to d, for the next", "its own head"];
    stage.shows((140, 42), &drawn);
    assert!(!stage.screen(140, 42).contains("queries only"), "that is asked");
    answer(&mut stage);
    stage.shows((140, 42), &["some layers with queries only"]);
    assert!(!stage.screen(140, 42).contains("norm                       norm"));
}

#[test]
fn a_question_keeps_its_keys_and_inspect_leads_back_to_the_lesson() {
    let mut stage = demo();
    open(&mut stage, 0);
    stage.press("<Right><Right><Enter><End><Right><Tab>");
    assert_ne!(stage.app.place.pane, Pane::Lesson, "the arrows go to the round");
    stage.shows((100, 30), &["Enter answers", "a token", "back to these words", "Esc the lesson"]);
    stage.press("<Right><Down>");
    assert_eq!((stage.app.learning.study.choice, stage.app.place.page), (1, Page::Learn));
    assert!(stage.app.place.cell.is_some(), "a token is selected, and the choice moved");
    stage.press("<Enter>");
    assert_eq!(stage.app.learning.study.tried, [1], "Enter answers");
    stage.press("<Up><Enter>");
    assert!(stage.app.learning.study.is_revealed);
    let seen = |stage: &Stage| (stage.app.place.selected, stage.app.place.cell, stage.time.moment());
    let before = seen(&stage);
    stage.press("<Enter>").shows((80, 24), &["Esc the lesson"]);
    assert_eq!(stage.app.place.page, Page::Inspect);
    stage.press("<<");
    assert_ne!(seen(&stage), before, "another moment is on show");
    stage.press("<Esc>");
    assert_eq!((stage.app.place.page, stage.app.place.pane), (Page::Learn, Pane::Lesson));
    assert_eq!(seen(&stage), before, "the lesson shows what it showed");
}

#[test]
fn every_page_that_a_step_opens_leads_back_to_the_place_in_the_lesson() {
    // the lines of the loop, a token of the round, each page by its key, a page from a page
    for keys in ["C<Enter>", "C", "<Tab><Enter>", "1", "2", "3", "4", "5", "2<Enter>", "5."] {
        let mut stage = demo();
        open(&mut stage, 2);
        stage.press("<Enter>......<Right>");
        let seen = |stage: &Stage| {
            (stage.time.moment(), stage.app.place.selected, stage.app.place.cell, stage.app.learning.study.step)
        };
        let before = seen(&stage);
        assert!(stage.time.is_past(), "the recording is held");
        stage.press(keys);
        assert_ne!(stage.app.place.page, Page::Learn, "{keys}");
        stage.shows((80, 24), &["Esc the lesson"]).press("<Esc>");
        assert_eq!((stage.app.place.page, stage.app.place.pane), (Page::Learn, Pane::Lesson), "{keys}");
        assert_eq!(seen(&stage), before, "{keys}");
    }
}

#[test]
fn a_lesson_is_no_part_of_the_conversation() {
    let mut stage = Stage::new(&first_turn(), TuiOptions { page: Page::Learn, ..TuiOptions::default() });
    let conversations = stage.app.talk.conversations.clone();
    open(&mut stage, 1);
    stage.press("<Right>").shows((140, 42), &["yours return"]);
    stage.press("<Enter>");
    stage.apply(EventKind::Prompted { turn: 2, text: "Why is the sky blue?".to_owned(), branch: None });
    stage.apply(EventKind::Finished { reason: StopReason::Eos });
    stage.press("<Esc>1ihello<Enter>");
    assert_eq!(stage.app.talk.conversations, conversations);
    assert_eq!(
        (stage.time.live().turns().len(), stage.app.learning.left.is_none()),
        (1, true),
        "the lesson's turn is not the user's"
    );
    let Some(Command::Generate { prompt: Prompt::Chat(messages) }) = stage.sent.last() else { panic!("a prompt") };
    let sent: Vec<&str> = messages.iter().map(|message| message.content.as_str()).collect();
    assert_eq!((sent.len(), sent[0], sent[2]), (3, "Why is the sky blue?", "hello"), "{sent:?}");
}

/// What a live engine reports of a lesson's turn, up to a committed round.
fn answered(stage: &mut Stage, turn: u32) {
    let all = first_turn().events;
    let from = all.iter().position(|event| matches!(event.kind, EventKind::Prompted { .. })).unwrap();
    for event in &all[from..] {
        let mut event = event.clone();
        match &mut event.kind {
            EventKind::Prompted { turn: number, .. } | EventKind::Prefilled(Prefilled { turn: number, .. }) => {
                *number = turn;
            }
            _ => {}
        }
        stage.app.deliver(&mut stage.time, event);
        stage.app.follow(stage.time.live());
    }
}

#[test]
fn turns_of_a_lesson_are_in_no_figure_and_no_file_of_the_user_s_run() {
    let mut stage = Stage::new(&first_turn(), TuiOptions { page: Page::Learn, ..TuiOptions::default() });
    let before = (stage.time.live().turns().len(), stage.time.live().stats(Lane::Speculative).output_tokens());
    let events = stage.time.events().count();
    open(&mut stage, 1);
    stage.press("<Right><Enter>");
    assert!(stage.app.learning.runs_lesson && stage.time.live().turns().is_empty(), "a run of its own begins");
    stage.apply(EventKind::SettingsChanged { settings: stage.app.requests.settings(stage.time.live()) });
    answered(&mut stage, 2);
    stage.shows((100, 30), &["lesson's run"]);
    assert_eq!(stage.time.live().turns().len(), 1, "the lesson's");
    stage.press("<Esc>");
    let own = stage.time.live();
    assert_eq!((own.turns().len(), own.stats(Lane::Speculative).output_tokens()), before, "as before the lesson");
    assert_eq!(stage.time.events().count(), events + 1, "what the engine reported of its settings");
    assert!(!stage.app.learning.runs_lesson && stage.app.learning.aside.is_none());
}

#[test]
fn a_lesson_that_is_left_while_it_runs_ends_unseen() {
    let mut stage = Stage::new(&first_turn(), TuiOptions { page: Page::Learn, ..TuiOptions::default() });
    open(&mut stage, 1);
    stage.press("<Right><Enter>");
    stage.apply(EventKind::Prompted { turn: 2, text: "Why is the sky blue?".to_owned(), branch: None });
    stage.press("<Esc>");
    assert!(stage.sent.contains(&Command::Stop), "its answer stops");
    stage.press("1ihello<Enter>").shows((100, 30), &["still answering"]);
    stage.apply(EventKind::Finished { reason: StopReason::Stopped });
    assert_eq!(stage.time.live().turns().len(), 1, "the rest of it is dropped");
    stage.press("<Enter>");
    assert!(matches!(stage.sent.last(), Some(Command::Generate { prompt: Prompt::Chat(_) })));
    stage.apply(EventKind::Prompted { turn: 3, text: "hello".to_owned(), branch: None });
    assert_eq!(stage.time.live().turns().last().map(|turn| turn.number), Some(3), "the user's own turn is seen");
}

#[test]
fn what_the_user_asks_meanwhile_is_no_part_of_the_lesson() {
    let mut stage = Stage::new(&first_turn(), TuiOptions { page: Page::Learn, ..TuiOptions::default() });
    open(&mut stage, 1);
    stage.press("<Right><Enter>");
    answered(&mut stage, 2);
    stage.press("<A-1>ihello<Enter>");
    assert!(!stage.app.learning.runs_lesson, "the user's own run is on show");
    let Some(Command::Generate { prompt: Prompt::Chat(messages) }) = stage.sent.last() else { panic!("a prompt") };
    assert_eq!(messages.len(), 3, "it follows the user's own turn: {messages:?}");
}

/// What the panels show beside a question, without its words and choices.
fn panels_of(stage: &mut Stage) -> String {
    let words = stage.screen(140, 42);
    words.lines().map(|line| line.chars().skip(56).collect::<String>() + "\n").collect()
}

#[test]
fn no_panel_gives_an_answer_away() {
    for (lesson, steps, texts) in [
        (1, 3, &["× T(1)", "T(4)  "][..]),
        (1, 5, &["of T(1)"]),
        (2, 9, &["after rollback", "rolled back"]),
        (4, 1, &["min(1, p/q) =", "left over: "]),
        (4, 2, &["left over: "]),
        (4, 4, &["min(1, p/q) ="]),
        (4, 9, &["Σ"]),
        (6, 4, &["speedup 0.", "0.41×"]),
        (3, 12, &["Obama 0."]),
        (3, 4, &["identical", "tok/s"]),
        (2, 7, &["not reached"]),
        (2, 8, &["not reached", "of 3 accepted"]),
        (2, 9, &["stays"]),
        (4, 7, &["u 0."]),
        (4, 8, &["u 0."]),
        (5, 1, &["hidden state"]),
        (5, 2, &["hidden state"]),
        (5, 4, &["knowing draft 1", "own KV cache"]),
        (5, 5, &["own KV cache", "queries only", "drafter KV"]),
        (5, 6, &["FP8, 1 byte", "drafter weights"]),
        (5, 8, &["loss 2"]),
        (5, 9, &["knowing draft 1"]),
        (6, 3, &["T(1)", "speedup 0."]),
        (6, 7, &["▒▒▒"]),
        (6, 11, &["sequences"]),
    ] {
        let mut stage = demo();
        open(&mut stage, lesson);
        for step in bundled()[lesson].lesson.step.iter().take(steps - 1) {
            match &step.run {
                Some(run) if !run.hold => stage.press("<Enter><End>"),
                Some(_) => stage.press("<Enter>>>"),
                None => &mut stage,
            };
            stage.press("<Right>");
        }
        let shown = panels_of(&mut stage);
        for text in texts {
            assert!(!shown.contains(text), "{lesson} step {steps} shows '{text}' before the answer:\n{shown}");
        }
        for _ in 0..4 {
            stage.press("<Enter><Down>");
        }
        stage.press(&"<Up>".repeat(9));
    }
}

#[test]
fn a_number_that_a_busy_machine_hid_is_reported_and_the_lesson_goes_on() {
    let mut stage = Stage::new(&first_turn(), TuiOptions { page: Page::Learn, ..TuiOptions::default() });
    open(&mut stage, 1);
    stage.press("<Right><Enter>");
    let wanted = stage.app.requests.settings(stage.time.live());
    stage.apply(EventKind::SettingsChanged { settings: wanted });
    // an answer that ended before anything was measured
    stage.apply(EventKind::Prompted { turn: 2, text: "Why is the sky blue?".to_owned(), branch: None });
    stage.apply(EventKind::Finished { reason: StopReason::Eos });
    stage.press("<Enter>");
    assert_eq!(stage.app.learning.study.step, 2);
    stage.press("<Enter>").shows((100, 30), &["The number is not known on this busy", "Nothing is scored"]);
    assert!(!stage.screen(140, 42).contains("right: "), "no answer counted");
    stage.press("<Enter>");
    assert_eq!(stage.app.learning.study.step, 3, "the lesson goes on");
}

#[test]
fn a_step_shows_rounds_of_its_own_run_only() {
    let mut stage = Stage::new(&first_turn(), TuiOptions { page: Page::Learn, ..TuiOptions::default() });
    open(&mut stage, 1);
    // the user's own turn is no run of the lesson
    stage.press("<Right><Right>").shows((140, 42), &["What a pass costs"]);
    assert!(!panels_of(&mut stage).contains("Round "), "{}", stage.screen(140, 42));
}

#[test]
fn the_draft_line_is_cleared_as_in_a_shell() {
    let mut stage = Stage::new(&first_turn(), TuiOptions { page: Page::Learn, ..TuiOptions::default() });
    open(&mut stage, 0);
    stage.press("<Right><Right><Enter>").shows((80, 24), &[" States of America"]);
    stage.press("<C-u> Kingdom");
    let Some(Overlay::Draft(line)) = &stage.app.place.overlay else { panic!("a draft is asked for") };
    assert_eq!(line.text(), " Kingdom");
}

#[test]
fn lessons_are_drawn_at_every_size() {
    for (lesson, keys, name) in [
        (0, "", "pass"),
        (1, "<Right><Enter><End>", "bytes"),
        (1, "<Right><Right><Right><Right><Right><Right><Right><Right><Enter><End><Right><Right>", "threads"),
        (2, "<Enter><Right>......", "slots"),
        (4, "", "residual"),
        (4, "<Right><Right><Right><Right><Right><Right><Right><Right><Right><Down><Enter>", "histogram"),
        (5, "", "wiring"),
        (6, "<Right><Right><Enter><End><Right><Right><Right><Right><Right>", "sliders"),
    ] {
        let mut stage = demo();
        open(&mut stage, lesson);
        stage.press(keys);
        for (width, height) in SIZES {
            insta::assert_snapshot!(format!("{name}_{width}"), stage.screen(width, height));
        }
    }
}
