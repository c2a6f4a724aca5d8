//! The same texts on another implementation: `verify-identity --reference`.
//!
//! Our greedy text is fed to the reference token by token, and both predict each next token. Where their best tokens first
//! differ, the reference's own greedy text would differ from ours.

#[cfg(feature = "reference")]
mod candle;
mod report;
mod server;

use std::fmt::Write as _;

use anyhow::Result;
use draftscope::cli::IdentityArgs;
use draftscope::engine::identity::Rate;
use draftscope::model::LogitRows;
use draftscope::protocol::TokenId;
use draftscope::session::text::{one_line, quoted};

use super::setup::Bench;
use report::{FirstDifference, Reference, Report, ours};

/// First differences that are written out in text.
const SHOWN: usize = 10;

/// Compares with the reference that the arguments name.
pub(super) fn run(args: &IdentityArgs, bench: &mut Bench, prompts: &[String], name: &str) -> Result<Report> {
    if name.starts_with("http://") || name.starts_with("https://") {
        return server::run(args, bench, prompts, name);
    }
    let mut reference = load(args)?;
    on(args, bench, prompts, reference.as_mut())
}

#[cfg(feature = "reference")]
fn load(args: &IdentityArgs) -> Result<Box<dyn Reference>> {
    let settings = draftscope::protocol::Settings::default();
    candle::load(&super::super::recipe::recipe(&args.model, &settings)?.target)
}

#[cfg(not(feature = "reference"))]
fn load(_args: &IdentityArgs) -> Result<Box<dyn Reference>> {
    anyhow::bail!(
        "this build has no reference; build with `cargo build --release --features reference`, or name a server"
    )
}

fn on(args: &IdentityArgs, bench: &mut Bench, prompts: &[String], reference: &mut dyn Reference) -> Result<Report> {
    let (mut agreeing, mut tokens, mut first_differences, mut divergences) = (0, 0, Vec::new(), Vec::new());
    for text in prompts {
        let prompt = bench.tokens(text, args.raw)?;
        let want = ours(args, bench, &prompt)?;
        let mut model = bench.fresh.fork()?;
        let mut own = model.forward(&prompt, LogitRows::Last)?;
        let mut other = reference.begin(&prompt)?;
        let mut first = None;
        for (index, token) in want.tokens.iter().enumerate() {
            let row = own.logits.last().unwrap_or_default();
            let (us, them) = (Best::of(row), Best::of(&other));
            if other.iter().any(|logit| logit.is_nan()) {
                anyhow::bail!("the reference's logits at output token {index} are no numbers");
            }
            divergences.push(kl(row, &other));
            tokens += 1;
            agreeing += u64::from(us.token == them.token);
            if us.token != them.token && first.is_none() {
                let name = |token: usize| quoted(&bench.codec.piece(TokenId(token as u32)));
                first = Some(FirstDifference {
                    prompt: text.clone(),
                    index,
                    ours: name(us.token),
                    theirs: name(them.token),
                    our_margin: Some(us.margin),
                    their_margin: Some(them.margin),
                });
            }
            if index + 1 < want.tokens.len() {
                own = model.forward(&[*token], LogitRows::Last)?;
                other = reference.read(*token, prompt.len() + index)?;
            }
        }
        first_differences.extend(first);
    }
    let mean = divergences.iter().sum::<f64>() / divergences.len().max(1) as f64;
    Ok(Report {
        reference: reference.name().to_owned(),
        prompts: prompts.len(),
        identical: Rate::of((prompts.len() - first_differences.len()) as u64, prompts.len() as u64),
        tokens,
        agreeing: Rate::of(agreeing, tokens),
        kl_mean: Some(mean).filter(|_| tokens > 0),
        kl_max: divergences.iter().copied().reduce(f64::max),
        first_differences,
    })
}

/// The best token of a row of logits; of equal ones the first.
struct Best {
    token: usize,
    /// Best − second-best logit, which is ln p(best) − ln p(second).
    margin: f64,
}

impl Best {
    fn of(logits: &[f32]) -> Self {
        let (mut token, mut best, mut second) = (0, f32::NEG_INFINITY, f32::NEG_INFINITY);
        for (index, &logit) in logits.iter().enumerate() {
            if logit > best {
                (token, second, best) = (index, best, logit);
            } else if logit > second {
                second = logit;
            }
        }
        Self { token, margin: f64::from(best) - f64::from(second) }
    }
}

/// Σ p ln(p ÷ q) over the tokens that both have, in nats; p of our logits, q of the reference's.
fn kl(ours: &[f32], theirs: &[f32]) -> f64 {
    let len = ours.len().min(theirs.len());
    let [p, q] = [&ours[..len], &theirs[..len]].map(log_softmax);
    p.iter().zip(&q).filter(|(p, _)| p.is_finite()).map(|(p, q)| p.exp() * (p - q)).sum::<f64>().max(0.0)
}

fn log_softmax(logits: &[f32]) -> Vec<f64> {
    let most = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f64 = logits.iter().map(|logit| f64::from(logit - most).exp()).sum();
    logits.iter().map(|logit| f64::from(logit - most) - sum.ln()).collect()
}

/// The report for people.
pub(super) fn text(report: &Report) -> String {
    let mut out = String::new();
    let percent = |rate: &Rate| format!("{:.2} %", 100.0 * rate.count as f64 / rate.trials.max(1) as f64);
    let _ = writeln!(
        out,
        "against {}: {} of {} greedy texts are the same; the best token is the same for {} of {} ({})",
        report.reference,
        report.identical.count,
        report.prompts,
        report.agreeing.count,
        report.tokens,
        percent(&report.agreeing)
    );
    if let (Some(mean), Some(most)) = (report.kl_mean, report.kl_max) {
        let _ = writeln!(out, "KL divergence from ours: mean {mean:.2e} nats, largest {most:.2e}");
    }
    for first in report.first_differences.iter().take(SHOWN) {
        let margins = first.our_margin.zip(first.their_margin);
        let margins =
            margins.map_or_else(String::new, |(ours, theirs)| format!(" (margins {ours:.4} and {theirs:.4} nats)"));
        let _ = writeln!(
            out,
            "  token {}: ours {}, theirs {}{margins}; prompt '{}'",
            first.index,
            first.ours,
            first.theirs,
            one_line(&first.prompt.chars().take(60).collect::<String>())
        );
    }
    if report.first_differences.len() > SHOWN {
        let _ = writeln!(out, "  and {} more", report.first_differences.len() - SHOWN);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn divergence_and_margin_follow_their_formulas() {
        assert_eq!(kl(&[1.0, 2.0, 3.0], &[1.0, 2.0, 3.0]), 0.0);
        // p = (1/2, 1/2), q = (1/4, 3/4): ln 2 − ln 3 / 2
        let far = kl(&[0.0, 0.0], &[0.0, 3.0f32.ln()]);
        assert!((far - (2.0f64.ln() - 3.0f64.ln() / 2.0)).abs() < 1e-6, "{far}");
        let masked = kl(&[0.0, 0.0, f32::NEG_INFINITY], &[0.0, 3.0f32.ln(), -9.0]);
        assert!((masked - far).abs() < 1e-3, "{masked}");
        assert!(kl(&[0.0, 0.0], &[5.0, 4.0, 3.0]) > 0.0, "a padded vocabulary is compared as far as both have it");
        let best = Best::of(&[1.0, 3.0, 3.0, 2.5]);
        assert_eq!((best.token, best.margin), (1, 0.0), "of equal logits the first");
        assert_eq!(Best::of(&[1.0, -1.0]).margin, 2.0);
    }
}
