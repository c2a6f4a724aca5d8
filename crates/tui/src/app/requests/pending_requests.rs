//! Requests that the engine has not answered yet: it listens only between two phases, and a phase may take long.
//!
//! Invariant: keys mean what they would mean if the engine had answered at once.

use draftscope_protocol::{Command, Event, EventKind, Lane};
use draftscope_session::{Session, Stop};

/// Requests under way.
#[derive(Debug, Default)]
pub(crate) struct PendingRequests {
    /// Whether it is asked to pause; `None` after it has reported so.
    holds: Option<bool>,
    /// A phase of a slow pace was requested and has not ended.
    phase: bool,
}

impl PendingRequests {
    /// Remembers a command that is sent.
    pub(crate) fn note(&mut self, command: &Command) {
        match command {
            Command::Pause | Command::StepRound => self.holds = Some(true),
            Command::StepPhase => (self.holds, self.phase) = (Some(true), true),
            Command::Resume | Command::Stop => *self = Self { holds: Some(false), phase: false },
            _ => {}
        }
    }

    /// Handles an event of the engine.
    pub(crate) fn on_event(&mut self, event: &Event) {
        match event.kind {
            EventKind::Started { .. } => *self = Self::default(),
            EventKind::Paused | EventKind::Resumed => self.holds = None,
            _ => {}
        }
        self.phase &= !Stop::Phase.is_at(event);
    }

    /// Handles the state of the session: no phase of a finished answer will end.
    pub(crate) fn look(&mut self, live: &Session) {
        let is_over = live.turn().is_some_and(|turn| turn.answer(Lane::Speculative).finished.is_some());
        self.phase &= !is_over;
    }

    /// Whether the engine is paused, or will be as soon as it listens.
    pub(crate) fn is_held(&self, live: &Session) -> bool {
        self.holds.unwrap_or(live.is_paused())
    }

    /// Whether the phase requested last is still running.
    pub(crate) fn awaits_phase(&self) -> bool {
        self.phase
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use draftscope_session::fixture::first_turn;

    #[test]
    fn a_phase_is_awaited_until_one_of_the_run_s_own_lane_ends() {
        let (mut asked, mut session) = (PendingRequests::default(), Session::new());
        let (mut ended, mut beside) = (0, 0);
        for event in first_turn().events {
            asked.note(&Command::StepPhase);
            asked.on_event(&event);
            session.apply(&event);
            asked.look(&session);
            let is_over = session.turn().is_some_and(|turn| turn.answer(Lane::Speculative).finished.is_some());
            match (event.lane, &event.kind) {
                _ if is_over => assert!(!asked.awaits_phase(), "nobody is left to end one"),
                (Lane::Speculative, EventKind::Drafted(_) | EventKind::Committed(_)) => {
                    assert!(!asked.awaits_phase());
                    ended += 1;
                }
                (Lane::Plain, EventKind::Scored(_)) => {
                    assert!(asked.awaits_phase(), "another lane's phase is not the one that was asked for");
                    beside += 1;
                }
                _ => {}
            }
        }
        assert!(ended > 3 && beside > 0, "{ended} {beside}");
    }

    #[test]
    fn what_was_asked_holds_until_the_engine_says_so_itself() {
        let (mut asked, mut session) = (PendingRequests::default(), Session::new());
        assert!(!asked.is_held(&session));
        asked.note(&Command::Pause);
        assert!(asked.is_held(&session), "not yet, but soon");
        asked.note(&Command::Resume);
        assert!(!asked.is_held(&session));
        asked.note(&Command::StepRound);
        let paused = Event { seq: 0, at_us: 0, lane: Lane::Speculative, kind: EventKind::Paused };
        session.apply(&paused);
        asked.on_event(&paused);
        assert!(asked.holds.is_none() && asked.is_held(&session));
    }
}
