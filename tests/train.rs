//! `draftscope train` with a shell script in place of Python: errors, progress, and processes after the end.

#![allow(clippy::unwrap_used)] // a test that cannot go on should stop
#![cfg(unix)]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/checkpoints").join(name)
}

/// A folder for work and module, and a script in place of Python.
struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    fn new(script: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let python = folder.path().join("python");
        fs::write(&python, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&python, fs::Permissions::from_mode(0o755)).unwrap();
        Self { folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn command(&self, model: &Path, more: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_draftscope"));
        command.env_remove("DRAFTSCOPE_MODEL").env_remove("MTP_ROOT").env("NO_COLOR", "1").arg("train");
        command.arg("--model").arg(model).arg("--out").arg(self.path("out")).arg("--work").arg(self.path("work"));
        command.arg("--python").arg(self.path("python")).args(more);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn run(&self, model: &str, more: &[&str]) -> Output {
        self.command(&fixture(model), more).output().unwrap()
    }
}

fn errors(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
    let started = Instant::now();
    while !is_so() {
        assert!(started.elapsed() < Duration::from_secs(60), "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn all_steps_run_and_progress_is_shown() {
    let place = Place::new(
        r#"echo "$2 $3" >> "$MTP_ROOT/steps"
case "$2" in mtp_training.train) echo '{"event":"train","step":9,"tokens":700,"tokens_per_s":10,"lr":0.001,"ce":[2.5],"agree":[0.4]}';; esac"#,
    );
    let output = place.run("llama.gguf", &["--tokens", "1000"]);
    assert!(output.status.success(), "{}", errors(&output));
    let steps = fs::read_to_string(place.path("work/steps")).unwrap();
    let expected =
        ["make_data tasks", "make_data generate", "make_data stats", "states", "train module", "export module"];
    let ran: Vec<_> = steps.lines().map(|line| line.trim_start_matches("mtp_training.")).collect();
    assert_eq!(ran.len(), 6, "{steps}");
    assert!(ran.iter().zip(expected).all(|(ran, expected)| ran.starts_with(expected)), "{steps}");
    assert!(errors(&output).contains("700 tokens of 1000 (70 %, 1 min left)"), "{}", errors(&output));
}

#[test]
fn an_unsupported_model_is_rejected_before_the_first_step() {
    let place = Place::new(r#"touch "$MTP_ROOT/ran""#);
    for (model, reason) in [("qwen3.gguf", "this is qwen3"), ("llama", "reads only GGUF files"), ("make.py", "")] {
        let output = place.run(model, &[]);
        assert_eq!(output.status.code(), Some(2), "{model}");
        assert!(errors(&output).contains(reason), "{model}: {}", errors(&output));
    }
    assert!(!place.path("work/ran").exists());
}

#[test]
fn a_failed_step_reports_why_and_only_the_same_arguments_continue_it() {
    let place = Place::new("echo 'the disk is full' >&2; exit 3");
    let failed = place.run("llama.gguf", &["--conversations", "200"]);
    assert_eq!(failed.status.code(), Some(2));
    assert!(errors(&failed).contains("\"prompts\"") && errors(&failed).contains("the disk is full"));
    let other = place.run("llama.gguf", &["--conversations", "300"]);
    assert!(errors(&other).contains("was begun with --conversations 200"), "{}", errors(&other));
}

/// Process ids that the script wrote.
fn noted(file: &Path) -> Vec<u32> {
    fs::read_to_string(file).unwrap_or_default().lines().filter_map(|line| line.trim().parse().ok()).collect()
}

fn is_running(id: u32) -> bool {
    // a process that has ended and was not waited for is a zombie
    let state = fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
    state.rsplit(") ").next().is_some_and(|rest| !rest.is_empty() && !rest.starts_with('Z'))
}

fn signal(child: &Child) {
    let status = Command::new("kill").arg("-TERM").arg(child.id().to_string()).status().unwrap();
    assert!(status.success());
}

#[test]
#[cfg(target_os = "linux")]
fn a_signal_ends_the_step_with_its_children_and_the_folder_is_locked_until_then() {
    let place = Place::new(r#"sleep 300 & echo $! >> "$MTP_ROOT/ids"; echo $$ >> "$MTP_ROOT/ids"; wait"#);
    let child = place.command(&fixture("llama.gguf"), &[]).spawn().unwrap();
    let ids = place.path("work/ids");
    wait_for("the step did not start", || noted(&ids).len() == 2);
    let second = place.run("llama.gguf", &[]);
    assert!(errors(&second).contains("another draftscope train is working"), "{}", errors(&second));
    signal(&child);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(143));
    assert!(errors(&output).contains("the same command continues from there"), "{}", errors(&output));
    wait_for("a process keeps running", || noted(&ids).iter().all(|id| !is_running(*id)));
}
