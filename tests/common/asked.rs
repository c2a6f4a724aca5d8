//! A server on a socket of this machine that answers by what it is asked: route, query, headers and body.

#![allow(dead_code)] // each test file uses its own part
#![allow(clippy::unwrap_used)] // a test that cannot go on should stop
#![allow(clippy::needless_pass_by_value)] // so that cases are short

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

/// A request.
#[derive(Clone, Debug, Default)]
pub(crate) struct Asked {
    pub(crate) path: String,
    pub(crate) query: String,
    /// The head in small letters.
    pub(crate) head: String,
    pub(crate) body: Value,
}

impl Asked {
    /// The text of the last message.
    pub(crate) fn said(&self) -> &str {
        let last = self.body.get("messages").and_then(|messages| messages.as_array()?.last());
        last.and_then(|message| message.get("content")?.as_str()).unwrap_or_default()
    }
}

/// An answer; its end is that of the connection.
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: &'static str,
    /// Written one by one.
    pub(crate) pieces: Vec<Vec<u8>>,
}

/// An answer in JSON.
pub(crate) fn js(status: u16, value: &Value) -> Reply {
    Reply { status, headers: "", pieces: vec![value.to_string().into_bytes()] }
}

/// An answer of these bytes.
pub(crate) fn bytes(bytes: impl Into<Vec<u8>>) -> Reply {
    Reply { status: 200, headers: "", pieces: vec![bytes.into()] }
}

/// A list of models.
pub(crate) fn models(ids: &[&str]) -> Reply {
    let data: Vec<Value> = ids.iter().map(|id| json!({"id": id, "object": "model", "owned_by": "x"})).collect();
    js(200, &json!({"object": "list", "data": data}))
}

/// A chunk of a chat.
pub(crate) fn chunk(delta: Value, finish: Value) -> Value {
    json!({"object": "chat.completion.chunk", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})
}

/// Chunks as events, without an end.
pub(crate) fn events(chunks: &[Value]) -> String {
    chunks.iter().map(|chunk| format!("data: {chunk}\n\n")).collect()
}

/// Chunks as events, and the mark after the last one.
pub(crate) fn stream(chunks: &[Value]) -> Reply {
    bytes(events(chunks) + "data: [DONE]\n\n")
}

/// A server that answers with these; none is an unknown route. Returns its host and port, and the requests so far.
pub(crate) fn serve(
    answer: impl Fn(&Asked) -> Option<Reply> + Send + Sync + 'static,
) -> (String, Arc<Mutex<Vec<Asked>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let host = listener.local_addr().unwrap().to_string();
    let (seen, answer) = (Arc::<Mutex<Vec<Asked>>>::default(), Arc::new(answer));
    let log = Arc::clone(&seen);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (answer, log) = (Arc::clone(&answer), Arc::clone(&log));
            std::thread::spawn(move || one(stream.unwrap(), &*answer, &log));
        }
    });
    (host, seen)
}

fn one(mut stream: TcpStream, answer: &dyn Fn(&Asked) -> Option<Reply>, log: &Mutex<Vec<Asked>>) -> Option<()> {
    let asked = read(&mut stream)?;
    log.lock().unwrap().push(asked.clone());
    let reply = answer(&asked).unwrap_or_else(|| js(404, &json!({"detail": "Not Found"})));
    write!(stream, "HTTP/1.1 {} X\r\n{}Connection: close\r\n\r\n", reply.status, reply.headers).ok()?;
    for piece in reply.pieces {
        stream.write_all(&piece).ok()?;
        stream.flush().ok()?;
    }
    Some(())
}

fn read(stream: &mut TcpStream) -> Option<Asked> {
    let mut reader = BufReader::new(stream);
    let (mut head, mut first) = (String::new(), String::new());
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        if line == "\r\n" {
            break;
        }
        if first.is_empty() {
            first.clone_from(&line);
        }
        head.push_str(&line);
    }
    let lower = head.to_lowercase();
    let length = lower.lines().find_map(|line| line.strip_prefix("content-length:")?.trim().parse().ok());
    let mut body = vec![0; length.unwrap_or(0)];
    reader.read_exact(&mut body).ok()?;
    let target = first.split(' ').nth(1)?;
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    Some(Asked {
        path: path.to_owned(),
        query: query.to_owned(),
        head: lower,
        body: serde_json::from_slice(&body).unwrap_or_default(),
    })
}
