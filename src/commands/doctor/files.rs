//! Files of the user: the cache of models and the space beside it, the default model, remembered state, the configuration.

use std::path::Path;

use draftscope::host::config;
use draftscope::model::load::card::Card;
use draftscope::store::{DEFAULT, ModelEntry, Status, Store};
use indicatif::DecimalBytes;
use serde_json::json;

use super::super::config::Parsed;
use super::super::recipe::store;
use super::check::Check;

/// How a damaged or absent model is fetched, and other ways.
const FETCH: &str = "draftscope models pull";

/// The model that runs when none is named, as it is on disk.
pub(super) struct DefaultModel {
    store: Store,
    /// Its file, whose contents were compared with the digest; or why that was not possible.
    entry: Result<ModelEntry, String>,
    /// What is in the file, or why it does not run; none without a whole file.
    card: Option<Result<Card, String>>,
}

impl DefaultModel {
    /// Looks for the file, reads it whole if no note says that this was done, and makes the checks of loading.
    pub(super) fn look() -> Self {
        let store = store();
        let entry = store.info(Path::new(DEFAULT.name), &mut ()).map_err(|error| error.to_string());
        let file = entry.as_ref().ok().filter(|entry| entry.status == Status::Ready).map(|entry| &entry.file);
        let card = file.map(|file| match Card::read_checked(file) {
            Ok((card, Ok(()))) => Ok(card),
            Ok((_, Err(error))) | Err(error) => Err(error.to_string()),
        });
        Self { store, entry, card }
    }

    /// Bytes of memory that it takes at its full context, if it is there.
    pub(super) fn need(&self) -> Option<u64> {
        Some(self.card.as_ref()?.as_ref().ok()?.account.total())
    }

    /// Bytes that the first start downloads.
    fn missing_bytes(&self) -> u64 {
        let is_there = self.entry.as_ref().is_ok_and(|entry| entry.status == Status::Ready);
        if is_there { 0 } else { DEFAULT.bytes }
    }

    /// Whether it is there, whole, and runs.
    pub(super) fn check(&self) -> Check {
        let size = DecimalBytes(DEFAULT.bytes);
        let entry = match &self.entry {
            Ok(entry) => entry,
            Err(why) => return Check::fails("model", why, format!("correct this, then run `{FETCH}`")),
        };
        let file = entry.file.display();
        let check = match (&entry.status, &self.card) {
            (Status::Damaged { why }, _) => {
                Check::fails("model", format!("{file} is damaged: {why}"), format!("run `{FETCH} --force`"))
            }
            (Status::Missing, _) => Check::note(
                "model",
                format!("{} is not there", DEFAULT.about),
                format!("the first start downloads {size}, as does `{FETCH}`; `draftscope demo` needs none"),
            ),
            (_, Some(Err(why))) => Check::fails("model", why, format!("run `{FETCH} --force`")),
            _ => Check::ok("model", format!("{}, {size}, whole: {file}", DEFAULT.about)),
        };
        check.with(json!(entry))
    }
}

/// The cache of models: whether it can be written, and the space beside it.
pub(super) fn cache(model: &DefaultModel) -> Check {
    let folder = model.store.cache().dir();
    let free = existing(folder).and_then(free_bytes);
    cache_of(folder, free, model.missing_bytes())
}

fn cache_of(folder: &Path, free: Option<u64>, needed: u64) -> Check {
    let shown = folder.display();
    let details = json!({ "folder": folder, "free_bytes": free });
    if let Err(why) = is_writable(folder) {
        let advice = "no model can be downloaded; set DRAFTSCOPE_CACHE to a folder that you may write to";
        return Check::fails("cache", format!("{shown}: {why}"), advice).with(details);
    }
    match free {
        Some(free) if free < needed => {
            let advice = format!(
                "free {}, or set DRAFTSCOPE_CACHE to a folder on another disk",
                DecimalBytes(needed.saturating_sub(free))
            );
            Check::fails("cache", format!("{shown}, {} free on its disk", DecimalBytes(free)), advice)
        }
        Some(free) => Check::ok("cache", format!("{shown}, {} free on its disk", DecimalBytes(free))),
        None => Check::ok("cache", format!("{shown}, free space unknown")),
    }
    .with(details)
}

/// The folder in which the program remembers what it measured, and that the tour was shown.
pub(super) fn state() -> Check {
    let advice = "nothing is remembered between starts: the tour is not shown, and devices are measured each time";
    let Some(file) = super::super::files::state_file("devices.json") else {
        return Check::note("state", "the home directory is unknown", advice);
    };
    let folder = file.parent().unwrap_or(Path::new("."));
    match is_writable(folder) {
        Ok(()) => Check::ok("state", folder.display().to_string()),
        Err(why) => Check::note("state", format!("{}: {why}", folder.display()), advice),
    }
    .with(json!({ "folder": folder }))
}

/// The configuration file, and what was not understood in it.
pub(super) fn config(parsed: &Parsed) -> Check {
    let Some(path) = config::path() else {
        let advice = "set DRAFTSCOPE_CONFIG to a file to use one";
        return Check::note("configuration", "this user has no configuration folder", advice);
    };
    let warnings = &parsed.files.warnings;
    let shown = path.display();
    match warnings.as_slice() {
        [] if path.exists() => Check::ok("configuration", shown.to_string()),
        [] => Check::ok("configuration", format!("defaults; `draftscope config init` writes {shown}")),
        [first, ..] => Check::note("configuration", first, format!("see `draftscope config show` ({shown})")),
    }
    .with(json!({ "file": path, "warnings": warnings }))
}

/// The folder, or the nearest one above it that exists.
fn existing(folder: &Path) -> Option<&Path> {
    folder.ancestors().find(|folder| folder.exists())
}

/// Whether files can be written into a folder, or into the one in which it would be created.
fn is_writable(folder: &Path) -> Result<(), String> {
    let folder = existing(folder).ok_or("it cannot be created")?;
    tempfile::tempfile_in(folder).map(drop).map_err(|error| format!("it cannot be written: {error}"))
}

/// Bytes that this user may still write on the disk of a folder; none if the system does not say.
#[cfg(unix)]
fn free_bytes(folder: &Path) -> Option<u64> {
    let disk = rustix::fs::statvfs(folder).ok()?;
    disk.f_bavail.checked_mul(disk.f_frsize)
}

#[cfg(not(unix))]
fn free_bytes(_folder: &Path) -> Option<u64> {
    None
}

#[cfg(test)]
mod tests {
    use super::super::check::Verdict;
    use super::*;

    #[test]
    fn a_full_disk_fails_only_while_the_model_is_missing() {
        let folder = tempfile::tempdir().unwrap();
        let inside = folder.path().join("a").join("b");
        assert_eq!(cache_of(&inside, Some(0), 0).status, Verdict::Ok);
        assert_eq!(cache_of(&inside, None, DEFAULT.bytes).status, Verdict::Ok);
        let full = cache_of(&inside, Some(1_000_000), DEFAULT.bytes);
        assert_eq!(full.status, Verdict::Fails);
        assert!(full.advice.is_some_and(|advice| advice.starts_with("free 97.36 MB")));
        assert!(!inside.exists() && folder.path().read_dir().unwrap().next().is_none(), "nothing is left");
    }

    #[test]
    fn a_cache_below_a_file_fails() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let check = cache_of(&file.path().join("models"), Some(1 << 40), 0);
        assert_eq!(check.status, Verdict::Fails);
        assert!(check.advice.is_some_and(|advice| advice.contains("DRAFTSCOPE_CACHE")));
    }
}
