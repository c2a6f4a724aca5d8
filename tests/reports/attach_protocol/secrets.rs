//! A server that repeats the key that it was sent: the key is nowhere in what is printed or recorded.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::{Ran, draftscope};
use crate::asked::{Asked, Reply, bytes, chunk, js, models, serve, stream};

const KEY: &str = "SECRET/KEY+1=23";

/// The key in notations that a server may repeat it in.
fn notations() -> String {
    let coded = "SECRET%2FKEY%2B1%3D23";
    let both = STANDARD.encode(format!("Authorization: Bearer {KEY}"));
    format!(
        "{KEY} {coded} {} {both} {}",
        coded.to_lowercase().replace("secret", "SECRET").replace("key", "KEY"),
        STANDARD.encode(KEY)
    )
}

#[track_caller]
fn holds_no_key(text: &str) {
    let parts = [KEY, "SECRET", "KEY+1", "KEY%2B1", "KEY%2b1"].map(str::to_owned);
    let coded = STANDARD.encode(KEY);
    for part in parts.iter().map(String::as_str).chain([&coded[..12]]) {
        assert!(!text.contains(part), "{part} in {text}");
    }
}

/// Runs the program with the key and a recording; returns what it printed and what it recorded.
fn run(url: &str, more: &[&str]) -> (Ran, String) {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("t.dscope.jsonl").display().to_string();
    let args = [&["run", "--attach", url, "--prompt", "x", "--trace", &trace][..], more].concat();
    let ran = Ran::of(&draftscope(&args).env("DRAFTSCOPE_API_KEY", KEY).output().unwrap());
    (ran, std::fs::read_to_string(trace).unwrap_or_default())
}

fn check(answer: impl Fn(&Asked) -> Option<Reply> + Send + Sync + 'static) {
    let (url, _) = serve(answer);
    for more in [&[][..], &["--output", "summary"], &["--output", "jsonl"]] {
        let (ran, recorded) = run(&url, more);
        let all = [ran.text, ran.said, recorded].concat();
        holds_no_key(&all);
        assert!(all.contains("***"), "something was said, and is masked: {all}");
    }
}

fn openai(reply: impl Fn() -> Reply + Send + Sync + 'static) {
    check(move |asked| match asked.path.as_str() {
        "/v1/models" => Some(models(&["m"])),
        "/v1/chat/completions" => Some(reply()),
        _ => None,
    });
}

#[test]
fn no_error_of_a_server_repeats_the_key() {
    let said = || format!("bad key {}", notations());
    openai(move || js(400, &json!({"error": {"message": said()}})));
    openai(move || js(401, &json!({"error": {"message": said()}})));
    openai(move || Reply { status: 500, ..bytes(said()) });
    openai(move || stream(&[chunk(json!({"content": "One"}), json!(null)), json!({"error": {"message": said()}})]));
    openai(move || bytes(said()));
    openai(move || bytes(serde_json::to_string_pretty(&json!({"error": {"message": said()}})).unwrap()));
    openai(|| bytes("data: {\"error\":{\"message\":\"bad key \\u0053ECRET\\/KEY\\u002b1=23\"}}\n\n"));
}

#[test]
fn no_answer_notice_name_or_address_of_a_server_repeats_the_key() {
    openai(|| stream(&[chunk(json!({"content": format!("your key is {}", notations())}), json!("stop"))]));
    openai(|| stream(&[json!({"weather": notations()}), chunk(json!({"content": "One"}), json!("stop"))]));
    openai(|| Reply {
        status: 302,
        headers: "Location: http://other.example/SECRET%2FKEY%2B1%3D23\r\n",
        pieces: Vec::new(),
    });
    check(|asked| match asked.path.as_str() {
        "/v1/models" => Some(models(&[&notations()])),
        "/v1/chat/completions" => Some(stream(&[chunk(json!({"content": "One"}), json!("stop"))])),
        _ => None,
    });
    check(|asked| {
        let token = |text: &str| json!({"tokens": [{"id": 1, "piece": text}]});
        Some(match asked.path.as_str() {
            "/props" => js(
                200,
                &json!({"default_generation_settings": {"n_ctx": 64}, "model_path": notations(), "build_info": notations()}),
            ),
            "/apply-template" => js(200, &json!({"prompt": notations()})),
            "/tokenize" => js(200, &token(KEY)),
            "/completion" => bytes(format!("data: {}\n\n", json!({"content": KEY, "tokens": [3], "stop": true}))),
            _ => js(200, &Value::Null),
        })
    });
}

#[test]
fn a_hub_that_repeats_the_token_does_not_get_it_printed() {
    let (url, seen) = serve(|_| Some(js(403, &json!({"error": notations()}))));
    let folder = tempfile::tempdir().unwrap();
    let mut command = draftscope(&["models", "pull", "owner/name", "--from", "hub"]);
    for name in ["HF_HOME", "XDG_CACHE_HOME", "HOME", "DRAFTSCOPE_CACHE"] {
        command.env(name, folder.path());
    }
    for name in ["HF_ENDPOINT", "HF_ENDPOINT_URL"] {
        command.env(name, format!("http://{url}"));
    }
    let ran = Ran::of(&command.env("HF_TOKEN", KEY).env_remove("HF_HUB_OFFLINE").output().unwrap());
    assert_ne!(ran.code, Some(0));
    assert!(
        seen.lock().unwrap().iter().any(|asked| asked.head.contains("authorization: bearer secret/key")),
        "{}",
        ran.said
    );
    holds_no_key(&[ran.text, ran.said].concat());
}
