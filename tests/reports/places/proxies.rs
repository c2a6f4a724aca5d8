//! Proxies that the environment names, for `attach` and for downloads.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use super::{SHORT, draftscope, said};
use crate::common::tiny::Tiny;
use crate::hub::ScriptedHub;
use crate::scripted::{Seen, serve};

/// A name that no resolver knows, so that only a proxy leads there.
const ELSEWHERE: &str = "model.draftscope.invalid";

/// What a proxy was asked for.
type Asked = Arc<Mutex<Vec<String>>>;

/// A proxy that connects to `to` whatever host it is asked for, or refuses.
fn proxy(to: Option<String>) -> (String, Asked) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let asked = Asked::default();
    let noted = Arc::clone(&asked);
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let (to, noted) = (to.clone(), Arc::clone(&noted));
            std::thread::spawn(move || pass_on(stream, to.as_deref(), &noted));
        }
    });
    (address, asked)
}

fn pass_on(mut stream: TcpStream, to: Option<&str>, asked: &Mutex<Vec<String>>) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut first = String::new();
    let _ = reader.read_line(&mut first);
    let mut line = String::new();
    while reader.read_line(&mut line).is_ok_and(|read| read > 2) {
        line.clear();
    }
    asked.lock().unwrap().push(first.trim().to_owned());
    let Some(mut server) = to.and_then(|to| TcpStream::connect(to).ok()) else {
        let _ = stream.write_all(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n");
        return;
    };
    let _ = stream.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n");
    let (mut from_server, mut to_client) = (server.try_clone().unwrap(), stream.try_clone().unwrap());
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut from_server, &mut to_client);
        let _ = to_client.shutdown(std::net::Shutdown::Both);
    });
    let mut buffer = [0; 4096];
    while let Ok(len @ 1..) = reader.read(&mut buffer) {
        let _ = server.write_all(&buffer[..len]);
    }
}

fn server() -> (String, Seen) {
    let chunk = |delta: &str, end: &str| {
        format!("data: {{\"choices\":[{{\"index\":0,\"delta\":{{{delta}}},\"finish_reason\":{end}}}]}}\n\n")
    };
    let answer = chunk(r#""content":"One""#, "null") + &chunk("", "\"stop\"") + "data: [DONE]\n\n";
    let models = r#"{"object":"list","data":[{"id":"m","object":"model","owned_by":"x"}]}"#;
    serve(vec![("/v1/models", "200 OK", models.to_owned()), ("/v1/chat/completions", "200 OK", answer)])
}

/// Asks a server with these variables; returns status, answer and messages.
fn ask(url: &str, variables: &[(&str, &str)]) -> (i32, String, String) {
    let folder = tempfile::tempdir().unwrap();
    let mut command = draftscope(folder.path(), ["run", "--attach", url, "--prompt", "secret"]);
    for (name, value) in variables {
        command.env(name, value);
    }
    said(&mut command)
}

fn taken(asked: &Asked) -> Vec<String> {
    std::mem::take(&mut asked.lock().unwrap())
}

#[test]
fn a_server_is_reached_through_the_proxy_of_its_scheme() {
    let (url, seen) = server();
    let (address, asked) = proxy(Some(url.trim_start_matches("http://").to_owned()));
    let elsewhere = format!("http://{ELSEWHERE}:8000");
    for (name, value) in [
        ("HTTP_PROXY", format!("http://{address}")),
        ("http_proxy", format!("http://user:pass@{address}/")),
        ("ALL_PROXY", address.clone()),
        ("all_proxy", format!("http://{address}")),
    ] {
        let (code, out, error) = ask(&elsewhere, &[(name, &value)]);
        assert!(code == 0 && out.contains("One"), "{name}: {error}");
        let asked = taken(&asked);
        assert!(
            !asked.is_empty() && asked.iter().all(|line| *line == format!("CONNECT {ELSEWHERE}:8000 HTTP/1.1")),
            "{asked:?}"
        );
    }
    assert!(seen.lock().unwrap().iter().any(|(_, body)| body.contains("secret")));
    // the variable of the other scheme does not count
    let (code, _, error) = ask(&elsewhere, &[("HTTPS_PROXY", &format!("http://{address}"))]);
    assert!(code == 2 && taken(&asked).is_empty(), "{error}");
}

#[test]
fn this_machine_and_hosts_of_no_proxy_are_reached_directly() {
    let (url, _) = server();
    let (address, asked) = proxy(None);
    let value = format!("http://{address}");
    for name in ["HTTP_PROXY", "http_proxy", "ALL_PROXY"] {
        for url in [url.clone(), url.replace("127.0.0.1", "localhost")] {
            let (code, out, error) = ask(&url, &[(name, &value), ("NO_PROXY", "")]);
            assert!(code == 0 && out.contains("One"), "{url}: {error}");
        }
    }
    for none in [
        "*",
        "draftscope.invalid",
        ".draftscope.invalid",
        "a,model.draftscope.invalid:8000",
        "MODEL.draftscope.invalid",
    ] {
        let (code, _, error) = ask(&format!("http://{ELSEWHERE}:8000"), &[("HTTP_PROXY", &value), ("no_proxy", none)]);
        assert!(code == 2 && !error.contains("proxy"), "{none}: {error}");
    }
    assert_eq!(taken(&asked), [""; 0]);
}

#[test]
fn a_proxy_that_refuses_or_cannot_be_used_is_named() {
    let (address, asked) = proxy(None);
    let elsewhere = format!("http://{ELSEWHERE}:8000");
    let (code, _, error) =
        ask(&elsewhere, &[("HTTP_PROXY", &format!("http://user:pass-word@{address}")), ("NO_PROXY", "other,x:8000")]);
    let what = format!("through the proxy {address} (HTTP_PROXY)");
    assert!(code == 2 && error.contains(&what) && error.contains("403") && error.contains("NO_PROXY"), "{error}");
    assert!(!error.contains("pass-word") && !taken(&asked).is_empty(), "{error}");
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let (code, _, error) = ask(&elsewhere, &[("http_proxy", &format!("http://{free}"))]);
    assert!(code == 2 && error.contains(&format!("through the proxy {free} (http_proxy)")), "{error}");
    for bad in ["socks5://127.0.0.1:1", "ftp://x", "http://"] {
        let (code, _, error) = ask(&elsewhere, &[("HTTP_PROXY", bad)]);
        assert!(code == 2 && error.contains("HTTP_PROXY names"), "{bad}: {error}");
    }
}

#[test]
fn downloads_use_the_proxy() {
    let folder = tempfile::tempdir().unwrap();
    let model = std::fs::read(&Tiny::new(5).target).unwrap();
    let hub = ScriptedHub::start(vec![("m-Q8_0.gguf".to_owned(), model)]);
    let (address, asked) = proxy(Some(hub.endpoint.trim_start_matches("http://").to_owned()));
    let args = ["run", "--model", "owner/name"];
    let mut command = draftscope(folder.path(), args.iter().chain(&SHORT));
    command
        .env_remove("DRAFTSCOPE_OFFLINE")
        .env("HF_ENDPOINT", format!("http://{ELSEWHERE}"))
        .env("http_proxy", &address);
    let (code, _, error) = said(&mut command);
    assert!(code == 0, "{error}");
    let asked = taken(&asked);
    assert!(
        !asked.is_empty() && asked.iter().all(|line| line.starts_with(&format!("CONNECT {ELSEWHERE}:80 "))),
        "{asked:?}"
    );
    let (address, _) = proxy(None);
    let mut command = draftscope(folder.path(), ["models", "pull", "owner/other"]);
    command
        .env_remove("DRAFTSCOPE_OFFLINE")
        .env("HF_ENDPOINT", format!("http://{ELSEWHERE}"))
        .env("http_proxy", &address);
    let (code, _, error) = said(&mut command);
    assert!(code == 2 && error.contains(&format!("through the proxy {address} (http_proxy)")), "{error}");
}
