//! The past of a run: its events, snapshots of the session, and the moment on show.
//!
//! Invariant: [`Timeline::live`] is the fold of all events; [`Timeline::shown`] is the same fold of a prefix of them,
//! made from the nearest snapshot, so that any moment looks exactly as it did. Events go on arriving while the past is
//! on show. Old events are dropped in whole segments; [`Timeline::first`] is how far back one can go. The front end
//! decides when to move and how fast.

use std::collections::VecDeque;
use std::ops::Range;

use draftscope_protocol::{Committed, Event, EventKind, Lane, Prefilled, TurnTimes};

use super::fold::Session;
use super::moment::{Moment, Stop, bytes, tokens_of};

/// Rounds between two snapshots. Each snapshot copies the tokens of a running answer, so few snapshots keep a long one
/// small; folding so many rounds takes some milliseconds.
const ROUNDS_PER_SNAPSHOT: usize = 512;

/// Bytes of events kept per snapshot, where rounds are large or none ends.
const BYTES_PER_SNAPSHOT: usize = 6 << 20;

/// Snapshots kept: with [`ROUNDS_PER_SNAPSHOT`] rounds each, one can go back some 4,000 rounds; fewer if a round takes
/// more than 12 kB.
const MAX_SNAPSHOTS: usize = 8;

/// The session after so many events.
struct Snapshot {
    at: u64,
    session: Session,
}

/// A moment on show that is not the newest.
struct Past {
    at: u64,
    /// Tokens of the next event that are written.
    tokens: usize,
    session: Session,
}

/// The part of a run that can be looked at again.
#[derive(Default)]
pub struct Timeline {
    live: Session,
    past: Option<Past>,
    /// The newest state with only some verdicts of its last round, and how many steps of them are shown.
    veiled: Option<(usize, Session)>,
    /// The first of them is event number `first`.
    events: VecDeque<Event>,
    first: u64,
    /// Runs that have begun.
    runs: u64,
    /// Only the newest moment is kept.
    forgets: bool,
    /// Oldest first; the oldest is at `first`, unless the run is whole.
    snapshots: VecDeque<Snapshot>,
    rounds: usize,
    /// Bytes of the events since the newest snapshot.
    weight: usize,
    /// `at_us` of the first event of the run.
    origin_us: u64,
    /// When turns begin and end, and the number of each one's first event.
    turns: TurnTimes,
    prompts: Vec<u64>,
}

/// The turn on show as a part of the run, without the idle time before and after it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TurnSpan {
    /// Its index among the turns.
    pub index: usize,
    /// How many turns are known.
    pub of: usize,
    /// The numbers of its events that are still kept.
    pub events: Range<u64>,
    /// When it begins and ends, as far as known, in microseconds on the events' clock.
    pub time_us: Range<u64>,
}

impl Timeline {
    /// A run in which nothing has happened.
    #[must_use]
    pub fn new() -> Self {
        Self { live: Session::for_screen(), ..Self::default() }
    }

    /// A run of which only the newest moment is kept: one cannot go back.
    #[must_use]
    pub fn of_the_present() -> Self {
        Self { forgets: true, ..Self::new() }
    }

    /// Adds the next event. What is on show stays if it is the past.
    pub fn apply(&mut self, event: Event) {
        self.veiled = None;
        if matches!(event.kind, EventKind::Loading { .. }) {
            self.live.apply(&event); // no part of the run: one cannot go back to it
            return;
        }
        if matches!(event.kind, EventKind::Started { .. }) {
            self.begin();
            self.origin_us = event.at_us;
        }
        self.live.apply(&event);
        let ends_round = matches!(event.kind, EventKind::Committed(_));
        if event.kind.turn_edge().is_some_and(|edge| self.turns.add(edge, event.at_us)) {
            self.prompts.push(self.end());
        }
        if self.forgets {
            self.first = self.end();
            self.events.clear();
            self.events.push_back(event);
            return;
        }
        self.weight += bytes(&event);
        self.events.push_back(event);
        self.rounds += usize::from(ends_round);
        if (ends_round && self.rounds.is_multiple_of(ROUNDS_PER_SNAPSHOT)) || self.weight > BYTES_PER_SNAPSHOT {
            self.weight = 0;
            self.snapshot();
        }
    }

    /// A run begins, also one that is played again: drops what came before.
    fn begin(&mut self) {
        self.runs += 1;
        self.first = self.end();
        self.events.clear();
        self.snapshots.clear();
        self.past = None;
        (self.turns, self.prompts) = (TurnTimes::default(), Vec::new());
        (self.rounds, self.weight) = (0, 0);
    }

    fn snapshot(&mut self) {
        self.snapshots.push_back(Snapshot { at: self.end(), session: self.live.clone() });
        if self.snapshots.len() <= MAX_SNAPSHOTS {
            return;
        }
        self.snapshots.pop_front();
        let oldest = self.snapshots.front().map_or(self.first, |snapshot| snapshot.at);
        self.events.drain(..(oldest - self.first) as usize);
        self.first = oldest;
        if self.past.as_ref().is_some_and(|past| past.at < oldest) {
            self.go(oldest);
        }
    }

    /// The newest state.
    #[must_use]
    pub fn live(&self) -> &Session {
        &self.live
    }

    /// What is on show: the newest state, or the past.
    #[must_use]
    pub fn shown(&self) -> &Session {
        let newest = self.veiled.as_ref().map_or(&self.live, |veiled| &veiled.1);
        self.past.as_ref().map_or(newest, |past| &past.session)
    }

    /// Shows the newest round with the verdicts of its first `steps` steps only, `None` with all: a slow pace shows one
    /// by one what comes in one event. See [`Round::verdict_steps`](super::Round::verdict_steps).
    pub fn veil(&mut self, steps: Option<usize>) {
        if self.veiled.as_ref().map(|veiled| veiled.0) != steps {
            self.veiled = steps.map(|steps| (steps, self.live.veiled(steps)));
        }
    }

    /// Whether what is on show is not the newest.
    #[must_use]
    pub fn is_past(&self) -> bool {
        self.past.is_some()
    }

    /// Number of events up to the moment on show.
    #[must_use]
    pub fn at(&self) -> u64 {
        self.past.as_ref().map_or(self.end(), |past| past.at)
    }

    /// The earliest moment that can be shown.
    #[must_use]
    pub fn first(&self) -> u64 {
        self.first
    }

    /// How many runs have begun; a recording that is played again counts again.
    #[must_use]
    pub fn runs(&self) -> u64 {
        self.runs
    }

    /// Number of events in all.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.first + self.events.len() as u64
    }

    /// Whether the whole run is kept.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.events.front().is_none_or(|event| matches!(event.kind, EventKind::Started { .. }))
    }

    /// The moment after the last event up to this time; `None` if no such moment is kept.
    #[must_use]
    pub fn at_time(&self, at_us: u64) -> Option<u64> {
        let index = self.events.partition_point(|event| event.at_us <= at_us) as u64;
        (index > 0).then_some(self.first + index)
    }

    /// The events kept, oldest first; the whole run while it [is whole](Self::is_whole).
    pub fn events(&self) -> impl Iterator<Item = &Event> {
        self.events.iter()
    }

    /// `at_us` of the event with which the run began: before it, models were loaded.
    #[must_use]
    pub fn origin_us(&self) -> u64 {
        self.origin_us
    }

    /// Microseconds of the run at the moment on show.
    #[must_use]
    pub fn at_us(&self) -> u64 {
        self.event_before(self.at()).map_or(0, |event| event.at_us)
    }

    /// The turn of the moment on show; before the first prompt, the first; `None` if no turn has begun.
    #[must_use]
    pub fn turn_span(&self) -> Option<TurnSpan> {
        let index = self.prompts.partition_point(|first| *first < self.at()).saturating_sub(1);
        let start = *self.prompts.get(index)?;
        let end = self.prompts.get(index + 1).copied().unwrap_or(self.end());
        let recorded = self.live.header().map(|header| &header.capabilities);
        let ends_at_us = recorded.and_then(|known| known.ends_at_us).filter(|_| index + 1 == self.prompts.len());
        let own = self.turns.get(index)?;
        let own = own.start..ends_at_us.unwrap_or(own.end).max(own.end);
        let known = recorded.map(|known| &known.turns).filter(|turns| !turns.is_empty());
        Some(TurnSpan {
            index,
            of: known.map_or(0, TurnTimes::len).max(self.prompts.len()),
            events: start.max(self.first)..end.max(self.first),
            time_us: known.and_then(|turns| turns.get(index)).unwrap_or(own),
        })
    }

    fn event_before(&self, at: u64) -> Option<&Event> {
        self.events.get((at.checked_sub(self.first + 1)?) as usize)
    }

    /// Shows the newest state.
    pub fn follow(&mut self) {
        self.past = None;
    }

    /// Shows the state after so many events, or the nearest that is kept.
    pub fn go(&mut self, at: u64) {
        self.go_to(Moment { events: at, tokens: 0 });
    }

    /// Shows a moment, or the nearest that is kept.
    pub fn go_to(&mut self, moment: Moment) {
        let at = moment.events.max(self.first);
        if at >= self.end() {
            self.past = None;
            return;
        }
        let mut past = self.nearest(at);
        let skip = (past.at - self.first) as usize;
        for event in self.events.iter().skip(skip).take((at - past.at) as usize) {
            past.session.apply(event);
        }
        past.at = at;
        if let Some(event) = self.events.get((at - self.first) as usize).filter(|e| moment.tokens < tokens_of(e)) {
            past.tokens = moment.tokens;
            if moment.tokens > 0 {
                past.session.apply_part(event, moment.tokens);
            }
        }
        self.past = Some(past);
    }

    /// What is on show.
    #[must_use]
    pub fn moment(&self) -> Moment {
        Moment { events: self.at(), tokens: self.past.as_ref().map_or(0, |past| past.tokens) }
    }

    /// The moment before the newest token on show was written; `None` without one.
    #[must_use]
    pub fn token_before(&self) -> Option<Moment> {
        let now = self.moment();
        if now.tokens > 1 {
            return Some(Moment { tokens: now.tokens - 1, ..now });
        }
        let kept = (now.events - self.first) as usize;
        let bears = |(index, event): (usize, &Event)| (tokens_of(event) > 0).then_some((index, tokens_of(event)));
        let mut all = self.events.iter().enumerate().take(kept).rev().filter_map(bears);
        let end = |index: usize| Moment { events: self.first + index as u64 + 1, tokens: 0 };
        let (last, count) = all.next()?;
        if now.tokens == 1 {
            return Some(end(last));
        }
        match count {
            1 => all.next().map(|(index, _)| end(index)),
            _ => Some(Moment { events: self.first + last as u64, tokens: count - 1 }),
        }
    }

    /// The moment after one more token is written; `None` if there is no later one.
    #[must_use]
    pub fn token_after(&self) -> Option<Moment> {
        let now = self.moment();
        let from = (now.events - self.first) as usize;
        let (index, event) = self.events.iter().enumerate().skip(from).find(|(_, event)| tokens_of(event) > 0)?;
        let out = if index == from { now.tokens + 1 } else { 1 };
        let events = self.first + index as u64;
        let is_whole = out >= tokens_of(event);
        Some(if is_whole { Moment { events: events + 1, tokens: 0 } } else { Moment { events, tokens: out } })
    }

    /// The latest known state not after `at`: what is on show, a snapshot, or the beginning.
    fn nearest(&mut self, at: u64) -> Past {
        let snapshot = self.snapshots.iter().rev().find(|snapshot| snapshot.at <= at);
        let base = snapshot.map_or(self.first, |snapshot| snapshot.at);
        if let Some(past) = self.past.take_if(|past| past.at <= at && past.at >= base && past.tokens == 0) {
            return past;
        }
        snapshot.map_or_else(
            || Past { at: self.first, tokens: 0, session: Session::for_screen() },
            |snapshot| Past { at: snapshot.at, tokens: 0, session: snapshot.session.clone() },
        )
    }

    /// The stop before what is on show; `None` at the beginning. Seen from the present, a stop that no phase followed
    /// looks like the present and is skipped.
    #[must_use]
    pub fn before(&self, stop: Stop) -> Option<u64> {
        let Moment { events, tokens } = self.moment();
        let mut kept = (events - self.first).saturating_sub(u64::from(tokens == 0)) as usize;
        if !self.is_past() {
            let newest = self.events.iter().rposition(|event| Stop::Phase.is_at(event))?;
            kept = kept.min(newest);
        }
        let index = self.events.iter().take(kept).rposition(|event| stop.is_at(event))?;
        Some(self.first + index as u64 + 1)
    }

    /// The stop after what is on show; `None` if there is no later one.
    #[must_use]
    pub fn after(&self, stop: Stop) -> Option<u64> {
        let from = (self.at() - self.first) as usize;
        let index = self.events.iter().skip(from).position(|event| stop.is_at(event))?;
        Some(self.first + (from + index) as u64 + 1)
    }

    /// Recorded time from what is on show to the next stop.
    #[must_use]
    pub fn gap_us(&self, stop: Stop) -> u64 {
        let next = self.after(stop).and_then(|at| self.event_before(at));
        next.map_or(0, |event| event.at_us.saturating_sub(self.at_us()))
    }

    /// The earliest moment that shows something: the first stop.
    #[must_use]
    pub fn start(&self) -> u64 {
        let index = self.events.iter().position(|event| Stop::Round.is_at(event));
        index.map_or(self.end(), |index| self.first + index as u64 + 1)
    }

    /// The moment at which a round of the speculative lane was committed; round 0 is the prompt's
    /// passes of this turn.
    #[must_use]
    pub fn round_end(&self, turn: u32, round: u32) -> Option<u64> {
        let ends = |event: &Event| {
            event.lane == Lane::Speculative
                && match event.kind {
                    EventKind::Committed(Committed { round: number, .. }) => number == round,
                    EventKind::Prefilled(Prefilled { turn: number, .. }) => round == 0 && number == turn,
                    _ => false,
                }
        };
        let index = self.events.iter().rposition(ends)?;
        Some(self.first + index as u64 + 1)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::fixture::{Script, conversation};
    use super::*;
    use crate::fixture::fold;
    use crate::tests::any_events::any_events;

    fn timeline(events: &[Event]) -> Timeline {
        let mut timeline = Timeline::new();
        events.iter().cloned().for_each(|event| timeline.apply(event));
        timeline
    }

    /// Everything that a screen can show of a session.
    fn shown_facts(session: &Session) -> String {
        format!("{session:?}")
    }

    fn long() -> Vec<Event> {
        let mut script = Script::prompted("hi", "Hello");
        for _ in 0..ROUNDS_PER_SNAPSHOT * (MAX_SNAPSHOTS + 2) {
            script.round(&[(" a", 0.5)], &[(" a", 0.5), (" b", 0.5)]);
        }
        script.events
    }

    #[test]
    fn going_back_is_as_it_was_and_live_goes_on() {
        let events = conversation().events;
        let mut timeline = timeline(&events[..60]);
        let stop = timeline.before(Stop::Round).unwrap();
        timeline.go(stop);
        assert!(timeline.is_past());
        events[60..].iter().cloned().for_each(|event| timeline.apply(event));
        assert_eq!(shown_facts(timeline.shown()), shown_facts(&fold(&events[..stop as usize])));
        assert_eq!(shown_facts(timeline.live()), shown_facts(&fold(&events)));
        timeline.go(timeline.end());
        assert!(!timeline.is_past());
    }

    #[test]
    fn phases_are_finer_than_rounds_and_both_walk_to_the_ends() {
        let events = conversation().events;
        let count = |stop| {
            let mut timeline = timeline(&events);
            let mut back = 0;
            while let Some(at) = timeline.before(stop) {
                timeline.go(at);
                back += 1;
            }
            assert_eq!(timeline.at(), timeline.start());
            let mut forth = 0;
            while let Some(at) = timeline.after(stop) {
                timeline.go(at);
                forth += 1;
            }
            (back, forth)
        };
        let (rounds, phases) = (count(Stop::Round), count(Stop::Phase));
        assert_eq!(rounds, (11, 10), "9 rounds and 2 prefills");
        assert!(phases.0 > 3 * rounds.0, "{phases:?}");
    }

    #[test]
    fn a_long_run_forgets_its_beginning_but_not_its_state() {
        let events = long();
        let mut timeline = timeline(&events);
        assert!(timeline.first() > 0);
        assert!(timeline.events().count() < events.len());
        timeline.go(0);
        assert_eq!(timeline.at(), timeline.first());
        assert_eq!(shown_facts(timeline.shown()), shown_facts(&fold(&events[..timeline.first() as usize])));
        timeline.go(timeline.end() - 3);
        assert_eq!(shown_facts(timeline.shown()), shown_facts(&fold(&events[..events.len() - 3])));
    }

    proptest! {
        #[test]
        fn any_moment_is_the_fold_of_its_events(
            events in any_events(),
            moves in proptest::collection::vec(0u64..400, 1..6),
        ) {
            let kept: Vec<_> = events.into_iter().filter(|e| !matches!(e.kind, EventKind::Loading { .. })).collect();
            let mut timeline = timeline(&kept);
            for at in moves {
                timeline.go(at);
                let first = timeline.first(); // where the newest run begins
                prop_assert_eq!(timeline.at(), at.clamp(first, timeline.end().max(first)));
                let run = &kept[first as usize..timeline.at() as usize];
                prop_assert_eq!(shown_facts(timeline.shown()), shown_facts(&fold(run)));
            }
        }
    }

    #[test]
    fn each_token_has_its_moment() {
        let mut time = timeline(&conversation().events);
        let count = |time: &Timeline| -> usize {
            time.shown().turns().iter().map(|turn| turn.answer(Lane::Speculative).tokens.len()).sum()
        };
        let all = count(&time);
        for left in (1..all).rev() {
            let moment = time.token_before().unwrap();
            time.go_to(moment);
            assert_eq!((time.moment(), count(&time)), (moment, left));
        }
        assert_eq!(time.token_before(), None, "the first token was there from the start");
        for more in 2..=all {
            let moment = time.token_after().unwrap();
            time.go_to(moment);
            assert_eq!(count(&time), more);
        }
        assert_eq!(time.token_after(), None);
        // a whole moment looks as it did, also right after a part of a commit
        let within = (0..time.end()).find(|at| {
            time.go_to(Moment { events: *at, tokens: 1 });
            time.moment().tokens == 1
        });
        time.go(within.unwrap() + 1);
        let mut folded = Session::new();
        conversation().events[..=within.unwrap() as usize].iter().for_each(|event| folded.apply(event));
        assert_eq!(time.shown().turns(), folded.turns());
    }
}
