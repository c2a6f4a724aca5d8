//! Turns logits into the distribution that a token is picked from.
//!
//! Order: temperature, then top-k, top-p and min-p on the probabilities at that temperature (as in Hugging Face; vLLM
//! applies min-p before top-k); the rest is renormalised. At temperature 0 the largest logit is taken, the first of
//! equal ones, and the probabilities are those at temperature 1, for display only.

mod forbidden;
pub(crate) mod masked;

use multiversion::multiversion;

use draftscope_model::{BEST_LOGITS, Best, Forward, ModelError, RowStats, STRETCH};
use draftscope_protocol::argmax::{Largest, largest};
use draftscope_protocol::distribution::{Distribution, sum};
use draftscope_protocol::{Sampling, TokenId};

/// Number of best candidates that a greedy distribution lists, as many as an event holds.
pub const LISTED: usize = super::report::TOP_N;

const _: () = assert!(LISTED == BEST_LOGITS, "backends that return only the best logits return as many as are listed");

/// A row of logits.
#[derive(Clone, Copy, Debug)]
pub struct LogitRow<'a> {
    /// The logits; empty if the statistics list the best of them.
    pub logits: &'a [f32],
    /// Token of each logit, in any order; none if they are tokens 0, 1, 2 …
    pub vocab: Option<&'a [TokenId]>,
    /// Statistics that the head's pass already computed; none computes them here.
    pub stats: Option<&'a RowStats>,
}

impl<'a> LogitRow<'a> {
    /// Row `index` of a forward pass.
    #[must_use]
    pub fn of(out: &'a Forward, index: usize, vocab: Option<&'a [TokenId]>) -> Self {
        let logits = if out.logits.is_empty() { &[] } else { out.logits.row(index) };
        Self { logits, vocab, stats: out.stats.get(index) }
    }

    /// The row without the logits after the first `vocab` tokens, which are padding of a larger head.
    #[must_use]
    pub fn within(self, vocab: u32) -> Self {
        let vocab = vocab as usize;
        if self.vocab.is_some() || self.logits.len() <= vocab {
            return self;
        }
        Self { logits: &self.logits[..vocab], vocab: None, stats: None }
    }

    fn token(&self, index: usize) -> TokenId {
        self.vocab.map_or(TokenId(index as u32), |vocab| vocab[index])
    }

    /// Sorts entries, given in the order of logits, by token.
    fn by_token(&self, mut entries: Vec<(TokenId, f32)>) -> Vec<(TokenId, f32)> {
        if self.vocab.is_some() {
            entries.sort_by_key(|entry| entry.0); // fast, since most of a draft vocabulary ascends already
        }
        entries
    }

    fn index(&self, token: TokenId) -> Option<usize> {
        let index = self.vocab.map_or(Some(token.index()), |vocab| vocab.iter().position(|its| *its == token));
        index.filter(|index| *index < self.logits.len())
    }
}

impl<'a> From<&'a [f32]> for LogitRow<'a> {
    fn from(logits: &'a [f32]) -> Self {
        Self { logits, vocab: None, stats: None }
    }
}

/// Turns rows of logits into distributions.
#[derive(Clone, Copy, Debug)]
pub struct Sampler {
    /// The settings in force.
    pub sampling: Sampling,
}

impl Sampler {
    /// The distribution of one row. Tokens in `also` are listed even if they are not among the best.
    ///
    /// # Errors
    /// [`ModelError::NotFinite`] with `position` when a logit is infinite or NaN.
    pub fn distribution(
        &self,
        row: &LogitRow<'_>,
        also: impl IntoIterator<Item = TokenId>,
        position: usize,
    ) -> Result<Distribution, ModelError> {
        let found = if row.stats.is_none() { survey(row.logits) } else { None };
        let stats = row.stats.or(found.as_ref());
        let stats = stats.filter(|s| s.log_sum_exp.is_finite()).ok_or(ModelError::NotFinite { position })?;
        let greedy = self.sampling.is_greedy();
        if row.logits.is_empty() && !greedy {
            return Err(ModelError::Unsupported(
                "only the best logits of a pass were read, and sampling needs all".into(),
            ));
        }
        Ok(if greedy { listed(row, stats, also, None) } else { self.tempered(row, stats, None) })
    }

    /// `words` is a mask of the logits, a bit each; the statistics are those of the allowed ones.
    fn tempered(&self, row: &LogitRow<'_>, stats: &RowStats, words: Option<&[u32]>) -> Distribution {
        let scale = 1.0 / self.sampling.temperature;
        let mut weights = weights(row.logits, stats.max, scale);
        if let Some(words) = words {
            forbidden::put_in_forbidden(&mut weights, words, 0.0);
        }
        let (total, argmax) = (sum(&weights), row.token(stats.argmax as usize));
        if row.vocab.is_none() && self.sampling.keeps_all() {
            return Distribution::over_all(weights, argmax, total);
        }
        let keep = self.smallest_kept(&weights, total);
        let kept: Vec<(usize, f32)> = weights.into_iter().enumerate().filter(|(i, w)| keep.allows(*i, *w)).collect();
        let total: f64 = kept.iter().map(|(_, w)| f64::from(*w)).sum();
        let entries = kept.into_iter().map(|(i, w)| (row.token(i), (f64::from(w) / total) as f32)).collect();
        Distribution::new(row.by_token(entries), argmax, 0.0)
    }

    /// The last token that top-k, top-p and min-p keep. Weights are relative to the best token, whose weight is 1.
    fn smallest_kept(&self, weights: &[f32], total: f64) -> Kept {
        let Sampling { top_k, top_p, min_p, .. } = self.sampling;
        let by_min_p = Kept { weight: min_p.max(f32::MIN_POSITIVE), index: usize::MAX };
        if top_k == 0 && top_p >= 1.0 {
            return by_min_p;
        }
        let mut kept = Kept { weight: f32::MIN_POSITIVE, index: usize::MAX };
        let mut order: Vec<usize> = (0..weights.len()).filter(|i| weights[*i] >= kept.weight).collect();
        let best_first = |a: &usize, b: &usize| weights[*b].total_cmp(&weights[*a]).then(a.cmp(b));
        let mut mass = total;
        if top_k > 0 {
            let k = (top_k as usize).min(order.len());
            if k < order.len() {
                order.select_nth_unstable_by(k, best_first);
                order.truncate(k);
            }
            order.sort_unstable_by(best_first);
            // top-p counts the probability of the tokens that top-k kept
            mass = order.iter().map(|i| f64::from(weights[*i])).sum();
        }
        let (mut reached, mut from, mut part) = (0.0, 0, SORTED_AT_ONCE);
        'kept: while from < order.len() {
            // most tokens are after the last one kept and need no order
            let to = (from + part).min(order.len());
            if to < order.len() {
                order[from..].select_nth_unstable_by(to - from, best_first);
            }
            order[from..to].sort_unstable_by(best_first);
            for i in order[from..to].iter().copied() {
                kept = Kept { weight: weights[i], index: i };
                reached += f64::from(weights[i]);
                if reached >= f64::from(top_p) * mass && top_p < 1.0 {
                    break 'kept;
                }
            }
            (from, part) = (to, part * 4);
        }
        if kept.weight < by_min_p.weight { by_min_p } else { kept }
    }
}

/// Tokens that top-p puts into order at once; the next part is four times as large.
const SORTED_AT_ONCE: usize = 256;

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

/// Computes the statistics: one pass for the maximum, one for the sum. None when a logit is infinite or NaN.
fn survey(logits: &[f32]) -> Option<RowStats> {
    let peaks: Vec<f32> = logits.chunks(STRETCH).map(largest).collect();
    let max = largest(&peaks);
    // 0 · x is 0 for finite x, else NaN, and one NaN makes the sum NaN
    let check: f32 = logits.chunks(64).map(|block| block.iter().fold(0.0, |sum, x| sum + x * 0.0)).sum();
    let argmax = logits.iter().position(|x| *x == max).filter(|_| check == 0.0)?;
    let total: f64 = logits.chunks(256).map(|block| f64::from(block.iter().map(|x| exp(x - max)).sum::<f32>())).sum();
    Some(RowStats { argmax: argmax as u32, max, log_sum_exp: max + total.ln() as f32, best: Best::Peaks(peaks) })
}

/// Probabilities at temperature 1 of the best candidates (and those in `also`), for display. `words` is a mask of the logits,
/// a bit each; the statistics are those of the allowed ones, and so are the tokens in `also`.
fn listed(
    row: &LogitRow<'_>,
    stats: &RowStats,
    also: impl IntoIterator<Item = TokenId>,
    words: Option<&[u32]>,
) -> Distribution {
    let mut listed: Vec<(usize, f32)> = match &stats.best {
        Best::Peaks(peaks) => {
            let mut indices = best_indices((row.logits, words), peaks, LISTED);
            indices.extend(also.into_iter().filter_map(|token| row.index(token)));
            indices.push(stats.argmax as usize);
            indices.into_iter().map(|i| (i, row.logits[i])).collect()
        }
        // those in `also` are the tokens of the rows that continue this one
        Best::Logits(best) => best.iter().map(|(i, logit)| (*i as usize, *logit)).collect(),
    };
    listed.sort_unstable_by_key(|(index, _)| *index);
    listed.dedup_by_key(|(index, _)| *index);
    let prob = |logit: f32| (logit - stats.log_sum_exp).exp();
    let entries = row.by_token(listed.into_iter().map(|(i, logit)| (row.token(i), prob(logit))).collect());
    let mass: f64 = entries.iter().map(|(_, p)| f64::from(*p)).sum();
    Distribution::new(entries, row.token(stats.argmax as usize), (1.0 - mass).clamp(0.0, 1.0) as f32)
}

/// Indices of the `n` largest logits that a mask allows, if there is one, in no order. They lie in the `n` stretches with
/// the highest peaks; searching these from the highest down usually ends early.
fn best_indices((logits, words): (&[f32], Option<&[u32]>), peaks: &[f32], n: usize) -> Vec<usize> {
    let mut stretches: Vec<(f32, usize)> = peaks.iter().copied().zip((0..).step_by(STRETCH)).collect();
    let highest_first = |a: &(f32, usize), b: &(f32, usize)| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1));
    if n < stretches.len() {
        stretches.select_nth_unstable_by(n, highest_first);
        stretches.truncate(n);
    }
    stretches.sort_unstable_by(highest_first);
    let mut best = Largest::new(n);
    let mut copy = [0.0; STRETCH];
    for (peak, start) in stretches {
        if peak <= best.bar() {
            break;
        }
        let stretch = &logits[start..logits.len().min(start + STRETCH)];
        let stretch = match words {
            Some(words) => forbidden::allowed_stretch(stretch, words, start, &mut copy),
            None => stretch,
        };
        best.search(stretch, start);
    }
    best.found.into_iter().map(|(_, i)| i).collect()
}

/// e^(scale · (logit − max)) of each.
#[multiversion(targets = "simd")]
fn weights(logits: &[f32], max: f32, scale: f32) -> Vec<f32> {
    logits.iter().map(|logit| exp((logit - max) * scale)).collect()
}

/// e^x for x ≤ 0, relative error below 3e-7: 2^n · e^r with a polynomial for e^r (Cephes expf). It uses only plain
/// arithmetic, so that the compiler vectorises it.
#[inline(always)]
fn exp(x: f32) -> f32 {
    let x = if x > -87.0 { x } else { -87.0 };
    // adding 1.5 · 2^23 rounds to the nearest integer, which is then in the lowest bits
    let shifted = x * std::f32::consts::LOG2_E + 12_582_912.0;
    let n = shifted - 12_582_912.0;
    let r = x - n * 0.693_359_4 + n * 2.121_944_4e-4;
    let p = 1.987_569_1e-4;
    let p = p * r + 1.398_199_9e-3;
    let p = p * r + 8.333_452e-3;
    let p = p * r + 4.166_579_6e-2;
    let p = p * r + 0.166_666_65;
    let p = p * r + 0.5;
    let y = p * r * r + r + 1.0;
    y * f32::from_bits((shifted.to_bits() - (12_582_912.0f32.to_bits() - 127)) << 23)
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
        let d = sampler(Sampling::default()).distribution(&logits[..].into(), Some(TokenId(3)), 0).unwrap();
        let best = (0..1000).max_by(|a, b| logits[*a].total_cmp(&logits[*b])).unwrap();
        assert_eq!(d.argmax(), TokenId(best as u32));
        assert_eq!(d.entries().count(), LISTED + 1);
        for (token, p) in d.entries() {
            assert!((f64::from(p) - want[token.index()]).abs() < 1e-6);
        }
        let mass: f32 = d.entries().map(|e| e.1).sum();
        assert!((mass + d.tail() - 1.0).abs() < 1e-6);
    }

    #[test]
    fn the_best_logits_alone_give_the_distribution_of_all() {
        let logits: Vec<f32> = (0..2000).map(|i| ((i * 7919) % 2003) as f32 / 100.0).collect();
        let stats = survey(&logits).unwrap();
        let mut order: Vec<u32> = (0..2000).collect();
        order.sort_by(|a, b| logits[*b as usize].total_cmp(&logits[*a as usize]));
        order.truncate(LISTED);
        order.push(3); // as a drafted token is listed
        let best = Best::Logits(order.iter().map(|i| (*i, logits[*i as usize])).collect());
        let [all, best] = [RowStats { best: stats.best.clone(), ..stats.clone() }, RowStats { best, ..stats }];
        let greedy = sampler(Sampling::default());
        let row = |logits, stats| LogitRow { logits, vocab: None, stats: Some(stats) };
        let expected = greedy.distribution(&row(&logits, &all), Some(TokenId(3)), 0).unwrap();
        assert_eq!(greedy.distribution(&row(&[], &best), Some(TokenId(3)), 0).unwrap(), expected);
        assert_eq!(expected.entries().count(), LISTED + 1);
        let warm = sampler(Sampling { temperature: 1.0, ..Sampling::default() });
        assert!(warm.distribution(&row(&[], &best), None, 0).is_err(), "sampling needs all logits");
    }

    #[test]
    fn equal_logits_take_the_first() {
        let d = sampler(Sampling::default()).distribution(&[1.0, 2.0, 2.0][..].into(), None, 0).unwrap();
        assert_eq!(d.argmax(), TokenId(1));
    }

    #[test]
    fn truncations_keep_the_right_tokens() {
        let logits = [3.0f32, 1.0, 2.0, 0.0, 2.5];
        let want = softmax(&logits, 0.7);
        let kept = |sampling: Sampling| -> Vec<u32> {
            let sampling = Sampling { temperature: 0.7, ..sampling };
            let d = sampler(sampling).distribution(&logits[..].into(), None, 0).unwrap();
            let total: f64 = d.entries().map(|e| want[e.0.index()]).sum();
            for (token, p) in d.entries() {
                assert!((f64::from(p) - want[token.index()] / total).abs() < 1e-6);
            }
            d.entries().map(|e| e.0.0).collect()
        };
        let all = Sampling::default();
        assert_eq!(kept(all), [0, 1, 2, 3, 4]);
        assert_eq!(kept(Sampling { top_k: 2, ..all }), [0, 4]);
        assert_eq!(kept(Sampling { top_p: 0.5, ..all }), [0]);
        assert_eq!(kept(Sampling { top_p: 0.8, ..all }), [0, 4]);
        assert_eq!(kept(Sampling { min_p: 0.2, ..all }), [0, 2, 4]);
        assert_eq!(kept(Sampling { top_k: 1, top_p: 0.1, min_p: 0.9, ..all }), [0]);
        // min-p comes last: the tokens that it drops count for top-p, and a top-k that keeps all changes nothing
        assert_eq!(kept(Sampling { top_p: 0.6, min_p: 0.4, ..all }), [0, 4]);
        assert_eq!(kept(Sampling { top_k: 5, top_p: 0.6, min_p: 0.4, ..all }), [0, 4]);
        assert_eq!(kept(Sampling { top_k: 5, top_p: 0.99, min_p: 0.2, ..all }), [0, 2, 4]);
    }

    #[test]
    fn top_p_keeps_what_a_sort_of_all_tokens_keeps() {
        // many equal weights, and a flat row, so that several parts are put into order
        let logits: Vec<f32> = (0..5000).map(|i| ((i * 7919) % 97) as f32 / 60.0).collect();
        for top_p in [0.001, 0.3, 0.9, 0.999] {
            let sampling = Sampling { temperature: 1.0, top_p, ..Sampling::default() };
            let kept = sampler(sampling).distribution(&logits[..].into(), None, 0).unwrap();
            let weights = weights(&logits, largest(&logits), 1.0);
            let mut order: Vec<usize> = (0..5000).collect();
            order.sort_by(|a, b| weights[*b].total_cmp(&weights[*a]).then(a.cmp(b)));
            let (total, mut reached) = (sum(&weights), 0.0);
            let last = order.iter().position(|i| {
                reached += f64::from(weights[*i]);
                reached >= f64::from(top_p) * total
            });
            let mut expected: Vec<usize> = order[..=last.unwrap()].to_vec();
            expected.sort_unstable();
            assert_eq!(kept.entries().map(|entry| entry.0.index()).collect::<Vec<_>>(), expected, "{top_p}");
        }
    }

    #[test]
    fn a_draft_vocabulary_names_the_tokens() {
        let vocab = [TokenId(5), TokenId(9)];
        let row = LogitRow { logits: &[0.0, 1.0], vocab: Some(&vocab), stats: None };
        for temperature in [0.0, 1.0] {
            let sampling = Sampling { temperature, ..Sampling::default() };
            let d = sampler(sampling).distribution(&row, Some(TokenId(77)), 0).unwrap();
            assert_eq!(d.argmax(), TokenId(9));
            assert!((d.prob(TokenId(5)) - 0.268_941).abs() < 1e-5);
        }
    }

    #[test]
    fn infinite_logits_and_nan_are_errors() {
        for bad in [f32::NAN, f32::INFINITY] {
            let mut logits = [0.0; 40];
            logits[20] = bad;
            let error = sampler(Sampling::default()).distribution(&logits[..].into(), None, 7).unwrap_err();
            assert!(error.to_string().contains("position 7"), "{error}");
        }
    }
}
