//! What a user meets of the GPU backend: events and recordings, races, the report of `bench`, and `--device auto`. Screens
//! on a GPU, replays among them, are in `tests/pty.rs`.
//!
//! Any Vulkan, Metal or DirectX 12 adapter serves, one that computes on the CPU too. Without one these tests print that
//! they did not run; with `DRAFTSCOPE_GPU_TESTS=1` in the environment they fail.
#![cfg(feature = "gpu")]
#![allow(clippy::unwrap_used)] // a test that cannot go on should stop

mod common;

use std::path::Path;
use std::process::Output;

use common::checkpoint::path;
use serde_json::Value;

/// Whether there is an adapter.
fn has_adapter() -> bool {
    let found = !draftscope::model::gpu::adapters().is_empty();
    if !found {
        assert!(std::env::var("DRAFTSCOPE_GPU_TESTS").is_err(), "DRAFTSCOPE_GPU_TESTS is set and no adapter found");
        println!("not run: no Vulkan, Metal or DirectX 12 driver");
    }
    found
}

const ON_GPU: [&str; 4] = ["--device", "gpu", "--adapter", "0"];
const ON_CPU: [&str; 2] = ["--device", "cpu"];

/// Runs the program with files of its own for state and cache.
fn program(arguments: &[&str], state: &Path) -> Output {
    let mut command = assert_cmd::Command::cargo_bin("draftscope").unwrap();
    command
        .args(arguments)
        .env_remove("XDG_RUNTIME_DIR")
        .env("DRAFTSCOPE_OFFLINE", "1")
        .env("XDG_STATE_HOME", state)
        .env("DRAFTSCOPE_CACHE", state);
    command.output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The program's standard output; it must succeed.
fn succeeds(arguments: &[&str], state: &Path) -> String {
    let out = program(arguments, state);
    assert!(out.status.success(), "{arguments:?}: {}", text(&out.stderr));
    text(&out.stdout)
}

/// The events of a run without `loading`, whose stages are those of a backend.
fn events(prompt: &str, more: &[&str], state: &Path) -> Vec<Value> {
    let model = path("llama");
    let arguments = ["run", "-m", model.to_str().unwrap(), "--output", "jsonl", "--raw", "--max-tokens", "24", prompt];
    let lines = succeeds(&[&arguments, more].concat(), state);
    let events = lines.lines().map(|line| serde_json::from_str(line).unwrap());
    events.filter(|event: &Value| event["type"] != "loading").collect()
}

fn output(events: &[Value]) -> Vec<&Value> {
    let committed = events.iter().filter(|event| event["type"] == "committed");
    committed.flat_map(|event| event["tokens"].as_array().unwrap()).map(|token| &token["id"]).collect()
}

/// Fields that may differ between devices: what computes, how long it takes, and how much memory it has.
fn is_of_device(name: &str) -> bool {
    let of_header = ["device", "backend", "threads", "memory", "gpu", "weight_bytes", "kv_bytes_per_token"];
    name.ends_with("_us")
        || name.ends_with("_seconds")
        || name.ends_with("_per_second")
        || name == "seq"
        || name.starts_with("started_unix")
        || name.starts_with("speedup")
        || of_header.contains(&name)
}

/// Panics unless both values have the same form, the same tokens, and nearly the same probabilities.
fn same(at: &str, gpu: &Value, cpu: &Value) {
    match (gpu, cpu) {
        (Value::Object(a), Value::Object(b)) => {
            let names = |map: &serde_json::Map<String, Value>| {
                map.keys().filter(|name| !is_of_device(name)).cloned().collect::<std::collections::BTreeSet<_>>()
            };
            assert_eq!(names(a), names(b), "{at}");
            names(a).iter().for_each(|name| same(&format!("{at}.{name}"), &a[name], &b[name]));
        }
        // candidates of nearly the same probability may change places
        (Value::Array(a), Value::Array(b)) if at.ends_with(".top") => {
            assert_eq!(a.len(), b.len(), "{at}");
            for candidate in a {
                let other = b.iter().find(|other| other["id"] == candidate["id"]);
                other.into_iter().for_each(|other| same(at, candidate, other));
            }
        }
        (Value::Array(a), Value::Array(b)) => {
            assert_eq!(a.len(), b.len(), "{at}");
            a.iter().zip(b).enumerate().for_each(|(i, (a, b))| same(&format!("{at}[{i}]"), a, b));
        }
        (Value::Number(a), Value::Number(b)) if !(a.is_u64() && b.is_u64()) => {
            let (a, b) = (a.as_f64().unwrap(), b.as_f64().unwrap());
            assert!((a - b).abs() <= 0.03, "{at}: {a} on the GPU and {b} on the CPU");
        }
        (a, b) => assert_eq!(a, b, "{at}"),
    }
}

/// Prompts, of which some have the same answer on both devices.
const PROMPTS: [&str; 4] = ["One two one two", "hello", "the thin inn", "a b a b a b"];

#[test]
fn no_event_changes_but_fields_of_the_device() {
    if !has_adapter() {
        return;
    }
    let state = tempfile::tempdir().unwrap();
    let mut compared = 0;
    for settings in [["--drafter", "ngram", "-k", "3"], ["--drafter", "early-exit", "-k", "2"]] {
        for prompt in PROMPTS {
            let [gpu, cpu] = [&ON_GPU[..], &ON_CPU].map(|on| events(prompt, &[&settings, on].concat(), state.path()));
            let drafts = |events: &[Value]| -> Vec<Value> {
                events
                    .iter()
                    .filter(|event| event["type"] == "drafted")
                    .map(|event| event["token"]["id"].clone())
                    .collect()
            };
            // a near tie of random weights may end otherwise on another device
            if output(&gpu) != output(&cpu) || drafts(&gpu) != drafts(&cpu) {
                continue;
            }
            compared += 1;
            assert_eq!(gpu[0]["header"]["backend"], "gpu");
            assert_eq!(gpu.len(), cpu.len());
            gpu.iter().zip(&cpu).for_each(|(gpu, cpu)| same(gpu["type"].as_str().unwrap(), gpu, cpu));
        }
    }
    println!("{compared} of {} runs had the same text and drafts", 2 * PROMPTS.len());
    assert!(compared >= 2, "too few texts agree to compare events: {compared}");
}

#[test]
fn recordings_replays_races_and_branches_run_on_the_gpu() {
    if !has_adapter() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (model, trace) = (path("llama"), folder.path().join("a.dscope.jsonl.zst"));
    let (model, trace) = (model.to_str().unwrap(), trace.to_str().unwrap());
    let common = ["-m", model, "--raw", "--max-tokens", "24", "--drafter", "ngram"];
    let run = |more: &[&str]| succeeds(&[&["run"], &common[..], &ON_GPU, more].concat(), folder.path());
    let answer = run(&["-k", "3", "--trace", trace, "One two one two"]);
    assert_eq!(answer, run(&["-k", "0", "One two one two"]).as_str(), "plain and speculative texts are the same");
    let page = folder.path().join("a.html");
    succeeds(&["export", trace, "--to", "html", "--out", page.to_str().unwrap()], folder.path());
    assert!(std::fs::read_to_string(page).unwrap().contains("gpu"), "the page names the backend");
    let same = program(&["diff", trace, trace], folder.path());
    assert!(same.status.success(), "{}", text(&same.stderr));
    run(&["-k", "3", "--rival", "k=1,drafter=random", "hello"]);
    let compared = succeeds(
        &[&["compare"], &common[..], &ON_GPU, &["--repeat", "1", "--output", "summary", "hello"]].concat(),
        folder.path(),
    );
    let compared: Value = serde_json::from_str(&compared).unwrap();
    assert_eq!(compared["header"]["backend"], "gpu", "{compared:#}");
}

#[test]
fn a_software_adapter_is_never_chosen_and_nothing_is_said_about_it() {
    if !draftscope::model::gpu::adapters().iter().all(|info| info.kind == draftscope::model::gpu::AdapterKind::Software)
    {
        println!("not run: there is a GPU");
        return;
    }
    let state = tempfile::tempdir().unwrap();
    let model = path("llama");
    let arguments = ["run", "-m", model.to_str().unwrap(), "--raw", "--max-tokens", "4", "--drafter", "ngram", "hello"];
    let out = program(&arguments, state.path());
    let said = text(&out.stderr);
    assert!(out.status.success(), "{said}");
    for word in ["gpu", "vulkan", "llvmpipe", "mesa", "xdg_runtime_dir"] {
        assert!(!said.to_lowercase().contains(word), "{word}: {said}");
    }
    assert!(!state.path().join("draftscope/devices.json").exists(), "nothing is measured");
}

#[test]
fn bench_reports_a_device_beside_the_cpu() {
    if !has_adapter() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (report, json, suite) = (file("report.md"), file("report.json"), file("suite.toml"));
    std::fs::write(&suite, "[one]\nprompts = [\"One two one two\"]\n").unwrap();
    let model = path("llama");
    let arguments = [
        "bench",
        "-m",
        model.to_str().unwrap(),
        "--raw",
        "--max-tokens",
        "12",
        "--drafter",
        "ngram",
        "--repeat",
        "1",
        "--ctx",
        "96",
        "--suite",
        &suite,
        "--report",
        &report,
        "--json",
        &json,
    ];
    succeeds(&[&arguments[..], &ON_GPU].concat(), folder.path());
    let markdown = std::fs::read_to_string(&report).unwrap();
    let figures: Value = serde_json::from_str(&std::fs::read_to_string(&json).unwrap()).unwrap();
    let [gpu, cpu] = figures["devices"].as_array().unwrap().as_slice() else { panic!("{figures:#}") };
    assert_eq!((&gpu["asked"], &cpu["asked"]), (&"gpu".into(), &"cpu".into()));
    assert_eq!((&gpu["self_test"], &cpu["self_test"]), (&"passed".into(), &"not_needed".into()));
    assert!(gpu["adapter"]["driver"].is_string() && cpu["adapter"].is_null());
    for device in [gpu, cpu] {
        let speeds = device["speeds"].as_array().unwrap();
        let ks: Vec<&str> = speeds.iter().map(|row| row["k"].as_str().unwrap()).collect();
        assert_eq!(ks, ["0", "1", "2", "3", "4", "5", "6", "7", "8", "auto"]);
        assert!(speeds.iter().all(|row| row["identical"] == row["answers"]), "{speeds:#?}");
        let passes = device["costs"]["verify"].as_array().unwrap();
        assert!(passes.len() == 16 && passes.iter().all(|time| time["median_us"].as_f64().unwrap() > 0.0));
    }
    let adapter = gpu["adapter"]["name"].as_str().unwrap();
    for part in [
        adapter,
        "| answers equal to plain decoding | 10 of 10 | 10 of 10 |",
        "the self-test passed",
        "| 16 | ",
        "| auto | ",
    ] {
        assert!(markdown.contains(part), "{part} is missing in:\n{markdown}");
    }
    let columns = |line: &str| line.matches('|').count();
    let widths = markdown.split("\n\n").filter(|part| part.starts_with('|'));
    for table in widths {
        let first = columns(table.lines().next().unwrap());
        assert!(table.lines().all(|line| columns(line) == first), "{table}");
    }
    // a file that is there is not replaced, and nothing is measured first
    let again = program(&[&arguments[..], &ON_GPU].concat(), folder.path());
    assert!(!again.status.success() && text(&again.stderr).contains("report.md"), "{}", text(&again.stderr));
}
