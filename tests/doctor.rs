//! `draftscope doctor`: a line for each thing, an exit status, and nothing that a broken part of the machine can end.

#![allow(clippy::unwrap_used)] // a test that cannot go on should stop

#[path = "common/scripted.rs"]
mod scripted;
#[cfg(unix)]
#[path = "common/terminal.rs"]
mod terminal;

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use scripted::{Routes, serve};
use serde_json::Value;

/// The program with folders of its own for models and state.
fn doctor(folder: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_draftscope"));
    command.arg("doctor").args(args).env("DRAFTSCOPE_CACHE", folder.join("cache")).env("DRAFTSCOPE_OFFLINE", "1");
    command.env("XDG_STATE_HOME", folder.join("state")).env("DRAFTSCOPE_CONFIG", folder.join("config.toml"));
    command.env("LANG", "C.UTF-8").env_remove("LC_ALL").env_remove("LC_CTYPE").env_remove("DRAFTSCOPE_MODEL");
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// What one check found; all of them are in `out`, as JSON.
fn check(out: &Output, name: &str) -> Value {
    let json: Value = serde_json::from_slice(&out.stdout).unwrap();
    let fails = json["checks"].as_array().unwrap().iter().any(|check| check["status"] == "fails");
    assert_eq!(json["works"], !fails, "{json}");
    assert_eq!(out.status.code(), Some(i32::from(fails)), "{json}");
    json["checks"].as_array().unwrap().iter().find(|check| check["check"] == name).unwrap().clone()
}

#[test]
fn a_pipe_gets_one_plain_line_for_each_thing() {
    let folder = tempfile::tempdir().unwrap();
    let out = doctor(folder.path(), &[]).output().unwrap();
    let report = text(&out.stdout);
    assert_eq!(text(&out.stderr), "");
    assert!(!report.contains('\u{1b}'), "{report:?}");
    let names = ["program", "terminal", "CPU", "GPU", "memory", "cache", "model", "state", "configuration"];
    let lines: Vec<_> = report.lines().collect();
    assert_eq!(lines.len(), names.len() + 1, "{report}");
    for (line, name) in lines.iter().zip(names) {
        let mut words = line.split_whitespace();
        assert!(matches!(words.next(), Some("✓" | "!" | "✗")), "{line}");
        assert_eq!(words.next(), Some(name), "{line}");
    }
    assert!(report.contains("the first start downloads 98.36 MB"), "{report}");
    let left = fs::read_dir(folder.path()).unwrap().count();
    assert_eq!(left, 0, "nothing is written that stays");
}

#[test]
fn ascii_needs_no_other_characters() {
    let folder = tempfile::tempdir().unwrap();
    for (args, locale) in [(&["--ascii"][..], "C.UTF-8"), (&[], "C")] {
        let report = text(&doctor(folder.path(), args).env("LANG", locale).output().unwrap().stdout);
        assert!(report.is_ascii(), "{report}");
        assert!(report.starts_with("ok   program"), "{report}");
    }
}

#[test]
fn json_has_every_check_with_names_and_numbers() {
    let folder = tempfile::tempdir().unwrap();
    let out = doctor(folder.path(), &["--json"]).output().unwrap();
    assert!(check(&out, "CPU")["details"]["threads"].as_u64().unwrap() > 0);
    assert!(check(&out, "memory")["details"]["installed_bytes"].as_u64().unwrap() > 0);
    assert_eq!(check(&out, "program")["status"], "ok");
    let model = check(&out, "model");
    assert_eq!((&model["status"], &model["details"]["status"]), (&"note".into(), &"missing".into()));
    assert_eq!(check(&out, "cache")["details"]["folder"], folder.path().join("cache/models").to_str().unwrap());
}

#[test]
fn a_damaged_model_fails_and_the_line_says_how_to_fetch_it_again() {
    let folder = tempfile::tempdir().unwrap();
    let models = folder.path().join("cache/models");
    fs::create_dir_all(&models).unwrap();
    fs::write(models.join("SmolLM2-135M-Instruct.Q4_1.gguf"), "short").unwrap();
    let model = check(&doctor(folder.path(), &["--json"]).output().unwrap(), "model");
    assert_eq!(model["status"], "fails");
    assert!(model["found"].as_str().unwrap().contains("size is 5 bytes, expected 98362432"), "{model}");
    assert!(model["advice"].as_str().unwrap().contains("draftscope models pull --force"), "{model}");
}

#[test]
fn a_cache_that_cannot_be_written_fails() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("cache"), "a file in the folder's place").unwrap();
    let cache = check(&doctor(folder.path(), &["--json"]).output().unwrap(), "cache");
    assert_eq!(cache["status"], "fails");
    assert!(cache["advice"].as_str().unwrap().contains("DRAFTSCOPE_CACHE"), "{cache}");
}

#[test]
fn what_is_wrong_in_the_configuration_is_a_line_of_the_report() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("config.toml"), "no-such-key = 1\n").unwrap();
    let out = doctor(folder.path(), &["--json"]).output().unwrap();
    let found = check(&out, "configuration");
    assert_eq!(found["status"], "note");
    assert!(found["found"].as_str().unwrap().contains("no-such-key"), "{found}");
    assert_eq!(text(&out.stderr), "", "it is not printed twice");
}

/// A driver whose loading ends the process, as broken ones do.
#[test]
#[cfg(all(target_os = "linux", feature = "gpu"))]
fn a_driver_that_ends_its_process_does_not_end_the_check() {
    let folder = tempfile::tempdir().unwrap();
    let (source, library) = (folder.path().join("driver.c"), folder.path().join("libvulkan.so.1"));
    let code = "#include <stdlib.h>\n__attribute__((constructor)) static void load(void) { abort(); }\n";
    fs::write(&source, code).unwrap();
    let built = Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&source).status().unwrap();
    assert!(built.success());
    let broken = |mut command: Command| command.env("LD_LIBRARY_PATH", folder.path()).output().unwrap();
    let mut devices = Command::new(env!("CARGO_BIN_EXE_draftscope"));
    devices.arg("devices");
    assert_eq!(broken(devices).status.code(), None, "the driver is loaded and ends the process");
    let gpu = check(&broken(doctor(folder.path(), &["--json"])), "GPU");
    assert_eq!(gpu["status"], "fails");
    assert!(gpu["found"].as_str().unwrap().contains("a driver fails"), "{gpu}");
    assert!(gpu["advice"].as_str().unwrap().contains("--device cpu"), "{gpu}");
}

#[test]
fn a_server_is_recognised_without_a_prompt() {
    let folder = tempfile::tempdir().unwrap();
    let models = r#"{"data":[{"id":"SmolLM2","owned_by":"vllm","max_model_len":2048}]}"#.to_owned();
    let metrics = include_str!("fixtures/attach/vllm/metrics-before.prom").to_owned();
    let routes: Routes = vec![
        ("/v1/models", "200 OK", models),
        ("/version", "200 OK", r#"{"version":"0.32.0"}"#.to_owned()),
        ("/metrics", "200 OK", metrics),
    ];
    let (url, seen) = serve(routes);
    let out = doctor(folder.path(), &["--json", "--attach", &url]).output().unwrap();
    let server = check(&out, "server");
    assert_eq!(server["status"], "ok", "{server}");
    assert_eq!(server["details"]["version"], "0.32.0");
    assert_eq!(server["details"]["model"], "SmolLM2");
    let asked = seen.lock().unwrap().iter().map(|(head, _)| head.clone()).collect::<Vec<_>>();
    assert!(!asked.is_empty() && asked.iter().all(|head| !head.contains("completion")), "{asked:?}");
}

#[test]
fn a_server_that_is_not_there_fails() {
    let folder = tempfile::tempdir().unwrap();
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let url = format!("http://{nobody}");
    let out = doctor(folder.path(), &["--attach", &url]).output().unwrap();
    assert_eq!(out.status.code(), Some(1));
    let report = text(&out.stdout);
    let line = report.lines().find(|line| line.starts_with("✗ server")).unwrap();
    assert!(line.contains(&nobody.to_string()), "{line}");
}

#[test]
#[cfg(unix)]
fn a_terminal_is_described_within_its_width() {
    let folder = tempfile::tempdir().unwrap();
    let cache = folder.path().join("cache");
    let environment = [("DRAFTSCOPE_CACHE", cache.to_str().unwrap()), ("DRAFTSCOPE_OFFLINE", "1")];
    let mut screen = terminal::Screen::start(folder.path(), &["doctor"], &environment, (80, 40));
    screen.wait("the end of the report", |text| text.contains("keeps draftscope from") || text.contains("not work:"));
    let report = screen.text();
    for line in ["✓ terminal       xterm-256color, 80 × 40", "✓ colours        16 million, theme default", "✓ mouse"]
    {
        assert!(report.contains(line), "{line}:\n{report}");
    }
    screen.wait_for_end();
    let small = [("LANG", "C"), ("NO_COLOR", "1"), environment[0], environment[1]];
    let mut screen = terminal::Screen::start(folder.path(), &["doctor"], &small, (50, 60));
    screen.wait_for("FAIL says what to do");
    let report = screen.text();
    assert!(report.contains("FAIL terminal") && report.contains("note colours"), "{report}");
}
