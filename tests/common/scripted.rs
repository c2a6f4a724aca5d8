//! A server on a socket of this machine that answers each path with a fixed body.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// A request: its head and its body.
pub(crate) type Seen = Arc<Mutex<Vec<(String, String)>>>;

/// What a path is answered with: path, status line, body. A path that is listed several times is answered in turn, the
/// last for good.
pub(crate) type Routes = Vec<(&'static str, &'static str, String)>;

/// Starts it; returns its address and the requests so far.
pub(crate) fn serve(routes: Routes) -> (String, Seen) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let seen = Seen::default();
    let log = Arc::clone(&seen);
    let routes = Arc::new(Mutex::new(routes));
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (routes, log) = (Arc::clone(&routes), Arc::clone(&log));
            std::thread::spawn(move || answer(stream.unwrap(), &routes, &log));
        }
    });
    (url, seen)
}

fn answer(mut stream: TcpStream, routes: &Mutex<Routes>, log: &Mutex<Vec<(String, String)>>) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
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
    log.lock().unwrap().push((head, String::from_utf8(sent).unwrap()));
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
    let _ = write!(stream, "HTTP/1.1 {status}\r\nConnection: close\r\n\r\n{body}");
}
