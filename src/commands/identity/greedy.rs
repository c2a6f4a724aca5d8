//! Greedy texts: identical token by token, or a diagnosis of the difference.

use std::fmt::Write as _;

use anyhow::Result;
use draftscope::cli::{DraftLenArg, IdentityArgs};
use draftscope::engine::identity::{Diagnosis, Ending, Rate, Record, Side, answer, diagnose_under};
use draftscope::model::text::tokenizer::TextCodec;
use draftscope::protocol::{DrafterKind, TokenId, counted};
use draftscope::session::text::{one_line, quoted};
use serde::Serialize;

use super::setup::{Bench, Trial};

/// Differences that are written out in text.
const SHOWN: usize = 10;

/// What was compared and found.
#[derive(Serialize)]
pub(super) struct Report {
    prompts: usize,
    row_by_row: bool,
    /// Runs whose text differs from the plain text ÷ runs.
    pub(super) divergence: Rate,
    /// Prompts with any such run ÷ prompts.
    prompts_diverged: Rate,
    /// Output tokens compared.
    tokens: u64,
    groups: Vec<Group>,
    differences: Vec<Difference>,
}

/// All prompts with one drafter and k.
#[derive(Serialize)]
struct Group {
    drafter: DrafterKind,
    draft_len: DraftLenArg,
    divergence: Rate,
    /// Output tokens of rounds ÷ rounds: shows that drafts really were accepted and discarded.
    tokens_per_round: f64,
    rounds: u64,
    rollbacks: u64,
    committed: u64,
}

/// One run whose text differs from the plain text.
#[derive(Serialize)]
struct Difference {
    prompt: String,
    drafter: DrafterKind,
    draft_len: DraftLenArg,
    diagnosis: Diagnosis,
}

pub(super) fn run(args: &IdentityArgs, bench: &mut Bench, prompts: &[String]) -> Result<Report> {
    let mut trials = bench.trials(&args.k)?;
    let mut report = Report {
        prompts: prompts.len(),
        row_by_row: args.row_by_row,
        divergence: Rate::default(),
        prompts_diverged: Rate::default(),
        tokens: 0,
        groups: trials.iter().map(Group::of).collect(),
        differences: Vec::new(),
    };
    let mut prompts_diverged = 0;
    for (number, text) in prompts.iter().enumerate() {
        let before = report.differences.len();
        prompt(args, (bench, &mut trials), text, &mut report)?;
        prompts_diverged += u64::from(report.differences.len() > before);
        if (number + 1) % 20 == 0 {
            eprintln!(
                "draftscope: {} of {}, {}",
                number + 1,
                counted(prompts.len(), "prompt"),
                counted(report.differences.len(), "difference")
            );
        }
    }
    let runs = (prompts.len() * report.groups.len()) as u64;
    report.divergence = Rate::of(report.differences.len() as u64, runs);
    report.prompts_diverged = Rate::of(prompts_diverged, prompts.len() as u64);
    for group in &mut report.groups {
        let own = |d: &&Difference| (d.drafter, d.draft_len) == (group.drafter, group.draft_len);
        group.divergence = Rate::of(report.differences.iter().filter(own).count() as u64, prompts.len() as u64);
        group.tokens_per_round = group.committed as f64 / group.rounds.max(1) as f64;
    }
    Ok(report)
}

fn prompt(
    args: &IdentityArgs,
    (bench, trials): (&mut Bench, &mut [Trial]),
    text: &str,
    report: &mut Report,
) -> Result<()> {
    let tokens = bench.tokens(text, args.raw)?;
    let Bench { plain, speculative, fresh, codec, settings, grammar, .. } = bench;
    let ending = Ending { limit: args.max_tokens as usize, is_end: &|token| codec.is_end(token) };
    let want = answer(plain, &tokens, ending, None)?;
    let answered: Vec<TokenId> = tokens.iter().chain(&want.tokens).copied().collect();
    for (group, trial) in report.groups.iter_mut().zip(trials) {
        let (drafter, draft_len) = (group.drafter, group.draft_len);
        speculative.set(&trial.settings(settings));
        speculative.offer(&answered); // for the oracle
        let got = answer(speculative, &tokens, ending, trial.policy.as_mut())?;
        speculative.take_notices().iter().for_each(|notice| super::super::output::say(notice));
        report.tokens += got.tokens.len() as u64;
        group.count(&got);
        let constraint = grammar.as_mut().map(|(_, constraint)| constraint);
        if let Some(diagnosis) = diagnose_under(constraint, fresh.as_ref(), &want, &got)? {
            report.differences.push(Difference { prompt: text.to_owned(), drafter, draft_len, diagnosis });
        }
    }
    Ok(())
}

impl Group {
    fn of(trial: &Trial) -> Self {
        Self {
            drafter: trial.drafter,
            draft_len: trial.k,
            divergence: Rate::default(),
            tokens_per_round: 0.0,
            rounds: 0,
            rollbacks: 0,
            committed: 0,
        }
    }

    fn count(&mut self, record: &Record) {
        self.rounds += record.rounds.len() as u64;
        self.rollbacks += record.rounds.iter().filter(|round| round.rolled_back).count() as u64;
        // without the token that prefill gave, and without tokens after the answer's end
        self.committed += record.tokens.len().saturating_sub(1) as u64;
    }
}

pub(super) fn text(report: &Report, codec: &TextCodec) -> String {
    let mut out = String::new();
    let mut line = |text: String| {
        let _ = writeln!(out, "{text}"); // writing to a String cannot fail
    };
    line("drafter              k   differ   tokens per round   rounds   rolled back".to_owned());
    for group in &report.groups {
        line(format!(
            "{:<18} {:>3} {:>8} {:>18.2} {:>8} {:>13}",
            group.drafter,
            group.draft_len,
            format!("{}/{}", group.divergence.count, group.divergence.trials),
            group.tokens_per_round,
            group.rounds,
            group.rollbacks
        ));
    }
    for difference in report.differences.iter().take(SHOWN) {
        line(String::new());
        difference_lines(difference, codec).into_iter().for_each(&mut line);
    }
    if report.differences.len() > SHOWN {
        line(format!("… and {}", counted(report.differences.len() - SHOWN, "more difference")));
    }
    line(String::new());
    let mode = if report.row_by_row { ", verified one row at a time" } else { "" };
    line(format!("{} compared{mode}", counted(report.tokens as usize, "token")));
    line(format!("runs that differ     {}", rate(&report.divergence)));
    line(format!("prompts that differ  {}", rate(&report.prompts_diverged)));
    out
}

fn rate(rate: &Rate) -> String {
    format!(
        "{} of {}: {:.2} % (95 % interval {:.2}–{:.2} %)",
        rate.count,
        rate.trials,
        rate.rate * 100.0,
        rate.low * 100.0,
        rate.high * 100.0
    )
}

fn difference_lines(difference: &Difference, codec: &TextCodec) -> Vec<String> {
    let Difference { prompt, drafter, draft_len, diagnosis: d } = difference;
    let name = |token: Option<TokenId>| token.map_or("the end".to_owned(), |token| quoted(&codec.piece(token)));
    let side = |what: &str, side: &Option<Side>| {
        let side = side.as_ref()?;
        let (best, second) = (name(Some(side.best)), name(Some(side.second)));
        Some(format!("  {what:<22} {best} before {second} by {:.2e} nats", side.margin))
    };
    let rolled = if d.previous_rolled_back { "rolled back" } else { "kept everything" };
    let mut lines = vec![
        format!("{}: {drafter}, k = {draft_len}, {}", d.cause, one_line(prompt)),
        format!(
            "  token {} is {} plainly and {} speculatively; verified in {} rows, the round before {rolled}; {} tokens differ from here on",
            d.index + 1,
            name(d.plain),
            name(d.speculative),
            d.width,
            d.different_tokens
        ),
    ];
    let sides = [
        ("plain run", &d.plain_row),
        ("speculative run", &d.speculative_row),
        ("again, row by row", &d.row_by_row),
        ("again, in one pass", &d.fresh_pass),
    ];
    lines.extend(sides.iter().filter_map(|(what, s)| side(what, s)));
    lines.push(format!("  {}", d.reason));
    lines
}
