//! The words of a step: what it says or asks, the choices, what was wrong with those taken, the hints and the notes.

use crate::app::place::page::Pane;
use crate::view::prelude::*;
use draftscope_learn::lesson::{Lesson, Step, UNKNOWN, filled};

/// Height from which the sources are shown without being asked for.
const LARGE: u16 = 32;

pub(super) fn render(screen: Screen, (lesson, step): (&Lesson, &Step), area: Rect, out: (&mut Frame, &mut HitMap)) {
    let (frame, hit_map) = out;
    let study = &screen.app.learning.study;
    let title = titled(screen, lesson, area.width.saturating_sub(2));
    let mut block = screen.panel(title.unwrap_or_else(|| place(screen, lesson)));
    let width = area.width.saturating_sub(2);
    let mut lines = body(screen, lesson, step, width);
    let room = usize::from(area.height.saturating_sub(2));
    // a large screen has room for the sources, too; beside an open question they might answer it
    let sources = sources(screen, step, width);
    let is_open = !step.choices.is_empty() && !screen.app.learning.study.is_revealed;
    if !study.shows_notes && !is_open && area.height >= LARGE && lines.len() + sources.len() < room {
        lines.push(Line::default());
        lines.extend(sources);
    }
    let last = lines.len().saturating_sub(room);
    hit_map.lesson_max = last;
    let is_fresh = !study.is_revealed && study.tried.is_empty() && study.hints == 0;
    let top = study.scroll.unwrap_or(if is_fresh { 0 } else { last }).min(last);
    let mut score = score(screen, lesson);
    if last > 0 {
        let keys = screen.keys(Context::Browse, &[(&[Action::PageUp, Action::PageDown], "more")]);
        let keys = format!(" {keys} ");
        // the keys stay where not both fit: without them the rest is lost
        score = Some(score).filter(|score| score.width() + keys.width() <= width.into()).unwrap_or_default();
        block = block.bottom_right(Line::styled(keys, screen.theme[Role::Key]));
    }
    if !score.is_empty() {
        block = block.bottom(Line::styled(score, screen.theme[Role::TextStrong]));
    }
    let inner = framed(block, area, frame);
    let lines: Vec<Line> = lines.into_iter().skip(top).take(room).collect();
    put(lines, inner, frame);
}

/// The number of the lesson, and of the step with its tick.
fn place(screen: Screen, lesson: &Lesson) -> String {
    let study = &screen.app.learning.study;
    let entry = study.lesson.and_then(|index| screen.app.learning.lessons.get(index));
    let is_done = entry.is_some_and(|entry| screen.app.learning.progress.is_done(&entry.name, lesson, study.step));
    let tick = if is_done { " ✓" } else { "" };
    format!(" Lesson {} · {} of {}{tick} ", study.lesson.unwrap_or(0) + 1, study.step + 1, lesson.step.len())
}

/// The same with the lesson's title, where the frame has room for all of it.
fn titled(screen: Screen, lesson: &Lesson, width: u16) -> Option<String> {
    let title = format!("{}· {} ", place(screen, lesson), lesson.title);
    (title.width() <= width.into()).then_some(title)
}

/// A tick for each step that is done, and how many first answers were right.
fn score(screen: Screen, lesson: &Lesson) -> String {
    let study = &screen.app.learning.study;
    let Some(entry) = study.lesson.and_then(|index| screen.app.learning.lessons.get(index)) else {
        return String::new();
    };
    let (right, asked) = screen.app.learning.progress.score(&entry.name, lesson);
    let done = screen.app.learning.progress.done(&entry.name, lesson);
    let mut parts = Vec::new();
    if done > 0 {
        parts.push(format!("✓ {done} of {}", lesson.step.len()));
    }
    if asked > 0 {
        parts.push(format!("right: {right} of {asked}"));
    }
    if parts.is_empty() { String::new() } else { format!(" {} ", parts.join(" · ")) }
}

pub(super) fn body(screen: Screen, lesson: &Lesson, step: &Step, width: u16) -> Vec<Line<'static>> {
    let study = &screen.app.learning.study;
    let run = study.run(&screen.app.learning.lessons);
    let fill = |text: &str| filled(text, screen.session, run);
    let choices = &step.choices;
    let mut lines = Vec::new();
    if titled(screen, lesson, width).is_none() {
        lines.extend(wrapped(&lesson.title, width, screen.theme[Role::PanelTitle]));
    }
    let is_recorded = screen.app.plays_lessons(screen.time.live());
    lines.extend(wrapped(&fill(step.words(is_recorded)), width, screen.theme[Role::Text]));
    lines.push(Line::default());
    let right = study.is_revealed.then(|| study.right_choice(step, screen.session, run)).flatten();
    for (index, choice) in choices.iter().enumerate() {
        lines.extend(line(screen, index, &fill(&choice.text), right, width));
    }
    for tried in &study.tried {
        let why = step.choices.get(*tried).map_or("", |choice| choice.why.as_str());
        lines.extend(reply(screen, "No. ", &fill(why), Role::Warning, width));
    }
    let is_unknown = study.is_revealed && !choices.is_empty() && right.is_none();
    if is_unknown {
        let said = format!(
            "The number is {UNKNOWN}: other work slowed some passes. Nothing is scored; go back to the step that runs the \
             prompt when the machine is idle."
        );
        lines.extend(reply(screen, "", &said, Role::Warning, width));
    } else if study.is_revealed && !choices.is_empty() {
        let word = if study.tried.is_empty() { "Right. " } else { "Answer: " };
        lines.extend(reply(screen, word, &fill(&step.reveal), Role::Good, width));
    }
    // after the answer a hint says nothing more
    let hints = if study.is_revealed && !choices.is_empty() { 0 } else { study.hints };
    for (index, hint) in step.all_hints().iter().take(hints).enumerate() {
        let hint = format!("Hint {}: {}", index + 1, fill(hint));
        lines.extend(wrapped(&hint, width, screen.theme[Role::Key]));
    }
    if lines.last().is_some_and(|line| line.width() > 0) {
        lines.push(Line::default());
    }
    lines.extend(wrapped(&keys(screen, lesson, step, !choices.is_empty()), width, screen.theme[Role::TextDim]));
    if study.shows_notes {
        lines.push(Line::default());
        lines.extend(notes(screen, step, &fill(&step.notes), width));
    }
    lines
}

/// What answers a choice, after a gap.
fn reply(screen: Screen, word: &str, text: &str, role: Role, width: u16) -> Vec<Line<'static>> {
    let mut lines = vec![Line::default()];
    let said = wrapped(&format!("{word}{text}"), width, screen.theme[Role::Text]);
    lines.extend(said.into_iter().enumerate().map(|(index, line)| match index {
        0 => line.patch_style(screen.theme[role]),
        _ => line,
    }));
    lines
}

/// What the presenter may say, and where the statements come from.
fn notes(screen: Screen, step: &Step, text: &str, width: u16) -> Vec<Line<'static>> {
    let text = if text.is_empty() { "No notes for this step." } else { text };
    let mut lines = wrapped(text, width, screen.theme[Role::Key]);
    lines.extend(sources(screen, step, width));
    lines
}

/// Where the statements of a step come from.
fn sources(screen: Screen, step: &Step, width: u16) -> Vec<Line<'static>> {
    if step.source.is_empty() {
        return Vec::new();
    }
    wrapped(&format!("Sources: {}", step.source.join("; ")), width, screen.theme[Role::TextDim])
}

fn line(screen: Screen, index: usize, choice: &str, right: Option<usize>, width: u16) -> Vec<Line<'static>> {
    let study = &screen.app.learning.study;
    let is_chosen = index == study.choice;
    let mark = match right {
        Some(right) if right == index => "✓",
        Some(_) if is_chosen => "✗",
        _ if study.tried.contains(&index) => "✗",
        _ => " ",
    };
    let marker = if is_chosen { "▸" } else { " " };
    let role = if study.tried.contains(&index) { Role::TextDim } else { Role::TextStrong };
    let said = wrapped(choice, width.saturating_sub(5), screen.theme[role]);
    let with_mark = |(row, line): (usize, Line<'static>)| {
        let lead = if row == 0 { format!(" {marker} {mark} ") } else { "     ".to_owned() };
        let mut spans = vec![Span::styled(lead, screen.theme[Role::Key])];
        spans.extend(line.spans);
        let line = Line::from(spans);
        if is_chosen { line.patch_style(screen.theme[Role::Selected]) } else { line }
    };
    said.into_iter().enumerate().map(with_mark).collect()
}

fn keys(screen: Screen, lesson: &Lesson, step: &Step, asks: bool) -> String {
    let study = &screen.app.learning.study;
    let opens = match () {
        () if step.run.is_some() && !study.is_revealed => {
            "runs it with the lesson's settings (yours return when you leave)"
        }
        () if asks && !study.is_revealed => "answers",
        () if step.goal.is_some() || step.task.is_some() => "checks it",
        () if study.step + 1 == lesson.step.len() => "ends the lesson",
        () => "goes on",
    };
    let mut hints: Vec<(&[Action], &str)> = Vec::new();
    if screen.app.place.pane != Pane::Lesson {
        match asks && !study.is_revealed {
            true => hints.extend([(CHOOSE, "choose"), (&[Action::Open][..], "answers"), (CHANGE, "a token")]),
            false => hints.extend([(CHANGE, "a token"), (&[Action::Open][..], "inspects it")]),
        }
        hints.push((LEAVE, "back to these words"));
        return screen.keys(Context::Browse, &hints);
    }
    if step.task.is_some() || step.sets_map() {
        hints.push((CHOOSE, "choose"));
        hints.push((&[Action::DraftLenDown, Action::DraftLenUp], "set"));
    } else if asks && !study.is_revealed {
        hints.push((CHOOSE, "choose"));
    }
    let rest: [(&[Action], &str); 4] = [
        (&[Action::Open], opens),
        (CHANGE, "steps"),
        (&[Action::RejectNext], "notes and sources"),
        (LEAVE, "to the lessons"),
    ];
    hints.extend(rest);
    screen.keys(Context::Browse, &hints)
}
