//! Machines without what programs expect: no home, no folder for temporary files, a disk that takes no writes.
#![cfg(unix)]

use std::fs;

use assert_cmd::Command;

use super::{SHORT, draftscope, said};
use crate::common::tiny::Tiny;
use crate::hub::ScriptedHub;

/// Variables that name a folder for the user's files.
const HOMES: [&str; 9] = [
    "HF_HOME",
    "HF_HUB_CACHE",
    "DRAFTSCOPE_CACHE",
    "DRAFTSCOPE_CONFIG",
    "XDG_CACHE_HOME",
    "XDG_CONFIG_HOME",
    "XDG_STATE_HOME",
    "XDG_DATA_HOME",
    "HOME",
];

/// The program without the folders that the other tests give it.
fn homeless(folder: &std::path::Path, home: &str, args: &[&str]) -> Command {
    let mut command = draftscope(folder, args);
    for name in HOMES {
        command.env_remove(name);
    }
    command.env("HOME", home);
    command
}

fn run_of_own_file() -> Vec<&'static str> {
    ["run", "--model", "tiny.gguf"].into_iter().chain(SHORT).collect()
}

#[test]
fn a_home_that_is_missing_or_takes_no_files_stops_no_run() {
    let tiny = Tiny::new(5);
    let folder = tiny.folder.path();
    // no user can create anything in /proc
    for home in ["/proc/none", "/dev/null"] {
        let (code, out, error) = said(&mut homeless(folder, home, &run_of_own_file()));
        assert!(code == 0 && !out.is_empty(), "{home}: {error}");
        assert!(!error.contains(home), "{error}");
        for args in [&["models", "list"][..], &["models", "info", "tiny.gguf"], &["config", "show"], &["devices"]] {
            let (code, _, error) = said(&mut homeless(folder, home, args));
            assert_eq!(code, 0, "{home}, {args:?}: {error}");
        }
        let hub = ScriptedHub::start(vec![("m-Q8_0.gguf".to_owned(), b"GGUF".to_vec())]);
        let mut pull = homeless(folder, home, &["models", "pull", "owner/name"]);
        pull.env_remove("DRAFTSCOPE_OFFLINE").env("HF_ENDPOINT", &hub.endpoint);
        let (code, _, error) = said(&mut pull);
        assert!(
            code == 2 && error.contains(home) && error.contains("set HF_HUB_CACHE to another directory"),
            "{error}"
        );
        let (code, _, error) = said(&mut homeless(folder, home, &["config", "init"]));
        assert!(code == 2 && error.contains("cannot create") && error.contains("DRAFTSCOPE_CONFIG"), "{error}");
    }
}

#[test]
fn without_any_home_own_files_run() {
    use std::os::unix::fs::PermissionsExt;
    let tiny = Tiny::new(5);
    let folder = tiny.folder.path();
    fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).unwrap();
    // a user that the system does not know; only root can become one
    let nobody = |args: &[&str]| {
        let mut command = std::process::Command::new("setpriv");
        command.args(["--reuid=54321", "--clear-groups", env!("CARGO_BIN_EXE_draftscope")]).args(args);
        command.current_dir(folder).env("DRAFTSCOPE_OFFLINE", "1");
        for name in HOMES {
            command.env_remove(name);
        }
        command.output().ok()
    };
    let Some(output) = nobody(&run_of_own_file()) else { return };
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    if error.contains("setpriv") {
        return; // not root
    }
    assert!(output.status.success() && !output.stdout.is_empty(), "{error}");
    let output = nobody(&["models", "pull"]).unwrap();
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(error.contains("the home directory is unknown; set DRAFTSCOPE_CACHE"), "{error}");
}

#[test]
fn a_missing_folder_for_temporary_files_stops_nothing() {
    let tiny = Tiny::new(5);
    let folder = tiny.folder.path();
    let without = |args: &[&str]| said(draftscope(folder, args).env("TMPDIR", "/nonexistent/tmp"));
    let run: Vec<_> = run_of_own_file().into_iter().chain(["--trace", "r.jsonl"]).collect();
    let (code, _, error) = without(&run);
    assert_eq!(code, 0, "{error}");
    for format in ["md", "html", "svg", "csv", "cast", "perfetto", "jsonl"] {
        let (code, _, error) = without(&["export", "r.jsonl", "--to", format, "--out", &format!("out-{format}")]);
        assert_eq!(code, 0, "{format}: {error}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_one_sentence() {
    let tiny = Tiny::new(5);
    let folder = tiny.folder.path();
    let run: Vec<_> = run_of_own_file().into_iter().chain(["--trace", "/dev/full", "--force"]).collect();
    let (code, _, error) = said(&mut draftscope(folder, &run));
    let error: Vec<_> = error.lines().filter(|line| line.contains("space")).collect();
    assert!(code != 0 && error.len() == 1 && error[0].contains("the recording"), "{error:?}");
}
