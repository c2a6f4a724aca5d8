//! Plugins of engines: the Python package with a fake engine, its socket read by this program, and sockets that misbehave.

#![allow(clippy::unwrap_used)] // a test that cannot go on should stop
#![cfg(unix)]

#[path = "common/scripted.rs"]
mod scripted;

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use draftscope::attach::socket::{Feed, MAX_LINE, check, connect_within};
use draftscope::attach::{AttachConfig, spawn};
use draftscope::headless::{Driver, Outcome, Summary};
use draftscope::protocol::{EventKind, Lane, Prompt, Sampling, Settings, VerifyRule};
use draftscope::session::explain;
use scripted::{Routes, serve};

const OK: &str = "200 OK";

const STREAM: &str = include_str!("fixtures/attach/vllm/completions-logprobs.sse.txt");
const MERGED: &str = include_str!("fixtures/attach/vllm/completions-interval3.sse.txt");
const LINES: &str = include_str!("fixtures/attach/plugin/vllm-completions-logprobs.plugin.jsonl");
const MERGED_LINES: &str = include_str!("fixtures/attach/plugin/vllm-completions-interval3.plugin.jsonl");

/// The beginning of an answer of vLLM on a CPU at temperature 0.8, which rejects drafts with p = q (vllm-project/vllm#55005).
const HOT: &str = include_str!("fixtures/attach/vllm/completions-draft-hot.sse.txt");
const HOT_LINES: &str = include_str!("fixtures/attach/plugin/vllm-draft-hot.plugin.jsonl");

/// An answer of llama-server b11434 with a draft model of three tokens at temperature 1, and the preload library's lines.
const LLAMA: &str = include_str!("fixtures/attach/llama-draft-hot.sse.txt");
const LLAMA_LINES: &str = include_str!("fixtures/attach/plugin/llama-draft-hot.plugin.jsonl");

fn package() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("integrations/vllm")
}

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/attach/plugin")
}

fn draftscope(arguments: &[&str]) -> (bool, String) {
    let out = Command::new(env!("CARGO_BIN_EXE_draftscope")).args(arguments).output().unwrap();
    (out.status.success(), String::from_utf8_lossy(&[out.stdout, out.stderr].concat()).into_owned())
}

#[test]
fn the_python_package_passes_its_own_tests() {
    let mut command = Command::new("python3");
    let out = command.args(["-m", "unittest", "discover", "-s", "tests"]).current_dir(package()).output().unwrap();
    let text = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success() && text.contains("\nOK"), "{text}");
    let ran = text.lines().find_map(|line| line.strip_prefix("Ran ")?.split(' ').next()?.parse::<u32>().ok());
    assert!(ran.is_some_and(|ran| ran >= 20), "{text}");
}

#[test]
fn what_the_python_package_sends_is_what_this_program_reads() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s");
    let mut serving = Command::new("python3")
        .args(["tests/test_plugin.py", "--serve"])
        .arg(&path)
        .current_dir(package())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut ready = String::new();
    BufReader::new(serving.stdout.take().unwrap()).read_line(&mut ready).unwrap();
    assert_eq!(ready, "LISTENING\n");
    let address = path.to_str().unwrap().parse().unwrap();
    let mut lines = connect_within(&address, Duration::from_secs(60)).unwrap();
    let mut taken = Vec::new();
    let until = Instant::now() + Duration::from_secs(120);
    while taken.len() < 1 + 6 + 4 && Instant::now() < until {
        match lines.next_line().unwrap() {
            Some(line) => taken.push(line),
            // a round for every line that it reads; those before this program was there went to nobody
            None => serving.stdin.as_mut().unwrap().write_all(b"\n").unwrap(),
        }
        if taken.len() == 1 {
            serving.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
        }
    }
    let _ = serving.kill();
    let _ = serving.wait();
    let report = check(taken.into_iter().take(11).map(Ok));
    assert!(report.is_good(), "{report}");
    assert_eq!((report.rounds, report.drafted, report.accepted, report.with_q), (2, 2, 1, 1), "{report}");
}

/// Lines of the preload library's sender, which needs no llama.cpp: `asked` is what its test program reads.
fn sent_by_the_preload_library(asked: &[u8], mut is_enough: impl FnMut(&[Vec<u8>]) -> bool) -> Option<Vec<Vec<u8>>> {
    let folder = tempfile::tempdir().unwrap();
    let (program, path) = (folder.path().join("send"), folder.path().join("s"));
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("integrations/llama.cpp");
    let files = ["tests/send.cpp", "lines.cpp", "sender.cpp"].map(|file| sources.join(file));
    let built = Command::new("c++")
        .args(["-std=c++17", "-O1", "-Wall", "-Wextra", "-Werror", "-pthread", "-o"])
        .arg(&program)
        .args(files)
        .status();
    let Ok(built) = built else {
        eprintln!("left out: there is no C++ compiler");
        return None;
    };
    assert!(built.success());
    let mut serving = Command::new(&program).arg(&path).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut ready = String::new();
    BufReader::new(serving.stdout.take().unwrap()).read_line(&mut ready).unwrap();
    assert_eq!(ready, "LISTENING\n");
    let address = path.to_str().unwrap().parse().unwrap();
    let mut lines = connect_within(&address, Duration::from_secs(60)).unwrap();
    let mut taken = Vec::new();
    let until = Instant::now() + Duration::from_secs(120);
    while !is_enough(&taken) && Instant::now() < until {
        let Some(line) = lines.next_line().unwrap() else { continue };
        taken.push(line);
        if taken.len() == 1 {
            serving.stdin.as_mut().unwrap().write_all(asked).unwrap();
        }
    }
    let _ = serving.kill();
    let _ = serving.wait();
    Some(taken)
}

#[test]
fn what_the_preload_library_sends_is_what_this_program_reads() {
    let Some(lines) = sent_by_the_preload_library(b"\n", |lines| lines.len() == 16) else { return };
    let report = check(lines.into_iter().map(Ok));
    assert!(report.is_good(), "{report}");
    assert_eq!((report.rounds, report.drafted, report.accepted, report.with_rows), (3, 4, 2, 2), "{report}");
    // five thousand at once: what is left out is counted
    let (mut read, mut committed, mut dropped) = (0, 0, 0);
    sent_by_the_preload_library(b"many\n", |lines| {
        for line in &lines[read..] {
            let line: serde_json::Value = serde_json::from_slice(line).unwrap();
            committed += u64::from(line["type"] == "committed");
            dropped = line["rounds"].as_u64().unwrap_or(dropped);
        }
        read = lines.len();
        committed + dropped == 5000
    });
    assert_eq!(committed + dropped, 5000, "{committed} and {dropped}");
}

#[test]
fn recorded_lines_of_real_engines_pass_the_check() {
    let mut files = 0;
    for entry in std::fs::read_dir(fixtures()).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|end| end == "jsonl") {
            let (is_good, text) = draftscope(&["attach", "--check", path.to_str().unwrap()]);
            assert!(is_good && text.contains("no faults"), "{}: {text}", path.display());
            files += 1;
        }
    }
    assert!(files >= 3, "{files}");
}

#[test]
fn the_check_names_line_and_field() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.jsonl");
    let good = std::fs::read_dir(fixtures()).unwrap().map(|entry| entry.unwrap().path());
    let mut good: Vec<_> = good.filter(|path| path.to_string_lossy().ends_with(".plugin.jsonl")).collect();
    good.sort();
    let text = std::fs::read_to_string(&good[0]).unwrap();
    let wrong = text.replacen("\"next_kind\":\"bonus\"", "\"next_kind\":\"recovered\"", 1);
    let line = text.lines().zip(wrong.lines()).position(|(a, b)| a != b).unwrap() + 2; // reported where its round ends
    std::fs::write(&path, wrong).unwrap();
    let (is_good, report) = draftscope(&["attach", "--check", path.to_str().unwrap()]);
    assert!(!is_good && report.contains(&format!("line {line}: next_kind: ")), "{report}");
    let (is_good, report) = draftscope(&["attach", "--check", "/nowhere/at/all"]);
    assert!(!is_good && report.contains("no file and no plugin at /nowhere/at/all"), "{report}");
    let (is_good, report) = draftscope(&["attach", "--check", "tcp:10.1.2.3:70"]);
    assert!(!is_good && report.contains("loopback"), "{report}");
}

/// What a feed reports of a plugin that sends this to each connection and then hangs up.
fn notices_of(sent: &[u8], enough: impl Fn(&[String]) -> bool) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s");
    let listener = UnixListener::bind(&path).unwrap();
    let sent = sent.to_vec();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let _ = stream.unwrap().write_all(&sent);
        }
    });
    let feed = Feed::start(path.to_str().unwrap().parse().unwrap(), Duration::from_secs(1)).unwrap();
    let mut notices = Vec::new();
    let until = Instant::now() + Duration::from_secs(120);
    while !enough(&notices) && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(20));
        notices.extend(feed.notices());
    }
    notices
}

#[test]
fn garbage_and_huge_lines_cost_one_sentence_each() {
    let garbage = b"\x00\xff\x1b[2J\n".repeat(100);
    let notices = notices_of(&garbage, |notices| notices.len() >= 2);
    assert!(notices[0].starts_with("the plugin's line 1 is wrong (line: not UTF-8"), "{notices:?}");
    assert!(notices[1].contains("16 of its lines are wrong"), "{notices:?}");
    assert!(notices.iter().all(|notice| notice.chars().all(|c| !c.is_control())));
    let huge = vec![b'x'; 3 * MAX_LINE];
    let notices = notices_of(&huge, |notices| !notices.is_empty());
    assert!(notices[0].contains("a line of more than 1024 KiB"), "{notices:?}");
}

#[test]
fn a_plugin_that_is_gone_and_comes_back_is_read_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s");
    let feed = Feed::start(path.to_str().unwrap().parse().unwrap(), Duration::from_secs(1)).unwrap();
    let wait_for = |text: &str| {
        let until = Instant::now() + Duration::from_secs(120);
        while Instant::now() < until {
            if feed.notices().iter().any(|notice| notice.contains(text)) {
                return true;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        false
    };
    assert!(wait_for("no plugin answers at the socket yet"));
    let mut files = std::fs::read_dir(fixtures()).unwrap().map(|entry| entry.unwrap().path());
    let recorded = files.find(|path| path.to_string_lossy().ends_with(".plugin.jsonl")).unwrap();
    let text = std::fs::read(recorded).unwrap();
    for _ in 0..2 {
        let _ = std::fs::remove_file(&path);
        let listener = UnixListener::bind(&path).unwrap();
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(&text).unwrap();
        assert!(wait_for("reports every round"));
        drop(stream);
        assert!(wait_for("the engine's plugin is gone"));
    }
}

fn vllm(stream: &str) -> Routes {
    let models = r#"{"data":[{"id":"SmolLM2","owned_by":"vllm","max_model_len":2048}]}"#;
    vec![
        ("/v1/models", OK, models.to_owned()),
        ("/version", OK, r#"{"version":"0.32.0"}"#.to_owned()),
        ("/metrics", OK, String::new()),
        ("/v1/completions", OK, stream.to_owned()),
    ]
}

fn llama(stream: &str) -> Routes {
    let props = r#"{"default_generation_settings":{"n_ctx":64},"model_path":"a/b.gguf","build_info":"b11434"}"#;
    let slots = r#"[{"speculative":true,"params":{"speculative.types":"draft-simple"}}]"#;
    vec![
        ("/props", OK, props.to_owned()),
        ("/slots", OK, slots.to_owned()),
        ("/v1/models", OK, "{}".to_owned()),
        ("/tokenize", OK, r#"{"tokens":[{"id":2,"piece":"<|im_end|>"}]}"#.to_owned()),
        ("/completion", OK, stream.to_owned()),
    ]
}

/// An answer of a recorded vLLM server, while a plugin sends these lines, and the sentences that came with it.
fn joined(stream: &str, lines: &str) -> (Driver, Vec<String>) {
    let (driver, outcome, notices) = asked((vllm(stream), lines), Settings::default());
    assert_eq!(outcome, Outcome::Answered);
    (driver, notices)
}

/// The same with these settings, however the answer ends.
fn asked((routes, lines): (Routes, &str), settings: Settings) -> (Driver, Outcome, Vec<String>) {
    let (url, seen) = serve(routes);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s");
    let listener = UnixListener::bind(&path).unwrap();
    let lines = lines.to_owned();
    let (connected, is_connected) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let (mut connection, _) = listener.accept().unwrap();
        connected.send(()).unwrap();
        // an engine reports a step once the request has arrived
        while !seen.lock().unwrap().iter().any(|(head, _)| head.contains("/completion")) {
            std::thread::sleep(Duration::from_millis(1));
        }
        connection.write_all(lines.as_bytes()).unwrap();
        std::thread::sleep(Duration::from_secs(30));
    });
    let socket = Some(path.to_str().unwrap().parse().unwrap());
    let mut driver = Driver::new(
        spawn(AttachConfig { socket, round_wait: Duration::from_secs(8), ..AttachConfig::new(&url, settings) })
            .unwrap(),
    );
    is_connected.recv().unwrap();
    std::thread::sleep(Duration::from_millis(200)); // until the reader has noted it
    let outcome = driver.answer(Prompt::Raw("one two three".to_owned()));
    let notices = driver.session().notices().map(str::to_owned).collect();
    (driver, outcome, notices)
}

#[test]
fn a_recorded_answer_gets_its_rejected_drafts_and_all_rows() {
    let (driver, notices) = joined(STREAM, LINES);
    assert!(
        notices.iter().any(|notice| notice.contains("the plugin of vllm 0.32.0 reports every round")),
        "{notices:?}"
    );
    let turn = driver.session().turn().unwrap();
    let answer = turn.answer(Lane::Speculative);
    let with_drafts: Vec<_> = answer.rounds.iter().filter(|round| !round.drafts.is_empty()).collect();
    assert!(with_drafts.len() >= 2, "{}", with_drafts.len());
    for round in &with_drafts {
        assert!(round.drafts.iter().all(|draft| !draft.token.id.is_unknown() && draft.q == Some(1.0)));
        assert_eq!(round.rows().len(), round.drafts.len() + 1, "also after a rejected draft");
        assert!(round.rows().iter().all(|row| !row.top.is_empty()));
        assert!(round.verify_us() > 0);
    }
    let (round, index) =
        with_drafts.iter().find_map(|round| Some((round, round.first_discarded()?))).expect("a draft was rejected");
    let why = explain(round, index).unwrap().text;
    assert!(why.starts_with("the target preferred ") && why.contains("recovered: "), "{why}");
    let summary = Summary::of(turn, Lane::Speculative);
    assert_eq!((summary.run.num_spec_steps, summary.run.num_draft_tokens), (Some(2), Some(8)), "as the server counts");
    assert_eq!((summary.run.num_accepted_draft_tokens, summary.output_tokens), (Some(6), 14));
    assert_eq!(driver.session().stats(Lane::Speculative).evidence().sentence(), None);
}

#[test]
fn rejections_of_drafts_with_p_equal_to_q_are_a_finding() {
    let sampling = Sampling { temperature: 0.8, ..Sampling::default() };
    let (driver, _, _) = asked((vllm(HOT), HOT_LINES), Settings { sampling, ..Settings::default() });
    let turn = driver.session().turn().unwrap();
    let answer = turn.answer(Lane::Speculative);
    assert!(answer.rounds.iter().all(|round| round.rule == VerifyRule::Rejection), "the rule that the plugin names");
    let first = answer.rounds.iter().find(|round| !round.drafts.is_empty()).unwrap();
    let judgement = first.judgement(0).unwrap();
    let (p, q) = (judgement.p.unwrap(), judgement.q.unwrap());
    assert!((p - q).abs() < 1e-3 && p > 0.0, "the drafter is the target's own file: {p} and {q}");
    let finding = Summary::of(turn, Lane::Speculative).contradiction.unwrap();
    assert!(finding.starts_with("rejections contradict the reported probabilities: "), "{finding}");
    // the same rounds at level 1, which reports no p, accuse nobody
    let (alone, _, _) = asked((vllm(HOT), ""), Settings { sampling, ..Settings::default() });
    assert_eq!(Summary::of(alone.session().turn().unwrap(), Lane::Speculative).contradiction, None);
}

#[test]
fn rounds_of_the_preload_library_are_those_of_the_stream() {
    let sampling = Sampling { temperature: 1.0, ..Sampling::default() };
    let settings = Settings { sampling, ..Settings::default() };
    let [(alone, ..), (joined, ..)] = ["", LLAMA_LINES].map(|lines| asked((llama(LLAMA), lines), settings));
    let answers = [&alone, &joined].map(|driver| driver.session().turn().unwrap().answer(Lane::Speculative));
    let rounds = answers.map(|answer| {
        let rounds = answer.rounds.iter();
        rounds.map(|round| (round.drafts.len(), round.accepted(), round.committed().len())).collect::<Vec<_>>()
    });
    assert_eq!(rounds[0], rounds[1], "drafted, accepted, committed of each round");
    assert_eq!(answers[0].text(), answers[1].text());
    // the server's own totals, in its last chunk with a token
    let last = LLAMA.lines().rev().find(|line| line.contains("draft_n_accepted")).unwrap();
    let chunk: serde_json::Value = serde_json::from_str(last.strip_prefix("data: ").unwrap()).unwrap();
    let stats = answers[1].stats();
    assert_eq!(chunk["timings"]["draft_n"], stats.drafted());
    assert_eq!(chunk["timings"]["draft_n_accepted"], stats.accepted());
    // what only the library knows
    let drafts = |at: usize| answers[at].rounds.iter().flat_map(|round| &round.drafts);
    assert!(drafts(0).any(|draft| draft.token.id.is_unknown()), "the stream leaves out rejected drafts");
    assert!(drafts(1).all(|draft| !draft.token.id.is_unknown() && draft.took_us > 0));
    for round in &answers[1].rounds {
        assert_eq!(round.rows().len(), round.drafts.len() + 1);
        assert!(round.verify_us() > 0, "the time of the target's pass");
    }
    assert_eq!(stats.evidence().sentence(), None);
}

#[test]
fn chunks_that_hold_several_steps_are_taken_apart() {
    let (driver, _) = joined(MERGED, MERGED_LINES);
    let answer = driver.session().turn().unwrap().answer(Lane::Speculative).clone();
    let lines = MERGED_LINES.lines().filter(|line| line.contains("\"type\":\"committed\"")).count();
    assert_eq!(answer.rounds.len() + 1, lines, "a round for each step, and the first token");
    assert!(answer.rounds.iter().all(|round| !round.rows().is_empty() && !round.follows_wait));
    assert_eq!(answer.tokens.len(), 14);
}

#[test]
fn a_plugin_that_reports_another_text_changes_nothing() {
    let lying = LINES.replace("\"id\":3772", "\"id\":3773");
    let ((honest, _), (lied, _)) = (joined(STREAM, ""), joined(STREAM, &lying));
    let text = |driver: &Driver| driver.session().turn().unwrap().answer(Lane::Speculative).text();
    assert_eq!(text(&honest), text(&lied));
    let figures = |driver: &Driver| {
        let run = Summary::of(driver.session().turn().unwrap(), Lane::Speculative).run;
        (run.num_spec_steps, run.num_draft_tokens, run.num_accepted_draft_tokens)
    };
    assert_eq!(figures(&honest), figures(&lied));
}

#[test]
fn events_of_a_joined_answer_are_those_of_any_other() {
    let (driver, _) = joined(STREAM, LINES);
    let header = driver.session().header().unwrap();
    assert!(header.engine.is_some());
    let end = driver.session().end().unwrap();
    assert!(matches!(end.kind, EventKind::Ended { .. }));
}
