//! What servers send, and which model and address are meant.

mod errors;
mod models;
mod real;
mod secrets;
mod streams;

use std::process::{Command, Output};

use serde_json::{Value, json};

use crate::asked::{self, Asked, Reply};

/// What a run of the program printed.
struct Ran {
    text: String,
    said: String,
    code: Option<i32>,
}

impl Ran {
    fn of(output: &Output) -> Self {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Self { text: text(&output.stdout), said: text(&output.stderr), code: output.status.code() }
    }

    /// Asserts that the answer was printed and nothing else.
    #[track_caller]
    fn answers(&self, text: &str) {
        assert_eq!((self.text.trim_end(), self.code), (text, Some(0)), "{}", self.said);
    }

    /// Asserts that the program ended with a sentence that has all of these words.
    #[track_caller]
    fn fails(&self, words: &[&str]) {
        assert_ne!(self.code, Some(0), "{}", self.text);
        assert!(words.iter().all(|word| self.said.contains(word)), "{words:?} in {}", self.said);
        assert!(!self.said.contains("panicked") && !self.said.contains("report it"), "{}", self.said);
    }
}

/// A command of the program without the user's environment.
fn draftscope(args: &[&str]) -> Command {
    const PROGRAM: &str = env!("CARGO_BIN_EXE_draftscope");
    // what started the tests may ignore some signals, as nohup does
    let mut command = Command::new(if cfg!(target_os = "linux") { "env" } else { PROGRAM });
    if cfg!(target_os = "linux") {
        command.args(["--default-signal", PROGRAM]);
    }
    command.args(args).stdin(std::process::Stdio::null());
    for name in
        ["DRAFTSCOPE_API_KEY", "DRAFTSCOPE_PLAIN_API_KEY", "DRAFTSCOPE_MODEL", "DRAFTSCOPE_SOCKET", "RUST_BACKTRACE"]
    {
        command.env_remove(name);
    }
    command
}

fn run(args: &[&str]) -> Ran {
    Ran::of(&draftscope(args).output().unwrap())
}

/// Asks the server at this address.
fn ask(address: &str, prompt: &str) -> Ran {
    run(&["run", "--attach", address, "--prompt", prompt])
}

/// Asks it for a summary.
fn summary(address: &str, prompt: &str) -> Value {
    let ran = run(&["run", "--attach", address, "--prompt", prompt, "--output", "summary"]);
    serde_json::from_str(&ran.text).unwrap_or_else(|_| json!({"said": ran.said}))
}

/// An OpenAI-compatible server with one model, whose chat answers like this.
fn chat(answer: impl Fn(&Asked) -> Reply + Send + Sync + 'static) -> String {
    let routes = move |asked: &Asked| match asked.path.as_str() {
        "/v1/models" => Some(asked::models(&["m"])),
        "/v1/chat/completions" => Some(answer(asked)),
        _ => None,
    };
    asked::serve(routes).0
}
