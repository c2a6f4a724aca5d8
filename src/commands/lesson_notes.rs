//! `draftscope learn --notes`: what the presenter says at the step that lessons in another terminal show.
//!
//! Invariant: only the record of progress is read, and again and again: it says which step is on show.

use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use draftscope::host::file_access;
use draftscope::learn::lesson::{Entry, StepOnShow, find};
use draftscope::session::Session;

use unicode_width::UnicodeWidthStr;

use super::lessons::{MAX_PROGRESS, progress_file};

/// Time between two looks at the record.
const PAUSE: Duration = Duration::from_millis(200);

/// Clears a terminal and goes to its first line.
const CLEAR: &str = "\x1b[H\x1b[2J\x1b[3J";

/// Shows the notes of the step on show, whenever it is another one; until somebody ends it. Where the output is no terminal,
/// one step follows the other.
pub(crate) fn follow(entries: &[Entry]) -> Result<ExitCode> {
    let path = progress_file().context("there is no folder for the record of progress, so no step can be followed")?;
    let mut shown = None;
    loop {
        let record = file_access::read_regular_text(&path, MAX_PROGRESS).unwrap_or_default();
        let on_show = StepOnShow::read(&record);
        if shown.as_ref() != Some(&on_show) {
            let text = on_show.as_ref().and_then(|step| notes(entries, step));
            let text = text.unwrap_or_else(|| "No lesson is on show yet: open one with draftscope learn.\n".to_owned());
            print(&wrapped(&text, width()))?;
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

/// Columns of the terminal; none where there is none.
fn width() -> Option<usize> {
    let size = io::stdout().is_terminal().then(|| crossterm::terminal::size().ok()).flatten();
    size.map(|(columns, _)| usize::from(columns).max(20))
}

/// The text in lines of so many columns, broken between words; further lines of a paragraph are indented as its first.
fn wrapped(text: &str, width: Option<usize>) -> String {
    let Some(width) = width else { return text.to_owned() };
    let mut out = String::new();
    for line in text.lines() {
        let indent = &line[..line.len() - line.trim_start().len()];
        let mut used = 0;
        for word in line.split_whitespace() {
            if used == 0 {
                out.push_str(indent);
                used = indent.width();
            } else if used + 1 + word.width() > width {
                out.push('\n');
                out.push_str(indent);
                used = indent.width();
            } else {
                out.push(' ');
                used += 1;
            }
            out.push_str(word);
            used += word.width();
        }
        out.push('\n');
    }
    out
}

/// What there is to say at a step; none if there is no such step.
fn notes(entries: &[Entry], on_show: &StepOnShow) -> Option<String> {
    let index = find(entries, &on_show.lesson)?;
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
    fn lines_break_between_words() {
        assert_eq!(wrapped("  one two three\n\nfour", Some(10)), "  one two\n  three\n\nfour\n");
        assert_eq!(wrapped("a word-that-is-longer b", Some(6)), "a\nword-that-is-longer\nb\n");
        assert_eq!(wrapped("one two", None), "one two");
    }

    #[test]
    fn every_step_has_its_notes_with_the_answer() {
        let entries = draftscope::learn::lesson::bundled();
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
