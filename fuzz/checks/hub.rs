//! Takes any bytes as what a hub answers: what it says of a repository, then, each after a line of `---`, whole answers
//! for the repository's files, head and body, in turn.

use std::fs;
use std::io::Write;
use std::net::TcpStream;
use std::sync::{Mutex, OnceLock, PoisonError};

use draftscope::store::{PullOptions, Store};

use super::{folder, request, sentence, serve};

/// Between two answers.
const BORDER: &[u8] = b"\n---\n";

/// What the hub answers: of a repository, and for its files; and how many files were asked for.
static ANSWERS: Mutex<(Vec<Vec<u8>>, usize)> = Mutex::new((Vec::new(), 0));

/// Fetches a repository and one file of it. What is fetched lies in the folder that was named, and nothing lies beside it.
pub fn check(bytes: &[u8]) {
    let kept = folder().join("kept");
    for name in ["owner/name", "owner/name:Q4_0", "owner/name/draft.gguf"] {
        *ANSWERS.lock().unwrap_or_else(PoisonError::into_inner) = (answers(bytes), 0);
        let _ = fs::remove_dir_all(&kept);
        match Store::at_hub(server(), &kept).pull(Some(name), PullOptions::default(), &mut ()) {
            Ok(pulled) => {
                let file = pulled.entry.file;
                assert!(file.starts_with(&kept), "{}", file.display());
                let real = file.canonicalize().expect("what was fetched is there");
                assert!(real.starts_with(kept.canonicalize().expect("the folder is there")), "{}", real.display());
            }
            Err(error) => sentence(&error),
        }
        let there = fs::read_dir(folder()).expect("the folder is there").flatten();
        let beside: Vec<_> = there.map(|entry| entry.file_name()).filter(|name| name != "kept").collect();
        assert!(beside.is_empty(), "beside the folder: {beside:?}");
    }
}

fn answers(mut bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut parts = Vec::new();
    while let Some(at) = bytes.windows(BORDER.len()).position(|part| part == BORDER) {
        parts.push(bytes[..at].to_vec());
        bytes = &bytes[at + BORDER.len()..];
    }
    parts.push(bytes.to_vec());
    parts
}

/// The address of a hub on a thread of this process.
fn server() -> &'static str {
    static URL: OnceLock<String> = OnceLock::new();
    URL.get_or_init(|| serve(answer))
}

fn answer(mut stream: TcpStream) -> std::io::Result<()> {
    let path = request(&stream)?;
    let mut answers = ANSWERS.lock().unwrap_or_else(PoisonError::into_inner);
    let (parts, asked) = &mut *answers;
    let about = parts.first().map_or(&[][..], Vec::as_slice);
    let sent = match parts.len() {
        _ if path.starts_with("/api/") => [b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n", about].concat(),
        0 | 1 => b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".to_vec(),
        count => {
            *asked += 1;
            parts[1 + (*asked - 1) % (count - 1)].clone()
        }
    };
    drop(answers);
    stream.write_all(&sent)
}
