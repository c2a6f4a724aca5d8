//! How a process ends that a signal kills: in a sentence where that is possible, and with the signal otherwise.

#![cfg(unix)]
#![allow(clippy::unwrap_used)] // a test that cannot go on should stop

mod common;

use std::fs::OpenOptions;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Output};

use common::tiny::Tiny;
use draftscope::model::gguf::GgufFile;
use signal_hook::consts::{SIGABRT, SIGBUS};

/// Names what [`a_process_that_ends`] does.
const TASK: &str = "DRAFTSCOPE_TEST_FATAL";

/// Runs that test alone in a process of its own.
fn ended(task: &str) -> (Output, String) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    let out = command.args(["a_process_that_ends", "--exact", "--nocapture"]).env(TASK, task).output().unwrap();
    let errors = String::from_utf8_lossy(&out.stderr).into_owned();
    (out, errors)
}

/// Nothing, unless it is started by another test.
#[test]
fn a_process_that_ends() {
    let Ok(task) = std::env::var(TASK) else { return };
    draftscope::fatal::install();
    match task.as_str() {
        "abort" => std::process::abort(),
        "overflow" => println!("{}", overflow(1)),
        task => read_what_was_cut(task == "mapped"),
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

/// Reads a model file that is cut short after it was opened; or has another process' SIGBUS come.
fn read_what_was_cut(is_mapped: bool) {
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
fn a_model_file_that_is_cut_short_ends_the_program_with_a_sentence() {
    let (out, errors) = ended("mapped");
    assert_eq!(out.status.code(), Some(2), "{errors}");
    assert_eq!(errors.lines().filter(|line| line.contains("a model file was cut short")).count(), 1, "{errors}");
}

#[test]
fn other_signals_end_the_program_as_ever() {
    let (out, errors) = ended("abort");
    assert_eq!(out.status.signal(), Some(SIGABRT));
    assert!(errors.contains("draftscope: the program was aborted"), "{errors}");
    let (out, errors) = ended("sent");
    assert_eq!(out.status.signal(), Some(SIGBUS), "{errors}");
    let (out, errors) = ended("overflow");
    assert_eq!(out.status.signal(), Some(SIGABRT));
    assert!(errors.contains("has overflowed its stack"), "{errors}");
}
