//! A server on a socket of this machine: it answers each path with a fixed body, or as a test says.

#![allow(dead_code)] // each test file uses its own part

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};

/// The requests so far: head and body of each.
pub(crate) type Seen = Arc<Mutex<Vec<(String, String)>>>;

/// What a path is answered with: path, status line, body. A path that is listed several times is answered in turn, the
/// last for good.
pub(crate) type Routes = Vec<(&'static str, &'static str, String)>;

/// Starts a server with these routes; returns its address and the requests so far.
pub(crate) fn serve(routes: Routes) -> (String, Seen) {
    serve_with(from(routes))
}

/// Starts a server that writes what `answer` writes to a request of this path.
pub(crate) fn serve_with(answer: impl Fn(&str, &mut dyn Write) + Send + Sync + 'static) -> (String, Seen) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (seen, answer) = (Seen::default(), Arc::new(answer));
    let log = Arc::clone(&seen);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (answer, log) = (Arc::clone(&answer), Arc::clone(&log));
            std::thread::spawn(move || answer_one(stream.unwrap(), &*answer, &log));
        }
    });
    (url, seen)
}

/// Reads one request of a connection, notes it and answers it.
pub(crate) fn answer_one(mut stream: impl Read + Write, answer: &dyn Fn(&str, &mut dyn Write), seen: &Seen) {
    let mut reader = BufReader::new(&mut stream);
    let (mut head, mut length) = (String::new(), 0);
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).unwrap_or(0) == 0 {
            return;
        }
        if line == "\r\n" {
            break;
        }
        if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
        head.push_str(&line);
    }
    let mut sent = vec![0; length];
    reader.read_exact(&mut sent).unwrap();
    let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
    seen.lock().unwrap().push((head, String::from_utf8(sent).unwrap()));
    answer(&path, &mut stream);
    let _ = stream.flush();
}

/// Writes an answer whose end is that of the connection.
pub(crate) fn reply(out: &mut dyn Write, status: &str, body: impl AsRef<[u8]>) {
    let _ = write!(out, "HTTP/1.1 {status}\r\nConnection: close\r\n\r\n");
    let _ = out.write_all(body.as_ref());
}

/// Answers by these routes.
pub(crate) fn from(routes: Routes) -> impl Fn(&str, &mut dyn Write) + Send + Sync + 'static {
    let routes = Mutex::new(routes);
    move |path, out| {
        let mut routes = routes.lock().unwrap();
        let own: Vec<usize> = (0..routes.len()).filter(|at| routes[*at].0 == path).collect();
        let (status, body) = match own.as_slice() {
            [] => ("404 Not Found", r#"{"error":{"message":"no such route"}}"#.to_owned()),
            [only] => (routes[*only].1, routes[*only].2.clone()),
            [first, ..] => {
                let (_, status, body) = routes.remove(*first);
                (status, body)
            }
        };
        drop(routes);
        reply(out, status, body);
    }
}
