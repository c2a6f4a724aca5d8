//! The gate of a source: a pause closes it, a step opens it until the step ends.
//!
//! Invariant: every requested step is taken, one after the other. A pause or a resume drops the waiting steps. The
//! source reports where phases and rounds end.

use std::collections::VecDeque;

/// Most steps that wait after the current one. Further ones are dropped, so that the steps of a repeating key end soon
/// after its release.
const MAX_STEPS: usize = 32;

/// How far a closed gate opens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// To the end of a phase.
    Phase,
    /// To the end of a round.
    Round,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Open,
    Closed,
    /// Until the step ends, then closed.
    Step(Step),
}

/// Stops a source while closed; open at first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gate {
    state: State,
    /// Steps requested during the current one.
    waiting: VecDeque<Step>,
}

impl Gate {
    /// Whether it is open without a step.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.state == State::Open
    }

    /// Whether the source must wait.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.state == State::Closed
    }

    /// Closes it. Returns whether it was open.
    pub fn close(&mut self) -> bool {
        self.set(State::Closed)
    }

    /// Opens it. Returns whether it was not open.
    pub fn open(&mut self) -> bool {
        !self.set(State::Open)
    }

    /// Starts a step, or lets it wait for the current one. Returns whether the gate was open.
    pub fn step(&mut self, step: Step) -> bool {
        if !matches!(self.state, State::Step(_)) {
            return self.set(State::Step(step));
        }
        if self.waiting.len() < MAX_STEPS {
            self.waiting.push_back(step);
        }
        false
    }

    /// Ends the current step if `ends` says so, and starts the next one.
    pub fn end(&mut self, ends: impl Fn(Step) -> bool) {
        if matches!(self.state, State::Step(step) if ends(step)) {
            self.state = self.waiting.pop_front().map_or(State::Closed, State::Step);
        }
    }

    /// Drops the waiting steps, since their answer is over.
    pub fn forget(&mut self) {
        self.waiting.clear();
    }

    /// Changes the state and drops the waiting steps. Returns whether it was open.
    fn set(&mut self, state: State) -> bool {
        self.waiting.clear();
        std::mem::replace(&mut self.state, state) == State::Open
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Number of phases until it closes; every third one ends a round.
    fn passed(gate: &mut Gate) -> usize {
        let mut phases = 0;
        while !gate.is_closed() {
            phases += 1;
            gate.end(|step| step == Step::Phase || phases % 3 == 0);
        }
        phases
    }

    #[test]
    fn every_step_counts_even_if_several_come_at_once() {
        let mut gate = Gate::default();
        assert!(gate.close() && !gate.close());
        for (steps, phases) in [
            (vec![Step::Round, Step::Round], 6),
            (vec![Step::Phase, Step::Phase, Step::Phase], 3),
            (vec![Step::Phase, Step::Round, Step::Phase], 4),
        ] {
            assert!(steps.into_iter().all(|step| !gate.step(step)));
            assert_eq!(passed(&mut gate), phases);
        }
    }

    #[test]
    fn a_pause_or_a_resume_drops_the_waiting_steps() {
        let mut gate = Gate::default();
        assert!(gate.step(Step::Round), "it was open");
        for opens in [false, true] {
            assert!((0..100).all(|_| !gate.step(Step::Round)));
            assert_eq!(gate.waiting.len(), MAX_STEPS);
            assert_eq!(if opens { gate.open() } else { gate.close() }, opens);
            assert_eq!((gate.is_open(), gate.waiting.len()), (opens, 0));
            gate.step(Step::Round);
        }
    }
}
