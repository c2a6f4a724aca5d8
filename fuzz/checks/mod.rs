//! What each fuzz target does with its bytes. `tests/fuzz_seeds.rs` replays the seeds through the same functions.
//!
//! Nothing may panic, abort, hang or use more memory than its limit; [`CHECKS`] lists them.

pub mod attach_stream;
pub mod config_json;
pub mod gguf;
pub mod grammar;
pub mod hub;
pub mod keymap_theme_config;
pub mod lesson;
pub mod pickle;
pub mod safetensors;
pub mod server_json;
pub mod template;
pub mod tokenizer_json;
pub mod trace;

use std::io::{BufRead, BufReader, Read};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use draftscope::session::Timeline;
use draftscope::tui::{App, View};
use ratatui::Terminal;
use ratatui::backend::TestBackend;

/// A check by its name, which is that of the target and of the folder with its seeds.
pub type Check = (&'static str, fn(&[u8]));

/// All checks.
pub const CHECKS: &[Check] = &[
    ("attach_stream", attach_stream::check),
    ("config_json", config_json::check),
    ("gguf", gguf::check),
    ("grammar", grammar::check),
    ("hub", hub::check),
    ("keymap_theme_config", keymap_theme_config::check),
    ("lesson", lesson::check),
    ("pickle", pickle::check),
    ("safetensors", safetensors::check),
    ("server_json", server_json::check),
    ("template", template::check),
    ("tokenizer_json", tokenizer_json::check),
    ("trace", trace::check),
];

/// A folder of this process, in memory where the system has such a place.
pub fn folder() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let memory = Path::new("/dev/shm");
        let base = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
        let folder = base.join(format!("draftscope-fuzz-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder for files");
        folder
    })
}

/// Reads a request from a client, head and body; returns the path that it asks for.
pub fn request(stream: &TcpStream) -> std::io::Result<String> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let (mut line, mut path, mut length) = (String::new(), None, 0);
    while reader.read_line(&mut line)? > 2 {
        path = path.or_else(|| line.split(' ').nth(1).map(str::to_owned));
        let sent = line.to_ascii_lowercase();
        length = sent.strip_prefix("content-length:").and_then(|sent| sent.trim().parse().ok()).unwrap_or(length);
        line.clear();
    }
    std::io::copy(&mut reader.take(length), &mut std::io::sink())?;
    Ok(path.unwrap_or_default())
}

/// Starts a server on a thread of this process; returns its address.
pub fn serve(answer: fn(TcpStream) -> std::io::Result<()>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a socket");
    let url = format!("http://{}", listener.local_addr().expect("it has an address"));
    std::thread::spawn(move || listener.incoming().flatten().for_each(|stream| drop(answer(stream))));
    url
}

/// Removes the folder of this process.
pub fn clean_up() {
    let _ = std::fs::remove_dir_all(folder());
}

/// Writes a file into the folder of this process.
pub fn write(name: &str, bytes: &[u8]) -> PathBuf {
    let path = folder().join(name);
    std::fs::create_dir_all(path.parent().expect("it has a folder")).expect("a folder for a file");
    std::fs::write(&path, bytes).expect("a file");
    path
}

/// Draws a frame, in which no cell may have a control character.
pub fn draw_page(time: &Timeline, mut app: App, (width, height): (u16, u16)) {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("a buffer needs no terminal");
    app.follow(time.live());
    let view = View::default();
    let draw = terminal.draw(|frame| {
        view.draw(time, &app, app.theme(), frame);
    });
    draw.expect("drawing to a buffer cannot fail");
    let cells = terminal.backend().buffer().content();
    assert!(cells.iter().all(|cell| !cell.symbol().contains(char::is_control)), "a control character on the screen");
}

/// Text of an error: one sentence without anything that controls a terminal but line ends.
pub fn sentence(error: &dyn std::fmt::Display) {
    let text = error.to_string();
    let said = draftscope::session::text::printable(&text);
    assert!(!said.contains(|c: char| c.is_control() && c != '\n'), "{said:?}");
    assert!(!text.is_empty() && text.len() < 16 << 10, "an error of {} bytes", text.len());
}
