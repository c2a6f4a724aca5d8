//! The cost model with its numbers on sliders.
//!
//! A round of k drafts yields E = 1 + a + … + a^k tokens, if each draft is accepted with probability a when all before
//! it were, and takes T(k + 1) + k · d; plain decoding takes T(1) for a token (Leviathan et al., arXiv:2211.17192,
//! section 3.3, with a measured T(m) in place of T(1)). All times are in units of T(1), and T(m) rises by the same
//! amount with every row.

use serde::{Deserialize, Serialize};

use draftscope_protocol::MAX_DRAFT_LEN;
use draftscope_session::account::{Account, tokens_at};

/// A slider.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Slider {
    /// a.
    Acceptance,
    /// k.
    K,
    /// What a further row adds to T(m).
    Row,
    /// d.
    Draft,
}

impl Slider {
    /// From top to bottom.
    pub const ALL: [Self; 4] = [Self::Acceptance, Self::K, Self::Row, Self::Draft];

    /// What it sets.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Acceptance => "acceptance a",
            Self::K => "drafts k",
            Self::Row => "a further row",
            Self::Draft => "a draft d",
        }
    }
}

/// The numbers of the model.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sliders {
    /// Probability that a draft is accepted when all before it were, 0 to 1.
    pub acceptance: f64,
    /// Drafts of a round, 1 to 15.
    pub k: u8,
    /// (T(m + 1) − T(m)) ÷ T(1), 0 to 1.
    pub row: f64,
    /// A draft ÷ T(1), 0 to 1.
    pub draft: f64,
}

impl Default for Sliders {
    fn default() -> Self {
        Self { acceptance: 0.7, k: 3, row: 0.1, draft: 0.1 }
    }
}

/// How far a slider moves at once.
const STEP: f64 = 0.01;

impl Sliders {
    /// E: mean tokens of a round.
    #[must_use]
    pub fn tokens(&self) -> f64 {
        tokens_at(self.k.into(), self.acceptance)
    }

    /// Time of a round in plain tokens.
    #[must_use]
    pub fn cost(&self) -> f64 {
        let k = f64::from(self.k);
        1.0 + k * self.row + k * self.draft
    }

    /// Tokens a second, compared with plain decoding.
    #[must_use]
    pub fn speedup(&self) -> f64 {
        self.tokens() / self.cost()
    }

    /// The value of a slider as a share of its range.
    #[must_use]
    pub fn share(&self, slider: Slider) -> f64 {
        match slider {
            Slider::Acceptance => self.acceptance,
            Slider::K => f64::from(self.k) / f64::from(MAX_DRAFT_LEN),
            Slider::Row => self.row,
            Slider::Draft => self.draft,
        }
    }

    /// As it is shown.
    #[must_use]
    pub fn shown(&self, slider: Slider) -> String {
        match slider {
            Slider::Acceptance => format!("{:.2}", self.acceptance),
            Slider::K => self.k.to_string(),
            Slider::Row => format!("{:.2} of T(1)", self.row),
            Slider::Draft => format!("{:.2} of T(1)", self.draft),
        }
    }

    /// Moves a slider by so many steps.
    pub fn turn(&mut self, slider: Slider, steps: i32) {
        let moved = |value: f64| ((value / STEP).round() * STEP + f64::from(steps) * STEP).clamp(0.0, 1.0);
        match slider {
            Slider::Acceptance => self.acceptance = moved(self.acceptance),
            Slider::K => self.k = (i32::from(self.k) + steps).clamp(1, MAX_DRAFT_LEN.into()) as u8,
            Slider::Row => self.row = moved(self.row),
            Slider::Draft => self.draft = moved(self.draft),
        }
    }

    /// The point of a measured run with k drafts; none where T(k + 1) was not measured. The acceptance is the one that
    /// gives the measured tokens per round.
    #[must_use]
    pub fn measured(account: &Account, k: u8, tokens: f64) -> Option<Self> {
        let one = account.costs.verify_us.first().copied().filter(|us| *us > 0.0)?;
        let all = account.costs.verify_us.get(usize::from(k)).filter(|_| k > 0)?;
        let draft_us = account.costs.drafting_us(k.into()) / f64::from(k);
        let mut point = Self { acceptance: 0.0, k, row: (all / one - 1.0) / f64::from(k), draft: draft_us / one };
        let (mut low, mut high) = (0.0, 1.0);
        for _ in 0..30 {
            point.acceptance = (low + high) / 2.0;
            if point.tokens() < tokens { low = point.acceptance } else { high = point.acceptance }
        }
        Some(point)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use draftscope_session::Session;
    use draftscope_session::fixture::first_turn;

    #[test]
    fn the_model_gives_what_the_formula_gives_by_hand() {
        let point = Sliders { acceptance: 0.6, k: 2, row: 0.2, draft: 0.05 };
        assert!((point.tokens() - 1.96).abs() < 1e-12);
        assert!((point.cost() - 1.5).abs() < 1e-12);
        assert!((point.speedup() - 1.96 / 1.5).abs() < 1e-12);
        let certain = Sliders { acceptance: 1.0, k: 4, row: 0.0, draft: 0.0 };
        assert_eq!((certain.tokens(), certain.speedup()), (5.0, 5.0));
    }

    #[test]
    fn sliders_stay_in_their_ranges() {
        let mut point = Sliders::default();
        for slider in Slider::ALL {
            point.turn(slider, 10_000);
            assert!((point.share(slider) - 1.0).abs() < 1e-9, "{slider:?}");
            point.turn(slider, -10_000);
        }
        assert_eq!((point.acceptance, point.k, point.row, point.draft), (0.0, 1, 0.0, 0.0));
    }

    #[test]
    fn the_measured_point_has_the_measured_numbers() {
        let mut session = Session::new();
        first_turn().events.iter().for_each(|event| session.apply(event));
        let account = Account::of_turn(session.turn().unwrap()).unwrap();
        let point = Sliders::measured(&account, 3, 2.5).unwrap();
        assert!((point.cost() - (1.25 + 3.0 * 900.0 / 10_800.0)).abs() < 1e-9, "{point:?}");
        assert!((point.tokens() - 2.5).abs() < 1e-6, "{point:?}");
        assert_eq!(Sliders::measured(&account, 9, 2.5), None);
    }
}
