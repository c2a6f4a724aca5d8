//! The program as a user runs it: its outputs, and one line for every error.

#![allow(clippy::unwrap_used)] // a test that cannot go on should stop

mod common;

use std::fs;
use std::path::Path;

use assert_cmd::Command;
use candle_core::quantized::gguf_file::Value;
use common::tiny::{self, Tiny};
use predicates::prelude::*;
use serde_json::Value as Json;

fn draftscope() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_draftscope"));
    command.env_remove("DRAFTSCOPE_MODEL").env("NO_COLOR", "1");
    command
}

/// A tiny target and an MTP module in a folder for `--mtp`.
struct Files {
    tiny: Tiny,
}

impl Files {
    fn new() -> Self {
        let tiny = Tiny::new(3);
        let module = tiny::mtp(9);
        let folder = tiny.folder.path().join("mtp");
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join("mtp.safetensors"), &module.weights).unwrap();
        fs::write(folder.join("config.json"), &module.config).unwrap();
        Self { tiny }
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.tiny.folder.path().join(name)
    }

    fn command(&self, action: &str) -> Command {
        let mut command = draftscope();
        command.arg(action).arg("--model").arg(&self.tiny.target).arg("--mtp").arg(self.path("mtp"));
        command
    }

    fn run(&self) -> Command {
        let mut command = self.command("run");
        command.args(["--prompt", "the thin inn", "--max-tokens", "24"]);
        command
    }
}

fn json(command: &mut Command) -> Json {
    let out = command.assert().success().get_output().stdout.clone();
    serde_json::from_slice(&out).unwrap()
}

/// Fails with one line that begins with the program's name and contains `what`.
fn refuses(command: &mut Command, what: &str) {
    let one_line = predicate::function(|text: &str| text.trim_end().lines().count() == 1);
    command
        .assert()
        .code(2)
        .stdout("")
        .stderr(predicate::str::starts_with("draftscope: ").and(predicate::str::contains(what)).and(one_line));
}

#[test]
fn a_summary_is_consistent_and_agrees_with_text_and_events() {
    let files = Files::new();
    let summary = json(files.run().args(["--drafter", "mtp", "-k", "4", "--output", "summary"]));
    let number = |name: &str| summary[name].as_u64().unwrap_or_else(|| panic!("{name}: {summary}"));
    let list =
        |name: &str| -> Vec<u64> { summary[name].as_array().unwrap().iter().map(|v| v.as_u64().unwrap()).collect() };
    let rounds = number("num_spec_steps");
    assert_eq!(number("output_tokens") as usize, summary["output_token_ids"].as_array().unwrap().len());
    assert_eq!(list("offered_per_pos"), vec![rounds; 4]);
    assert_eq!(list("acceptance_histogram").iter().sum::<u64>(), rounds);
    assert_eq!(list("accepted_per_pos").iter().sum::<u64>(), number("num_accepted_draft_tokens"));
    assert_eq!(number("num_draft_tokens"), 4 * rounds);
    let parts = ["draft_seconds", "verify_seconds", "other_seconds"].map(|n| summary[n].as_f64().unwrap());
    let decode = summary["decode_seconds"].as_f64().unwrap();
    assert!((parts.iter().sum::<f64>() - decode).abs() < 1e-6 && parts.iter().all(|p| *p > 0.0), "{summary}");

    let text = files.run().args(["--drafter", "mtp", "-k", "4"]).assert().success().get_output().stdout.clone();
    assert_eq!(
        String::from_utf8(text).unwrap().trim_end_matches('\n'),
        summary["text"].as_str().unwrap().trim_end_matches('\n')
    );

    let events = files
        .run()
        .args(["--drafter", "mtp", "-k", "4", "--output", "jsonl"])
        .assert()
        .success()
        .get_output()
        .stdout
        .clone();
    let events: Vec<Json> =
        events.split(|b| *b == b'\n').filter(|l| !l.is_empty()).map(|l| serde_json::from_slice(l).unwrap()).collect();
    assert_eq!(events[0]["type"], "started");
    let end = events.last().unwrap();
    assert_eq!((&end["type"], &end["summary"]["num_spec_steps"]), (&"ended".into(), &rounds.into()));
    let committed: Vec<&Json> = events.iter().filter(|e| e["type"] == "committed").collect();
    assert_eq!(committed.len() as u64, rounds);
    let scored = events.iter().find(|e| e["type"] == "scored").unwrap();
    assert_eq!(scored["rows"].as_array().unwrap().len(), 5, "the target's prediction at all k + 1 positions");
    let seqs: Vec<u64> = events.iter().map(|e| e["seq"].as_u64().unwrap()).collect();
    assert!(seqs.windows(2).all(|w| w[1] == w[0] + 1), "no event is missing");
}

#[test]
fn vllms_names_count_the_rounds_that_drafted() {
    let files = Files::new();
    let run = |options: &[&str]| json(files.run().args(["--output", "summary"]).args(options));
    let summary = run(&["--drafter", "ngram", "-k", "4"]);
    let histogram: Vec<u64> =
        summary["acceptance_histogram"].as_array().unwrap().iter().map(|n| n.as_u64().unwrap()).collect();
    assert_eq!((histogram.len(), &summary["num_spec_tokens"]), (5, &4.into()), "{summary}");
    assert_eq!(histogram.iter().sum::<u64>(), summary["num_spec_steps"], "{summary}");
    assert!(summary["rounds"].as_u64() > summary["num_spec_steps"].as_u64(), "the first finds nothing: {summary}");
    let plain = run(&["-k", "0"]);
    assert_eq!((&plain["num_spec_steps"], &plain["mean_acceptance_length"]), (&0.into(), &Json::Null), "{plain}");
    assert_eq!(plain["tokens_per_round"], 1.0);
}

/// Names of fields at any depth, except those that another page defines and a suite's categories.
fn fields<'a>(value: &'a Json, into: &mut Vec<&'a str>) {
    match value {
        Json::Object(map) => {
            for (name, value) in map {
                into.push(name);
                match name.as_str() {
                    "header" | "model" => {}
                    "by_category" => value.as_object().unwrap().values().for_each(|value| fields(value, into)),
                    _ => fields(value, into),
                }
            }
        }
        Json::Array(values) => values.iter().for_each(|value| fields(value, into)),
        _ => {}
    }
}

#[test]
fn every_field_that_is_written_is_defined() {
    let files = Files::new();
    let suite = files.path("suite.toml");
    fs::write(&suite, "[a]\nprompts = [\"the thin inn\"]\n").unwrap();
    let (suite, bench) = (suite.to_string_lossy().into_owned(), files.path("bench.json"));
    let asked = |action: &str, options: &[&str]| json(files.command(action).args(options).args(["-o", "summary"]));
    let account = ["--suite", &suite, "--turns", "3", "--max-tokens", "12"];
    let mut reports = vec![
        asked("run", &["--prompt", "the inn", "--max-tokens", "12", "--rival", "k=4"]),
        asked("compare", &["--prompt", "the inn", "--max-tokens", "12", "--repeat", "1"]),
        asked("explain", &[&account[..], &["--tree", "3"]].concat()),
        asked("explain", &[&account[..], &["--race", "0,1,auto", "--repeat", "1"]].concat()),
        asked("verify-identity", &["--limit", "1", "-k", "2", "--max-tokens", "8"]),
    ];
    for value in &reports[..4] {
        assert!(value["header"]["threads"].is_u64() && value["header"]["model"]["name"].is_string(), "{value}");
    }
    assert_eq!(
        (&reports[0]["finish_reason"], &reports[0]["header"]["settings"]["max_tokens"]),
        (&"max_tokens".into(), &12.into())
    );
    let mut measure = files.command("bench");
    measure.args(["--suite", &suite, "--max-tokens", "8", "--repeat", "1", "--json"]).arg(&bench).assert().success();
    reports.push(serde_json::from_slice(&fs::read(&bench).unwrap()).unwrap());
    let page = include_str!("../docs/json.md");
    let mut names = Vec::new();
    reports.iter().for_each(|value| fields(value, &mut names));
    let unknown: Vec<_> = names.into_iter().filter(|name| !page.contains(&format!("`{name}`"))).collect();
    assert!(unknown.is_empty(), "docs/json.md does not define {unknown:?}");
}

#[test]
fn an_answer_that_the_context_cuts_off_says_so() {
    let files = Files::new();
    let run = |options: &[&str]| {
        let mut command = files.command("run");
        command.args(["--prompt", "the inn", "--raw", "--ctx", "24", "--max-tokens", "400"]).args(options);
        command
    };
    run(&[]).assert().success().stderr(predicate::str::contains("the context is full; give more with --ctx"));
    assert_eq!(json(&mut run(&["-o", "summary"]))["finish_reason"], "context_full");
}

#[test]
fn digests_stand_in_place_of_text_in_the_event_stream_too() {
    let files = Files::new();
    let out =
        files.run().args(["-o", "jsonl", "--trace-text", "digest"]).assert().success().get_output().stdout.clone();
    let out = String::from_utf8(out).unwrap();
    assert!(out.contains("\"text_digest\"") && out.contains("sha256:") && !out.contains("inn"), "{out}");
}

#[cfg(target_os = "linux")]
#[test]
fn an_incomplete_recording_is_reported_and_the_result_is_still_printed() {
    let files = Files::new();
    let full = ["--trace", "/dev/full", "--force"];
    let warning = predicate::str::contains("the recording is not complete");
    for (action, extra) in [("run", &["-o", "summary"][..]), ("compare", &["-o", "summary", "--repeat", "1"])] {
        let mut command = files.command(action);
        command.args(["--prompt", "the inn", "--max-tokens", "8"]).args(full).args(extra);
        let out = command.assert().code(2).stderr(warning.clone()).get_output().stdout.clone();
        assert!(serde_json::from_slice::<Json>(&out).unwrap().is_object(), "{action}");
    }
    // a closed pipe at standard output does not hide the error
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_draftscope"));
    command.args(["run", "--model"]).arg(&files.tiny.target).arg("--mtp").arg(files.path("mtp"));
    let out = command.args(["--prompt", "the inn"]).args(full).stdout(writer).output().unwrap();
    assert_eq!(out.status.code(), Some(2), "{out:?}");
}

#[test]
fn a_trace_has_the_event_stream_and_is_not_overwritten() {
    let files = Files::new();
    let trace = files.path("a.dscope.jsonl");
    let with_trace = |extra: &[&str]| {
        let mut command = files.run();
        command.arg("--trace").arg(&trace).args(extra);
        command
    };
    with_trace(&[]).assert().success();
    let first = fs::read_to_string(&trace).unwrap();
    assert!(first.lines().count() > 20 && first.ends_with('\n'));
    refuses(&mut with_trace(&[]), "--force");
    assert_eq!(fs::read_to_string(&trace).unwrap(), first, "nothing was lost");
    with_trace(&["--force"]).assert().success();
    refuses(files.run().arg("--trace").arg(files.path("no/such/folder")), "cannot write the trace");
}

#[test]
fn compare_measures_both_lanes_and_finds_them_identical() {
    let files = Files::new();
    let mut command = files.command("compare");
    let summary = json(command.args([
        "--prompt",
        "the inn",
        "--max-tokens",
        "48",
        "--repeat",
        "2",
        "--drafter",
        "mtp",
        "-o",
        "summary",
    ]));
    assert_eq!(summary["identical"], true);
    assert_eq!(summary["first_divergence"], Json::Null);
    assert_eq!(summary["repeats"], 2);
    assert_eq!(summary["plain"]["output_token_ids"], summary["speculative"]["output_token_ids"]);
    assert_eq!(summary["plain"]["num_draft_tokens"], 0);
    let speedup = summary["speedup"].as_f64().unwrap();
    assert!(summary["speedup_low"].as_f64().unwrap() <= speedup, "{summary}");
    assert!(summary["speedup_high"].as_f64().unwrap() >= speedup && summary["disturbed"].is_boolean());
    let spread = &summary["speedup_spread"];
    assert!(spread["min"].as_f64() <= spread["max"].as_f64());
}

#[test]
fn prompts_come_from_arguments_files_and_standard_input() {
    let files = Files::new();
    let want = files.run().assert().success().get_output().stdout.clone();
    let file = files.path("prompt.txt");
    fs::write(&file, "the thin inn").unwrap();
    let tail = ["--max-tokens", "24"];
    let from_file = files.command("run").arg("--prompt-file").arg(&file).args(tail).assert().success();
    assert_eq!(from_file.get_output().stdout, want);
    let from_stdin = files.command("run").arg("-").args(tail).write_stdin("the thin inn").assert().success();
    assert_eq!(from_stdin.get_output().stdout, want);
    let bare = files.command("run").arg("the thin inn").args(tail).assert().success();
    assert_eq!(bare.get_output().stdout, want);
    for command in [vec!["chat"], vec!["run", "-"], vec!["run", "--prompt-file", "-"]] {
        let (action, rest) = command.split_first().unwrap();
        let piped = files.command(action).args(rest).args(tail).write_stdin("the thin inn\n").assert().success();
        assert_eq!(piped.get_output().stdout, want, "{command:?}: the line ending of echo is no part of a prompt");
    }
}

/// Prompts of a recording, in order.
fn prompts_of(trace: &Path) -> Vec<String> {
    let text = fs::read_to_string(trace).unwrap();
    let events = text.lines().map(|line| serde_json::from_str::<Json>(line).unwrap());
    let prompts = events.filter(|event| event["type"] == "prompted");
    prompts.map(|event| event["text"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn piped_text_is_one_prompt_or_one_a_line() {
    let files = Files::new();
    let text = "the thin inn\n\nagain, \u{1b}[2Jthe inn\n";
    let chat = |args: &[&str], name: &str| {
        let mut chat = files.command("chat");
        let trace = files.path(name);
        chat.args(["--raw", "--max-tokens", "8", "--trace"]).arg(&trace).args(args);
        let out = chat.write_stdin(text).assert().success().get_output().stdout.clone();
        (String::from_utf8(out).unwrap(), prompts_of(&trace))
    };
    let (answer, prompts) = chat(&[], "whole.jsonl");
    assert_eq!(prompts, [text.trim_end()]);
    assert!(!answer.starts_with("[1]"), "{answer}");

    let (answers, prompts) = chat(&["--per-line"], "lines.jsonl");
    let mut lines = text.lines().filter(|line| !line.is_empty());
    assert!(prompts.iter().map(String::as_str).eq(lines.by_ref()), "{prompts:?}");
    let labels: Vec<&str> = answers.lines().filter(|line| line.starts_with('[')).collect();
    assert_eq!(labels, ["[1] the thin inn", "[2] again, ␛[2Jthe inn"], "{answers}");

    let (_, prompts) = chat(&["--prompt", "first"], "first.jsonl");
    assert_eq!(prompts, ["first", text.trim_end()], "--prompt comes before standard input");
}

#[test]
fn an_input_without_text_is_refused_before_a_model_is_loaded() {
    for (blank, path) in [("", "/no/such/model.gguf"), (" \n\n", "/no/such/model.gguf")] {
        for command in [vec!["chat"], vec!["chat", "--per-line"], vec!["run", "-"], vec!["compare", "-"]] {
            let (action, rest) = command.split_first().unwrap();
            let mut started = draftscope();
            started.args([action, "--model", path]).args(rest).write_stdin(blank);
            refuses(&mut started, "there is no prompt: standard input has no text; ");
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("blank.txt");
    fs::write(&file, "\n").unwrap();
    refuses(draftscope().args(["run", "--prompt-file"]).arg(&file), "blank.txt has no text; ");
}

#[test]
fn the_same_seed_gives_the_same_text() {
    let files = Files::new();
    let sample = |seed: &str, rule: &str, k: &str| {
        let args = ["--temperature", "1.5", "--top-k", "20", "--seed", seed, "--verify", rule, "-k", k];
        files.run().args(args).assert().success().get_output().stdout.clone()
    };
    assert_eq!(sample("7", "rejection", "3"), sample("7", "rejection", "3"));
    assert_ne!(sample("7", "rejection", "3"), sample("8", "rejection", "3"));
    assert_eq!(sample("7", "exact", "0"), sample("7", "exact", "5"), "exact: the seed decides, not k");
}

#[test]
fn bad_requests_get_one_line() {
    let files = Files::new();
    refuses(files.command("run").args(["--prompt", "  "]), "the prompt is empty");
    refuses(files.command("run").args(["--prompt-file", "/no/such/file"]), "cannot open /no/such/file");
    refuses(files.run().args(["--temperature", "nan"]), "temperature");
    refuses(files.run().args(["--top-p", "1.5"]), "top-p is 1.5; it must lie between 0 and 1");
    for backend in ["auto", "candle", "native"] {
        refuses(files.run().args(["--dtype", "q4_1", "--backend", backend]), "this file holds f32");
    }
    refuses(files.run().args(["--ctx", "100000"]), "made for 512");
    let long = "the inn ".repeat(600);
    refuses(files.command("run").args(["--backend", "candle", "--prompt", &long]), "the context is full");
    files
        .run()
        .args(["-k", "99"])
        .assert()
        .failure()
        .stderr(predicate::str::contains("must be auto or a number from 0 to 15"));
    if !cfg!(feature = "cuda") {
        refuses(files.run().args(["--device", "cuda"]), "--features cuda");
    }
}

fn refused_model(path: &Path, what: &str) {
    refuses(draftscope().args(["run", "--prompt", "a", "--model"]).arg(path), what);
}

#[test]
fn damaged_and_foreign_files_get_one_line() {
    let files = Files::new();
    let whole = fs::read(&files.tiny.target).unwrap();
    let cut = files.path("cut.gguf");
    // at every place: in the magic number, the metadata, the table of tensors, the tensors
    for share in [0.0, 0.0001, 0.05, 0.2, 0.5, 0.9, 0.999] {
        fs::write(&cut, &whole[..(whole.len() as f64 * share) as usize]).unwrap();
        refused_model(&cut, "damaged or incomplete");
    }
    refused_model(&files.path("none.gguf"), "none.gguf");
    let other = Tiny::with(3, |parts| parts.metadata[0].1 = Value::String("mamba".into()));
    refused_model(&other.target, "the architecture 'mamba' is not supported yet");
    let incomplete = Tiny::with(3, |parts| parts.tensors.retain(|(name, _)| name != "blk.1.ffn_up.weight"));
    refused_model(&incomplete.target, "no tensor 'blk.1.ffn_up.weight'");
    let wider = Tiny::with(3, |parts| {
        let width = parts.metadata.iter_mut().find(|(key, _)| key == "llama.feed_forward_length").unwrap();
        width.1 = Value::U32(128);
    });
    refused_model(&wider.target, "has shape [96, 64], expected [128, 64]");
    let keyless = Tiny::with(3, |parts| parts.metadata.retain(|(key, _)| key != "llama.block_count"));
    refused_model(&keyless.target, "'llama.block_count' is missing");
    // flipped bytes in the header: an answer or one line, never a crash
    for at in (0..whole.len().min(4000)).step_by(53) {
        let mut bent = whole.clone();
        bent[at] ^= 0xff;
        fs::write(&cut, &bent).unwrap();
        let out =
            draftscope().args(["run", "--prompt", "a", "--max-tokens", "2", "--model"]).arg(&cut).output().unwrap();
        assert!(out.status.code().is_some_and(|code| code <= 2), "byte {at}: {out:?}");
        assert!(!String::from_utf8_lossy(&out.stderr).contains("internal error"), "byte {at}: {out:?}");
    }
}

#[test]
fn weights_that_are_not_numbers_are_reported() {
    let broken = Tiny::with(3, |parts| {
        let norm = parts.tensors.iter_mut().find(|(name, _)| name == "output_norm.weight").unwrap();
        let bad = candle_core::Tensor::full(f32::NAN, tiny::D, &candle_core::Device::Cpu).unwrap();
        norm.1 = candle_core::quantized::QTensor::quantize(&bad, candle_core::quantized::GgmlDType::F32).unwrap();
    });
    refuses(
        draftscope()
            .args(["run", "--backend", "candle", "--prompt", "a", "--drafter", "none", "--model"])
            .arg(&broken.target),
        "values that are not numbers",
    );
}

#[test]
fn a_module_of_another_target_is_reported() {
    let files = Files::new();
    let mut command = draftscope();
    command.args(["run", "--prompt", "the", "--max-tokens", "4", "--model"]).arg(&files.tiny.target);
    // the built-in module is the default model's: what is left drafts
    let copies = "no draft module, only copies of repeated text are drafted: ";
    command.assert().success().stderr(predicate::str::contains(copies));
    command.args(["--drafter", "mtp"]);
    command.assert().success().stderr(predicate::str::contains("no drafter, decoding plainly: "));
    let other = files.path("other");
    fs::create_dir(&other).unwrap();
    fs::write(other.join("config.json"), include_str!("../assets/mtp/smollm2-135m/config.json")).unwrap();
    fs::write(other.join("a.safetensors"), b"damaged").unwrap();
    refuses(
        draftscope().args(["run", "--prompt", "a", "--model"]).arg(&files.tiny.target).arg("--mtp").arg(&other),
        "another target",
    );
    fs::copy(files.path("mtp").join("config.json"), other.join("config.json")).unwrap();
    refuses(
        draftscope().args(["run", "--prompt", "a", "--model"]).arg(&files.tiny.target).arg("--mtp").arg(&other),
        "damaged",
    );
}

#[test]
fn a_recording_is_replayed_exported_and_compared_without_a_model() {
    let files = Files::new();
    let record = |name: &str, extra: &[&str]| {
        let path = files.path(name);
        files.run().args(extra).arg("--trace").arg(&path).assert().success();
        path
    };
    let a = record("a.dscope.jsonl", &["-k", "4"]);
    let b = record("b.dscope.jsonl.zst", &["-k", "2"]);
    let c = record("c.dscope.jsonl", &["--temperature", "1.5", "--seed", "4"]);
    let replayed = draftscope().arg("replay").arg(&b).assert().success().get_output().stdout.clone();
    let text = files.run().assert().success().get_output().stdout.clone();
    assert_eq!(replayed, text);

    let mut diff = draftscope();
    diff.arg("diff")
        .arg(&a)
        .arg(&b)
        .assert()
        .success()
        .stdout(predicate::str::contains("turn 1: identical, 24 tokens"));
    let mut diff = draftscope();
    let out = diff.args(["diff", "--json"]).arg(&a).arg(&c).assert().code(1).get_output().stdout.clone();
    let diff: Json = serde_json::from_slice(&out).unwrap();
    let sides = &diff["turns"][0]["divergence"]["sides"];
    assert_eq!(sides[0]["top"].as_array().unwrap().len(), 2);
    assert_ne!(sides[0]["token"]["id"], sides[1]["token"]["id"]);
    assert_eq!(diff["turns"][0]["same_prompt"], true);

    let export = |format: &str, extra: &[&str]| {
        let mut command = draftscope();
        command.arg("export").arg(&a).args(["--to", format]).args(extra);
        command
    };
    for (format, name) in [("html", "a.html"), ("cast", "a.cast"), ("csv", "a.csv"), ("md", "a.md")] {
        export(format, &[]).assert().success().stdout(predicate::str::contains(name));
        assert!(files.path(name).exists(), "beside the recording");
    }
    refuses(&mut export("html", &[]), "--force");
    let itself = a.to_string_lossy().into_owned();
    refuses(&mut export("jsonl", &["--out", &itself, "--force"]), "is the recording itself");
    #[cfg(unix)]
    {
        let other = files.path("other-name.jsonl").to_string_lossy().into_owned();
        fs::hard_link(&a, &other).unwrap();
        refuses(&mut export("jsonl", &["--out", &other, "--force"]), "is the recording itself");
        let replay = ["replay", &itself, "--trace", &other, "--force"];
        refuses(draftscope().args(replay), "is the recording itself");
        fs::remove_file(&other).unwrap();
    }

    let whole = fs::read_to_string(&a).unwrap();
    let cut = files.path("cut.jsonl");
    fs::write(&cut, &whole[..whole.len() / 2]).unwrap();
    draftscope().arg("replay").arg(&cut).assert().success().stderr(predicate::str::contains("was cut off in line"));
    let damaged = files.path("damaged.jsonl");
    fs::write(&damaged, whole.replacen("\"type\":\"scored\"", "\"type\":\"scored\",,", 1)).unwrap();
    refuses(draftscope().arg("replay").arg(&damaged), "is damaged at line");
    for (name, begins) in [("page.HTML", "<!doctype html>"), ("table.csv", "turn,"), ("copy.jsonl", "{\"")] {
        let out = files.path(name);
        draftscope().arg("export").arg(&a).arg("--out").arg(&out).assert().success();
        let text = fs::read_to_string(&out).unwrap();
        assert!(text.to_lowercase().starts_with(begins), "{name}: {}", &text[..text.len().min(60)]);
    }
    for out in ["odd.json", "-"] {
        refuses(draftscope().arg("export").arg(&a).args(["--out", out]), "which format? name it with --to");
    }
    refuses(draftscope().arg("export").arg(&a), "which format? name it with --to");
    refuses(draftscope().arg("export").arg(&damaged).args(["--to", "csv"]), "is damaged at line");
    refuses(draftscope().arg("replay").arg(files.path("none")), "cannot read the trace");
    refuses(draftscope().arg("replay").arg(&files.tiny.target), "it is not text: it begins like a GGUF file");
}

#[test]
fn a_digest_has_no_text_and_demos_need_no_model() {
    let files = Files::new();
    let path = files.path("d.jsonl");
    files.run().args(["--trace-text", "digest", "--trace"]).arg(&path).assert().success();
    let text = fs::read_to_string(&path).unwrap();
    assert!(text.contains("sha256:") && !text.contains("thin inn"));
    draftscope().args(["export", "--to", "html"]).arg(&path).assert().success();
    // its tokens are numbers of its own: no other recording has the same ones
    refuses(draftscope().arg("diff").args([&path, &path]), "has digests in place of text");
    let names = draftscope().args(["demo", "--list"]).assert().success().get_output().stdout.clone();
    for line in String::from_utf8(names).unwrap().lines() {
        let name = line.split_whitespace().next().unwrap();
        let mut demo = draftscope();
        demo.env("DRAFTSCOPE_MODEL", "/no/such").args(["demo", name]);
        demo.assert().success().stdout(predicate::function(|text: &str| text.len() > 50));
    }
    refuses(draftscope().args(["demo", "none"]), "there is no demo of that name");
}

#[test]
fn a_bench_measures_every_case_and_compares_with_its_baseline() {
    let files = Files::new();
    let suite = files.path("suite.toml");
    fs::write(&suite, "[a]\nprompts = [\"the inn\"]\n[b]\nprompts = [\"thin\", \"the\"]\n").unwrap();
    let bench = |extra: &[&str]| {
        let mut command = files.command("bench");
        command.arg("--suite").arg(&suite).args(["--ks", "1,3", "--rules", "exact,rejection", "--max-tokens", "12"]);
        command.args(["--repeat", "2"]).args(extra).timeout(std::time::Duration::from_secs(120));
        command
    };
    let path = |name: &str| files.path(name).to_string_lossy().into_owned();
    let (json, table) = (path("b.json"), path("b.csv"));
    bench(&["--json", &json, "--csv", &table]).assert().success().stdout(predicate::str::contains("rejection"));
    let report: Json = serde_json::from_slice(&fs::read(&json).unwrap()).unwrap();
    let rows = report["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 2 * 2 * 3, "2 rules × 2 draft lengths × (2 categories and all)");
    for row in rows {
        let answers = if row["category"] == "all" {
            6
        } else if row["category"] == "b" {
            4
        } else {
            2
        };
        assert_eq!((&row["answers"], &row["identical"]), (&answers.into(), &answers.into()), "greedy: {row}");
        let s = &row["speedup"];
        assert!(s["p10"].as_f64() <= s["median"].as_f64() && s["median"].as_f64() <= s["p90"].as_f64());
    }
    assert_eq!(fs::read_to_string(&table).unwrap().lines().count(), rows.len() + 1);
    let again = bench(&["--categories", "a", "--baseline", &json]).assert().success();
    let text = String::from_utf8(again.get_output().stdout.clone()).unwrap();
    assert!(text.contains("against the baseline") && text.contains("4 cases of the baseline were not run"), "{text}");
    bench(&["--json", &json]).assert().failure().stderr(predicate::str::contains("--force"));
    bench(&["--json", "/no/such/b.json"])
        .assert()
        .code(2)
        .stdout("")
        .stderr(predicate::str::contains("/no/such/b.json"));
    bench(&["--drafters", "ngram,draft-model"])
        .assert()
        .code(2)
        .stdout("")
        .stderr(predicate::str::contains("cannot draft here"));
    bench(&["--screen"]).assert().code(2).stderr(predicate::str::contains("cannot be used with"));
    let twice = bench(&["--drafters", "mtp,mtp", "--categories", "a", "--force", "--json", &json]).assert().success();
    assert!(!String::from_utf8_lossy(&twice.get_output().stdout).is_empty());
    let report: Json = serde_json::from_slice(&fs::read(&json).unwrap()).unwrap();
    assert!(report["rows"].as_array().unwrap().iter().all(|row| row["answers"] == 2), "each case once: {report}");
    bench(&["--categories", "z"]).assert().failure().stderr(predicate::str::contains("it has: a, b"));
}

#[test]
fn a_rival_races_and_is_reported() {
    let files = Files::new();
    let run = |options: &[&str]| {
        let mut command = files.run();
        command.args(["-k", "2"]).args(options);
        command
    };
    let summary = json(run(&["--rival", "k=5,drafter=ngram"]).args(["--output", "summary"]));
    assert_eq!(summary["rival"]["output_token_ids"], summary["output_token_ids"], "greedy: the same text");
    assert_eq!(summary["rival"]["acceptance_histogram"].as_array().unwrap().len(), 6, "{summary}");
    assert!(json(run(&["--output", "summary"]).args(["--seed", "1"])).get("rival").is_none());
    let report = predicate::str::contains(" tokens/s, the rival ").and(predicate::str::contains("both wrote the same"));
    run(&["--rival", "rule=rejection"]).assert().success().stderr(report);
    let lenient = predicate::str::contains("the rival's rule is not lossless: ");
    run(&["--rival", "rule=top-k"]).assert().success().stderr(lenient);
    // plain decoding beside a rival that drafts with the module
    let summary = json(run(&["--drafter", "none", "--rival", "drafter=mtp,k=3"]).args(["--output", "summary"]));
    assert!(summary["rival"]["num_draft_tokens"].as_u64().unwrap() > 0, "{summary}");
    refuses(&mut run(&["--rival", "speed=9"]), "there is no setting of a rival 'speed=9'; there are: k=…");
    refuses(&mut run(&["--rival", "drafter=human"]), "a rival asks no person for drafts");
}

#[test]
fn explain_has_figures_of_a_tree_or_rejects_it() {
    let files = Files::new();
    let suite = files.path("suite.toml");
    fs::write(&suite, "[one]\nprompts = [\"the thin inn\"]\n").unwrap();
    let explain = |options: &[&str]| {
        let mut command = files.command("explain");
        command.arg("--suite").arg(&suite).args(["--turns", "3", "--max-tokens", "12", "--output", "summary"]);
        command.args(options);
        command
    };
    let report = json(&mut explain(&["--tree", "4", "-k", "2"]));
    assert_eq!((&report["tree"]["nodes"], &report["tree"]["depth"]), (&4.into(), &2.into()), "{}", report["tree"]);
    assert!(report["tree"]["point"]["counts"]["drafted"].as_u64().unwrap() > 0);
    assert!(json(&mut explain(&[]))["tree"].is_null());
    refuses(&mut explain(&["--tree", "4", "--drafter", "ngram"]), "only the MTP module drafts trees");
}

#[test]
fn commands_that_measure_take_a_grammar() {
    let files = Files::new();
    let path = |name: &str, text: &str| {
        let path = files.path(name);
        fs::write(&path, text).unwrap();
        path.to_string_lossy().into_owned()
    };
    let suite = path("suite.toml", "[one]\nprompts = [\"the thin inn\"]\n");
    let gbnf = path("a.gbnf", "root ::= (\"the\" | \"in\") rest\nrest ::= [a-e]{3,9} rest | \".\"\n");
    let regex = ["--regex", "(the|in) [a-e]{3,9}\\."];
    let verify = |options: &[&str]| {
        let mut command = files.command("verify-identity");
        command.args(["--limit", "2", "--drafters", "all", "-o", "summary"]).args(options);
        json(&mut command)
    };
    for grammar in [&regex, &["--grammar", &gbnf]] {
        let found = verify(&[&grammar[..], &["-k", "1,3", "--max-tokens", "16"]].concat());
        assert_eq!(found["divergence"]["count"], 0, "{found}");
        assert!(found["grammar"]["kind"].is_string() && found["tokens"].as_u64().unwrap() > 20, "{found}");
    }
    let drawn = verify(&[&regex[..], &["-k", "2", "--temperature", "1", "--samples", "60"]].concat());
    assert!(drawn["comparisons"].as_array().unwrap().iter().all(|of| of["result"]["consistent"] == true), "{drawn}");

    let explain = |options: &[&str]| {
        let mut command = files.command("explain");
        command.args(["--suite", &suite, "--max-tokens", "12", "-o", "summary"]).args(regex).args(options);
        command
    };
    refuses(&mut explain(&[]), "race draft lengths under it with --race, or run bench");
    let race = json(&mut explain(&["--race", "0,2", "--repeat", "1"]));
    assert_eq!(
        (&race["header"]["grammar"]["kind"], &race["different_answers"]),
        (&"regex".into(), &0.into()),
        "{race}"
    );
    let report = path("bench.json", "");
    let mut bench = files.command("bench");
    bench.args(["--suite", &suite, "--max-tokens", "12", "--repeat", "1", "--force", "--json", &report]).args(regex);
    bench.assert().success();
    let report: Json = serde_json::from_slice(&fs::read(&report).unwrap()).unwrap();
    assert_eq!(report["header"]["grammar"]["kind"], "regex");
    let answer = files.command("run").args(["--prompt", "the inn", "--grammar", &gbnf]).assert().success();
    let text = String::from_utf8(answer.get_output().stdout.clone()).unwrap();
    assert!(text.starts_with("the") || text.starts_with("in"), "{text}");
}

#[test]
fn options_without_effect_are_reported() {
    let files = Files::new();
    refuses(files.run().args(["--ngram-min", "6", "--ngram-max", "3"]), "--ngram-min is 6 and --ngram-max 3");
    files.run().args(["--ngram-min", "6"]).assert().success();
    refuses(files.run().args(["--drafter", "draft-model"]), "needs a model: name one with --draft-model");
    refuses(files.run().args(["--draft-model", "/no/such.gguf"]), "check what --draft-model names");
    let broken = files.path("broken.gguf");
    fs::write(&broken, "GGUF").unwrap();
    refuses(files.run().arg("--draft-model").arg(&broken), "--draft-model cannot be used: ");
    let mut explain = files.command("explain");
    let cannot = predicate::str::contains("draftscope: --draft-model cannot be used: ");
    explain.arg("--draft-model").arg(&broken).assert().code(2).stderr(cannot);
    refuses(files.run().args(["--temperature", "-1"]), "temperature");
    let warns = |options: &[&str], what: &'static str| {
        files.run().args(options).assert().success().stderr(predicate::str::contains(what));
    };
    warns(&["--drafter", "early-exit", "--exit-layers", "99"], "--exit-layers 99 is no early exit");
    warns(&["-k", "auto", "--verify", "rejection", "--temperature", "0.8"], "one seed can give another text");
    warns(&["--drafter", "ngram", "--tree", "4"], "--tree has no effect: the drafter ngram drafts chains");
    let target = files.tiny.target.to_string_lossy().into_owned();
    warns(&["--raw", "--system", "Be brief."], "--system does nothing here");
    warns(&["--draft-model", &target], "--draft-model is loaded and drafts nothing: the drafter is suffix+mtp");
    let explain = |options: &[&str], what: &'static str| {
        let mut command = files.command("explain");
        command.args(["--turns", "3", "--costs-only"]).args(options);
        command.assert().success().stderr(predicate::str::contains(what));
    };
    explain(&["--verify", "rejection"], "--verify does nothing here");
    explain(&["-k", "5"], "-k does nothing here");
    let mut far = files.command("explain");
    far.args(["--turns", "3", "--costs-only", "--at", "500"]);
    far.assert().failure().stderr(predicate::str::contains("--at 500 needs 516 positions"));
    explain(&["--max-tokens", "999"], "answers are at most 128 tokens long here, not 999");
    warns(&["--verify", "threshold", "--threshold", "0"], "not lossless: ");
}

#[test]
fn an_export_writes_to_standard_output_and_does_not_replace_folders() {
    let files = Files::new();
    let path = files.path("a.dscope.jsonl");
    files.run().arg("--trace").arg(&path).assert().success();
    let export = |options: &[&str]| {
        let mut command = draftscope();
        command.arg("export").arg(&path).args(options);
        command
    };
    let shown = export(&["--to", "csv", "-o", "-", "--size", "80x24"]).assert().success();
    shown
        .stdout(predicate::str::starts_with("turn,").and(predicate::str::contains(".csv").not()))
        .stderr(predicate::str::contains("--size does nothing here"));
    refuses(&mut export(&["--to", "specspecs", "-o", "-"]), "makes a folder");
    let mut diff = draftscope();
    diff.args(["diff", "-"]).arg(&path).write_stdin(fs::read(&path).unwrap());
    diff.assert().success().stdout(predicate::str::contains("turn 1: identical"));
    refuses(draftscope().args(["diff", "-", "-"]), "standard input gives only one recording");
    refuses(files.run().args(["--trace", "-"]), "--trace takes a file");
    refuses(draftscope().args(["export", "-", "--to", "md"]), "choose a file with --out");
    refuses(files.command("bench").args(["--json", "-"]), "--json, --csv and --html take files");
    let twice = ["--json", "/tmp/one-of-bench", "--csv", "/tmp/./one-of-bench"];
    refuses(files.command("bench").args(twice), "two of --json, --csv and --html name one file");
    let around = files.tiny.folder.path().to_string_lossy().into_owned();
    refuses(&mut export(&["--to", "gif-frames", "-o", &around, "--force"]), "contains the recording itself");
    assert!(path.exists() && files.tiny.target.exists());
}

#[test]
fn warnings_about_the_configuration_are_printed_once() {
    let files = Files::new();
    let path = files.path("config.toml");
    fs::write(&path, "draft-len = 99\nseed = 7\n").unwrap();
    let with = |mut command: Command| {
        let out = command.env("DRAFTSCOPE_CONFIG", &path).assert().success().get_output().clone();
        (String::from_utf8(out.stdout).unwrap(), String::from_utf8(out.stderr).unwrap())
    };
    let (_, warnings) = with(files.run());
    assert_eq!(warnings.matches("config: draft-len").count(), 1, "{warnings}");
    let mut show = draftscope();
    show.args(["config", "show"]);
    let (shown, warnings) = with(show);
    assert_eq!(warnings.matches("config: draft-len").count(), 1, "{warnings}");
    let source = |key: &str| shown.lines().find(|line| line.starts_with(key)).unwrap().to_owned();
    assert!(source("draft-len").ends_with("# default") && source("seed").ends_with("# file"), "{shown}");
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_an_error_and_not_a_crash() {
    for args in [&["demo", "--list"][..], &["config", "show"], &["config", "path"], &["models", "list"]] {
        let full = fs::File::options().write(true).open("/dev/full").unwrap();
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_draftscope"));
        let out = command.args(args).stdout(full).output().unwrap();
        assert_eq!(out.status.code(), Some(2), "{args:?}: {out:?}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn what_cannot_be_printed_is_an_error() {
    for args in ["--help", "--version", "run --help", "completions bash", "man", "config show", "demo --list"] {
        let with = |output: &str| {
            let mut command = std::process::Command::new("sh");
            let script = format!("exec {} {args} {output}", env!("CARGO_BIN_EXE_draftscope"));
            let out = command.args(["-c", &script]).output().unwrap();
            (out.status.code(), String::from_utf8(out.stderr).unwrap())
        };
        let closed = "draftscope: standard output is closed, so nothing can be printed; redirect it to a file\n";
        assert_eq!(with(">&-"), (Some(2), closed.to_owned()), "{args}");
        let (code, full) = with(">/dev/full");
        assert!(code == Some(2) && full.starts_with("draftscope: ") && full.lines().count() == 1, "{args}: {full}");
        assert_eq!(with(">/dev/null"), (Some(0), String::new()), "{args}");
    }
}

#[test]
fn values_of_options_are_repeated_without_what_controls_a_terminal() {
    for args in [&["run", "--verify", "\u{1b}[31m\u{9b}2J"][..], &["\u{1b}]0;title\u{7}"], &["--\u{1b}[2J"]] {
        let out = draftscope().args(args).assert().code(2).get_output().stderr.clone();
        let text = String::from_utf8(out).unwrap();
        assert!(text.starts_with("error: ") && !text.contains(|c: char| c.is_control() && c != '\n'), "{text:?}");
    }
}

#[cfg(unix)]
#[test]
fn a_pipe_without_another_end_is_one_sentence_wherever_a_file_is_named() {
    let files = Files::new();
    // what reads one end would be the other end of what writes
    let pipes = ["written", "read"].map(|name| {
        let pipe = files.path(name);
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        pipe.to_str().unwrap().to_owned()
    });
    let recording = files.path("a.jsonl");
    files.run().arg("--trace").arg(&recording).assert().success();
    let with = |action: &str, options: &[&str]| {
        let mut command = draftscope();
        command.arg(action).args(options).timeout(std::time::Duration::from_secs(120));
        command
    };
    let (to, path) = (pipes[0].as_str(), pipes[1].as_str());
    let (recorded, out) = (recording.to_str().unwrap(), files.path("out"));
    let (target, out) = (files.tiny.target.to_str().unwrap().to_owned(), out.to_str().unwrap().to_owned());
    let model = target.as_str();
    let (unwritten, unread) = ("nothing writes into this pipe", "nothing reads this pipe");
    // each waits for some seconds, so all at once
    std::thread::scope(|all| {
        for (action, options, what) in [
            ("run", vec!["--model", model, "--prompt-file", path], unwritten),
            ("run", vec!["--model", model, "--draft-vocab", path, "a"], unwritten),
            ("run", vec!["--model", model, "--trace", to, "--force", "a"], unread),
            ("run", vec!["--model", path, "a"], "it is a pipe, and a file is needed"),
            ("run", vec!["--attach", "https://127.0.0.1:1", "--ca-file", path, "a"], unwritten),
            ("run", vec!["--model", model, "--draft-vocab", "/dev/zero", "a"], "it has more than 16 MiB"),
            ("verify-identity", vec!["--model", model, "--prompts", path], unwritten),
            ("generate", vec!["--model", model, "--tasks", path, "--out", &out], unwritten),
            ("learn", vec!["--check", path], unwritten),
            ("export", vec![path, "--to", "csv", "--out", &out], unwritten),
            ("export", vec![recorded, "--to", "csv", "--out", to, "--force"], unread),
            ("replay", vec![path], unwritten),
        ] {
            let mut command = with(action, &options);
            all.spawn(move || refuses(&mut command, what));
        }
    });
}

#[cfg(unix)]
#[test]
fn a_signal_stops_an_answer_and_completes_its_recording() {
    for (signal, status, ignored) in [("-TERM", 143, false), ("-HUP", 129, false), ("-HUP", 143, true)] {
        stopped_by(signal, status, ignored);
    }
    for (signal, status) in
        [("-QUIT", 131), ("-ABRT", 134), ("-USR1", 138), ("-ALRM", 142), ("-XCPU", 152), ("-XFSZ", 153)]
    {
        stopped_by(signal, status, false);
    }
}

/// Stops an answer by a signal; if that is ignored, as `nohup` has it, by SIGTERM after it.
#[cfg(unix)]
fn stopped_by(signal: &str, status: i32, is_ignored: bool) {
    use std::io::{BufRead, BufReader, Read};
    use std::process::{Command, Stdio};
    let files = Files::new();
    let path = files.path("a.dscope.jsonl");
    // what started the tests may ignore some signals, as nohup does
    let mut command = Command::new(if cfg!(target_os = "linux") { "env" } else { "sh" });
    if cfg!(target_os = "linux") {
        command.args(["--default-signal", "sh"]);
    }
    let ignore = if is_ignored { "trap '' HUP; " } else { "" };
    command.args(["-c", &format!("{ignore}exec \"$0\" \"$@\""), env!("CARGO_BIN_EXE_draftscope")]);
    command.arg("run").arg("--model").arg(&files.tiny.target).arg("--mtp").arg(files.path("mtp"));
    command.args(["--prompt", "the inn", "--max-tokens", "400", "--output", "jsonl", "--trace"]).arg(&path);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    // its pipe is soon full, so it waits there when the signal comes
    let mut out = BufReader::new(child.stdout.take().unwrap());
    out.read_line(&mut String::new()).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(300));
    let signals = if is_ignored { &[signal, "-TERM"][..] } else { &[signal] };
    for signal in signals {
        assert!(Command::new("kill").args([signal, &child.id().to_string()[..]]).status().unwrap().success());
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    out.read_to_end(&mut Vec::new()).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(status));
    let trace = fs::read_to_string(&path).unwrap();
    assert!(trace.lines().last().unwrap().contains("\"ended\""), "{trace}");
}

#[test]
fn each_subcommand_gets_a_manual_page() {
    let folder = tempfile::tempdir().unwrap();
    let pages = folder.path().join("man");
    draftscope().args(["man", "--out"]).arg(&pages).assert().success();
    let page = fs::read_to_string(pages.join("draftscope-explain.1")).unwrap();
    assert!(page.contains("costs\\-only"), "{page}");
    draftscope().arg("man").assert().success().stdout(predicate::str::contains("draftscope\\-explain(1)"));
}

/// Output of the program at 100 columns.
fn help(args: &[&str]) -> String {
    let out = draftscope().env("COLUMNS", "100").args(args).assert().success().get_output().stdout.clone();
    String::from_utf8(out).unwrap()
}

/// Long options by the heading above them, in lines that begin with an option.
fn listed(help: &str) -> Vec<(&str, &str)> {
    let mut heading = "";
    let mut listed = Vec::new();
    for line in help.lines() {
        if !line.starts_with(' ') && line.ends_with(':') {
            heading = line.trim_end_matches(':');
        }
        let option = line.trim_start().split(' ').find(|word| word.starts_with("--"));
        if line.trim_start().starts_with('-') {
            listed.extend(option.map(|option| (heading, option)));
        }
    }
    listed
}

#[test]
fn the_help_fits_two_screens_and_each_option_stands_in_a_group() {
    let usual = help(&["--help"]);
    let (lines, width) = (usual.lines().count(), usual.lines().map(|line| line.chars().count()).max().unwrap());
    assert!(lines <= 84 && width <= 100, "{lines} lines of {width} columns:\n{usual}");
    let groups: std::collections::BTreeSet<&str> = listed(&usual).iter().map(|(heading, _)| *heading).collect();
    assert_eq!(groups, ["Drafting", "Model", "Options", "Recording", "Sampling", "Screen"].into());
    let own: Vec<_> = listed(&usual).into_iter().filter(|(heading, _)| *heading == "Options").collect();
    assert_eq!(own.iter().map(|(_, option)| *option).collect::<Vec<_>>(), ["--help", "--help-all", "--version"]);
    assert!(usual.contains("--seed") && !usual.contains("--mtp-spec"), "{usual}");
    let main = help(&["-h"]);
    assert!(main.lines().count() <= 60 && main.contains("--model") && !main.contains("--seed"), "{main}");
    assert!(help(&["explain", "--help"]).contains("-k matters only as the depth of --tree"));
}

#[test]
fn help_all_lists_every_option_of_every_command_and_the_manual_explains_them() {
    use clap::CommandFactory;
    let command = draftscope::cli::Cli::command();
    let options = |command: &clap::Command| -> Vec<String> {
        command.get_arguments().filter_map(|arg| Some(format!("--{}", arg.get_long()?))).collect()
    };
    let lists = |args: &[&str], command: &clap::Command| {
        let all = help(args);
        let listed: Vec<_> = listed(&all).into_iter().map(|(_, option)| option).collect();
        let missing: Vec<_> = options(command).into_iter().filter(|option| !listed.contains(&&**option)).collect();
        assert!(missing.is_empty(), "{args:?} leaves out {missing:?}:\n{all}");
    };
    assert!(options(&command).len() > 40);
    lists(&["--help-all"], &command);
    for sub in command.get_subcommands() {
        lists(&[sub.get_name(), "--help-all"], sub);
    }
    assert!(help(&["--help-all"]).contains("hidden-first"));
    assert!(help(&["man"]).contains("hidden\\-first"));
}

#[test]
fn lessons_are_listed_checked_and_written_as_pages() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let lesson = "title = \"Mine\"\nsummary = \"One step.\"\n\n[[step]]\ntext = \"Read this.\"\n";
    fs::create_dir(at("lessons")).unwrap();
    fs::write(at("lessons/mine.toml"), lesson).unwrap();
    fs::write(at("bad.toml"), lesson.replace("text = \"Read this.\"", "text = \"How fast?\"\nanswer = 1")).unwrap();
    let learn = || {
        let mut command = draftscope();
        command.env("DRAFTSCOPE_CONFIG", at("config.toml")).arg("learn");
        command
    };
    let listed = learn().arg("--list").assert().success().get_output().stdout.clone();
    let listed = String::from_utf8(listed).unwrap();
    let lines: Vec<&str> = listed.lines().collect();
    assert!(lines.len() == 9 && lines[0].contains("positions") && lines[8].contains("Mine (yours)"), "{listed}");
    learn().arg("--check").arg(at("lessons/mine.toml")).assert().success();
    refuses(
        learn().arg("--check").arg(at("bad.toml")),
        "bad.toml: line 4, choices: a question has 2 to 6 choices, not 0",
    );
    refuses(
        learn().args(["99", "--export"]).arg(at("pages")),
        "there is no lesson '99'; there are: 1 to 9, positions, ",
    );
    learn().args(["round", "--export"]).arg(at("pages")).assert().success();
    let page = fs::read_to_string(at("pages/3-round.html")).unwrap();
    assert!(page.contains("A round in slow motion") && page.contains("Write a haiku about rain."));
    refuses(learn().args(["round", "--export"]).arg(at("pages")), "exists already");
    learn().args(["round", "--force", "--export"]).arg(at("pages")).assert().success();
    refuses(learn().arg("mine"), "lessons need a terminal");
}
