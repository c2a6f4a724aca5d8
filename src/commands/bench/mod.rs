//! `draftscope bench`: measures prompt categories × drafter × rule × k. Every answer races plain decoding on the same
//! engine, repeats are interleaved, and the report has spreads and a comparison with a saved baseline.

mod acceptance;
mod attached;
mod depth;
mod device_report;
mod report;
mod screen;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use draftscope::cli::{BenchArgs, DecodeArgs, ModelArgs};
use draftscope::export::{try_file, write_file};
use draftscope::headless::{Driver, Outcome};
use draftscope::host::Taskbar;
use draftscope::host::file_access;
use draftscope::model::load::OpenModel;
use draftscope::protocol::{Baseline, Command, DraftLenMode, DrafterKind, Grammar, Header, Prompt, Settings};
use sha2::{Digest, Sha256};

use super::run_args::ANSWER_TOKENS;
use super::signals::StopSignal;
use super::suite::ALL;
use report::{Case, Report, Row, Sample, against, csv, is_worse, table};

/// Bytes of a token in English text, about.
const BYTES_PER_TOKEN: f64 = 4.0;

/// Tokens of a prompt and its template beside the context before it.
const PROMPT_TOKENS: u32 = 512;

pub(crate) fn run(args: &BenchArgs) -> Result<ExitCode> {
    let suite = suite(args)?;
    super::run_args::report_short_answers(&args.decode);
    if args.screen {
        return screen::run(args, &suite);
    }
    if args.report.is_some() {
        return device_report::run(args, &suite);
    }
    let baseline = args.baseline.as_deref().map(read).transpose()?;
    for path in [&args.json, &args.csv].into_iter().flatten() {
        if path.as_os_str() == "-" {
            bail!("--json and --csv take files, because the table goes to standard output");
        }
        try_file(path, args.force)?;
    }
    if let (Some(json), Some(csv)) = (&args.json, &args.csv)
        && std::path::absolute(json)? == std::path::absolute(csv)?
    {
        bail!("--json and --csv name one file; give each its own");
    }
    let suite = match &*args.context {
        [] => suite,
        depths => depth::at_depths(&suite, depths, |text| tokens_of(args, text))?,
    };
    if args.attach.is_some() {
        let (mut samples, stop) = (BTreeMap::new(), StopSignal::listen()?);
        let header = attached::measure((args, &stop), &suite, &mut samples)?;
        let rows = samples.into_iter().map(|(case, samples)| Row::of(case, &samples)).collect();
        return finish(args, &suite, (header, rows), baseline.as_ref());
    }
    // errors in the arguments of any drafter are reported before the first one is measured
    let plans: Vec<DrafterCases> =
        or(&args.drafters, &args.model.drafter).into_iter().map(|name| plan(args, name)).collect::<Result<_>>()?;
    let mut samples = BTreeMap::new();
    let (mut header, stop) = (None, StopSignal::listen()?);
    let rows = |samples: BTreeMap<Case, Vec<Sample>>| -> Vec<Row> {
        samples.into_iter().map(|(case, samples)| Row::of(case, &samples)).collect()
    };
    for plan in &plans {
        match measure((args, &stop), plan, &suite, &mut samples) {
            Ok(measured) => header = measured.header.or(header),
            Err(error) if samples.is_empty() => return Err(error),
            Err(error) => {
                // print the finished cases, but write no files, which would look complete
                io::stdout().lock().write_all(table(&rows(samples)).as_bytes())?;
                return Err(error);
            }
        }
    }
    finish(args, &suite, (header, rows(samples)), baseline.as_ref())
}

/// Tokens of a text for the model that is measured; a server's tokenizer is not known, so about as many as others make.
fn tokens_of(args: &BenchArgs, text: &str) -> Result<usize> {
    if args.attach.is_some() {
        return Ok((text.len() as f64 / BYTES_PER_TOKEN) as usize);
    }
    let codec = OpenModel::open(&super::recipe::recipe(&args.model)?.target)?.codec()?;
    Ok(codec.encode(text)?.len())
}

/// Prints and writes the report.
fn finish(
    args: &BenchArgs,
    suite: &[(String, String)],
    (header, mut rows): (Option<Header>, Vec<Row>),
    baseline: Option<&Report>,
) -> Result<ExitCode> {
    rows.retain(|row| args.context.is_empty() || row.case.category != ALL); // depths have nothing in common
    let report = Report {
        suite_sha256: digest(suite),
        prompts: suite.len(),
        repeats: args.repeat,
        max_tokens: args.decode.sample.max_tokens.min(ANSWER_TOKENS),
        temperature: args.decode.sample.temperature,
        header,
        rows,
    };
    let mut text = table(&report.rows);
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

fn suite(args: &BenchArgs) -> Result<Vec<(String, String)>> {
    let paths: Vec<Option<&Path>> =
        if args.suite.is_empty() { vec![None] } else { args.suite.iter().map(|path| Some(path.as_path())).collect() };
    let mut suite = Vec::new();
    for path in paths {
        suite.extend(super::suite::suite(path)?);
    }
    for name in &args.categories {
        if !suite.iter().any(|(category, _)| category == name) {
            let known: BTreeSet<&str> = suite.iter().map(|(category, _)| category.as_str()).collect();
            let known: Vec<&str> = known.into_iter().collect();
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
    suite: &[(String, String)],
    samples: &mut BTreeMap<Case, Vec<Sample>>,
) -> Result<Measured> {
    let (drafter, mut reported) = (plan.model.drafter.as_str(), 0);
    let recipe = super::recipe::recipe(&plan.model)?;
    let mut driver = Driver::new(super::engine::spawn(recipe, plan.settings, plan.grammar.clone())?);
    stop.watch(&mut driver);
    let (_, warm_up) = suite.first().context("the suite holds no prompts")?;
    answer(&mut driver, (args, stop), warm_up)?;
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
            for (category, prompt) in suite {
                answer(&mut driver, (args, stop), prompt)?;
                done += 1;
                taskbar.at(done, all as u64);
                super::output::report_new_notices(&driver, &mut reported);
                let turn = driver.session().turn().context("nothing was measured; please report this")?;
                let sample = Sample::of(turn, true);
                let case =
                    Case { drafter: drafter.into(), rule: rule.clone(), k: k.clone(), category: category.clone() };
                samples.entry(Case { category: ALL.into(), ..case.clone() }).or_default().push(sample.clone());
                samples.entry(case).or_default().push(sample);
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
    format!("the drafter {drafter} cannot draft here: its model is not loaded; choose another, or name its model")
}

fn answer(driver: &mut Driver, (args, stop): (&BenchArgs, &StopSignal), prompt: &str) -> Result<()> {
    let prompt = if args.decode.sample.raw {
        Prompt::Raw(prompt.to_owned())
    } else {
        Prompt::Chat(super::run_args::conversation(&args.decode.sample, prompt.to_owned()))
    };
    match driver.answer(prompt) {
        Outcome::Answered => Ok(()),
        Outcome::Stopped => bail!(stop.stopped()),
        Outcome::Failed(message) => bail!(message),
    }
}
