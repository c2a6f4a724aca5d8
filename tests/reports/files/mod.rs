//! What a file is, and whether it runs.

mod agree;
mod draft_model;
mod folders;
mod kinds;
mod odd;

use std::path::Path;
use std::process::{Command, Output};

fn draftscope(args: &[&str], file: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_draftscope"));
    command.args(args).arg(file).env_remove("DRAFTSCOPE_MODEL").env("NO_COLOR", "1").env("RUST_BACKTRACE", "1");
    command.output().unwrap()
}

/// What `models info` says of a file: the whole text, and why it does not run.
fn info(file: &Path) -> (String, Option<String>) {
    let output = draftscope(&["models", "info"], file);
    let text = String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap();
    let problem = text.lines().find_map(|line| line.strip_prefix("runs     no: ")).map(str::to_owned);
    (text, problem)
}

/// What a run on the CPU reports: notices, or the error.
fn run(file: &Path) -> Result<String, String> {
    let args = ["run", "--device", "cpu", "--raw", "--prompt", "a", "--max-tokens", "2", "--ctx", "32", "--model"];
    let output = draftscope(&args, file);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code().is_some(), "{said}");
    if output.status.success() { Ok(said) } else { Err(said) }
}

/// `models info` and `run` reject a file with the same sentence, which says this; neither prints a control character.
fn refused(file: &Path, says: &str) {
    let (text, problem) = info(file);
    let problem = problem.unwrap_or_else(|| panic!("{says}: {text}"));
    let error = run(file).expect_err(says);
    assert!(problem.contains(says), "{says}: {problem}");
    assert!(error.contains(&problem) && error.trim_end().lines().count() == 1, "{problem}\n{error}");
    let is_plain = |text: &str| text.chars().all(|c| !c.is_control() || c == '\n');
    assert!(is_plain(&text) && is_plain(&error), "{text}{error}");
}

/// `models info` says that a file runs, and it runs; returns what both print.
fn runs(file: &Path) -> (String, String) {
    let (text, problem) = info(file);
    assert_eq!(problem, None, "{}", file.display());
    let said = run(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    (text, said)
}

/// The header of a safetensors file.
fn header(bytes: &[u8]) -> serde_json::Map<String, serde_json::Value> {
    let len = u64::from_le_bytes(*bytes.first_chunk().unwrap()) as usize;
    serde_json::from_slice(&bytes[8..8 + len]).unwrap()
}

/// The file with another header.
fn with_header(bytes: &[u8], header: &serde_json::Map<String, serde_json::Value>) -> Vec<u8> {
    let len = u64::from_le_bytes(*bytes.first_chunk().unwrap()) as usize;
    let text = serde_json::to_vec(header).unwrap();
    [&(text.len() as u64).to_le_bytes()[..], &text, &bytes[8 + len..]].concat()
}
