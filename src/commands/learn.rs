//! `draftscope learn`: the lessons on the live engine; their list, a check of a file, pages to hand out, and the notes for
//! another terminal.

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use draftscope::cli::LearnArgs;
use draftscope::export::{lesson_pages, quiz_pages};
use draftscope::host::config::UserFiles;
use draftscope::host::file_access;
use draftscope::learn::lesson::{self, Entry};
use draftscope::protocol::{Baseline, counted};
use draftscope::session::text::printable;
use draftscope::tui::TuiOptions;

use super::output::{print, say};
use super::{files, lesson_notes, lessons, terminal};

/// What needs no engine, as an error names it.
const WITHOUT_MODEL: &str =
    "draftscope demo --learn plays recordings of the same runs, without a model and without network";

/// Largest lesson that is read, in bytes.
const MAX_BYTES: u64 = 64 << 10;

pub(crate) fn run(args: &LearnArgs, files: &UserFiles) -> Result<ExitCode> {
    if let Some(path) = &args.check {
        return check(path);
    }
    let (entries, warnings) = lesson::all(&files.lessons);
    let chosen = args.lesson.as_deref().map(|wanted| chosen(&entries, wanted)).transpose()?;
    if let Some(folder) = &args.export {
        let numbered = (1..).zip(&entries).enumerate();
        let wanted = numbered.filter(|(index, _)| chosen.is_none_or(|chosen| chosen == *index)).map(|(_, entry)| entry);
        return export(&wanted.collect::<Vec<_>>(), folder, args);
    }
    if args.list {
        warnings.iter().for_each(|warning| say(warning));
        return list(&entries);
    }
    if args.notes {
        return lesson_notes::follow(&entries);
    }
    if !terminal::can_draw() {
        bail!("lessons need a terminal; --list names them, --export DIR writes them as pages");
    }
    let options = TuiOptions {
        lesson: Some(args.lesson.clone().unwrap_or_else(|| "list".to_owned())),
        save: Some(files::saver()),
        export: Some(files::exporter()),
        recordings: Some(lessons::lessons()),
        lessons: files.lessons.clone(),
        progress: lessons::progress(),
        without_engine: Some(WITHOUT_MODEL.to_owned()),
        ..terminal::look(&args.look, files)
    };
    // after the options, which ask the terminal through standard error: calls into GPU drivers may redirect it
    let source = super::engine::start(&args.model, &args.decode, None, Baseline::PROBE)
        .map_err(|error| super::output::without_model(error, WITHOUT_MODEL))?;
    terminal::show(source, options, None)
}

fn chosen(entries: &[Entry], wanted: &str) -> Result<usize> {
    let names: Vec<&str> = entries.iter().map(|entry| entry.name.as_str()).collect();
    lesson::find(entries, wanted).with_context(|| {
        format!("there is no lesson '{wanted}'; there are: 1 to {}, {}", names.len(), names.join(", "))
    })
}

fn list(entries: &[Entry]) -> Result<ExitCode> {
    for (number, entry) in (1..).zip(entries) {
        let own = if entry.is_own { " (yours)" } else { "" };
        print(format_args!("{number:>2} {:<12} {}{own}", printable(&entry.name), entry.lesson.title))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn check(path: &Path) -> Result<ExitCode> {
    let shown = path.display();
    let text = file_access::read_text(path, MAX_BYTES).with_context(|| format!("cannot read {shown}"))?;
    let lesson = lesson::check(&text).map_err(|error| anyhow::anyhow!("{shown}: {error}"))?;
    print(format_args!("{}: {}, no mistake found", printable(&shown.to_string()), counted(lesson.step.len(), "step")))?;
    Ok(ExitCode::SUCCESS)
}

fn export(entries: &[(usize, &Entry)], folder: &Path, args: &LearnArgs) -> Result<ExitCode> {
    let mut paths = lesson_pages(entries, |name| lessons::recording(name).ok(), folder, args.force)?;
    if entries.iter().any(|(_, entry)| entry.lesson.step.iter().any(|step| step.quiz)) {
        paths.extend(quiz_pages(args.sheet, folder, args.force)?);
    }
    for path in paths {
        super::links::print_path("", &path)?;
    }
    Ok(ExitCode::SUCCESS)
}
