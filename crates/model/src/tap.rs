//! Which hidden states the passes of a target return.
//!
//! Invariant: a row has the states in the order of the [`Tap`], `d` values each. Several drafters may read
//! different states of one target.

use crate::error::ModelError;
use crate::rows::Rows;
use draftscope_protocol::Feed;

/// A hidden state of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// After the final norm: the input of the output head.
    Normed,
    /// The residual stream before the final norm.
    Residual,
    /// The residual stream after this many blocks; 0 is the embedding.
    Behind(usize),
}

/// The states that a row has, side by side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tap(Vec<State>);

impl Default for Tap {
    /// Only the normed state.
    fn default() -> Self {
        Self(vec![State::Normed])
    }
}

impl Tap {
    /// These states, in this order.
    #[must_use]
    pub fn new(states: Vec<State>) -> Self {
        Self(states)
    }

    /// The state that a module with this feed reads; a module that fuses layers adds its own.
    #[must_use]
    pub fn fed(feed: Feed) -> Self {
        match feed {
            Feed::PreNorm => Self(vec![State::Residual]),
            Feed::PostNorm | Feed::Layers => Self::default(),
        }
    }

    /// These states, and one after each of these numbers of blocks.
    #[must_use]
    pub fn and_behind(&self, blocks: &[usize]) -> Self {
        Self(self.0.iter().copied().chain(blocks.iter().map(|blocks| State::Behind(*blocks))).collect())
    }

    /// No state, for drafters that read none.
    #[must_use]
    pub fn none() -> Self {
        Self(Vec::new())
    }

    /// The states.
    #[must_use]
    pub fn states(&self) -> &[State] {
        &self.0
    }

    /// Whether it is only the normed state.
    #[must_use]
    pub fn is_default(&self) -> bool {
        self.0 == [State::Normed]
    }

    /// Adds the states of another tap that are missing here.
    pub fn join(&mut self, other: &Self) {
        for state in &other.0 {
            if !self.0.contains(state) {
                self.0.push(*state);
            }
        }
    }

    /// Takes the states of `self` from rows with the states of `all`; `None` if one is missing.
    #[must_use]
    pub fn pick(&self, all: &Self, rows: &Rows) -> Option<Rows> {
        if self == all || self.0.is_empty() || rows.is_empty() {
            return Some(rows.clone());
        }
        let places = self.0.iter().map(|state| all.0.iter().position(|other| other == state));
        let places: Vec<usize> = places.collect::<Option<_>>()?;
        let d = rows.width() / all.0.len();
        let values = rows.iter().flat_map(|row| places.iter().flat_map(move |place| &row[place * d..][..d]));
        Some(Rows::new(values.copied().collect(), d * places.len()))
    }

    /// For each state the number of blocks after which it is read; `None` for the normed one.
    ///
    /// # Errors
    /// [`ModelError::Unsupported`] if there are fewer `layers`, or if the tap has no state.
    pub fn places(&self, layers: usize) -> Result<Vec<Option<usize>>, ModelError> {
        if self.0.is_empty() {
            return Err(ModelError::Unsupported("a pass that returns no hidden state is not supported".into()));
        }
        let place = |state: &State| match *state {
            State::Normed => Ok(None),
            State::Residual => Ok(Some(layers)),
            State::Behind(blocks) if blocks <= layers => Ok(Some(blocks)),
            State::Behind(blocks) => Err(ModelError::Unsupported(format!(
                "the drafter reads the state after block {blocks}, but the target has {layers} blocks; it was made for another target"
            ))),
        };
        self.0.iter().map(place).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_drafter_gets_its_own_states() {
        let mut all = Tap::default();
        let three = Tap::new(vec![State::Behind(2), State::Residual, State::Normed]);
        all.join(&three);
        assert_eq!(all.states(), [State::Normed, State::Behind(2), State::Residual]);
        let rows = Rows::new((0..12u8).map(f32::from).collect(), 6); // two rows of three states of two values
        let got = three.pick(&all, &rows).unwrap();
        assert_eq!(got.row(1), [8.0, 9.0, 10.0, 11.0, 6.0, 7.0]);
        assert_eq!(Tap::default().pick(&all, &rows).unwrap().as_slice(), [0.0, 1.0, 6.0, 7.0]);
        assert_eq!(Tap::none().pick(&all, &rows).unwrap(), rows);
        assert_eq!(Tap::new(vec![State::Behind(1)]).pick(&all, &rows), None);
        assert_eq!(three.places(2).unwrap(), [Some(2), Some(2), None]);
        assert!(three.places(1).unwrap_err().to_string().contains("after block 2, but the target has 1"));
    }
}
