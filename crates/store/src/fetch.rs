//! Fetches a model into the cache: tries the sources in order and checks every byte.
//!
//! Invariant: bytes go to a temporary file in the cache directory, which gets its final name by one
//! rename, after size and sha256 are checked and the file is on disk. If anything fails, the file
//! under the final name stays as it was. [`super::hub`] and [`super::pip`] get the bytes.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::Path;
use std::time::Instant;

use indicatif::DecimalBytes;
use sha2::{Digest, Sha256};
use tempfile::TempPath;

use super::cache::{Cache, RESUMABLE};
use super::check::{self, Mismatch};
use super::entry::{Pulled, Status};
use super::error::{Attempt, Exhausted, SourceError, StoreError};
use super::known_model::KnownModel;
use super::progress::Progress;
use super::source_kind::SourceKind;

/// How to pull.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PullOptions {
    /// Fetch also when the file in the cache is right.
    pub force: bool,
    /// Ask this source only.
    pub from: Option<SourceKind>,
}

/// A place that can deliver a model's file.
pub(super) trait ModelSource: Send + Sync {
    /// Which kind of place.
    fn kind(&self) -> SourceKind;

    /// The place, as messages name it.
    fn place(&self, model: &KnownModel) -> String;

    /// Hands the whole file, from its first byte, to the delivery.
    fn fetch(&self, model: &KnownModel, to: &mut Delivery<'_>) -> Result<(), SourceError>;
}

/// Takes what a source delivers.
pub(super) struct Delivery<'a> {
    /// A directory for the source's temporary files; emptied afterwards.
    pub(super) scratch: &'a Path,
    /// Receives the source's progress.
    pub(super) progress: &'a mut dyn Progress,
    intake: Intake,
}

impl Delivery<'_> {
    /// Appends all that a reader delivers to the file.
    pub(super) fn take(&mut self, reader: &mut dyn Read) -> Result<(), SourceError> {
        let mut buffer = vec![0; 1 << 18];
        loop {
            match reader.read(&mut buffer) {
                Ok(0) => return Ok(()),
                Ok(n) => self.intake.add(&buffer[..n])?,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => {
                    let done = DecimalBytes(self.intake.bytes);
                    return Err(SourceError::Failed(format!("it broke off after {done}: {error}")));
                }
            }
        }
    }
}

/// The temporary file, with digest and length of its contents so far. Deleted on drop unless finished.
struct Intake {
    file: File,
    path: TempPath,
    hasher: Sha256,
    bytes: u64,
    expected: u64,
}

impl Intake {
    fn new(path: &Path, expected: u64) -> Result<Self, StoreError> {
        let file = File::create(path).map_err(StoreError::cache("create", path))?;
        let path = TempPath::try_from_path(path).map_err(StoreError::cache("create", path))?;
        Ok(Self { file, path, hasher: Sha256::new(), bytes: 0, expected })
    }

    fn add(&mut self, bytes: &[u8]) -> Result<(), SourceError> {
        self.bytes += bytes.len() as u64;
        if self.bytes > self.expected {
            return Err(Mismatch::TooLong { expected: self.expected }.into());
        }
        self.hasher.update(bytes);
        self.file.write_all(bytes).map_err(|source| SourceError::Write { path: self.path.to_path_buf(), source })
    }

    /// Checks the contents, writes them to the disk and gives the file its final name; all or nothing.
    fn finish(self, model: &KnownModel, place: &Path) -> Result<(), SourceError> {
        let sha256 = check::hex(&self.hasher.finalize());
        Mismatch::find(model, self.bytes, &sha256)?;
        let failed = |source| SourceError::Write { path: place.to_owned(), source };
        self.file.sync_all().map_err(failed)?;
        self.path.persist(place).map_err(|error| failed(error.error))?;
        if let Some(dir) = place.parent().and_then(|dir| File::open(dir).ok()) {
            let _ = dir.sync_all(); // so that the name survives a power cut, where directories can be synced
        }
        check::note(place, &sha256);
        Ok(())
    }
}

/// Brings a model into the cache, from the first source that delivers it, unless a correct file is there.
pub(super) fn pull(
    cache: &Cache,
    sources: &[Box<dyn ModelSource>],
    model: &KnownModel,
    options: PullOptions,
    progress: &mut dyn Progress,
) -> Result<Pulled, StoreError> {
    let started = Instant::now();
    let pulled =
        |source| Pulled { entry: cache.entry(model, Status::Ready), drafter: None, source, took: started.elapsed() };
    let lock = cache.lock(progress)?;
    let status = cache.check(model);
    if status == Status::Ready && !options.force {
        return Ok(pulled(None));
    }
    cache.clear_scratch(&lock, Some(RESUMABLE));
    let mut tried = vec![cached(cache, &status)];
    for source in sources.iter().filter(|source| options.from.is_none_or(|kind| kind == source.kind())) {
        match fetch(cache, source.as_ref(), model, progress) {
            Ok(()) => {
                cache.clear_scratch(&lock, None);
                return Ok(pulled(Some(source.kind())));
            }
            Err(FetchError::TryNext(attempt)) => {
                progress.step(&format!("  failed: {}", attempt.why));
                tried.push(attempt);
            }
            Err(FetchError::Fatal(error)) => return Err(error),
        }
    }
    Err(StoreError::NoSource(Box::new(Exhausted {
        name: model.name.to_owned(),
        tried,
        place: cache.path_of(model),
        sha256: model.sha256.to_owned(),
    })))
}

/// Why a source did not deliver.
enum FetchError {
    /// The next source may.
    TryNext(Attempt),
    /// No source can help.
    Fatal(StoreError),
}

/// Tries one source; the caller has the lock.
fn fetch(
    cache: &Cache,
    source: &dyn ModelSource,
    model: &KnownModel,
    progress: &mut dyn Progress,
) -> Result<(), FetchError> {
    let place = source.place(model);
    let size = DecimalBytes(model.bytes);
    progress.step(&format!("Fetching {} ({size}) from {place}", model.name));
    let scratch = cache.scratch();
    fs::create_dir_all(&scratch).map_err(|error| FetchError::Fatal(StoreError::cache("create", &scratch)(error)))?;
    let intake = Intake::new(&scratch.join(format!("{}.part", model.file)), model.bytes).map_err(FetchError::Fatal)?;
    let mut delivery = Delivery { scratch: &scratch, progress, intake };
    let fetched = source.fetch(model, &mut delivery);
    delivery.progress.end();
    match fetched.and_then(|()| delivery.intake.finish(model, &cache.path_of(model))) {
        Ok(()) => Ok(()),
        Err(SourceError::Write { path, source }) => Err(FetchError::Fatal(StoreError::cache("write", &path)(source))),
        Err(error) => Err(FetchError::TryNext(Attempt { place, why: error.to_string() })),
    }
}

fn cached(cache: &Cache, status: &Status) -> Attempt {
    Attempt {
        place: format!("the cache, {}", cache.dir().display()),
        why: match status {
            Status::Damaged { why } => format!("the file there is damaged: {why}"),
            Status::Ready => "replaced because of --force".to_owned(),
            _ => "not there".to_owned(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_is_named_as_on_the_command_line() {
        for kind in [SourceKind::Hub, SourceKind::Pip] {
            assert_eq!(kind.to_string().parse(), Ok(kind));
        }
        assert_eq!("ftp".parse::<SourceKind>(), Err("no source 'ftp'; it is hub or pip".to_owned()));
    }
}
