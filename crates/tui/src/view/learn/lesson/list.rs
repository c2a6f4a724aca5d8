//! The list of lessons, with ticks, and the statements before and after them with what the user scored.

use crate::app::learning::lesson_row::{ListRow, list_rows};
use crate::view::prelude::*;
use draftscope_learn::quiz::statements;

pub(super) fn render(screen: Screen, area: Rect, frame: &mut Frame) {
    let block = screen.panel(" Lessons ");
    let keys = screen.keys(Context::Browse, &[(CHOOSE, "choose"), (&[Action::Open], "begins")]);
    let block = block.bottom(Line::styled(format!(" {keys} "), screen.theme[Role::TextDim]));
    let inner = framed(block, area, frame);
    let rows = list_rows(screen.app.learning.lessons.len());
    let with_summaries = usize::from(inner.height) >= rows.len() + screen.app.learning.lessons.len();
    let mut lines = Vec::new();
    let mut end = 0;
    for (index, row) in rows.into_iter().enumerate() {
        let is_chosen = index == screen.app.learning.study.choice;
        lines.extend(drawn(screen, row, is_chosen, (with_summaries, inner.width)));
        if is_chosen {
            end = lines.len();
        }
    }
    // the chosen line stays in view
    lines.drain(..end.saturating_sub(inner.height.into()));
    put(lines, inner, frame);
}

fn drawn(screen: Screen, row: ListRow, is_chosen: bool, (with_summary, width): (bool, u16)) -> Vec<Line<'static>> {
    let (is_done, title, state) = match row {
        ListRow::Lesson(index) => lesson(screen, index),
        ListRow::Before | ListRow::After => sitting(screen, row == ListRow::After),
        ListRow::Certificate => {
            let newest = screen.app.learning.quiz.results.quiz.last();
            let score = newest.map_or("after a quiz".to_owned(), |quiz| format!("{} of {}", quiz.score, quiz.of));
            (newest.is_some(), "Certificate".to_owned(), score)
        }
    };
    let (marker, tick) = (if is_chosen { "▸" } else { " " }, if is_done { "✓" } else { " " });
    let state = if state.is_empty() { state } else { format!(" · {state}") };
    let line = Line::from(vec![
        Span::styled(format!(" {marker} {tick} {title}"), screen.theme[Role::TextStrong]),
        Span::styled(state, screen.theme[Role::TextDim]),
    ]);
    let mut lines = vec![if is_chosen { line.patch_style(screen.theme[Role::Selected]) } else { line }];
    if let ListRow::Lesson(index) = row
        && with_summary
    {
        let summary = format!("       {}", screen.app.learning.lessons[index].lesson.summary);
        lines.push(Line::styled(cut(&summary, width.into()), screen.theme[Role::TextDim]));
    }
    lines
}

/// Whether a lesson is done, its title, and how far it is.
fn lesson(screen: Screen, index: usize) -> (bool, String, String) {
    let entry = &screen.app.learning.lessons[index];
    let steps = entry.lesson.step.len();
    let done = screen.app.learning.progress.done(&entry.name, &entry.lesson);
    let state = match done {
        0 => String::new(),
        _ if done >= steps => "done".to_owned(),
        _ => format!("{done} of {}", counted(steps, "step")),
    };
    let own = if entry.is_own { " (yours)" } else { "" };
    (done >= steps, format!("{} {}{own}", index + 1, entry.lesson.title), state)
}

/// Whether the statements were judged, their name, and how many were right: after the lessons compared with before.
fn sitting(screen: Screen, is_after: bool) -> (bool, String, String) {
    let results = &screen.app.learning.quiz.results;
    let [before, after] = results.compared();
    let count = statements().len();
    let of = |right: usize| format!("{right} of {count} right");
    let (title, score) = match is_after {
        false => ("Before the lessons: judge ten statements", before),
        true => ("After the lessons: the ten statements again", after),
    };
    let state = match (score, before.filter(|_| is_after)) {
        (None, _) => "not judged yet".to_owned(),
        (Some(right), None) => of(right),
        (Some(right), Some(before)) => format!("{}, {before} before", of(right)),
    };
    (score.is_some(), title.to_owned(), state)
}
