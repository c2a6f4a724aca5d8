//! The gate that a pause closes and that a step opens for a while.
//!
//! Invariant: every step that is asked for is taken, one after the other; a pause and a resume forget
//! those that wait. What a phase and a round are is told by whoever passes through.

use std::collections::VecDeque;

/// Steps that may wait behind the one under way; more are dropped, so that a held key ends soon.
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

/// Holds what goes on behind it; open at first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gate {
    state: State,
    /// Asked for while a step was under way.
    waiting: VecDeque<Step>,
}

impl Gate {
    /// Whether nothing holds.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.state == State::Open
    }

    /// Whether nothing may pass.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.state == State::Closed
    }

    /// Closes it; whether it was open.
    pub fn close(&mut self) -> bool {
        self.set(State::Closed)
    }

    /// Opens it; whether it was not.
    pub fn open(&mut self) -> bool {
        !self.set(State::Open)
    }

    /// Takes a step, or has it wait for the one under way; whether the gate was open.
    pub fn step(&mut self, step: Step) -> bool {
        if !matches!(self.state, State::Step(_)) {
            return self.set(State::Step(step));
        }
        if self.waiting.len() < MAX_STEPS {
            self.waiting.push_back(step);
        }
        false
    }

    /// A step that ends here gives way to the next one.
    pub fn end(&mut self, ends: impl Fn(Step) -> bool) {
        if matches!(self.state, State::Step(step) if ends(step)) {
            self.state = self.waiting.pop_front().map_or(State::Closed, State::Step);
        }
    }

    /// Forgets the steps that wait: what they were asked of is over.
    pub fn forget(&mut self) {
        self.waiting.clear();
    }

    /// Whether it was open.
    fn set(&mut self, state: State) -> bool {
        self.waiting.clear();
        std::mem::replace(&mut self.state, state) == State::Open
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many phases pass before it holds; every third ends a round.
    fn passed(gate: &mut Gate) -> usize {
        let mut phases = 0;
        while !gate.is_closed() {
            phases += 1;
            gate.end(|step| step == Step::Phase || phases % 3 == 0);
        }
        phases
    }

    #[test]
    fn every_step_counts_however_quickly_they_come() {
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
    fn a_pause_or_a_resume_forgets_the_steps_that_wait() {
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
