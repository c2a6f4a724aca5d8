//! The mouse: the last frame says what is under it.

use crate::app::App;
use crate::app::place::hit_map::{Hit, PREFILL, Target};
use crate::app::place::page::Pane;
use draftscope_protocol::{Command, Lane};
use draftscope_session::Timeline;
use draftscope_session::round_at::RoundAt;

use super::{learn, seek, tour};

/// A click at a cell of the screen.
pub(crate) fn click(app: &mut App, time: &mut Timeline, x: u16, y: u16) -> Vec<Command> {
    let step = learn::place(app, time);
    let commands = act(app, time, x, y);
    learn::note_page(app, step);
    commands
}

fn act(app: &mut App, time: &mut Timeline, x: u16, y: u16) -> Vec<Command> {
    if app.place.overlay.is_some() {
        return Vec::new();
    }
    let under = |hit: &&Hit| hit.area.contains((x, y).into());
    let Some(target) = app.place.hit_map.hits.iter().rev().find(under).map(|hit| hit.target) else {
        return Vec::new();
    };
    tour::end(app, time);
    app.toast = None;
    match target {
        Target::Page(page) => app.go_to(page),
        Target::Pane(pane) => app.place.pane = pane,
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
            app.place.follow_live();
        }
        Target::Time(at_us) => return seek::to_time(app, time, at_us),
    }
    Vec::new()
}

/// Selects; a click on what is selected opens it.
fn pick(app: &mut App, at: RoundAt, column: Option<usize>, pane: Pane) {
    let again = app.place.selected == Some(at) && app.place.cell == column;
    app.place.select(at, column);
    app.place.pane = pane;
    if again {
        app.go_to(crate::app::place::page::Page::Inspect);
    }
}
