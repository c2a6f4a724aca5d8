//! From logits to the distribution a token is picked from.
//!
//! Order: temperature, then top-k, top-p and min-p on the tempered probabilities (as vLLM and
//! Hugging Face do); the rest is renormalised. At temperature 0 the largest logit is taken, the
//! first of equal ones, and the probabilities are those at temperature 1, for display only.

use super::distribution::Distribution;
use crate::model::ModelError;
use crate::protocol::{Sampling, TokenId};

/// How many of the best candidates a greedy distribution lists.
pub const LISTED: usize = 10;

/// Turns rows of logits into distributions.
#[derive(Clone, Copy, Debug)]
pub struct Sampler {
    /// In force now.
    pub sampling: Sampling,
}

impl Sampler {
    /// The distribution of one row. `vocab` names the token of each logit when they are not 0, 1, 2 …
    /// (ascending); `also` is listed even when it is none of the best.
    ///
    /// # Errors
    /// [`ModelError::NotFinite`] when a logit is no number; `position` is named in it.
    pub fn distribution(
        &self,
        logits: &[f32],
        vocab: Option<&[TokenId]>,
        also: Option<TokenId>,
        position: usize,
    ) -> Result<Distribution, ModelError> {
        let peak = Peak::of(logits).ok_or(ModelError::NotFinite { position })?;
        let token = |i: usize| vocab.map_or(TokenId(i as u32), |vocab| vocab[i]);
        if self.sampling.is_greedy() {
            let also = also.and_then(|t| vocab.map_or(Some(t.index()), |v| v.binary_search(&t).ok()));
            return Ok(greedy(logits, &peak, also.filter(|i| *i < logits.len()), token));
        }
        Ok(self.tempered(logits, &peak, token))
    }

    fn tempered(&self, logits: &[f32], peak: &Peak, token: impl Fn(usize) -> TokenId) -> Distribution {
        let scale = 1.0 / self.sampling.temperature;
        let mut weights: Vec<f32> = logits.to_vec();
        for w in &mut weights {
            *w = exp((*w - peak.max) * scale);
        }
        let total: f64 = weights.iter().map(|w| f64::from(*w)).sum();
        let keep = self.smallest_kept(&weights, total);
        let kept: Vec<(usize, f32)> = weights.into_iter().enumerate().filter(|(i, w)| keep.allows(*i, *w)).collect();
        let total: f64 = kept.iter().map(|(_, w)| f64::from(*w)).sum();
        let entries = kept.into_iter().map(|(i, w)| (token(i), (f64::from(w) / total) as f32)).collect();
        Distribution::new(entries, token(peak.argmax), 0.0)
    }

    /// Where top-k, top-p and min-p cut: weights are relative to the best, which is 1.
    fn smallest_kept(&self, weights: &[f32], total: f64) -> Kept {
        let Sampling { top_k, top_p, min_p, .. } = self.sampling;
        let mut kept = Kept { weight: min_p.max(f32::MIN_POSITIVE), index: usize::MAX };
        if top_k == 0 && top_p >= 1.0 {
            return kept;
        }
        let mut order: Vec<usize> = (0..weights.len()).filter(|i| weights[*i] >= kept.weight).collect();
        let best_first = |a: &usize, b: &usize| weights[*b].total_cmp(&weights[*a]).then(a.cmp(b));
        let k = if top_k == 0 { order.len() } else { (top_k as usize).min(order.len()) };
        if k < order.len() {
            order.select_nth_unstable_by(k, best_first);
            order.truncate(k);
        }
        order.sort_unstable_by(best_first);
        // top-p counts mass among what top-k left
        let mass: f64 = if top_k == 0 { total } else { order.iter().map(|i| f64::from(weights[*i])).sum() };
        let mut reached = 0.0;
        for i in order {
            kept = Kept { weight: weights[i], index: i };
            reached += f64::from(weights[i]);
            if reached >= f64::from(top_p) * mass && top_p < 1.0 {
                break;
            }
        }
        kept
    }
}

/// The last token kept, in order of falling weight, then rising index.
struct Kept {
    weight: f32,
    index: usize,
}

impl Kept {
    fn allows(&self, index: usize, weight: f32) -> bool {
        weight > self.weight || (weight == self.weight && index <= self.index)
    }
}

/// The largest logit of a row.
struct Peak {
    max: f32,
    argmax: usize,
}

impl Peak {
    /// None when a logit is NaN or the largest is infinite.
    fn of(logits: &[f32]) -> Option<Self> {
        // lanes let the compiler use vector instructions
        const LANES: usize = 16;
        let mut lanes = [f32::NEG_INFINITY; LANES];
        let mut sum = [0f32; LANES];
        let chunks = logits.chunks_exact(LANES);
        for chunk in chunks.clone() {
            for (i, x) in chunk.iter().enumerate() {
                lanes[i] = if *x > lanes[i] { *x } else { lanes[i] };
                sum[i] += x * 0.0; // NaN for NaN and for ±∞, else 0
            }
        }
        let mut max = lanes.into_iter().fold(f32::NEG_INFINITY, f32::max);
        let mut check: f32 = sum.iter().sum();
        for x in chunks.remainder() {
            max = max.max(*x);
            check += x * 0.0;
        }
        if check != 0.0 {
            return None;
        }
        logits.iter().position(|x| *x == max).map(|argmax| Self { max, argmax })
    }
}

/// Probabilities at temperature 1 of the best candidates (and one more token), for display.
fn greedy(logits: &[f32], peak: &Peak, also: Option<usize>, token: impl Fn(usize) -> TokenId) -> Distribution {
    let total = sum_exp(logits, peak.max);
    let mut listed = best_indices(logits, LISTED);
    listed.extend(also);
    listed.push(peak.argmax);
    listed.sort_unstable();
    listed.dedup();
    let entries: Vec<_> =
        listed.into_iter().map(|i| (token(i), (f64::from(exp(logits[i] - peak.max)) / total) as f32)).collect();
    let mass: f64 = entries.iter().map(|(_, p)| f64::from(*p)).sum();
    Distribution::new(entries, token(peak.argmax), (1.0 - mass).clamp(0.0, 1.0) as f32)
}

/// Σ exp(x − max), in blocks so that rounding stays small.
fn sum_exp(logits: &[f32], max: f32) -> f64 {
    logits.chunks(256).map(|chunk| f64::from(chunk.iter().map(|x| exp(x - max)).sum::<f32>())).sum()
}

/// Indices of the `n` largest logits, in no order.
fn best_indices(logits: &[f32], n: usize) -> Vec<usize> {
    let mut best: Vec<(f32, usize)> = Vec::with_capacity(n + 1);
    let mut bar = f32::NEG_INFINITY;
    for (block, chunk) in logits.chunks(64).enumerate() {
        if best.len() == n && !chunk.iter().any(|x| *x > bar) {
            continue; // most blocks end here
        }
        for (i, x) in chunk.iter().enumerate() {
            if best.len() < n || *x > bar {
                let at = best.partition_point(|(y, _)| y >= x);
                best.insert(at, (*x, block * 64 + i));
                best.truncate(n);
                bar = if best.len() == n { best[n - 1].0 } else { f32::NEG_INFINITY };
            }
        }
    }
    best.into_iter().map(|(_, i)| i).collect()
}

/// e^x for x ≤ 0, relative error below 3e-7: 2^n · e^r with a polynomial for e^r (Cephes expf). In
/// plain arithmetic so that the compiler vectorises it.
#[inline]
fn exp(x: f32) -> f32 {
    let x = x.max(-87.0);
    let n = (x * std::f32::consts::LOG2_E + 12_582_912.0) - 12_582_912.0; // round to nearest
    let r = x - n * 0.693_359_4 + n * 2.121_944_4e-4;
    let p = 1.987_569_1e-4;
    let p = p * r + 1.398_199_9e-3;
    let p = p * r + 8.333_452e-3;
    let p = p * r + 4.166_579_6e-2;
    let p = p * r + 0.166_666_65;
    let p = p * r + 0.5;
    let y = p * r * r + r + 1.0;
    y * f32::from_bits((((n as i32) + 127) << 23) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sampler(sampling: Sampling) -> Sampler {
        Sampler { sampling }
    }

    fn softmax(logits: &[f32], temperature: f64) -> Vec<f64> {
        let w: Vec<f64> = logits.iter().map(|x| (f64::from(*x) / temperature).exp()).collect();
        let total: f64 = w.iter().sum();
        w.into_iter().map(|w| w / total).collect()
    }

    #[test]
    fn the_exponential_is_accurate() {
        for i in 0..8_700 {
            let x = -(i as f32) * 0.01;
            let (got, want) = (f64::from(exp(x)), f64::from(x).exp());
            assert!((got - want).abs() <= 3e-7 * want, "exp({x}) = {got}, expected {want}");
        }
        assert_eq!(exp(0.0), 1.0);
    }

    #[test]
    fn greedy_lists_the_best_at_temperature_one() {
        let logits: Vec<f32> = (0..1000).map(|i| ((i * 7919) % 1000) as f32 / 100.0).collect();
        let want = softmax(&logits, 1.0);
        let d = sampler(Sampling::default()).distribution(&logits, None, Some(TokenId(3)), 0).unwrap();
        let best = (0..1000).max_by(|a, b| logits[*a].total_cmp(&logits[*b])).unwrap();
        assert_eq!(d.argmax(), TokenId(best as u32));
        assert_eq!(d.entries().len(), LISTED + 1);
        for (token, p) in d.entries() {
            assert!((f64::from(*p) - want[token.index()]).abs() < 1e-6);
        }
        let mass: f32 = d.entries().iter().map(|e| e.1).sum();
        assert!((mass + d.tail() - 1.0).abs() < 1e-6);
    }

    #[test]
    fn equal_logits_take_the_first() {
        let d = sampler(Sampling::default()).distribution(&[1.0, 2.0, 2.0], None, None, 0).unwrap();
        assert_eq!(d.argmax(), TokenId(1));
    }

    #[test]
    fn truncations_keep_what_they_say() {
        let logits = [3.0f32, 1.0, 2.0, 0.0, 2.5];
        let want = softmax(&logits, 0.7);
        let kept = |sampling: Sampling| -> Vec<u32> {
            let sampling = Sampling { temperature: 0.7, ..sampling };
            let d = sampler(sampling).distribution(&logits, None, None, 0).unwrap();
            let total: f64 = d.entries().iter().map(|e| want[e.0.index()]).sum();
            for (token, p) in d.entries() {
                assert!((f64::from(*p) - want[token.index()] / total).abs() < 1e-6);
            }
            d.entries().iter().map(|e| e.0.0).collect()
        };
        let all = Sampling::default();
        assert_eq!(kept(all), [0, 1, 2, 3, 4]);
        assert_eq!(kept(Sampling { top_k: 2, ..all }), [0, 4]);
        assert_eq!(kept(Sampling { top_p: 0.5, ..all }), [0]);
        assert_eq!(kept(Sampling { top_p: 0.8, ..all }), [0, 4]);
        assert_eq!(kept(Sampling { min_p: 0.2, ..all }), [0, 2, 4]);
        assert_eq!(kept(Sampling { top_k: 1, top_p: 0.1, min_p: 0.9, ..all }), [0]);
    }

    #[test]
    fn a_draft_vocabulary_names_the_tokens() {
        let vocab = [TokenId(5), TokenId(9)];
        for temperature in [0.0, 1.0] {
            let sampling = Sampling { temperature, ..Sampling::default() };
            let d = sampler(sampling).distribution(&[0.0, 1.0], Some(&vocab), Some(TokenId(77)), 0).unwrap();
            assert_eq!(d.argmax(), TokenId(9));
            assert!((d.prob(TokenId(5)) - 0.268_941).abs() < 1e-5);
        }
    }

    #[test]
    fn values_that_are_no_numbers_are_an_error() {
        for bad in [f32::NAN, f32::INFINITY] {
            let mut logits = vec![0.0; 40];
            logits[20] = bad;
            let error = sampler(Sampling::default()).distribution(&logits, None, None, 7).unwrap_err();
            assert!(error.to_string().contains("position 7"), "{error}");
        }
    }
}
