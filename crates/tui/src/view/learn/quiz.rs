//! The quiz: what it offers, the statements, the certificate. An item is `quiz_item.rs`.
//!
//! Invariant: a right answer is shown only after one was given; before the lessons none is.

use std::time::Duration;

use crate::app::learning::quiz::{OFFERS, Offer, Stage};
use crate::view::learn::quiz_item;
use crate::view::prelude::*;
use draftscope_learn::lesson::{Lesson, Step, find};
use draftscope_learn::quiz::{Sitting, Statement, Truth, changes, minutes, statements};

pub(in crate::view) fn render(screen: Screen, on_show: (&Lesson, &Step), area: Rect, frame: &mut Frame) {
    let quiz = &screen.app.learning.quiz;
    match quiz.stage {
        Stage::Item if quiz.run.is_some() => quiz_item::render(screen, area, frame),
        Stage::Statement if quiz.sitting.is_some() => statement(screen, area, frame),
        Stage::Certificate => certificate(screen, area, frame),
        _ => home(screen, on_show, area, frame),
    }
}

fn home(screen: Screen, (lesson, step): (&Lesson, &Step), area: Rect, frame: &mut Frame) {
    let block = screen.panel(format!(" {} ", lesson.title));
    let inner = framed(block, area, frame);
    let mut lines = wrapped(step.text.trim(), inner.width, screen.theme[Role::Text]);
    lines.push(Line::default());
    for (index, offer) in OFFERS.iter().enumerate() {
        let (name, state) = offered(screen, *offer);
        let chosen = index == screen.app.learning.quiz.choice;
        let line = Line::from(vec![
            Span::styled(if chosen { " ▸ " } else { "   " }, screen.theme[Role::Key]),
            Span::styled(fit(name, 40), screen.theme[Role::TextStrong]),
            Span::styled(state, screen.theme[Role::TextDim]),
        ]);
        lines.push(if chosen { line.patch_style(screen.theme[Role::Selected]) } else { line });
    }
    lines.push(Line::default());
    let keys = [(CHOOSE, "choose"), (&[Action::Confirm][..], "begins"), (LEAVE, "to the lessons")];
    lines.push(Line::styled(screen.keys(Context::Quiz, &keys), screen.theme[Role::TextDim]));
    put(lines, inner, frame);
}

/// An offer and what came of it so far.
fn offered(screen: Screen, offer: Offer) -> (&'static str, String) {
    let quiz = &screen.app.learning.quiz;
    let [before, after] = quiz.results.compared();
    let count = statements().len();
    let score = |right: Option<usize>| right.map_or("–".to_owned(), |right| format!("{right} of {count} right"));
    match offer {
        Offer::Before => ("Ten statements, before the lessons", score(before)),
        Offer::After => ("Ten statements, after the lessons", score(after)),
        Offer::Certificate => ("Certificate", String::new()),
        Offer::Quiz => {
            let newest = quiz.results.quiz.last().map(|last| format!("{} of {} right", last.score, last.of));
            let running = quiz.run.as_ref().map(|run| format!("item {} of {}", run.at + 1, run.items.len()));
            ("Quiz: ten rounds to judge", running.or(newest).unwrap_or("–".to_owned()))
        }
    }
}

fn statement(screen: Screen, area: Rect, frame: &mut Frame) {
    let all = statements();
    let Some((sitting, statement)) =
        screen.app.learning.quiz.sitting.as_ref().and_then(|sitting| Some((sitting, all.get(sitting.at)?)))
    else {
        return;
    };
    let when = if sitting.is_after { "after" } else { "before" };
    let title = format!(" Statement {} of {} · {when} the lessons ", sitting.at + 1, all.len());
    let inner = framed(screen.panel(title), area, frame);
    let text = format!("\"{}\"", statement.text);
    let mut lines = wrapped(&text, inner.width, screen.theme[Role::TextStrong]);
    if !statement.judge.is_empty() {
        lines.extend(wrapped(&format!("Judge: {}", statement.judge), inner.width, screen.theme[Role::Text]));
    }
    lines.push(Line::default());
    for (index, truth) in Truth::ALL.iter().enumerate() {
        lines.push(truth_line(screen, sitting, (index, *truth), statement.answer));
    }
    lines.push(Line::default());
    if sitting.is_revealed() {
        lines.extend(revealed(screen, sitting, statement, inner.width));
    }
    let opens = if sitting.is_revealed() { "goes on" } else { "answers" };
    let mut keys = vec![(CHOOSE, "choose"), (&[Action::Confirm][..], opens), (LEAVE, "leaves")];
    if sitting.is_revealed() {
        keys[0] = (&[Action::OpenLesson][..], "opens its lesson");
    }
    lines.push(Line::styled(screen.keys(Context::Quiz, &keys), screen.theme[Role::TextDim]));
    put(lines, inner, frame);
}

fn truth_line(screen: Screen, sitting: &Sitting, (index, truth): (usize, Truth), right: Truth) -> Line<'static> {
    let chosen = index == sitting.choice;
    let mark = match sitting.is_revealed() {
        true if truth == right => "✓",
        true if chosen => "✗",
        _ => " ",
    };
    let line = Line::from(vec![
        Span::styled(format!(" {} {mark} ", if chosen { "▸" } else { " " }), screen.theme[Role::Key]),
        Span::styled(truth.name(), screen.theme[Role::TextStrong]),
    ]);
    if chosen { line.patch_style(screen.theme[Role::Selected]) } else { line }
}

fn revealed(screen: Screen, sitting: &Sitting, statement: &Statement, width: u16) -> Vec<Line<'static>> {
    let is_right = sitting.answers.get(sitting.at) == Some(&statement.answer);
    let (word, role) = if is_right { ("Right", Role::Good) } else { ("No", Role::Warning) };
    let mut lines = wrapped(&format!("{word}: {}.", statement.answer.name()), width, screen.theme[role]);
    lines.extend(wrapped(&statement.why, width, screen.theme[Role::Text]));
    lines.extend(wrapped(&format!("Source: {}", statement.source), width, screen.theme[Role::TextDim]));
    lines.push(Line::default());
    lines
}

fn certificate(screen: Screen, area: Rect, frame: &mut Frame) {
    let results = &screen.app.learning.quiz.results;
    let inner = framed(screen.panel(" Certificate "), area, frame);
    let Some(quiz) = results.quiz.last() else {
        return;
    };
    let strong = screen.theme[Role::TextStrong];
    let time = minutes(Duration::from_secs(quiz.seconds));
    let score = format!("{} of {} rounds judged rightly in {time}", quiz.score, quiz.of);
    let mut lines = vec![Line::styled(score, strong)];
    let count = statements().len();
    for (when, right) in ["before", "after"].iter().zip(results.compared()) {
        let score = right.map_or("not answered".to_owned(), |right| format!("{right} of {count} right"));
        lines.push(Line::styled(format!("statements {when} the lessons: {score}"), screen.theme[Role::Text]));
    }
    for line in changes(results) {
        lines.extend(wrapped(&line, inner.width, screen.theme[Role::Text]));
    }
    lines.push(Line::default());
    let beliefs = quiz.beliefs();
    let is_perfect = quiz.score == quiz.of;
    lines.push(Line::styled(
        match () {
            () if is_perfect => "No wrong answer.",
            () if beliefs.is_empty() => "The wrong answers fit no known belief.",
            () => "What the wrong answers fit:",
        },
        screen.theme[Role::Text],
    ));
    for (index, (belief, times)) in beliefs.iter().enumerate() {
        let chosen = index == screen.app.learning.quiz.line;
        let marker = if chosen { "▸" } else { " " };
        let number = find(&screen.app.learning.lessons, belief.lesson().0).map_or(0, |index| index + 1);
        let text = format!("{marker} {times} × {} (lesson {number})", belief.sentence());
        let style = if chosen { strong.patch(screen.theme[Role::Selected]) } else { screen.theme[Role::Text] };
        lines.extend(wrapped(&text, inner.width, style));
    }
    lines.push(Line::default());
    let keys: [(&[Action], &str); 4] = [
        (&[Action::Save], "writes it to a file"),
        (CHOOSE, "choose"),
        (&[Action::OpenLesson], "opens the lesson"),
        (LEAVE, "leaves"),
    ];
    lines.push(Line::styled(screen.keys(Context::Quiz, &keys), screen.theme[Role::TextDim]));
    put(lines, inner, frame);
}
