//! When the turns of a run begin and end: what lies between two of them is idle.

use std::ops::Range;

/// Turns whose times are kept: far more than people type.
const MAX_TURNS: usize = 1 << 16;

/// What an event says about the extent of its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TurnEdge {
    /// It begins one.
    Begins,
    /// It lasts at least until here.
    Lasts,
}

impl TurnEdge {
    /// Of an event by its name in a trace.
    #[must_use]
    pub fn of_name(kind: &str) -> Option<Self> {
        match kind {
            "prompted" => Some(Self::Begins),
            "prefilled" | "committed" | "finished" => Some(Self::Lasts),
            _ => None,
        }
    }
}

/// The times of turns, oldest first, in microseconds as events count them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TurnTimes(Vec<(u64, u64)>);

impl TurnTimes {
    /// Takes an event; whether it began a turn.
    pub fn add(&mut self, edge: TurnEdge, at_us: u64) -> bool {
        if edge == TurnEdge::Begins && self.0.len() < MAX_TURNS {
            self.0.push((at_us, at_us));
            return true;
        }
        if let Some((start, end)) = self.0.last_mut() {
            *end = at_us.max(*start);
        }
        false
    }

    /// When a turn, by its index, began and ended.
    #[must_use]
    pub fn get(&self, index: usize) -> Option<Range<u64>> {
        self.0.get(index).map(|(start, end)| *start..*end)
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_between_two_turns_belongs_to_neither() {
        let mut times = TurnTimes::default();
        times.add(TurnEdge::Lasts, 3); // before the first turn
        for (edge, at_us) in
            [(TurnEdge::Begins, 5), (TurnEdge::Lasts, 9), (TurnEdge::Begins, 100), (TurnEdge::Lasts, 90)]
        {
            times.add(edge, at_us);
        }
        assert_eq!([0, 1, 2].map(|at| times.get(at)), [Some(5..9), Some(100..100), None]);
        assert_eq!((times.len(), times.is_empty()), (2, false));
    }
}
