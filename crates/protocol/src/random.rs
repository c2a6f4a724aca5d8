//! Uniform draws that are addressed by purpose and position rather than taken from a sequence.
//!
//! A position of the output is committed exactly once, so a draw belongs to the position and not to the round that
//! reaches it. It follows that overruling one verdict in a what-if changes no other draw, and that under the `exact`
//! rule the same seed gives the same text for every k, plain decoding included. A draw may be used again for a position
//! whose earlier drafts were discarded, since nothing that is committed before the position depends on it.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};

/// The purpose of a draw.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Purpose {
    /// Picking a draft token from q.
    Draft,
    /// Comparing with p/q.
    Accept,
    /// Picking the bonus, recovered or plain token.
    Next,
}

/// A source of uniform draws in [0, 1).
pub trait Draws {
    /// The draw for the token at `position` of the context.
    fn uniform(&self, purpose: Purpose, position: usize) -> f32;

    /// A draw that belongs to no position, but to draft `index` of the round whose first draft has position `start` (no
    /// other round of the lane begins there). It is needed where draws of later positions affect an earlier position:
    /// given the verdict, those draws are no longer uniform and must not be used again.
    fn fresh(&self, purpose: Purpose, start: usize, index: usize) -> f32 {
        // no position of a context is this large
        let address = 1 << (usize::BITS - 1) | start << 8 | index & 0xff;
        self.uniform(purpose, address)
    }
}

/// Draws from the ChaCha8 stream cipher, which can be read at any offset.
#[derive(Clone, Debug)]
pub struct SeededDraws {
    base: ChaCha8Rng,
    /// 0 for the run's own draws; independent draws read other streams of the cipher.
    stream: u64,
}

impl SeededDraws {
    /// The draws of this seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self { base: ChaCha8Rng::seed_from_u64(seed), stream: 0 }
    }

    /// The draws of the same stream for another seed.
    #[must_use]
    pub fn seeded(&self, seed: u64) -> Self {
        Self { stream: self.stream, ..Self::new(seed) }
    }

    /// Draws that are independent of these.
    #[must_use]
    pub fn independent(&self) -> Self {
        Self { base: self.base.clone(), stream: self.stream + 1 }
    }
}

impl Draws for SeededDraws {
    fn uniform(&self, purpose: Purpose, position: usize) -> f32 {
        let mut rng = self.base.clone();
        rng.set_stream(self.stream << 8 | purpose as u64);
        rng.set_word_pos(position as u128);
        // 24 bits: every f32 in [0, 1) that is a multiple of 2⁻²⁴, none of them 1
        (rng.next_u32() >> 8) as f32 / (1u32 << 24) as f32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_are_addressed_and_uniform() {
        let draws = SeededDraws::new(7);
        assert_eq!(draws.uniform(Purpose::Next, 12), SeededDraws::new(7).uniform(Purpose::Next, 12));
        assert_ne!(draws.uniform(Purpose::Next, 12), draws.uniform(Purpose::Accept, 12));
        assert_ne!(draws.uniform(Purpose::Next, 12), SeededDraws::new(8).uniform(Purpose::Next, 12));
        assert_ne!(draws.uniform(Purpose::Next, 12), draws.independent().uniform(Purpose::Next, 12));
        assert_ne!(draws.fresh(Purpose::Draft, 12, 1), draws.fresh(Purpose::Draft, 13, 0));
        let (n, bins) = (100_000usize, 50usize);
        let mut counts = vec![0u32; bins];
        for position in 0..n {
            let u = draws.uniform(Purpose::Draft, position);
            assert!((0.0..1.0).contains(&u));
            counts[(u * bins as f32) as usize] += 1;
        }
        let expected = n as f64 / bins as f64;
        let chi: f64 = counts.iter().map(|c| (f64::from(*c) - expected).powi(2) / expected).sum();
        assert!(chi < 85.4, "chi-square {chi} with 49 degrees of freedom (99.9 % quantile 85.4)");
    }
}
