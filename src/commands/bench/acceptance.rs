//! Whether acceptance changed since an earlier report: over the same answers, and by position.

use super::row::{Case, ENOUGH, Row};

/// How acceptance changed, answer by answer: the same prompts, in the same order.
pub(super) struct AcceptanceChange {
    /// Mean of the differences.
    mean: f64,
    /// Half of the 95 % interval of that mean.
    margin: f64,
}

impl AcceptanceChange {
    /// Student's t on paired differences, with 2.78 for few answers (5) falling to 1.96. None with too few pairs.
    pub(super) fn of(old: &Row, new: &Row) -> Option<Self> {
        if old.acceptance_by_answer.len() != new.acceptance_by_answer.len() {
            return None;
        }
        let pairs = old.acceptance_by_answer.iter().zip(&new.acceptance_by_answer);
        let differences: Vec<f64> = pairs.filter_map(|(old, new)| Some((*new)? - (*old)?)).collect();
        let count = differences.len() as f64;
        if differences.len() < ENOUGH {
            return None;
        }
        let mean = differences.iter().sum::<f64>() / count;
        let variance = differences.iter().map(|d| (d - mean).powi(2)).sum::<f64>() / (count - 1.0);
        let t = 1.96 + 3.28 / (count - 1.0); // within 2 % of the quantile from 5 answers on
        Some(Self { mean, margin: t * (variance / count).sqrt() })
    }

    pub(super) fn is_lost(&self) -> bool {
        self.mean + self.margin < -1e-9
    }
}

/// What became of acceptance, in lines; none where it is known of one report only, or did not change.
pub(super) fn lines(old: &Row, new: &Row) -> Vec<String> {
    let Some((then, now)) = old.draft_acceptance_rate.zip(new.draft_acceptance_rate) else { return Vec::new() };
    let Case { drafter, category, .. } = &new.case;
    let verdict = match AcceptanceChange::of(old, new) {
        None => "too few answers of the same prompts for a verdict".to_owned(),
        Some(change) if change.is_lost() => {
            format!("lost ({:+.1} ±{:.1} points an answer)", change.mean * 100.0, change.margin * 100.0)
        }
        Some(change) if change.mean - change.margin > 1e-9 => {
            format!("gained ({:+.1} ±{:.1} points an answer)", change.mean * 100.0, change.margin * 100.0)
        }
        Some(_) => "no change beyond the spread".to_owned(),
    };
    let mut lines =
        vec![format!("  {drafter} {category:<12} acceptance {:.1} % → {:.1} %, {verdict}", then * 100.0, now * 100.0)];
    if let Some((then, now)) = old.tokens_per_round.zip(new.tokens_per_round) {
        lines.push(format!("    tokens per round, median {:.2} → {:.2}", then.median, now.median));
    }
    let share = |row: &Row, at: usize| {
        let (offered, accepted) = (*row.offered_per_pos.get(at)?, *row.accepted_per_pos.get(at)?);
        (offered > 0).then(|| format!("{:.0} %", accepted as f64 / offered as f64 * 100.0))
    };
    let positions = old.offered_per_pos.len().max(new.offered_per_pos.len());
    let changed: Vec<String> = (0..positions)
        .map(|at| [old, new].map(|row| share(row, at).unwrap_or_else(|| "–".to_owned())))
        .enumerate()
        .filter(|(_, [then, now])| then != now)
        .map(|(at, [then, now])| format!("{}: {then} → {now}", at + 1))
        .collect();
    if !changed.is_empty() && !old.offered_per_pos.is_empty() {
        lines.push(format!("    by position {}", changed.join(", ")));
    }
    lines
}
