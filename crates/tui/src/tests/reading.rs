//! Reading an answer: its displays, marks, Markdown, the counts under it, trees beside it, and going from turn to turn.

use super::*;
use crate::app::clock::pace::Pace;
use crate::look::display::Marks;
use draftscope_protocol::{Committed, RoundStarted};
use draftscope_session::Provenance;
use draftscope_session::round_at::RoundAt;

/// An answer in Markdown, a word a token, that ends by itself.
fn markdown() -> Script {
    let mut script = Script::prompted("List two.", "##");
    for (draft, next) in [(" Two", "\n"), ("-", " **"), ("bold", "**\n"), ("-", " `code`"), ("\n", "end")] {
        script.round(&[(draft, 0.6)], &[(draft, 0.7), (next, 0.8)]);
    }
    script.round(&[(" of", 0.9)], &[("<|im_end|>", 0.9), ("\n", 0.4)]);
    script.finish(Lane::Speculative, StopReason::Eos);
    script
}

fn browse(script: &Script, options: TuiOptions) -> Stage {
    Stage::new(script, options).pressed("<Tab>")
}

/// The lines of the answer's panel at 80 × 24, without what stands beside it.
fn answer(stage: &mut Stage) -> String {
    let screen = stage.screen(80, 24);
    let panel = screen.lines().skip_while(|line| !line.starts_with(" Answer ")).skip(1);
    let panel = panel.take_while(|line| !line.contains("accepted ")).map_while(|line| line.strip_prefix(' '));
    let lines: Vec<_> = panel.filter_map(|line| line.split(['│', '├']).next()).map(str::trim_end).collect();
    lines.join("\n")
}

#[test]
fn marks_stand_in_for_missing_colours_or_where_they_are_asked_for() {
    let themed = |name: &str| TuiOptions { theme: Some(name.to_owned()), ..TuiOptions::default() };
    let all = [
        (TuiOptions::default(), false),
        (themed("light"), false),
        (themed("mono"), false),
        (TuiOptions { no_color: true, ..TuiOptions::default() }, false),
        (TuiOptions { depth: ColorDepth::Mono, ..TuiOptions::default() }, true),
        (TuiOptions { ascii: true, ..TuiOptions::default() }, true),
        (TuiOptions { marks: Marks::Always, ..TuiOptions::default() }, true),
        (TuiOptions { marks: Marks::Never, ..themed("mono") }, false),
    ];
    for (options, has_marks) in all {
        let shown = format!("{options:?}");
        let screen = browse(&first_turn(), options).screen(120, 40);
        let has = |sky: &str| ["✗3", "!3"].iter().any(|sign| screen.contains(&format!("The {sign}{sky} is blue")));
        assert_eq!((has("sky"), has("↻sky") || has("~sky")), (!has_marks, has_marks), "{shown}\n{screen}");
    }
}

#[test]
fn discarded_drafts_give_way_to_a_sign_as_the_next_round_begins() {
    let script = first_turn();
    let at = |round: u32, is_end: bool| {
        let found = script.events.iter().position(|event| match &event.kind {
            EventKind::Committed(Committed { round: at, .. }) if is_end => {
                *at == round && event.lane == Lane::Speculative
            }
            EventKind::RoundStarted(RoundStarted { round: at, .. }) if !is_end => {
                *at == round && event.lane == Lane::Speculative
            }
            _ => false,
        });
        Stage::folded(&script.events[..=found.unwrap()], TuiOptions::default())
    };
    assert!(answer(&mut at(1, true)).contains("The color of the sky"));
    assert!(answer(&mut at(2, false)).contains("The ✗3sky"));
    let mut ended = browse(&script, TuiOptions::default());
    ended.press("<S-Left><S-Left><S-Left><S-Left><S-Left><S-Left><S-Left>");
    assert_eq!(ended.app.place.selected, Some(RoundAt { turn: 0, round: Some(0) }));
    assert!(answer(&mut ended).contains("The color of the sky is blue because"), "the selected round shows its drafts");
    ended.press("<S-Right>");
    assert!(answer(&mut ended).contains("The ✗3sky is blue because"));
}

#[test]
fn plain_text_renders_markdown_and_no_display_shows_a_control_token() {
    let mut stage = browse(&markdown(), TuiOptions::default());
    let raw = answer(&mut stage);
    assert!(raw.contains("## Two\n- **bold**\n- `code`\nend of■"), "{raw}");
    stage.press("d");
    let marked = answer(&mut stage);
    assert!(marked.contains("## Two") && marked.contains('■'), "{marked}");
    stage.press("d");
    let plain = answer(&mut stage);
    assert!(plain.contains("Two\n• bold\n• code\n"), "{plain}");
    assert!(plain.contains("end ■"), "{plain}");
    for shown in [raw, marked, plain] {
        assert!(!shown.contains("<|im_end|>"), "{shown}");
    }
}

#[test]
fn discarded_drafts_are_struck_while_an_answer_is_read_along_and_signs_after_it() {
    let script = first_turn();
    let at = |events: usize, pace: Pace| {
        Stage::folded(&script.events[..events], TuiOptions { pace, depth: ColorDepth::True, ..TuiOptions::default() })
    };
    let running = script.events.iter().rposition(|event| matches!(event.kind, EventKind::RoundStarted(_))).unwrap();
    let mut slow = at(running, Pace::Ramp);
    let (text, struck) = (answer(&mut slow), words_with(&mut slow, Modifier::CROSSED_OUT));
    assert!(text.contains("The color of the sky is blue"), "{text}");
    assert!(struck.starts_with("color of the "), "{struck}");
    slow.shows((80, 24), &["d drafts: all"]);
    let mut fast = at(running, Pace::Full);
    assert!(answer(&mut fast).contains("The ✗3sky is blue"), "{}", answer(&mut fast));
    fast.shows((80, 24), &["d drafts: signs ✗2"]);
    let mut ended = at(script.events.len(), Pace::Ramp);
    assert!(answer(&mut ended).contains("The ✗3sky is blue"), "it is over: {}", answer(&mut ended));
}

/// The text of all cells of a frame with a modifier, in order; other text between two of them is a space.
fn words_with(stage: &mut Stage, modifier: Modifier) -> String {
    let buffer = stage.draw(80, 24).backend().buffer().clone();
    let shown = buffer.content().iter().map(|cell| if cell.modifier.contains(modifier) { cell.symbol() } else { " " });
    shown.collect::<String>().split_whitespace().map(|word| format!("{word} ")).collect()
}

#[test]
fn the_key_cycles_signs_all_and_none_and_both_title_and_key_bar_say_which() {
    let mut stage = browse(&first_turn(), TuiOptions::default());
    for (mode, text) in [
        ("signs", "The ✗3sky is blue because"),
        ("all", "The color of the sky is"),
        ("none", "The sky is blue because"),
    ] {
        let screen = stage.screen(120, 40);
        assert_eq!(screen.matches(&format!("d drafts: {mode}")).count(), 2, "{screen}");
        assert!(answer(&mut stage).contains(text), "{mode}: {}", answer(&mut stage));
        stage.press("d");
    }
    stage.shows((120, 40), &["drafts: signs"]);
}

#[test]
fn a_line_through_a_draft_is_not_one_through_the_spaces_around_it() {
    for page in page::Page::ALL {
        for (width, height) in [(80, 24), (100, 30), (140, 42)] {
            let options = TuiOptions { page: *page, no_color: true, ..TuiOptions::default() };
            let mut stage = Stage::new(&conversation(), options);
            stage.press("<Esc>ddd");
            for keys in ["d", "<S-Left>", "<S-Left>", "N"] {
                stage.press(keys);
                let buffer = stage.draw(width, height).backend().buffer().clone();
                let lines = Modifier::CROSSED_OUT | Modifier::UNDERLINED;
                let decorated = |cell: &&ratatui::buffer::Cell| cell.modifier.intersects(lines);
                let mut spaces = buffer.content().iter().filter(decorated).filter(|cell| cell.symbol() == " ");
                assert!(spaces.next().is_none(), "{page:?} at {width}:\n{}", stage.screen(width, height));
            }
        }
    }
}

#[test]
fn the_line_below_the_answer_counts_every_fate() {
    let mut stage = browse(&first_turn(), TuiOptions::default());
    let tokens = stage.time.live().turns()[0].answer(Lane::Speculative).tokens.clone();
    let of = |provenance| tokens.iter().filter(|token| token.provenance == provenance).count();
    let [accepted, bonus, recovered] = [Provenance::Accepted, Provenance::Bonus, Provenance::Recovered].map(of);
    let stats = stage.time.live().turns()[0].answer(Lane::Speculative).stats().clone();
    assert_eq!([stats.bonus(), stats.recovered()], [bonus as u64, recovered as u64]);
    let discarded = stats.drafted() - stats.accepted();
    let says = format!("accepted {} bonus {bonus} recovered {recovered} discarded {discarded}", stats.accepted());
    assert!(stats.accepted() >= accepted as u64);
    for (width, height) in [(80, 24), (100, 30), (140, 42), (200, 60)] {
        let screen = stage.screen(width, height);
        let words = screen.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words.contains(&says), "{says}\n{screen}");
    }
}

#[test]
fn a_sign_selects_the_draft_that_was_rejected() {
    let mut stage = browse(&first_turn(), TuiOptions::default());
    let screen = stage.screen(80, 24);
    let (y, line) = screen.lines().enumerate().find(|(_, line)| line.contains("The ✗3sky")).expect(&screen);
    let x = line[..line.find("✗3").unwrap()].width();
    stage.draw(80, 24);
    update::click(&mut stage.app, &mut stage.time, x as u16, y as u16);
    assert_eq!((stage.app.place.selected, stage.app.place.cell), (Some(RoundAt { turn: 0, round: Some(0) }), Some(0)));
}

#[test]
fn an_answer_that_has_ended_shows_its_last_discarded_drafts_and_why() {
    let mut script = first_turn();
    script.events.retain(|event| !matches!(event.kind, EventKind::Finished { .. }));
    script.round(&[(" is", 0.6), (" full", 0.5)], &[(" is", 0.9), (" full", 0.8), (".", 0.9)]);
    for (width, height) in [(80, 24), (100, 30), (140, 42)] {
        let mut running = browse(&script, TuiOptions::default());
        running.shows((width, height), &["Round 8 (live)", "enters the ✗3Earth is full."]);
    }
    script.finish(Lane::Speculative, StopReason::Eos);
    for (width, height) in [(80, 24), (100, 30), (140, 42)] {
        let mut stage = browse(&script, TuiOptions::default());
        let texts = ["Round 7 (last rejection)", "✗ rejected", "the atmosphere, it Earth", "'·Earth' 0.47 over"];
        stage.shows((width, height), &texts);
    }
    let mut stage = browse(&script, TuiOptions::default());
    assert!(words_with(&mut stage, Modifier::CROSSED_OUT).contains("atmosphere, it "));
    stage.press("<S-Left>").shows((100, 30), &["Round 7 (selected)"]);
    stage.press("<S-Left>").shows((100, 30), &["Round 6 (selected)", "enters the ✗3Earth is full."]);
    stage.press("<S-Right><S-Right>").shows((100, 30), &["Round 7 (last rejection)"]);
    stage.press("3");
    assert_eq!(
        stage.app.round_index(stage.time.shown()),
        Some(RoundAt { turn: 0, round: Some(7) }),
        "not on other pages"
    );
}

#[test]
fn trees_stand_beside_the_text() {
    let mut stage = browse(&panels::trees(), TuiOptions::default());
    for sentence in ["Look the sea ✗2is"; 2] {
        let screen = stage.screen(120, 40);
        assert!(screen.contains("Tree of round 1") && screen.matches("├─✗").count() == 2, "drawn once: {screen}");
        let text = answer(&mut stage);
        assert!(text.contains(sentence), "{text}");
        let small = stage.screen(80, 24);
        assert!(small.contains("├─✗ 1 ·a") && small.contains("└─✚ ·is"), "all of it: {small}");
        stage.press("d");
    }
}

#[test]
fn keys_go_from_turn_to_turn() {
    let mut stage = browse(&conversation(), TuiOptions::default()).pressed("<C-PageUp>");
    assert_eq!(stage.app.place.selected, Some(RoundAt { turn: 1, round: None }));
    stage.shows((60, 16), &["2 ❯ And at sunset?"]);
    stage.press("<C-PageUp>");
    assert_eq!(stage.app.place.selected, Some(RoundAt { turn: 0, round: None }));
    stage.shows((60, 16), &["1 ❯ Why is the sky blue?"]);
    stage.press("<C-PageUp>").shows((120, 40), &["this is the first turn"]);
    stage.press("<C-PageDown>");
    assert_eq!(stage.app.place.selected, Some(RoundAt { turn: 1, round: None }));
    stage.press("<C-PageDown>");
    assert_eq!((stage.app.place.selected, stage.app.place.scroll), (None, Scroll::Follow));
}

#[test]
fn idle_time_is_no_part_of_the_time_line() {
    let wait_us = 60_000_000;
    let mut script = first_turn();
    let idle = script.events.len();
    script.prompt("and?", "Well");
    script.round(&[(" so", 0.5)], &[(" so", 0.5), (" it", 0.5)]);
    script.events[idle..].iter_mut().for_each(|event| event.at_us += wait_us);
    let mut stage = browse(&script, TuiOptions::default());
    let span = stage.time.turn_span().unwrap();
    assert_eq!((span.index, span.of), (1, 2));
    assert!(span.time_us.start >= wait_us && span.time_us.end - span.time_us.start < 100_000, "{span:?}");
    stage.press("<C-Left>");
    let screen = stage.screen(120, 40);
    assert!(screen.contains("the past: turn 2 of 2, round"), "{screen}");
    assert!(!screen.contains("60."), "{screen}");
    stage.press("{.");
    let span = stage.time.turn_span().unwrap();
    assert!((span.index, span.time_us.end < wait_us) == (0, true), "{span:?}");
}

/// A thought of some rounds, then an answer.
fn thinking() -> Script {
    let mut script = Script::prompted("Why is the sky blue?", "<think>");
    for word in [" light", " is", " scattered", " by", " air"] {
        script.round(&[(word, 0.6)], &[(word, 0.9), (",", 0.8)]);
    }
    script.round(&[("</think>", 0.6)], &[("</think>", 0.9), ("Because", 0.8)]);
    script.round(&[(" of", 0.6), (" it", 0.4)], &[(" of", 0.9), (" scattering", 0.8), (".", 0.4)]);
    script.finish(Lane::Speculative, StopReason::Eos);
    script
}

#[test]
fn a_thought_is_folded_until_the_key_opens_it() {
    let mut stage = browse(&thinking(), TuiOptions::default());
    let folded = answer(&mut stage);
    assert!(folded.contains("▸ thought, 12 tokens (x opens it)\nBecause of it scattering"), "{folded}");
    assert!(!folded.contains("light"), "{folded}");
    let mut stage = stage.pressed("x");
    let open = answer(&mut stage);
    assert!(open.contains("<think> light, is,") && open.contains("Because") && !open.contains('▸'), "{open}");
    let mut stage = stage.pressed("xdd");
    let plain = answer(&mut stage);
    assert!(plain.contains("▸ thought, 12 tokens") && !plain.contains("light"), "{plain}");
}

#[test]
fn an_answer_that_ended_in_its_thought_is_shown() {
    let mut script = Script::prompted("Why is the sky blue?", "<think>");
    script.round(&[(" light", 0.6)], &[(" light", 0.9), (",", 0.8)]);
    let mut stage = browse(&script, TuiOptions::default());
    assert!(answer(&mut stage).contains('▸'), "while it goes on it is folded");
    script.finish(Lane::Speculative, StopReason::MaxTokens);
    let mut stage = browse(&script, TuiOptions::default());
    let shown = answer(&mut stage);
    assert!(shown.contains("<think> light,") && !shown.contains('▸'), "{shown}");
}

#[test]
fn a_selected_round_of_a_thought_opens_it() {
    let mut stage = browse(&thinking(), TuiOptions::default());
    assert!(answer(&mut stage).contains('▸'));
    for _ in 0..3 {
        stage = stage.pressed("K");
    }
    let shown = answer(&mut stage);
    assert!(shown.contains("scattered") && !shown.contains('▸'), "{shown}");
}

#[test]
fn the_speed_view_has_the_acceptance_of_thought_and_answer() {
    let mut stage = browse(&thinking(), TuiOptions::default()).pressed("4");
    let screen = stage.screen(140, 42).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(screen.contains("Accepted in the thought: 100 % of drafts"), "{screen}");
}

#[test]
fn the_key_says_where_discarded_drafts_are_that_no_line_in_view_shows() {
    let mut script = Script::prompted("hi", "Hello");
    script.round(&[(" a", 0.5)], &[(" b", 0.9), (" c", 0.9)]);
    for _ in 0..400 {
        script.round(&[(" a", 0.5)], &[(" a", 0.9), (" b", 0.9)]);
    }
    let mut stage = Stage::of(&script).pressed("<Esc>");
    assert!(!stage.screen(80, 24).contains("the last"), "the answer goes on");
    stage.apply(EventKind::Finished { reason: StopReason::Eos });
    stage.shows((80, 24), &["disc 1 · N: the last", "two discarded"]);
    stage.shows((100, 30), &["disc 1 · N leads to the last", "two discarded here"]);
    stage.press("N");
    assert!(!stage.screen(100, 30).contains("the last"), "it is in view");
}
