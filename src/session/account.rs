//! The account of speed: what verification costs, what drafts are worth, and which k follows.
//!
//! Invariant: pure arithmetic on measured numbers. The model (Leviathan et al., 2023, section 3.3,
//! with measured costs in place of constants): a round of k drafts yields
//! `E(k) = 1 + Σ_{i ≤ k} Π_{j ≤ i} a_j` tokens and takes `T(k + 1) + k · d + o`; plain decoding takes
//! `T(1) + o` a token. How the numbers were measured is the caller's business.

use serde::Serialize;

use super::LaneStats;

/// Measured times of one machine, model and context, in microseconds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Costs {
    /// T(m): one target pass over m rows, all logits computed; index 0 is m = 1.
    pub verify_us: Vec<f64>,
    /// d: one drafted token.
    pub draft_us: f64,
    /// o: what a round takes outside model passes.
    pub overhead_us: f64,
}

/// What one draft length is worth.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Worth {
    /// k.
    pub draft_len: usize,
    /// E(k): tokens per round, bonus or recovered included.
    pub tokens_per_round: f64,
    /// Time of a round in plain tokens.
    pub round_cost: f64,
    /// E(k) ÷ round cost.
    pub speedup: f64,
    /// Acceptance a, the same at every position, at which this k is as fast as plain decoding; none
    /// when not even a = 1 is enough.
    pub break_even: Option<f64>,
}

/// `Π_{j ≤ i} a_j` for i = 1, 2, …: the share of rounds in which draft i was accepted.
#[must_use]
pub fn reach(stats: &LaneStats) -> Vec<f64> {
    let pairs = stats.accepted_per_pos().iter().zip(stats.offered_per_pos());
    pairs.map(|(accepted, offered)| *accepted as f64 / (*offered).max(1) as f64).collect()
}

/// The worth of every k that was both timed and tried, 1 and up.
#[must_use]
pub fn worths(costs: &Costs, reach: &[f64]) -> Vec<Worth> {
    let Some(plain) = costs.verify_us.first().map(|t| t + costs.overhead_us).filter(|t| *t > 0.0) else {
        return Vec::new();
    };
    let timed = costs.verify_us.len() - 1;
    let worth = |k: usize| {
        let round = costs.verify_us[k] + k as f64 * costs.draft_us + costs.overhead_us;
        let (cost, tokens) = (round / plain, 1.0 + reach[..k].iter().sum::<f64>());
        Worth {
            draft_len: k,
            tokens_per_round: tokens,
            round_cost: cost,
            speedup: tokens / cost,
            break_even: break_even(k, cost),
        }
    };
    (1..=timed.min(reach.len())).map(worth).collect()
}

/// The a in [0, 1] with `1 + a + a² + … + a^k = cost`, by bisection; the left side rises with a.
fn break_even(k: usize, cost: f64) -> Option<f64> {
    let tokens = |a: f64| (0..=k).map(|i| a.powi(i as i32)).sum::<f64>();
    if cost > tokens(1.0) {
        return None;
    }
    let (mut low, mut high) = (0.0, 1.0);
    for _ in 0..60 {
        let middle = f64::midpoint(low, high);
        if tokens(middle) < cost { low = middle } else { high = middle }
    }
    Some(high)
}

/// One sentence that names what limits the speed.
#[must_use]
pub fn sentence(costs: &Costs, reach: &[f64], worths: &[Worth]) -> String {
    let best = worths.iter().copied().max_by(|a, b| a.speedup.total_cmp(&b.speedup));
    let (Some(best), Some(first)) = (best, reach.first()) else {
        return "nothing was drafted, so there is nothing to explain".to_owned();
    };
    let plain = costs.verify_us[0];
    let k = best.draft_len;
    let rows = format!("verifying {} rows costs {:.2}× one row", k + 1, costs.verify_us[k] / plain);
    let drafts = format!("a drafted token costs {:.0} % of it", costs.draft_us / plain * 100.0);
    let accepted = format!("position 1 is accepted {:.0} %", first * 100.0);
    let end = if best.speedup < 1.0 {
        format!("no k pays here, k = {k} comes closest with {:.2}×: use plain decoding", best.speedup)
    } else {
        format!("k = {k} is best here, {:.2}× plain", best.speedup)
    };
    format!("{rows}, {drafts}; {accepted}: {end}; {}", limit(costs, &best))
}

/// What would help most: a cheaper pass, cheaper drafts, or better ones.
fn limit(costs: &Costs, best: &Worth) -> &'static str {
    let extra = costs.verify_us[best.draft_len] - costs.verify_us[0];
    let drafts = best.draft_len as f64 * costs.draft_us;
    let missed = (best.draft_len as f64 + 1.0 - best.tokens_per_round) / (best.draft_len as f64 + 1.0);
    if missed > (extra + drafts + costs.overhead_us) / (costs.verify_us[0] + extra + drafts) {
        "what limits it is acceptance"
    } else if extra > drafts {
        "what limits it is the cost of the additional rows"
    } else {
        "what limits it is the cost of drafting"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn costs() -> Costs {
        Costs { verify_us: vec![3000.0, 3060.0, 3300.0, 3600.0], draft_us: 240.0, overhead_us: 60.0 }
    }

    #[test]
    fn tokens_cost_and_speedup_follow_the_formula() {
        let worths = worths(&costs(), &[0.6, 0.3, 0.1, 0.05]);
        assert_eq!(worths.len(), 3, "k = 4 was not timed");
        let two = worths[1];
        assert!((two.tokens_per_round - 1.9).abs() < 1e-12);
        assert!((two.round_cost - (3300.0 + 480.0 + 60.0) / 3060.0).abs() < 1e-12);
        assert!((two.speedup - two.tokens_per_round / two.round_cost).abs() < 1e-12);
        let a = two.break_even.unwrap();
        assert!((1.0 + a + a * a - two.round_cost).abs() < 1e-9);
        assert_eq!(break_even(2, 3.5), None);
    }

    #[test]
    fn the_sentence_names_the_best_k_and_the_limit() {
        let reach = [0.6, 0.3, 0.1];
        let text = sentence(&costs(), &reach, &worths(&costs(), &reach));
        assert!(text.contains("k = 2 is best here, 1.51× plain") && text.ends_with("acceptance"), "{text}");
        let never = [0.01, 0.0, 0.0];
        let text = sentence(&costs(), &never, &worths(&costs(), &never));
        assert!(text.contains("use plain decoding"), "{text}");
        assert!(sentence(&costs(), &[], &[]).contains("nothing was drafted"));
    }
}
