//! Every view at every size in colour, in monochrome and in ASCII, as a whole screen.

use ratatui::buffer::Buffer;
use ratatui::style::{Color, Modifier};

use super::*;
use crate::app::place::page::Page;
use draftscope_protocol::{Committed, Drafted};

pub(super) const SIZES: [(u16, u16); 3] = [(80, 24), (120, 40), (200, 60)];

/// Text of the screen, and under each line the styles of its cells as runs: a letter per style, with
/// a legend at the end.
pub(super) fn styled(buffer: &Buffer) -> String {
    let mut known: Vec<(Color, Color, Modifier)> = Vec::new();
    let mut out = String::new();
    for y in 0..buffer.area.height {
        let (mut text, mut runs, mut x) = (String::new(), Vec::<(usize, usize)>::new(), 0);
        while x < buffer.area.width {
            let cell = &buffer[(x, y)];
            let style = (cell.fg, cell.bg, cell.modifier);
            let index = known.iter().position(|s| *s == style).unwrap_or_else(|| {
                known.push(style);
                known.len() - 1
            });
            let width = cell.symbol().width().max(1) as u16;
            text.push_str(cell.symbol());
            match runs.last_mut() {
                Some((last, count)) if *last == index => *count += usize::from(width),
                _ => runs.push((index, width.into())),
            }
            x += width;
        }
        let runs: String = runs.iter().map(|(style, count)| format!("{}{count}", letter(*style))).collect();
        out.push_str(&format!("{}\n{runs}\n", text.trim_end()));
    }
    for (index, (fg, bg, modifier)) in known.iter().enumerate() {
        out.push_str(&format!("{} = {fg} on {bg} {modifier:?}\n", letter(index)));
    }
    out
}

fn letter(index: usize) -> char {
    char::from_u32('a' as u32 + index as u32).unwrap()
}

fn at(page: Page, options: TuiOptions) -> Stage {
    let mut stage = Stage::new(&conversation(), TuiOptions { page, ..options });
    if page == Page::Chat {
        stage.press("<Tab>");
    }
    if page == Page::Inspect {
        stage.press("<Up><Up>");
    }
    stage
}

#[test]
fn every_view_has_a_tab_on_the_narrowest_screen() {
    for keys in ["", "i", "5"] {
        let mut stage = at(Page::Chat, TuiOptions::default());
        stage.press(keys);
        for width in 60..70 {
            stage.draw(width, 24);
            let found =
                stage.app.place.hit_map.hits.iter().filter(|hit| matches!(hit.target, hit_map::Target::Page(_)));
            assert_eq!(found.count(), Page::ALL.len(), "{width} columns after {keys:?}");
        }
        assert!(stage.screen(60, 24).contains("Insp."));
        assert!(stage.screen(63, 24).contains("Inspect"));
    }
}

#[test]
fn every_view_in_colour() {
    for page in Page::ALL {
        for (width, height) in SIZES {
            let mut stage = at(*page, TuiOptions { depth: ColorDepth::True, ..TuiOptions::default() });
            let shown = styled(stage.draw(width, height).backend().buffer());
            insta::assert_snapshot!(format!("colour_{}_{width}", page.name()), shown);
        }
    }
}

#[test]
fn every_view_in_monochrome() {
    for page in Page::ALL {
        for (width, height) in SIZES {
            let mut stage = at(*page, TuiOptions { no_color: true, ..TuiOptions::default() });
            let buffer = stage.draw(width, height).backend().buffer().clone();
            let coloured = buffer.content().iter().filter(|cell| (cell.fg, cell.bg) != (Color::Reset, Color::Reset));
            assert_eq!(coloured.count(), 0, "{page:?}");
            insta::assert_snapshot!(format!("mono_{}_{width}", page.name()), styled(&buffer));
        }
    }
}

#[test]
fn every_view_in_ascii() {
    for page in Page::ALL {
        for (width, height) in SIZES {
            let mut stage = at(*page, TuiOptions { ascii: true, no_color: true, ..TuiOptions::default() });
            let shown = stage.screen(width, height);
            let own: Vec<char> = shown.chars().filter(|c| !c.is_ascii() && !"夕焼け".contains(*c)).collect();
            assert_eq!(own, Vec::<char>::new(), "{page:?} at {width}\n{shown}");
            insta::assert_snapshot!(format!("ascii_{}_{width}", page.name()), shown);
        }
    }
}

#[test]
fn overlays_in_ascii_are_ascii() {
    for keys in ["?", ":", "o", "w", "/"] {
        let mut stage = at(Page::Chat, TuiOptions { ascii: true, ..TuiOptions::default() });
        stage.press(keys);
        for (width, height) in SIZES {
            let shown = stage.screen(width, height);
            let own: Vec<char> = shown.chars().filter(|c| !c.is_ascii() && !"夕焼け".contains(*c)).collect();
            assert_eq!(own, Vec::<char>::new(), "{keys} at {width}\n{shown}");
        }
    }
}

#[test]
fn the_past_and_the_overlays_are_screens() {
    let mut stage = at(Page::Rounds, TuiOptions::default());
    stage.press("<").press("<").press("<").press("<");
    insta::assert_snapshot!("the_past", stage.screen(80, 24));
    stage.press("w<Left>");
    insta::assert_snapshot!("what_if", stage.screen(80, 24));
    stage.press("<Esc>o<Down>");
    insta::assert_snapshot!("settings", stage.screen(80, 24));
    stage.press("<Esc>:rou");
    insta::assert_snapshot!("palette", stage.screen(80, 24));
}

/// Rounds of two tokens each: more than one stretch of the layout.
fn long() -> Script {
    let mut script = Script::prompted("hi", "Hello");
    for i in 0..700 {
        let word = format!(" w{i}");
        let next = if i % 9 == 0 { "\n" } else { " and" };
        script.round(&[(word.as_str(), 0.5), (" x", 0.2)], &[(word.as_str(), 0.9), (next, 0.8), (" z", 0.5)]);
    }
    script
}

#[test]
fn a_long_answer_looks_the_same_laid_out_anew() {
    let script = long();
    let mut used = Stage::of(&script).pressed("<Tab>");
    for keys in
        ["<Home>", "<PageDown><PageDown>", "<End>", "<S-Left><S-Left>", "h", "d", "d", "d", "<Home>", "<Right>", "d"]
    {
        used.press(keys);
        for (width, height) in [(80, 24), (120, 40)] {
            let shown = used.screen(width, height);
            let mut fresh = Stage::of(&script);
            fresh.app.place.pane = used.app.place.pane;
            (fresh.app.place.scroll, fresh.app.place.selected, fresh.app.place.cell) =
                (used.app.place.scroll, used.app.place.selected, used.app.place.cell);
            fresh.app.place.display = used.app.place.display;
            fresh.app.toast = used.app.toast.clone();
            assert_eq!(shown, fresh.screen(width, height), "after {keys} at {width}");
        }
    }
}

#[test]
fn times_beyond_all_bounds_are_drawn() {
    let mut script = conversation();
    for event in &mut script.events {
        match &mut event.kind {
            EventKind::Drafted(Drafted { took_us, .. }) => *took_us = u64::MAX,
            EventKind::Committed(Committed { rollback_us, .. }) => *rollback_us = 2,
            _ => {}
        }
    }
    let mut stage = Stage::of(&script).pressed("<Tab>");
    for page in ["1", "2", "3", "4", "5"] {
        stage.press(page);
        for width in [80, 100, 200] {
            assert!(!stage.screen(width, 50).is_empty());
        }
    }
}

#[test]
fn a_second_run_does_not_show_the_text_of_the_first() {
    let mut script = conversation();
    script.events.retain(|event| !matches!(event.kind, EventKind::Loading { .. }));
    let mut stage = Stage::of(&script);
    stage.press("<Tab>").shows((120, 40), &["Why is the sky blue?"]);
    for event in &mut script.events {
        if let EventKind::Prompted { text, .. } = &mut event.kind {
            *text = "Another question".to_owned();
        }
        stage.time.apply(event.clone());
    }
    stage.press("<Home>");
    let screen = stage.screen(120, 40);
    assert!(screen.contains("Another question") && !screen.contains("Why is the sky blue?"), "{screen}");
}

#[test]
fn words_run_on_between_stretches() {
    let mut stage = Stage::of(&long()).pressed("<Tab>dd<Home>");
    let mut text = String::new();
    loop {
        let screen = stage.screen(200, 60);
        let lines = screen.lines().skip(3).take_while(|line| !line.contains("accepted "));
        text.extend(lines.map(|line| line.split(['│', '├']).next().unwrap_or("").trim_end().to_owned() + " "));
        if stage.app.place.hit_map.top == stage.app.place.hit_map.max_top {
            break;
        }
        stage.press("<PageDown>");
    }
    let words = text;
    for i in [0, 127, 128, 255, 256, 511, 512, 699] {
        let (this, next) = (format!(" w{i} "), format!("w{i}⏎"));
        assert!(words.contains(&this) || words.contains(&next), "w{i} is missing");
    }
}
