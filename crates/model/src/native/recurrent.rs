//! The recurrent layers of one sequence: their present states, and what is kept so that rows can be rolled back.
//!
//! Invariant: between calls every state is that after as many tokens as the sequence has.

use std::ops::Range;
use std::sync::Arc;

use super::delta_state::{DeltaInput, DeltaLayers, DeltaState, DeltaWeights, RunHeads};
use super::history::{History, KEPT_ROWS, States, Step};
use crate::LogitRows;
use crate::options::Rollback;
use crate::plan::DeltaShape;

/// Rows before a prompt's end at which states are stored.
pub(crate) const TAIL_ROWS: usize = 16;

/// What a pass keeps of its rows, so that a state between them can be returned to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Keep {
    /// The state after each row.
    #[default]
    Each,
    /// The inputs of each row, and the last state.
    Inputs,
    /// The states before and after the last row.
    Ends,
}

/// What is kept of one layer in a pass.
#[derive(Clone, Debug, Default)]
pub(crate) struct DeltaRows {
    pub(crate) inputs: Vec<DeltaInput>,
    /// The last one is that after all rows.
    pub(crate) states: Vec<Arc<DeltaState>>,
}

impl DeltaWeights {
    /// Runs rows after `before`: their results `[m][value width]`, and what is kept of them.
    pub(crate) fn run(
        &self,
        before: &Arc<DeltaState>,
        (inputs, gates): (Vec<DeltaInput>, &[&[f32]]),
        keep: Keep,
        run: RunHeads<'_>,
    ) -> (Vec<f32>, DeltaRows) {
        let m = inputs.len();
        let marks: Vec<usize> = match keep {
            Keep::Each => (0..m).collect(),
            Keep::Inputs => vec![m - 1],
            Keep::Ends => (m.saturating_sub(2)..m).collect(),
        };
        let (out, after) = self.pass(before, (&inputs.iter().collect::<Vec<_>>(), gates), &marks, run);
        let alone = (keep == Keep::Ends && m == 1).then(|| Arc::clone(before));
        let states = alone.into_iter().chain(after.into_iter().map(Arc::new)).collect();
        let inputs = if keep == Keep::Inputs { inputs } else { Vec::new() };
        (out, DeltaRows { inputs, states })
    }
}

/// A layer in a pass.
#[derive(Debug)]
pub(crate) struct Recurrence<'a> {
    pub(super) state: &'a mut Arc<DeltaState>,
    /// What is kept of the pass's rows.
    pub(super) rows: &'a mut DeltaRows,
    pub(super) keep: Keep,
}

impl Recurrence<'_> {
    /// Runs rows, whose last state is then the layer's: their results `[m][value width]`.
    pub(crate) fn run(self, weights: &DeltaWeights, rows: (Vec<DeltaInput>, &[&[f32]]), run: RunHeads<'_>) -> Vec<f32> {
        let (answers, rows) = weights.run(self.state, rows, self.keep, run);
        if let Some(last) = rows.states.last() {
            *self.state = Arc::clone(last);
        }
        *self.rows = rows;
        answers
    }
}

/// A call, which may consist of several passes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Call {
    /// Length at its beginning.
    first: usize,
    tokens: usize,
    is_prompt: bool,
    keep: Keep,
    /// Tokens after which states are stored; 0: at the ends only.
    tail: usize,
}

impl Call {
    /// The tokens of each pass of at most so many rows.
    pub(crate) fn passes(self, rows: usize) -> impl Iterator<Item = Range<usize>> {
        let cut = move |from: usize, to: usize| (from..to).step_by(rows).map(move |at| at..to.min(at + rows));
        cut(0, self.tail).chain(cut(self.tail, self.tokens))
    }
}

/// All recurrent layers of a sequence.
#[derive(Clone)]
pub(crate) struct Recurrent {
    shapes: Vec<DeltaShape>,
    states: States,
    /// Of the last pass.
    rows: Vec<DeltaRows>,
    history: History,
}

impl std::fmt::Debug for Recurrent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Recurrent").field("shapes", &self.shapes).finish_non_exhaustive()
    }
}

impl Recurrent {
    /// Before the first token.
    pub(crate) fn new(shapes: Vec<DeltaShape>, rollback: Rollback) -> Self {
        let states = fresh(&shapes);
        let rows = vec![DeltaRows::default(); shapes.len()];
        Self { shapes, history: History::new(rollback, states.clone()), states, rows }
    }

    /// The same layers before the first token, rolled back in another way.
    pub(crate) fn restarted(&self, rollback: Rollback) -> Self {
        Self::new(self.shapes.clone(), rollback)
    }

    /// Whether the model has no such layers.
    pub(crate) fn is_empty(&self) -> bool {
        self.shapes.is_empty()
    }

    /// Bytes of all states.
    pub(crate) fn state_bytes(&self) -> u64 {
        self.shapes.iter().map(DeltaShape::state_bytes).sum()
    }

    /// Bytes kept of each row that may be rolled back.
    pub(crate) fn kept_bytes(&self) -> u64 {
        match self.history.rollback() {
            Rollback::Snapshots => self.state_bytes(),
            Rollback::Replay => self.shapes.iter().map(DeltaShape::input_bytes).sum(),
        }
    }

    /// The layers in a pass, in order.
    pub(crate) fn layers(&mut self, call: Call) -> impl Iterator<Item = Recurrence<'_>> {
        let layers = self.states.iter_mut().zip(&mut self.rows);
        layers.map(move |(state, rows)| Recurrence { state, rows, keep: call.keep })
    }

    /// A copy to return to after a pass that failed at this length: earlier rows are not kept, which a long prompt would
    /// otherwise hold in memory.
    pub(crate) fn before_pass(&self, len: usize) -> Self {
        let mut copy = self.clone();
        copy.history.restart(len, &copy.states);
        copy
    }

    /// Begins to run so many tokens at this length.
    pub(crate) fn begin(&mut self, first: usize, (tokens, rows): (usize, LogitRows), layers: DeltaLayers<'_>) -> Call {
        let plain = Call { first, tokens, ..Call::default() };
        if self.is_empty() {
            return plain;
        }
        let few = tokens < KEPT_ROWS;
        let is_prompt = rows == LogitRows::Last && !few;
        self.history.begin(first, &self.states, tokens, layers);
        Call {
            is_prompt,
            keep: match self.history.rollback() {
                _ if !few => Keep::Ends,
                Rollback::Snapshots => Keep::Each,
                Rollback::Replay => Keep::Inputs,
            },
            // the next prompt of a conversation often differs from this one where the answer begins
            tail: if is_prompt && tokens > 2 * TAIL_ROWS { tokens - TAIL_ROWS } else { 0 },
            ..plain
        }
    }

    /// Stores what a pass over these tokens of the call left.
    pub(crate) fn end_pass(&mut self, call: Call, tokens: &Range<usize>) {
        if self.is_empty() {
            return;
        }
        let len = call.first + tokens.end;
        if call.keep != Keep::Ends {
            (0..tokens.len()).for_each(|row| self.remember(row));
        } else if tokens.end == call.tail {
            self.history.mark(len, self.states.clone());
        } else if tokens.end == call.tokens {
            if call.is_prompt {
                let before_last = self.rows.iter().filter_map(|rows| rows.states.iter().rev().nth(1).cloned());
                self.history.mark(len - 1, before_last.collect());
            }
            self.history.restart(len, &self.states);
        }
        self.rows.fill_with(DeltaRows::default);
    }

    /// Stores what is needed to return to a row of the last pass.
    fn remember(&mut self, row: usize) {
        let rows = self.rows.iter();
        self.history.push(match self.history.rollback() {
            Rollback::Snapshots => Step::States(rows.filter_map(|rows| rows.states.get(row).cloned()).collect()),
            Rollback::Replay => Step::Inputs(rows.filter_map(|rows| rows.inputs.get(row).cloned()).collect()),
        });
    }

    /// As [`Model::rewindable`](crate::Model::rewindable), of a sequence with these layers and `have` positions.
    pub(crate) fn rewindable(&self, len: usize, have: usize) -> usize {
        if self.is_empty() || len >= have { len.min(have) } else { self.history.rewindable(len) }
    }

    /// Returns from `have` positions to `len`; copies of states before `since` are not needed any more. `None` if the
    /// states at `len` are not known; nothing has changed then.
    pub(crate) fn cut(&mut self, (len, have): (usize, usize), since: usize, layers: DeltaLayers<'_>) -> Option<()> {
        if self.is_empty() {
            return Some(());
        }
        let states = match len {
            _ if len == have => self.states.clone(),
            0 => fresh(&self.shapes),
            _ => self.history.at(len, layers)?,
        };
        self.history.cut(len, since, &states);
        self.states = states;
        Some(())
    }
}

/// States before the first token.
fn fresh(shapes: &[DeltaShape]) -> States {
    shapes.iter().map(|shape| Arc::new(DeltaState::new(shape))).collect()
}
