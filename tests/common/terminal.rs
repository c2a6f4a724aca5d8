//! The program in a terminal of a test: keys in, the screen's text out.

#![allow(dead_code)] // each test file uses its own part

use std::io::{Read, Write};
use std::path::Path;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use portable_pty::{Child, CommandBuilder, MasterPty, PtySize, native_pty_system};

/// Longest time until a screen shows what a test waits for, on a machine that does much else.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct Screen {
    master: Box<dyn MasterPty + Send>,
    keys: Box<dyn Write + Send>,
    output: Receiver<Vec<u8>>,
    child: Box<dyn Child + Send + Sync>,
    screen: vt100::Parser,
    /// The last bytes that the program wrote: a query may come in two parts.
    last: Vec<u8>,
    _state: tempfile::TempDir,
}

impl Screen {
    /// Starts the program in a folder, on a terminal of so many columns and rows.
    pub(crate) fn start(folder: &Path, args: &[&str], environment: &[(&str, &str)], (cols, rows): (u16, u16)) -> Self {
        let size = PtySize { rows, cols, pixel_width: 0, pixel_height: 0 };
        let pair = native_pty_system().openpty(size).unwrap();
        let mut command = CommandBuilder::new(env!("CARGO_BIN_EXE_draftscope"));
        command.args(args);
        command.cwd(folder);
        let state = tempfile::tempdir().unwrap();
        std::fs::create_dir(state.path().join("draftscope")).unwrap();
        std::fs::write(state.path().join("draftscope/tour-shown"), "").unwrap();
        for name in ["NO_COLOR", "DRAFTSCOPE_MODEL", "DRAFTSCOPE_CONFIG", "LC_ALL", "LC_CTYPE"] {
            command.env_remove(name);
        }
        for (name, value) in [("TERM", "xterm-256color"), ("COLORTERM", "truecolor"), ("LANG", "C.UTF-8")] {
            command.env(name, value);
        }
        command.env("XDG_STATE_HOME", state.path());
        environment.iter().for_each(|(name, value)| command.env(name, value));
        let child = pair.slave.spawn_command(command).unwrap();
        drop(pair.slave);
        let mut reader = pair.master.try_clone_reader().unwrap();
        let (sender, output) = channel();
        std::thread::spawn(move || {
            let mut bytes = [0; 8192];
            while let Ok(n @ 1..) = reader.read(&mut bytes) {
                if sender.send(bytes[..n].to_vec()).is_err() {
                    break;
                }
            }
        });
        let keys = pair.master.take_writer().unwrap();
        Self {
            master: pair.master,
            keys,
            output,
            child,
            screen: vt100::Parser::new(rows.try_into().unwrap(), cols.try_into().unwrap(), 0),
            last: Vec::new(),
            _state: state,
        }
    }

    /// Writes keys as a terminal sends them.
    pub(crate) fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
        self.keys.flush().unwrap();
    }

    /// Pastes text with the marks of bracketed paste.
    pub(crate) fn paste(&mut self, text: &str) {
        self.press(&format!("\u{1b}[200~{text}\u{1b}[201~"));
    }

    pub(crate) fn resize(&mut self, cols: u16, rows: u16) {
        self.screen.screen_mut().set_size(rows.try_into().unwrap(), cols.try_into().unwrap());
        self.master.resize(PtySize { rows, cols, pixel_width: 0, pixel_height: 0 }).unwrap();
    }

    pub(crate) fn text(&self) -> String {
        self.screen.screen().contents()
    }

    /// Waits until the screen's text is as wanted.
    pub(crate) fn wait(&mut self, what: &str, wanted: impl Fn(&str) -> bool) {
        let end = Instant::now() + PATIENCE;
        while !wanted(&self.text()) {
            let Ok(bytes) = self.output.recv_timeout(end.saturating_duration_since(Instant::now())) else {
                panic!("waited for {what}; the screen is:\n{}", self.text());
            };
            self.take(&bytes);
        }
    }

    pub(crate) fn wait_for(&mut self, text: &str) {
        self.wait(text, |screen| screen.contains(text));
    }

    /// Waits for the program's end.
    pub(crate) fn wait_for_end(&mut self) {
        let end = Instant::now() + PATIENCE;
        while self.child.try_wait().unwrap().is_none() {
            assert!(Instant::now() < end, "the program does not end; the screen is:\n{}", self.text());
            if let Ok(bytes) = self.output.recv_timeout(Duration::from_millis(20)) {
                self.take(&bytes);
            }
        }
    }

    /// Shows what the program wrote, and answers queries of the cursor's position and of colours.
    fn take(&mut self, bytes: &[u8]) {
        self.screen.process(bytes);
        let before = self.last.len();
        self.last.extend_from_slice(bytes);
        let asks = |query: &[u8]| {
            let from = before.saturating_sub(query.len() - 1);
            self.last[from..].windows(query.len()).any(|part| part == query)
        };
        let (place, colours) = (asks(b"\x1b[6n"), asks(b"\x1b[c"));
        self.last.drain(..self.last.len().saturating_sub(8));
        if place {
            self.press("\u{1b}[1;1R");
        }
        if colours {
            self.press("\u{1b}]10;rgb:eeee/eeee/eeee\u{1b}\\\u{1b}]11;rgb:1111/1111/1111\u{1b}\\\u{1b}[?62;22c");
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
