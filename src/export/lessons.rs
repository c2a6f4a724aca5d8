//! Lessons as pages: one self-contained page for each, with its questions, its sliders, its drawings and its recorded runs,
//! each in the player of [`super::html`]; a sheet of all of them to print, and the teacher's notes apart from both.
//!
//! Invariant: a page loads nothing ([`super::page_frame`]). Drawings are pictures of the program's own panels, drawn by its
//! own code at that step of the lesson; numbers are those of the recording in the page.

use std::path::{Path, PathBuf};
use std::rc::Rc;

use ratatui::buffer::Buffer;
use serde_json::{Value, json};

use draftscope_learn::lesson::{Entry, Run};
use draftscope_learn::quiz;
use draftscope_session::Session;
use draftscope_session::trace::Recording;
use draftscope_tui::{Recordings, play_lesson};

use super::error::ExportError;
use super::lesson_page::{image, text};
use super::page_frame::Parts;
use super::{atomic_file, html, lesson_sheet, svg};

/// What the page adds to the frame.
const PARTS: Parts = Parts {
    body: include_str!("page/lesson.html"),
    style: include_str!("page/lesson.css"),
    script: include_str!("page/lesson.js"),
};

/// Columns of a drawing.
const COLUMNS: u16 = 92;

/// Reads a recording that comes with the program.
pub type Read = fn(&str) -> Option<Recording>;

/// Writes a page for each lesson, which comes with its number, into a folder, and for all of them a sheet to print and the
/// teacher's notes with the answers; the paths of the files.
///
/// # Errors
/// When a recording cannot be read, a page exists already, or one cannot be written.
pub fn lesson_pages(
    entries: &[(usize, &Entry)],
    read: Read,
    folder: &Path,
    force: bool,
) -> Result<Vec<PathBuf>, ExportError> {
    let unwritten = |source| ExportError::Write { path: folder.to_owned(), source };
    std::fs::create_dir_all(folder).map_err(unwritten)?;
    let (mut paths, mut sheet, mut notes) = (Vec::new(), String::new(), String::new());
    // the quiz has files of its own
    for (number, entry) in entries.iter().filter(|(_, entry)| entry.lesson.step.iter().all(|step| !step.quiz)) {
        let played = play_lesson(entry, recordings(read), COLUMNS);
        let lesson = lesson_sheet::Played { number: *number, lesson: &entry.lesson, steps: &played };
        sheet.push_str(&lesson_sheet::for_pupils(&lesson));
        notes.push_str(&lesson_sheet::for_teacher(&lesson));
        let path = folder.join(format!("{number}-{}.html", file_name(&entry.name)));
        paths.push(write(path, &page(&lesson, read)?, force)?);
    }
    if !paths.is_empty() {
        for (name, title, markup) in [("sheet", "lessons to print", sheet), ("notes", "notes for teachers", notes)] {
            let page = lesson_sheet::page(title, &markup)?;
            paths.push(write(folder.join(format!("{name}.html")), &page, force)?);
        }
    }
    Ok(paths)
}

/// Writes a file; its path.
fn write(path: PathBuf, text: &str, force: bool) -> Result<PathBuf, ExportError> {
    let written = atomic_file::file(&path, force, |out| Ok(out.write_all(text.as_bytes())?));
    written.map_err(|error| error.at(&path))?;
    Ok(path)
}

/// Writes ten items of the quiz to print, as HTML and Markdown, and as JSON with the answers. `sheet` chooses the items.
///
/// # Errors
/// When a file exists and `force` is not set, or cannot be written.
pub fn quiz_pages(sheet: u64, folder: &Path, force: bool) -> Result<Vec<PathBuf>, ExportError> {
    let made = quiz::sheet(sheet);
    let mut paths = Vec::new();
    for (ending, text) in [("html", made.html), ("md", made.markdown), ("json", made.json)] {
        paths.push(write(folder.join(format!("quiz-{sheet}.{ending}")), &text, force)?);
    }
    Ok(paths)
}

/// Of the name of a file of the user, what is safe in a name here.
fn file_name(name: &str) -> String {
    name.chars().map(|c| if c.is_alphanumeric() || c == '-' { c } else { '_' }).take(60).collect()
}

/// The page of a run, in the player.
fn player(run: &Run, read: Read) -> Result<Option<String>, ExportError> {
    let Some(recording) = run.recording.as_deref().and_then(read) else { return Ok(None) };
    let mut session = Session::new();
    for event in recording.reader()? {
        session.apply(&event?);
    }
    text(|out| html::write(&session, &recording, out)).map(Some)
}

/// The events of the recordings, for the lesson to play.
fn recordings(read: Read) -> Recordings {
    Recordings(Rc::new(move |name: &str| {
        let recording = read(name).ok_or_else(|| format!("there is no recording '{name}'"))?;
        let events = recording.reader().and_then(|reader| reader.collect::<Result<Vec<_>, _>>());
        events.map_err(|error| error.to_string())
    }))
}

/// Drawings, each once.
#[derive(Default)]
struct Drawings(Vec<Value>);

impl Drawings {
    /// The place of a drawing.
    fn place(&mut self, drawing: &Buffer) -> usize {
        let src = image(drawing);
        let picture = json!({ "src": src, "text": svg::lines(drawing).join("\n") });
        self.0.iter().position(|other| *other == picture).unwrap_or_else(|| {
            self.0.push(picture);
            self.0.len() - 1
        })
    }
}

fn page(played: &lesson_sheet::Played, read: Read) -> Result<String, ExportError> {
    let (lesson, markup) = (played.lesson, lesson_sheet::for_pupils(played));
    let mut drawings = Drawings::default();
    let mut steps = Vec::new();
    for (step, played) in lesson.step.iter().zip(played.steps) {
        let frames: Vec<_> = played.frames.iter().map(|drawing| drawings.place(drawing)).collect();
        let answered = played.answered.as_ref().map(|drawing| drawings.place(drawing));
        let run = step.run.as_ref().map(|run| Ok::<_, ExportError>((run, player(run, read)?))).transpose()?;
        steps.push(json!({
            "text": played.shown.text,
            "choices": played.shown.choices,
            "right": played.shown.right,
            "reveal": played.shown.reveal,
            "hints": played.shown.hints,
            "source": step.source,
            "frames": frames,
            "answered": answered,
            "task": step.task.as_ref().map(|task| json!({
                "start": task.start, "free": task.free, "speedup": task.speedup,
            })),
            "run": run.map(|(run, page)| json!({
                "prompt": run.prompt, "k": run.k, "rule": run.rule.to_string(), "drafter": run.drafter.name(), "page": page,
            })),
        }));
    }
    let data = json!({ "title": lesson.title, "summary": lesson.summary, "steps": steps, "pictures": drawings.0 });
    text(|out| PARTS.write(&lesson.title, Some(&html::PARTS), (&markup, &data), out))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export::page_frame;
    use draftscope_learn::lesson::{bundled, check};

    fn read(name: &str) -> Option<Recording> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("assets/traces/lessons");
        Recording::open(&folder.join(format!("{name}.dscope.jsonl.zst"))).ok()
    }

    #[test]
    fn each_lesson_becomes_a_page_that_holds_all_it_needs() {
        let folder = tempfile::tempdir().unwrap();
        let lessons = bundled();
        let numbered: Vec<_> = (1..).zip(&lessons).collect();
        let paths = lesson_pages(&numbered, read, folder.path(), false).unwrap();
        assert_eq!(paths.len(), 9, "seven lessons, the sheet and the notes: {paths:?}");
        for path in &paths {
            let page = std::fs::read_to_string(path).unwrap();
            assert!(!page.contains("{{") && !page.contains("(not measured yet)"), "{}", path.display());
            assert_eq!(page.matches("</script>").count(), 2, "data cannot close its block: {}", path.display());
            let has_link = page.contains("src=\"http") || page.contains("href=\"http") || page.contains("@import");
            assert!(!has_link, "it loads nothing: {}", path.display());
            let has_drawings = page.contains("data:image/svg+xml;base64,") || path.ends_with("notes.html");
            assert!(has_drawings, "{} has drawings", path.display());
            assert!(page.len() < 10 << 20, "{} bytes", page.len());
        }
        let again = lesson_pages(&numbered, read, folder.path(), false);
        assert!(matches!(again, Err(ExportError::Exists(_))), "nothing is replaced unasked");
        assert_eq!(lesson_pages(&numbered, read, folder.path(), true).unwrap().len(), 9);
    }

    /// What pupils get, also without a script, has all texts, questions and drawings, and neither answers nor notes.
    #[test]
    fn answers_and_notes_are_the_teachers_alone() {
        let folder = tempfile::tempdir().unwrap();
        let lessons = bundled();
        let numbered: Vec<_> = (1..).zip(&lessons).collect();
        let paths = lesson_pages(&numbered[..5], read, folder.path(), false).unwrap();
        let page = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();
        let (sheet, notes) = (page("sheet.html"), page("notes.html"));
        let first = std::fs::read_to_string(&paths[0]).unwrap();
        let without_script =
            first.split_once("<noscript>").and_then(|(_, rest)| rest.split_once("</noscript>")).unwrap().0;
        for (number, entry) in &numbered[..5] {
            let steps = play_lesson(entry, recordings(read), COLUMNS);
            for (step, played) in entry.lesson.step.iter().zip(&steps) {
                let shown = &played.shown;
                let says = |page: &str, text: &str| page.contains(&page_frame::escaped(text));
                let asked = shown.choices.iter().map(|(text, _)| text).chain([&shown.text]);
                for text in asked {
                    assert!(says(&sheet, text) && says(&notes, text), "{number}: {text}");
                    assert!(*number != 1 || says(without_script, text), "{text}");
                }
                let whys = shown.choices.iter().map(|(_, why)| why);
                for text in whys.chain(&shown.hints).chain([&shown.reveal, &shown.notes]).filter(|text| text.len() > 20)
                {
                    assert!(says(&notes, text) && !says(&sheet, text), "{number}: {text}");
                    assert!(!says(without_script, text), "{text}");
                }
                assert!(
                    !first.contains(step.notes.lines().next().unwrap_or("-")),
                    "notes are not in a page for pupils"
                );
            }
        }
        assert!(sheet.contains("<img ") && !sheet.contains("class=\"right\"") && notes.contains("class=\"right\""));
    }

    #[test]
    fn a_quiz_to_print_comes_with_its_answers_apart() {
        let folder = tempfile::tempdir().unwrap();
        let paths = quiz_pages(7, folder.path(), false).unwrap();
        let read = |index: usize| std::fs::read_to_string(&paths[index]).unwrap();
        let json: Value = serde_json::from_str(&read(2)).unwrap();
        assert_eq!((json["items"].as_array().unwrap().len(), &json["seed"]), (10, &Value::from(7)));
        assert!(read(0).starts_with("<!doctype html>") && read(1).starts_with("# Ten rounds to judge"));
        assert!(matches!(quiz_pages(7, folder.path(), false), Err(ExportError::Exists(_))), "nothing is replaced");
        assert_eq!(quiz_pages(7, folder.path(), true).unwrap(), paths);
    }

    #[test]
    fn a_lesson_of_the_user_cannot_run_code_in_its_page() {
        let text =
            "title = \"</script><b>\"\nsummary = \"s\"\n[[step]]\ntext = \"</script><script>alert(1)</script>\"\n";
        let lesson = check(text).unwrap();
        let entry = Entry { name: "../x".to_owned(), lesson, is_own: true };
        let steps = play_lesson(&entry, recordings(read), COLUMNS);
        let page = page(&lesson_sheet::Played { number: 9, lesson: &entry.lesson, steps: &steps }, read).unwrap();
        assert!(!page.contains("alert(1)</script>") && !page.contains("</script><b>"));
        assert_eq!(file_name("../x"), "___x");
    }
}
