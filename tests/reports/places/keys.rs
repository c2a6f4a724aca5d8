//! Text in the prompt box whose size changes, and the characters that a screen is drawn with.
#![cfg(unix)]

use crate::common::tiny::Tiny;
use crate::terminal::Screen;

/// A session with a tiny model, at its prompt.
fn session(environment: &[(&str, &str)], size: (u16, u16)) -> (Screen, Tiny) {
    let tiny = Tiny::new(5);
    let mut screen =
        Screen::start(tiny.folder.path(), &["--model", "tiny.gguf", "--drafter", "none"], environment, size);
    screen.wait_for("Prompt");
    screen.press("\u{1b}");
    screen.wait("the prompt without the keys", |text| !text.contains("Prompt ▸"));
    screen.press("i");
    screen.wait_for("Prompt ▸");
    (screen, tiny)
}

/// Rows of the prompt box, without its frame.
fn rows(text: &str) -> Vec<String> {
    let lines: Vec<&str> = text.lines().collect();
    let top = lines.iter().rposition(|line| line.contains("Prompt")).unwrap_or(0);
    let inside = lines[top + 1..].iter().take_while(|line| line.starts_with('│'));
    inside.map(|line| line.trim_matches(['│', ' ']).to_owned()).collect()
}

#[test]
fn a_larger_box_shows_as_much_text_as_it_has_rows() {
    let (mut screen, _tiny) = session(&[], (100, 30));
    screen.paste("line 1\rline 2\rline 3\rline 4\rline 5\rline 6\rlast");
    let whole = ["line 3", "line 4", "line 5", "line 6", "last"];
    let is_full = |text: &str| {
        rows(text).len() > 2 && whole.ends_with(&rows(text).iter().map(String::as_str).collect::<Vec<_>>())
    };
    screen.wait("the pasted lines", is_full);
    let before = rows(&screen.text());
    for (cols, lines) in [(62, 18), (80, 24), (62, 16)] {
        screen.resize(cols, lines);
        screen.wait("the small box", |text| {
            rows(text).last().is_some_and(|last| last == "last") && text.lines().count() <= lines.into()
        });
        screen.resize(100, 30);
        screen.wait("the large box", |text| rows(text) == before);
    }
}

#[test]
fn a_big_paste_is_text_and_nothing_in_it_is_a_key() {
    let (mut screen, _tiny) = session(&[], (100, 30));
    let lines: Vec<String> = (0..2000).map(|n| format!("line {n} q\u{3} \u{1b}[31mred 第 é\u{7}")).collect();
    screen.paste(&(lines.join("\r") + "\rlast"));
    screen.wait("the end of the paste", |text| rows(text).last().is_some_and(|row| row == "last"));
    screen.press("X");
    screen.wait_for("lastX");
    screen.press("\r");
    screen.wait_for("the context is full");
}

#[test]
fn a_locale_without_utf8_draws_with_ascii() {
    let glyphs = |text: &str| text.contains(['│', '─', '┌', '└', '▸']);
    for (environment, draws) in [
        (&[("LC_ALL", "C")][..], false),
        (&[("LC_ALL", "de_DE.ISO-8859-1")], false),
        (&[("LANG", "POSIX")], false),
        (&[("LC_CTYPE", "ru_RU.KOI8-R"), ("LANG", "C.UTF-8")], false),
        (&[("LC_ALL", "C.UTF-8"), ("LANG", "C")], true),
        (&[("LC_ALL", ""), ("LANG", "en_US.utf8")], true),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let mut screen = Screen::start(folder.path(), &["demo"], environment, (90, 20));
        let is_drawn = |text: &str| text.lines().count() >= 15 && text.contains(['│', '|']);
        screen.wait("a whole screen", is_drawn);
        assert_eq!(glyphs(&screen.text()), draws, "{environment:?}\n{}", screen.text());
    }
}
