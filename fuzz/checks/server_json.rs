//! Takes any bytes as what an attached or watched server answers to every question: its properties, models, slots, version
//! and metrics.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use draftscope::attach::{self, Api, AttachConfig};
use draftscope::http::Access;
use draftscope::protocol::{Command, EventKind, Settings};
use draftscope::session::Session;

use super::sentence;

/// What the server answers.
static BODY: Mutex<Vec<u8>> = Mutex::new(Vec::new());

/// Attaches to the server, as any engine and as one that has other routes, and looks at it once.
pub fn check(bytes: &[u8]) {
    bytes.clone_into(&mut BODY.lock().unwrap_or_else(PoisonError::into_inner));
    let url = server();
    for api in [None, Some(Api::Vllm)] {
        let config = AttachConfig { api, ..AttachConfig::new(url, Settings::default()) };
        let mut source = attach::spawn(config).expect("a thread");
        let _ = source.commands.send(Command::Shutdown); // once it has begun
        let mut session = Session::new();
        while let Some(event) = source.events.blocking_recv() {
            match &event.kind {
                EventKind::Failed { message } | EventKind::Notice { message } => {
                    assert!(!message.contains("internal error"), "{message}");
                    sentence(message);
                }
                _ => {}
            }
            session.apply(&event);
        }
    }
    let once = Duration::from_millis(1); // its thread ends when nobody listens
    let samples = attach::watch::watch(&[url.to_owned()], &Access::default(), once, None).expect("a thread");
    let sample = samples.recv().expect("a look");
    sample.problem.iter().for_each(|problem| {
        assert!(!problem.contains("internal error"), "{problem}");
        sentence(problem);
    });
}

/// The address of a server on a thread of this process.
fn server() -> &'static str {
    static URL: OnceLock<String> = OnceLock::new();
    URL.get_or_init(|| {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a socket");
        let url = format!("http://{}", listener.local_addr().expect("it has an address"));
        std::thread::spawn(move || listener.incoming().flatten().for_each(|stream| drop(answer(stream))));
        url
    })
}

fn answer(mut stream: TcpStream) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let (mut line, mut length) = (String::new(), 0);
    while reader.read_line(&mut line)? > 2 {
        let sent = line.to_ascii_lowercase();
        length = sent.strip_prefix("content-length:").and_then(|sent| sent.trim().parse().ok()).unwrap_or(length);
        line.clear();
    }
    std::io::copy(&mut reader.take(length), &mut std::io::sink())?;
    let body = BODY.lock().unwrap_or_else(PoisonError::into_inner).clone();
    stream.write_all(&[b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n", body.as_slice()].concat())
}
