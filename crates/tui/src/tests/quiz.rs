//! The quiz by keys and on screen, at every size and in every kind of colour, and what it keeps.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use ratatui::style::Color;

use super::views::styled;
use super::*;
use crate::app::learning::quiz::Stage as Place;
use crate::app::options::QuizFiles;
use draftscope_learn::lesson::bundled;
use draftscope_learn::quiz::{Answer, Finished, Item, Run, Shown, Truth, bank, row_text, statements};
use draftscope_protocol::Outcome;

const SIZES: [(u16, u16); 3] = [(80, 24), (100, 30), (140, 42)];

/// What the quiz has kept and written.
#[derive(Clone, Default)]
struct Files(Rc<RefCell<(Option<String>, Vec<String>)>>);

impl Files {
    fn hooks(&self) -> QuizFiles {
        let [read, keep, write] = [self, self, self].map(|files| Rc::clone(&files.0));
        QuizFiles {
            read: Rc::new(move || read.borrow().0.clone()),
            keep: Rc::new(move |text| {
                keep.borrow_mut().0 = Some(text.to_owned());
                Ok(())
            }),
            write_certificate: Rc::new(move |text| {
                write.borrow_mut().1.push(text.to_owned());
                Ok("certificate written: here".to_owned())
            }),
        }
    }
}

/// The first screen of the quiz.
fn opened(options: TuiOptions) -> Stage {
    let mut stage = Stage::new(&conversation(), TuiOptions { page: Page::Learn, ..options });
    let index = bundled().iter().position(|entry| entry.name == "quiz").unwrap();
    stage.app.learning.study.lesson = Some(index);
    stage.app.learning.study.step = 0;
    assert!(stage.app.is_quiz());
    stage
}

/// An item of a category, on screen.
fn asked(name: &str, options: TuiOptions) -> Stage {
    let mut stage = opened(options);
    let items: Vec<Item> = bank()
        .into_iter()
        .filter(|item| item.category.is_some_and(|category| category.name() == name))
        .take(2)
        .collect();
    stage.app.learning.quiz.run = Some(Run::of(items));
    stage.app.learning.quiz.stage = Place::Item;
    stage
}

/// Keys that answer the item on show.
fn keys_for(stage: &Stage, answer: &Answer) -> String {
    let run = stage.app.learning.quiz.run.as_ref().unwrap();
    let mark = |index: &usize| match answer.verdicts[*index] {
        Outcome::Accepted => "a",
        Outcome::Rejected => "r",
        Outcome::NotReached => "n",
    };
    let mut keys: String = run.order.iter().map(mark).collect();
    keys.push_str(&"<Down>".repeat(answer.committed + 1));
    keys
}

fn right(stage: &Stage) -> Answer {
    Shown::of(stage.app.learning.quiz.run.as_ref().unwrap().item().unwrap()).right
}

#[test]
fn items_are_drawn_at_every_size_and_in_every_kind_of_colour() {
    for name in ["high-p", "below-ratio", "tree"] {
        for (width, height) in SIZES {
            let mut plain = asked(name, TuiOptions::default());
            insta::assert_snapshot!(format!("{name}_{width}"), plain.press("a<Space>").screen(width, height));
            let mut mono = asked(name, TuiOptions { no_color: true, ..TuiOptions::default() });
            let buffer = mono.press("ar<Down>").draw(width, height).backend().buffer().clone();
            let coloured = buffer.content().iter().filter(|cell| (cell.fg, cell.bg) != (Color::Reset, Color::Reset));
            assert_eq!(coloured.count(), 0, "{name}");
            insta::assert_snapshot!(format!("{name}_mono_{width}"), styled(&buffer));
            let mut ascii = asked(name, TuiOptions { ascii: true, no_color: true, ..TuiOptions::default() });
            let shown = ascii.press("ar").screen(width, height);
            assert!(shown.is_ascii(), "{name} at {width}\n{shown}");
            insta::assert_snapshot!(format!("{name}_ascii_{width}"), shown);
        }
    }
}

#[test]
fn nothing_of_an_item_is_cut_on_the_smallest_screen() {
    let squeezed = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    for item in bank() {
        let mut stage = opened(TuiOptions::default());
        let shown = Shown::of(&item);
        stage.app.learning.quiz.run = Some(Run::of(vec![item.clone()]));
        stage.app.learning.quiz.stage = Place::Item;
        stage.app.clock.is_recording = true; // one line less
        let screen = squeezed(&stage.screen(80, 24).replace('│', " "));
        for row in 0..shown.rows.len() {
            let text = squeezed(&row_text(&shown, row, "  "));
            assert!(screen.contains(&text), "{}: '{text}' is not on\n{}", item.id, stage.screen(80, 24));
        }
        for choice in &shown.choices {
            assert!(screen.contains(&squeezed(&choice.to_string())), "{}\n{}", item.id, stage.screen(80, 24));
        }
        for draft in &shown.drafts {
            assert!(screen.contains(&draft.token), "{}\n{}", item.id, stage.screen(80, 24));
        }
    }
}

#[test]
fn answers_are_judged_explained_and_linked_to_a_lesson() {
    let mut stage = asked("high-p", TuiOptions::default());
    stage.walk((80, 24), &[("<Enter>", "mark every draft first"), ("aaa<Enter>", "choose what the target adds")]);
    let believed = Answer { verdicts: vec![Outcome::Accepted; 3], committed: right(&stage).committed };
    let keys = keys_for(&stage, &believed);
    stage.press("<Up><Up><Up><Up>").press(&keys).press("<Enter>");
    for (width, height) in SIZES {
        insta::assert_snapshot!(format!("answered_{width}"), stage.screen(width, height));
    }
    stage.shows((80, 24), &["No.", "right: 0 of 1", "g opens the lesson on it", "Enter goes on"]);
    let marks = stage.app.learning.quiz.run.as_ref().unwrap().given.clone();
    stage.press("rrr<Enter>");
    assert_eq!(stage.app.learning.quiz.run.as_ref().unwrap().given, marks, "an answer stays");
    let keys = keys_for(&stage, &right(&stage));
    stage.press(&keys).press("<Enter>").shows((80, 24), &["Right.", "right: 1 of 2"]);
    let lesson = stage.app.learning.study.lesson;
    stage.press("g");
    assert_eq!(stage.app.learning.study.lesson, lesson, "a right answer has no lesson");
}

#[test]
fn a_wrong_answer_leads_to_its_lesson_and_the_quiz_waits() {
    let mut stage = asked("first", TuiOptions::default());
    let mut wrong = right(&stage);
    *wrong.verdicts.last_mut().unwrap() = Outcome::Rejected;
    let keys = keys_for(&stage, &wrong);
    stage.press(&keys).press("<Enter>").shows((80, 24), &["You judged drafts after a rejection"]);
    stage.press("g");
    assert!(!stage.app.is_quiz());
    assert_eq!(bundled()[stage.app.learning.study.lesson.unwrap()].name, "round");
    let mut back = opened(TuiOptions::default());
    back.app.learning.quiz = std::mem::take(&mut stage.app.learning.quiz);
    back.shows((80, 24), &["No."]);
    back.press("<Esc>").shows((80, 24), &["item 1 of 2"]);
}

/// Plays a whole quiz by keys.
fn played(stage: &mut Stage, mut answer: impl FnMut(&Shown) -> Answer) {
    stage.press("<Down><Enter>");
    while stage.app.learning.quiz.stage == Place::Item {
        let shown = Shown::of(stage.app.learning.quiz.run.as_ref().unwrap().item().unwrap());
        let keys = keys_for(stage, &answer(&shown));
        stage.press(&keys).press("<Enter>");
        if let Some(run) = &mut stage.app.learning.quiz.run {
            run.took = Duration::from_secs(61);
        }
        stage.press("<Enter>");
    }
}

#[test]
fn a_quiz_is_played_to_its_certificate_and_kept() {
    let files = Files::default();
    let mut stage = opened(TuiOptions { quiz: Some(files.hooks()), ..TuiOptions::default() });
    let mut count = 0;
    played(&mut stage, |shown| {
        count += 1;
        let all = Answer { verdicts: vec![Outcome::NotReached; shown.drafts.len()], committed: shown.right.committed };
        if count > 7 { all } else { shown.right.clone() }
    });
    assert_eq!(count, 10);
    stage.shows((80, 24), &["7 of 10 rounds judged rightly", "statements before the lessons: not answered"]);
    stage.press("s").shows((80, 24), &["certificate written: here"]);
    assert!(files.0.borrow().1[0].contains("7 of 10"));
    let again = opened(TuiOptions { quiz: Some(files.hooks()), ..TuiOptions::default() });
    let mut again = again.pressed("<Up>");
    again.shows((80, 24), &["7 of 10 right"]);
    assert_eq!(again.app.learning.quiz.results.quiz.len(), 1);
}

#[test]
fn the_certificate_names_beliefs() {
    let mut stage = opened(TuiOptions::default());
    stage.press("<Down><Down><Down><Enter>").shows((80, 24), &["finish a quiz first"]);
    let beliefs = ["rank", "after-rejection", "rank"].map(str::to_owned).to_vec();
    stage.app.learning.quiz.results.add(Finished { score: 7, of: 10, seconds: 431, beliefs });
    stage.app.learning.quiz.results.before = vec![Truth::True; 10];
    stage.press("<Enter>");
    for (width, height) in SIZES {
        insta::assert_snapshot!(format!("certificate_{width}"), stage.screen(width, height));
    }
    stage.press("s").shows((80, 24), &["files cannot be written from here"]);
    stage.press("<Down>g");
    assert_eq!(bundled()[stage.app.learning.study.lesson.unwrap()].name, "round");
}

#[test]
fn statements_are_revealed_only_after_the_lessons() {
    let files = Files::default();
    let mut stage = opened(TuiOptions { quiz: Some(files.hooks()), ..TuiOptions::default() });
    stage.press("<Enter>").shows((80, 24), &["Statement 1 of 10 · before the lessons"]);
    insta::assert_snapshot!("statement_before", stage.screen(80, 24));
    let reveals = |stage: &mut Stage| stage.screen(140, 42).contains("Source:");
    for _ in 0..10 {
        assert!(!reveals(&mut stage));
        stage.press("<Enter>");
    }
    assert_eq!((stage.app.learning.quiz.stage, stage.app.learning.quiz.results.before.len()), (Place::Home, 10));
    let known = statements();
    stage.press("<Down><Down><Enter>");
    for (at, statement) in known.iter().enumerate() {
        let place = Truth::ALL.iter().position(|truth| *truth == statement.answer).unwrap();
        stage.press(&"<Down>".repeat(place)).press("<Enter>");
        assert!(reveals(&mut stage), "{at}");
        stage.shows((140, 42), &["Right: "]);
        if at == 0 {
            for (width, height) in SIZES {
                insta::assert_snapshot!(format!("statement_after_{width}"), stage.screen(width, height));
            }
        }
        let whole = stage.screen(80, 24);
        assert!(whole.contains("Enter goes on"), "{}: cut\n{whole}", statement.id);
        stage.press("<Enter>");
    }
    assert_eq!(stage.app.learning.quiz.results.compared()[1], Some(10));
    stage.shows((80, 24), &["10 of 10 right"]);
    insta::assert_snapshot!("home", stage.screen(80, 24));
    let kept = files.0.borrow().0.clone();
    stage.press("<Enter>");
    for _ in 0..10 {
        stage.press("<Enter><Enter>");
    }
    assert_eq!(files.0.borrow().0, kept, "answers given with the right ones known are not kept");
}

#[test]
fn the_list_of_lessons_leads_to_the_statements_and_shows_what_was_learned() {
    let files = Files::default();
    let options = TuiOptions { page: Page::Learn, quiz: Some(files.hooks()), ..TuiOptions::default() };
    let mut stage = Stage::new(&conversation(), options);
    let before = "Before the lessons: judge ten statements";
    let after = "After the lessons: the ten statements again";
    stage.shows((80, 24), &[&format!("{before} · not judged yet"), &format!("{after} · not judged yet")]);
    stage.press("<Up><Enter>").shows((80, 24), &["Statement 1 of 10 · before the lessons"]);
    stage.press(&"<Enter>".repeat(10)).press("<Esc>");
    let known = statements();
    let right = known.iter().filter(|statement| statement.answer == Truth::True).count();
    stage.shows((80, 24), &[&format!("✓ {before} · {right} of 10 right")]);
    stage.press("<Down><Enter>").shows((80, 24), &["Statement 1 of 10 · after the lessons"]);
    for statement in &known {
        let place = Truth::ALL.iter().position(|truth| *truth == statement.answer).unwrap();
        stage.press(&"<Down>".repeat(place)).press("<Enter><Enter>");
    }
    stage.press("<Esc>").shows((80, 24), &[&format!("✓ {after} · 10 of 10 right, {right} before")]);
    stage.press("<Down><Down><Enter>").shows((80, 24), &["finish a quiz first", "Certificate · after a quiz"]);
    stage.app.learning.quiz.results.add(Finished { score: 9, of: 10, seconds: 300, beliefs: Vec::new() });
    stage.shows((80, 24), &["✓ Certificate · 9 of 10"]);
    let learned = format!("Learned ({}): ", 10 - right);
    stage.press("<Enter>").shows((80, 24), &["9 of 10 rounds judged rightly", &learned]);
}

#[test]
fn views_and_help_stay_in_reach() {
    let mut stage = asked("tree", TuiOptions::default());
    stage.press("2");
    assert_eq!(stage.app.place.page, Page::Rounds);
    stage.press("6?").shows((100, 30), &["Help"]);
    stage.press("<Esc>");
    stage.press("<F5>a").shows((100, 30), &["Quiz · item 1 of 2", "✓ accepted"]);
    stage.press("<F5><Esc>");
    assert_eq!(stage.app.learning.quiz.stage, Place::Home);
    stage.press("<Esc>");
    assert!(!stage.app.is_quiz(), "the list of lessons");
}
