//! `draftscope bench`: prompt categories × drafter × rule × k, every answer raced against plain
//! decoding on the same engine, repeats interleaved, with spread and against a saved baseline.

mod screen;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use draftscope::cli::{BenchArgs, DecodeArgs, ModelArgs};
use draftscope::export::write_file;
use draftscope::headless::{Driver, Outcome};
use draftscope::protocol::{Baseline, Command, DraftLenMode, Header, Lane, Prompt, Settings};
use draftscope::session::Turn;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// Longest answer to a prompt.
const ANSWER_TOKENS: u32 = 128;

/// Category under which all prompts stand together.
const ALL: &str = "all";

/// What was run.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
struct Case {
    drafter: String,
    rule: String,
    /// A number, or auto.
    k: String,
    category: String,
}

/// What one answer came to.
#[derive(Clone, Copy)]
struct Sample {
    speedup: Option<f64>,
    speculative: Option<f64>,
    plain: Option<f64>,
    tokens_per_round: Option<f64>,
    accepted: u64,
    drafted: u64,
    is_identical: bool,
}

/// The middle of repeated measurements, and where all but a fifth of them lie.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct Quantiles {
    p10: f64,
    median: f64,
    p90: f64,
}

/// A case in numbers.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Row {
    #[serde(flatten)]
    case: Case,
    answers: usize,
    speedup: Option<Quantiles>,
    speculative_tokens_per_second: Option<Quantiles>,
    plain_tokens_per_second: Option<Quantiles>,
    tokens_per_round: Option<Quantiles>,
    draft_acceptance_rate: Option<f64>,
    identical: usize,
}

/// What `--json` writes and `--baseline` reads.
#[derive(Serialize, Deserialize)]
struct Report {
    /// Of the prompts, to know a comparison of like with like.
    suite_sha256: String,
    prompts: usize,
    repeats: u32,
    max_tokens: u32,
    temperature: f32,
    header: Option<Header>,
    rows: Vec<Row>,
}

pub(crate) fn run(args: &BenchArgs) -> Result<ExitCode> {
    let suite = suite(args)?;
    if args.screen {
        return screen::run(args, &suite);
    }
    let baseline = args.baseline.as_deref().map(read).transpose()?;
    for path in [&args.json, &args.csv].into_iter().flatten() {
        if !args.force && path.exists() {
            bail!("{} exists already; choose another name or add --force to replace it", path.display());
        }
    }
    let mut samples = BTreeMap::new();
    let mut header = None;
    for drafter in or(&args.drafters, &args.model.drafter) {
        header = measure(args, &drafter, &suite, &mut samples)?.or(header);
    }
    let report = Report {
        suite_sha256: digest(&suite),
        prompts: suite.len(),
        repeats: args.repeat,
        max_tokens: args.decode.max_tokens.min(ANSWER_TOKENS),
        temperature: args.decode.temperature,
        header,
        rows: samples.into_iter().map(|(case, samples)| Row::of(case, &samples)).collect(),
    };
    let mut text = table(&report.rows);
    if let Some(baseline) = &baseline {
        text.push_str(&against(&report, baseline));
    }
    io::stdout().lock().write_all(text.as_bytes())?;
    if let Some(path) = &args.json {
        write_file(path, args.force, &serde_json::to_vec_pretty(&report)?)?;
    }
    if let Some(path) = &args.csv {
        write_file(path, args.force, csv(&report.rows)?.as_bytes())?;
    }
    Ok(ExitCode::SUCCESS)
}

fn or<T: Clone>(list: &[T], one: &T) -> Vec<T> {
    if list.is_empty() { vec![one.clone()] } else { list.to_vec() }
}

fn suite(args: &BenchArgs) -> Result<Vec<(String, String)>> {
    let paths: Vec<Option<&Path>> =
        if args.suite.is_empty() { vec![None] } else { args.suite.iter().map(|path| Some(path.as_path())).collect() };
    let mut suite = Vec::new();
    for path in paths {
        suite.extend(super::explain::suite(path)?);
    }
    for name in &args.categories {
        if !suite.iter().any(|(category, _)| category == name) {
            let mut known: Vec<&str> = suite.iter().map(|(category, _)| category.as_str()).collect();
            known.dedup();
            bail!("the suite has no category '{name}'; it has: {}", known.join(", "));
        }
    }
    suite.retain(|(category, _)| args.categories.is_empty() || args.categories.contains(category));
    Ok(suite)
}

fn digest(suite: &[(String, String)]) -> String {
    let mut sha = Sha256::new();
    suite.iter().for_each(|(category, prompt)| sha.update(format!("{category}\0{prompt}\0")));
    sha.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

fn read(path: &Path) -> Result<Report> {
    let bytes = std::fs::read(path).with_context(|| format!("cannot read the baseline {}", path.display()))?;
    serde_json::from_slice(&bytes).with_context(|| format!("{} was not written by bench --json", path.display()))
}

/// Runs all cases of one drafter. Repeats are the outermost loop, so that every case sees the machine
/// in the same states.
fn measure(
    args: &BenchArgs,
    drafter: &str,
    suite: &[(String, String)],
    samples: &mut BTreeMap<Case, Vec<Sample>>,
) -> Result<Option<Header>> {
    let model = ModelArgs { drafter: drafter.to_owned(), ..args.model.clone() };
    super::nobody_to_ask(&model)?;
    let base = super::settings(&model, &args.decode, Baseline::Race)?;
    let settings = Settings { max_tokens: base.max_tokens.min(ANSWER_TOKENS), ..base };
    let mut driver = Driver::new(super::spawn(super::recipe(&model)?, settings)?);
    let (rules, ks) = (or(&args.rules, &args.decode.verify), or(&args.ks, &args.decode.k));
    let mut cases = Vec::new();
    for (rule, k) in rules.iter().flat_map(|rule| ks.iter().map(move |k| (rule, *k))) {
        let decode = DecodeArgs { verify: rule.clone(), k, ..args.decode.clone() };
        cases.push(super::settings(&model, &decode, Baseline::Race)?);
    }
    let (_, warm_up) = suite.first().context("the suite holds no prompts")?;
    answer(&mut driver, args, warm_up)?;
    for repeat in 0..args.repeat {
        for case in &cases {
            let (rule, k) = (case.rule.to_string(), draft_len(case));
            eprintln!("draftscope: {drafter}, {rule}, k = {k}, repeat {} of {}", repeat + 1, args.repeat);
            driver.send(Command::SetRule { rule: case.rule });
            driver.send(match case.draft_len_mode {
                DraftLenMode::Fixed => Command::SetDraftLen { draft_len: case.draft_len },
                DraftLenMode::Auto => Command::SetAutoDraftLen,
            });
            for (category, prompt) in suite {
                answer(&mut driver, args, prompt)?;
                let turn = driver.session().turn().context("nothing was measured; please report this")?;
                let sample = Sample::of(turn);
                let case =
                    Case { drafter: drafter.into(), rule: rule.clone(), k: k.clone(), category: category.clone() };
                samples.entry(Case { category: ALL.into(), ..case.clone() }).or_default().push(sample);
                samples.entry(case).or_default().push(sample);
            }
        }
    }
    let header = driver.session().header().cloned();
    super::complete(driver.finish())?;
    Ok(header)
}

fn draft_len(settings: &Settings) -> String {
    match settings.draft_len_mode {
        DraftLenMode::Fixed => settings.draft_len.to_string(),
        DraftLenMode::Auto => "auto".to_owned(),
    }
}

fn answer(driver: &mut Driver, args: &BenchArgs, prompt: &str) -> Result<()> {
    let prompt = if args.decode.raw {
        Prompt::Raw(prompt.to_owned())
    } else {
        Prompt::Chat(super::conversation(&args.decode, prompt.to_owned()))
    };
    match driver.answer(prompt) {
        Outcome::Answered => Ok(()),
        Outcome::Failed(message) => bail!(message),
    }
}

impl Sample {
    fn of(turn: &Turn) -> Self {
        let [fast, plain] = [Lane::Speculative, Lane::Plain].map(|lane| turn.answer(lane).stats());
        Self {
            speedup: turn.speedup(),
            speculative: fast.tokens_per_second(),
            plain: plain.tokens_per_second(),
            tokens_per_round: fast.mean_tokens_per_round(),
            accepted: fast.accepted(),
            drafted: fast.drafted(),
            is_identical: turn.agreement().is_some_and(|agreement| agreement.divergence.is_none()),
        }
    }
}

impl Quantiles {
    /// Between two values the share of the way counts; none of no values.
    fn of(values: impl Iterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values.collect();
        values.sort_unstable_by(f64::total_cmp);
        let last = values.len().checked_sub(1)?;
        let at = |share: f64| {
            let place = share * last as f64;
            let (low, part) = (place.floor() as usize, place.fract());
            values[low] + part * (values[(low + 1).min(last)] - values[low])
        };
        Some(Self { p10: at(0.1), median: at(0.5), p90: at(0.9) })
    }
}

impl Row {
    fn of(case: Case, samples: &[Sample]) -> Self {
        let all = |value: fn(&Sample) -> Option<f64>| Quantiles::of(samples.iter().filter_map(value));
        let (accepted, drafted) =
            samples.iter().fold((0, 0), |(accepted, drafted), s| (accepted + s.accepted, drafted + s.drafted));
        Self {
            case,
            answers: samples.len(),
            speedup: all(|s| s.speedup),
            speculative_tokens_per_second: all(|s| s.speculative),
            plain_tokens_per_second: all(|s| s.plain),
            tokens_per_round: all(|s| s.tokens_per_round),
            draft_acceptance_rate: (drafted > 0).then(|| accepted as f64 / drafted as f64),
            identical: samples.iter().filter(|s| s.is_identical).count(),
        }
    }
}

fn spread(value: Option<Quantiles>, digits: usize) -> String {
    value.map_or("–".to_owned(), |q| format!("{:.digits$} ({:.digits$}–{:.digits$})", q.median, q.p10, q.p90))
}

fn table(rows: &[Row]) -> String {
    let mut out = String::from(
        "median (p10–p90) over answers; each answer raced against plain decoding on the same engine\n\
         drafter  rule         k  category      speedup            tokens/s           tokens/round       accepted  identical\n",
    );
    for row in rows {
        let Case { drafter, rule, k, category } = &row.case;
        let rate = row.draft_acceptance_rate.map_or("–".to_owned(), |rate| format!("{:.0} %", rate * 100.0));
        let (speedup, rounds) = (spread(row.speedup, 2), spread(row.tokens_per_round, 2));
        let speed = spread(row.speculative_tokens_per_second, 0);
        let same = format!("{}/{}", row.identical, row.answers);
        let _ = writeln!(
            out,
            "{drafter:<8} {rule:<9} {k:>4}  {category:<12}  {speedup:<17}  {speed:<17}  {rounds:<17}  {rate:<8}  {same}"
        ); // writing to a String cannot fail
    }
    out
}

fn csv(rows: &[Row]) -> Result<String> {
    let mut table = csv::Writer::from_writer(Vec::new());
    table.write_record([
        "drafter",
        "rule",
        "k",
        "category",
        "answers",
        "speedup_p10",
        "speedup_median",
        "speedup_p90",
        "speculative_tokens_per_second_median",
        "plain_tokens_per_second_median",
        "tokens_per_round_median",
        "draft_acceptance_rate",
        "identical",
    ])?;
    let number = |value: Option<f64>| value.map_or(String::new(), |v| v.to_string());
    for row in rows {
        let median = |value: Option<Quantiles>| number(value.map(|q| q.median));
        table.write_record([
            row.case.drafter.clone(),
            row.case.rule.clone(),
            row.case.k.clone(),
            row.case.category.clone(),
            row.answers.to_string(),
            number(row.speedup.map(|q| q.p10)),
            median(row.speedup),
            number(row.speedup.map(|q| q.p90)),
            median(row.speculative_tokens_per_second),
            median(row.plain_tokens_per_second),
            median(row.tokens_per_round),
            number(row.draft_acceptance_rate),
            row.identical.to_string(),
        ])?;
    }
    Ok(String::from_utf8(table.into_inner()?)?)
}

/// This run against an earlier one. Only what does not depend on how fast the machine was that day is
/// judged: the ratio to plain decoding, and tokens per round.
fn against(report: &Report, baseline: &Report) -> String {
    let mut out = String::from("against the baseline (speedup, median):\n");
    let mut line = |text: String| {
        let _ = writeln!(out, "{text}"); // writing to a String cannot fail
    };
    if report.suite_sha256 != baseline.suite_sha256 || report.max_tokens != baseline.max_tokens {
        line("  the prompts or the longest answer are not those of the baseline: compare with care".to_owned());
    }
    for row in &report.rows {
        let Some(old) = baseline.rows.iter().find(|old| old.case == row.case) else {
            continue;
        };
        let Case { drafter, rule, k, category } = &row.case;
        if let (Some(new), Some(old)) = (row.speedup, old.speedup) {
            let change = (new.median / old.median - 1.0) * 100.0;
            line(format!(
                "  {drafter} {rule} k = {k} {category:<12} {:.2} → {:.2} ({change:+.1} %), {}",
                old.median,
                new.median,
                judged(old, new)
            ));
        }
    }
    let missing = baseline.rows.iter().filter(|old| report.rows.iter().all(|row| row.case != old.case)).count();
    if missing > 0 {
        line(format!("  {missing} cases of the baseline were not run"));
    }
    out
}

fn judged(old: Quantiles, new: Quantiles) -> &'static str {
    if new.p10 > old.p90 {
        "better"
    } else if new.p90 < old.p10 {
        "worse"
    } else {
        "within the spread"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_lie_between_values() {
        let q = Quantiles::of([4.0, 1.0, 3.0, 2.0, 5.0].into_iter()).unwrap();
        assert!((q.p10 - 1.4).abs() < 1e-12 && q.median == 3.0 && (q.p90 - 4.6).abs() < 1e-12);
        assert_eq!(Quantiles::of(std::iter::empty()), None);
        assert_eq!(Quantiles::of([2.0].into_iter()).unwrap(), Quantiles { p10: 2.0, median: 2.0, p90: 2.0 });
    }

    #[test]
    fn only_what_leaves_the_spread_is_better_or_worse() {
        let q = |p10, median, p90| Quantiles { p10, median, p90 };
        assert_eq!(judged(q(1.0, 1.1, 1.2), q(1.25, 1.3, 1.4)), "better");
        assert_eq!(judged(q(1.0, 1.1, 1.2), q(0.7, 0.8, 0.9)), "worse");
        assert_eq!(judged(q(1.0, 1.1, 1.2), q(1.1, 1.2, 1.3)), "within the spread");
    }
}
