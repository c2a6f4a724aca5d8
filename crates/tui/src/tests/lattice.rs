//! The lattice of a selector: candidates of each position and the chosen path, at every size and in ASCII.

use super::*;
use crate::app::place::page::Page;
use draftscope_protocol::{Lattice, LatticeCandidate, LatticeColumn};
use draftscope_session::fixture::piece;

/// Candidates of a position, most probable first alone.
const OTHERS: [&str; 10] = [" on", " up", " out", " in", " off", " of", " by", " to", " for", " from"];

/// A position where the chosen candidate stands at this rank.
fn column(index: u8, (chosen, q): (&'static str, f32), rank: usize) -> LatticeColumn {
    let mut all = vec![chosen; OTHERS.len()];
    let others = OTHERS.iter().filter(|other| **other != chosen);
    all.iter_mut().enumerate().filter(|(place, _)| *place != rank).zip(others).for_each(|((_, to), other)| *to = other);
    let candidates = all.into_iter().enumerate().map(|(place, text)| LatticeCandidate {
        token: piece(text),
        alone: 0.5 / f32::powi(1.8, place as i32),
        after: if place == rank { q } else { (1.0 - q) / 9.0 },
    });
    LatticeColumn { index, candidates: candidates.collect() }
}

pub(super) fn script() -> Script {
    let mut script = Script::prompted("Look out of the window.", "Look");
    script.in_blocks = true;
    let drafts = [(" at", 0.62), (" the", 0.71), (" moon", 0.55), (" above", 0.41), (" us", 0.33)];
    let ranks = [0, 1, 4, 0, 9];
    let columns = drafts.into_iter().zip(ranks).zip(0..);
    let columns = columns.map(|((chosen, rank), index)| column(index, chosen, rank)).collect();
    let target = [(" at", 0.8), (" the", 0.7), (" moon", 0.6), (" over", 0.5), (" us", 0.4), (".", 0.9)];
    script.round_start(&drafts);
    script.push(Lane::Speculative, EventKind::Lattice(Lattice { round: 1, columns }));
    script.round_end(&drafts, &target);
    script.finish(Lane::Speculative, StopReason::MaxTokens);
    script
}

fn inspect(options: TuiOptions) -> Stage {
    Stage::new(&script(), TuiOptions { page: Page::Inspect, ..options })
}

#[test]
fn a_lattice_stands_below_the_distributions() {
    for (width, height) in [(80, 24), (120, 40)] {
        let shown = inspect(TuiOptions::default()).screen(width, height);
        insta::assert_snapshot!(format!("lattice_{width}"), shown);
        let ascii = inspect(TuiOptions { ascii: true, no_color: true, ..TuiOptions::default() }).screen(width, height);
        assert!(ascii.is_ascii(), "{ascii}");
        insta::assert_snapshot!(format!("lattice_ascii_{width}"), ascii);
    }
}

#[test]
fn the_sentence_says_what_the_selector_changed() {
    let mut stage = inspect(TuiOptions::default()).pressed("<Left><Left><Left>");
    let texts =
        ["Position 2: alone, '·on' was the best (.50); after '·at' it has .03, and '·the' has .71 (.28 alone)."];
    stage.shows((120, 40), &texts);
    stage.press("<Left>").shows((120, 40), &["Position 1: '·at' is the best alone (.50) and after the anchor (.62)."]);
}

#[test]
fn a_chosen_candidate_of_a_low_rank_is_shown_wherever_there_is_a_lattice() {
    let mut stage = inspect(TuiOptions::default());
    for height in 16..44 {
        let screen = stage.screen(120, height);
        let lattice = screen.split_once("Lattice of round").map(|parts| parts.1);
        assert!(lattice.is_none_or(|lattice| lattice.contains("us") && lattice.contains("moon")), "{screen}");
        assert!(height < 24 || lattice.is_some(), "{height}: {screen}");
    }
    assert!(
        !Stage::new(&first_turn(), TuiOptions { page: Page::Inspect, ..TuiOptions::default() })
            .screen(120, 40)
            .contains("Lattice")
    );
}
