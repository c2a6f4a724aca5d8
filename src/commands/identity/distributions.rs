//! Sampled tokens: do both modes draw from one distribution?

use std::fmt::Write as _;

use anyhow::Result;
use draftscope::cli::{DraftLenArg, IdentityArgs};
use draftscope::engine::identity::{distribution_test, sample};
use draftscope::protocol::{DrafterKind, Settings};
use draftscope::session::text::one_line;
use serde::Serialize;

use super::setup::Bench;

/// All comparisons.
#[derive(Serialize)]
pub(super) struct Report {
    temperature: f32,
    /// Chance of a false alarm in one comparison.
    level: f64,
    comparisons: Vec<Compared>,
}

/// One prompt with one drafter and k.
#[derive(Serialize)]
struct Compared {
    prompt: String,
    drafter: DrafterKind,
    draft_len: DraftLenArg,
    result: distribution_test::Comparison,
}

impl Report {
    /// Whether chance alone explains the number of failed comparisons.
    pub(super) fn is_consistent(&self) -> bool {
        self.failed() <= tolerated(self.comparisons.len(), self.level)
    }

    fn failed(&self) -> usize {
        self.comparisons.iter().filter(|compared| !compared.result.consistent).count()
    }
}

/// Most failures out of `n` that chance explains: more have a probability of at most `level`.
fn tolerated(n: usize, level: f64) -> usize {
    let (mut term, mut below) = ((1.0 - level).powi(n as i32), 0.0);
    for failures in 0..n {
        below += term;
        if 1.0 - below <= level + 1e-12 {
            return failures;
        }
        term *= (n - failures) as f64 / (failures + 1) as f64 * level / (1.0 - level);
    }
    n
}

pub(super) fn run(args: &IdentityArgs, bench: &mut Bench, prompts: &[String]) -> Result<Report> {
    let (count, len) = (u64::from(args.samples), args.sample_len as usize);
    let mut trials = bench.trials(&args.k)?;
    let mut comparisons = Vec::new();
    for text in prompts {
        let tokens = bench.tokens(text, args.raw)?;
        let plain = Settings { draft_len: 0, ..bench.settings };
        let want = sample(&mut bench.plain, &tokens, &plain, (0..count, len), None)?;
        for (number, trial) in (1..).zip(&mut trials) {
            let settings = trial.settings(&bench.settings);
            // seeds of their own: under the rule exact the same ones would give the same texts
            let seeds = number * count..(number + 1) * count;
            let got = sample(&mut bench.speculative, &tokens, &settings, (seeds, len), trial.policy.as_mut())?;
            let result = distribution_test::compare(&want, &got);
            comparisons.push(Compared { prompt: text.clone(), drafter: trial.drafter, draft_len: trial.k, result });
        }
        eprintln!("draftscope: {} comparisons", comparisons.len());
    }
    Ok(Report { temperature: args.temperature, level: distribution_test::LEVEL, comparisons })
}

pub(super) fn text(report: &Report) -> String {
    let mut out = String::new();
    let mut line = |text: String| {
        let _ = writeln!(out, "{text}"); // writing to a String cannot fail
    };
    line("drafter              k   smallest p (corrected)   verdict         power by shift".to_owned());
    for Compared { prompt, drafter, draft_len, result } in &report.comparisons {
        let smallest = result.tests.iter().map(|test| test.corrected).fold(1.0, f64::min);
        let power = result.power.iter().map(|p| format!("{:.0} % at {:.2}", p.power * 100.0, p.shift));
        line(format!(
            "{:<18} {:>3} {:>24.3}   {:<15} {}   {}",
            drafter,
            draft_len,
            smallest,
            if result.consistent { "consistent" } else { "NOT consistent" },
            power.collect::<Vec<_>>().join(", "),
            one_line(prompt)
        ));
    }
    line(String::new());
    line(format!(
        "power: the chance of noticing a distribution at that total variation distance; each comparison raises a false alarm with a chance of {:.0} %",
        report.level * 100.0
    ));
    line(format!(
        "{} of {} comparisons at temperature {} not consistent: {}",
        report.failed(),
        report.comparisons.len(),
        report.temperature,
        if report.is_consistent() {
            "chance explains that, the distributions agree"
        } else {
            "chance does not explain that, the distributions differ"
        }
    ));
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chance_is_allowed_for() {
        assert_eq!([1, 20, 100, 1000].map(|n| tolerated(n, 0.01)), [0, 2, 4, 18]);
    }
}
