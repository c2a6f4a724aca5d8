//! What lessons need besides their texts: recordings of the real engine, and the record of what was done in them. Also the
//! recording that the empty screen offers.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use anyhow::{Context, Result};
use draftscope::host::file_access;
use draftscope::session::trace::Recording;
use draftscope::tui::{KeptProgress, Recordings};

macro_rules! lesson {
    ($name:literal) => {
        ($name, include_bytes!(concat!("../../assets/traces/lessons/", $name, ".dscope.jsonl.zst")))
    };
}

/// The runs of the lessons and one of the demo, recorded by `cargo test --release --test recordings -- --ignored`.
const LESSONS: &[(&str, &[u8])] = &[
    lesson!("positions"),
    lesson!("cost"),
    lesson!("round"),
    lesson!("slow"),
    lesson!("threads"),
    lesson!("random"),
    lesson!("rules"),
    lesson!("confidence"),
    lesson!("obama"),
    lesson!("sampling"),
    lesson!("mtp"),
    lesson!("losing"),
    lesson!("dial"),
    ("code", include_bytes!("../../assets/traces/code.dscope.jsonl.zst")),
];

/// Largest record of progress that is read, in bytes.
pub(crate) const MAX_PROGRESS: u64 = 256 << 10;

/// The recording of a lesson.
pub(crate) fn recording(name: &str) -> Result<Recording> {
    let (name, bytes) = LESSONS.iter().find(|(known, _)| *known == name).context("there is no such recording")?;
    Ok(Recording::of_bytes(name, *bytes)?)
}

/// The file with what was done in the lessons; none where there is no place for it.
pub(crate) fn progress_file() -> Option<PathBuf> {
    super::files::state_file("lessons.json")
}

/// What was done in the lessons, kept between runs.
pub(crate) fn progress() -> Option<KeptProgress> {
    let path = progress_file()?;
    // a file that is too long or no text is no record of ours, and counts as nothing done
    let text = file_access::read_regular_text(&path, MAX_PROGRESS).unwrap_or_default();
    let write = move |text: &str| keep(&path, text).map_err(|error| format!("{error:#}"));
    Some(KeptProgress { text, write: Rc::new(write) })
}

/// Writes the record under a temporary name and renames it, so that it is never half written.
fn keep(path: &Path, text: &str) -> Result<()> {
    let folder = path.parent().context("the record has no folder")?;
    std::fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let mut file = file_access::private_file_in(folder)?;
    file.write_all(text.as_bytes())?;
    file.persist(path).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(())
}

/// What lessons play when there is no engine.
pub(crate) fn lessons() -> Recordings {
    Recordings(Rc::new(|name: &str| {
        let known = LESSONS.iter().find(|(known, _)| *known == name);
        let (name, bytes) = known.ok_or_else(|| format!("there is no recording '{name}'"))?;
        let read = || Recording::of_bytes(name, *bytes)?.reader()?.collect::<Result<Vec<_>, _>>();
        read().map_err(|error| error.to_string())
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Without a model a lesson plays its recording: it must be in the program, not only in the repository.
    #[test]
    fn every_run_of_a_lesson_has_its_recording_in_the_program() {
        let steps = draftscope::learn::lesson::bundled().into_iter().flat_map(|entry| entry.lesson.step);
        let names: Vec<String> = steps.filter_map(|step| step.run?.recording).collect();
        assert!(names.len() > 9, "{names:?}");
        for name in names {
            assert!(recording(&name).is_ok(), "{name}");
        }
    }
}
