//! Reading an answer: its displays, marks, Markdown, the strip under it, trees beside it, and going from turn to turn.

use super::*;
use crate::tui::display::Marks;
use crate::tui::selection::RoundAt;

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
        (themed("mono"), true),
        (TuiOptions { no_color: true, ..TuiOptions::default() }, true),
        (TuiOptions { ascii: true, ..TuiOptions::default() }, true),
        (TuiOptions { marks: Marks::Always, ..TuiOptions::default() }, true),
        (TuiOptions { marks: Marks::Never, ..themed("mono") }, false),
    ];
    for (options, has_marks) in all {
        let shown = format!("{options:?}");
        let screen = browse(&first_turn(), options).screen(120, 40);
        let has = |sky: &str| screen.contains(&format!("The {sky} is blue"));
        assert_eq!((has("sky"), has("↻sky") || has("~sky")), (!has_marks, has_marks), "{shown}\n{screen}");
    }
}

#[test]
fn discarded_drafts_give_way_as_the_next_round_begins() {
    let script = first_turn();
    let at = |round: u32, is_end: bool| {
        let found = script.events.iter().position(|event| match &event.kind {
            EventKind::Committed { round: at, .. } if is_end => *at == round && event.lane == Lane::Speculative,
            EventKind::RoundStarted { round: at, .. } if !is_end => *at == round && event.lane == Lane::Speculative,
            _ => false,
        });
        Stage::folded(&script.events[..=found.unwrap()], TuiOptions::default())
    };
    assert!(answer(&mut at(1, true)).contains("The color of the sky"));
    assert!(answer(&mut at(2, false)).contains("The sky"));
    let mut ended = browse(&script, TuiOptions::default());
    ended.press("<S-Left><S-Left><S-Left><S-Left><S-Left><S-Left><S-Left>");
    assert_eq!(ended.app.selected, Some(RoundAt { turn: 0, round: Some(0) }));
    assert!(answer(&mut ended).contains("The color of the sky is blue because"), "the selected round shows its drafts");
    ended.press("<S-Right>");
    assert!(answer(&mut ended).contains("The sky is blue because"));
}

#[test]
fn plain_text_renders_markdown_and_no_display_shows_a_control_token() {
    let mut stage = browse(&markdown(), TuiOptions::default());
    let raw = answer(&mut stage);
    assert!(raw.contains("## Two\n- **bold**\n- `code`\nend■"), "{raw}");
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
fn the_strip_has_a_cell_for_each_token_and_finds_it() {
    let mut stage = browse(&first_turn(), TuiOptions::default());
    let tokens = stage.time.live().turns()[0].answer(Lane::Speculative).tokens.clone();
    let screen = stage.screen(80, 24);
    let (y, line) = screen.lines().enumerate().find(|(_, line)| line.contains("1 ▄")).expect(&screen);
    assert_eq!(line.matches('▄').count(), tokens.len());
    let left = line[..line.find('▄').unwrap()].width();
    for (at, token) in tokens.iter().enumerate() {
        stage.draw(80, 24);
        update::click(&mut stage.app, &mut stage.time, (left + at) as u16, y as u16);
        let chosen = stage.app.selected.expect("a token");
        let round =
            chosen.round.map_or(0, |at| stage.time.live().turns()[0].answer(Lane::Speculative).rounds[at].round);
        assert_eq!(round, token.round, "cell {at}");
        assert_eq!(stage.app.page, page::Page::Chat);
        stage.press("<Esc>");
    }
}

#[test]
fn the_split_view_has_the_strip_too() {
    for (width, height) in [(80, 24), (100, 30), (140, 42)] {
        let mut stage = browse(&first_turn(), TuiOptions::default());
        let tokens = stage.time.live().turns()[0].answer(Lane::Speculative).tokens.len();
        stage.press("c");
        let screen = stage.screen(width, height);
        let line = screen.lines().find(|line| line.contains("1 ▄")).expect(&screen);
        assert_eq!(line.matches('▄').count(), tokens, "{screen}");
    }
}

#[test]
fn the_strip_keeps_the_drafts_of_the_round_under_way_until_the_next() {
    let script = first_turn();
    let cells = |events: usize| {
        let screen = Stage::folded(&script.events[..events], TuiOptions::default()).screen(80, 24);
        screen.lines().find(|line| line.contains("1 ▄")).map_or(0, |line| line.matches('▄').count())
    };
    let of_round = |event: &Event, of: u32| match event.kind {
        EventKind::Drafted { round, .. } | EventKind::Scored { round, .. } => round == of,
        EventKind::Verified { round, .. } | EventKind::Committed { round, .. } => round == of,
        _ => false,
    };
    for (round, expected) in [(1, [2, 3, 4, 4, 4, 5]), (2, [3, 4, 5, 5, 5, 6])] {
        let own = script.events.iter().enumerate().filter(|(_, event)| event.lane == Lane::Speculative);
        let shown: Vec<_> = own.filter(|(_, event)| of_round(event, round)).map(|(at, _)| cells(at + 1)).collect();
        assert_eq!(shown, expected, "three drafts, the pass, the verdict, the commit of round {round}");
    }
}

#[test]
fn a_strip_without_colours_has_signs() {
    let mut stage = browse(&first_turn(), TuiOptions { ascii: true, no_color: true, ..TuiOptions::default() });
    let screen = stage.screen(80, 24);
    assert!(screen.contains("1 ;~===+~"), "plain, recovered, accepted, bonus, recovered: {screen}");
}

#[test]
fn a_long_run_shows_the_part_of_the_strip_with_the_selected_round() {
    let mut script = Script::prompted("hi", "Hello");
    for _ in 0..400 {
        script.round(&[(" a", 0.5)], &[(" b", 0.5), (" c", 0.5)]);
    }
    let mut stage = browse(&script, TuiOptions::default());
    assert!(stage.screen(80, 24).contains('‹'), "the end is in view");
    stage.press("{");
    stage.press("<End><C-PageUp>");
    let screen = stage.screen(80, 24);
    assert!(screen.contains("1 █") && screen.contains('›'), "the first token is in view: {screen}");
}

#[test]
fn trees_stand_beside_the_text() {
    let mut stage = browse(&panels::trees(), TuiOptions::default());
    for sentence in ["Look the sea is", "Look the ≠sea ✚is"] {
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
    assert_eq!(stage.app.selected, Some(RoundAt { turn: 1, round: None }));
    stage.shows((60, 16), &["2 ❯ And at sunset?"]);
    stage.press("<C-PageUp>");
    assert_eq!(stage.app.selected, Some(RoundAt { turn: 0, round: None }));
    stage.shows((60, 16), &["1 ❯ Why is the sky blue?"]);
    stage.press("<C-PageUp>").shows((120, 40), &["this is the first turn"]);
    stage.press("<C-PageDown>");
    assert_eq!(stage.app.selected, Some(RoundAt { turn: 1, round: None }));
    stage.press("<C-PageDown>");
    assert_eq!((stage.app.selected, stage.app.scroll), (None, Scroll::Follow));
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
    assert!(folded.contains("▸ thought, 12 tokens (x opens it)\nBecause of scattering"), "{folded}");
    assert!(!folded.contains("light"), "{folded}");
    let mut stage = stage.pressed("x");
    let open = answer(&mut stage);
    assert!(open.contains("<think> light, is,") && open.contains("Because") && !open.contains('▸'), "{open}");
    let mut stage = stage.pressed("x").pressed("d").pressed("d");
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
    assert!(screen.contains("accepted in the thought: 100 % of drafts"), "{screen}");
}
