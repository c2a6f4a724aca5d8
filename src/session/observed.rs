//! What passes cost in this very session: medians over the rounds that were told.
//!
//! Invariant: every figure is the median of measured rounds and says how many there were; a width
//! that did not occur has none, and nothing is put between two widths.

use crate::protocol::Lane;

use super::Session;

/// Newest rounds of each lane that are looked at.
const WINDOW: usize = 512;

/// Median cost of one thing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Median {
    /// Microseconds.
    pub us: f64,
    /// Over so many measurements.
    pub count: usize,
}

/// Costs of a session's newest rounds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Observed {
    /// T(m): the target's pass over m rows; index 0 is one row. None where no round had m rows.
    pub verify: Vec<Option<Median>>,
    /// One drafted token.
    pub draft: Option<Median>,
}

impl Observed {
    /// Of the newest rounds of both lanes.
    #[must_use]
    pub fn of(session: &Session) -> Self {
        let (mut verify, mut draft): (Vec<Vec<u64>>, Vec<u64>) = (Vec::new(), Vec::new());
        for lane in [Lane::Speculative, Lane::Plain] {
            let turns = session.turns().iter().rev();
            let rounds = turns.flat_map(|turn| turn.answer(lane).rounds.iter().rev());
            for round in rounds.filter(|round| round.is_complete && !round.rows.is_empty()).take(WINDOW) {
                let rows = round.rows.len();
                if verify.len() < rows {
                    verify.resize_with(rows, Vec::new);
                }
                verify[rows - 1].push(round.verify_us);
                draft.extend(round.drafts.iter().map(|draft| draft.took_us));
            }
        }
        Self { verify: verify.into_iter().map(median).collect(), draft: median(draft) }
    }

    /// T(m), if a round had m rows.
    #[must_use]
    pub fn rows(&self, rows: usize) -> Option<Median> {
        *self.verify.get(rows.checked_sub(1)?)?
    }

    /// T(m) ÷ T(1).
    #[must_use]
    pub fn ratio(&self, rows: usize) -> Option<f64> {
        Some(self.rows(rows)?.us / self.rows(1)?.us)
    }
}

fn median(mut values: Vec<u64>) -> Option<Median> {
    values.sort_unstable();
    let middle = values.get(values.len() / 2).filter(|us| **us > 0)?;
    Some(Median { us: *middle as f64, count: values.len() })
}

#[cfg(test)]
mod tests {
    use super::super::fixture::first_turn;
    use super::super::tests::fold;
    use super::*;

    #[test]
    fn costs_are_medians_of_what_occurred() {
        let observed = Observed::of(&fold(&first_turn().events));
        assert_eq!(observed.rows(4), Some(Median { us: 13_500.0, count: 7 }));
        assert_eq!(observed.rows(2), None);
        assert_eq!(observed.rows(0), None);
        assert_eq!(observed.ratio(4), Some(1.25));
        assert_eq!(observed.draft, Some(Median { us: 900.0, count: 21 }));
        assert_eq!(Observed::of(&Session::new()), Observed::default());
    }
}
