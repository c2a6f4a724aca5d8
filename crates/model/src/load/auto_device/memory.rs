//! The memory of timed passes: one JSON file with the newest entries.
//!
//! Invariant: the file is replaced as a whole. One that is too long, damaged or impossible counts as empty, a failed write
//! is ignored, and no text of it is shown.

use std::io::Write;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use draftscope_gpu::AdapterInfo;
use serde::{Deserialize, Serialize};

use crate::interfaces::LoadContext;
use draftscope_host::file_access::{read_regular, temporary_file_in};
use draftscope_host::processor;

/// Largest file that is read, in bytes.
const MAX_BYTES: u64 = 128 << 10;

/// Entries that are kept: the newest ones.
const MAX_ENTRIES: usize = 64;

/// Files of a model folder whose sizes and times are read.
const MAX_FILES: usize = 4096;

/// What a measurement is valid for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Key {
    /// Name and version of the program.
    program: String,
    /// The target: its path, its size in bytes, and when it was changed.
    model: String,
    /// Adapter, API and driver.
    adapter: String,
    /// Architecture, name and number of processors, and threads if their number was chosen.
    cpu: String,
}

impl Key {
    /// Of a model on an adapter beside this machine's CPU.
    pub(super) fn of(context: &LoadContext<'_>, info: &AdapterInfo) -> Self {
        let options = context.options;
        let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let threads = options.threads.map_or_else(|| "auto".to_owned(), |threads| threads.to_string());
        Self {
            program: concat!("draftscope ", env!("CARGO_PKG_VERSION")).to_owned(),
            model: identity(&options.target),
            adapter: format!("{} {} {}", info.name, info.api, info.driver),
            cpu: format!("{} {} {processors} {threads}", std::env::consts::ARCH, processor::name()),
        }
    }
}

/// Path, size and time of change of a file, or of all files of a folder together.
fn identity(path: &Path) -> String {
    let of = |path: &Path| {
        let meta = std::fs::metadata(path).ok().filter(std::fs::Metadata::is_file)?;
        let changed = meta.modified().unwrap_or(SystemTime::UNIX_EPOCH);
        Some((meta.len(), changed.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos())))
    };
    let (size, changed) = of(path).unwrap_or_else(|| {
        let files = std::fs::read_dir(path).into_iter().flatten().take(MAX_FILES).flatten();
        let files = files.filter_map(|entry| of(&entry.path()));
        files.fold((0, 0), |(size, newest), (bytes, changed)| (size + bytes, newest.max(changed)))
    });
    let place = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    format!("{} {size} {changed}", place.display())
}

/// What was found.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Verdict {
    /// Median times of a pass over one row, in microseconds.
    Timed {
        /// On the GPU.
        gpu_us: f64,
        /// On the CPU.
        cpu_us: f64,
    },
    /// On the GPU a row's bits depend on the rows beside it.
    RowsDiffer,
    /// The GPU backend does not run the model.
    NotOnGpu,
    /// The GPU's memory does not suffice for contexts as long.
    GpuShort {
        /// Positions of the context.
        positions: u64,
    },
    /// The CPU's memory does not suffice for contexts as long, and the GPU's does.
    CpuShort {
        /// Positions of the context.
        positions: u64,
    },
}

impl Verdict {
    /// Whether the GPU runs the model: it is faster, or only its memory suffices.
    pub(super) fn takes_gpu(self) -> bool {
        match self {
            Self::Timed { gpu_us, cpu_us } => gpu_us < cpu_us,
            Self::CpuShort { .. } => true,
            Self::RowsDiffer | Self::NotOnGpu | Self::GpuShort { .. } => false,
        }
    }

    /// Whether it holds for a context of so many positions: memory that is short for one may suffice for a shorter one.
    pub(super) fn holds_for(self, ctx_len: usize) -> bool {
        match self {
            Self::GpuShort { positions } | Self::CpuShort { positions } => ctx_len as u64 >= positions,
            Self::Timed { .. } | Self::RowsDiffer | Self::NotOnGpu => true,
        }
    }

    fn is_possible(self) -> bool {
        let is_time = |us: f64| us.is_finite() && us > 0.0 && us < 1e9;
        match self {
            Self::Timed { gpu_us, cpu_us } => is_time(gpu_us) && is_time(cpu_us),
            Self::RowsDiffer | Self::NotOnGpu | Self::GpuShort { .. } | Self::CpuShort { .. } => true,
        }
    }
}

#[derive(Serialize, Deserialize)]
struct Entry {
    key: Key,
    verdict: Verdict,
}

fn entries(file: &Path) -> Vec<Entry> {
    let read = read_regular(file, MAX_BYTES).ok();
    read.and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or_default()
}

/// What was found for an equal key.
pub(super) fn recall(file: &Path, key: &Key) -> Option<Verdict> {
    let entry = entries(file).into_iter().rev().find(|entry| entry.key == *key)?;
    Some(entry.verdict).filter(|verdict| verdict.is_possible())
}

/// Adds what was found. The oldest entries are dropped.
pub(super) fn remember(file: &Path, key: &Key, verdict: &Verdict) {
    let mut entries = entries(file);
    entries.retain(|entry| entry.key != *key);
    let most = entries.len().saturating_sub(MAX_ENTRIES - 1);
    entries.drain(..most);
    entries.push(Entry { key: key.clone(), verdict: *verdict });
    let _ = write(file, &entries);
}

fn write(file: &Path, entries: &[Entry]) -> std::io::Result<()> {
    let folder = file.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(folder)?;
    let mut unfinished = temporary_file_in(folder)?;
    serde_json::to_writer_pretty(&mut unfinished, entries)?;
    unfinished.flush()?;
    unfinished.persist(file)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(model: &str) -> Key {
        Key { program: "p".into(), model: model.into(), adapter: "a".into(), cpu: "c".into() }
    }

    #[test]
    fn verdicts_are_kept_by_key_and_the_newest_ones_only() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("state/devices.json");
        assert_eq!(recall(&file, &key("1")), None);
        let timed = Verdict::Timed { gpu_us: 1.5, cpu_us: 2.5 };
        for model in 0..=MAX_ENTRIES {
            remember(&file, &key(&model.to_string()), &timed);
        }
        remember(&file, &key("2"), &Verdict::RowsDiffer);
        assert_eq!(recall(&file, &key("0")), None, "the oldest is dropped");
        assert_eq!(recall(&file, &key("1")), Some(timed));
        assert_eq!(recall(&file, &key("2")), Some(Verdict::RowsDiffer));
        assert_eq!(entries(&file).len(), MAX_ENTRIES);
        assert_eq!(std::fs::read_dir(folder.path().join("state")).unwrap().count(), 1, "nothing unfinished stays");
        assert!(timed.takes_gpu() && !Verdict::RowsDiffer.takes_gpu());
        assert!(!Verdict::Timed { gpu_us: 2.0, cpu_us: 2.0 }.takes_gpu());
        let short = [Verdict::GpuShort { positions: 64 }, Verdict::CpuShort { positions: 64 }];
        assert_eq!(short.map(Verdict::takes_gpu), [false, true]);
        assert_eq!([63, 64, 65].map(|ctx_len| short[0].holds_for(ctx_len)), [false, true, true]);
        assert!(timed.holds_for(1) && Verdict::NotOnGpu.holds_for(1) && !Verdict::NotOnGpu.takes_gpu());
        for (model, verdict) in short.iter().chain([&Verdict::NotOnGpu]).enumerate() {
            remember(&file, &key(&format!("s{model}")), verdict);
            assert_eq!(recall(&file, &key(&format!("s{model}"))), Some(*verdict));
        }
    }

    #[test]
    fn a_file_that_is_damaged_impossible_or_too_long_counts_as_empty() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("devices.json");
        let entry = |gpu_us: &str| {
            format!(
                r#"{{"key":{{"program":"p","model":"m","adapter":"a","cpu":"c"}},"verdict":{{"timed":{{"gpu_us":{gpu_us},"cpu_us":9}}}}}}"#
            )
        };
        let right = format!("[{}]", entry("1"));
        std::fs::write(&file, &right).unwrap();
        assert!(recall(&file, &key("m")).is_some_and(Verdict::takes_gpu));
        let long = format!("{right}{}", " ".repeat(MAX_BYTES as usize));
        for damage in
            ["", "[", "{}", "\u{0}", &entry("1"), &long, &format!("[{}]", entry("-1")), &format!("[{}]", entry("0"))]
        {
            std::fs::write(&file, damage).unwrap();
            assert_eq!(recall(&file, &key("m")), None, "{}", &damage[..damage.len().min(80)]);
        }
        remember(&file, &key("m"), &Verdict::RowsDiffer);
        assert_eq!(recall(&file, &key("m")), Some(Verdict::RowsDiffer), "a damaged file is replaced");
    }

    #[test]
    fn a_model_is_another_one_after_a_change() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.gguf");
        std::fs::write(&file, "one").unwrap();
        let (of_file, of_folder) = (identity(&file), identity(folder.path()));
        assert_eq!(identity(&file), of_file);
        std::fs::write(&file, "three").unwrap();
        assert!(identity(&file) != of_file && identity(folder.path()) != of_folder);
    }
}
