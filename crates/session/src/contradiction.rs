//! Whether rejections contradict the probabilities that the engine reports: drafts with p = 0.99 that are rejected again and
//! again mean that the engine does not sample from what it reports (such as vllm-project/vllm#55005).
//!
//! The rule is a test by betting (Ville 1939; Shafer, "Testing by betting", 2021). Given what came before, a lossless rule
//! rejects a tested draft with a known chance r = 1 − min(1, p ÷ q). A bet that it is rejected more often, with chance
//! r + δ (1 − r), multiplies its wealth by (r + δ (1 − r)) ÷ r at a rejection and by 1 − δ at an acceptance, which an honest
//! engine makes no larger on average. So the wealth of an honest engine ever reaches 1 ÷ α with a chance of at most α,
//! however often it is looked at. Three bets, δ = 0.02, 0.1 and 0.4, share the stake.
//!
//! Invariant: r is never understated. It is widened by [`SLACK`] for rounding; where the engine may cut tokens off (top-k,
//! top-p, min-p) only the target's best token counts, which is never cut and only becomes more probable.

use draftscope_protocol::{Outcome, VerifyRule};

use super::findings::NEAR_TIE;
use super::round::Round;

/// α: how often the sentence may be wrong about an honest engine, in a whole run.
pub(super) const ALPHA: f64 = 1e-5;

/// Factor and summand by which the chance of a rejection is widened, since reported probabilities are rounded.
const SLACK: (f64, f64) = (1.1, 0.005);

/// Chances above this say nothing about too many rejections.
const MOST: f64 = 0.9;

/// The bets.
const DELTAS: [f64; 3] = [0.02, 0.1, 0.4];

/// What speaks against the reported probabilities.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Evidence {
    /// Natural logarithm of the wealth of each bet.
    wealth: [f64; DELTAS.len()],
    /// The largest joint wealth so far, as a logarithm.
    peak: f64,
    tested: u64,
    rejected: u64,
    expected: f64,
}

impl Evidence {
    /// Takes the drafts of a round that were tested.
    pub(super) fn add(&mut self, round: &Round) {
        if !is_testable(round) {
            return;
        }
        for index in 0..round.drafts.len() {
            let (Some(outcome), Some(chance)) = (round.outcome(index), chance(round, index)) else { return };
            match outcome {
                Outcome::NotReached => return,
                Outcome::Accepted => self.bet(chance, false),
                Outcome::Rejected => self.bet(chance, true),
            }
        }
    }

    /// A draft that is rejected with a chance of at most `chance`, and whether it was.
    fn bet(&mut self, chance: f64, is_rejected: bool) {
        let r = chance.mul_add(SLACK.0, SLACK.1);
        if r > MOST {
            return;
        }
        self.tested += 1;
        self.rejected += u64::from(is_rejected);
        self.expected += r;
        for (wealth, delta) in self.wealth.iter_mut().zip(DELTAS) {
            *wealth += if is_rejected { (delta.mul_add(1.0 - r, r) / r).ln() } else { (1.0 - delta).ln() };
        }
        self.note_peak();
    }

    fn note_peak(&mut self) {
        let most = self.wealth.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let sum: f64 = self.wealth.iter().map(|wealth| (wealth - most).exp()).sum();
        self.peak = self.peak.max(most + (sum / DELTAS.len() as f64).ln());
    }

    /// Adds the evidence of another answer.
    pub(super) fn merge(&mut self, other: &Self) {
        for (wealth, more) in self.wealth.iter_mut().zip(other.wealth) {
            *wealth += more;
        }
        self.tested += other.tested;
        self.rejected += other.rejected;
        self.expected += other.expected;
        self.note_peak();
    }

    /// Whether an honest engine would do this in fewer than `ALPHA` of all runs.
    #[must_use]
    pub fn contradicts(&self) -> bool {
        self.peak >= -ALPHA.ln()
    }

    /// The finding in words, without a final stop; none as long as the rejections can be chance.
    #[must_use]
    pub fn sentence(&self) -> Option<String> {
        self.contradicts().then(|| {
            format!(
                "rejections contradict the reported probabilities: {} of {} drafts were rejected, {:.1} are expected; the \
                 engine does not sample from the p that it reports",
                self.rejected, self.tested, self.expected
            )
        })
    }
}

/// Whether the chances of this round's outcomes follow from its probabilities.
fn is_testable(round: &Round) -> bool {
    let is_lossless = round.verdict.as_ref().is_some_and(|verdict| verdict.lossless);
    is_lossless && matches!(round.rule, VerifyRule::Exact | VerifyRule::Rejection) && !round.is_tree()
}

/// The chance of draft `index` to be rejected, at most; none where it does not follow.
fn chance(round: &Round, index: usize) -> Option<f64> {
    let judgement = round.judgement(index)?;
    let p = f64::from(judgement.p?);
    let row = round.prediction(index);
    let best = row.and_then(|row| row.best());
    let is_best = best.is_some_and(|best| best.piece.id == round.drafts[index].token.id);
    if round.sampling.is_greedy() {
        let second = row.and_then(|row| row.top.get(1)).map_or(0.0, |second| second.prob);
        let has_margin = best.is_some_and(|best| best.prob - second >= NEAR_TIE);
        return (is_best && has_margin).then_some(0.0);
    }
    if !round.sampling.keeps_all() && !is_best {
        return None;
    }
    // a rule that compares tokens accepts with p; q would only make the chance of a rejection smaller
    let q = judgement.q.filter(|q| *q > 0.0 && round.rule == VerifyRule::Rejection).map_or(1.0, f64::from);
    Some((1.0 - p / q).clamp(0.0, 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use draftscope_protocol::{
        Candidate, Drafted, Judgement, NextKind, Piece, Prediction, Sampling, Scored, TokenId, Verification,
    };

    /// A generator of uniform draws: splitmix64.
    struct Draws(u64);

    impl Draws {
        fn next(&mut self) -> f64 {
            self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
            let mut z = self.0;
            z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
            ((z ^ (z >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
        }
    }

    /// A round of four drafts with these (p, q), of which the engine rejects each with the chance that `reject` gives.
    fn round(draws: &mut Draws, sampling: Sampling, reject: impl Fn(f64, f64) -> f64) -> Round {
        let mut is_open = true;
        let (mut drafts, mut rows, mut judgements) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..4 {
            let (p, q) = (1.0 - draws.next().powi(3), 0.2 + 0.8 * draws.next());
            let outcome = match is_open {
                false => Outcome::NotReached,
                true if draws.next() < reject(p, q) => Outcome::Rejected,
                true => Outcome::Accepted,
            };
            is_open &= outcome == Outcome::Accepted;
            let piece = Piece::new(TokenId(1), "a");
            let candidate = Candidate { piece: piece.clone(), prob: p as f32 };
            let row = Prediction { top: vec![candidate], tail: 1.0 - p as f32 };
            drafts.push(Drafted { token: piece, q: Some(q as f32), top: row.clone(), ..Drafted::default() });
            rows.push(row);
            judgements.push(Judgement { p: Some(p as f32), q: Some(q as f32), u: None, limit: None, outcome });
        }
        let scored = Some(Scored { rows, ..Scored::default() });
        let verdict = Verification::new(judgements, TokenId(2), NextKind::Recovered, None);
        Round { rule: VerifyRule::Rejection, sampling, drafts, scored, verdict: Some(verdict), ..Round::default() }
    }

    const HOT: Sampling = Sampling { temperature: 0.8, top_k: 0, top_p: 1.0, min_p: 0.0, seed: 0 };

    fn honest(p: f64, q: f64) -> f64 {
        1.0 - (p / q).min(1.0)
    }

    /// Rounds until the finding appears, if it does within `most`.
    fn found_after(seed: u64, most: usize, sampling: Sampling, reject: impl Fn(f64, f64) -> f64) -> Option<usize> {
        let (mut draws, mut evidence) = (Draws(seed), Evidence::default());
        (1..=most).find(|_| {
            evidence.add(&round(&mut draws, sampling, &reject));
            evidence.contradicts()
        })
    }

    #[test]
    fn honest_engines_are_never_accused() {
        let cut = Sampling { top_p: 0.9, ..HOT };
        for seed in 0..400 {
            assert_eq!(found_after(seed, 1000, HOT, honest), None, "seed {seed}");
            // a cut distribution gives the best token more, and it is rejected less often
            assert_eq!(found_after(seed, 1000, cut, |p, q| honest(p / 0.9, q)), None, "seed {seed}");
            // half a per cent of rounding
            assert_eq!(found_after(seed, 1000, HOT, |p, q| honest(p - 0.004, q)), None, "seed {seed}");
        }
    }

    #[test]
    fn an_engine_that_draws_from_something_else_is_found_soon() {
        // as on a CPU with vllm#55005: what is accepted has little to do with p
        let mut needed: Vec<_> = (0..200).map(|seed| found_after(seed, 400, HOT, |_, _| 0.5).unwrap_or(400)).collect();
        needed.sort_unstable();
        assert!(needed[199] <= 40, "{needed:?}");
        // one in ten acceptances is lost
        let slight = |p: f64, q: f64| honest(p, q).mul_add(0.9, 0.1);
        let found = (0..50).filter(|seed| found_after(*seed, 1500, HOT, slight).is_some()).count();
        assert!(found >= 45, "{found} of 50");
    }

    #[test]
    fn a_rejected_best_token_contradicts_greedy_decoding_unless_it_was_a_near_tie() {
        let greedy = Sampling::default();
        assert_eq!(found_after(1, 1000, greedy, |_, _| 0.0), None);
        assert!(found_after(1, 100, greedy, |_, _| 0.3).is_some_and(|rounds| rounds < 30));
        let mut evidence = Evidence::default();
        for _ in 0..1000 {
            let mut tied = round(&mut Draws(3), greedy, |_, _| 1.0);
            for row in tied.rows_mut() {
                let other = Candidate { piece: Piece::new(TokenId(9), "b"), prob: row.top[0].prob - 0.01 };
                row.top.push(other);
            }
            evidence.add(&tied);
        }
        assert!(!evidence.contradicts(), "a tie may fall either way");
    }

    #[test]
    fn nothing_is_concluded_from_what_is_not_reported() {
        let mut evidence = Evidence::default();
        for seed in 0..500 {
            let mut silent = round(&mut Draws(seed), HOT, |_, _| 1.0);
            let verdict = silent.verdict.as_mut().unwrap();
            verdict.judgements.iter_mut().for_each(|judgement| judgement.p = None);
            evidence.add(&silent);
            let mut lenient = round(&mut Draws(seed), HOT, |_, _| 1.0);
            lenient.rule = VerifyRule::Typical;
            evidence.add(&lenient);
        }
        assert_eq!((evidence.sentence(), evidence.tested), (None, 0));
    }

    #[test]
    fn the_sentence_has_the_counts() {
        let (mut draws, mut evidence) = (Draws(5), Evidence::default());
        let mut other = Evidence::default();
        for _ in 0..30 {
            evidence.add(&round(&mut draws, HOT, |_, _| 0.6));
            other.add(&round(&mut draws, HOT, |_, _| 0.6));
        }
        let alone = evidence.peak;
        evidence.merge(&other);
        assert!(evidence.peak > alone);
        let text = evidence.sentence().unwrap();
        assert!(text.starts_with("rejections contradict the reported probabilities: "), "{text}");
    }
}
