//! Attaching to a server whose answer never ends: the answer breaks off with one sentence.

#![allow(clippy::unwrap_used)] // a test that cannot go on should stop

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use draftscope::attach::{AttachConfig, spawn};
use draftscope::headless::{Driver, Outcome};
use draftscope::http::{Access, Client, Patience};
use draftscope::protocol::{Lane, Prompt, Settings, StopReason};

/// Answers `/completion` with these bytes again and again until the client leaves.
fn serve(endless: Vec<u8>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let endless = endless.clone();
            std::thread::spawn(move || answer(stream.unwrap(), &endless));
        }
    });
    url
}

fn answer(mut stream: TcpStream, endless: &[u8]) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let (mut path, mut length) = (String::new(), 0);
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).unwrap_or(0) == 0 {
            return;
        }
        if line == "\r\n" {
            break;
        }
        if path.is_empty() {
            path = line.split(' ').nth(1).unwrap_or_default().to_owned();
        }
        if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
    }
    let _ = reader.read_exact(&mut vec![0; length]);
    let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n");
    match path.as_str() {
        "/completion" => while stream.write_all(endless).is_ok() {},
        "/props" => drop(stream.write_all(br#"{"default_generation_settings":{"n_ctx":64},"model_path":"a/b.gguf"}"#)),
        _ => drop(stream.write_all(b"{}")),
    }
}

/// Answers one request with a byte every 50 ms until the client leaves.
fn drip() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n");
        while stream.write_all(b" ").is_ok() {
            std::thread::sleep(Duration::from_millis(50));
        }
    });
    url
}

/// What an answer of at most 32 tokens becomes: its end, its number of tokens, the sentence.
fn ask(endless: Vec<u8>) -> (Option<StopReason>, usize, String) {
    let second = Duration::from_secs(1);
    let patience = Patience { connect: 5 * second, answer: 20 * second, silence: 20 * second };
    let settings = Settings { max_tokens: 32, ..Settings::default() };
    let config = AttachConfig { patience, ..AttachConfig::new(&serve(endless), settings) };
    let mut driver = Driver::new(spawn(config).unwrap());
    let Outcome::Failed(why) = driver.answer(Prompt::Raw("a".to_owned())) else { panic!("it breaks off") };
    let answer = driver.session().turn().unwrap().answer(Lane::Speculative);
    (answer.finished, answer.tokens.len(), why)
}

#[test]
fn more_tokens_than_were_asked_for_end_the_answer() {
    let chunk =
        r#"data: {"index":0,"content":" a","tokens":[5],"stop":false,"tokens_predicted":1,"tokens_evaluated":5}"#;
    let (finished, tokens, why) = ask(format!("{chunk}\n\n").into_bytes());
    assert_eq!(finished, Some(StopReason::BrokenOff));
    assert!(why.contains("more tokens than it was asked for"), "{why}");
    assert!((32..=32 + 512).contains(&tokens), "{tokens}: a last round may be longer, nothing else");
}

#[test]
fn comments_without_end_end_the_answer() {
    let (finished, tokens, why) = ask(format!(": {}\n", "x".repeat(1 << 16)).into_bytes());
    assert_eq!((finished, tokens), (Some(StopReason::BrokenOff), 0));
    assert!(why.contains("no part of the answer any more"), "{why}");
}

#[test]
fn blank_lines_without_end_end_the_answer() {
    let (finished, tokens, why) = ask(vec![b'\n'; 1 << 16]);
    assert_eq!((finished, tokens), (Some(StopReason::BrokenOff), 0));
    assert!(why.contains("no part of the answer any more"), "{why}");
}

#[test]
fn a_body_that_comes_byte_by_byte_is_given_up() {
    let second = Duration::from_secs(1);
    let patience = Patience { connect: 5 * second, answer: 5 * second, silence: 5 * second };
    let client = Client::new(&drip(), Access::default(), patience).unwrap();
    let began = Instant::now();
    let error = client.get("/props").unwrap_err().to_string();
    assert!(error.contains("sends its answer too slowly"), "{error}");
    assert!(began.elapsed() < 60 * second, "{:?}", began.elapsed());
}
