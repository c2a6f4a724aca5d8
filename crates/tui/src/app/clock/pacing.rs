//! Progress of an answer at a pace: its round, the steps in which the round is shown, the end of a slow start.
//!
//! Invariant: a tick advances one step: a phase of the engine, or one verdict, since all verdicts of a round come in
//! one event.

use draftscope_protocol::Lane;
use draftscope_session::{Answer, Round, Session, Turn};

use crate::app::App;
use crate::app::clock::Clock;
use crate::app::clock::pace::{Pace, RAMP_ROUNDS};
use crate::look::display::DisplayMode;

/// Rounds per second above which verdicts are shown all at once.
const ONE_BY_ONE: f32 = 8.0;

fn answer(live: &Session) -> Option<&Answer> {
    live.turn().map(|turn| turn.answer(Lane::Speculative))
}

/// The newest round, if it is running.
fn open_round(live: &Session) -> Option<&Round> {
    let round = answer(live)?.rounds.last()?;
    (!round.is_complete()).then_some(round)
}

/// Number within its answer of the running round or, between two, of the next one; 1 is the first.
pub(crate) fn round_number(live: &Session) -> usize {
    let rounds = answer(live).map_or(0, |answer| answer.rounds.len());
    rounds + usize::from(open_round(live).is_none())
}

impl Clock {
    fn shows_verdicts(&self, round: usize) -> bool {
        self.pace.rate(round).is_some_and(|rate| rate < ONE_BY_ONE)
    }
}

impl App {
    /// Whether an answer is in progress at a pace other than full speed.
    pub(crate) fn is_paced(&self, live: &Session) -> bool {
        !self.clock.pace.is_full() && self.is_busy(live)
    }

    /// What an answer shows of discarded drafts: what the user chose, else all of them as long as the answer runs slowly
    /// enough to read along, and signs from then on.
    pub(crate) fn display_of(&self, live: &Session, turn: &Turn) -> DisplayMode {
        let is_running = || {
            let running = live.turn().filter(|running| running.number == turn.number);
            running.is_some_and(|running| running.answer(Lane::Speculative).finished.is_none())
        };
        let plays_again = || self.clock.replay.is_some() && turn.answer(Lane::Speculative).finished.is_none();
        let is_read_along = || plays_again() || (self.clock.pace.rate(round_number(live)).is_some() && is_running());
        let usual = || if is_read_along() { DisplayMode::All } else { DisplayMode::default() };
        self.place.display.unwrap_or_else(usual)
    }

    /// The running round, and the steps in which it is shown.
    pub(crate) fn steps(&self, live: &Session) -> (usize, usize) {
        let number = round_number(live);
        // the drafts of one pass are one step
        let is_block = answer(live).and_then(|answer| answer.rounds.last()).is_some_and(|round| round.is_block());
        let drafts = match open_round(live) {
            _ if is_block => 1,
            Some(round) => round.drafts.len().max(round.draft_len().into()),
            None => live.settings().draft_len.into(),
        };
        let judged = open_round(live).map_or(drafts, |round| round.drafts.len().max(drafts));
        let verdicts = if self.clock.shows_verdicts(number) { judged.max(1) } else { 1 };
        (number, drafts + 1 + verdicts + 1)
    }

    /// Steps of the newest round's verdicts that are shown, while not all are.
    pub(crate) fn veil(&self, live: &Session) -> Option<usize> {
        let round = open_round(live).filter(|round| round.verdict_steps() > 0)?;
        if !self.clock.plays || self.learning.shows_recording() || !self.clock.shows_verdicts(round_number(live)) {
            return None;
        }
        let shown = self.clock.unveiled.filter(|(number, _)| *number == round.number()).map_or(1, |(_, steps)| steps);
        (shown < round.verdict_steps()).then_some(shown)
    }

    /// Shows one more verdict; returns whether there was one.
    pub(crate) fn unveil(&mut self, live: &Session) -> bool {
        let next = self.veil(live).zip(open_round(live)).map(|(steps, round)| (round.number(), steps + 1));
        self.clock.unveiled = next.or(self.clock.unveiled);
        next.is_some()
    }

    /// Whether the slow start has ended: the answer runs at full speed now, or is over.
    pub(crate) fn ramp_is_over(&self, live: &Session) -> bool {
        let is_over = |answer: &Answer| answer.finished.is_some() || answer.rounds.len() >= RAMP_ROUNDS;
        let began = answer(live).filter(|answer| !answer.rounds.is_empty());
        self.clock.pace == Pace::Ramp && !self.requests.is_awaiting(live) && began.is_some_and(is_over)
    }
}
