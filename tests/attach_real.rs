//! Attaching to a real llama-server with the default model.

#![allow(clippy::unwrap_used)] // a test that cannot go on should stop

#[path = "common/llama_wheel.rs"]
mod llama_wheel;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;

use draftscope::attach::{AttachConfig, PlainServer, spawn};
use draftscope::headless::{Driver, Outcome};
use draftscope::http::Access;
use draftscope::protocol::stream::Consumer;
use draftscope::protocol::{Baseline, Event, EventKind, Lane, Prompt, Sampling, Settings, StopReason};
use llama_wheel::{Running, free_port, python};

struct Server {
    running: Running,
    url: String,
    address: String,
}

impl Server {
    fn start(python: &Path, drafter: &str, port: u16) -> Self {
        let model = draftscope::store::resolve(None).unwrap();
        let running = Running::start_at(python, &model, drafter, port, &[]);
        let url = running.url.clone();
        Self { running, address: url.trim_start_matches("http://").to_owned(), url }
    }

    /// A counter of `/metrics`.
    fn counter(&self, name: &str) -> u64 {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        write!(stream, "GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        let value = text.lines().find_map(|line| line.strip_prefix(&format!("llamacpp:{name} ")));
        value.unwrap().trim().parse::<f64>().unwrap() as u64
    }
}

/// Greedy, with the server's own speculation.
fn config(url: &str, max_tokens: u32) -> AttachConfig {
    let settings = Settings { max_tokens, baseline: Baseline::Off, ..Settings::default() };
    AttachConfig::new(url, settings)
}

/// Above temperature 0 a drafter with the target's weights has rejected drafts, too.
fn driver(url: &str, max_tokens: u32, temperature: f32) -> Driver {
    let sampling = Sampling { temperature, seed: 7, ..Sampling::default() };
    let settings = Settings { max_tokens, sampling, baseline: Baseline::Off, ..Settings::default() };
    Driver::new(spawn(AttachConfig::new(url, settings)).unwrap())
}

const WORDS: [&str; 13] =
    ["red", "stone", "river", "seven", "apple", "north", "quiet", "lamp", "seed", "cloud", "iron", "mint", "zero"];

/// A text that repeats itself, so that an n-gram drafter finds something.
fn prompt(number: usize) -> Prompt {
    let words: Vec<_> = (0..13).map(|index| WORDS[(index * (number % 12 + 1) + number) % 13]).collect();
    Prompt::Raw(format!("{0}. {0}. {0}. {0}.", words.join(" ")))
}

#[test]
fn rounds_equal_the_server_s_own_totals_on_fifty_answers() {
    let Some(python) = python() else { return };
    for (drafter, temperature) in [("ngram-simple", 0.0), ("draft-simple", 1.0)] {
        let server = Server::start(&python, drafter, free_port());
        let names = [
            "spec_decode_num_draft_tokens_total",
            "spec_decode_num_accepted_tokens_total",
            "spec_decode_num_drafts_total",
        ];
        let mut driver = driver(&server.url, 20, temperature);
        for number in 0..25 {
            assert_eq!(driver.answer(prompt(number)), Outcome::Answered, "{drafter} {number}");
        }
        let totals = names.map(|name| server.counter(name));
        let stats = driver.session().stats(Lane::Speculative);
        let notices: Vec<_> = driver.session().notices().map(str::to_owned).collect();
        let is_merged = !notices.is_empty();
        assert!(notices.iter().all(|notice| notice.contains("a part of a character")), "{notices:?}");
        assert_eq!([stats.drafted(), stats.accepted()], totals[..2], "{drafter}");
        let (steps, merged) = (stats.rounds_with_drafts(), totals[2] - stats.rounds_with_drafts());
        assert!(steps == totals[2] || (is_merged && merged * 20 < steps), "{drafter}: {steps} of {totals:?}");
        assert!(
            totals[0] > 20 && (temperature == 0.0 || totals[1] < totals[0]),
            "{drafter} drafted and rejected: {totals:?}"
        );
        let header = driver.session().header().unwrap();
        assert_eq!(header.drafter.as_ref().unwrap().name, drafter);
        eprintln!("{drafter}: drafted, accepted, steps = {totals:?} on 25 answers, {merged} steps counted together");
        driver.finish();
    }
}

/// Kills a server once an answer has some rounds.
struct Killer {
    server: u32,
    rounds: usize,
}

impl Consumer for Killer {
    fn name(&self) -> &str {
        "a test"
    }
    fn event(&mut self, event: &Event) -> std::io::Result<()> {
        self.rounds += usize::from(matches!(event.kind, EventKind::Committed(_)));
        if self.rounds == 3 {
            Command::new("kill").args(["-9", &self.server.to_string()]).status()?;
        }
        Ok(())
    }
    fn finish(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_killed_server_breaks_the_answer_off_and_the_next_prompt_connects_anew() {
    let Some(python) = python() else { return };
    let port = free_port();
    let mut server = Server::start(&python, "ngram-simple", port);
    let mut driver = driver(&server.url, 1500, 0.0);
    driver.add(Box::new(Killer { server: server.running.child.id(), rounds: 0 }));
    let Outcome::Failed(why) = driver.answer(Prompt::Raw("Once upon a time".to_owned())) else {
        panic!("the server was killed in mid-answer");
    };
    server.running.kill();
    assert!(why.starts_with("the answer broke off: ") && !why.contains('\n'), "{why}");
    let answer = driver.session().turn().unwrap().answer(Lane::Speculative).clone();
    assert_eq!(answer.finished, Some(StopReason::BrokenOff));
    assert!(answer.tokens.len() > 1, "what had come stays");
    let _server = Server::start(&python, "ngram-simple", port);
    let again = driver.answer(Prompt::Raw("one two three".to_owned()));
    assert_eq!(again, Outcome::Answered, "it connects anew");
}

#[test]
fn predictions_are_asked_afterwards_and_agree_with_the_greedy_text() {
    let Some(python) = python() else { return };
    let server = Server::start(&python, "draft-simple", free_port());
    let asked = AttachConfig { probe: true, ..config(&server.url, 12) };
    let mut source = spawn(asked).unwrap();
    let prompt = Prompt::Raw("The capital of France is".to_owned());
    source.commands.send(draftscope::protocol::Command::Generate { prompt }).unwrap();
    let mut session = draftscope::session::Session::new();
    let mut rows = 0;
    while rows < 12 {
        let event = source.events.blocking_recv().unwrap();
        rows += usize::from(matches!(event.kind, EventKind::RowAsked { .. }));
        session.apply(&event);
    }
    let answer = session.turn().unwrap().answer(Lane::Speculative);
    assert_eq!(answer.first_row.best().unwrap().piece.id, answer.tokens[0].piece.id);
    let mut seen = 0;
    for round in &answer.rounds {
        for (index, piece) in round.committed().iter().enumerate() {
            let row = round.prediction(index).unwrap();
            assert!(row.top.len() >= 10 && (row.top.iter().map(|c| c.prob).sum::<f32>() + row.tail - 1.0).abs() < 1e-3);
            let best = row.best().unwrap();
            let margin = best.prob - row.find(piece.id).map_or(0.0, |(_, p)| p);
            assert!(margin < 0.02, "greedy text takes the best, or a near tie: {margin}");
            seen += 1;
        }
        assert!(round.is_asked);
    }
    assert_eq!(seen, 11);
}

#[test]
fn a_second_server_without_speculation_writes_the_same_text_beside() {
    let Some(python) = python() else { return };
    let own = Server::start(&python, "ngram-simple", free_port());
    let plain = Server::start(&python, "none", free_port());
    let beside = PlainServer { url: plain.url, access: Access::default() };
    let asked = AttachConfig { plain: Some(beside), ..config(&own.url, 40) };
    let mut driver = Driver::new(spawn(asked).unwrap());
    for number in 0..3 {
        assert_eq!(driver.answer(prompt(number)), Outcome::Answered);
        let turn = driver.session().turn().unwrap();
        let (fast, slow) = (turn.answer(Lane::Speculative), turn.answer(Lane::Plain));
        assert_eq!(fast.text(), slow.text(), "exact verification keeps the text");
        assert_eq!(slow.stats().drafted(), 0);
        assert!(slow.stats().decode_us() > 0 && fast.stats().rounds() <= slow.stats().rounds());
    }
    let notices: Vec<_> = driver.session().notices().collect();
    assert!(!notices.iter().any(|notice| notice.contains("plain server")), "{notices:?}");
}

#[test]
fn watching_sees_the_drafts_of_others() {
    let Some(python) = python() else { return };
    let server = Server::start(&python, "draft-simple", free_port());
    let second = std::time::Duration::from_millis(200);
    let samples =
        draftscope::attach::watch::watch(std::slice::from_ref(&server.url), &Access::default(), second, None).unwrap();
    let mut fleet = draftscope::session::Fleet::new(1);
    fleet.take(samples.recv().unwrap());
    let mut driver = driver(&server.url, 20, 1.0);
    for number in 0..3 {
        assert_eq!(driver.answer(prompt(number)), Outcome::Answered);
    }
    let wanted = driver.session().stats(Lane::Speculative);
    let seen = loop {
        fleet.take(samples.recv().unwrap());
        let counters = fleet.servers()[0].newest.as_ref().unwrap().counters.clone().unwrap();
        if counters.drafted >= Some(wanted.drafted()) {
            break counters;
        }
    };
    assert_eq!((seen.drafted, seen.accepted), (Some(wanted.drafted()), Some(wanted.accepted())));
    let sample = fleet.servers()[0].newest.as_ref().unwrap();
    assert_eq!((sample.engine.as_str(), sample.slots.len()), ("llama-server", 1));
    assert!(fleet.servers()[0].since_start().acceptance_rate.is_some());
}
