//! The program in a real pseudo-terminal, with the real model: what a newcomer does first.

#![allow(clippy::unwrap_used)] // a test that cannot go on should stop

mod common;

use std::io::{Read, Write};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use common::real;
use portable_pty::{Child, CommandBuilder, MasterPty, PtySize, native_pty_system};

/// A terminal of 120 × 40 with the program in it.
struct Terminal {
    master: Box<dyn MasterPty + Send>,
    keys: Box<dyn Write + Send>,
    output: Receiver<Vec<u8>>,
    child: Box<dyn Child + Send + Sync>,
    screen: vt100::Parser,
    cooked: bool,
}

const SIZE: PtySize = PtySize { rows: 40, cols: 120, pixel_width: 0, pixel_height: 0 };

impl Terminal {
    fn start(args: &[&str], environment: &[(&str, &str)]) -> Self {
        let pair = native_pty_system().openpty(SIZE).unwrap();
        let mut command = CommandBuilder::new(env!("CARGO_BIN_EXE_draftscope"));
        command.args(args);
        command.env("TERM", "xterm-256color");
        command.env("COLORTERM", "truecolor");
        command.env_remove("NO_COLOR");
        command.env_remove("DRAFTSCOPE_MODEL");
        environment.iter().for_each(|(name, value)| command.env(name, value));
        let cooked = is_cooked(pair.master.as_ref());
        let child = pair.slave.spawn_command(command).unwrap();
        drop(pair.slave);
        let mut reader = pair.master.try_clone_reader().unwrap();
        let (sender, output) = channel();
        thread::spawn(move || {
            let mut bytes = [0; 8192];
            while let Ok(n @ 1..) = reader.read(&mut bytes) {
                if sender.send(bytes[..n].to_vec()).is_err() {
                    break;
                }
            }
        });
        let keys = pair.master.take_writer().unwrap();
        let screen = vt100::Parser::new(SIZE.rows.try_into().unwrap(), SIZE.cols.try_into().unwrap(), 0);
        Self { master: pair.master, keys, output, child, screen, cooked }
    }

    fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
        self.keys.flush().unwrap();
    }

    fn text(&self) -> String {
        self.screen.screen().contents()
    }

    /// Reads until the screen is as wanted.
    fn wait(&mut self, what: &str, wanted: impl Fn(&vt100::Screen) -> bool) {
        let end = Instant::now() + Duration::from_secs(60);
        while !wanted(self.screen.screen()) {
            let left = end.saturating_duration_since(Instant::now());
            match self.output.recv_timeout(left) {
                Ok(bytes) => self.screen.process(&bytes),
                Err(_) => panic!("waited for {what}; the screen is:\n{}", self.text()),
            }
        }
    }

    fn wait_for(&mut self, text: &str) {
        self.wait(text, |screen| screen.contents().contains(text));
    }

    /// Waits for the program's end; one that does not end is killed and fails the test.
    fn exit_code(&mut self) -> u32 {
        let end = Instant::now() + Duration::from_secs(20);
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.exit_code();
            }
            if Instant::now() > end {
                self.child.kill().unwrap();
                panic!("the program does not end; the screen is:\n{}", self.text());
            }
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits for the program's end; the terminal must be as it was.
    fn ends(&mut self) -> u32 {
        let code = self.exit_code();
        while let Ok(bytes) = self.output.recv_timeout(Duration::from_millis(200)) {
            self.screen.process(&bytes);
        }
        let screen = self.screen.screen();
        assert!(!screen.alternate_screen() && !screen.hide_cursor() && !screen.bracketed_paste());
        assert_eq!(is_cooked(self.master.as_ref()), self.cooked, "line editing is back");
        code
    }
}

/// Whether the terminal edits lines and echoes by itself.
#[cfg(unix)]
fn is_cooked(master: &dyn MasterPty) -> bool {
    let Some(termios) = master.get_termios() else { return true };
    format!("{:?}", termios.local_flags).contains("ICANON")
}

#[cfg(not(unix))]
fn is_cooked(_: &dyn MasterPty) -> bool {
    true
}

/// Colours of the cells that show this glyph.
fn colours(screen: &vt100::Screen, glyph: &str) -> Vec<vt100::Color> {
    let cells = (0..SIZE.rows).flat_map(|row| (0..SIZE.cols).map(move |col| (row, col)));
    cells
        .filter_map(|(row, col)| screen.cell(row, col))
        .filter(|c| c.contents() == glyph)
        .map(|c| c.fgcolor())
        .collect()
}

/// Digits of the answer in this colour: tokens of the count that were accepted.
fn digits_in(screen: &vt100::Screen, colour: vt100::Color) -> usize {
    ('0'..='9').map(|digit| colours(screen, &digit.to_string()).iter().filter(|c| **c == colour).count()).sum()
}

#[test]
fn a_newcomer_prompts_watches_stops_and_quits() {
    if real::target_file().is_none() {
        return;
    }
    let mut terminal = Terminal::start(&["-k", "3"], &[]);
    terminal.wait_for("Type a prompt");
    terminal.press("Count from 1 to 40.");
    terminal.wait_for("Count from 1 to 40.");
    terminal.press("\r");
    // tokens of every fate, told apart by colour as well as by glyph; the legend names the colours
    terminal.wait("accepted, bonus, recovered and rejected tokens", |screen| {
        let marked = ["✚", "↻", "✗"].iter().all(|glyph| colours(screen, glyph).len() > 3);
        marked && colours(screen, "✓").first().is_some_and(|accepted| digits_in(screen, *accepted) > 5)
    });
    let of = |terminal: &Terminal, glyph| colours(terminal.screen.screen(), glyph)[0];
    let (accepted, rejected) = (of(&terminal, "✓"), of(&terminal, "✗"));
    assert_ne!(accepted, vt100::Color::Default);
    assert_ne!(accepted, rejected);
    // the speedup against plain decoding, measured beside it
    terminal.wait("the speedup", |screen| {
        let text = screen.contents();
        text.contains("speculative") && text.contains("plain") && text.contains('×') && text.contains("Tokens/s")
    });
    terminal.press("\u{3}"); // Ctrl+C stops the answer …
    terminal.wait_for("stopped");
    terminal.press("\u{3}"); // … and quits
    assert_eq!(terminal.ends(), 0);
}

#[test]
fn a_file_that_cannot_be_loaded_leaves_the_terminal_as_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("bad.gguf");
    std::fs::write(&file, b"GGUF and then nothing").unwrap();
    let mut terminal = Terminal::start(&["--model", file.to_str().unwrap()], &[]);
    terminal.wait_for("damaged or incomplete");
    terminal.press("\u{3}");
    assert_eq!(terminal.ends(), 1);
}

#[test]
fn a_dumb_terminal_gets_plain_text() {
    let files = common::tiny::Tiny::new(3);
    let target = files.target.to_str().unwrap();
    let mut terminal = Terminal::start(
        &["--model", target, "--drafter", "none", "--max-tokens", "8", "--prompt", "the"],
        &[("TERM", "dumb")],
    );
    terminal.press("\u{4}"); // end of input
    let mut bytes = Vec::new();
    terminal.exit_code();
    while let Ok(more) = terminal.output.recv_timeout(Duration::from_millis(200)) {
        bytes.extend(more);
    }
    assert!(!bytes.is_empty() && !bytes.contains(&0x1b), "escape codes in {}", String::from_utf8_lossy(&bytes));
}

/// A recording that comes with the program.
fn bundled(name: &str) -> String {
    format!("{}/assets/traces/{name}.dscope.jsonl.zst", env!("CARGO_MANIFEST_DIR"))
}

/// Needs no model: a recording takes marks, goes to places, ends, plays again.
#[test]
fn a_recording_is_scrubbed_and_marked() {
    let mut terminal = Terminal::start(&["replay", &bundled("code"), "--speed", "16", "--paused"], &[]);
    terminal.wait_for("It takes no prompt.");
    terminal.press("n");
    terminal.wait_for("‖ held");
    terminal.press("m");
    terminal.wait_for("★");
    terminal.press("awhy here?\r");
    terminal.wait_for("✎ why here?");
    terminal.press(";100%\r");
    terminal.wait_for("■ the end");
    terminal.press("\"");
    terminal.wait_for("round 1: ★ · ✎ why here?");
    terminal.press(";20\r");
    terminal.wait_for("Round 20 (then)");
    terminal.press("\x1b[F");
    terminal.wait_for("■ the end");
    terminal.press("[[[[ "); // slow enough to be seen
    terminal.wait("that it plays again", |screen| !screen.contents().contains("■ the end"));
    terminal.wait_for("■ the end");
    terminal.press("q");
    assert_eq!(terminal.ends(), 0);
}

#[test]
fn two_recordings_are_compared_on_the_terminal() {
    let mut terminal = Terminal::start(&["diff", &bundled("chat"), &bundled("story"), "--tui"], &[]);
    terminal.wait_for("≠ they part");
    terminal.wait_for("the prompts differ");
    terminal.wait_for("margin");
    terminal.press("n?");
    terminal.wait_for("Help");
    terminal.press("?q");
    assert_eq!(terminal.ends(), 1, "their tokens differ");
}
