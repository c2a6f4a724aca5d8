//! Probability distributions over tokens, which verification compares and draws from.
//!
//! Invariant: tokens ascend, each probability is finite and not negative, and probabilities and tail add up to 1 within
//! rounding. The tail is the probability of all tokens that are not listed; only distributions that are never sampled
//! (greedy decoding, recorded top-n lists) have one. Sums use a fixed number of lanes, so that all machines draw the
//! same token for every instruction set.

use multiversion::multiversion;

use super::argmax::{largest, largest_n};
use crate::TokenId;

/// A distribution over the vocabulary. It may list only the tokens with probability above 0.
#[derive(Clone, Debug, PartialEq)]
pub struct Distribution {
    tokens: Tokens,
    probs: Vec<f32>,
    argmax: TokenId,
    tail: f32,
}

/// The tokens of the probabilities.
#[derive(Clone, Debug, PartialEq)]
enum Tokens {
    /// 0, 1, 2 …
    All,
    /// These tokens, ascending.
    Listed(Vec<TokenId>),
}

impl Tokens {
    fn token(&self, index: usize) -> TokenId {
        match self {
            Self::All => TokenId(index as u32),
            Self::Listed(tokens) => tokens[index],
        }
    }
}

impl Distribution {
    /// From (token, probability) pairs, sorted by id; `argmax` is the most probable token.
    #[must_use]
    pub fn new(entries: Vec<(TokenId, f32)>, argmax: TokenId, tail: f32) -> Self {
        debug_assert!(entries.is_sorted_by(|a, b| a.0 < b.0), "entries must be sorted by id");
        let (tokens, probs) = entries.into_iter().unzip();
        Self { tokens: Tokens::Listed(tokens), probs, argmax, tail }
    }

    /// From weights of tokens 0, 1, 2 …, normalised. Of equal largest weights the first is the argmax.
    #[must_use]
    pub fn from_weights(weights: &[f32]) -> Self {
        Self::normalised(Tokens::All, weights.to_vec())
    }

    /// One token with probability 1.
    #[must_use]
    pub fn certain(token: TokenId) -> Self {
        Self { tokens: Tokens::Listed(vec![token]), probs: vec![1.0], argmax: token, tail: 0.0 }
    }

    /// From weights of all tokens, which add up to `total`; `argmax` has the largest weight.
    pub fn over_all(weights: Vec<f32>, argmax: TokenId, total: f64) -> Self {
        Self { tokens: Tokens::All, probs: divided(weights, total), argmax, tail: 0.0 }
    }

    /// Divides weights by their sum and finds the argmax.
    fn normalised(tokens: Tokens, weights: Vec<f32>) -> Self {
        let total = sum(&weights);
        let top = largest(&weights);
        let argmax = weights.iter().position(|weight| *weight == top).map_or(TokenId(0), |index| tokens.token(index));
        Self { tokens, probs: divided(weights, total), argmax, tail: 0.0 }
    }

    fn index(&self, token: TokenId) -> Option<usize> {
        match &self.tokens {
            Tokens::All => Some(token.index()).filter(|index| *index < self.probs.len()),
            Tokens::Listed(tokens) => tokens.binary_search(&token).ok(),
        }
    }

    /// Probability of a token; 0 when it is not listed.
    #[must_use]
    pub fn prob(&self, token: TokenId) -> f32 {
        self.index(token).map_or(0.0, |index| self.probs[index])
    }

    /// The most probable token.
    #[must_use]
    pub fn argmax(&self) -> TokenId {
        self.argmax
    }

    /// Total probability of tokens that are not listed, 0 to 1.
    #[must_use]
    pub fn tail(&self) -> f32 {
        self.tail
    }

    /// Tokens with a probability above 0 and their probabilities, by id.
    pub fn entries(&self) -> impl Iterator<Item = (TokenId, f32)> {
        let all = self.probs.iter().enumerate().filter(|(_, p)| **p > 0.0);
        all.map(|(index, p)| (self.tokens.token(index), *p))
    }

    /// The token at `u` of the cumulative distribution, `u` in [0, 1): inverse transform sampling.
    #[must_use]
    pub fn pick(&self, u: f32) -> TokenId {
        const STRETCH: usize = 512;
        let sums: Vec<f64> = self.probs.chunks(STRETCH).map(sum).collect();
        let goal = f64::from(u) * sums.iter().sum::<f64>();
        let (mut reached, mut from) = (0.0, 0);
        for (stretch, sum) in sums.iter().enumerate() {
            from = stretch * STRETCH;
            if goal < reached + sum {
                break;
            }
            reached += sum;
        }
        // token by token from there on; rounding may lead into the next stretch
        for (index, p) in self.probs.iter().enumerate().skip(from) {
            reached += f64::from(*p);
            if goal < reached {
                return self.tokens.token(index);
            }
        }
        // rounding can leave u above the last step
        let last = self.probs.iter().rposition(|p| *p > 0.0);
        last.map_or(self.argmax, |index| self.tokens.token(index))
    }

    /// The distribution that replaces a rejected draft: max(0, p − q), normalised (Leviathan et al., 2023; Chen et al.,
    /// 2023), and its mass before, Σ max(0, p − q). `p` itself if the difference is 0 everywhere, which happens only when p
    /// equals q.
    #[must_use]
    pub fn residual(&self, q: &Self) -> (Self, f64) {
        let left = self.over(1.0, q);
        let mass = sum(&left);
        (self.normalised_or_self(left), mass)
    }

    /// max(0, weight·p − q), normalised; `p` itself if that is 0 everywhere.
    #[must_use]
    pub fn scaled_residual(&self, weight: f64, q: &Self) -> Self {
        self.normalised_or_self(self.over(weight, q))
    }

    fn normalised_or_self(&self, left: Vec<f32>) -> Self {
        if largest(&left) > 0.0 { Self::normalised(self.tokens.clone(), left) } else { self.clone() }
    }

    /// Σ max(0, weight·p − q).
    #[must_use]
    pub fn excess(&self, weight: f64, q: &Self) -> f64 {
        sum(&self.over(weight, q))
    }

    /// max(0, weight·p − q) for each token of p.
    fn over(&self, weight: f64, q: &Self) -> Vec<f32> {
        let over = |p: f32, q: f32| (weight * f64::from(p) - f64::from(q)).max(0.0) as f32;
        match (&self.tokens, &q.tokens) {
            (Tokens::All, Tokens::Listed(listed)) => {
                let mut left: Vec<f32> = self.probs.iter().map(|p| over(*p, 0.0)).collect();
                for (token, q) in listed.iter().zip(&q.probs) {
                    if let Some(left) = left.get_mut(token.index()) {
                        *left = over(self.probs[token.index()], *q);
                    }
                }
                left
            }
            (Tokens::All, Tokens::All) => {
                let theirs = q.probs.iter().copied().chain(std::iter::repeat(0.0));
                self.probs.iter().zip(theirs).map(|(p, q)| over(*p, q)).collect()
            }
            (Tokens::Listed(tokens), _) => {
                tokens.iter().zip(&self.probs).map(|(token, p)| over(*p, q.prob(*token))).collect()
            }
        }
    }

    /// The distribution without one token, normalised; unchanged if no other token has a probability above 0.
    #[must_use]
    pub fn without(&self, token: TokenId) -> Self {
        let mut left = self.probs.clone();
        if let Some(index) = self.index(token) {
            left[index] = 0.0;
        }
        if largest(&left) > 0.0 { Self::normalised(self.tokens.clone(), left) } else { self.clone() }
    }

    /// −Σ p ln p over the listed tokens, in nats.
    #[must_use]
    pub fn entropy(&self) -> f64 {
        self.entries().map(|(_, p)| f64::from(p)).map(|p| -p * p.ln()).sum()
    }

    /// The `n` most probable tokens, best first, equal ones by id; and the total probability of all others.
    #[must_use]
    pub fn top(&self, n: usize) -> (Vec<(TokenId, f32)>, f32) {
        let best = largest_n(&self.probs, n).into_iter().map(|(p, index)| (self.tokens.token(index), p));
        let best: Vec<_> = best.collect();
        let listed: f64 = best.iter().map(|(_, p)| f64::from(*p)).sum();
        (best, (1.0 - listed).clamp(0.0, 1.0) as f32)
    }
}

/// The sum, in a form that the compiler vectorises.
#[multiversion(targets = "simd")]
pub fn sum(values: &[f32]) -> f64 {
    const LANES: usize = 16;
    let mut lanes = [0.0; LANES];
    let chunks = values.chunks_exact(LANES);
    let rest: f64 = chunks.remainder().iter().map(|value| f64::from(*value)).sum();
    for chunk in chunks {
        for (lane, value) in lanes.iter_mut().zip(chunk) {
            *lane += f64::from(*value);
        }
    }
    lanes.iter().sum::<f64>() + rest
}

fn divided(mut weights: Vec<f32>, total: f64) -> Vec<f32> {
    scale(&mut weights, if total > 0.0 { 1.0 / total } else { 0.0 });
    weights
}

#[multiversion(targets = "simd")]
fn scale(values: &mut [f32], by: f64) {
    values.iter_mut().for_each(|value| *value = (f64::from(*value) * by) as f32);
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
        let (r, mass) = p.residual(&q);
        assert!((mass - p.excess(1.0, &q)).abs() < 1e-9, "{mass}");
        assert!((r.prob(TokenId(0)) - 0.75).abs() < 1e-6 && (r.prob(TokenId(1)) - 0.25).abs() < 1e-6);
        assert_eq!(r.prob(TokenId(2)), 0.0);
        assert_eq!(p.residual(&p), (p.clone(), 0.0));
    }

    #[test]
    fn a_distribution_over_all_tokens_equals_a_listed_one() {
        // more than a stretch, some with probability 0
        let weights = |seed: u32| -> Vec<f32> { (0..1500).map(|i| ((i * seed) % 97) as f32).collect() };
        let [p, q] = [7919, 104_729].map(|seed| Distribution::from_weights(&weights(seed)));
        let listed = |d: &Distribution| Distribution::new(d.entries().collect(), d.argmax(), 0.0);
        let near = |a: f64, b: f64| (a - b).abs() < 1e-6;
        for weight in [1.0, 0.4] {
            let want: f64 = (0..1500)
                .map(TokenId)
                .map(|t| weight * f64::from(p.prob(t)) - f64::from(q.prob(t)))
                .map(|x| x.max(0.0))
                .sum();
            let residual = p.scaled_residual(weight, &q);
            for (p, q) in [(p.clone(), listed(&q)), (listed(&p), q.clone()), (listed(&p), listed(&q))] {
                assert!(near(p.excess(weight, &q), want));
                let other = p.scaled_residual(weight, &q);
                assert_eq!(other.argmax(), residual.argmax());
                assert!(residual.entries().all(|(token, share)| near(other.prob(token).into(), share.into())));
            }
        }
        let other = listed(&p);
        assert_eq!((other.top(8), other.without(p.argmax()).argmax()), (p.top(8), p.without(p.argmax()).argmax()));
        for step in 0..1000 {
            let u = step as f32 / 1000.0;
            // the same token, unless u lies within rounding of a step
            let [a, b] = [p.pick(u), other.pick(u)].map(|token| token.0);
            let below: f64 = p.entries().take_while(|(token, _)| token.0 < a.max(b)).map(|(_, p)| f64::from(p)).sum();
            assert!(a == b || near(below, u.into()), "{u}: {a} and {b}");
        }
    }

    #[test]
    fn top_is_sorted_and_has_the_right_tail() {
        let d = Distribution::from_weights(&[0.1, 0.4, 0.1, 0.4]);
        let (top, tail) = d.top(3);
        assert_eq!(top.iter().map(|t| t.0.0).collect::<Vec<_>>(), [1, 3, 0]);
        assert!((tail - 0.1).abs() < 1e-6);
        assert_eq!(d.top(9).0.len(), 4);
    }
}
