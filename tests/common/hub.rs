//! A hub on a socket of this machine in which every repository has the same files.

#![allow(dead_code)] // each test file uses its own part

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use serde_json::json;

pub(crate) const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

/// Names and contents.
pub(crate) type HubFiles = Vec<(String, Vec<u8>)>;

/// The hub's address, and the paths that it was asked for.
pub(crate) struct ScriptedHub {
    pub(crate) endpoint: String,
    pub(crate) asked: Arc<Mutex<Vec<String>>>,
}

impl ScriptedHub {
    pub(crate) fn start(files: HubFiles) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let asked: Arc<Mutex<Vec<String>>> = Arc::default();
        let (noted, files) = (Arc::clone(&asked), Arc::new(files));
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (noted, files) = (Arc::clone(&noted), Arc::clone(&files));
                std::thread::spawn(move || answer(stream, &noted, &files));
            }
        });
        Self { endpoint, asked }
    }
}

fn answer(mut stream: TcpStream, asked: &Mutex<Vec<String>>, files: &HubFiles) {
    let lines = BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok);
    let head: Vec<_> = lines.take_while(|line| !line.is_empty()).collect();
    let Some(first) = head.first() else { return }; // whether it can be reached
    let path = first.split(' ').nth(1).unwrap().to_owned();
    asked.lock().unwrap().push(path.clone());
    let say = |stream: &mut TcpStream, status: &str, body: &[u8]| {
        let _ = write!(stream, "HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len());
        let _ = stream.write_all(body);
    };
    if path.starts_with("/api/models/") {
        let sized = path.ends_with("?blobs=true");
        let sibling = |(name, bytes): &(String, Vec<u8>)| match sized {
            true => json!({"rfilename": name, "size": bytes.len()}),
            false => json!({"rfilename": name}),
        };
        let siblings: Vec<_> = files.iter().map(sibling).collect();
        return say(&mut stream, "200 OK", json!({"sha": COMMIT, "siblings": siblings}).to_string().as_bytes());
    }
    let file = path.rsplit(&format!("/resolve/{COMMIT}/")).next().unwrap();
    let Some((name, all)) = files.iter().find(|(name, _)| name == file) else {
        return say(&mut stream, "404 Not Found", b"");
    };
    let range = head.iter().find_map(|line| line.to_lowercase().strip_prefix("range: bytes=").map(str::to_owned));
    let range = range.unwrap_or_else(|| "0-".to_owned());
    let (from, to) = range.split_once('-').unwrap();
    let from: usize = from.parse().unwrap();
    let to = to.parse().map_or(all.len(), |last: usize| last + 1);
    let _ = write!(
        stream,
        "HTTP/1.1 206 Partial\r\nx-repo-commit: {COMMIT}\r\netag: \"{}\"\r\nContent-Range: bytes {from}-{}/{}\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n",
        name.replace('/', "-"),
        to - 1,
        all.len(),
        to - from
    );
    let _ = stream.write_all(&all[from..to]);
}
