//! Time: pause, step, back, play, speed, and going on from a point of the past.
//!
//! Invariant: the past is looked at, never changed; the engine moves only by commands. Going back while the engine
//! works also pauses it, so that the present does not run away; returning resumes it.

use std::time::Duration;

use crate::app::App;
use crate::app::clock::pace::Pace;
use crate::app::clock::pacing::round_number;
use crate::app::place::page::Page;
use crate::app::requests::Requests;
use crate::app::talk::conversation::{self, Point};
use crate::input::action::Action;
use draftscope_protocol::{Command, Lane};
use draftscope_session::round_at::{RoundAt, newest_token, round_at, rounds};
use draftscope_session::{Moment, Phase, Round, Session, Stop, Timeline, Turn};

use super::sending::{can_generate, cannot_send, watch};
use super::{tour, wanted};

pub(super) fn update(app: &mut App, time: &mut Timeline, action: Action) -> Vec<Command> {
    match action {
        Action::PauseResume => pause(app, time),
        Action::StepPhase => step(app, time, Stop::Phase),
        Action::StepRound => step(app, time, Stop::Round),
        Action::BackPhase => back(app, time, time.before(Stop::Phase)),
        Action::BackRound => back(app, time, time.before(Stop::Round)),
        Action::BackToken => token(app, time, time.token_before()),
        Action::NextToken if !time.is_past() => step(app, time, Stop::Round),
        Action::NextToken => match time.token_after() {
            None => follow(app, time),
            next => token(app, time, next),
        },
        Action::TimeStart => back(app, time, Some(time.start())),
        Action::Replay => replay(app, time),
        Action::TimeHere => here(app, time),
        Action::Slower => change_pace(app, time, false),
        _ => change_pace(app, time, true),
    }
}

fn pause(app: &mut App, time: &Timeline) -> Vec<Command> {
    app.learning.study.holds = false; // from here on it is the user's
    if time.is_past() || app.is_paced(time.live()) {
        app.clock.plays = !app.clock.plays;
        // the phase that a slow pace has yet to run is not taken
        return if app.clock.plays || time.is_past() { Vec::new() } else { vec![Command::Pause] };
    }
    app.clock.holds = false;
    let held = app.requests.pending.is_held(time.live());
    when_running(app, time.live(), if held { Command::Resume } else { Command::Pause })
}

fn step(app: &mut App, time: &mut Timeline, stop: Stop) -> Vec<Command> {
    app.clock.plays = false;
    if app.place.page == Page::Learn && app.learning.step().is_some_and(|step| step.goal.is_some()) {
        app.place.follow_live(); // what is to be done is seen in the round that runs, whatever was selected before
    }
    if time.is_past() {
        forward(time, stop);
        return Vec::new();
    }
    when_running(app, time.live(), if stop == Stop::Phase { Command::StepPhase } else { Command::StepRound })
}

/// Shows the next stop, or the present when there is none.
fn forward(time: &mut Timeline, stop: Stop) {
    match time.after(stop) {
        Some(at) => time.go(at),
        None => time.follow(),
    }
}

fn when_running(app: &mut App, session: &Session, command: Command) -> Vec<Command> {
    if app.learning.shows_recording() {
        let back = app.key(Action::BackRound);
        app.toast = Some(format!("this is the end of the lesson's recording; {back} goes back"));
        return Vec::new();
    }
    if app.is_busy(session) || session.is_paused() || !can_generate(session) {
        return vec![command];
    }
    app.say("nothing is running: send a prompt first")
}

/// Goes back to the moment after so many events; a working engine is paused meanwhile.
pub(super) fn back(app: &mut App, time: &mut Timeline, to: Option<u64>) -> Vec<Command> {
    back_to(app, time, to.map(|events| Moment { events, tokens: 0 }))
}

fn back_to(app: &mut App, time: &mut Timeline, to: Option<Moment>) -> Vec<Command> {
    let is_paced = app.clock.plays && !time.is_past();
    app.clock.plays = false;
    let Some(to) = to else {
        return app.say("this is the beginning");
    };
    time.go_to(to);
    app.place.follow_live();
    app.clock.holds |= is_paced; // nothing drives the engine from here on
    hold(app, time.live())
}

/// Goes to a moment at which a token was written, and selects that token.
fn token(app: &mut App, time: &mut Timeline, to: Option<Moment>) -> Vec<Command> {
    let commands = back_to(app, time, to);
    if let Some((at, cell)) = newest_token(time.shown()).filter(|_| time.is_past()) {
        app.place.select(at, Some(cell));
    }
    commands
}

fn hold(app: &mut App, live: &Session) -> Vec<Command> {
    let works = app.is_busy(live) || (app.clock.is_recording && !app.requests.has_ended);
    if !works || app.learning.shows_recording() || app.requests.pending.is_held(live) || app.clock.holds {
        return Vec::new();
    }
    app.clock.holds = true;
    vec![Command::Pause]
}

/// Goes to the moment at which the selected round was committed.
fn here(app: &mut App, time: &mut Timeline) -> Vec<Command> {
    let round = app.round(time.shown()).map(|round| (round.turn, round.number()));
    match round.and_then(|(turn, round)| time.round_end(turn, round)) {
        Some(at) => back(app, time, Some(at)),
        None => app.say("that moment is not kept"),
    }
}

/// Returns to the present; an engine that was paused for looking at the past resumes at its pace.
pub(super) fn follow(app: &mut App, time: &mut Timeline) -> Vec<Command> {
    let was_past = time.is_past();
    app.clock.replay = None;
    time.follow();
    app.place.follow_live();
    let released = std::mem::take(&mut app.clock.holds);
    let slow = app.is_paced(time.live());
    if was_past {
        app.clock.plays = released && slow;
    }
    if released && !slow { vec![Command::Resume] } else { Vec::new() }
}

/// Plays the turn on show from the end of its prompt, slowly enough to read along.
fn replay(app: &mut App, time: &mut Timeline) -> Vec<Command> {
    let shown = time.shown();
    let turn = app.place.selected.and_then(|at| shown.turns().get(at.turn)).or_else(|| shown.turn());
    let Some(turn) = turn.filter(|turn| !turn.answer(Lane::Speculative).rounds.is_empty()) else {
        return app.say("there is no answer to play again yet");
    };
    let Some(start) = time.round_end(turn.number, 0) else {
        return app.say("the beginning of that answer is no longer kept");
    };
    let commands = back(app, time, Some(start));
    (app.clock.plays, app.clock.replay) = (true, Some(Pace::SLOW));
    commands
}

fn change_pace(app: &mut App, time: &Timeline, faster: bool) -> Vec<Command> {
    let live = time.live();
    if let Some(pace) = app.clock.replay.filter(|_| time.is_past()) {
        let pace = if faster { pace.faster() } else { pace.slower(1) };
        app.clock.replay = Some(pace);
        return app.say(format!("pace of the replay: {}", pace.name(1)));
    }
    if app.clock.is_recording {
        app.clock.playback.turn(faster);
        app.toast = Some(format!("speed: {}×", app.clock.playback.speed));
        if app.learning.shows_recording() {
            return Vec::new();
        }
        return vec![Command::SetSpeed { speed: app.clock.playback.speed }];
    }
    let round = round_number(live);
    let pace = if faster { app.clock.pace.faster() } else { app.clock.pace.slower(round) };
    // a waiting answer shows its pace itself
    let is_shown = !pace.is_full() && app.is_busy(live);
    app.toast = (!is_shown).then(|| format!("pace: {}", pace.name(round)));
    set_pace(app, live, pace)
}

/// Sets another pace; an answer in progress continues at it.
pub(super) fn set_pace(app: &mut App, live: &Session, pace: Pace) -> Vec<Command> {
    let was_full = app.clock.pace.is_full();
    app.clock.pace = pace;
    if was_full && !app.clock.pace.is_full() && app.is_busy(live) && !app.requests.pending.is_held(live) {
        app.clock.plays = true;
    }
    if !was_full
        && app.clock.pace.is_full()
        && std::mem::take(&mut app.clock.plays)
        && app.requests.pending.is_held(live)
    {
        return vec![Command::Resume];
    }
    Vec::new()
}

/// Time between two pictures of the loading bar.
const LOADING: Duration = Duration::from_millis(100);

/// Whether the models are loading.
fn is_loading(requests: &Requests, live: &Session) -> bool {
    live.header().is_none() && live.failure().is_none() && requests.lost.is_none() && !requests.has_ended
}

/// How long until time advances by a phase; `None` if it does not advance by ticks.
pub(crate) fn next_tick(app: &App, time: &Timeline) -> Option<Duration> {
    if app.clock.tour.is_some() || is_loading(&app.requests, time.live()) {
        return Some(if app.clock.tour.is_some() { tour::TICK } else { LOADING });
    }
    if !app.clock.plays {
        return None;
    }
    if time.is_past() {
        let recorded = Duration::from_micros(time.gap_us(Stop::Phase));
        let gap = |pace: Pace| pace.gap(app.steps(time.shown()), recorded);
        return Some(match app.clock.replay {
            Some(pace) => gap(pace),
            None if app.clock.is_recording => app.clock.playback.gap(recorded),
            None => gap(app.clock.pace),
        });
    }
    if app.ramp_is_over(time.live()) {
        return Some(Duration::ZERO);
    }
    app.is_paced(time.live()).then(|| app.clock.pace.gap(app.steps(time.live()), Duration::ZERO))
}

/// Advances by a phase.
pub(crate) fn tick(app: &mut App, time: &mut Timeline) -> Vec<Command> {
    if app.clock.tour.is_some() || is_loading(&app.requests, time.live()) {
        tour::tick(app, time);
        return Vec::new();
    }
    if !time.is_past() {
        return step_live(app, time.live());
    }
    forward(time, Stop::Phase);
    if time.is_past() {
        return Vec::new();
    }
    // the recording has caught up with the present
    app.clock.replay = None;
    let slow = app.is_paced(time.live());
    let released = std::mem::take(&mut app.clock.holds) && !slow;
    app.clock.plays = slow;
    if released { vec![Command::Resume] } else { Vec::new() }
}

/// The next step of an answer at a pace.
fn step_live(app: &mut App, live: &Session) -> Vec<Command> {
    if app.ramp_is_over(live) {
        (app.clock.pace, app.clock.plays) = (Pace::Full, false);
        return vec![Command::Resume];
    }
    // a prompt's passes, and a drafting person, take longer than the pace
    let has_begun = !app.requests.is_awaiting(live) && live.phase(Lane::Speculative) != Phase::Prefilling;
    if !has_begun || app.requests.pending.awaits_phase() || app.unveil(live) {
        return Vec::new();
    }
    vec![Command::StepPhase]
}

/// Shows as many of the newest verdicts as the pace has reached; called before drawing.
pub(crate) fn veil(app: &App, time: &mut Timeline) {
    let steps = app.veil(time.live());
    time.veil(steps);
}

/// Continues from the end of the selected round, or of the newest committed one, as a branch.
pub(super) fn continue_here(app: &mut App, time: &mut Timeline) -> Vec<Command> {
    let session = time.shown();
    let Some((turn, round)) = committed_round(app, session) else {
        return app.say("choose a round that is committed");
    };
    let kept = round.first_token + round.committed().len();
    let is_end = turn.answer(Lane::Speculative).tokens.get(kept - 1).is_some_and(|token| token.piece.special);
    let point = Point { kept: kept - usize::from(is_end), ..Point::of(turn) };
    let prompt = conversation::branch(&point);
    branch(app, time, prompt)
}

fn committed_round<'a>(app: &App, session: &'a Session) -> Option<(&'a Turn, &'a Round)> {
    let at = match app.place.selected {
        Some(_) => app.round_index(session)?,
        None => rounds(session).rfind(|at| round_at(session, *at).is_some_and(|round| round.is_complete()))?,
    };
    let round = round_at(session, at).filter(|round| round.is_complete() && !round.committed().is_empty())?;
    Some((session.turns().get(at.turn)?, round))
}

/// Takes the shown branch out of the conversation: a running one ends, and the settings from before it apply again.
pub(super) fn return_branch(app: &mut App, time: &Timeline) -> Vec<Command> {
    let turns = time.shown().turns();
    let left = |(index, turn): (usize, &Turn)| {
        turn.branch.is_some() && !app.talk.abandoned.contains(&turn.number) && !app.talk.resumed.contains(&index)
    };
    let found = turns.iter().enumerate().rev().find(|place| left(*place)).map(|(index, _)| index);
    let Some((index, branch)) = found.map(|index| (index, &turns[index])) else {
        app.toast = Some(format!("there is no branch to return from; {} makes one", app.key(Action::ContinueHere)));
        return Vec::new();
    };
    app.talk.abandoned.insert(branch.number);
    let left = branch.branch.map_or(0, |b| b.turn);
    app.toast = Some(format!("the conversation goes on from turn {left} again"));
    let live = time.live();
    let is_under_way = app.is_busy(live) && live.turn().is_some_and(|turn| turn.number == branch.number);
    let mut commands = Vec::new();
    if is_under_way && can_generate(live) {
        app.clock.plays = false;
        commands.push(Command::Stop);
    }
    if !app.learning.shows_recording()
        && let Some(lent) = app.talk.lent.remove(&index)
    {
        commands.extend(wanted::give_back(app, live, lent).unwrap_or_default());
    }
    let resumed = resume(app, live, index, is_under_way);
    if resumed.is_empty() && !time.is_past() {
        show_turn(app, live, left);
    }
    commands.extend(resumed);
    commands
}

/// Selects the last round of a turn, so that its answer and its figures are on show.
fn show_turn(app: &mut App, live: &Session, number: u32) {
    let Some(turn) = live.turns().iter().position(|turn| turn.number == number) else { return };
    let round = live.turns()[turn].answer(Lane::Speculative).rounds.len().checked_sub(1);
    app.place.select(RoundAt { turn, round }, None);
}

/// Lets the answer continue that the branch at this index ended; `stops` says that the branch ends only now.
fn resume(app: &mut App, live: &Session, branch: usize, stops: bool) -> Vec<Command> {
    let ended = app.talk.ended.remove(&branch).filter(|_| !app.learning.shows_recording() && can_generate(live));
    let turn = ended.and_then(|number| live.turns().iter().find(|turn| turn.number == number));
    let Some(turn) = turn.filter(|_| stops || cannot_send(app, live).is_none()) else {
        return Vec::new();
    };
    let kept = turn.answer(Lane::Speculative).tokens.len();
    let prompt = conversation::branch(&Point { kept, ..Point::of(turn) });
    let is_paused = !stops && app.requests.pending.is_held(live);
    app.talk.resumed.insert(live.turns().len());
    watch(app, live);
    app.requests.await_answer(live, turn.typed.clone());
    app.toast = Some(format!("turn {} is back and goes on where it was ended", turn.number));
    let generate = Command::Generate { prompt };
    if is_paused && !app.clock.plays { vec![Command::Resume, generate] } else { vec![generate] }
}

/// Sends a branch, unless nothing can be sent.
pub(super) fn branch(app: &mut App, time: &mut Timeline, prompt: draftscope_protocol::Prompt) -> Vec<Command> {
    // a paused answer can be left: it stops there
    let live = time.live();
    let stops = app.is_busy(live) && can_generate(live) && !app.requests.is_awaiting(live);
    if let Some(refusal) = cannot_send(app, live).filter(|_| !stops) {
        return app.say(refusal);
    }
    time.follow();
    watch(app, time.live());
    app.requests.await_answer(time.live(), prompt.typed().to_owned());
    let back = app.key(Action::ReturnBranch);
    app.toast = Some(format!("a branch: the answer goes on from here; {back} returns"));
    if let Some(turn) = time.live().turn().filter(|_| stops) {
        let number = turn.number;
        app.talk.ended.insert(time.live().turns().len(), number);
        app.toast = Some(format!("a branch: turn {number} has ended for it; {back} brings that back, and it goes on"));
    }
    let generate = Command::Generate { prompt };
    if stops { vec![Command::Stop, generate] } else { vec![generate] }
}
