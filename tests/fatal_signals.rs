//! Fatal signals: the process ends with a message if possible, and otherwise by the signal.

#![cfg(unix)]
#![allow(clippy::unwrap_used)] // a test that cannot go on should stop

mod common;

use std::fs::OpenOptions;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use common::checkpoint;
use common::tiny::Tiny;
use draftscope::model::files::GgufFile;
use signal_hook::consts::{SIGABRT, SIGBUS};

/// Environment variable with the task of [`a_process_that_ends`].
const TASK: &str = "DRAFTSCOPE_TEST_FATAL";

/// Runs only that test, in a separate process.
fn ended(task: &str) -> (Output, String) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    let out = command.args(["a_process_that_ends", "--exact", "--nocapture"]).env(TASK, task).output().unwrap();
    let errors = String::from_utf8_lossy(&out.stderr).into_owned();
    (out, errors)
}

/// Does nothing unless another test starts it.
#[test]
fn a_process_that_ends() {
    let Ok(task) = std::env::var(TASK) else { return };
    draftscope::host::fatal::install();
    match task.as_str() {
        "abort" => std::process::abort(),
        "overflow" => println!("{}", overflow(1)),
        task => read_truncated(task == "mapped"),
    }
}

/// Overflows the stack.
fn overflow(depth: u64) -> u64 {
    if depth == u64::MAX {
        return 0;
    }
    let page = std::hint::black_box([depth; 512]);
    overflow(depth + 1) + page[7]
}

/// Reads a model file that is truncated after it was opened, or raises a SIGBUS that has nothing to do with a file.
fn read_truncated(is_mapped: bool) {
    let tiny = Tiny::new(3);
    let file = GgufFile::open(&tiny.target).unwrap();
    if is_mapped {
        OpenOptions::new().write(true).open(&tiny.target).unwrap().set_len(0).unwrap();
        let weights = file.vector("output_norm.weight", common::tiny::D).unwrap();
        panic!("a weight is {}", weights[0]);
    }
    signal_hook::low_level::raise(SIGBUS).unwrap();
}

#[test]
fn a_truncated_model_file_ends_the_program_with_a_message() {
    let (out, errors) = ended("mapped");
    assert_eq!(out.status.code(), Some(2), "{errors}");
    assert_eq!(errors.lines().filter(|line| line.contains("a model file was truncated")).count(), 1, "{errors}");
}

#[test]
fn other_signals_end_the_program_by_the_signal() {
    let (out, errors) = ended("abort");
    assert_eq!(out.status.signal(), Some(SIGABRT));
    assert!(errors.contains("draftscope: the program was aborted by an internal error"), "{errors}");
    let (out, errors) = ended("sent");
    assert_eq!(out.status.signal(), Some(SIGBUS), "{errors}");
    let (out, errors) = ended("overflow");
    assert_eq!(out.status.signal(), Some(SIGABRT));
    assert!(errors.contains("has overflowed its stack"), "{errors}");
}

/// A recording is there from before the model is loaded until the program ends, and has no event yet.
#[test]
fn a_signal_while_a_model_loads_leaves_no_empty_recording() {
    let tiny = Tiny::new(3);
    let trace = tiny.folder.path().join("t.jsonl");
    for signal in ["INT", "TERM", "QUIT", "ABRT", "USR1", "ALRM", "XCPU"] {
        // what started the tests may ignore some signals, as nohup does
        let mut command = Command::new(if cfg!(target_os = "linux") { "env" } else { "sh" });
        if cfg!(target_os = "linux") {
            command.args(["--default-signal", "sh"]);
        }
        command.args(["-c", "ulimit -c 0; exec \"$@\"", "sh", env!("CARGO_BIN_EXE_draftscope"), "run", "--model"]);
        command.arg(&tiny.target).args(["--drafter", "none", "--prompt", "the inn", "--trace"]).arg(&trace);
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        while !trace.exists() && child.try_wait().unwrap().is_none() {
            std::thread::sleep(Duration::from_millis(1));
        }
        // it may have answered meanwhile
        let pid = child.id().to_string();
        let _ = Command::new("kill").args([&format!("-{signal}"), &pid]).stderr(Stdio::null()).status();
        child.wait().unwrap();
        let left = std::fs::metadata(&trace).map(|left| left.len());
        assert!(!left.is_ok_and(|len| len == 0), "{signal}: an empty recording is left");
        let _ = std::fs::remove_file(&trace);
    }
}

/// Longest run of a tiny model, on a busy machine too.
const PATIENCE: Duration = Duration::from_secs(60);

/// KiB of address space below which the dynamic loader or the shell may be unable to start the program.
fn to_start() -> u64 {
    std::fs::metadata(env!("CARGO_BIN_EXE_draftscope")).unwrap().len().div_ceil(1024).max(60_000)
}

/// A run of a tiny model with bounded address space.
struct Bounded<'a> {
    model: &'a Path,
    backend: &'a str,
    /// Positions of the cache.
    ctx: u32,
    backtrace: &'a str,
}

impl Bounded<'_> {
    /// Runs with at most this many KiB of address space. How it ended, and what it said.
    fn within(&self, kib: u64) -> (Output, String) {
        let mut command = assert_cmd::Command::new("sh");
        command.args(["-c", "ulimit -c 0; ulimit -v \"$1\"; shift; exec \"$@\"", "sh", &kib.to_string()]);
        command.arg(env!("CARGO_BIN_EXE_draftscope")).args(["run", "--device", "cpu", "--threads", "2"]);
        command.args(["--max-tokens", "2", "--drafter", "none", "--prompt", "the inn", "--backend", self.backend]);
        command.args(["--ctx", &self.ctx.to_string(), "--model"]).arg(self.model).timeout(PATIENCE);
        command.env_remove("DRAFTSCOPE_MODEL").env("NO_COLOR", "1").env("RUST_BACKTRACE", self.backtrace);
        let out = command.output().unwrap();
        let errors = String::from_utf8_lossy(&out.stderr).into_owned();
        (out, errors)
    }

    /// Runs, and checks that the program answered or ended with a message. Whether it answered.
    fn answers_or_says_why(&self, kib: u64) -> bool {
        let (out, errors) = self.within(kib);
        let backend = self.backend;
        let is_last = |lines: usize| errors.lines().rev().take(lines).any(|line| line.starts_with("draftscope: "));
        match (out.status.code(), out.status.signal()) {
            (Some(0), _) => return true,
            // the dynamic loader or the shell cannot start the program
            (Some(127), _) | (_, Some(signal_hook::consts::SIGKILL | signal_hook::consts::SIGSEGV))
                if kib < to_start() => {}
            (Some(2), _) => assert!(is_last(1), "{kib} {backend}: {errors}"),
            // the rest of what a second thread prints, whose allocation fails too, may follow as a line
            (_, Some(SIGABRT)) => {
                assert!(is_last(2), "{kib} {backend}: {errors}");
                assert!(!errors.contains("internal error"), "{kib} {backend}: memory was refused: {errors}");
            }
            other => panic!("{kib} {backend}: {other:?} {errors}"),
        }
        false
    }
}

/// A tiny model whose cache may take more than the rest of the program.
#[cfg(target_os = "linux")]
fn with_a_long_context() -> tempfile::TempDir {
    let folder = checkpoint::copy("qwen3");
    checkpoint::edit(folder.path(), "config.json", |config| config["max_position_embeddings"] = (1 << 20).into());
    folder
}

#[cfg(target_os = "linux")] // only there is the address space limited
#[test]
fn refused_memory_ends_the_program_with_a_message() {
    let folder = with_a_long_context();
    for (backend, backtrace) in [("native", "1"), ("candle", "0"), ("native", "0"), ("candle", "1")] {
        let small = Bounded { model: folder.path(), backend, ctx: 64, backtrace };
        // the limit above which it runs, to 1 MiB
        let (mut refused, mut enough) = (20_000, 2_000_000);
        assert!(small.answers_or_says_why(enough), "{backend}: it runs with {enough} KiB");
        while enough - refused > 1024 {
            let kib = u64::midpoint(refused, enough);
            *(if small.answers_or_says_why(kib) { &mut enough } else { &mut refused }) = kib;
        }
        // and below it in steps, of which each refuses memory somewhere else: of the four, one in small steps
        let step = if (backend, backtrace) == ("native", "1") { 5 << 10 } else { 50 << 10 };
        let below = (enough.saturating_sub(150 << 10).max(to_start())..enough).step_by(step);
        for kib in below {
            small.answers_or_says_why(kib);
        }
        // what is enough for a small cache is not for one of 512 MiB or more
        let large = Bounded { ctx: 1 << 20, ..small };
        let (out, errors) = large.within(enough + 400_000);
        assert_eq!(out.status.code(), Some(2), "{backend}: {errors}");
        let last = errors.lines().last().unwrap_or_default();
        assert!(last.starts_with("draftscope: there is not enough memory: the system refuses "), "{backend}: {errors}");
    }
}
