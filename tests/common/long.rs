//! Long runs: the events of a bundled recording, repeated with new numbers.

#![allow(unreachable_pub)] // each test file uses its own part

use std::path::PathBuf;

use draftscope::protocol::{
    Candidate, Committed, Drafted, Event, EventKind, Piece, Prediction, Prefilled, RoundStarted, Scored, StopReason,
    TokenId,
};
use draftscope::session::trace::Reader;

/// Numbers turns and rounds anew when the events of a recording are repeated.
#[derive(Clone, Copy, Default)]
pub struct Renumber {
    turns: u32,
    rounds: u32,
    at_us: u64,
}

impl Renumber {
    /// The event as one of this repetition.
    pub fn event(&self, event: &Event, seq: u64) -> Event {
        let mut event = Event { seq, at_us: event.at_us + self.at_us, ..event.clone() };
        match &mut event.kind {
            EventKind::Prompted { turn, .. } | EventKind::Prefilled(Prefilled { turn, .. }) => *turn += self.turns,
            EventKind::RoundStarted(RoundStarted { round, .. })
            | EventKind::Drafted(Drafted { round, .. })
            | EventKind::Scored(Scored { round, .. })
            | EventKind::Verified { round, .. }
            | EventKind::Committed(Committed { round, .. }) => *round += self.rounds,
            _ => {}
        }
        event
    }

    /// The next repetition.
    pub fn next(&self) -> Self {
        Self { turns: self.turns + 1, rounds: self.rounds + 1000, at_us: self.at_us + 2_000_000 }
    }
}

/// The header of the bundled recording, and the events of its one turn.
pub fn bundled() -> (Event, Vec<Event>) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("assets/traces/code.dscope.jsonl.zst");
    let mut events: Vec<Event> = Reader::open(&path).unwrap().map(Result::unwrap).collect();
    let start = events.remove(0);
    events.pop();
    (start, events)
}

/// The beginning of that turn: this many rounds of both lanes, after which both lanes end.
pub fn short_turn(rounds: usize) -> (Event, Vec<Event>) {
    let (start, events) = bundled();
    let mut left = rounds;
    let mut turn: Vec<Event> = Vec::new();
    for event in events {
        let ends = matches!(event.kind, EventKind::Committed(_));
        turn.push(event);
        left -= usize::from(ends);
        if left == 0 {
            break;
        }
    }
    let mut lanes: Vec<_> = turn.iter().map(|event| event.lane).collect();
    lanes.sort_unstable_by_key(|lane| lane.index());
    lanes.dedup();
    let last = turn[turn.len() - 1].clone();
    let end = |lane| Event { lane, kind: EventKind::Finished { reason: StopReason::Eos }, ..last.clone() };
    turn.extend(lanes.into_iter().map(end));
    (start, turn)
}

/// The event with 32 candidates in every list.
pub fn with_many_candidates(mut event: Event) -> Event {
    let fill = |row: &mut Prediction| {
        while row.top.len() < 32 {
            let id = TokenId(40_000 + row.top.len() as u32);
            row.top.push(Candidate { piece: Piece::new(id, " candidate"), prob: 0.0 });
        }
    };
    match &mut event.kind {
        EventKind::Drafted(Drafted { top, .. }) => fill(top),
        EventKind::Scored(Scored { rows, .. }) => rows.iter_mut().for_each(fill),
        EventKind::Prefilled(Prefilled { row, .. }) => fill(row),
        _ => {}
    }
    event
}
