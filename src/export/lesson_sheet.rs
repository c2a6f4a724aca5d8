//! Lessons on paper, and on devices that run no script: for pupils what is said, asked and drawn; for their teacher what is
//! right, why the rest is not, and the notes.
//!
//! Invariant: what is for pupils holds no answer, no hint and no note.

use ratatui::buffer::Buffer;

use draftscope_learn::lesson::Lesson;
use draftscope_tui::PlayedStep;

use super::error::ExportError;
use super::page_frame::{Parts, escaped};
use super::{lesson_page, svg};

/// What the page adds to the frame.
const PARTS: Parts = Parts { body: "{{markup}}", style: include_str!("page/sheet.css"), script: "" };

/// A lesson that was played.
pub(super) struct Played<'a> {
    pub(super) number: usize,
    pub(super) lesson: &'a Lesson,
    /// As many as the lesson has.
    pub(super) steps: &'a [PlayedStep],
}

/// A page of such lessons.
///
/// # Errors
/// When it is no text.
pub(super) fn page(title: &str, markup: &str) -> Result<String, ExportError> {
    lesson_page::text(|out| PARTS.write(title, None, (markup, &()), out))
}

/// Texts, questions and drawings.
pub(super) fn for_pupils(played: &Played) -> String {
    each_step(played, |step| {
        let choices = step.shown.choices.iter().map(|(text, _)| element("li", "", text));
        let mut markup = element("p", "", &step.shown.text);
        if !step.shown.choices.is_empty() {
            markup.push_str(&format!("<ul>{}</ul>", choices.collect::<String>()));
        }
        // of an action, how it begins and how it ends
        let ends = [step.frames.first(), step.frames.get(1..).and_then(<[Buffer]>::last)];
        markup.extend(ends.into_iter().flatten().map(drawing));
        markup
    })
}

/// Texts, answers, what is wrong with the other choices, hints and notes.
pub(super) fn for_teacher(played: &Played) -> String {
    let sources = played.lesson.step.iter().map(|step| step.source.clone());
    let mut sources = sources.collect::<Vec<_>>().into_iter();
    each_step(played, |step| {
        let shown = &step.shown;
        let mut markup = element("p", "", &shown.text);
        for (index, (text, why)) in shown.choices.iter().enumerate() {
            let (class, sign) = if shown.right == Some(index) { ("right", "✓") } else { ("why", "✗") };
            let why = if why.is_empty() { String::new() } else { format!(": {why}") };
            markup.push_str(&element("p", class, &format!("{sign} {text}{why}")));
        }
        let hints = shown.hints.iter().map(|hint| format!("Hint: {hint}"));
        let rest = [shown.reveal.clone()].into_iter().chain(hints).chain([shown.notes.clone()]);
        markup.extend(rest.filter(|text| !text.is_empty()).map(|text| element("p", "", &text)));
        markup.extend(sources.next().unwrap_or_default().iter().map(|source| element("p", "source", source)));
        markup
    })
}

/// The title, then a section for each step.
fn each_step(played: &Played, mut section: impl FnMut(&PlayedStep) -> String) -> String {
    let Played { number, lesson, steps } = played;
    let mut markup = element("h1", "", &format!("{number}. {}", lesson.title)) + &element("p", "", &lesson.summary);
    for (index, step) in steps.iter().enumerate() {
        let head = element("h2", "", &format!("{number}.{}", index + 1));
        markup.push_str(&format!("<section>{head}{}</section>", section(step)));
    }
    markup
}

fn element(name: &str, class: &str, text: &str) -> String {
    let class = if class.is_empty() { String::new() } else { format!(" class=\"{class}\"") };
    format!("<{name}{class}>{}</{name}>", escaped(text))
}

/// A drawing with its text, for those who do not see it.
fn drawing(drawing: &Buffer) -> String {
    let text = escaped(&svg::lines(drawing).join("\n"));
    format!(
        "<div class=\"scroll\"><img class=\"drawing\" src=\"{}\" alt=\"{text}\"></div>",
        lesson_page::image(drawing)
    )
}
