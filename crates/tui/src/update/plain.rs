//! Finishes plain decoding of the shown turn while both answers are shown.

use crate::app::App;
use crate::app::place::page::Page;
use crate::update::sending::can;
use draftscope_protocol::{Ability, Command};
use draftscope_session::{Timeline, Turn};

/// The command that lets plain decoding of the shown turn continue, if the screen shows both answers, the engine is
/// idle, and it was not asked yet.
pub(crate) fn finish_plain(app: &mut App, time: &Timeline) -> Vec<Command> {
    let live = time.live();
    let is_shown = app.place.page == Page::Compare || (app.place.page == Page::Chat && app.place.split);
    let is_free = !live.is_generating() && !live.is_paused() && live.failure().is_none() && app.requests.lost.is_none();
    if !is_shown
        || !is_free
        || time.is_past()
        || app.learning.shows_recording()
        || app.learning.left.is_some()
        || app.requests.awaiting.is_some()
        || !can(live, Ability::Compare)
    {
        return Vec::new();
    }
    let turn = app.place.selected.and_then(|at| live.turns().get(at.turn)).or_else(|| live.turn());
    let Some(plain) = turn.and_then(Turn::unfinished_plain) else { return Vec::new() };
    let asked = Some((time.runs(), plain.turn, plain.tokens.len()));
    if app.requests.plain_asked == asked {
        return Vec::new(); // it was stopped, or could not go on
    }
    app.requests.plain_asked = asked;
    vec![Command::FinishPlain { plain }]
}
