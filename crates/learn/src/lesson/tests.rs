//! Every bundled lesson is valid, and each mistake is named with its line and field.

use std::path::Path;

use super::texts::BUNDLED;
use super::*;
use draftscope_session::Session;
use draftscope_session::fixture::first_turn;

const GOOD: &str = r#"title = "A lesson"
summary = "About something."

[[step]]
text = "Enter runs it."
run = { prompt = "Why is the sky blue?", k = 3 }

[[step]]
text = "How much?"
answer = 2
reveal = "Two: {k}."

[[step.choices]]
text = "one"
why = "Not one."

[[step.choices]]
text = "two"
"#;

fn fault(from: &str, to: &str) -> String {
    assert!(GOOD.contains(from), "{from}");
    check(&GOOD.replace(from, to)).unwrap_err().to_string()
}

#[test]
fn a_mistake_is_named_with_line_and_field() {
    assert!(check(GOOD).is_ok());
    for (from, to, why) in [
        ("A lesson", "", "line 1, title: must be one line of text"),
        ("answer = 2", "answer = 3", "line 10, answer: must be 1 to 2"),
        ("answer = 2\n", "", "line 12, choices: a question has either"),
        ("reveal = \"Two: {k}.\"", "", "line 8, reveal: must say why"),
        ("{k}", "{speed}", "line 11, reveal: there is no number '{speed}'; there are: verify_ratio"),
        ("k = 3", "k = 16", "line 6, run: k is 16; it must lie between 1 and 15"),
        ("k = 3", "k = 3, temprature = 1", "line 6, run: unknown field `temprature`"),
        ("why = \"Not one.\"", "", "line 13, choices: choice 1 needs a why"),
        ("text = \"How much?\"", "text = \"How much?\"\ngoal = \"verdict\"", "line 9, text: a step has only one of"),
        ("answer = 2", "answer = ", "line 10"),
        ("k = 3", "k = 3, draft = \" a\"", "line 6, run: a draft of the user needs raw"),
        ("k = 3", "k = 3, against_k = 16", "line 6, run: against_k is 16; it must lie between 0 and 15"),
        ("answer = 2", "answer = 2\nhardware = \"x\"", "line 11, hardware: must be one of: H100 SXM, "),
        ("k = 3", "k = 3, recording = \"x\"", "line 6, run: there is no recording 'x'"),
    ] {
        let found = fault(from, to);
        assert!(found.starts_with(why), "{to}: {found}, not {why}");
    }
    let long = format!("text = \"{}\"", "word ".repeat(91));
    assert_eq!(fault("text = \"How much?\"", &long), "line 9, text: has 91 words, at most 90 fit");
}

/// A run, then a question about a measured number.
fn measured(shown: &str, asked: &str) -> Result<Lesson, LessonError> {
    let text = GOOD.replace("k = 3 }\n", &format!("k = 3 }}\nshow = [{shown}]\n"));
    let text =
        text.replace("answer = 2\n", &format!("measured = {{ fact = \"verify_ratio\", bounds = [2] }}\n{asked}\n"));
    check(&text.replace("text = \"two\"", "text = \"two\"\nwhy = \"Not two.\""))
}

#[test]
fn a_panel_that_shows_what_a_question_asks_is_found_in_its_step_and_in_those_before() {
    let early = |shown, asked| measured(shown, asked).unwrap_err().to_string();
    let bytes = "show = [\"bytes\"]";
    let hidden = "show = [\"bytes\"]\nhides = [\"measured\"]";
    assert_eq!(
        early("", bytes),
        "line 12, show: step 2 shows the measured number in the panel bytes: hides needs 'measured'"
    );
    assert!(
        early("\"costs\"", hidden).ends_with(
            "step 1 shows the measured number in the panel costs: leave that panel out, or move it to after"
        )
    );
    assert!(
        early("\"costs\"", "after = [\"costs\"]")
            .ends_with("after: step 1 shows the panel costs before this question is answered")
    );
    assert!(measured("\"bytes\", \"round\"", hidden).is_ok());
    assert!(measured("\"round\"", "after = [\"costs\", \"bytes\"]").is_ok());
    let explains = fault("answer = 2", "answer = 2\nshow = [\"memory\"]");
    assert_eq!(explains, "line 11, show: the panel memory answers questions: move it to after");
}

#[test]
fn what_a_question_hides_is_hidden_from_the_question_before_on() {
    let hidden = "show = [\"bytes\"]\nhides = [\"measured\"]";
    let lesson = measured("\"bytes\"", hidden).unwrap();
    let hides = |step, is_answered| lesson.hides(step, is_answered, Hidden::Measured);
    assert!(hides(0, true) && hides(1, false), "the run, and the question");
    assert!(!hides(1, true) && !hides(2, false) && !lesson.hides(0, true, Hidden::Chance));
    // of an example, only where both steps show the same one
    let sampling = &bundled()[4].lesson;
    assert!(sampling.hides(0, true, Hidden::LeftOver) && !sampling.hides(8, true, Hidden::Chance));
}

#[test]
fn a_recording_needs_words_of_its_own_where_only_an_engine_can_do_it() {
    let own = "raw = true, draft = \" a\", recording = \"positions\" }";
    let with = |words: &str| GOOD.replace("k = 3 }", &format!("k = 3, {own}{words}"));
    assert!(check(&with("")).unwrap_err().to_string().starts_with("line 6, run: only an engine takes a draft"));
    let lesson = check(&with("\nrecorded = \"It plays.\"")).unwrap();
    assert_eq!([false, true].map(|is_recorded| lesson.step[0].words(is_recorded)), ["Enter runs it.", "It plays."]);
    assert_eq!(lesson.step[1].words(true), "How much?");
    let idle = GOOD.replace("k = 3 }", "k = 3 }\nrecorded = \"It plays.\"");
    assert_eq!(check(&idle).unwrap_err().to_string(), "line 7, recorded: is for a step whose run has a recording");
}

#[test]
fn control_characters_do_not_reach_the_screen() {
    let lesson = check(&GOOD.replace("How much?", "How \\u001b[2Jmuch?")).unwrap();
    assert!(!lesson.step[1].text.contains('\u{1b}'), "{:?}", lesson.step[1].text);
}

#[test]
fn every_bundled_lesson_is_valid_and_asks_before_it_explains() {
    assert_eq!(bundled().len(), BUNDLED.len());
    for (name, text) in BUNDLED {
        let lesson = check(text).unwrap_or_else(|error| panic!("{name}: {error}"));
        let asks = |step: &Step| !step.choices.is_empty() || step.quiz || step.goal.is_some() || step.task.is_some();
        assert!(lesson.step.iter().any(asks), "{name} asks nothing");
    }
}

#[test]
fn every_step_has_notes_for_the_presenter_and_every_question_and_task_a_hint() {
    for entry in bundled() {
        for (index, step) in entry.lesson.step.iter().enumerate() {
            let place = format!("{} step {}", entry.name, index + 1);
            let lines: Vec<&str> = step.notes.trim().lines().collect();
            let begins = ["Say: ", "Ask: ", "Often: "];
            assert_eq!(lines.len(), begins.len(), "{place}: what to say, what to ask, what is often wrong");
            for (line, begin) in lines.iter().zip(begins) {
                let words = line.strip_prefix(begin).map_or(0, |rest| rest.split_whitespace().count());
                assert!((3..=45).contains(&words), "{place}: {words} words after '{begin}'");
            }
            let asks = !step.choices.is_empty() || step.goal.is_some() || step.task.is_some();
            assert!(!asks || !step.hints.is_empty(), "{place} has no hint");
            assert!(step.task.as_ref().is_none_or(|task| task.solution.is_some()), "{place} has no solution");
        }
    }
}

#[test]
fn a_solution_solves_its_task_and_is_the_last_hint() {
    let task = |solution: &str| {
        let task = format!(
            "task = {{ start = {{ acceptance = 0.5, k = 2, row = 0.2, draft = 0.1 }}, free = [\"acceptance\"], \
            speedup = [1.28, 1.32], solution = {{ acceptance = {solution}, k = 2, row = 0.2, draft = 0.1 }} }}"
        );
        GOOD.replace("answer = 2\nreveal = \"Two: {k}.\"", &format!("{task}\nhints = [\"Try.\"]\nshow = [\"sliders\"]"))
    };
    let only_task = |text: String| text.split("[[step.choices]]").next().unwrap().to_owned();
    let lesson = check(&only_task(task("0.65"))).unwrap();
    assert_eq!(lesson.step[1].all_hints(), ["Try.", "For example: acceptance a 0.65."]);
    let wrong = check(&only_task(task("0.75"))).unwrap_err().to_string();
    assert!(wrong.ends_with("task: the solution gives 1.45, or moves a slider that is not free"), "{wrong}");
}

#[test]
fn every_statement_has_a_source_that_exists() {
    for entry in bundled().iter().filter(|entry| entry.name != "quiz") {
        for (index, step) in entry.lesson.step.iter().enumerate() {
            assert!(!step.source.is_empty(), "{} step {} has no source", entry.name, index + 1);
            for source in &step.source {
                let path = source.split([' ', ',', ':']).next().unwrap();
                let is_file = ["src/", "docs/", "assets/", "crates/", "training/"].iter().any(|f| path.starts_with(f));
                let is_there = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).join(path).exists();
                assert!(!is_file || is_there, "{}: {path}", entry.name);
                let is_public = ["arXiv:", "https://", "arithmetic"].iter().any(|f| source.starts_with(f));
                assert!(is_file || is_public, "{} step {}: {source}", entry.name, index + 1);
            }
        }
    }
}

#[test]
fn lessons_of_the_user_follow_the_bundled_ones() {
    let own = [("mine".to_owned(), GOOD.to_owned()), ("broken".to_owned(), GOOD.replace("k = 3", "k = 0"))];
    let (entries, warnings) = all(&own);
    assert_eq!(entries.len(), BUNDLED.len() + 1);
    assert!(entries.last().unwrap().is_own && warnings[0].starts_with("lesson broken: line 6, run: k is 0"));
    assert_eq!((find(&entries, "3"), find(&entries, "mine"), find(&entries, "99")), (Some(2), Some(8), None));
}

#[test]
fn numbers_are_those_of_the_lesson_s_own_run() {
    let run: Run = toml::from_str("prompt = \"Why is the sky blue?\"\nk = 3").unwrap();
    let mut session = Session::new();
    assert_eq!(filled(" {speedup} ", &session, Some(&run)), "(not measured yet)");
    first_turn().events.iter().for_each(|event| session.apply(event));
    assert_eq!(filled("{k} {verify_ratio} {first_accepted}", &session, Some(&run)), "3 1.25 57 %");
    let other = Run { k: 2, ..run.clone() };
    assert_eq!(filled("{verify_ratio}", &session, Some(&other)), "(not measured yet)", "another k was run");
    for (name, fact) in Fact::ALL {
        // the plain lane was stopped
        let is_unknown = matches!(fact, Fact::IdenticalToRival | Fact::IdenticalShare);
        assert_eq!(fact.value(&session, Some(&run)).is_some(), !is_unknown, "{name}");
    }
}
