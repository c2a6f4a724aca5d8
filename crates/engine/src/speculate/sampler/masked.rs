//! Rows under the mask of a grammar.
//!
//! Where the mask allows few tokens, these are gathered and nothing else is computed; where it allows many, the row is read
//! in place, 32 tokens at a time, each word of the mask beside its logits. Invariant: the result depends on the row and the
//! mask alone, and both ways agree within rounding; equal logits take the first.

use multiversion::multiversion;

use super::forbidden::{WORD, chosen};
use super::{LogitRow, Sampler, exp, listed, survey};
use crate::grammar::Mask;
use draftscope_model::{Best, ModelError, RowStats, STRETCH};
use draftscope_protocol::TokenId;
use draftscope_protocol::argmax::largest;
use draftscope_protocol::distribution::Distribution;

const _: () = assert!(STRETCH.is_multiple_of(WORD), "a stretch is a number of whole words");

/// Allowed tokens are few if they are at most one in so many.
const FEW: usize = 8;

/// A row after the mask of a grammar, and what the row was before.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Masked {
    /// What is left, renormalised.
    pub(crate) distribution: Distribution,
    /// Probability, at temperature 1, of all tokens that the mask removed, 0 to 1.
    pub(crate) removed: f32,
    /// The most probable token before the mask.
    pub(crate) best: TokenId,
    /// Its probability at temperature 1 before the mask, 0 to 1.
    pub(crate) best_prob: f32,
}

impl Sampler {
    /// As [`Sampler::distribution`], over the tokens that the mask allows; none if the row has none of them. Probabilities
    /// and truncations count these tokens alone.
    ///
    /// # Errors
    /// As [`Sampler::distribution`]; a mask needs all logits.
    pub(crate) fn masked(
        &self,
        row: &LogitRow<'_>,
        mask: &Mask,
        also: impl IntoIterator<Item = TokenId>,
        position: usize,
    ) -> Result<Option<Masked>, ModelError> {
        let stats = row.stats.filter(|_| !row.logits.is_empty());
        let found = if stats.is_none() { survey(row.logits) } else { None };
        let all = stats.or(found.as_ref()).filter(|s| s.log_sum_exp.is_finite());
        let all = all.ok_or(ModelError::NotFinite { position })?;
        let words = words(row, mask);
        let count: usize = words.iter().map(|word| word.count_ones() as usize).sum();
        let also = also.into_iter().filter(|token| mask.allows(*token));
        let (distribution, log_sum_exp) = match count {
            0 => return Ok(None),
            few if few * FEW <= row.logits.len() => self.of_few(row, (&words, few), also, position)?,
            _ => self.of_many(row, &words, also),
        };
        Ok(Some(Masked {
            distribution,
            removed: (1.0 - (log_sum_exp - all.log_sum_exp).exp()).clamp(0.0, 1.0),
            best: row.token(all.argmax as usize),
            best_prob: (all.max - all.log_sum_exp).exp(),
        }))
    }

    /// The distribution of the allowed tokens, gathered, and `ln Σ e^logit` of them.
    fn of_few(
        &self,
        row: &LogitRow<'_>,
        (words, count): (&[u32], usize),
        also: impl Iterator<Item = TokenId>,
        position: usize,
    ) -> Result<(Distribution, f32), ModelError> {
        let (mut tokens, mut logits) = (Vec::with_capacity(count), Vec::with_capacity(count));
        for index in set_bits(words) {
            tokens.push(row.token(index));
            logits.push(row.logits[index]);
        }
        let left = survey(&logits).ok_or(ModelError::NotFinite { position })?;
        let allowed = LogitRow { logits: &logits, vocab: Some(&tokens), stats: Some(&left) };
        Ok((self.distribution(&allowed, also, position)?, left.log_sum_exp))
    }

    /// The same in place. At least one token is allowed, and all logits are finite.
    fn of_many(&self, row: &LogitRow<'_>, words: &[u32], also: impl Iterator<Item = TokenId>) -> (Distribution, f32) {
        let left = survey_allowed(row.logits, words);
        let distribution = match self.sampling.is_greedy() {
            true => listed(row, &left, also, Some(words)),
            false => self.tempered(row, &left, Some(words)),
        };
        (distribution, left.log_sum_exp)
    }
}

/// The mask of a row's logits, a bit each, in their order.
fn words(row: &LogitRow<'_>, mask: &Mask) -> Vec<u32> {
    let Some(vocab) = row.vocab else {
        let bits = mask.len().min(row.logits.len());
        let mut words = mask.words()[..bits.div_ceil(WORD)].to_vec();
        let beyond = words.len() * WORD - bits;
        if let Some(last) = words.last_mut() {
            *last &= u32::MAX >> beyond;
        }
        words.resize(row.logits.len().div_ceil(WORD), 0);
        return words;
    };
    let word = |tokens: &[TokenId]| {
        tokens.iter().enumerate().fold(0, |word, (bit, token)| word | u32::from(mask.allows(*token)) << bit)
    };
    vocab[..vocab.len().min(row.logits.len())].chunks(WORD).map(word).collect()
}

/// Indices of the bits that are set, ascending.
fn set_bits(words: &[u32]) -> impl Iterator<Item = usize> {
    words.iter().enumerate().flat_map(|(at, word)| {
        let next = |left: &u32| Some(left & (left - 1)).filter(|left| *left != 0);
        let left = std::iter::successors(Some(*word).filter(|word| *word != 0), next);
        left.map(move |left| at * WORD + left.trailing_zeros() as usize)
    })
}

/// The statistics of the allowed logits, of which there is at least one.
fn survey_allowed(logits: &[f32], words: &[u32]) -> RowStats {
    let peaks = peaks(logits, words);
    let max = largest(&peaks);
    let from = peaks.iter().position(|peak| *peak == max).unwrap_or(0) * STRETCH;
    let stretch = set_bits(&words[from / WORD..]).map(|index| from + index);
    let argmax = stretch.take_while(|index| *index < logits.len()).find(|index| logits[*index] == max);
    let log_sum_exp = max + total(logits, words, max).ln() as f32;
    RowStats { argmax: argmax.unwrap_or(from) as u32, max, log_sum_exp, best: Best::Peaks(peaks) }
}

/// The largest allowed logit of each stretch.
#[multiversion(targets = "simd")]
fn peaks(logits: &[f32], words: &[u32]) -> Vec<f32> {
    let peak = |(stretch, words): (&[f32], &[u32])| {
        let mut lanes = [f32::NEG_INFINITY; WORD];
        for (block, word) in stretch.chunks(WORD).zip(words).filter(|(_, word)| **word != 0) {
            for (bit, (lane, logit)) in lanes.iter_mut().zip(block).enumerate() {
                let logit = chosen(*logit, *word, bit, f32::NEG_INFINITY);
                *lane = if logit > *lane { logit } else { *lane };
            }
        }
        lanes.into_iter().fold(f32::NEG_INFINITY, f32::max)
    };
    logits.chunks(STRETCH).zip(words.chunks(STRETCH / WORD)).map(peak).collect()
}

/// Σ e^(logit − max) of the allowed logits.
#[multiversion(targets = "simd")]
fn total(logits: &[f32], words: &[u32], max: f32) -> f64 {
    let part = |(stretch, words): (&[f32], &[u32])| {
        let mut lanes = [0.0; WORD];
        for (block, word) in stretch.chunks(WORD).zip(words).filter(|(_, word)| **word != 0) {
            for (bit, (lane, logit)) in lanes.iter_mut().zip(block).enumerate() {
                // a forbidden logit may be above the maximum
                *lane += chosen(exp(logit - max), *word, bit, 0.0);
            }
        }
        f64::from(lanes.iter().sum::<f32>())
    };
    logits.chunks(STRETCH).zip(words.chunks(STRETCH / WORD)).map(part).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use draftscope_protocol::Sampling;
    use proptest::prelude::*;

    /// The allowed logits of a row, one by one.
    fn naive(row: &LogitRow<'_>, mask: &Mask) -> Vec<(TokenId, f64)> {
        let entries = row.logits.iter().enumerate().map(|(index, logit)| (row.token(index), f64::from(*logit)));
        entries.filter(|(token, _)| mask.allows(*token)).collect()
    }

    /// The probabilities of these at a temperature.
    fn softmax(entries: &[(TokenId, f64)], temperature: f64) -> Vec<(TokenId, f64)> {
        let max = entries.iter().map(|entry| entry.1).fold(f64::NEG_INFINITY, f64::max);
        let weights: Vec<f64> = entries.iter().map(|entry| ((entry.1 - max) / temperature).exp()).collect();
        let total: f64 = weights.iter().sum();
        entries.iter().zip(weights).map(|(entry, weight)| (entry.0, weight / total)).collect()
    }

    fn logits(seed: u32, len: usize) -> Vec<f32> {
        let value = |i: usize| (i as u32).wrapping_add(seed).wrapping_mul(2_654_435_761) >> 20;
        (0..len).map(|i| value(i) as f32 / 200.0 - 8.0).collect()
    }

    /// One token in `one_in` is allowed.
    fn mask(seed: u32, len: usize, one_in: u32) -> Mask {
        let is_allowed = |i: usize| (i as u32 ^ seed).wrapping_mul(0x9e37_79b9) >> 8 & 0xffff < 0x1_0000 / one_in;
        Mask::of((0..len).map(is_allowed))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn a_masked_row_is_the_softmax_of_the_allowed_tokens(
            (seed, len, masked) in (any::<u32>(), 1_usize..3000, 1_usize..3000),
            one_in in prop::sample::select(vec![1_u32, 2, 7, 30, 4000]),
            (is_greedy, has_vocab) in (any::<bool>(), any::<bool>()),
        ) {
            let logits = logits(seed, len);
            let vocab: Vec<TokenId> = (0..len).rev().map(|i| TokenId(2 * i as u32)).collect();
            let row = LogitRow { logits: &logits, vocab: has_vocab.then_some(&vocab[..]), stats: None };
            let mask = mask(seed, if has_vocab { 2 * len } else { masked }, one_in);
            let temperature = if is_greedy { 0.0 } else { 0.7 };
            let sampler = Sampler { sampling: Sampling { temperature, ..Sampling::default() } };
            let allowed = naive(&row, &mask);
            let found = sampler.masked(&row, &mask, None, 0).unwrap();
            prop_assert_eq!(found.is_none(), allowed.is_empty());
            let Some(Masked { distribution, removed, best, .. }) = found else { return Ok(()) };
            let best_allowed = allowed.iter().map(|entry| entry.1).fold(f64::NEG_INFINITY, f64::max);
            let first = allowed.iter().find(|entry| entry.1 == best_allowed).unwrap().0;
            prop_assert_eq!(distribution.argmax(), first);
            let expected = softmax(&allowed, if is_greedy { 1.0 } else { 0.7 });
            for (token, p) in distribution.entries() {
                let want = expected.iter().find(|entry| entry.0 == token);
                prop_assert!(want.is_some_and(|want| (f64::from(p) - want.1).abs() < 1e-5), "{:?} {}", want, p);
            }
            let mass: f64 = distribution.entries().map(|entry| f64::from(entry.1)).sum();
            prop_assert!((mass + f64::from(distribution.tail()) - 1.0).abs() < 1e-4);
            let every: Vec<_> = logits.iter().enumerate().map(|(i, x)| (row.token(i), f64::from(*x))).collect();
            let kept: f64 = softmax(&every, 1.0).iter().filter(|entry| mask.allows(entry.0)).map(|entry| entry.1).sum();
            prop_assert!((1.0 - kept - f64::from(removed)).abs() < 1e-4);
            let top = every.iter().map(|entry| entry.1).fold(f64::NEG_INFINITY, f64::max);
            prop_assert_eq!(best, every.iter().find(|entry| entry.1 == top).unwrap().0);
        }
    }

    #[test]
    fn few_and_many_keep_the_same_tokens() {
        let logits = logits(5, 2000);
        let row = LogitRow::from(&logits[..]);
        let mask = mask(3, 2000, 3);
        let words = words(&row, &mask);
        for sampling in [
            Sampling::default(),
            Sampling { temperature: 0.7, ..Sampling::default() },
            Sampling { temperature: 0.7, top_p: 0.9, ..Sampling::default() },
            Sampling { temperature: 0.7, top_k: 40, min_p: 0.01, ..Sampling::default() },
        ] {
            let sampler = Sampler { sampling };
            let (few, _) = sampler.of_few(&row, (&words, mask.count()), std::iter::empty(), 0).unwrap();
            let (many, _) = sampler.of_many(&row, &words, std::iter::empty());
            let tokens = |of: &Distribution| of.entries().map(|entry| entry.0).collect::<Vec<_>>();
            assert_eq!((tokens(&few), few.argmax()), (tokens(&many), many.argmax()), "{sampling:?}");
            for (a, b) in few.entries().zip(many.entries()) {
                assert!((a.1 - b.1).abs() < 1e-6, "{a:?} {b:?}");
            }
        }
    }

    #[test]
    fn a_mask_of_all_tokens_changes_nothing() {
        let logits = logits(9, 1500);
        let row = LogitRow::from(&logits[..]);
        for temperature in [0.0, 0.7] {
            let sampler = Sampler { sampling: Sampling { temperature, ..Sampling::default() } };
            let free = sampler.distribution(&row, None, 0).unwrap();
            let masked = sampler.masked(&row, &mask(0, 1500, 1), None, 0).unwrap().unwrap();
            assert_eq!(masked.distribution.argmax(), free.argmax());
            assert!(masked.removed < 1e-6);
            for (a, b) in masked.distribution.entries().zip(free.entries()) {
                assert!(a.0 == b.0 && (a.1 - b.1).abs() < 1e-6);
            }
        }
    }

    #[test]
    fn a_mask_needs_finite_logits_and_all_of_them() {
        let sampler = Sampler { sampling: Sampling::default() };
        let mask = mask(0, 40, 1);
        let mut logits = [0.0; 40];
        logits[20] = f32::NAN;
        assert!(sampler.masked(&LogitRow::from(&logits[..]), &mask, None, 7).is_err());
        assert!(sampler.masked(&LogitRow::from(&[][..]), &mask, None, 7).is_err());
    }
}
