//! Attaching to a server that misbehaves: a scripted one on a socket of this machine.

#![allow(clippy::unwrap_used)] // a test that cannot go on should stop

#[path = "common/scripted.rs"]
mod scripted;

use std::io::Write;
use std::sync::Mutex;
use std::time::Duration;

use draftscope::attach::{AttachConfig, spawn};
use draftscope::headless::{Driver, Outcome};
use draftscope::http::{Access, MAX_LINE, Patience};
use draftscope::protocol::{Lane, Prompt, Settings, StopReason};
use scripted::{Seen, reply, serve_with};

const RECORDED: &str = include_str!("fixtures/attach/llama-draft-simple.sse.txt");

/// Answers what is not `/completion` as llama-server does; false for `/completion`.
fn answer_other(path: &str, out: &mut dyn Write) -> bool {
    let body = match path {
        "/props" => r#"{"default_generation_settings":{"n_ctx":64},"model_path":"a/b.gguf"}"#,
        "/slots" => r#"[{"speculative":true,"params":{"speculative.types":"draft-simple"}}]"#,
        "/tokenize" => r#"{"tokens":[{"id":2,"piece":"<|im_end|>"}]}"#,
        "/completion" => return false,
        _ => "{}",
    };
    reply(out, "200 OK", body);
    true
}

/// Answers `/completion` with this head and body, and everything else as llama-server does.
fn serve(status: &'static str, body: Vec<u8>, stalls: bool) -> (String, Seen) {
    serve_with(move |path, out| {
        if answer_other(path, out) {
            return;
        }
        reply(out, status, &body);
        if stalls {
            let _ = out.flush();
            std::thread::sleep(Duration::from_secs(20));
        }
    })
}

/// A run that waits for a minute, and for a server that stalls for two seconds.
fn driver(url: &str, stalls: bool) -> Driver {
    let minute = Duration::from_secs(60);
    let silence = if stalls { Duration::from_secs(2) } else { minute };
    let patience = Patience { connect: minute, answer: minute, silence };
    let headers = vec![("Authorization".to_owned(), "Bearer s3cret".to_owned())];
    let access = Access { headers, ..Access::default() };
    let config = AttachConfig { access, patience, ..AttachConfig::new(url, Settings::default()) };
    Driver::new(spawn(config).unwrap())
}

fn ask(status: &'static str, body: impl Into<Vec<u8>>, stalls: bool) -> (Outcome, Driver) {
    let (url, _) = serve(status, body.into(), stalls);
    let mut driver = driver(&url, stalls);
    let outcome = driver.answer(Prompt::Raw("a".to_owned()));
    (outcome, driver)
}

fn why(outcome: Outcome) -> String {
    match outcome {
        Outcome::Failed(why) => why,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_recorded_stream_gives_rounds_and_text() {
    let (outcome, driver) = ask("200 OK", RECORDED, false);
    assert_eq!(outcome, Outcome::Answered);
    let answer = driver.session().turn().unwrap().answer(Lane::Speculative);
    assert_eq!(answer.text(), "The cat sat on the mat.");
    let stats = answer.stats();
    assert_eq!((stats.rounds(), stats.drafted(), stats.accepted(), stats.tested()), (2, 8, 5, 6));
    assert_eq!(stats.summary().verify_seconds, None, "whole rounds only");
    assert_eq!(answer.tokens.last().unwrap().piece.lossy(), "<|im_end|>");
    assert!(answer.rounds[1].drafts[2].token.id.is_unknown(), "rejected drafts are not reported");
}

#[test]
fn garbage_between_chunks_is_passed_over_and_garbage_alone_ends_the_answer() {
    let garbage = b"\x00\xff\x1b[2Jdata\ndata: {\"tokens\":\"x\"}\n";
    let mixed = [garbage.as_slice(), RECORDED.as_bytes()].concat();
    let (outcome, driver) = ask("200 OK", mixed, false);
    assert_eq!(outcome, Outcome::Answered);
    assert_eq!(driver.session().turn().unwrap().answer(Lane::Speculative).text(), "The cat sat on the mat.");
    let (outcome, _) = ask("200 OK", garbage.repeat(40), false);
    assert!(why(outcome).contains("sends no chunks"));
}

#[test]
fn a_huge_line_ends_the_answer_and_keeps_what_came_before() {
    let first = RECORDED.split_inclusive("\n\n").take(3).collect::<String>();
    let body = [first.as_bytes(), &vec![b'x'; 2 * MAX_LINE]].concat();
    let (outcome, driver) = ask("200 OK", body, false);
    assert!(why(outcome).contains("in one piece"));
    let answer = driver.session().turn().unwrap().answer(Lane::Speculative);
    assert_eq!((answer.text().as_str(), answer.finished), ("The cat sat", Some(StopReason::BrokenOff)));
}

#[test]
fn a_closed_or_silent_connection_breaks_the_answer_off() {
    let first = RECORDED.split_inclusive("\n\n").take(3).collect::<String>();
    for stalls in [false, true] {
        let (outcome, driver) = ask("200 OK", first.clone(), stalls);
        assert!(why(outcome).starts_with("the answer broke off: "), "stalls: {stalls}");
        assert_eq!(driver.session().turn().unwrap().answer(Lane::Speculative).text(), "The cat sat");
    }
}

#[test]
fn a_redirect_to_another_host_is_refused_and_gets_no_key() {
    let (other, seen) = serve("200 OK", RECORDED.into(), false);
    let status: &'static str = format!("307 Moved\r\nLocation: {other}/completion").leak();
    let (outcome, _) = ask(status, "", false);
    assert!(why(outcome).contains("redirects to another host"));
    assert!(seen.lock().unwrap().is_empty(), "the other host was not asked");
}

#[test]
fn an_error_of_the_server_is_one_sentence_without_the_key() {
    let body = r#"{"error":{"code":400,"message":"request (99 tokens) exceeds the available context size"}}"#;
    let (outcome, driver) = ask("400 Bad Request", body, false);
    assert_eq!(why(outcome), "llama-server refuses the prompt: request (99 tokens) exceeds the available context size");
    let header = serde_json::to_string(driver.session().header().unwrap()).unwrap();
    assert!(!header.contains("s3cret"));
}

#[test]
fn every_request_carries_the_key() {
    let (url, seen) = serve("200 OK", RECORDED.into(), false);
    driver(&url, false).answer(Prompt::Raw("a".to_owned()));
    let seen = seen.lock().unwrap();
    assert!(seen.len() >= 5 && seen.iter().all(|(head, _)| head.contains("Bearer s3cret")), "{seen:?}");
}

#[test]
fn an_address_that_cannot_be_used_is_an_error_in_one_sentence() {
    for (url, says) in [
        ("ftp://x", "is no http or https address"),
        ("http://:8080", "is no http or https address"),
        ("http://127.0.0.1:1/v1?api-version=3", "must not have a query: leave out '?'"),
        ("http://name:secret@x", "must not contain a password"),
        ("http://127.0.0.1:1", "no answer from 127.0.0.1:1"),
    ] {
        let why = why(driver(url, false).answer(Prompt::Raw("a".to_owned())));
        assert!(why.contains(says) && !why.contains("secret@"), "{why}");
    }
}

#[test]
fn a_stop_closes_the_connection_so_that_the_server_stops() {
    let (closed, is_closed) = std::sync::mpsc::channel();
    let closed = Mutex::new(closed);
    let (url, _) = serve_with(move |path, out| {
        if answer_other(path, out) {
            return;
        }
        // a server that writes as long as somebody reads
        let chunk = "data: {\"content\":\"a\",\"tokens\":[7],\"timings\":{\"predicted_n\":1}}\n\n";
        reply(out, "200 OK", chunk);
        while out.write_all(chunk.as_bytes()).is_ok() {
            std::thread::sleep(Duration::from_millis(5));
        }
        closed.lock().unwrap().send(()).unwrap();
    });
    let mut source = spawn(AttachConfig::new(&url, Settings::default())).unwrap();
    source.commands.send(draftscope::protocol::Command::Generate { prompt: Prompt::Raw("a".to_owned()) }).unwrap();
    let mut rounds = 0;
    while let Some(event) = source.events.blocking_recv() {
        match event.kind {
            draftscope::protocol::EventKind::Committed(_) => {
                rounds += 1;
                if rounds == 3 {
                    source.commands.send(draftscope::protocol::Command::Stop).unwrap();
                }
            }
            draftscope::protocol::EventKind::Finished { reason } => {
                assert_eq!(reason, StopReason::Stopped);
                break;
            }
            _ => {}
        }
    }
    is_closed.recv_timeout(Duration::from_secs(60)).expect("the connection is closed");
}
