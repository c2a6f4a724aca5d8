//! Panels over the screen, a race of settings and a draft tree: whole screens at every size in colour, in
//! monochrome and in ASCII.

use std::rc::Rc;

use ratatui::style::Color;

use super::views::{SIZES, styled};
use super::*;
use crate::app::options::Exporter;
use crate::app::place::page::Page;
use draftscope_protocol::{DeviceWork, GpuInfo, MemoryAccount, RoundOnDevice, RoundStarted};
use draftscope_session::fixture::tree_round;

/// An answer whose drafts form trees.
pub(super) fn trees() -> Script {
    let mut script = Script::prompted("Look out of the window.", "Look");
    script.plain(" the");
    script.plain(" moon");
    tree_round(&mut script);
    script.finish(Lane::Speculative, StopReason::MaxTokens);
    script
}

fn exporter() -> Exporter {
    let formats = [("html", "one page for the browser, no network"), ("csv", "a table, one line a position")];
    let formats = formats.map(|(name, about)| (name.to_owned(), about.to_owned())).to_vec();
    Exporter { formats, write: Rc::new(|_, _| Ok(String::new())) }
}

const SCENES: [&str; 4] = ["versus", "export", "race", "tree"];

fn scene(name: &str, options: &TuiOptions) -> Stage {
    let on = |page: Page| TuiOptions { page, export: Some(exporter()), ..options.clone() };
    match name {
        "versus" => Stage::new(&first_turn(), on(Page::Compare)).pressed("v<Right><Down><Right>"),
        "export" => Stage::new(&first_turn(), on(Page::Rounds)).pressed("e<Down>"),
        "race" => Stage::new(&race::race(), on(Page::Compare)),
        _ => Stage::new(&trees(), on(Page::Rounds)).pressed("<Left>"),
    }
}

#[test]
fn panels_in_colour() {
    for name in SCENES {
        for (width, height) in SIZES {
            let mut stage = scene(name, &TuiOptions { depth: ColorDepth::True, ..TuiOptions::default() });
            let shown = styled(stage.draw(width, height).backend().buffer());
            insta::assert_snapshot!(format!("colour_{name}_{width}"), shown);
        }
    }
}

#[test]
fn panels_in_monochrome() {
    for name in SCENES {
        for (width, height) in SIZES {
            let mut stage = scene(name, &TuiOptions { no_color: true, ..TuiOptions::default() });
            let buffer = stage.draw(width, height).backend().buffer().clone();
            let coloured = buffer.content().iter().filter(|cell| (cell.fg, cell.bg) != (Color::Reset, Color::Reset));
            assert_eq!(coloured.count(), 0, "{name}");
            insta::assert_snapshot!(format!("mono_{name}_{width}"), styled(&buffer));
        }
    }
}

#[test]
fn panels_in_ascii() {
    for name in SCENES {
        for (width, height) in SIZES {
            let mut stage = scene(name, &TuiOptions { ascii: true, no_color: true, ..TuiOptions::default() });
            let shown = stage.screen(width, height);
            assert!(shown.is_ascii(), "{name} at {width}\n{shown}");
            insta::assert_snapshot!(format!("ascii_{name}_{width}"), shown);
        }
    }
}

/// [`first_turn`] with a drafter whose vocabulary lacks the third round's token.
fn with_a_small_vocabulary() -> Script {
    let mut script = first_turn();
    for event in script.events.iter_mut().filter(|event| event.lane == Lane::Speculative) {
        if let EventKind::Verified { round, verdict } = &mut event.kind {
            verdict.next_in_draft_vocab = Some(*round != 3);
        }
    }
    script
}

#[test]
fn a_token_that_the_drafter_lacks_is_marked_counted_and_explained() {
    let script = with_a_small_vocabulary();
    let options = || TuiOptions { no_color: true, ..TuiOptions::default() };
    let mut chat = Stage::new(&script, options());
    let counted = chat.screen(140, 42);
    assert!(counted.contains("¬not in the drafter's vocabulary 1"), "{counted}");
    assert_eq!(counted.matches('¬').count(), 1, "in the legend alone, where drafts are counted\n{counted}");
    let shown = chat.press("<Tab>d").screen(140, 42);
    assert_eq!(shown.matches('¬').count(), 2, "in the text too, beside the drafts themselves\n{shown}");
    let rounds = Stage::new(&script, TuiOptions { page: Page::Rounds, ..options() }).screen(140, 42);
    assert!(rounds.contains('¬'), "{rounds}");
    let mut inspect = Stage::new(&script, TuiOptions { page: Page::Rounds, ..options() });
    inspect.press("<Up><Up><Up><Up><Enter>");
    let shown: String = inspect.screen(140, 42).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(shown.contains("vocabulary has no such token"), "{shown}");
    let ascii = Stage::new(&script, TuiOptions { ascii: true, ..options() }).screen(140, 42);
    assert!(ascii.contains("Nnot in the drafter's vocabulary 1"), "{ascii}");
    let without = Stage::new(&first_turn(), options()).screen(140, 42);
    assert!(!without.contains('¬'), "other drafters have all tokens\n{without}");
}

#[test]
fn with_more_context_the_panel_has_a_row_for_each_figure() {
    let mut script = Script::prompted("Count.", "1");
    for _ in 0..60 {
        script.round(&[(" color", 0.4), (" of", 0.9)], &[(" color", 0.6), (" of", 0.9), (" the", 0.7)]);
        script.plain(" color");
    }
    script.finish(Lane::Speculative, StopReason::MaxTokens);
    let screen = Stage::new(&script, TuiOptions { page: Page::Speed, ..TuiOptions::default() }).screen(160, 70);
    let line = |name: &str| {
        let found = screen.lines().find(|line| line.contains(name));
        found.unwrap_or_else(|| panic!("no {name}\n{screen}")).to_owned()
    };
    assert!(line("positions").contains("40–"), "{screen}");
    assert!(line("tok/round").contains("3.00"), "{screen}");
    assert!(line("T(k+1)").contains("13.5") && line("T(1) in ms").contains("10.8"), "{screen}");
    let panel = screen.split("With more context").nth(1).unwrap();
    assert!(panel.lines().any(|line| line.contains("speedup") && line.contains('×')), "{screen}");
}

#[test]
fn a_tree_is_not_weighed_as_a_chain() {
    let mut stage = Stage::new(&trees(), TuiOptions { page: Page::Speed, ..TuiOptions::default() });
    for (width, height) in SIZES {
        let screen = stage.screen(width, height);
        assert!(screen.contains("Rounds draft a tree here") && !screen.contains("to be best here"), "{screen}");
    }
}

#[test]
fn drafts_that_the_engine_ends_are_reported_as_measured() {
    let speed = |draft_len: u8| {
        let mut script = Script::started();
        script.head(|head| head.settings.draft_len_mode = DraftLenMode::Auto);
        script.prompt("hi", "Hello");
        script.plain(" a");
        script.round(&[(" a", 0.5), (" b", 0.5)], &[(" a", 0.5), (" c", 0.5), (" d", 0.5)]);
        script.round(&[], &[(" e", 0.5)]);
        for event in &mut script.events {
            if let (Lane::Speculative, EventKind::RoundStarted(RoundStarted { draft_len: k, .. })) =
                (event.lane, &mut event.kind)
            {
                *k = draft_len.max(*k);
            }
        }
        Stage::new(&script, TuiOptions { page: Page::Speed, ..TuiOptions::default() }).screen(120, 40)
    };
    let screen = speed(8);
    assert!(screen.contains("A round drafts 1.00 tokens on average and commits 1.50"), "{screen}");
    assert!(!screen.contains("to be best here") && !screen.contains("pays off"), "{screen}");
    assert!(!speed(0).contains("A round drafts"), "every draft was as long as asked");
}

#[test]
fn few_rounds_are_said_to_be_few() {
    let mut script = Script::prompted("hi", "Hello");
    script.plain(" a");
    script.round(&[(" a", 0.5)], &[(" b", 0.5), (" c", 0.5)]);
    let mut stage = Stage::new(&script, TuiOptions { page: Page::Speed, ..TuiOptions::default() });
    stage.shows((80, 24), &["After 1 round: verifying 2 rows"]);
}

#[test]
fn who_drafts_is_shown_what_to_type() {
    let mut stage = Stage::of(&conversation());
    stage.shows((80, 24), &["Type a prompt"]);
    stage.apply(EventKind::DraftAsked { draft_len: 3 });
    stage.shows((80, 24), &["up to 3 tokens", "accepted ▸", "Type what comes next", "Enter hands it in"]);
}

#[test]
fn a_drafter_that_reads_the_targets_cache_differs_from_one_with_its_own() {
    for (kv_bytes_per_token, says) in [(768, "its own: "), (0, "none of its own: it reads the target's")] {
        let mut script = Script::started();
        script.head(|head| head.drafter.as_mut().expect("it has one").kv_bytes_per_token = kv_bytes_per_token);
        script.prompt("hi", "Hello");
        script.round(&[(" a", 0.5)], &[(" b", 0.5), (" c", 0.5)]);
        let mut stage = Stage::new(&script, TuiOptions { page: Page::Speed, ..TuiOptions::default() });
        let screen = stage.screen(120, 40);
        assert!(screen.contains("drafter KV") && screen.contains(says), "{screen}");
    }
}

#[test]
fn a_gpu_and_what_rounds_do_on_it_are_shown() {
    let mut script = Script::started();
    script.head(|head| {
        head.gpu = Some(GpuInfo {
            adapter: "Radeon\u{1b}[31m 9".to_owned(),
            api: "vulkan".to_owned(),
            kind: "discrete GPU".to_owned(),
            memory_bytes: 412_000_000,
            notes_times: true,
            ..GpuInfo::default()
        });
        let (target_weights, passes, ctx_len) = (138_000_000, 9_000_000, 2048);
        head.memory = Some(MemoryAccount { target_weights, passes, ctx_len, ..MemoryAccount::default() });
    });
    script.prompt("hi", "Hello");
    let work = |submissions, nanoseconds| DeviceWork {
        submissions,
        launches: 150,
        read_bytes: 3_000,
        state_bytes: 2_000,
        nanoseconds,
    };
    script.on_device = Some(RoundOnDevice { draft: work(1, 1_250_000), verify: work(1, 3_000_000) });
    script.round(&[(" a", 0.5)], &[(" b", 0.5), (" c", 0.5)]);
    script.on_device = Some(RoundOnDevice { draft: work(0, 0), verify: work(1, 3_000_000) });
    script.round(&[(" a", 0.5)], &[(" b", 0.5), (" c", 0.5)]);
    let on_speed = || TuiOptions { page: Page::Speed, ..TuiOptions::default() };
    // where height is short, long texts are cut, and the other panels keep their place
    let mut stage = Stage::new(&script, on_speed());
    stage.shows((100, 30), &["Time per round", "mean ", "Cost of a pass", "GPU per round", "in all"]);
    insta::assert_snapshot!("speed_on_a_gpu_100", stage.screen(100, 30));
    let screen = stage.screen(140, 42);
    let right = screen.lines().filter_map(|line| line.rsplit(['│', '├', '┤']).next());
    let text = right.flat_map(str::split_whitespace).collect::<Vec<_>>().join(" ");
    for says in
        ["9, discrete GPU, vulkan,", "412.0 MB in use", "self-test passed", "1.5 submissions", "300 launches", "6.0 kB"]
    {
        assert!(text.contains(says), "'{says}' is not on the screen:\n{screen}");
    }
    assert!(text.contains("0.62 ms + verification 3.00 ms") || text.contains("0.63 ms + verification"), "{screen}");
    assert!(!screen.contains('\u{1b}'));
    script.head(|head| head.gpu.as_mut().expect("set above").row_by_row = Some("rows differ".to_owned()));
    let screen = Stage::new(&script, on_speed()).screen(140, 42);
    assert!(screen.contains("one by one"), "{screen}");
}

#[test]
fn a_new_conversation_begins_without_figures_and_rounds_of_the_one_before() {
    let mut stage = Stage::of(&first_turn());
    let of_the_turn = ["tokens per round", "Round 7", "accepted 10"];
    stage.shows((140, 42), &of_the_turn);
    stage.press("<C-n>");
    let screen = stage.screen(140, 42);
    let side: String = screen.lines().skip(12).collect();
    assert!(screen.contains("new conversation") && screen.contains("Why is the sky blue?"), "{screen}");
    assert!(of_the_turn.iter().all(|text| !side.contains(text)), "{screen}");
}
