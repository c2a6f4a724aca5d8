//! What a terminal says that it can do, by asking it.

/// What a terminal says that it can do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TerminalModes {
    /// Whether it reports the mouse (mode 1006); none if it does not say.
    pub mouse: Option<bool>,
    /// Whether it shows a frame at once when it is complete (mode 2026); none if it does not say.
    pub synchronized: Option<bool>,
}

/// Requests the state of both modes (DECRQM), then the terminal's attributes (DA1), which every terminal answers.
#[cfg(unix)]
const QUESTION: &[u8] = b"\x1b[?1006$p\x1b[?2026$p\x1b[c";

/// Longest wait for the answer. Terminals far away take some hundred milliseconds.
#[cfg(unix)]
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(1);

/// Most bytes of an answer.
#[cfg(unix)]
const MOST: usize = 4096;

/// Asks the terminal; all unknown where there is none, or it does not answer within a second. Call it while nothing
/// else reads the terminal: keys that are pressed meanwhile are lost.
#[must_use]
#[cfg(unix)]
pub fn terminal_modes() -> TerminalModes {
    ask().map(|answer| read(&answer)).unwrap_or_default()
}

/// Asks the terminal; all unknown where this is not possible.
#[must_use]
#[cfg(not(unix))]
pub fn terminal_modes() -> TerminalModes {
    TerminalModes::default()
}

#[cfg(unix)]
fn ask() -> Option<Vec<u8>> {
    use rustix::termios::{OptionalActions, tcgetattr, tcgetpgrp, tcsetattr};
    let terminal = std::fs::OpenOptions::new().read(true).write(true).open("/dev/tty").ok()?;
    if tcgetpgrp(&terminal).ok()? != rustix::process::getpgrp() {
        return None; // a program in the background that changes the terminal is stopped
    }
    let before = tcgetattr(&terminal).ok()?;
    let mut raw = before.clone();
    raw.make_raw();
    tcsetattr(&terminal, OptionalActions::Now, &raw).ok()?;
    let answer = exchange(&terminal);
    let _ = tcsetattr(&terminal, OptionalActions::Now, &before); // a terminal that is gone needs none
    answer
}

/// Sends the question; returns all bytes up to the end of the answer.
#[cfg(unix)]
fn exchange(mut terminal: &std::fs::File) -> Option<Vec<u8>> {
    use std::io::{Read, Write};

    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    terminal.write_all(QUESTION).ok()?;
    let end = std::time::Instant::now() + PATIENCE;
    let mut answer = Vec::new();
    while !is_complete(&answer) && answer.len() < MOST {
        let left = end.checked_duration_since(std::time::Instant::now())?;
        let wait = Timespec { tv_sec: left.as_secs().cast_signed(), tv_nsec: left.subsec_nanos().into() };
        if poll(&mut [PollFd::new(terminal, PollFlags::IN)], Some(&wait)).ok()? == 0 {
            return None;
        }
        let mut bytes = [0; 256];
        let count = terminal.read(&mut bytes).ok().filter(|count| *count > 0)?;
        answer.extend_from_slice(&bytes[..count]);
    }
    Some(answer)
}

/// Whether the terminal's attributes have come: `ESC [ ? … c`.
fn is_complete(answer: &[u8]) -> bool {
    replies(answer).any(|reply| reply.last() == Some(&b'c'))
}

/// The replies `ESC [ ? …` in an answer, without these three, with the letter that ends each.
fn replies(answer: &[u8]) -> impl Iterator<Item = &[u8]> {
    let starts = answer.windows(3).enumerate().filter(|(_, bytes)| bytes == b"\x1b[?").map(|(at, _)| at + 3);
    starts.filter_map(|start| {
        let rest = &answer[start..];
        let end = rest.iter().position(u8::is_ascii_alphabetic)?;
        Some(&rest[..=end])
    })
}

/// Reads the replies `MODE;STATE$y`: 0 is an unknown mode, 4 one that is always off.
fn read(answer: &[u8]) -> TerminalModes {
    let state = |mode: &str| {
        let states = replies(answer).filter_map(|reply| {
            let (number, state) = std::str::from_utf8(reply).ok()?.strip_suffix("$y")?.split_once(';')?;
            (number == mode).then_some(matches!(state, "1" | "2" | "3"))
        });
        states.last()
    };
    TerminalModes { mouse: state("1006"), synchronized: state("2026") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_ends_with_the_terminals_attributes() {
        assert!(is_complete(b"\x1b[?1006;2$y\x1b[?2026;2$y\x1b[?62;22c"));
        assert!(is_complete(b"abc\x1b[?1;2c"));
        assert!(!is_complete(b"\x1b[?1006;2$y\x1b[?62;2"));
        assert!(!is_complete(b"c"));
    }

    #[test]
    fn modes_are_known_unknown_or_not_answered() {
        let both = TerminalModes { mouse: Some(true), synchronized: Some(false) };
        assert_eq!(read(b"x\x1b[?1006;2$y\x1b[?2026;0$y\x1b[?62;22c"), both);
        assert_eq!(read(b"\x1b[?2026;4$y\x1b[?1006;1$y\x1b[?62c"), both);
        assert_eq!(read(b"\x1b[?62;22c"), TerminalModes::default());
        assert_eq!(read(b"\x1b[?1006$y\x1b[?\xff;1$y\x1b[?62;22c"), TerminalModes::default());
    }
}
