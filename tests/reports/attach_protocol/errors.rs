//! Errors in the forms in which servers send them: their own words and a status that is not 0.

use std::io::Write;
use std::net::TcpListener;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{ask, chat, draftscope, run};
use crate::asked::{Reply, bytes, chunk, events, js, models, serve, stream};

const WHY: &str = "this prompt has 19185 tokens, the context 16384";

/// A server whose answer is this text again and again, without an end.
pub(super) fn dripping(text: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let host = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            std::thread::spawn(move || {
                let mut stream = stream.unwrap();
                let mut head = [0; 4096];
                let length = std::io::Read::read(&mut stream, &mut head).unwrap_or(0);
                let head = String::from_utf8_lossy(&head[..length]).into_owned();
                let body = match head.split(' ').nth(1).unwrap_or_default() {
                    "/v1/models" => r#"{"data":[{"id":"m"}]}"#,
                    "/v1/chat/completions" => {
                        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n");
                        while stream.write_all(text.as_bytes()).is_ok() {
                            std::thread::sleep(Duration::from_millis(100));
                        }
                        return;
                    }
                    _ => "x",
                };
                let _ = write!(stream, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n{body}");
            });
        }
    });
    host
}

#[test]
fn an_error_in_a_stream_is_the_server_s_own_words() {
    let url = chat(|asked| {
        let one = chunk(json!({"content": "One"}), json!(null));
        let error = json!({"error": {"message": WHY, "code": 400}});
        match asked.said() {
            "flat" => {
                stream(&[one, json!({"object": "error", "message": WHY, "type": "BadRequestError", "code": 400})])
            }
            "nested" => stream(&[one, error]),
            "bare" => bytes(error.to_string()),
            "bare after text" => bytes(events(&[one]) + &error.to_string()),
            "event" => bytes(format!("event: error\ndata: {}\n\n", json!({"detail": WHY}))),
            "plain event" => bytes(format!("event: error\ndata: {WHY}\n\n")),
            "pretty" => bytes(serde_json::to_string_pretty(&error).unwrap()),
            "pretty data" => {
                bytes("data: {\ndata:   \"detail\": \"this prompt has 19185 tokens, the context 16384\"\ndata: }\n\n")
            }
            "in a choice" => stream(&[
                json!({"choices": [{"delta": {"content": ""}, "finish_reason": "error", "error": {"message": WHY}}]}),
            ]),
            "beside a choice" => stream(&[
                json!({"error": {"message": WHY}, "choices": [{"delta": {"content": ""}, "finish_reason": "error"}]}),
            ]),
            "a list" => bytes(json!([{"error": {"message": WHY}}]).to_string()),
            "text" => bytes(WHY),
            _ => Reply { status: 500, ..js(500, &json!({"detail": [{"msg": WHY, "loc": ["body"]}]})) },
        }
    });
    for prompt in [
        "flat",
        "nested",
        "bare",
        "bare after text",
        "event",
        "plain event",
        "pretty",
        "pretty data",
        "in a choice",
        "beside a choice",
        "a list",
        "text",
        "status",
    ] {
        let ran = ask(&url, prompt);
        ran.fails(&[WHY]);
        assert_eq!(ran.code, Some(1), "{prompt}");
        // another prompt does not help against a server's own error; "text" is no error, but a stream that is closed
        assert_eq!(ran.said.contains("connect anew"), prompt == "text", "{prompt}: {}", ran.said);
    }
}

#[test]
fn an_error_without_words_has_those_of_its_status() {
    let url = chat(|asked| match asked.said() {
        "empty" => Reply { status: 404, ..bytes("") },
        "blank" => Reply { status: 422, ..bytes(" \n") },
        _ => Reply { status: 599, ..bytes("") },
    });
    ask(&url, "empty").fails(&["refuses the prompt: Not Found"]);
    ask(&url, "blank").fails(&["refuses the prompt: Unprocessable Entity"]);
    ask(&url, "unknown").fails(&["status 599: the server gives no reason"]);
}

#[test]
fn refused_fields_are_left_out_and_remembered() {
    let refusals = |wrong: &[&str], form: &str| -> Value {
        let list: Vec<Value> =
            wrong.iter().map(|name| json!({"loc": ["body", name], "msg": "Extra inputs are not permitted"})).collect();
        match form {
            "strict" => json!({"object": "error", "message": {"detail": list}, "code": 422}),
            "one by one" => json!({"error": format!("json: unknown field \"{}\"", wrong[0])}),
            _ => json!({"error": "Unexpected keys in the request"}),
        }
    };
    for form in ["strict", "one by one", "unnamed"] {
        let (url, seen) = serve(move |asked| match asked.path.as_str() {
            "/v1/models" => Some(models(&["m"])),
            "/v1/chat/completions" => {
                let wrong: Vec<&str> =
                    ["stream_options", "seed"].into_iter().filter(|name| asked.body.get(name).is_some()).collect();
                Some(match wrong.as_slice() {
                    [] => stream(&[chunk(json!({"content": "One"}), json!("stop"))]),
                    wrong => js(422, &refusals(wrong, form)),
                })
            }
            _ => None,
        });
        let mut asking = draftscope(&["attach", &url, "--per-line"]);
        asking
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::piped());
        let mut child = asking.spawn().unwrap();
        child.stdin.take().unwrap().write_all(b"Hi\nAgain\n").unwrap();
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(String::from_utf8_lossy(&output.stdout).matches("One").count(), 2, "{form}: {said}");
        assert!(said.contains("stream_options") && said.contains("is sent again without"), "{form}: {said}");
        let prompts = seen.lock().unwrap().iter().filter(|asked| asked.path.ends_with("completions")).count();
        assert_eq!(prompts, if form == "one by one" { 4 } else { 3 }, "{form}: it is asked again once");
    }
}

#[test]
fn a_refusal_about_something_else_is_shown_and_not_asked_again() {
    let (url, seen) = serve(|asked| match asked.path.as_str() {
        "/v1/models" => Some(models(&["m"])),
        _ => Some(js(400, &json!({"error": {"message": WHY}}))),
    });
    ask(&url, "x").fails(&["refuses the prompt", WHY]);
    let prompts = seen.lock().unwrap().iter().filter(|asked| asked.path.ends_with("completions")).count();
    assert_eq!(prompts, 1);
}

#[test]
fn a_missing_or_wrong_key_names_the_variable_and_a_loading_model_is_said() {
    let (url, _) = serve(|asked| match asked.path.as_str() {
        path if path.starts_with("/loading/") => {
            Some(js(503, &json!({"error": {"code": 503, "message": "Loading model", "type": "unavailable_error"}})))
        }
        "/v1/models" | "/v1/chat/completions" | "/props" if !asked.head.contains("authorization: bearer sesame") => {
            Some(js(401, &json!({"error": {"message": "Invalid API Key", "code": 401}})))
        }
        "/v1/models" => Some(models(&["m"])),
        "/v1/chat/completions" => Some(stream(&[chunk(json!({"content": "One"}), json!("stop"))])),
        _ => None,
    });
    ask(&url, "x").fails(&["wants a key (Invalid API Key)", "DRAFTSCOPE_API_KEY"]);
    ask(&format!("{url}/loading"), "x").fails(&["is loading its model", "try again"]);
    let with_key = |key: &str| {
        let mut command = draftscope(&["run", "--attach", &url, "--prompt", "x"]);
        super::Ran::of(&command.env("DRAFTSCOPE_API_KEY", key).output().unwrap())
    };
    with_key("wrong").fails(&["refuses the key in DRAFTSCOPE_API_KEY"]);
    with_key("sesame").answers("One");
}

#[test]
fn a_key_that_only_the_chat_wants_names_the_variable_too() {
    let url = chat(|_| js(401, &json!({"error": {"message": "no key"}})));
    ask(&url, "x").fails(&["wants a key (no key)", "DRAFTSCOPE_API_KEY"]);
}

/// A server that answers everything with these bytes.
fn answering(bytes: &'static [u8]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let host = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let _ = std::io::Read::read(&mut stream, &mut [0; 4096]);
            let _ = stream.write_all(bytes);
        }
    });
    host
}

#[test]
fn tls_and_no_tls_are_told_apart() {
    // what a port without TLS answers to a client that speaks it
    let plain = answering(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n");
    ask(&format!("https://{plain}"), "x").fails(&["does not speak TLS here", "http://"]);
    // what a port for TLS answers to a request without it: a fatal alert
    let tls = answering(&[0x15, 3, 3, 0, 2, 2, 70]);
    ask(&tls, "x").fails(&["speaks TLS here", "https://"]);
    let (proxy, _) = serve(|_| Some(Reply { status: 400, ..bytes("The plain HTTP request was sent to HTTPS port") }));
    ask(&proxy, "x").fails(&["speaks TLS here", "https://"]);
}

#[cfg(unix)]
#[test]
fn a_signal_ends_a_run_whose_server_says_nothing_and_leaves_no_empty_recording() {
    use std::os::unix::process::ExitStatusExt as _;
    let listener = TcpListener::bind("127.0.0.1:0").unwrap(); // accepts, and never answers
    let url = listener.local_addr().unwrap().to_string();
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("t.jsonl");
    let path = trace.display().to_string();
    let commands = [
        ["run", "--attach", &url, "--prompt", "x", "--trace", &path],
        ["attach", &url, "--prompt=x", "--patience=60", "--max-tokens=9", "--trace", &path],
    ];
    for command in commands {
        for signal in ["INT", "TERM", "QUIT", "ABRT", "USR1", "ALRM", "XCPU"] {
            let mut child = draftscope(&command).stderr(std::process::Stdio::piped()).spawn().unwrap();
            let waits = listener.accept().unwrap().0; // it asks, so its recording is open
            assert!(trace.exists(), "{command:?}");
            let began = Instant::now();
            let pid = child.id().to_string();
            assert!(std::process::Command::new("kill").args([&format!("-{signal}"), &pid]).status().unwrap().success());
            let status = child.wait().unwrap();
            let code = status.code().or(status.signal().map(|signal| 128 + signal));
            assert!(!status.success() && (signal != "TERM" || code == Some(143)), "{command:?} {signal}: {status}");
            assert!(began.elapsed() < Duration::from_secs(50), "{command:?} {signal}: long before its patience ends");
            assert!(!trace.exists(), "{command:?} {signal}: an empty recording is left");
            drop(waits);
        }
        // and the same command is not refused
        let (answering, _) = serve(|_| None);
        let again: Vec<_> = command.iter().map(|arg| if **arg == *url { answering.as_str() } else { *arg }).collect();
        let said = run(&again).said;
        assert!(!said.contains("exists") && !trace.exists(), "{said}");
    }
}

#[cfg(unix)]
#[test]
fn a_socket_whose_queue_is_full_is_not_waited_for() {
    use std::os::unix::net::{UnixListener, UnixStream};
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("s").display().to_string();
    let _listener = UnixListener::bind(&place).unwrap();
    // connections that nobody accepts, until one more would wait
    let mut waiting = Vec::new();
    loop {
        let (sender, connected) = std::sync::mpsc::channel();
        let place = place.clone();
        std::thread::spawn(move || sender.send(UnixStream::connect(place)));
        match connected.recv_timeout(Duration::from_secs(6)) {
            Ok(stream) => waiting.push(stream.unwrap()),
            Err(_) => break,
        }
    }
    run(&["attach", "--check", &place]).fails(&["accepted no connection"]);
}
