//! `draftscope learn --notes`: what the presenter says at the step that lessons in another terminal show.
//!
//! Invariant: only the record of progress is read, and again and again: it says which step is on show.

use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use draftscope::host::file_access;
use draftscope::session::Session;
use draftscope::tui::{LessonEntry, StepOnShow, find_lesson};

use super::lessons::{MAX_PROGRESS, progress_file};

/// Time between two looks at the record.
const PAUSE: Duration = Duration::from_millis(200);

/// Clears a terminal and goes to its first line.
const CLEAR: &str = "\x1b[H\x1b[2J\x1b[3J";

/// Shows the notes of the step on show, whenever it is another one; until somebody ends it. Where the output is no terminal,
/// one step follows the other.
pub(crate) fn follow(entries: &[LessonEntry]) -> Result<ExitCode> {
    let path = progress_file().context("there is no folder for the record of progress, so no step can be followed")?;
    let mut shown = None;
    loop {
        let record = file_access::read_regular_text(&path, MAX_PROGRESS).unwrap_or_default();
        let on_show = StepOnShow::read(&record);
        if shown.as_ref() != Some(&on_show) {
            let text = on_show.as_ref().and_then(|step| notes(entries, step));
            let text = text.unwrap_or_else(|| "No lesson is on show yet: open one with draftscope learn.\n".to_owned());
            print(&text)?;
            shown = Some(on_show);
        }
        std::thread::sleep(PAUSE);
    }
}

fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let clear = if out.is_terminal() { CLEAR } else { "" };
    write!(out, "{clear}{text}")?;
    out.flush()
}

/// What there is to say at a step; none if there is no such step.
fn notes(entries: &[LessonEntry], on_show: &StepOnShow) -> Option<String> {
    let index = find_lesson(entries, &on_show.lesson)?;
    let lesson = &entries[index].lesson;
    let step = lesson.step.get(on_show.step)?;
    // numbers of the run are on the other screen
    let shown = lesson.shown(on_show.step, &Session::new());
    let place = format!("{}. {} ({} of {})", index + 1, lesson.title, on_show.step + 1, lesson.step.len());
    let asked = shown.choices.iter().enumerate().map(|(choice, (text, _))| {
        let sign = if shown.right == Some(choice) { "✓" } else { " " };
        format!("  {sign} {text}")
    });
    let notes = if shown.notes.is_empty() { "No notes for this step.".to_owned() } else { shown.notes.clone() };
    let sources = step.source.iter().map(|source| format!("  {source}"));
    let parts = [
        vec![place],
        vec![shown.text.clone()],
        asked.collect(),
        vec![notes],
        shown.hints.iter().map(|hint| format!("Hint: {hint}")).collect(),
        sources.collect(),
    ];
    let parts: Vec<String> = parts.into_iter().filter(|part| !part.is_empty()).map(|part| part.join("\n")).collect();
    Some(parts.join("\n\n") + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_step_has_its_notes_with_the_answer() {
        let entries = draftscope::tui::bundled_lessons();
        for entry in &entries {
            for (step, of) in entry.lesson.step.iter().enumerate() {
                let text = notes(&entries, &StepOnShow { lesson: entry.name.clone(), step }).unwrap();
                assert!(text.contains(&entry.lesson.title) && of.source.iter().all(|source| text.contains(source)));
                assert_eq!(text.contains("  ✓ "), of.answer.is_some(), "{text}");
            }
        }
        assert_eq!(notes(&entries, &StepOnShow { lesson: "none".to_owned(), step: 0 }), None);
        assert_eq!(notes(&entries, &StepOnShow { lesson: "round".to_owned(), step: 99 }), None);
    }
}
