//! `draftscope doctor`: what the program needs of this machine, and what to do where something is missing.
//!
//! Invariant: nothing is downloaded, nothing is written that stays, and no prompt is sent. Each figure comes from the code
//! that the other commands use.

mod check;
mod files;
mod gpu;
mod machine;
mod screen;
mod server;

use std::io::{IsTerminal, Write};
use std::process::ExitCode;

use anyhow::Result;
use draftscope::cli::DoctorArgs;
use draftscope::tui::TuiOptions;
use serde_json::json;

use check::{Check, Look, Report, has_failed};

use super::config::Parsed;

/// Exit status when something will not work.
const FAILS: u8 = 1;

pub(crate) fn run(args: &DoctorArgs, parsed: &Parsed) -> Result<ExitCode> {
    let options = TuiOptions::from_env();
    let mut checks = vec![machine::program()];
    checks.extend(screen::checks(&options, parsed));
    checks.extend([machine::cpu(), gpu::check()]);
    let model = files::DefaultModel::look();
    checks.extend([machine::memory(model.need()), files::cache(&model), model.check(), files::state()]);
    checks.push(files::config(parsed));
    checks.extend(args.attach.as_deref().map(|url| server::check(url, args)));
    match args.json {
        true => print_json(&checks)?,
        false => print(&checks, args.ascii || options.ascii, options.no_color)?,
    }
    Ok(if has_failed(&checks) { ExitCode::from(FAILS) } else { ExitCode::SUCCESS })
}

/// Lines for people: wrapped and with colours on a terminal, one line each elsewhere.
fn print(checks: &[Check], ascii: bool, no_color: bool) -> Result<()> {
    let is_terminal = std::io::stdout().is_terminal();
    let width = || crossterm::terminal::size().ok().map(|(columns, _)| usize::from(columns));
    let look = Look {
        ascii,
        has_color: is_terminal && !no_color && std::env::var_os("TERM").is_some_and(|term| term != "dumb"),
        width: if is_terminal { width() } else { None },
    };
    let mut out = std::io::stdout().lock();
    writeln!(out, "{}", Report(checks, look))?;
    Ok(out.flush()?)
}

fn print_json(checks: &[Check]) -> Result<()> {
    super::output::print_json(&json!({
        "version": env!("CARGO_PKG_VERSION"),
        "works": !has_failed(checks),
        "checks": checks,
    }))
}
