//! The directory of model files: `$XDG_CACHE_HOME/draftscope/models` (the platform's cache
//! directory elsewhere), or `$DRAFTSCOPE_CACHE/models`.
//!
//! Invariant: a file under its final name is complete, because files get that name only by renaming.
//! Unfinished files are in `.partial/`, belong to the process that has `.lock`, and are rubbish once
//! no process has it. [`super::fetch`] does the fetching.

use std::fs;
use std::path::{Path, PathBuf};

use etcetera::BaseStrategy;

use super::check::{self, Mismatch};
use super::entry::{ModelEntry, Removed, Status};
use super::error::StoreError;
use super::gguf_choice;
use super::known_model::{self, KnownModel};
use super::lock::Lock;
use super::progress::Progress;

/// Directory under the scratch directory in which the hub source keeps a partial download between two tries.
pub(super) const RESUMABLE: &str = "hub";

/// A directory of model files.
#[derive(Clone, Debug)]
pub struct Cache {
    dir: PathBuf,
    /// Whether there is no place for it: it is empty, and nothing can be put into it.
    is_nowhere: bool,
}

/// A path below which nothing can be.
const NOWHERE: &str = "/dev/null/draftscope";

impl Cache {
    /// The user's cache; an empty one that takes no files where there is neither a home directory nor
    /// `DRAFTSCOPE_CACHE`, so that the user's own files run.
    #[must_use]
    pub fn from_env() -> Self {
        let own = std::env::var_os("DRAFTSCOPE_CACHE").filter(|dir| !dir.is_empty());
        let own = own.map(|dir| std::path::absolute(&dir).unwrap_or_else(|_| dir.into()));
        let root = own.or_else(|| Some(etcetera::choose_base_strategy().ok()?.cache_dir().join("draftscope")));
        match root {
            Some(root) => Self::at(root.join("models")),
            None => Self { dir: NOWHERE.into(), is_nowhere: true },
        }
    }

    /// The cache in this directory, which need not exist.
    #[must_use]
    pub fn at(dir: PathBuf) -> Self {
        Self { dir, is_nowhere: false }
    }

    /// Its path.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Where a known model's file is, or would be.
    #[must_use]
    pub fn path_of(&self, model: &KnownModel) -> PathBuf {
        self.dir.join(model.file)
    }

    /// The directory of unfinished files.
    pub(super) fn scratch(&self) -> PathBuf {
        self.dir.join(".partial")
    }

    /// Status of a known model's file, contents included. They are read once; a note keeps the result.
    pub(super) fn check(&self, model: &KnownModel) -> Status {
        match self.unread_status(model) {
            Status::Unchecked => self.read(model),
            status => status,
        }
    }

    fn read(&self, model: &KnownModel) -> Status {
        let file = self.path_of(model);
        let sha256 = match check::sha256_noting(&file) {
            Ok(sha256) => sha256,
            Err(error) => return damaged(&error),
        };
        match Mismatch::find(model, model.bytes, &sha256) {
            Ok(()) => Status::Ready,
            Err(mismatch) => damaged(&mismatch),
        }
    }

    /// Status of a known model's file as far as it is known without reading the file.
    fn unread_status(&self, model: &KnownModel) -> Status {
        if self.is_nowhere {
            return Status::Missing;
        }
        let file = self.path_of(model);
        let bytes = match fs::metadata(&file) {
            Ok(meta) if meta.is_file() => meta.len(),
            Ok(_) => return damaged(&"it is not a file"),
            Err(error) if matches!(error.kind(), std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory) => {
                return Status::Missing;
            }
            Err(error) => return damaged(&error),
        };
        if let Err(mismatch) = Mismatch::find_size(model, bytes) {
            return damaged(&mismatch);
        }
        match check::noted(&file).map(|sha256| Mismatch::find(model, bytes, &sha256)) {
            Some(Ok(())) => Status::Ready,
            Some(Err(mismatch)) => damaged(&mismatch),
            None => Status::Unchecked,
        }
    }

    /// All known models and all other model files here. Reads no contents.
    ///
    /// # Errors
    /// When the directory exists and cannot be read.
    pub fn list(&self) -> Result<Vec<ModelEntry>, StoreError> {
        let known = known_model::KNOWN.iter().map(|model| self.entry(model, self.unread_status(model)));
        let mut entries: Vec<_> = known.collect();
        let mut files = self.files()?;
        files.retain(|file| entries.iter().all(|entry| entry.file != *file));
        files.sort();
        entries.extend(files.into_iter().filter_map(|file| foreign(file).ok()));
        Ok(entries)
    }

    /// The entry of a known model or of a file here, by name or file name.
    ///
    /// # Errors
    /// When the directory exists and cannot be read.
    pub fn find(&self, name: &str) -> Result<Option<ModelEntry>, StoreError> {
        let answers_to = |entry: &ModelEntry| {
            entry.name.eq_ignore_ascii_case(name)
                || entry.file.file_name().is_some_and(|file| file.to_string_lossy() == name)
        };
        Ok(self.list()?.into_iter().find(answers_to))
    }

    /// Removes a model's file and what was noted about it.
    ///
    /// # Errors
    /// When there is no such file here, or it cannot be removed.
    pub fn remove(&self, name: &str, progress: &mut dyn Progress) -> Result<Removed, StoreError> {
        let absent = || StoreError::NotCached { name: name.to_owned(), dir: self.dir.clone() };
        if !self.dir.is_dir() {
            return Err(if self.is_nowhere { StoreError::NoHome } else { absent() });
        }
        let _lock = self.lock(progress)?;
        let entry = self.find(name)?.filter(|entry| entry.status != Status::Missing);
        let ModelEntry { name, file, bytes, .. } = entry.ok_or_else(absent)?;
        fs::remove_file(&file).map_err(StoreError::cache("remove", &file))?;
        let _ = fs::remove_file(check::note_path(&file));
        Ok(Removed { name, file, bytes })
    }

    fn lock_file(&self) -> PathBuf {
        self.dir.join(".lock")
    }

    /// Waits for the lock on the cache, which is created if necessary.
    pub(super) fn lock(&self, progress: &mut dyn Progress) -> Result<Lock, StoreError> {
        if self.is_nowhere {
            return Err(StoreError::NoHome);
        }
        fs::create_dir_all(&self.dir).map_err(StoreError::cache("create", &self.dir))?;
        let path = self.lock_file();
        Lock::wait(&path, "the model cache", progress).map_err(StoreError::cache("lock", &path))
    }

    /// Removes the leftovers of an interrupted fetch, unless a fetch is running. What a download can resume stays until
    /// the default model is there.
    pub(super) fn sweep(&self) {
        if !self.scratch().exists() {
            return;
        }
        if let Some(lock) = Lock::if_free(&self.lock_file()) {
            let is_there = self.path_of(&known_model::DEFAULT).exists();
            self.clear_scratch(&lock, (!is_there).then_some(RESUMABLE));
        }
    }

    /// Empties the directory of unfinished files, except for the entry `keep`.
    pub(super) fn clear_scratch(&self, _lock: &Lock, keep: Option<&str>) {
        let scratch = self.scratch();
        for path in paths_in(&scratch) {
            if keep.is_some_and(|keep| path.file_name().is_some_and(|name| name == keep)) {
                continue;
            }
            let _ = match path.is_dir() && !path.is_symlink() {
                true => fs::remove_dir_all(&path),
                false => fs::remove_file(&path),
            };
        }
        let _ = fs::remove_dir(&scratch); // stays when something was kept
    }

    /// The entry of a known model.
    pub(super) fn entry(&self, model: &KnownModel, status: Status) -> ModelEntry {
        let file = self.path_of(model);
        let there = fs::metadata(&file).ok();
        ModelEntry {
            name: model.name.to_owned(),
            about: model.about.to_owned(),
            is_default: *model == known_model::DEFAULT,
            bytes: there.as_ref().map_or(model.bytes, fs::Metadata::len),
            sha256: match status {
                Status::Missing => Some(model.sha256.to_owned()),
                _ => check::noted(&file),
            },
            file,
            license: Some(model.license.to_owned()),
            status,
        }
    }

    fn files(&self) -> Result<Vec<PathBuf>, StoreError> {
        match fs::read_dir(&self.dir) {
            _ if self.is_nowhere => Ok(Vec::new()),
            Ok(_) => Ok(paths_in(&self.dir).into_iter().filter(|path| is_model(path)).collect()),
            Err(error) if matches!(error.kind(), std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory) => {
                Ok(Vec::new())
            }
            Err(error) => Err(StoreError::cache("read", &self.dir)(error)),
        }
    }
}

/// The entry of a file that is not in the catalog; its size is that of all its parts.
pub(super) fn foreign(file: PathBuf) -> Result<ModelEntry, std::io::Error> {
    let own = fs::metadata(&file)?.len();
    let bytes =
        gguf_choice::all_parts(&file).iter().filter_map(|part| fs::metadata(part).ok()).map(|part| part.len()).sum();
    Ok(ModelEntry {
        name: file.file_stem().unwrap_or_default().to_string_lossy().into_owned(),
        about: "a file that is not in the catalog".to_owned(),
        is_default: false,
        sha256: check::noted(&file),
        file,
        bytes: own.max(bytes),
        license: None,
        status: Status::Foreign,
    })
}

/// The entry of a model folder, which is not hashed.
pub(super) fn folder(path: &Path) -> Result<ModelEntry, std::io::Error> {
    let files = fs::read_dir(path)?.filter_map(|entry| fs::metadata(entry.ok()?.path()).ok()); // links followed
    Ok(ModelEntry {
        name: path.file_name().unwrap_or_default().to_string_lossy().into_owned(),
        about: "a model folder".to_owned(),
        is_default: false,
        file: path.to_owned(),
        bytes: files.filter(fs::Metadata::is_file).map(|meta| meta.len()).sum(),
        sha256: None,
        license: None,
        status: Status::Foreign,
    })
}

fn damaged(why: &dyn std::fmt::Display) -> Status {
    Status::Damaged { why: why.to_string() }
}

fn is_model(path: &Path) -> bool {
    let hidden = path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.'));
    !hidden && path.is_file() && path.extension().is_some_and(|end| end.eq_ignore_ascii_case("gguf"))
}

fn paths_in(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).into_iter().flatten();
    entries.filter_map(|entry| Some(entry.ok()?.path())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_shows_known_and_own_files_and_no_rubbish() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::at(dir.path().join("models"));
        assert_eq!(cache.list().unwrap()[0].status, Status::Missing);

        fs::create_dir_all(cache.scratch()).unwrap();
        for name in ["mine.gguf", ".hidden.gguf", "notes.txt", ".partial/x.gguf"] {
            fs::write(cache.dir().join(name), "abc").unwrap();
        }
        let entries = cache.list().unwrap();
        let names: Vec<_> = entries.iter().map(|entry| entry.name.as_str()).collect();
        assert_eq!(names, ["smollm2-135m", "mine"]);
        assert_eq!((entries[1].bytes, &entries[1].status), (3, &Status::Foreign));
    }

    #[test]
    fn a_file_of_the_wrong_size_is_damaged() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::at(dir.path().to_owned());
        fs::write(cache.path_of(&known_model::DEFAULT), "short").unwrap();
        let why = "size is 5 bytes, expected 98362432".to_owned();
        assert_eq!(cache.check(&known_model::DEFAULT), Status::Damaged { why });
    }

    #[test]
    fn a_sweep_spares_a_running_fetch() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::at(dir.path().to_owned());
        fs::create_dir_all(cache.scratch()).unwrap();
        let lock = cache.lock(&mut ()).unwrap();
        cache.sweep();
        assert!(cache.scratch().exists());
        drop(lock);
        cache.sweep();
        assert!(!cache.scratch().exists());
    }

    #[test]
    fn removing_deletes_the_file_and_its_note_and_nothing_outside() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::at(dir.path().join("models"));
        let gone = cache.remove("mine", &mut ()).unwrap_err();
        assert!(gone.to_string().starts_with("'mine' is not in the cache at "));
        assert!(!cache.dir().exists(), "a failed removal creates nothing");

        fs::create_dir_all(cache.dir()).unwrap();
        let (mine, outside) = (cache.dir().join("mine.gguf"), dir.path().join("out.gguf"));
        fs::write(&mine, "abc").unwrap();
        fs::write(&outside, "abc").unwrap();
        check::note(&mine, "cafe");
        assert_eq!(cache.remove("mine", &mut ()).unwrap().bytes, 3);
        assert!(!mine.exists() && !check::note_path(&mine).exists());
        assert!(cache.remove("../out.gguf", &mut ()).is_err());
        assert!(cache.remove("smollm2-135m", &mut ()).is_err());
        assert!(outside.exists());
    }
}
