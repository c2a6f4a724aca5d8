//! Asks the engine prompts, and reads its answers.

use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::{Result, bail};
use draftscope::cli::{ExplainArgs, ReportArg};
use draftscope::engine::measure::CostCurve;
use draftscope::headless::{Driver, Outcome};
use draftscope::model::options::LoadOptions;
use draftscope::protocol::{Header, Prompt, Settings};
use draftscope::session::{Turn, at_least_one_row, has_ceiling};
use serde::Serialize;

use crate::commands::suite::Openings;
use crate::commands::{engine, output, run_args};

pub(super) fn write<T: Serialize>(output: ReportArg, value: &T, as_text: fn(&T) -> String) -> Result<ExitCode> {
    match output {
        ReportArg::Text => io::stdout().lock().write_all(as_text(value).as_bytes())?,
        ReportArg::Summary => output::print_json(value)?,
    }
    Ok(ExitCode::SUCCESS)
}

pub(super) fn prompt(args: &ExplainArgs, text: &str) -> Prompt {
    if args.decode.sample.raw {
        Prompt::Raw(text.to_owned())
    } else {
        Prompt::Chat(run_args::conversation(&args.decode.sample, text.to_owned()))
    }
}

/// A run over the suite: its header, and category and turn of each prompt.
pub(super) type Answered = (Option<Header>, Vec<(String, Turn)>);

/// Answers every prompt. One prompt runs first as warm-up.
pub(super) fn answer(
    recipe: &LoadOptions,
    settings: Settings,
    args: &ExplainArgs,
    suite: &Openings,
) -> Result<Answered> {
    let mut driver = Driver::new(engine::spawn(recipe.clone(), settings, None)?);
    for (_, text) in suite.iter().take(1).chain(suite) {
        ask(&mut driver, args, text)?;
    }
    output::report_notices(&driver, &Outcome::Answered);
    let turns = driver.session().turns().iter().skip(1).cloned();
    let turns = suite.iter().map(|(category, _)| category.clone()).zip(turns).collect();
    Ok((driver.session().header().cloned(), turns))
}

pub(super) fn ask(driver: &mut Driver, args: &ExplainArgs, text: &str) -> Result<()> {
    match driver.answer(prompt(args, text)) {
        Outcome::Failed(message) => bail!(message),
        Outcome::Answered | Outcome::Stopped => Ok(()),
    }
}

/// Medians of T(m), at least T(1) where less is impossible.
pub(super) fn verify_us(cost: &CostCurve) -> Vec<f64> {
    let medians = cost.verify.iter().map(|timing| timing.median_us).collect();
    if is_native(cost) { at_least_one_row(medians) } else { medians }
}

/// Whether no pass over several rows can cost less than one over one row.
pub(super) fn is_native(cost: &CostCurve) -> bool {
    cost.backend.split(' ').next().is_some_and(has_ceiling)
}
