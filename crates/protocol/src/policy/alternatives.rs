//! What alternatives to the drafts of a chain are worth: tokens beside the one that was drafted.
//!
//! The row that judges a draft judges its alternatives too; an alternative adds a row, in which the target says what
//! follows it. Without it, the round would end with the same token as the target's own, so with R the chance that its row
//! is reached and a that it is right, it gains R · a tokens.

use super::observation::Observation;

/// Weight of the assumption that probabilities of alternatives are right, in accepted ones.
const TRUST_WEIGHT: f64 = 2.0;
/// Factor by which counts fade with each round that drafts: about the last 50 count.
const KEEP: f64 = 0.98;
/// Weight of the assumption that rounds have no alternatives, in rounds.
const NONE_WEIGHT: f64 = 4.0;

/// How often alternatives are right, and how many rounds have: fading counts and sums.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Alternatives {
    /// Accepted ones among those whose row was reached, and the sum of their probabilities.
    accepted: f64,
    promised: f64,
    rounds: f64,
    /// Alternatives in these rounds, and accepted ones.
    rows: f64,
    tokens: f64,
}

impl Alternatives {
    /// Takes a round that drafted.
    pub(super) fn observe(&mut self, seen: &Observation) {
        if seen.drafted == 0 {
            return;
        }
        let sums = [&mut self.accepted, &mut self.promised, &mut self.rounds, &mut self.rows, &mut self.tokens];
        sums.into_iter().for_each(|sum| *sum *= KEEP);
        let tokens = f64::from(u8::from(seen.took_alternative));
        (self.rounds, self.rows) = (self.rounds + 1.0, self.rows + seen.alternatives as f64);
        (self.tokens, self.accepted) = (self.tokens + tokens, self.accepted + tokens);
        self.promised += f64::from(seen.promised_by_alternatives);
    }

    /// Accepted alternatives ÷ the number that their probabilities predicted.
    pub(super) fn trust(&self) -> f64 {
        (self.accepted + TRUST_WEIGHT) / (self.promised + TRUST_WEIGHT)
    }

    /// Mean rows and tokens that alternatives add to a round that drafts.
    pub(super) fn per_round(&self) -> (f64, f64) {
        let rounds = self.rounds + NONE_WEIGHT;
        (self.rows / rounds, self.tokens / rounds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alternatives_that_are_rarely_right_are_trusted_less_and_cost_rows() {
        let mut alternatives = Alternatives::default();
        assert_eq!((alternatives.trust(), alternatives.per_round()), (1.0, (0.0, 0.0)));
        let seen = Observation { drafted: 2, alternatives: 3, promised_by_alternatives: 0.4, ..Observation::default() };
        for round in 0..200 {
            alternatives.observe(&Observation { took_alternative: round % 10 == 0, ..seen });
        }
        let (rows, tokens) = alternatives.per_round();
        assert!((alternatives.trust() - 0.3).abs() < 0.1, "{}", alternatives.trust());
        assert!((rows - 2.8).abs() < 0.1 && (tokens - 0.09).abs() < 0.03, "{rows} {tokens}");
        let before = alternatives;
        alternatives.observe(&Observation::default());
        assert_eq!(alternatives, before, "a plain round says nothing");
    }
}
