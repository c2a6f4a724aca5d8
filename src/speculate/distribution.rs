//! Probability distributions over tokens: what verification compares and draws from.
//!
//! Invariant: entries are sorted by token id, each probability is finite and not negative, and
//! entries and tail add up to 1 within rounding. A tail is mass of tokens that are not listed; only
//! distributions that nothing is drawn from (greedy decoding, recorded top-n lists) have one.

use crate::protocol::TokenId;

/// A distribution over the vocabulary, listing only what has mass.
#[derive(Clone, Debug, PartialEq)]
pub struct Distribution {
    entries: Vec<(TokenId, f32)>, // by id
    argmax: TokenId,
    tail: f32,
}

impl Distribution {
    /// From (token, probability) pairs, sorted by id; `argmax` is the most probable token.
    #[must_use]
    pub fn new(entries: Vec<(TokenId, f32)>, argmax: TokenId, tail: f32) -> Self {
        debug_assert!(entries.is_sorted_by(|a, b| a.0 < b.0), "entries must be sorted by id");
        Self { entries, argmax, tail }
    }

    /// From weights of tokens 0, 1, 2 …, normalised; the first of equal largest ones is the argmax.
    #[must_use]
    pub fn from_weights(weights: &[f32]) -> Self {
        let entries = (0..).map(TokenId).zip(weights.iter().copied()).filter(|(_, w)| *w > 0.0).collect();
        Self::normalised(entries)
    }

    /// All mass on one token.
    #[must_use]
    pub fn certain(token: TokenId) -> Self {
        Self { entries: vec![(token, 1.0)], argmax: token, tail: 0.0 }
    }

    /// Divides by the sum; the argmax is found again.
    fn normalised(mut entries: Vec<(TokenId, f32)>) -> Self {
        let total: f64 = entries.iter().map(|(_, p)| f64::from(*p)).sum();
        for (_, p) in &mut entries {
            *p = (f64::from(*p) / total) as f32;
        }
        let best = entries.iter().copied().reduce(|best, entry| if entry.1 > best.1 { entry } else { best });
        Self { argmax: best.map_or(TokenId(0), |entry| entry.0), entries, tail: 0.0 }
    }

    /// Probability of a token; 0 when it is not listed.
    #[must_use]
    pub fn prob(&self, token: TokenId) -> f32 {
        self.entries.binary_search_by_key(&token, |entry| entry.0).map_or(0.0, |i| self.entries[i].1)
    }

    /// The most probable token.
    #[must_use]
    pub fn argmax(&self) -> TokenId {
        self.argmax
    }

    /// Mass of tokens that are not listed, 0 to 1.
    #[must_use]
    pub fn tail(&self) -> f32 {
        self.tail
    }

    /// Tokens with mass and their probabilities, by id.
    #[must_use]
    pub fn entries(&self) -> &[(TokenId, f32)] {
        &self.entries
    }

    /// The token at `u` of the cumulative distribution, `u` in [0, 1): inverse transform sampling.
    #[must_use]
    pub fn pick(&self, u: f32) -> TokenId {
        let total: f64 = self.entries.iter().map(|(_, p)| f64::from(*p)).sum();
        let goal = f64::from(u) * total;
        let mut reached = 0.0;
        for (token, p) in &self.entries {
            reached += f64::from(*p);
            if goal < reached {
                return *token;
            }
        }
        // rounding may leave u behind the last step
        self.entries.iter().rev().find(|(_, p)| *p > 0.0).map_or(self.argmax, |(token, _)| *token)
    }

    /// What a rejected draft is replaced from: max(0, p − q), normalised (Leviathan et al., 2023;
    /// Chen et al., 2023). `p` itself when nothing is left, which happens only when p equals q.
    #[must_use]
    pub fn residual(&self, q: &Self) -> Self {
        self.scaled_residual(1.0, q)
    }

    /// max(0, weight·p − q), normalised; `p` itself when nothing is left.
    #[must_use]
    pub fn scaled_residual(&self, weight: f64, q: &Self) -> Self {
        let over = |p: f32, q: f32| (weight * f64::from(p) - f64::from(q)).max(0.0) as f32;
        let left = self.entries.iter().map(|(token, p)| (*token, over(*p, q.prob(*token))));
        let left: Vec<_> = left.filter(|(_, p)| *p > 0.0).collect();
        if left.is_empty() { self.clone() } else { Self::normalised(left) }
    }

    /// The rest, normalised, when one token is taken out; unchanged when nothing else has mass.
    #[must_use]
    pub fn without(&self, token: TokenId) -> Self {
        let left: Vec<_> = self.entries.iter().copied().filter(|(t, p)| *t != token && *p > 0.0).collect();
        if left.is_empty() { self.clone() } else { Self::normalised(left) }
    }

    /// −Σ p ln p in nats, of the tokens that are listed.
    #[must_use]
    pub fn entropy(&self) -> f64 {
        let listed = self.entries.iter().map(|(_, p)| f64::from(*p)).filter(|p| *p > 0.0);
        listed.map(|p| -p * p.ln()).sum()
    }

    /// The `n` most probable tokens, best first, equal ones by id; and the mass of all others.
    #[must_use]
    pub fn top(&self, n: usize) -> (Vec<(TokenId, f32)>, f32) {
        let by_mass = |a: &(TokenId, f32), b: &(TokenId, f32)| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0));
        let mut best = self.entries.clone();
        if best.len() > n && n > 0 {
            best.select_nth_unstable_by(n - 1, by_mass);
        }
        best.truncate(n);
        best.sort_unstable_by(by_mass);
        let listed: f64 = best.iter().map(|(_, p)| f64::from(*p)).sum();
        (best, (1.0 - listed).clamp(0.0, 1.0) as f32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn picking_walks_the_cumulative_sum() {
        let d = Distribution::from_weights(&[1.0, 0.0, 3.0]);
        assert_eq!(d.pick(0.0), TokenId(0));
        assert_eq!(d.pick(0.2499), TokenId(0));
        assert_eq!(d.pick(0.25), TokenId(2));
        assert_eq!(d.pick(0.999_999_94), TokenId(2));
        assert_eq!((d.argmax(), d.prob(TokenId(1)), d.prob(TokenId(2))), (TokenId(2), 0.0, 0.75));
    }

    #[test]
    fn the_residual_is_what_p_has_over_q() {
        let p = Distribution::from_weights(&[0.5, 0.3, 0.2]);
        let q = Distribution::from_weights(&[0.2, 0.2, 0.6]);
        let r = p.residual(&q);
        assert!((r.prob(TokenId(0)) - 0.75).abs() < 1e-6 && (r.prob(TokenId(1)) - 0.25).abs() < 1e-6);
        assert_eq!(r.prob(TokenId(2)), 0.0);
        assert_eq!(p.residual(&p), p);
    }

    #[test]
    fn top_is_sorted_and_knows_its_tail() {
        let d = Distribution::from_weights(&[0.1, 0.4, 0.1, 0.4]);
        let (top, tail) = d.top(3);
        assert_eq!(top.iter().map(|t| t.0.0).collect::<Vec<_>>(), [1, 3, 0]);
        assert!((tail - 0.1).abs() < 1e-6);
        assert_eq!(d.top(9).0.len(), 4);
    }
}
