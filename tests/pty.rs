//! The program in a real pseudo-terminal: a first session with the real model; time travel, what-if, files and
//! drafts of a person on an engine with a tiny model.

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
    /// Output that is not shown yet.
    unseen: Vec<u8>,
    /// All output so far.
    written: Vec<u8>,
    cooked: bool,
    light: bool,
    /// Where the program remembers what it has shown once.
    _state: tempfile::TempDir,
}

/// What terminals with a dark and a light background answer to queries of colours and abilities.
const DARK: &str = "\u{1b}]10;rgb:eeee/eeee/eeee\u{1b}\\\u{1b}]11;rgb:1111/1111/1111\u{1b}\\\u{1b}[?62;22c";
const LIGHT: &str = "\u{1b}]10;rgb:1111/1111/1111\u{1b}\\\u{1b}]11;rgb:ffff/ffff/ffff\u{1b}\\\u{1b}[?62;22c";

/// Longest time until a screen shows what a test waits for, on a machine that does much else.
const PATIENCE: Duration = Duration::from_secs(120);

/// Longest wait for the rest of what a program wrote that has ended. On Unix the output ends by itself.
const REST: Duration = if cfg!(unix) { PATIENCE } else { Duration::from_millis(200) };

const PROGRAM: &str = env!("CARGO_BIN_EXE_draftscope");

/// Bytes of output that are shown between two looks at the screen: less than a frame.
const PART: usize = 256;

const SIZE: PtySize = PtySize { rows: 40, cols: 120, pixel_width: 0, pixel_height: 0 };

impl Terminal {
    fn start(args: &[&str], environment: &[(&str, &str)]) -> Self {
        Self::start_in(std::path::Path::new("."), args, environment)
    }

    fn start_in(folder: &std::path::Path, args: &[&str], environment: &[(&str, &str)]) -> Self {
        Self::start_with(folder, args, environment, true)
    }

    /// Without `controls`, the terminal's end sends the program no SIGHUP.
    fn start_with(folder: &std::path::Path, args: &[&str], environment: &[(&str, &str)], controls: bool) -> Self {
        let pair = native_pty_system().openpty(SIZE).unwrap();
        // what started the tests may ignore some signals, as nohup does
        let mut command = CommandBuilder::new(if cfg!(target_os = "linux") { "env" } else { PROGRAM });
        if cfg!(target_os = "linux") {
            command.args(["--default-signal", PROGRAM]);
        }
        command.args(args);
        command.set_controlling_tty(controls);
        command.cwd(std::fs::canonicalize(folder).unwrap());
        command.env("TERM", "xterm-256color");
        command.env("COLORTERM", "truecolor");
        command.env_remove("NO_COLOR");
        command.env_remove("DRAFTSCOPE_MODEL");
        let state = tempfile::tempdir().unwrap();
        command.env("XDG_STATE_HOME", state.path());
        std::fs::create_dir(state.path().join("draftscope")).unwrap();
        std::fs::write(state.path().join("draftscope/tour-shown"), "").unwrap();
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
        Self {
            master: pair.master,
            keys,
            output,
            child,
            screen,
            unseen: Vec::new(),
            written: Vec::new(),
            cooked,
            light: false,
            _state: state,
        }
    }

    /// Takes what the program wrote, and answers queries of the cursor's position and of colours.
    fn take(&mut self, bytes: Vec<u8>) {
        let before = self.written.len();
        self.written.extend_from_slice(&bytes);
        // a query may come in two parts
        let asks = |query: &[u8]| {
            let from = before.saturating_sub(query.len() - 1);
            self.written[from..].windows(query.len()).any(|part| part == query)
        };
        let (place, colours) = (asks(b"\x1b[6n"), asks(b"\x1b[c"));
        if place {
            self.press("\u{1b}[1;1R");
        }
        if colours {
            self.press(if self.light { LIGHT } else { DARK });
        }
        self.unseen = bytes;
    }

    /// How often the program wrote these bytes.
    fn count(&self, bytes: &str) -> usize {
        self.written.windows(bytes.len()).filter(|part| *part == bytes.as_bytes()).count()
    }

    /// Shows the next part of what was taken: on a busy machine many frames come at once, and none may be missed.
    fn show_part(&mut self) {
        let rest = self.unseen.split_off(self.unseen.len().min(PART));
        let part = std::mem::replace(&mut self.unseen, rest);
        self.screen.process(&part);
    }

    fn resize(&mut self, cols: u16, rows: u16) {
        self.screen.screen_mut().set_size(rows.try_into().unwrap(), cols.try_into().unwrap());
        self.master.resize(PtySize { rows, cols, ..SIZE }).unwrap();
    }

    fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
        self.keys.flush().unwrap();
    }

    fn text(&self) -> String {
        self.screen.screen().contents()
    }

    /// Reads until a condition on the screen holds.
    fn wait(&mut self, what: &str, wanted: impl Fn(&vt100::Screen) -> bool) {
        let end = Instant::now() + PATIENCE;
        while !wanted(self.screen.screen()) {
            if self.unseen.is_empty() {
                let left = end.saturating_duration_since(Instant::now());
                match self.output.recv_timeout(left) {
                    Ok(bytes) => self.take(bytes),
                    Err(_) => panic!("waited for {what}; the screen is:\n{}", self.text()),
                }
            }
            self.show_part();
        }
    }

    fn wait_for(&mut self, text: &str) {
        self.wait(text, |screen| screen.contents().contains(text));
    }

    /// Reads until the program has drawn nothing for a while.
    fn settle(&mut self) {
        let end = Instant::now() + PATIENCE;
        while Instant::now() < end {
            while !self.unseen.is_empty() {
                self.show_part();
            }
            // in several waits, so that the program gets to run meanwhile
            match (0..10).find_map(|_| self.output.recv_timeout(Duration::from_millis(150)).ok()) {
                Some(bytes) => self.take(bytes),
                None => return,
            }
        }
    }

    /// Waits for the program's end. A program that does not end is killed, and the test fails.
    fn exit_code(&mut self) -> u32 {
        let end = Instant::now() + PATIENCE;
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

    /// Waits for the program's end and checks that the terminal is restored.
    fn ends(&mut self) -> u32 {
        let code = self.exit_code();
        self.screen.process(&std::mem::take(&mut self.unseen));
        while let Ok(bytes) = self.output.recv_timeout(REST) {
            self.written.extend_from_slice(&bytes);
            self.screen.process(&bytes);
        }
        let screen = self.screen.screen();
        assert!(!screen.alternate_screen() && !screen.hide_cursor() && !screen.bracketed_paste());
        assert_eq!(is_cooked(self.master.as_ref()), self.cooked, "line editing is restored");
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

/// Number of digits in this colour: accepted tokens of the answer's numbers.
fn digits_in(screen: &vt100::Screen, colour: vt100::Color) -> usize {
    ('0'..='9').map(|digit| colours(screen, &digit.to_string()).iter().filter(|c| **c == colour).count()).sum()
}

#[test]
fn a_new_user_prompts_watches_stops_and_quits() {
    if real::target_file().is_none() {
        return;
    }
    let state = tempfile::tempdir().unwrap();
    let options = ["-k", "3", "--marks", "always"];
    let mut terminal = Terminal::start(&options, &[("XDG_STATE_HOME", state.path().to_str().unwrap())]);
    terminal.wait_for("Tour, 1 of 5");
    terminal.press("\u{1b}");
    terminal.wait_for("Type a prompt, or take one");
    assert!(state.path().join("draftscope/tour-shown").exists(), "the next start has no tour");
    terminal.press("List ten inventions and the years in which they were made.");
    terminal.wait_for("List ten inventions and the years in which they were made.");
    terminal.press("\r");
    terminal.wait_for("Slow start, 2 rounds/s");
    terminal.press("ddd"); // all discarded drafts, also after the slow start
    // tokens of every fate, marked by colour and glyph; the legend names the colours
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
        text.contains("Speedup") && text.contains("plain") && text.contains('×') && text.contains("accepted")
    });
    // an answer of hundreds of tokens, because a short one may end before it is stopped
    terminal.wait_for("○ ready");
    terminal.wait_for("Enter or i: type the next prompt"); // the end of an answer leaves keys to the views
    terminal.press("i");
    terminal.press("Write a long story about a lighthouse keeper, with many chapters.");
    terminal.press("\r");
    terminal.wait_for("❯ Write a long story");
    terminal.press("\u{3}"); // Ctrl+C stops the answer …
    terminal.wait_for("stopped");
    terminal.press("\u{3}"); // … then asks …
    terminal.wait_for("This session is not saved");
    terminal.press("\u{3}"); // … and quits
    assert_eq!(terminal.ends(), 0);
}

#[test]
fn a_first_answer_starts_slow_and_a_session_is_saved_on_leaving() {
    let (files, folder) = (common::tiny::Tiny::new(3), tempfile::tempdir().unwrap());
    let target = files.target.to_str().unwrap();
    let args = ["--model", target, "--raw", "--max-tokens", "60", "-k", "3", "--drafter", "random"];
    let mut terminal = Terminal::start_in(folder.path(), &args, &[]);
    terminal.wait_for("Type a prompt, or take one");
    terminal.press("the thin inn\r");
    terminal.wait_for("full speed by round 15");
    terminal.wait_for("one pass of the target over 4 positions");
    terminal.wait_for("rejected"); // as a caption, or in the verdict, which stays
    terminal.press("]");
    terminal.wait_for("60 tokens");
    terminal.wait_for("ready");
    terminal.press("\u{3}");
    terminal.wait_for("This session is not saved");
    terminal.press("s");
    assert_eq!(terminal.ends(), 0);
    assert_eq!(files_of(folder.path(), ".dscope.jsonl").len(), 1);
    assert!(terminal.text().contains("saved as draftscope-"), "{}", terminal.text());
}

#[test]
fn a_file_that_cannot_be_loaded_restores_the_terminal() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("bad.gguf");
    std::fs::write(&file, b"GGUF and then nothing").unwrap();
    let mut terminal = Terminal::start(&["--model", file.to_str().unwrap()], &[]);
    terminal.wait_for("damaged or incomplete");
    terminal.press("\u{3}");
    assert_eq!(terminal.ends(), 2, "2 is the status of an error, 1 that of a difference");
}

#[cfg(unix)]
#[test]
fn a_signal_restores_the_terminal_and_completes_the_recording() {
    let folder = tempfile::tempdir().unwrap();
    let recording = bundled("chat");
    // a replay records nothing before its first event, which names the model
    for (args, shown) in [
        (vec!["replay", &recording, "--trace", "kept.jsonl"], "SmolLM2"),
        (vec!["diff", &recording, &recording, "--tui"], "chat"),
    ] {
        let mut terminal = Terminal::start_in(folder.path(), &args, &[]);
        terminal.wait(shown, |screen| screen.alternate_screen() && screen.contents().contains(shown));
        let pid = terminal.child.process_id().unwrap().to_string();
        assert!(std::process::Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
        assert_ne!(terminal.ends(), 0, "the exit status reports the signal");
        assert!(!terminal.screen.screen().alternate_screen(), "{args:?}");
    }
    let kept = std::fs::read_to_string(folder.path().join("kept.jsonl")).unwrap();
    assert!(kept.lines().last().unwrap().contains("\"ended\""), "{kept:.200}");
}

/// Closes the terminal, and waits for the end of a program that hears of it through the terminal alone.
#[cfg(unix)]
fn ends_without_a_terminal(terminal: Terminal) -> u32 {
    let Terminal { master, mut keys, output, mut child, .. } = terminal;
    drop(output);
    keys.write_all(b"?").unwrap(); // the next output ends the thread that reads the screen, which has the master too
    drop((master, keys));
    let end = Instant::now() + PATIENCE;
    while Instant::now() < end {
        if let Some(status) = child.try_wait().unwrap() {
            return status.exit_code();
        }
        thread::sleep(Duration::from_millis(20));
    }
    child.kill().unwrap();
    panic!("the program runs on without a terminal");
}

#[cfg(unix)]
#[test]
fn a_terminal_that_is_gone_ends_the_program_and_completes_the_recording() {
    let folder = tempfile::tempdir().unwrap();
    let recording = bundled("chat");
    for (args, shown) in [
        (vec!["replay", &recording, "--trace", "kept.jsonl"], "SmolLM2"),
        (vec!["diff", &recording, &recording, "--tui"], "chat"),
    ] {
        let mut terminal = Terminal::start_with(folder.path(), &args, &[], false);
        terminal.wait(shown, |screen| screen.alternate_screen() && screen.contents().contains(shown));
        assert_ne!(ends_without_a_terminal(terminal), 0, "{args:?}: as after SIGHUP");
    }
    let kept = std::fs::read_to_string(folder.path().join("kept.jsonl")).unwrap();
    assert!(kept.lines().last().unwrap().contains("\"ended\""), "{kept:.200}");
}

/// Sends a signal to a replay, which ends by it and gives back the terminal; the lines of its recording.
#[cfg(unix)]
fn recorded_until(signal: i32) -> String {
    let folder = tempfile::tempdir().unwrap();
    let recording = bundled("chat");
    let mut terminal = Terminal::start_in(folder.path(), &["replay", &recording, "--trace", "kept.jsonl"], &[]);
    terminal.wait("a screen", |screen| screen.alternate_screen() && screen.contents().contains("SmolLM2"));
    let pid = terminal.child.process_id().unwrap().to_string();
    assert!(std::process::Command::new("kill").args([&format!("-{signal}"), &pid]).status().unwrap().success());
    assert_ne!(terminal.ends(), 0, "{signal}: the exit status reports the signal");
    let screen = terminal.screen.screen();
    assert!(!screen.alternate_screen(), "{signal}");
    assert_eq!(screen.mouse_protocol_mode(), vt100::MouseProtocolMode::None, "{signal}");
    assert!(!terminal.text().contains("the program was aborted"), "{signal}: it was asked to end");
    // a fault leaves none if it came before the first event was written
    std::fs::read_to_string(folder.path().join("kept.jsonl")).unwrap_or_default()
}

#[cfg(target_os = "linux")]
#[test]
fn every_signal_that_ends_the_program_restores_the_terminal() {
    use libc::{
        SIGABRT, SIGALRM, SIGHUP, SIGINT, SIGIO, SIGPROF, SIGPWR, SIGQUIT, SIGSTKFLT, SIGTERM, SIGUSR1, SIGUSR2,
        SIGVTALRM, SIGXCPU, SIGXFSZ,
    };
    use libc::{SIGBUS, SIGFPE, SIGILL, SIGRTMAX, SIGRTMIN, SIGSEGV, SIGSYS, SIGTRAP};
    for signal in [
        SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGALRM, SIGVTALRM, SIGPROF, SIGXCPU, SIGXFSZ, SIGABRT,
        SIGIO, SIGPWR, SIGSTKFLT,
    ] {
        let kept = recorded_until(signal);
        assert!(kept.lines().last().unwrap().contains("\"ended\""), "{signal}: {kept:.200}");
    }
    for signal in [SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGSYS, SIGTRAP, SIGRTMIN(), SIGRTMAX()] {
        recorded_until(signal);
    }
}

#[test]
fn a_terminal_that_claims_to_be_huge_is_refused() {
    let mut terminal = Terminal::start(&["demo", "code"], &[]);
    terminal.wait("a screen", |screen| screen.alternate_screen());
    terminal.master.resize(PtySize { rows: u16::MAX, cols: u16::MAX, ..SIZE }).unwrap();
    assert_eq!(terminal.ends(), 2);
    assert!(terminal.text().contains("65535 columns and 65535 rows"), "{}", terminal.text());
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
    while let Ok(more) = terminal.output.recv_timeout(REST) {
        bytes.extend(more);
    }
    assert!(!bytes.is_empty() && !bytes.contains(&0x1b), "escape codes in {}", String::from_utf8_lossy(&bytes));
}

/// A bundled recording.
fn bundled(name: &str) -> String {
    format!("{}/assets/traces/{name}.dscope.jsonl.zst", env!("CARGO_MANIFEST_DIR"))
}

/// Without a model: marks are set, places are found, and after the end the recording plays again.
#[test]
fn a_recording_is_scrubbed_and_marked() {
    let mut terminal = Terminal::start(&["replay", &bundled("code"), "--speed", "16", "--paused"], &[]);
    terminal.wait_for("It takes no prompt.");
    terminal.press("n");
    terminal.wait_for("committed"); // it is paused from the start, so "paused" would prove nothing
    terminal.press("m");
    terminal.wait_for("★");
    terminal.press("awhy here?\r");
    terminal.wait_for("✎ why here?");
    terminal.press("%100%\r");
    terminal.wait_for("■ the end");
    terminal.press("\x1b[1;5A");
    terminal.wait_for("round 2: ★ · ✎ why here?");
    terminal.press("%20\r");
    terminal.wait_for("Round 20 (earlier)");
    terminal.press("\x1b[F");
    terminal.wait_for("■ the end");
    terminal.press("[[[[ "); // slow enough for the test to see it
    terminal.wait("that it plays again", |screen| !screen.contents().contains("■ the end"));
    terminal.wait_for("■ the end");
    terminal.press("q");
    assert_eq!(terminal.ends(), 0);
}

#[test]
fn a_screen_names_its_window_draws_whole_frames_and_reads_changed_files_again() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("config.toml");
    let environment = [("DRAFTSCOPE_CONFIG", config.to_str().unwrap())];
    let mut terminal = Terminal::start(&["demo", "chat", "--paused"], &environment);
    terminal.wait_for("SmolLM2");
    std::fs::write(&config, "theme = \"gruvbox\"\n").unwrap();
    terminal.wait_for("the changed configuration was read");
    std::fs::write(folder.path().join("keymap.toml"), "browse = 3\n").unwrap();
    terminal.wait_for("keymap:");
    terminal.press("q");
    assert_eq!(terminal.ends(), 0);
    assert_eq!(terminal.count("\u{1b}]0;draftscope: SmolLM2-135M-Instruct\u{7}"), 1, "named once");
    assert_eq!((terminal.count("\u{1b}[22;0t"), terminal.count("\u{1b}[23;0t")), (1, 1), "kept and restored");
    let (begun, ended) = (terminal.count("\u{1b}[?2026h"), terminal.count("\u{1b}[?2026l"));
    assert!(begun > 2 && ended == begun + 1, "{begun} frames, {ended} ends, one of them to be sure at the end");
}

/// Brightness of the brightest text on the screen, 0 to 255.
fn brightest(screen: &vt100::Screen) -> u8 {
    let (rows, cols) = screen.size();
    let at = |row| (0..cols.get()).filter_map(move |col| screen.cell(row, col));
    let cells = (0..rows.get()).flat_map(at);
    let of = |cell: &vt100::Cell| match cell.fgcolor() {
        vt100::Color::Rgb(r, g, b) => r.min(g).min(b),
        _ => 0,
    };
    cells.filter(|cell| cell.has_contents()).map(of).max().unwrap_or(0)
}

#[test]
fn text_is_dark_on_a_light_terminal() {
    for (light, theme) in [(false, None), (true, None), (true, Some("nord"))] {
        let recording = bundled("code");
        let mut args = vec!["replay", &recording, "--paused"];
        args.extend(theme.into_iter().flat_map(|theme| ["--theme", theme]));
        let mut terminal = Terminal::start(&args, &[]);
        terminal.light = light;
        terminal.wait_for("It takes no prompt.");
        let brightest = brightest(terminal.screen.screen());
        assert_eq!(brightest < 0xb0, light && theme.is_none(), "{light} {theme:?}: {brightest}");
        terminal.press("q");
        assert_eq!(terminal.ends(), 0);
    }
}

#[test]
fn the_theme_follows_the_terminals_background_when_it_gets_the_focus() {
    for theme in [None, Some("nord")] {
        let recording = bundled("code");
        let mut args = vec!["replay", &recording, "--paused"];
        args.extend(theme.into_iter().flat_map(|theme| ["--theme", theme]));
        let mut terminal = Terminal::start(&args, &[]);
        terminal.wait_for("It takes no prompt.");
        assert!(brightest(terminal.screen.screen()) > 0xb0, "{theme:?}");
        assert_eq!(terminal.count("\u{1b}[?1004h"), usize::from(theme.is_none()), "focus is reported where it counts");
        for light in [true, false] {
            terminal.light = light;
            terminal.press("\u{1b}[I");
            if theme.is_none() {
                terminal.wait("the other theme", |screen| (brightest(screen) < 0xb0) == light);
            }
        }
        // keys are read as before
        terminal.press("?");
        terminal.wait_for("Here, on the page Chat");
        assert!(brightest(terminal.screen.screen()) > 0xb0, "{theme:?}");
        terminal.press("qq");
        assert_eq!(terminal.ends(), 0);
        assert!(terminal.count("\u{1b}[?1004l") > 0, "focus is no longer reported");
    }
}

/// A live engine with a tiny model, started in this folder.
fn tiny(files: &common::tiny::Tiny, folder: &std::path::Path, more: &[&str]) -> Terminal {
    live(&files.target, folder, more)
}

/// A live engine with this model, started in this folder.
fn live(target: &std::path::Path, folder: &std::path::Path, more: &[&str]) -> Terminal {
    let target = target.to_str().unwrap();
    let args = ["--model", target, "--raw", "--max-tokens", "60", "-k", "3", "--pace", "full"];
    let mut terminal = Terminal::start_in(folder, &[&args, more].concat(), &[]);
    terminal.wait_for("Type a prompt");
    terminal
}

/// Names of the files in a folder with this ending.
fn files_of(folder: &std::path::Path, ending: &str) -> Vec<String> {
    let names = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.ends_with(ending)).collect()
}

/// Options that choose a GPU, or an adapter that stands for one; `None` if there is none.
#[cfg(feature = "gpu")]
fn on_gpu() -> Option<[&'static str; 4]> {
    let found = !draftscope::model::gpu::adapters().is_empty();
    if !found {
        assert!(std::env::var("DRAFTSCOPE_GPU_TESTS").is_err(), "DRAFTSCOPE_GPU_TESTS is set and no adapter found");
        println!("not run: no Vulkan, Metal or DirectX 12 driver");
    }
    found.then_some(["--device", "gpu", "--adapter", "0"])
}

#[cfg(feature = "gpu")]
#[test]
fn an_engine_on_a_gpu_is_paused_stepped_rewound_asked_what_if_and_resumed() {
    let Some(on_gpu) = on_gpu() else { return };
    is_paused_stepped_rewound_asked_what_if_and_resumed(&common::checkpoint::path("qwen3"), &on_gpu);
}

#[cfg(feature = "gpu")]
#[test]
fn a_recording_of_a_gpu_is_replayed_and_names_it() {
    let Some(on_gpu) = on_gpu() else { return };
    let folder = tempfile::tempdir().unwrap();
    let (model, trace) = (common::checkpoint::path("qwen3"), folder.path().join("gpu.dscope.jsonl"));
    let (model, trace) = (model.to_str().unwrap(), trace.to_str().unwrap());
    let arguments =
        ["run", "-m", model, "--raw", "--max-tokens", "24", "--drafter", "ngram", "--trace", trace, "the thin inn"];
    assert_cmd::Command::cargo_bin("draftscope").unwrap().args(arguments).args(on_gpu).assert().success();
    let mut terminal = Terminal::start(&["replay", trace, "--speed", "16", "--paused"], &[]);
    terminal.wait_for("It takes no prompt.");
    terminal.press("n");
    terminal.wait_for("committed");
    terminal.press("%100%\r");
    terminal.wait_for("■ the end");
    terminal.press("4");
    terminal.wait_for("GPU per round");
    terminal.wait_for("self-test passed");
    terminal.press("q");
    assert_eq!(terminal.ends(), 0);
}

#[cfg(feature = "gpu")]
#[test]
fn two_settings_race_beside_each_other_on_a_gpu() {
    let Some(on_gpu) = on_gpu() else { return };
    race_beside_each_other(&common::checkpoint::path("qwen3"), &on_gpu);
}

#[cfg(feature = "gpu")]
#[test]
fn a_lesson_runs_on_a_gpu_and_shows_its_figures() {
    let Some(on_gpu) = on_gpu() else { return };
    let mut terminal = measures_in_a_lesson(&on_gpu);
    terminal.press("4");
    terminal.wait_for("self-test passed");
    terminal.wait_for("GPU per round");
    leaves(&mut terminal);
}

#[test]
fn a_lesson_runs_on_the_cpu_and_shows_its_figures() {
    let mut terminal = measures_in_a_lesson(&["--device", "cpu"]);
    leaves(&mut terminal);
}

#[test]
fn without_a_model_the_error_names_what_needs_none() {
    let nothing = tempfile::tempdir().unwrap();
    let folder = nothing.path().to_str().unwrap();
    let environment =
        [("DRAFTSCOPE_CACHE", folder), ("HF_HOME", folder), ("HF_HUB_CACHE", folder), ("DRAFTSCOPE_OFFLINE", "1")];
    for (arguments, next) in [(&["learn"][..], "draftscope demo --learn plays"), (&[], "draftscope demo plays")] {
        let mut terminal = Terminal::start(arguments, &environment);
        assert_eq!(terminal.ends(), 2);
        let written = String::from_utf8_lossy(&terminal.written);
        assert!(written.contains(next), "{written}");
    }
}

/// Quits; the user's own session has nothing to save, since the run is the lesson's.
fn leaves(terminal: &mut Terminal) {
    terminal.press("\u{3}");
    assert_eq!(terminal.ends(), 0);
}

/// Runs the prompt of the second lesson, for which a module drafts, and answers what it measured.
fn measures_in_a_lesson(device: &[&str]) -> Terminal {
    let model = common::checkpoint::path("qwen35");
    let args = ["learn", "2", "--model", model.to_str().unwrap()];
    let mut terminal = Terminal::start(&[&args, device].concat(), &[]);
    terminal.wait_for("1 of 11");
    terminal.wait_for("○ ready"); // the model is loaded
    terminal.press("\r");
    terminal.wait_for("Enter runs it");
    terminal.press("\r");
    terminal.wait_for("2 of 11 ✓"); // both answers are whole
    terminal.wait_for("○ ready");
    assert!(!terminal.text().contains("× T(1)"), "the next step asks for it");
    terminal.press("\r");
    terminal.wait_for("3 of 11");
    // which answer is right depends on the machine
    for wrong in 1..=4 {
        terminal.press("\r");
        let is_right = |screen: &vt100::Screen| {
            let text = screen.contents();
            text.contains("T(4) ÷ T(1) =") || text.contains("ot known on this busy machine")
        };
        terminal.wait("a verdict", |screen| is_right(screen) || screen.contents().matches(" ✗ ").count() == wrong);
        if is_right(terminal.screen.screen()) {
            return terminal;
        }
        terminal.press("\u{1b}[B");
    }
    panic!("no answer is right:\n{}", terminal.text());
}

#[test]
fn a_live_engine_is_paused_stepped_rewound_asked_what_if_and_resumed() {
    let files = common::tiny::Tiny::new(3);
    is_paused_stepped_rewound_asked_what_if_and_resumed(&files.target, &[]);
}

/// The live round whose end is shown; 0 if none is.
fn ended_round(screen: &str) -> u32 {
    let line = screen.lines().find(|line| line.contains("(live)") && line.contains("committed"));
    let number = line.and_then(|line| line.split("Round ").nth(1)?.split(' ').next()?.parse().ok());
    number.unwrap_or(0)
}

fn is_paused_stepped_rewound_asked_what_if_and_resumed(target: &std::path::Path, device: &[&str]) {
    let folder = tempfile::tempdir().unwrap();
    let mut terminal = live(target, folder.path(), &[&["--drafter", "random"], device].concat());
    terminal.press("the thin inn\r "); // sent, and paused at once
    terminal.wait_for("paused");
    // some rounds end before the pause, and some are drawn after it
    terminal.settle();
    let before = ended_round(&terminal.text());
    for (keys, round) in [(">", before + 1), (">>", before + 3)] {
        terminal.press(keys); // every press counts
        terminal.wait("a round's end", |screen| ended_round(&screen.contents()) == round);
    }
    let last = before + 4;
    terminal.press(".");
    terminal.wait_for(&format!("Round {last} (live)"));
    terminal.press("<");
    terminal.wait_for(&format!("the past: round {} of {last}", last - 1));
    terminal.press("<;");
    terminal.wait_for(&format!("the past: round {} of {last}", last - 3));
    terminal.press("'");
    terminal.wait_for(&format!("the past: round {} of {last}", last - 2));
    terminal.press("w");
    terminal.wait_for(&format!("What if: round {}", last - 2));
    terminal.press("\u{1b}[B\u{1b}[B\u{1b}[C"); // a temperature, which needs more than the recorded candidates
    terminal.wait_for("not known from the record");
    terminal.press("\r");
    terminal.wait_for("⑂ turn 1");
    terminal.wait_for("paused"); // after the reply
    terminal.press("u");
    terminal.wait_for("turn 1 is back and goes on where it was ended");
    terminal.wait_for("at max-tokens"); // it is answered to its end
    terminal.wait_for("ready");
    terminal.press("ts");
    terminal.wait_for("saved as draftscope-");
    terminal.press("e\r");
    terminal.wait_for("exported to ./draftscope-");
    assert_eq!(files_of(folder.path(), ".dscope.jsonl").len(), 1);
    assert_eq!(files_of(folder.path(), ".html").len(), 1);
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

#[test]
fn the_person_drafts_and_the_target_judges() {
    let (files, folder) = (common::tiny::Tiny::new(3), tempfile::tempdir().unwrap());
    let mut terminal = tiny(&files, folder.path(), &["--drafter", "human"]);
    terminal.press("the thin inn\r");
    terminal.wait_for("You are the drafter");
    terminal.press("the\r");
    terminal.wait("a score", |screen| {
        let text = screen.contents();
        (1..=3).any(|drafted| text.contains(&format!("of {drafted} accepted ▸")))
    });
    terminal.press("\u{3}");
    terminal.wait_for("stopped");
    terminal.press("\u{3}");
    terminal.wait_for("This session is not saved");
    terminal.press("\u{3}");
    assert_eq!(terminal.ends(), 0);
}

#[test]
fn two_settings_race_beside_each_other() {
    let files = common::tiny::Tiny::new(3);
    race_beside_each_other(&files.target, &[]);
}

fn race_beside_each_other(target: &std::path::Path, device: &[&str]) {
    let folder = tempfile::tempdir().unwrap();
    let mut terminal = live(target, folder.path(), &[&["--drafter", "random"], device].concat());
    terminal.press("\tv");
    terminal.wait_for("race beside");
    terminal.press("\u{1b}[C\u{1b}[B\u{1b}[C"); // a rival, with one draft more
    terminal.wait("k of the rival", |screen| {
        screen.contents().lines().any(|line| line.contains("k, draft length") && line.contains(" 4 "))
    });
    terminal.press("\r");
    terminal.wait("the panel is closed", |screen| !screen.contents().contains("race beside"));
    terminal.press("ithe thin inn\r5");
    terminal.wait_for("identical to the rival: all 60 tokens");
    assert!(terminal.text().contains("Rival k=4"), "{}", terminal.text());
    terminal.press("qq");
    assert_eq!(terminal.ends(), 0);
}

#[test]
fn keys_that_arrive_with_a_new_size_are_read_at_once() {
    let (files, folder) = (common::tiny::Tiny::new(3), tempfile::tempdir().unwrap());
    let mut terminal = tiny(&files, folder.path(), &["--drafter", "none"]);
    terminal.press("\t");
    for turn in 0..25 {
        let (key, tab) = if turn % 2 == 0 { ("2", "[Rounds]") } else { ("4", "[Speed]") };
        terminal.resize(100 + turn % 2 * 20, 40);
        terminal.press(key);
        terminal.wait_for(tab);
    }
    terminal.press("q");
    assert_eq!(terminal.ends(), 0);
}

/// A terminal without bracketed paste sends a pasted text as keys.
#[test]
fn a_burst_of_keys_is_shown_to_its_end_and_ctrl_c_does_not_wait_behind_it() {
    let (files, folder) = (common::tiny::Tiny::new(3), tempfile::tempdir().unwrap());
    let mut terminal = tiny(&files, folder.path(), &["--drafter", "none"]);
    let began = Instant::now();
    terminal.press(&("word ".repeat(6_400) + "the end"));
    terminal.wait_for("the end"); // without a further key
    assert!(began.elapsed() < PATIENCE / 2, "32,000 keys took {:?}", began.elapsed());
    terminal.press("\u{1b}[I"); // focus reports, the mouse, a new size and a paste do as well as keys
    terminal.resize(100, 40);
    terminal.press("\u{1b}[200~ and\rpasted\u{1b}[201~\u{1b}[<0;3;3M\u{1b}[<0;3;3mi");
    terminal.wait_for("pasted");
    let began = Instant::now();
    terminal.press(&("word ".repeat(40_000) + "\u{3}"));
    terminal.wait_for("the prompt is cleared");
    assert!(began.elapsed() < PATIENCE, "200,000 keys took {:?}", began.elapsed());
    terminal.press("\u{3}");
    assert_eq!(terminal.ends(), 0);
}

#[cfg(target_os = "linux")]
#[test]
fn an_idle_program_uses_no_processor_time() {
    let (files, folder) = (common::tiny::Tiny::new(3), tempfile::tempdir().unwrap());
    let mut terminal = tiny(&files, folder.path(), &["--drafter", "random"]);
    terminal.press("the thin inn\r");
    terminal.wait_for("ready");
    let process = terminal.child.process_id().unwrap();
    // user and system time in ticks of 10 ms
    let ticks = || {
        let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
        fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
    };
    // what the answer left to do may come late
    let is_idle = || {
        let before = ticks();
        thread::sleep(Duration::from_secs(3));
        ticks() - before <= 3
    };
    assert!((0..10).any(|_| is_idle()), "it always takes more than 1 % of a processor");
    terminal.press("\tqq");
    assert_eq!(terminal.ends(), 0);
}
