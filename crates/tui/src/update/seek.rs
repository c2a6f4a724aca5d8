//! Goes to a place of the run: by round, by time, by share, to the next rejection.
//!
//! Invariant: what has happened is shown from the past that is kept; only a recording can be asked for what has not
//! played yet or is no longer kept.

use crate::app::clock::Clock;
use crate::app::place::filter::has_reject;
use crate::app::{App, Overlay};
use crate::input::action::Action;
use crate::input::line_input::LineInput;
use draftscope_protocol::{Command, Landmark};
use draftscope_session::round_at::{round_at, rounds};
use draftscope_session::{Stop, Timeline};

use super::time as clock;

/// Number of parts of a turn that the keys step over.
const PARTS: u64 = 20;

/// A place as a person names it.
#[derive(Clone, Copy, Debug, PartialEq)]
enum SeekTarget {
    Round(u32),
    /// Microseconds of the turn on show.
    Time(u64),
    /// Of the run, 0 to 1.
    Share(f64),
}

impl SeekTarget {
    /// `12`, `#12` and `r12` are rounds; `3.5s`, `250ms`, `1:05` and `3.5` times; `40%` a share.
    fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let number = |text: &str| text.trim().parse::<f64>().ok().filter(|n| (0.0..1e9).contains(n));
        let seconds = |seconds: f64| Self::Time((seconds * 1e6) as u64);
        if let Some(share) = text.strip_suffix('%') {
            return Some(Self::Share((number(share)? / 100.0).min(1.0)));
        }
        if let Some(ms) = text.strip_suffix("ms") {
            return Some(seconds(number(ms)? / 1e3));
        }
        if let Some((minutes, rest)) = text.split_once(':') {
            return Some(seconds(number(minutes)? * 60.0 + number(rest.trim_end_matches('s'))?));
        }
        if let Some(s) = text.strip_suffix('s') {
            return Some(seconds(number(s)?));
        }
        match text.trim_start_matches(['#', 'r']).trim().parse() {
            Ok(round) => Some(Self::Round(round)),
            Err(_) => Some(seconds(number(text)?)),
        }
    }
}

pub(super) fn update(app: &mut App, time: &mut Timeline, action: Action) -> Vec<Command> {
    let turn = time.turn_span().map_or(0, |span| span.time_us.end.saturating_sub(span.time_us.start));
    let part = turn / PARTS;
    match action {
        Action::ScrubBack => {
            let to_us = time.at_us().saturating_sub(part);
            let is_first = time.is_past() && time.at_time(to_us).is_some_and(|at| at >= time.at());
            if is_first { clock::back(app, time, None) } else { to_time(app, time, to_us) }
        }
        Action::ScrubForward => forward(app, time, part),
        _ => {
            app.place.overlay = Some(Overlay::GoTo(LineInput::default()));
            Vec::new()
        }
    }
}

/// Moves on by a part of the turn; if nothing happened in it, to the next event.
fn forward(app: &mut App, time: &mut Timeline, part: u64) -> Vec<Command> {
    let to_us = time.at_us().saturating_add(part);
    if !time.is_past() || time.at_time(to_us) != Some(time.at()) {
        return to_time(app, time, to_us);
    }
    match time.after(Stop::Phase) {
        Some(at) if at < time.end() => clock::back(app, time, Some(at)),
        _ => clock::follow(app, time),
    }
}

/// Goes to the place that was typed; `None` if it is no place.
pub(super) fn go_to(app: &mut App, time: &mut Timeline, text: &str) -> Option<Vec<Command>> {
    Some(match SeekTarget::parse(text)? {
        SeekTarget::Round(round) => to_round(app, time, round),
        SeekTarget::Time(after_us) => {
            let start_us = time.turn_span().map_or(time.origin_us(), |span| span.time_us.start);
            to_time(app, time, start_us.saturating_add(after_us))
        }
        SeekTarget::Share(share) => {
            let after_us = (length_us(&app.clock, time) as f64 * share) as u64;
            let at_us = time.origin_us().saturating_add(after_us);
            to_time(app, time, at_us)
        }
    })
}

/// How long the run is, as far as known.
fn length_us(clock: &Clock, time: &Timeline) -> u64 {
    let recorded = time.live().header().and_then(|header| header.capabilities.ends_at_us);
    let end_us = recorded.filter(|_| clock.is_recording).unwrap_or_default().max(time.live().at_us());
    end_us.saturating_sub(time.origin_us())
}

/// Whether a recording can be asked for more.
fn has_more(app: &App) -> bool {
    app.clock.is_recording && app.learning.aside.is_none() && !app.requests.has_ended
}

/// Goes to a time of the run.
pub(super) fn to_time(app: &mut App, time: &mut Timeline, at_us: u64) -> Vec<Command> {
    let is_ahead = at_us > time.live().at_us();
    match time.at_time(at_us).filter(|_| !is_ahead) {
        Some(at) if at < time.end() => clock::back(app, time, Some(at)),
        Some(_) => clock::follow(app, time),
        None if has_more(app) && (is_ahead || !time.is_whole()) => {
            // the end itself, not the moment before it
            let is_end = at_us >= time.origin_us().saturating_add(length_us(&app.clock, time));
            let mut commands = clock::follow(app, time);
            commands.push(Command::SkipTo { at_us: if is_end { u64::MAX } else { at_us } });
            commands
        }
        None if is_ahead => clock::follow(app, time),
        None => {
            let start = time.start();
            clock::back(app, time, (time.at() > start).then_some(start))
        }
    }
}

/// Where a round ends; round 0 is the newest prompt's.
pub(super) fn end_of(time: &Timeline, round: u32) -> Option<u64> {
    let turn = time.live().turn().map_or(0, |turn| turn.number);
    time.round_end(turn, round)
}

/// Goes to the end of a round.
fn to_round(app: &mut App, time: &mut Timeline, round: u32) -> Vec<Command> {
    if let Some(at) = end_of(time, round) {
        return clock::back(app, time, Some(at));
    }
    if !has_more(app) {
        return app.say(format!("round {round} is not there"));
    }
    let newest = rounds(time.live()).next_back().and_then(|at| round_at(time.live(), at)).map_or(0, |r| r.number());
    time.follow();
    app.clock.holds = false;
    app.place.follow_live();
    let again = (round <= newest).then_some(Command::SkipTo { at_us: 0 });
    again.into_iter().chain([Command::SkipToNext { landmark: Landmark::Round(round) }]).collect()
}

/// Whether no rejection follows the selected round in what is shown.
pub(super) fn is_behind_all(app: &App, time: &Timeline) -> bool {
    let Some(from) = app.round_index(time.shown()) else {
        return has_more(app);
    };
    let later =
        |at: &draftscope_session::round_at::RoundAt| *at > from && round_at(time.shown(), *at).is_some_and(has_reject);
    (time.is_past() || has_more(app)) && !rounds(time.shown()).any(|at| later(&at))
}

/// The next rejection after the shown moment: in the events so far, else in the recording.
pub(super) fn reject(app: &mut App, time: &mut Timeline) -> Vec<Command> {
    let from = app.round_index(time.shown());
    let later = |at: &draftscope_session::round_at::RoundAt| from.is_none_or(|from| *at > from);
    let live = time.live();
    let found = rounds(live).filter(later).filter_map(|at| round_at(live, at)).find(|round| has_reject(round));
    match found.map(|round| round.number()).and_then(|round| end_of(time, round)) {
        Some(at) if time.is_past() => clock::back(app, time, Some(at)),
        _ => ask(app, time, Landmark::Reject),
    }
}

/// Asks a recording to play up to a place, if it can.
pub(super) fn ask(app: &mut App, time: &mut Timeline, landmark: Landmark) -> Vec<Command> {
    if !has_more(app) {
        return app.say("there is no later one");
    }
    time.follow();
    app.clock.plays = false;
    app.clock.holds = false; // it holds where it finds one
    app.place.follow_live();
    vec![Command::SkipToNext { landmark }]
}

/// Switches to another of several recordings, at its start.
pub(super) fn recording(app: &mut App, time: &mut Timeline, action: Action) -> Vec<Command> {
    let listed = time.live().header().and_then(|header| header.capabilities.listed.as_ref());
    let Some(listed) = listed.filter(|_| has_more(app)) else {
        app.toast = Some("one recording plays; several do in draftscope demo".to_owned());
        return Vec::new();
    };
    let (number, of) = (listed.number, listed.of);
    let (other, end) = match action {
        Action::RecordingPrevious => (number.checked_sub(1).filter(|n| *n > 0), "first"),
        _ => (number.checked_add(1).filter(|n| *n <= of), "last"),
    };
    let Some(number) = other else {
        return app.say(format!("this is the {end} of {of} recordings"));
    };
    time.follow();
    (app.clock.plays, app.clock.holds) = (false, false);
    app.place.follow_live();
    vec![Command::PlayListed { number }]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_named_by_round_time_and_share() {
        let parse = SeekTarget::parse;
        assert_eq!(parse("12"), Some(SeekTarget::Round(12)));
        assert_eq!(parse(" #7 "), Some(SeekTarget::Round(7)));
        assert_eq!(parse("r3"), Some(SeekTarget::Round(3)));
        assert_eq!(parse("3.5s"), Some(SeekTarget::Time(3_500_000)));
        assert_eq!(parse("3.5"), Some(SeekTarget::Time(3_500_000)));
        assert_eq!(parse("250ms"), Some(SeekTarget::Time(250_000)));
        assert_eq!(parse("1:05"), Some(SeekTarget::Time(65_000_000)));
        assert_eq!(parse("40%"), Some(SeekTarget::Share(0.4)));
        assert_eq!(parse("400 %"), Some(SeekTarget::Share(1.0)));
        for bad in ["", "x", "-1", "1:", "NaN", "inf", "1e99", "%"] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }
}
