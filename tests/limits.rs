//! Limits of the system on a process: the size of files, and the number of threads and processes. Whatever is refused, the
//! program ends in time, with one sentence and without a panic.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used)] // a test that cannot go on should stop

#[path = "common/asked.rs"]
mod asked;
mod common;
#[path = "common/hub.rs"]
mod hub;

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Output;
use std::time::Duration;

use asked::{chunk, models, serve, stream};
use common::tiny::Tiny;
use hub::ScriptedHub;
use serde_json::json;

/// Longest run of a tiny model, on a busy machine too.
const PATIENCE: Duration = Duration::from_secs(120);

/// What a short answer of the tiny model needs.
const RUN: [&str; 11] =
    ["run", "--model", "tiny.gguf", "--max-tokens", "2", "--drafter", "none", "--ctx", "128", "--prompt", "the inn"];

/// A user that the system does not know, so that nothing else runs under its limits.
const USER: &str = "--reuid=54322";

/// The program in a folder, started by this command, without the user's configuration.
fn started_by(starter: &[&str], folder: &Path, args: &[&str]) -> assert_cmd::Command {
    let mut command = assert_cmd::Command::new(starter[0]);
    command.args(&starter[1..]).arg(env!("CARGO_BIN_EXE_draftscope")).args(args).current_dir(folder).timeout(PATIENCE);
    command.env("NO_COLOR", "1").env("HOME", folder).env("DRAFTSCOPE_CONFIG", folder.join("config.toml"));
    command.env("HF_HOME", folder.join("hf")).env("DRAFTSCOPE_CACHE", folder.join("cache"));
    for name in ["DRAFTSCOPE_MODEL", "DRAFTSCOPE_API_KEY", "HF_TOKEN", "HF_HUB_OFFLINE", "HF_HUB_CACHE", "HF_ENDPOINT"]
    {
        command.env_remove(name);
    }
    for name in ["XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_DATA_HOME", "RUST_BACKTRACE"] {
        command.env_remove(name);
    }
    command
}

fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A bundled recording.
fn recording() -> String {
    format!("{}/assets/traces/chat.dscope.jsonl.zst", env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn a_limit_on_the_size_of_files_is_one_sentence_and_leaves_no_temporary_file() {
    let tiny = Tiny::new(5);
    let folder = tiny.folder.path();
    let recording = recording();
    let limited = ["sh", "-c", "ulimit -f 2; exec \"$@\"", "sh"]; // 1 KiB
    let traced = [&RUN[..], &["--trace", "t.jsonl"]].concat();
    for args in [
        &["export", "--to", "html", "--out", "page.html", &recording][..],
        &["export", "--to", "gif-frames", "--out", "frames", &recording],
        &["export", "--to", "csv", "--out", "t.csv", &recording],
        &["config", "init"],
        &traced,
    ] {
        let output = started_by(&limited, folder, args).output().unwrap();
        let errors = errors(&output);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {errors}");
        let said: Vec<_> = errors.lines().filter(|line| line.contains("File too large")).collect();
        assert!(said.len() == 1 && said[0].starts_with("draftscope: "), "{args:?}: {errors}");
        assert!(!errors.contains("panicked"), "{args:?}: {errors}");
        let names = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let left: Vec<_> = names.filter(|name| name.starts_with(".draftscope-") || name.starts_with(".tmp")).collect();
        assert!(left.is_empty(), "{args:?}: {left:?}");
    }
}

#[test]
fn more_threads_than_any_machine_has_are_reduced_with_a_sentence() {
    let tiny = Tiny::new(5);
    let output = started_by(&["env", "RAYON_NUM_THREADS=5000"], tiny.folder.path(), &RUN).output().unwrap();
    let errors = errors(&output);
    assert!(output.status.success() && !output.stdout.is_empty(), "{errors}");
    assert!(errors.contains("RAYON_NUM_THREADS asks for 5000 threads; 512 are used"), "{errors}");
}

#[test]
fn every_number_of_threads_that_the_system_allows_ends_the_program_in_time_and_with_a_sentence() {
    let tiny = Tiny::new(5);
    let folder = tiny.folder.path();
    std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o777)).unwrap();
    let probe = started_by(&["setpriv", USER, "--clear-groups"], folder, &["--version"]).output();
    if !probe.is_ok_and(|probe| probe.status.success()) {
        eprintln!("left out: only root can run the program as another user");
        return;
    }
    let (url, _) = serve(|asked| match asked.path.as_str() {
        "/v1/models" => Some(models(&["m"])),
        "/v1/chat/completions" => Some(stream(&[chunk(json!({"content": "One"}), json!("stop"))])),
        _ => None,
    });
    let hub = ScriptedHub::start(vec![("m-Q8_0.gguf".to_owned(), std::fs::read(&tiny.target).unwrap())]);
    let recording = recording();
    let commands = [
        &RUN[..],
        &["attach", &url, "--prompt", "x"],
        &["export", "--to", "html", "--force", "--out", "page.html", &recording],
        &["models", "info", "tiny.gguf"],
        &["models", "pull", "owner/name"],
    ];
    let (mut answered, mut refused, mut without_template) = (0, 0, 0);
    for threads in 1..=16 {
        let limit = format!("--nproc={threads}");
        for args in commands {
            let starter = ["setpriv", USER, "--clear-groups", "prlimit", &limit];
            let output = started_by(&starter, folder, args).env("HF_ENDPOINT", &hub.endpoint).output().unwrap();
            let errors = errors(&output);
            let code = output.status.code();
            assert!(matches!(code, Some(0..=2)), "{threads}, {args:?}: {:?} {errors}", output.status);
            assert!(!errors.contains("panicked"), "{threads}, {args:?}: {errors}");
            if code == Some(0) {
                answered += 1;
                assert!(!output.stdout.is_empty() || args[0] != "run", "{threads}, {args:?}: {errors}");
            } else {
                refused += 1;
                let last = errors.lines().last().unwrap_or_default();
                assert!(last.starts_with("draftscope: "), "{threads}, {args:?}: {errors}");
            }
            // a template whose process cannot be started is not no template
            assert!(!errors.contains("has no chat template"), "{threads}, {args:?}: {errors}");
            let says_why =
                ["could not be started", "starts no th", "Resource temp"].iter().any(|why| errors.contains(why));
            assert!(says_why || !errors.contains("does not run here"), "{threads}, {args:?}: {errors}");
            without_template += usize::from(errors.contains("does not run here"));
        }
    }
    assert!(answered > 0 && refused > 0 && without_template > 0, "{answered} {refused} {without_template}");
}
