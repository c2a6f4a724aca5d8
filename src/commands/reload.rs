//! Reads theme, themes and keymap again when their files change, while a screen is shown.
//!
//! The times of the files are looked at every second on a thread of its own; only a change is read, and wakes the screen.

use std::path::Path;
use std::thread;
use std::time::Duration;

use draftscope::host::config::{self, Stamp, UserFiles};
use draftscope::tui::UserLook;
use tokio::sync::watch::{Receiver, Sender, channel};

/// Time between two looks.
const LOOK: Duration = Duration::from_secs(1);

/// Follows the files from now on; none if there is no place for them or no thread. `theme` is the one that the command
/// line and the environment chose: a theme in the file then has no effect, as at the start.
pub(crate) fn follow(files: &UserFiles, theme: Option<&str>) -> Option<Receiver<UserLook>> {
    let path = config::path()?;
    let follows_theme = theme == theme_of(files);
    let (sender, receiver) = channel(look_of(files.clone(), follows_theme));
    let begin = Stamp::of(&path);
    let follow = move || send_changes(&sender, &path, (begin, follows_theme));
    thread::Builder::new().name("settings".to_owned()).spawn(follow).ok()?;
    Some(receiver)
}

/// Sends what has changed, until nobody listens.
fn send_changes(sender: &Sender<UserLook>, path: &Path, (mut seen, follows_theme): (Stamp, bool)) {
    while !sender.is_closed() {
        thread::sleep(LOOK);
        let now = Stamp::of(path);
        if now != seen {
            seen = now;
            sender.send_replace(look_of(UserFiles::read(path), follows_theme));
        }
    }
}

fn theme_of(files: &UserFiles) -> Option<&str> {
    files.entries.iter().rfind(|(key, _)| key == "theme").map(|(_, value)| value.as_str())
}

fn look_of(files: UserFiles, follows_theme: bool) -> UserLook {
    let theme = theme_of(&files).filter(|_| follows_theme).map(str::to_owned);
    UserLook { theme, themes: files.themes, keymap: files.keymap, warnings: files.warnings }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_theme_of_the_file_counts_unless_an_option_chose_one() {
        let files = UserFiles { entries: vec![("theme".to_owned(), "nord".to_owned())], ..UserFiles::default() };
        assert_eq!(look_of(files.clone(), true).theme.as_deref(), Some("nord"));
        assert_eq!(look_of(files, false).theme, None);
    }

    #[test]
    fn a_change_is_sent_once_with_what_the_files_say_now() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.toml");
        let (sender, receiver) = channel(UserLook::default());
        let begin = Stamp::of(&path);
        std::fs::write(&path, "theme = \"gruvbox\"\n").unwrap();
        let thread = thread::spawn(move || send_changes(&sender, &path, (begin, true)));
        while !receiver.has_changed().unwrap() {
            thread::sleep(Duration::from_millis(10));
        }
        assert_eq!(receiver.borrow().theme.as_deref(), Some("gruvbox"));
        drop(receiver);
        thread.join().unwrap();
    }
}
