//! Starts a measurement: of the suite, on a screen, of a device or of a server.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::Result;
use draftscope::cli::BenchArgs;

use super::report::table;
use super::row::{Case, Row};
use super::sample::Sample;
use super::{
    DrafterCases, attached, depth, device_report, finish, measure, or, plan, read, screen, suite, tokens_of, try_files,
};
use crate::commands::run_args;
use crate::commands::signals::StopSignal;
use crate::commands::suite::openings;

pub(crate) fn run(args: &BenchArgs) -> Result<ExitCode> {
    let suite = suite(args)?;
    run_args::report_short_answers(&args.decode);
    if args.screen {
        return screen::run(args, &openings(&suite));
    }
    if args.report.is_some() {
        return device_report::run(args, &suite);
    }
    let baseline = args.baseline.as_deref().map(read).transpose()?;
    try_files(args)?;
    if args.attach.is_some() {
        let (mut samples, stop) = (BTreeMap::new(), StopSignal::listen()?);
        let header = attached::measure((args, &stop), &suite, &mut samples)?;
        let rows = samples.into_iter().map(|(case, samples)| Row::of(case, &samples)).collect();
        return finish(args, &suite, (header, rows), baseline.as_ref());
    }
    let suite = match &*args.context {
        [] => suite,
        depths => depth::at_depths(&suite, depths, |text| tokens_of(args, text))?,
    };
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
