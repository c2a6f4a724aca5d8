//! Nothing is cut off unseen, and on the smallest usual screen no sentence is cut at all.

use std::path::Path;

use super::*;
use crate::app::place::page::Page;

/// Files of a folder and of those in it.
fn sources(folder: &Path, found: &mut Vec<std::path::PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { sources(&path, found) } else { found.push(path) }
    }
}

#[test]
fn views_draw_text_and_titles_by_helpers_that_mark_what_does_not_fit() {
    let mut files = Vec::new();
    sources(&Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).join("crates/tui/src/view"), &mut files);
    assert!(files.len() > 50, "{}", files.len());
    for path in files.iter().filter(|path| !path.ends_with("panel.rs")) {
        let text = std::fs::read_to_string(path).unwrap();
        for word in ["Paragraph::new", "title_top", "title_bottom", "Wrap", "Block::bordered"] {
            // the boxes of presenter mode have no titles
            let is_box = word == "Block::bordered" && path.ends_with("presenter_boxes.rs");
            assert!(is_box || !text.contains(word), "{} draws by itself: {word}", path.display());
        }
    }
}

/// Answers of several kinds, and keys that lead to what is to be read.
fn scenes() -> Vec<(Script, &'static str)> {
    let mut slow = Script::prompted("hi", "Hello");
    for _ in 0..12 {
        slow.round(&[(" a", 0.5), (" b", 0.5)], &[(" c", 0.5), (" d", 0.5), (" e", 0.5)]);
        slow.plain(" c");
    }
    slow.finish(Lane::Speculative, StopReason::Eos);
    let mut sampled = Script::started_with(|head| {
        (head.settings.sampling.temperature, head.settings.rule) = (0.7, VerifyRule::Rejection);
    });
    sampled.prompt("hi", "Hello");
    for _ in 0..8 {
        sampled.round(&[(" a", 0.5), (" b", 0.5)], &[(" a", 0.5), (" d", 0.5), (" e", 0.5)]);
        sampled.plain(" a");
    }
    vec![
        (Script::started(), ""),
        (first_turn(), "<Esc>"),
        (first_turn(), "<Esc><Left><Left><Left><Left>"),
        (first_turn(), "<Esc>N"),
        (conversation(), "<Esc>"),
        (slow, "<Esc>"),
        (sampled, "<Esc>"),
        (race::race(), "<Esc>"),
        (panels::trees(), "<Esc><Left>"),
    ]
}

/// Rows of a screen on which a sentence ends in `…`: four words or more, and no title.
fn cut_sentences(screen: &str) -> Vec<String> {
    let parts = screen.lines().flat_map(|row| row.split(['│', '┃', '┬', '├', '┤', '┴']));
    let is_cut = |part: &&str| {
        let text = part.trim_end();
        let is_table = text.split_whitespace().any(|word| word.len() > 2 && word.ends_with('…') && text.contains("  "));
        text.ends_with('…') && !text.contains('─') && !is_table && text.split_whitespace().count() >= 4
    };
    parts.filter(is_cut).map(str::to_owned).collect()
}

#[test]
fn no_sentence_is_cut_at_80_24() {
    let mut cut = Vec::new();
    for (script, keys) in scenes() {
        for page in Page::ALL {
            for overlay in ["", "w", "w<Left>", "o", "v", "e", "?", "<F5>"] {
                let options = TuiOptions { page: *page, ..TuiOptions::default() };
                let mut stage = Stage::new(&script, options).pressed(keys);
                stage.press(overlay);
                for size in [(80, 24), (100, 30)] {
                    let found = cut_sentences(&stage.screen(size.0, size.1));
                    cut.extend(found.into_iter().map(|text| format!("{page:?} {overlay} at {size:?}: {text}")));
                }
            }
        }
    }
    assert!(cut.is_empty(), "{} sentences are cut:\n{}", cut.len(), cut.join("\n"));
}
