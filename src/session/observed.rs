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
    /// T(m) ÷ T(1) by index as above, both of one turn, the newest that had both: from one turn to another the
    /// machine changes.
    ratios: Vec<Option<f64>>,
    /// One drafted token.
    pub draft: Option<Median>,
}

impl Observed {
    /// Of the newest rounds of both lanes.
    #[must_use]
    pub fn of(session: &Session) -> Self {
        let (mut verify, mut draft, mut ratios): (Vec<Vec<u64>>, Vec<u64>, Vec<_>) = Default::default();
        let mut left = [WINDOW; 2];
        for turn in session.turns().iter().rev() {
            if left == [0; 2] {
                break;
            }
            let mut here: Vec<Vec<u64>> = Vec::new();
            for (lane, left) in [Lane::Speculative, Lane::Plain].into_iter().zip(&mut left) {
                let rounds = turn.answer(lane).rounds.iter().rev().filter(|r| r.is_complete && !r.rows.is_empty());
                for round in rounds.take(*left) {
                    *left -= 1;
                    let rows = round.rows.len();
                    here.resize_with(rows.max(here.len()), Vec::new);
                    here[rows - 1].push(round.verify_us);
                    draft.extend(round.drafts.iter().map(|draft| draft.took_us));
                }
            }
            verify.resize_with(here.len().max(verify.len()), Vec::new);
            ratios.resize(verify.len(), None);
            let one = here.first().and_then(|times| median(times.clone()));
            for (rows, times) in here.into_iter().enumerate() {
                let ratio = one.zip(median(times.clone())).map(|(one, median)| median.us / one.us);
                ratios[rows] = ratios[rows].or(ratio);
                verify[rows].extend(times);
            }
        }
        Self { verify: verify.into_iter().map(median).collect(), ratios, draft: median(draft) }
    }

    /// T(m), if a round had m rows.
    #[must_use]
    pub fn rows(&self, rows: usize) -> Option<Median> {
        *self.verify.get(rows.checked_sub(1)?)?
    }

    /// T(m) ÷ T(1), if a turn had rounds of both.
    #[must_use]
    pub fn ratio(&self, rows: usize) -> Option<f64> {
        *self.ratios.get(rows.checked_sub(1)?)?
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
