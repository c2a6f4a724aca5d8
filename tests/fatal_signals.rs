//! Fatal signals: the process ends with a message if possible, and otherwise by the signal.

#![cfg(unix)]
#![allow(clippy::unwrap_used)] // a test that cannot go on should stop

mod common;

use std::fs::OpenOptions;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Output};

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
    draftscope::fatal::install();
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
    assert!(errors.contains("draftscope: the program was aborted"), "{errors}");
    let (out, errors) = ended("sent");
    assert_eq!(out.status.signal(), Some(SIGBUS), "{errors}");
    let (out, errors) = ended("overflow");
    assert_eq!(out.status.signal(), Some(SIGABRT));
    assert!(errors.contains("has overflowed its stack"), "{errors}");
}

/// Runs a tiny model with at most this many KiB of address space.
fn run_within(kib: u32, backend: &str, model: &Path) -> (Output, String) {
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -c 0; ulimit -v \"$1\"; shift; exec \"$@\"", "sh", &kib.to_string()]);
    command.arg(env!("CARGO_BIN_EXE_draftscope")).args([
        "run",
        "--device",
        "cpu",
        "--threads",
        "2",
        "--max-tokens",
        "2",
    ]);
    command.args(["--backend", backend, "--drafter", "none", "--prompt", "the inn", "--model"]).arg(model);
    let out = command.env_remove("DRAFTSCOPE_MODEL").env("NO_COLOR", "1").output().unwrap();
    let errors = String::from_utf8_lossy(&out.stderr).into_owned();
    (out, errors)
}

#[cfg(target_os = "linux")] // only there is the address space limited
#[test]
fn refused_memory_ends_the_program_with_a_message() {
    let (model, mut refused) = (checkpoint::path("qwen3"), 0);
    for kib in (40_000..140_000).step_by(8_000) {
        for backend in ["native", "candle"] {
            let (out, errors) = run_within(kib, backend, &model);
            let last = errors.lines().last().unwrap_or_default();
            refused += usize::from(last.starts_with("draftscope: there is not enough memory: the system refuses "));
            match (out.status.code(), out.status.signal()) {
                (Some(0), _) => {}
                // the dynamic loader or the shell cannot start the program
                (Some(127), _) | (_, Some(signal_hook::consts::SIGKILL | signal_hook::consts::SIGSEGV))
                    if kib < 60_000 => {}
                (Some(2), _) => assert!(last.starts_with("draftscope: "), "{kib} {backend}: {errors}"),
                // the rest of what a second thread prints, whose allocation fails too, may follow as a line
                (_, Some(SIGABRT)) => {
                    let is_reported = errors.lines().rev().take(2).any(|line| line.starts_with("draftscope: "));
                    assert!(is_reported, "{kib} {backend}: {errors}");
                }
                other => panic!("{kib} {backend}: {other:?} {errors}"),
            }
        }
    }
    assert!(refused > 0, "no run was refused memory for its weights or its cache");
}
