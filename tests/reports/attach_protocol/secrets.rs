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

/// Returns what was recorded.
fn check(answer: impl Fn(&Asked) -> Option<Reply> + Send + Sync + 'static) -> String {
    let (url, _) = serve(answer);
    let runs = [&[][..], &["--output", "summary"], &["--output", "jsonl"]].map(|more| {
        let (ran, recorded) = run(&url, more);
        let all = [&ran.text, &ran.said, &recorded].map(String::as_str).concat();
        holds_no_key(&all);
        assert!(all.contains("***"), "something was said, and is masked: {all}");
        recorded
    });
    runs.into_iter().next().unwrap()
}

fn openai(reply: impl Fn() -> Reply + Send + Sync + 'static) -> String {
    check(move |asked| match asked.path.as_str() {
        "/v1/models" => Some(models(&["m"])),
        "/v1/chat/completions" => Some(reply()),
        _ => None,
    })
}

/// A llama-server whose `/tokenize` and answer are these.
fn llama(tokens: &Value, answer: &[Value]) -> String {
    let (tokens, answer) =
        (tokens.clone(), answer.iter().map(|chunk| format!("data: {chunk}\n\n")).collect::<String>());
    check(move |asked| {
        Some(match asked.path.as_str() {
            "/props" => js(200, &json!({"default_generation_settings": {"n_ctx": 64}, "model_path": "a/b.gguf"})),
            "/apply-template" => js(200, &json!({"prompt": "x"})),
            "/tokenize" => js(200, &json!({"tokens": tokens})),
            "/completion" => bytes(answer.clone()),
            _ => js(200, &Value::Null),
        })
    })
}

/// The id of tokens that end after the second character of a key.
const OF_KEY: u32 = 424_242;

/// The key cut in two at every character and into its characters, with text before and after, as tokens.
fn spread() -> Vec<(u32, String)> {
    let mut tokens = Vec::new();
    let cuts = (1..KEY.len()).map(|at| vec![KEY[..at].to_owned(), KEY[at..].to_owned()]);
    for cut in cuts.chain([KEY.chars().map(String::from).collect()]) {
        tokens.push((1, "before ".to_owned()));
        let mut end = 0;
        for part in cut {
            end += part.len();
            tokens.push((if end > 2 { OF_KEY } else { 7 }, part));
        }
        tokens.push((2, " after".to_owned()));
    }
    tokens
}

#[track_caller]
fn is_whole(recorded: &str) {
    let counts = ["before ", " after"].map(|word| recorded.matches(&format!("\"text\":\"{word}\"")).count());
    assert!(counts.iter().all(|count| *count >= KEY.len() - 1), "nothing else is lost: {counts:?} {recorded}");
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
fn a_key_that_is_spread_over_tokens_is_masked_with_their_ids() {
    let chunk_of =
        |(id, text): (u32, String)| json!({"choices": [{"index": 0, "delta": {"content": text}, "token_ids": [id]}]});
    let chunks: Vec<Value> = spread().into_iter().map(chunk_of).chain([chunk(json!({}), json!("stop"))]).collect();
    let of_openai = openai(move || stream(&chunks));
    let chunk_of = |(id, text): (u32, String)| json!({"content": text, "tokens": [id], "stop": false});
    let end = json!({"content": "", "stop": true, "stop_type": "eos"});
    let chunks: Vec<Value> = spread().into_iter().map(chunk_of).chain([end]).collect();
    let prompt: Vec<Value> = spread().into_iter().map(|(id, text)| json!({"id": id, "piece": text})).collect();
    for recorded in [of_openai, llama(&json!(prompt), &chunks)] {
        is_whole(&recorded);
        assert!(!recorded.contains(&format!("\"id\":{OF_KEY}")), "{recorded}");
    }
    // the end comes in the middle of the key
    let chunks = ["it is SECRET", "/KEY+1=", "2"].map(|text| chunk(json!({"content": text}), json!(null)));
    openai(move || stream(&[&chunks[..], &[chunk(json!({}), json!("length"))]].concat()));
}

#[test]
fn a_key_in_lists_of_bytes_or_of_parts_or_in_json_inside_json_is_masked() {
    let number: Vec<u8> = KEY.bytes().collect();
    let candidate = json!({"token": "y", "logprob": -3.0, "bytes": number});
    let logged = json!({"token": "One", "logprob": -0.1, "bytes": [79, 110, 101], "top_logprobs": [candidate]});
    let ends = json!({"token": "z", "logprob": -0.1, "bytes": number});
    let answer = move |delta: Value| {
        let mut chunk = chunk(delta, json!("stop"));
        chunk["choices"][0]["logprobs"] = json!({"content": [logged, ends]});
        chunk["choices"][0]["token_ids"] = json!([3, 4]);
        stream(&[chunk])
    };
    let recorded = openai(move || answer(json!({"content": "One"})));
    assert!(recorded.contains("\"text\":\"One\""), "{recorded}");
    let parts = || json!([{"type": "text", "text": "SECRET"}, {"type": "text", "text": "/KEY+1=23"}, {"text": "!"}]);
    openai(move || stream(&[chunk(json!({"content": parts()}), json!("stop"))]));
    let inner = json!({"error": {"message": json!({"m": "bad key \u{1}"}).to_string()}}).to_string();
    for escape in ["\\u0053ECRET/KEY+1=23", "\\\\u0053ECRET\\\\/KEY%252B1=23"] {
        let said = inner.replace("\\\\u0001", escape);
        assert_ne!(said, inner);
        openai(move || bytes(format!("data: {said}\n\n")));
    }
    let of_bytes = json!([{"id": 1, "piece": number}, {"id": 2, "piece": "SECRET"}, {"id": 3, "piece": b"/KEY+1=23"}]);
    let parts = json!([{"text": "SECRET"}, {"text": "/KEY+1=23"}]);
    let end = json!({"content": parts, "tokens": [3], "stop": true});
    assert!(llama(&of_bytes, &[end]).contains("***"));
}

#[cfg(unix)]
#[test]
fn a_plugin_that_names_the_key_does_not_get_it_recorded() {
    use std::io::Write as _;
    use std::sync::mpsc::channel;
    use std::sync::{Arc, Mutex};

    let piece = |id: u32, text: &str| json!({"id": id, "text": text});
    let top = json!([{"id": 3, "text": "One", "prob": 0.75}, {"id": 9, "text": KEY, "prob": 0.25}]);
    let row = json!({"top": top, "tail": 0.0});
    let none = json!({"top": [], "tail": 1.0});
    let draft = |index: u32, id: u32, text: &str| json!({"type": "drafted", "index": index, "token": piece(id, text), "top": none, "took_us": 1});
    let rejected = json!([{"outcome": "rejected"}, {"outcome": "not_reached"}]);
    let cut = format!("{}{KEY}", "x".repeat(300 - 12)); // only the first 300 characters of a sentence are read
    let lines = [
        json!({"type": "round_started", "base_len": 3, "draft_len": 0}),
        json!({"type": "scored", "rows": [row], "verify_us": 1, "sample_us": 1}),
        json!({"type": "verified", "judgements": [], "next": 3, "next_kind": "bonus"}),
        json!({"type": "committed", "tokens": [piece(3, "One")], "rollback_us": 0, "clock_us": 0}),
        json!({"type": "notice", "message": format!("your key is {}", notations())}),
        json!({"type": "notice", "message": cut}),
        json!({"type": "round_started", "base_len": 4, "draft_len": 2}),
        draft(0, OF_KEY, "SECRET/K"),
        draft(1, OF_KEY, "EY+1=23"),
        json!({"type": "scored", "rows": [none, none, none], "verify_us": 1, "sample_us": 1}),
        json!({"type": "verified", "judgements": rejected, "next": 4, "next_kind": "recovered"}),
        json!({"type": "committed", "tokens": [piece(4, " two")], "rollback_us": 0, "clock_us": 0}),
    ];
    let numbered = lines.into_iter().zip(1..).map(|(mut line, seq)| {
        let round = if seq < 7 { 1 } else { 2 };
        (line["seq"], line["at_us"], line["round"], line["request"]) =
            (json!(seq), json!(seq), json!(round), json!("r"));
        format!("{line}\n")
    });
    let header =
        include_str!("../../fixtures/attach/plugin/vllm-completions-logprobs.plugin.jsonl").lines().next().unwrap();
    let sent: String = std::iter::once(format!("{header}\n")).chain(numbered).collect();

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s");
    let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    // an engine reports a step once the request has arrived, and the server answers after it
    let (asked, is_asked) = channel();
    let (reported, is_reported) = channel();
    let plugin = std::thread::spawn(move || {
        let mut connection = listener.accept().unwrap().0;
        is_asked.recv().unwrap();
        connection.write_all(sent.as_bytes()).unwrap();
        reported.send(()).unwrap();
        connection
    });
    let (asked, is_reported) = (Mutex::new(asked), Arc::new(Mutex::new(is_reported)));
    let (url, _) = serve(move |request| match request.path.as_str() {
        "/v1/models" => Some(js(200, &json!({"data": [{"id": "m", "owned_by": "vllm"}]}))),
        "/version" => Some(js(200, &json!({"version": "1"}))),
        "/v1/chat/completions" => {
            asked.lock().unwrap().send(()).unwrap();
            is_reported.lock().unwrap().recv().unwrap();
            let chunk =
                |id: u32, text: &str| json!({"choices": [{"index": 0, "delta": {"content": text}, "token_ids": [id]}]});
            Some(stream(&[chunk(3, "One"), chunk(4, " two"), crate::asked::chunk(json!({}), json!("stop"))]))
        }
        _ => None,
    });
    let (ran, recorded) = run(&url, &["--socket", &path.display().to_string(), "--output", "jsonl"]);
    drop(plugin.join().unwrap());
    let all = [ran.text, ran.said, recorded].concat();
    holds_no_key(&all);
    assert!(all.contains("your key is *** ***") && all.contains("xxx***") && !all.contains("\"id\":4242"), "{all}");
    assert!(all.contains("\"text\":\"***\",\"prob\":0.25"), "the candidate: {all}");
}

#[test]
fn a_watched_server_that_repeats_the_key_does_not_get_it_into_a_history() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("watch.jsonl").display().to_string();
    for fails in [false, true] {
        let (url, _) = serve(move |asked| match asked.path.as_str() {
            "/v1/models" if fails => Some(js(500, &json!({"error": {"message": notations()}}))),
            "/v1/models" => Some(models(&[&notations()])),
            _ => None,
        });
        let _ = std::fs::remove_file(&path);
        let mut command =
            draftscope(&["attach", "--watch", "--once", "--json", "--interval", "0.2", "--history", &path, &url]);
        let ran = Ran::of(&command.env("DRAFTSCOPE_API_KEY", KEY).output().unwrap());
        let all = [ran.text, ran.said, std::fs::read_to_string(&path).unwrap()].concat();
        holds_no_key(&all);
        assert!(all.contains("***"), "{all}");
    }
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
