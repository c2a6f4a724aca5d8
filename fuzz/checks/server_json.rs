//! Takes any bytes as what an attached or watched server answers to every question: its properties, models, slots, version
//! and metrics.

use std::io::Write;
use std::net::TcpStream;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use draftscope::attach::{self, Api, AttachConfig};
use draftscope::http::Access;
use draftscope::protocol::{Command, EventKind, Settings};
use draftscope::session::Session;

use super::{request, sentence, serve};

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
    URL.get_or_init(|| serve(answer))
}

fn answer(mut stream: TcpStream) -> std::io::Result<()> {
    request(&stream)?;
    let body = BODY.lock().unwrap_or_else(PoisonError::into_inner).clone();
    stream.write_all(&[b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n", body.as_slice()].concat())
}
