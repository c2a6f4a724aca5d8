//! The prompt of a real llama-server's own chat, for models that want a begin token: prompt tokens, greedy text and counters
//! equal what the server's own route evaluates.

use std::path::{Path, PathBuf};
use std::time::Duration;

use candle_core::quantized::gguf_file::Value as Gguf;
use draftscope::http::{Access, Client, Patience};
use serde_json::{Value, json};

use super::{Ran, draftscope};

use crate::common::tiny::{TEMPLATE, Tiny};
use crate::llama_wheel::{Running, python};

/// How a model's chat begins.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Begin {
    /// The template writes the begin token, and the tokenizer adds it.
    Both,
    /// Only the tokenizer adds it.
    Tokenizer,
    /// Only the template writes it.
    Template,
    /// The model has no template, so llama.cpp uses its own; the tokenizer adds the token.
    NoTemplate,
}

/// A tiny model with random weights.
fn model(begin: Begin) -> Tiny {
    Tiny::with(7, |parts| {
        let has_template = matches!(begin, Begin::Both | Begin::Template);
        let template = if has_template { format!("{{{{ bos_token }}}}{TEMPLATE}") } else { TEMPLATE.to_owned() };
        parts.metadata.retain(|(name, _)| name != "tokenizer.chat_template");
        if begin != Begin::NoTemplate {
            parts.metadata.push(("tokenizer.chat_template".to_owned(), Gguf::String(template)));
        }
        // token 0 begins a text, so that it differs from the marks of the template
        parts.metadata.retain(|(name, _)| name != "tokenizer.ggml.bos_token_id");
        parts.metadata.push(("tokenizer.ggml.bos_token_id".to_owned(), Gguf::U32(0)));
        parts.metadata.push(("tokenizer.ggml.add_bos_token".to_owned(), Gguf::Bool(begin != Begin::Template)));
    })
}

/// The server's own routes.
struct Own(Client);

impl Own {
    fn new(url: &str, key: Option<&str>) -> Self {
        let headers = key.map(|key| ("Authorization".to_owned(), format!("Bearer {key}"))).into_iter().collect();
        let minute = Duration::from_secs(60);
        let patience = Patience { connect: minute, answer: minute, silence: minute };
        Self(Client::new(url, Access { headers, ..Access::default() }, patience).unwrap())
    }

    /// Drafts, draft tokens and accepted tokens since the start.
    fn counters(&self) -> [u64; 3] {
        let text = self.0.get("/metrics").unwrap();
        ["drafts", "draft_tokens", "accepted_tokens"].map(|name| {
            let name = format!("llamacpp:spec_decode_num_{name}_total ");
            let value = text.lines().find_map(|line| line.strip_prefix(&name)).map(|value| value.trim().parse::<f64>());
            value.map_or(0, |value| value.unwrap() as u64)
        })
    }

    /// Tokens of the prompt, and the greedy text.
    fn chat(&self, prompt: &str) -> (Value, String) {
        let body = json!({"messages": [{"role": "user", "content": prompt}], "temperature": 0, "max_tokens": TOKENS});
        let answer = self.0.post_json("/v1/chat/completions", &body).unwrap();
        let message = &answer["choices"][0]["message"];
        let part = |name: &str| message[name].as_str().unwrap_or_default().to_owned();
        (answer["usage"]["prompt_tokens"].clone(), part("reasoning_content") + &part("content"))
    }
}

const TOKENS: u32 = 24;

fn summary(url: &str, key: Option<&str>, prompt: &str, temperature: &str) -> Value {
    let tokens = TOKENS.to_string();
    let mut command = draftscope(&[
        "run",
        "--attach",
        url,
        "--prompt",
        prompt,
        "--temperature",
        temperature,
        "--max-tokens",
        &tokens,
        "-o",
        "summary",
    ]);
    let ran = Ran::of(&command.envs(key.map(|key| ("DRAFTSCOPE_API_KEY", key))).output().unwrap());
    serde_json::from_str(&ran.text).unwrap_or_else(|_| panic!("{}", ran.said))
}

/// What differs between a server's own chat and what draftscope shows of that server; empty if all is equal. Beside it the
/// tokens that the server drafted.
fn differences(python: &Path, (begin, file): (Begin, &Path), drafter: &str, options: &[&str]) -> (Vec<String>, u64) {
    let server = Running::start(python, file, drafter, &[options, &["short=1"]].concat());
    let key = options.iter().find_map(|option| option.strip_prefix("key="));
    let url = options
        .iter()
        .find_map(|option| option.strip_prefix("prefix="))
        .map_or(server.url.clone(), |prefix| format!("{}{prefix}", server.url.trim_end_matches(prefix)));
    let own = Own::new(&url, key);
    let (mut shown, mut counted, mut found) = ([0; 3], [0; 3], Vec::new());
    let place = format!("{begin:?} {drafter} {options:?}");
    for (prompt, temperature) in
        [("Hi the in the in the in", "0"), ("Count. the the in", "0"), ("the in the in", "0.8")]
    {
        let before = own.counters();
        let figures = summary(&url, key, prompt, temperature);
        let names = ["num_spec_steps", "num_draft_tokens", "num_accepted_draft_tokens"];
        let news = own.counters();
        for index in 0..3 {
            shown[index] += figures[names[index]].as_u64().unwrap_or(0);
            counted[index] += news[index] - before[index];
        }
        if temperature == "0" {
            let (prompt_tokens, text) = own.chat(prompt);
            if figures["prompt_tokens"] != prompt_tokens {
                let shown = &figures["prompt_tokens"];
                found.push(format!("{place}: {shown} prompt tokens, the server's own chat evaluates {prompt_tokens}"));
            }
            if figures["text"].as_str().unwrap().trim() != text.trim() {
                found.push(format!("{place}: text {:?}, the server's own chat answers {text:?}", figures["text"]));
            }
        }
    }
    if shown != counted {
        found.push(format!("{place}: steps, drafted, accepted {shown:?}, the server counted {counted:?}"));
    }
    (found, counted[1])
}

#[test]
fn prompts_texts_and_counters_equal_those_of_the_server_s_own_chat() {
    let Some(python) = python() else { return };
    let configurations: [(Begin, &str, &[&str]); 6] = [
        (Begin::Both, "ngram-simple", &[]),
        (Begin::Tokenizer, "draft-simple", &[]),
        (Begin::Template, "ngram-simple", &["slots=2"]),
        (Begin::NoTemplate, "ngram-mod", &[]),
        (Begin::Both, "none", &["prefix=/llm"]),
        (Begin::NoTemplate, "draft-simple", &["key=sesame-sesame"]),
    ];
    let mut drafted = 0;
    for (begin, drafter, options) in configurations {
        let tiny = model(begin);
        let file: PathBuf = tiny.target.clone();
        let (found, tokens) = differences(&python, (begin, &file), drafter, options);
        assert!(found.is_empty(), "{found:#?}");
        drafted += tokens;
    }
    assert!(drafted > 20, "the servers drafted something: {drafted}");
}

#[test]
fn a_prompt_without_its_begin_token_is_seen_by_the_comparison() {
    let Some(python) = python() else { return };
    let tiny = model(Begin::Both);
    let (found, _) = differences(&python, (Begin::Both, &tiny.target), "ngram-simple", &["forget=begin"]);
    // the text of random weights may be the same all the same
    assert!(found.iter().any(|one| one.contains("prompt tokens")), "{found:#?}");
}
