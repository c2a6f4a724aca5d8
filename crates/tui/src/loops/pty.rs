//! The loop in a real pseudo-terminal: start, type, resize, quit; and the terminal after a panic.
//!
//! The test binary runs itself in the terminal: `child` is the program under test, with a source that plays the fixture
//! when prompted. A terminal emulator reads the screen.

use std::io::{Read, Write};
use std::num::NonZero;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use portable_pty::{CommandBuilder, MasterPty, PtySize, native_pty_system};

use crate::{TuiOptions, run};
use draftscope_protocol::stream::{Consumer, FanOut, Source};
use draftscope_protocol::{Command, Event};
use draftscope_session::fixture::first_turn;

/// Environment variable that names what the child plays.
const ROLE: &str = "DRAFTSCOPE_TEST_PTY_ROLE";

/// A consumer that panics on the thread of the front end.
struct Bomb;

impl Consumer for Bomb {
    fn name(&self) -> &str {
        "bomb"
    }
    fn event(&mut self, _: &Event) -> std::io::Result<()> {
        panic!("bomb on the front end's thread");
    }
    fn finish(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
#[ignore = "run by the tests of this module in a pseudo-terminal"]
fn child() {
    let Ok(role) = std::env::var(ROLE) else {
        return;
    };
    let (commands, asked) = channel();
    let (tell, events) = tokio::sync::mpsc::unbounded_channel();
    let dies = role == "engine-panic";
    thread::spawn(move || {
        let mut script = first_turn().events.into_iter();
        let _ = tell.send(script.next().expect("the script begins with its header"));
        while let Ok(command) = asked.recv() {
            match command {
                Command::Shutdown => return,
                Command::Generate { .. } if dies => panic!("out of memory in the engine"),
                Command::Generate { .. } => script.by_ref().for_each(|event| drop(tell.send(event))),
                _ => {}
            }
        }
    });
    let mut consumers = FanOut::default();
    if role == "front-panic" {
        consumers.add(Box::new(Bomb));
    }
    let ended = run(Source { commands, events: events.into() }, TuiOptions::default(), consumers);
    println!("ended: {ended:?}");
}

/// The child in its terminal.
struct Terminal {
    pty: Box<dyn MasterPty + Send>,
    keys: Box<dyn Write + Send>,
    output: Receiver<Vec<u8>>,
    parser: vt100::Parser,
    /// Process of the program under test.
    process: u32,
}

impl Terminal {
    fn open(role: &str) -> Self {
        let size = size(80, 24);
        let pair = native_pty_system().openpty(size).unwrap();
        let mut command = CommandBuilder::new(std::env::current_exe().unwrap());
        command.args(["--exact", "loops::pty::child", "--ignored", "--nocapture"]);
        command.env(ROLE, role);
        command.env("TERM", "xterm-256color");
        let process = pair.slave.spawn_command(command).unwrap().process_id().unwrap();
        let mut reader = pair.master.try_clone_reader().unwrap();
        let (tell, output) = channel();
        thread::spawn(move || {
            let mut chunk = [0; 4096];
            while let Ok(len @ 1..) = reader.read(&mut chunk) {
                if tell.send(chunk[..len].to_vec()).is_err() {
                    return;
                }
            }
        });
        Self {
            keys: pair.master.take_writer().unwrap(),
            pty: pair.master,
            output,
            parser: vt100::Parser::new(cells(24), cells(80), 0),
            process,
        }
    }

    fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
    }

    fn resize(&mut self, width: u16, height: u16) {
        self.parser.screen_mut().set_size(cells(height), cells(width));
        self.pty.resize(size(width, height)).unwrap();
    }

    /// Waits until the screen matches; fails with what it shows instead.
    fn wait(&mut self, what: &str, fits: impl Fn(&vt100::Screen) -> bool) {
        let deadline = Instant::now() + Duration::from_secs(120);
        while !fits(self.parser.screen()) {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.output.recv_timeout(left.min(Duration::from_millis(200))) {
                Ok(bytes) => self.parser.process(&bytes),
                Err(_) => assert!(!left.is_zero(), "no {what}:\n{}", self.parser.screen().contents()),
            }
        }
    }

    fn wait_for(&mut self, text: &str) {
        self.wait(text, |screen| screen.contents().contains(text));
    }

    /// Presses keys one after the other, and waits for what each makes appear.
    fn steps(&mut self, steps: &[(&str, &str)]) {
        for (keys, text) in steps {
            self.press(keys);
            self.wait_for(text);
        }
    }

    /// Quits by these keys: the terminal is restored.
    fn quit(&mut self, keys: &str, ended: &str) {
        self.press(keys);
        self.wait_restored();
        self.wait_for(ended);
    }

    /// The ordinary screen, cursor and paste mode are back.
    fn wait_restored(&mut self) {
        self.wait("restored terminal", |screen| {
            !screen.alternate_screen() && !screen.bracketed_paste() && !screen.hide_cursor()
        });
    }
}

/// Sends a signal by name.
fn signal(process: u32, name: &str) {
    let sent = std::process::Command::new("kill").arg(format!("-{name}")).arg(process.to_string()).status();
    assert!(sent.unwrap().success());
}

fn cells(count: u16) -> NonZero<u16> {
    NonZero::new(count).expect("a terminal has cells")
}

fn size(cols: u16, rows: u16) -> PtySize {
    PtySize { rows, cols, ..PtySize::default() }
}

#[test]
fn a_prompt_is_answered_and_quitting_restores_the_terminal() {
    let mut terminal = Terminal::open("play");
    terminal.wait_for("Type a prompt");
    assert!(terminal.parser.screen().alternate_screen());
    terminal.press("why?\r");
    terminal.wait_for("2.43 tokens per round, of 4");
    terminal.press("\td");
    terminal.wait_for("d drafts: all");
    terminal.resize(120, 40);
    terminal.wait_for("Tokens per round: mean 2.43");
    terminal.resize(40, 10);
    terminal.wait_for("too small");
    terminal.quit("\u{3}", "ended: Ok(Quit)");
}

#[test]
fn time_is_walked_questioned_and_left_in_a_terminal() {
    let mut terminal = Terminal::open("play");
    terminal.wait_for("Type a prompt");
    terminal.steps(&[
        ("why?\r", "2.43 tokens per round, of 4"),
        ("\t<", "the past: round 6 of 7"),
        ("<,", "the past: round 5 of 7"),
    ]);
    terminal.press(".");
    terminal.steps(&[
        (">", "the past: round 6 of 7"),
        ("w", "What if: round 6"),
        ("\u{1b}[D", "computed from the recorded distributions"),
    ]);
    terminal.press("q");
    terminal.steps(&[("t", "theme: light"), ("2", "Rounds: 6 of 6"), ("\u{1b}[F", "Rounds: 7 of 7")]);
    terminal.resize(100, 30);
    // keys that arrive with the signal of a new size may stay unread until the next key
    terminal.wait("wider screen", |screen| screen.rows(90, 10).any(|row| !row.trim().is_empty()));
    terminal.quit(":quit\r", "ended: Ok(Quit)");
}

#[test]
fn a_suspended_program_gives_the_terminal_back_and_takes_it_again() {
    let mut terminal = Terminal::open("play");
    terminal.wait_for("Type a prompt");
    terminal.press("\u{1a}");
    terminal.wait_restored();
    // the terminal is given back just before the process stops: a signal between the two would be lost
    let process = terminal.process;
    let is_back = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&is_back);
    let waking = std::thread::spawn(move || {
        while !seen.load(Ordering::Relaxed) {
            signal(process, "CONT");
            std::thread::sleep(Duration::from_millis(50));
        }
    });
    terminal
        .wait("the screen again", |screen| screen.alternate_screen() && screen.contents().contains("Type a prompt"));
    is_back.store(true, Ordering::Relaxed);
    waking.join().unwrap();
    terminal.quit("\u{3}", "ended: Ok(Quit)");
}

#[test]
fn pasted_lines_stay_in_the_prompt() {
    let mut terminal = Terminal::open("play");
    terminal.wait_for("Type a prompt");
    terminal.press("\u{1b}[200~first\rsecond\u{1b}[201~");
    terminal.wait_for("second");
    assert!(terminal.parser.screen().contents().contains("ready"));
    terminal.press("\u{3}");
    terminal.wait_for("the prompt is cleared");
    terminal.press("\u{3}");
    terminal.wait_restored();
}

#[test]
fn a_panic_of_the_engine_is_a_message_on_the_screen() {
    let mut terminal = Terminal::open("engine-panic");
    terminal.wait_for("Type a prompt");
    terminal.press("why?\r");
    terminal.wait_for("out of memory in the engine");
    assert!(terminal.parser.screen().alternate_screen());
    terminal.quit("\u{3}", "ended: Ok(Failed(");
}

#[test]
fn a_panic_of_the_front_end_restores_the_terminal_first() {
    let mut terminal = Terminal::open("front-panic");
    terminal.wait_for("bomb on the front end's thread");
    terminal.wait_restored();
}
