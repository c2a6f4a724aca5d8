//! Recurrent states of past positions, so that rejected rows can be rolled back.
//!
//! A state cannot be cut like a KV cache: either a copy is stored after each of the last rows, or those rows' inputs,
//! from which the states are recomputed. Invariant: [`History::rewindable`] returns lengths whose states
//! [`History::at`] gives to the bit, as if only so many tokens had ever run.

use std::sync::Arc;

use super::delta_state::{DeltaInput, DeltaLayers, DeltaState};
use crate::options::Rollback;

/// Most rows that can be rolled back: a verify pass, and one more.
pub(crate) const KEPT_ROWS: usize = 17;

/// States of all linear layers.
pub(crate) type States = Vec<Arc<DeltaState>>;

/// One row: its inputs, or the states after it.
#[derive(Clone)]
pub(crate) enum Step {
    States(States),
    Inputs(Arc<[DeltaInput]>),
}

/// A length and its states, and the rows after it.
#[derive(Clone)]
pub(crate) struct History {
    rollback: Rollback,
    base: usize,
    states: States,
    steps: Vec<Step>,
    /// Near the ends of the last prompts: where a conversation that continues differently returns to.
    marks: Vec<(usize, States)>,
}

/// Most marks.
pub(crate) const MARKS: usize = 4;

impl History {
    pub(crate) fn new(rollback: Rollback, states: States) -> Self {
        Self { rollback, base: 0, states, steps: Vec::new(), marks: Vec::new() }
    }

    pub(crate) fn rollback(&self) -> Rollback {
        self.rollback
    }

    /// Begins a pass at `len` with these states; older rows are dropped. Of passes of one row each, which may be a
    /// verification row by row, the newest rows are kept.
    pub(crate) fn begin(&mut self, len: usize, states: &States, rows: usize, layers: DeltaLayers<'_>) {
        if rows == 1 && len == self.base + self.steps.len() {
            if self.steps.len() < KEPT_ROWS {
                return;
            }
            if let Some(next) = self.at(self.base + 1, layers) {
                (self.base, self.states) = (self.base + 1, next);
                self.steps.remove(0);
                return;
            }
        }
        (self.base, self.states) = (len, states.clone());
        self.steps.clear();
    }

    /// Adds a row.
    pub(crate) fn push(&mut self, step: Step) {
        self.steps.push(step);
    }

    /// A prompt ended at `len`: only marks and the start can be returned to before it.
    pub(crate) fn restart(&mut self, len: usize, states: &States) {
        (self.base, self.states) = (len, states.clone());
        self.steps.clear();
    }

    /// Keeps the states at `len` until the text before it changes, or newer marks replace them.
    pub(crate) fn mark(&mut self, len: usize, states: States) {
        if len > 0 && self.marks.iter().all(|(at, _)| *at != len) {
            self.marks.push((len, states));
        }
        if self.marks.len() > MARKS {
            self.marks.remove(0);
        }
    }

    /// The longest length up to `len` whose states are known; 0 always is.
    pub(crate) fn rewindable(&self, len: usize) -> usize {
        let end = self.base + self.steps.len();
        let marked = self.marks.iter().map(|(at, _)| *at).filter(|at| *at <= len).max();
        if len >= self.base { len.min(end) } else { marked.unwrap_or(0) }
    }

    /// States at `len`; `None` if they are not known, or at the start.
    pub(crate) fn at(&self, len: usize, layers: DeltaLayers<'_>) -> Option<States> {
        if let Some((_, states)) = self.marks.iter().find(|(at, _)| *at == len) {
            return Some(states.clone());
        }
        let rows = len.checked_sub(self.base).filter(|rows| *rows <= self.steps.len())?;
        let steps = &self.steps[..rows];
        match steps.last() {
            None => Some(self.states.clone()),
            Some(Step::States(states)) => Some(states.clone()),
            Some(Step::Inputs(_)) => {
                let states = self.states.iter().zip(layers.weights).enumerate();
                let inputs = |layer: usize| {
                    steps.iter().filter_map(move |step| match step {
                        Step::Inputs(inputs) => inputs.get(layer),
                        Step::States(_) => None,
                    })
                };
                Some(states.map(|(layer, (from, weights))| weights.replay(from, inputs(layer), layers.run)).collect())
            }
        }
    }

    /// Drops positions after `len`; copies of states before `since` are not needed any more.
    pub(crate) fn cut(&mut self, len: usize, since: usize, states: &States) {
        if len < self.base || len > self.base + self.steps.len() {
            (self.base, self.states) = (len, states.clone());
            self.steps.clear();
        }
        self.steps.truncate(len - self.base);
        self.marks.retain(|(at, _)| *at <= len);
        let old = since.min(len).saturating_sub(self.base);
        if let Some(Step::States(states)) = old.checked_sub(1).and_then(|last| self.steps.get(last)) {
            self.states = states.clone();
            self.steps.drain(..old);
            self.base += old;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::native::delta_state::DeltaWeights;
    use crate::plan::{DeltaShape, HeadOrder};
    use draftscope_kernels::{DeltaHead, Isa};

    const SHAPE: DeltaShape = DeltaShape { key_heads: 1, value_heads: 1, key_dim: 2, value_dim: 2, kernel: 3 };

    fn weights() -> DeltaWeights {
        DeltaWeights {
            shape: SHAPE,
            order: HeadOrder::Grouped,
            taps: (0..3 * SHAPE.channels()).map(|i| (i % 5) as f32 / 4.0 - 0.3).collect(),
            decay: vec![-0.5],
            dt_bias: vec![0.1],
            norm: vec![1.0; 2],
            eps: 1e-6,
            spare: Arc::default(),
        }
    }

    fn run(heads: &mut [DeltaHead<'_>]) {
        heads.iter_mut().for_each(|head| head.run_on(Isa::detect()));
    }

    fn input(position: usize) -> DeltaInput {
        let mixed = (0..SHAPE.channels()).map(|i| ((position * 7 + i * 3) % 11) as f32 / 5.0 - 1.0).collect();
        DeltaInput { mixed, alpha: vec![0.2], beta: vec![position as f32 / 9.0] }
    }

    #[test]
    fn rows_that_run_one_by_one_can_be_taken_back_as_far_as_a_pass() {
        let weights = weights();
        let layers = DeltaLayers { weights: &[&weights], run: &run };
        let fresh = Arc::new(DeltaState::new(&SHAPE));
        for rollback in [Rollback::Snapshots, Rollback::Replay] {
            let mut states = vec![Arc::clone(&fresh)];
            let mut history = History::new(rollback, states.clone());
            for len in 0..40 {
                history.begin(len, &states, 1, layers);
                states = vec![weights.replay(&states[0], std::iter::once(&input(len)), &run)];
                history.push(match rollback {
                    Rollback::Snapshots => Step::States(states.clone()),
                    Rollback::Replay => Step::Inputs([input(len)].into()),
                });
                for back in 0..KEPT_ROWS.min(len + 1) {
                    let kept = len + 1 - back;
                    let inputs: Vec<DeltaInput> = (0..kept).map(input).collect();
                    assert_eq!(history.rewindable(kept), kept, "{rollback:?} at {len}, {back} back");
                    assert_eq!(history.at(kept, layers).unwrap(), [weights.replay(&fresh, inputs.iter(), &run)]);
                }
            }
        }
    }

    /// Rounds of several rows of which some are kept, against the states of the kept tokens alone.
    #[test]
    fn kept_lengths_have_the_bits_of_their_tokens_and_old_copies_go() {
        let weights = weights();
        let layers = DeltaLayers { weights: &[&weights], run: &run };
        let fresh = Arc::new(DeltaState::new(&SHAPE));
        for rollback in [Rollback::Snapshots, Rollback::Replay] {
            let (mut len, mut states) = (0, vec![Arc::clone(&fresh)]);
            let mut history = History::new(rollback, states.clone());
            for (rows, keep) in [(4, 1), (1, 1), (1, 1), (6, 6), (3, 2), (1, 1), (5, 3)] {
                history.begin(len, &states, rows, layers);
                for row in 0..rows {
                    states = vec![weights.replay(&states[0], std::iter::once(&input(len + row)), &run)];
                    history.push(match rollback {
                        Rollback::Snapshots => Step::States(states.clone()),
                        Rollback::Replay => Step::Inputs([input(len + row)].into()),
                    });
                }
                for kept in 0..=rows {
                    let inputs: Vec<DeltaInput> = (0..len + kept).map(input).collect();
                    let want = weights.replay(&fresh, inputs.iter(), &run);
                    assert_eq!(history.rewindable(len + kept), len + kept);
                    assert_eq!(history.at(len + kept, layers).unwrap(), [want], "{rollback:?}");
                }
                states = history.at(len + keep, layers).unwrap();
                history.cut(len + keep, len, &states);
                len += keep;
                let copies = history.steps.iter().filter(|step| matches!(step, Step::States(_))).count();
                assert!(copies <= rows && history.steps.len() <= KEPT_ROWS);
            }
            assert_eq!(history.rewindable(1), 0);
        }
    }
}
