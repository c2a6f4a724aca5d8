//! Two recordings beside each other: screens, and a script of keys.

use super::*;
use draftscope_protocol::{Committed, Prefilled};
use draftscope_session::fixture::fold;
use draftscope_session::fixture::piece;

/// A conversation and the same with another token in round 3 and in the second turn.
fn compared(same: bool) -> Compared {
    let a = conversation();
    let mut b = conversation();
    for event in &mut b.events {
        match &mut event.kind {
            EventKind::Committed(Committed { round: 3, tokens, .. }) if !same => tokens[0] = piece(" an"),
            EventKind::Prefilled(Prefilled { turn: 2, first, .. }) if !same => *first = piece("Well"),
            EventKind::Started { header } if !same => header.settings.draft_len = 4,
            _ => {}
        }
    }
    let side = |name: &str, script: &Script| Recorded { name: name.to_owned(), session: fold(&script.events) };
    Compared::new(side("a.dscope.jsonl", &a), side("runs/b\u{1b}.dscope.jsonl", &b), TuiOptions::default())
}

fn screen(compared: &mut Compared, width: u16, height: u16) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    let mut measured = None;
    terminal.draw(|frame| measured = Some(crate::view::diff(compared, frame))).unwrap();
    (compared.measured, compared.app.place.hit_map) = measured.unwrap();
    let buffer = terminal.backend().buffer();
    assert!(buffer.content.iter().all(|cell| !cell.symbol().contains(char::is_control)));
    let row = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>().trim_end().to_owned();
    (0..height).map(row).collect::<Vec<_>>().join("\n")
}

fn press(compared: &mut Compared, script: &str) {
    let mut rest = script;
    while let Some(c) = rest.chars().next() {
        let len = rest.find('>').filter(|end| c == '<' && *end > 1).map_or(c.len_utf8(), |end| end + 1);
        compared.press(Chord::parse(&rest[..len]).unwrap().event());
        screen(compared, 80, 24);
        rest = &rest[len..];
    }
}

#[test]
fn two_recordings_stand_side_by_side() {
    let mut compared = compared(false);
    insta::assert_snapshot!("diff_80_24", screen(&mut compared, 80, 24));
    insta::assert_snapshot!("diff_120_40", screen(&mut compared, 120, 40));
}

#[test]
fn the_same_is_said_to_be_the_same() {
    let mut compared = compared(true);
    assert!(screen(&mut compared, 80, 24).contains("= the same tokens"));
    press(&mut compared, "n");
    assert!(screen(&mut compared, 80, 24).contains("both wrote the same tokens"));
}

#[test]
fn keys_go_from_difference_to_difference() {
    let mut compared = compared(false);
    assert_eq!((compared.turn, compared.row), (0, 6), "it begins at the first difference");
    let first = screen(&mut compared, 80, 24);
    assert!(first.contains("'·an'") && first.contains("margin"), "{first}");
    press(&mut compared, "n");
    assert_eq!((compared.turn, compared.row), (1, 0), "over turns");
    press(&mut compared, "n");
    assert!(screen(&mut compared, 80, 24).contains("there is no further difference"));
    press(&mut compared, "N");
    assert_eq!((compared.turn, compared.row), (0, 6));
    press(&mut compared, "<Home>");
    assert_eq!(compared.row, 0);
    press(&mut compared, "jjk<PageDown><PageUp>");
    assert_eq!(compared.row, 1);
    press(&mut compared, "G");
    assert_eq!(compared.row, compared.turns[0].pairs.len() - 1);
    press(&mut compared, "<Right><Left><Left>");
    assert!(screen(&mut compared, 80, 24).contains("this is the first turn"));
    press(&mut compared, "?");
    assert!(screen(&mut compared, 120, 220).contains("In a diff of two recordings"));
    press(&mut compared, "?:theme<Enter>");
    assert_eq!(compared.app.theme().name, "light");
    press(&mut compared, "m");
    assert!(!compared.quits());
    press(&mut compared, "q");
    assert!(compared.quits());
}

#[test]
fn every_size_draws() {
    for (width, height) in [(1, 1), (20, 5), (60, 16), (61, 17), (300, 80)] {
        screen(&mut compared(false), width, height);
        let nothing = || Recorded { name: String::new(), session: draftscope_session::Session::new() };
        screen(&mut Compared::new(nothing(), nothing(), TuiOptions::default()), width, height);
    }
}
