//! Progress in the terminal's tab or taskbar (OSC 9;4), beside what is written about it.
//!
//! Invariant: it is written to standard error, only if that is a terminal known to show it; others print it, or show a
//! message. It is removed when the value is dropped.

use std::io::{IsTerminal, Write};

/// A value of the environment.
type Variable<'a> = &'a dyn Fn(&str) -> Option<String>;

/// The progress of one piece of work.
#[derive(Debug)]
pub struct Taskbar {
    /// Whether the terminal shows it.
    is_shown: bool,
    /// The percentage that was written last.
    percent: Option<u8>,
}

impl Default for Taskbar {
    fn default() -> Self {
        let is_shown = std::io::stderr().is_terminal() && is_known(&|name| std::env::var(name).ok());
        Self { is_shown, percent: None }
    }
}

impl Taskbar {
    /// `done` of `total` are done; nothing is known if `total` is 0.
    pub fn at(&mut self, done: u64, total: u64) {
        let Some(percent) = percent(done, total).filter(|percent| self.percent != Some(*percent)) else { return };
        self.percent = Some(percent);
        self.write(&format!("\x1b]9;4;1;{percent}\x1b\\"));
    }

    /// Removes it.
    pub fn end(&mut self) {
        if self.percent.take().is_some() {
            self.write("\x1b]9;4;0;\x1b\\");
        }
    }

    fn write(&self, text: &str) {
        if self.is_shown {
            let mut out = std::io::stderr().lock();
            let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush()); // it is an ornament
        }
    }
}

impl Drop for Taskbar {
    fn drop(&mut self) {
        self.end();
    }
}

/// Full percent.
fn percent(done: u64, total: u64) -> Option<u8> {
    let share = u128::from(done.min(total)) * 100 / u128::from(total).max(1);
    u8::try_from(share).ok().filter(|_| total > 0)
}

/// Whether the environment names a terminal that shows progress: Windows Terminal, ConEmu, WezTerm, Ghostty, or an iTerm2
/// that lists the feature. A multiplexer between, which does not pass it on, replaces `TERM_PROGRAM`.
fn is_known(get: Variable<'_>) -> bool {
    let is = |name: &str, value: &str| get(name).is_some_and(|found| found == value);
    let is_multiplexed = get("TMUX").is_some() || get("STY").is_some();
    let has_feature = || get("TERM_FEATURES").is_some_and(|features| features.contains('P'));
    !is_multiplexed
        && (get("WT_SESSION").is_some()
            || is("ConEmuANSI", "ON")
            || is("TERM_PROGRAM", "WezTerm")
            || is("TERM_PROGRAM", "ghostty")
            || (is("TERM_PROGRAM", "iTerm.app") && has_feature()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_a_percentage_once_the_whole_is_known() {
        assert_eq!(percent(1, 0), None);
        assert_eq!((percent(0, 8), percent(1, 3), percent(9, 8)), (Some(0), Some(33), Some(100)));
        assert_eq!(percent(u64::MAX, u64::MAX), Some(100));
    }

    #[test]
    fn only_terminals_that_show_it_get_it() {
        let known = |variables: &[(&str, &str)]| {
            is_known(&|name| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned()))
        };
        assert!(known(&[("WT_SESSION", "x")]) && known(&[("TERM_PROGRAM", "ghostty")]));
        assert!(known(&[("TERM_PROGRAM", "iTerm.app"), ("TERM_FEATURES", "T3CwLrMSc7UUw9Ts3BFGsSyHNoSxFP")]));
        assert!(!known(&[("TERM_PROGRAM", "iTerm.app"), ("TERM_FEATURES", "T3Cw")]));
        assert!(!known(&[]) && !known(&[("TERM", "xterm-256color")]) && !known(&[("ConEmuANSI", "OFF")]));
        assert!(!known(&[("WT_SESSION", "x"), ("TMUX", "/tmp/tmux")]));
    }

    #[test]
    fn nothing_is_removed_that_was_not_shown() {
        let mut bar = Taskbar { is_shown: false, percent: None };
        bar.at(0, 0);
        assert_eq!(bar.percent, None);
        bar.at(1, 2);
        assert_eq!(bar.percent, Some(50));
        bar.end();
        assert_eq!(bar.percent, None);
    }
}
