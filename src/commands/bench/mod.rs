//! `draftscope bench`: measures prompt categories × drafter × rule × k. Every answer races plain decoding on the same
//! engine, repeats are interleaved, and the report has spreads and a comparison with a saved baseline.

mod acceptance;
mod attached;
mod conversation;
mod depth;
mod device_report;
mod figures;
mod matrix;
mod report;
mod row;
mod sample;
mod screen;
pub(crate) mod start;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use draftscope::cli::{BenchArgs, DecodeArgs, ModelArgs};
use draftscope::export::{bench_page, try_file, write_file};
use draftscope::headless::Driver;
use draftscope::host::{Taskbar, file_access};
use draftscope::model::load::OpenModel;
use draftscope::protocol::{Baseline, Command, DraftLenMode, DrafterKind, Grammar, Header, Settings};
use sha2::{Digest, Sha256};

use super::run_args::ANSWER_TOKENS;
use super::signals::StopSignal;
use super::suite::{ALL, SuitePrompt};
use conversation::{answer, converse};
use report::{Report, against, csv, is_worse, table};
use row::{Case, FIRST, Row};
use sample::Sample;

/// Tokens of a prompt and its template beside the context before it.
const PROMPT_TOKENS: u32 = 512;

/// Finds out before anything is measured whether the report's files can be written.
fn try_files(args: &BenchArgs) -> Result<()> {
    let mut files = BTreeSet::new();
    for path in [&args.json, &args.csv, &args.html].into_iter().flatten() {
        if path.as_os_str() == "-" {
            bail!("--json, --csv and --html take files, because the table goes to standard output");
        }
        if !files.insert(std::path::absolute(path)?) {
            bail!("two of --json, --csv and --html name one file; give each its own");
        }
        try_file(path, args.force)?;
    }
    Ok(())
}

/// Tokens of a text for the model that is measured.
fn tokens_of(args: &BenchArgs, text: &str) -> Result<usize> {
    let codec = OpenModel::open(&super::recipe::recipe(&args.model, &Settings::default())?.target)?.codec()?;
    Ok(codec.encode(text)?.len())
}

/// Prints and writes the report.
fn finish(
    args: &BenchArgs,
    suite: &[SuitePrompt],
    (header, mut rows): (Option<Header>, Vec<Row>),
    baseline: Option<&Report>,
) -> Result<ExitCode> {
    let is_sum = |row: &Row| row.case.category.strip_suffix(FIRST).unwrap_or(&row.case.category) == ALL;
    rows.retain(|row| args.context.is_empty() || !is_sum(row)); // depths have nothing in common
    depth::sort(&mut rows);
    let report = Report {
        suite_sha256: digest(suite),
        prompts: suite.len(),
        repeats: args.repeat,
        max_tokens: args.decode.sample.max_tokens.min(ANSWER_TOKENS),
        temperature: args.decode.sample.temperature,
        header,
        matrix: matrix::of(&rows),
        rows,
    };
    let mut text = matrix::text(&report.matrix);
    text.push_str(&table(&report.rows));
    if !args.context.is_empty() {
        text.push_str(&depth::findings(&report.rows));
    }
    if let Some(baseline) = baseline {
        text.push_str(&against(&report, baseline));
    }
    io::stdout().lock().write_all(text.as_bytes())?;
    if let Some(path) = &args.json {
        write_file(path, args.force, &serde_json::to_vec_pretty(&report)?)?;
    }
    if let Some(path) = &args.csv {
        write_file(path, args.force, csv(&report.rows)?.as_bytes())?;
    }
    if let Some(path) = &args.html {
        let model = report.header.as_ref().map_or("", |header| header.model.name.as_str());
        write_file(path, args.force, &bench_page(model, &report)?)?;
    }
    let is_worse = baseline.is_some_and(|baseline| is_worse(&report, baseline));
    let differs = report.temperature == 0.0 && report.rows.iter().any(Row::differs);
    Ok(if is_worse || differs { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// The items of the list, each once; `one` if the list is empty.
fn or<T: Clone + PartialEq>(list: &[T], one: &T) -> Vec<T> {
    let mut each: Vec<T> = Vec::new();
    for item in if list.is_empty() { std::slice::from_ref(one) } else { list } {
        if !each.contains(item) {
            each.push(item.clone());
        }
    }
    each
}

fn suite(args: &BenchArgs) -> Result<Vec<SuitePrompt>> {
    let paths: Vec<Option<&Path>> =
        if args.suite.is_empty() { vec![None] } else { args.suite.iter().map(|path| Some(path.as_path())).collect() };
    let mut suite = Vec::new();
    for path in paths {
        suite.extend(super::suite::suite(path)?);
    }
    for name in &args.categories {
        if !suite.iter().any(|prompt: &SuitePrompt| prompt.category == *name) {
            let known: BTreeSet<&str> = suite.iter().map(|prompt| prompt.category.as_str()).collect();
            let known: Vec<&str> = known.into_iter().collect();
            bail!("the suite has no category '{name}'; it has: {}", known.join(", "));
        }
    }
    suite.retain(|prompt| args.categories.is_empty() || args.categories.contains(&prompt.category));
    if args.decode.sample.raw && suite.iter().any(|prompt| prompt.turns.len() > 1) {
        bail!("a prompt of the suite is a conversation, which needs the chat template; leave out --raw");
    }
    Ok(suite)
}

fn digest(suite: &[SuitePrompt]) -> String {
    let mut sha = Sha256::new();
    suite.iter().for_each(|prompt| sha.update(format!("{}\0{}\0", prompt.category, prompt.turns.join("\0"))));
    sha.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Largest report of an earlier run that is read, in bytes.
const MOST_BASELINE: u64 = 256 << 20;

fn read(path: &Path) -> Result<Report> {
    let bytes = file_access::read(path, MOST_BASELINE)
        .with_context(|| format!("cannot read the baseline {}", path.display()))?;
    serde_json::from_slice(file_access::without_mark(&bytes))
        .with_context(|| format!("{} was not written by bench --json", path.display()))
}

/// The cases of one drafter.
struct DrafterCases {
    model: ModelArgs,
    settings: Settings,
    /// The settings of every rule × k.
    cases: Vec<Settings>,
    /// What every answer must match.
    grammar: Option<Grammar>,
}

fn plan(args: &BenchArgs, drafter: String) -> Result<DrafterCases> {
    let mut model = ModelArgs { drafter, ..args.model.clone() };
    if let Some(deepest) = args.context.iter().max().filter(|_| model.ctx.is_none()) {
        model.ctx = Some(*deepest + args.decode.sample.max_tokens.min(ANSWER_TOKENS) + PROMPT_TOKENS);
    }
    super::run_args::nobody_to_ask(&model)?;
    let base = super::run_args::settings(&model, &args.decode, Baseline::Race)?;
    if base.drafter.chain().contains(&DrafterKind::DraftModel) && model.draft_model.is_none() {
        bail!(no_drafter(base.drafter));
    }
    let settings = Settings { max_tokens: base.max_tokens.min(ANSWER_TOKENS), ..base };
    let (rules, ks) = (or(&args.rules, &args.decode.verify), or(&args.ks, &args.decode.k));
    let mut cases = Vec::new();
    for (rule, k) in rules.iter().flat_map(|rule| ks.iter().map(move |k| (rule, *k))) {
        let decode = DecodeArgs { verify: rule.clone(), k, ..args.decode.clone() };
        cases.push(super::run_args::settings(&model, &decode, Baseline::Race)?);
    }
    Ok(DrafterCases { model, settings, cases, grammar: super::grammar::read(&args.grammar)? })
}

/// What a run of all cases said about itself.
struct Measured {
    header: Option<Header>,
    /// Notices of loading and the warm-up.
    loaded: Vec<String>,
    /// The last notices of all.
    notices: Vec<String>,
}

/// Runs all cases of one drafter. Repeats are the outermost loop, so that all cases are measured in the same states of
/// the machine.
fn measure(
    (args, stop): (&BenchArgs, &StopSignal),
    plan: &DrafterCases,
    suite: &[SuitePrompt],
    samples: &mut BTreeMap<Case, Vec<Sample>>,
) -> Result<Measured> {
    let (drafter, mut reported) = (plan.model.drafter.as_str(), 0);
    let loads_for = plan.cases.iter().min_by_key(|case| case.divides_by_q());
    let recipe = super::recipe::recipe(&plan.model, loads_for.unwrap_or(&plan.settings))?;
    let mut driver = Driver::new(super::engine::spawn(recipe, plan.settings, plan.grammar.clone())?);
    stop.watch(&mut driver);
    let warm_up = suite.first().context("the suite holds no prompts")?;
    answer(&mut driver, (args, stop), &[], warm_up.opening())?;
    super::output::report_idle(&driver);
    let loaded = driver.session().notices().map(str::to_owned).collect();
    is_there(plan.settings.drafter, driver.session().header())?;
    let (mut taskbar, mut done) = (Taskbar::default(), 0);
    let all = args.repeat as usize * plan.cases.len() * suite.len();
    for repeat in 0..args.repeat {
        for case in &plan.cases {
            let (rule, k) = (case.rule.to_string(), case.asked_draft_len());
            eprintln!("draftscope: {drafter}, {rule}, k = {k}, repeat {} of {}", repeat + 1, args.repeat);
            driver.send(Command::SetRule { rule: case.rule });
            driver.send(match case.draft_len_mode {
                DraftLenMode::Fixed => Command::SetDraftLen { draft_len: case.draft_len },
                DraftLenMode::Auto => Command::SetAutoDraftLen,
            });
            for prompt in suite {
                let category = prompt.category.clone();
                let case = Case { drafter: drafter.into(), rule: rule.clone(), k: k.clone(), category };
                converse(&mut driver, (args, stop), &prompt.turns, |driver, turn| {
                    super::output::report_new_notices(driver, &mut reported);
                    let sample = Sample::of(turn, true);
                    samples.entry(Case { category: ALL.into(), ..case.clone() }).or_default().push(sample.clone());
                    samples.entry(case.clone()).or_default().push(sample);
                })?;
                done += 1;
                taskbar.at(done, all as u64);
            }
        }
    }
    let (header, notices) =
        (driver.session().header().cloned(), driver.session().notices().map(str::to_owned).collect());
    super::output::complete(driver.finish())?;
    Ok(Measured { header, loaded, notices })
}

/// Rejects a drafter without its model: it would draft nothing, and its figures would be those of plain decoding.
fn is_there(drafter: DrafterKind, header: Option<&Header>) -> Result<()> {
    let loaded =
        |kind: &DrafterKind| header.is_some_and(|header| header.drafters.iter().any(|info| info.kind == *kind));
    match drafter.chain().iter().all(loaded) {
        true => Ok(()),
        false => bail!(no_drafter(drafter)),
    }
}

fn no_drafter(drafter: DrafterKind) -> String {
    let another = if drafter.stacks_copies() { "--drafter suffix, which copies alone" } else { "another" };
    format!("the drafter {drafter} cannot draft here: its model is not loaded; choose {another}, or name its model")
}
