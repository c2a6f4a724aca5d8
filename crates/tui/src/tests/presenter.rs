//! Presenter mode: one round drawn large, at every size and in every kind of colour, live, in the past, in a recording and
//! in a lesson.

use ratatui::style::Color;

use super::views::styled;
use super::*;
use crate::app::place::page::Page;

/// For a projector, and a large terminal.
const SIZES: [(u16, u16); 3] = [(80, 24), (100, 30), (140, 42)];

/// A round of each kind: under way, with a cut, all accepted.
const SCENES: [(&str, &str); 3] = [("drafting", ""), ("cut", "<S-Left>"), ("bonus", "<S-Left><S-Left>")];

fn scene(keys: &str, options: TuiOptions) -> Stage {
    let mut stage = Stage::new(&conversation(), options);
    stage.press("<F5>").press(keys);
    stage
}

#[test]
fn rounds_are_drawn_large_in_colour() {
    for (name, keys) in SCENES {
        for (width, height) in SIZES {
            let mut stage = scene(keys, TuiOptions { depth: ColorDepth::True, ..TuiOptions::default() });
            let shown = styled(stage.draw(width, height).backend().buffer());
            insta::assert_snapshot!(format!("colour_{name}_{width}"), shown);
        }
    }
}

#[test]
fn rounds_are_drawn_large_in_monochrome() {
    for (name, keys) in SCENES {
        for (width, height) in SIZES {
            let mut stage = scene(keys, TuiOptions { no_color: true, ..TuiOptions::default() });
            let buffer = stage.draw(width, height).backend().buffer().clone();
            let coloured = buffer.content().iter().filter(|cell| (cell.fg, cell.bg) != (Color::Reset, Color::Reset));
            assert_eq!(coloured.count(), 0, "{name}");
            insta::assert_snapshot!(format!("mono_{name}_{width}"), styled(&buffer));
        }
    }
}

#[test]
fn rounds_are_drawn_large_in_ascii() {
    for (name, keys) in SCENES {
        for (width, height) in SIZES {
            let mut stage = scene(keys, TuiOptions { ascii: true, no_color: true, ..TuiOptions::default() });
            let shown = stage.screen(width, height);
            let own: Vec<char> = shown.chars().filter(|c| !c.is_ascii() && !"夕焼け".contains(*c)).collect();
            assert_eq!(own, Vec::<char>::new(), "{name} at {width}\n{shown}");
            insta::assert_snapshot!(format!("ascii_{name}_{width}"), shown);
        }
    }
}

#[test]
fn the_round_and_its_marks_are_in_words_at_every_size() {
    for (width, height) in SIZES {
        let screen = scene("<S-Left>", TuiOptions::default()).screen(width, height);
        for words in [
            "The first draft is rejected",
            "accepted by the target: kept",
            "rejected by the target: discarded",
            "not reached: discarded unjudged",
            "recovered: the target's token instead",
            "bonus: all accepted, one token more",
            "the cut: what is left of it is kept",
            "tokens per round on average",
        ] {
            assert!(screen.contains(words), "{words} at {width}: {screen}");
        }
        assert!(screen.contains('┗') && screen.contains('┓'), "the cut is drawn: {screen}");
        let bonus = scene("<S-Left><S-Left>", TuiOptions::default()).screen(width, height);
        assert!(bonus.contains("All 3 drafts are accepted and the pass adds one more: 4 tokens from one pass."));
        let live = scene("", TuiOptions::default()).screen(width, height);
        assert!(live.contains("The target checks all 3 drafts in one pass."), "{live}");
    }
}

#[test]
fn the_key_and_escape_end_it_and_a_view_takes_its_place() {
    let mut stage = Stage::of(&conversation()).pressed("<F5>");
    assert!(stage.app.place.presents && !stage.app.is_typing(), "keys are for the round");
    stage.press("<F5>");
    assert!(!stage.app.place.presents);
    stage.press("<F5><S-Left><Esc>");
    assert!(stage.app.place.presents && stage.app.place.selected.is_none(), "back to the live round first");
    stage.press("<Esc>");
    assert!(!stage.app.place.presents);
    stage.press("<F5>2");
    assert!(!stage.app.place.presents && stage.app.place.page == Page::Rounds);
}

#[test]
fn a_prompt_can_be_typed_while_it_is_on() {
    let mut stage = Stage::of(&first_turn()).pressed("<F5>ihello");
    let screen = stage.screen(80, 24);
    assert!(stage.app.place.presents && screen.contains("hello") && screen.contains("drafter"), "{screen}");
    stage.press("<Enter>");
    assert!(matches!(stage.sent[..], [Command::Generate { .. }]) && stage.app.place.presents);
}

#[test]
fn before_the_first_round_it_says_what_will_be_there() {
    let mut stage = Stage::of(&Script::started()).pressed("<F5>");
    assert!(stage.app.is_typing(), "the prompt keeps the keys");
    stage.shows((80, 24), &["each round appears here, drawn large"]);
}

#[test]
fn a_recording_the_past_and_a_lesson_are_presented_too() {
    let mut script = conversation();
    script.head(|head| head.capabilities = Capabilities::default());
    let mut stage = Stage::of(&script);
    stage.press("<F5>").shows((80, 24), &["proposes"]);
    let mut stage = Stage::of(&conversation()).pressed("<F5><");
    assert!(stage.time.is_past() && stage.screen(100, 30).contains("proposes"));
    let mut script = first_turn();
    for event in &mut script.events {
        if let EventKind::Prompted { text, .. } = &mut event.kind {
            *text = "What is 12 times 7? Show the steps.".to_owned();
        }
    }
    let mut stage = Stage::new(&script, TuiOptions { page: Page::Learn, ..TuiOptions::default() });
    stage.press("<F5>");
    assert!(stage.screen(80, 24).contains("Lessons"), "the list as ever");
    // the step of lesson 6 that runs this prompt
    stage.press("<Down><Down><Down><Down><Down><Enter><Right><Right>");
    for (width, height) in SIZES {
        let screen = stage.screen(width, height);
        assert!(screen.contains("3 of ") && screen.contains('┏'), "the round beside the text: {screen}");
    }
}

#[test]
fn a_tree_is_presented_as_a_tree() {
    let mut stage = Stage::new(&panels::trees(), TuiOptions { page: Page::Rounds, ..TuiOptions::default() });
    stage.press("<F5>").shows((100, 30), &["├─", "tree of"]);
}
