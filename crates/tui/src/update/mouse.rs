//! The mouse: the last frame says what is under it.

use crate::app::App;
use crate::hit_map::{Hit, PREFILL, Target};
use crate::page::Pane;
use crate::selection::RoundAt;
use draftscope_protocol::{Command, Lane};
use draftscope_session::Timeline;

use super::{navigation, seek, tour};

/// A click at a cell of the screen.
pub(crate) fn click(app: &mut App, time: &mut Timeline, x: u16, y: u16) -> Vec<Command> {
    if app.overlay.is_some() {
        return Vec::new();
    }
    let under = |hit: &&Hit| hit.area.contains((x, y).into());
    let Some(target) = app.hit_map.hits.iter().rev().find(under).map(|hit| hit.target) else {
        return Vec::new();
    };
    tour::end(app, time);
    app.toast = None;
    match target {
        Target::Page(page) => app.go_to(page),
        Target::Pane(pane) => app.pane = pane,
        Target::Starter(index) => app.take_starter(index),
        Target::Token { turn, round, column } => {
            let answer = time.shown().turns().get(turn).map(|turn| turn.answer(Lane::Speculative));
            if let Some(answer) = answer {
                let index = answer.rounds.partition_point(|r| r.number() < round);
                let round = (round != PREFILL).then_some(index);
                pick(app, RoundAt { turn, round }, Some(column), Pane::Answer);
            }
        }
        Target::Round { at, column } => pick(app, at, column, Pane::Ladder),
        Target::Moment(at) => {
            time.go(at);
            navigation::follow_live(app);
        }
        Target::Time(at_us) => return seek::to_time(app, time, at_us),
    }
    Vec::new()
}

/// Selects; a click on what is selected opens it.
fn pick(app: &mut App, at: RoundAt, column: Option<usize>, pane: Pane) {
    let again = app.selected == Some(at) && app.cell == column;
    navigation::choose(app, at, column);
    app.pane = pane;
    if again {
        app.go_to(crate::page::Page::Inspect);
    }
}
