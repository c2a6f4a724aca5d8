//! The command line with the user's configuration as defaults; `config`, `completions` and `man`.

use std::io::{ErrorKind, Write};
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::parser::ValueSource;
use clap::{ArgMatches, CommandFactory, FromArgMatches};
use draftscope::cli::help::{Detail, with_detail};
use draftscope::cli::{Cli, CliCommand, ConfigAction};
use draftscope::host::config::{self, KEYS, TEMPLATE, UserFiles};
use draftscope::host::file_access;
use draftscope::session::text::{one_line, printable};

/// Exit status of an error; 1 means that a comparison found a difference.
pub(crate) const ERROR: u8 = 2;

/// The command line, and the user's files.
pub(crate) struct Parsed {
    pub(crate) cli: Cli,
    pub(crate) files: UserFiles,
}

/// Reads the files, then the command line; ends the program on a wrong option, as clap does.
pub(crate) fn parse() -> Parsed {
    let mut files = config::path().map(|path| UserFiles::read(&path)).unwrap_or_default();
    let command = with_detail(Cli::command(), Detail::of(std::env::args_os()));
    let (command, warnings) = config::with_defaults(command, &files.entries);
    files.warnings.extend(warnings);
    let parsed = command.try_get_matches().and_then(|matches| Cli::from_arg_matches(&matches));
    Parsed { cli: parsed.unwrap_or_else(|error| report(&error)), files }
}

/// Prints what clap has to say (help, the version, or what is wrong with an option) and ends the program. Values of
/// options are repeated without anything that controls a terminal.
fn report(error: &clap::Error) -> ! {
    let text = error.render().to_string();
    let plain = printable(&text);
    let printed = if plain == text { error.print() } else { write!(std::io::stderr(), "{plain}") };
    let printed = printed.and_then(|()| std::io::stdout().flush());
    match printed {
        Err(failed) if failed.kind() != ErrorKind::BrokenPipe => {
            super::output::say(&super::closed_stdout::explain(&failed));
            std::process::exit(ERROR.into())
        }
        _ => std::process::exit(error.exit_code()),
    }
}

/// Prints warnings about the user's files, unless the screen or the command itself shows them.
pub(crate) fn warn(parsed: &Parsed) {
    let on_screen = super::terminal::can_draw();
    let is_shown = match &parsed.cli.command {
        None | Some(CliCommand::Chat(_) | CliCommand::Replay(_)) => on_screen,
        Some(CliCommand::Demo(args)) => on_screen && !args.list,
        Some(CliCommand::Learn(args)) => on_screen && !args.list && args.check.is_none() && args.export.is_none(),
        Some(CliCommand::Diff(args)) => on_screen && args.tui,
        Some(CliCommand::Config { action: ConfigAction::Show } | CliCommand::Doctor(_)) => true,
        Some(_) => false,
    };
    if !is_shown {
        parsed.files.warnings.iter().for_each(|warning| super::output::say(warning));
    }
}

/// `draftscope config …`.
pub(crate) fn run(action: &ConfigAction, parsed: &Parsed) -> Result<ExitCode> {
    let path = config::path().context("this user has no configuration folder; set DRAFTSCOPE_CONFIG to a file")?;
    match action {
        ConfigAction::Path => super::output::print(printable(&path.display().to_string()))?,
        ConfigAction::Show => show(parsed)?,
        ConfigAction::Init => {
            let folder = path.parent().unwrap_or(std::path::Path::new("."));
            std::fs::create_dir_all(folder).with_context(|| {
                format!("cannot create {} (DRAFTSCOPE_CONFIG names another file)", folder.display())
            })?;
            if path.exists() {
                bail!("{} exists already; remove it first to get a new one", path.display());
            }
            let mut file = file_access::private_file_in(folder)?;
            file.write_all(TEMPLATE.as_bytes())?;
            file.persist_noclobber(&path).with_context(|| format!("{} was not written", path.display()))?;
            super::links::print_path("wrote ", &path)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn show(parsed: &Parsed) -> Result<()> {
    let (command, _) = config::with_defaults(Cli::command(), &parsed.files.entries);
    let matches: ArgMatches = command.try_get_matches_from(["draftscope"])?;
    for key in KEYS {
        let id = key.replace('-', "_");
        let id = if id == "draft_len" { "k" } else { id.as_str() };
        let found = matches.try_get_raw(id).ok().flatten();
        let value: Vec<_> = found.into_iter().flatten().map(|value| value.to_string_lossy().into_owned()).collect();
        let is_valid = |entry| config::with_defaults(Cli::command(), std::slice::from_ref(entry)).1.is_empty();
        let in_file = parsed.files.entries.iter().filter(|(known, _)| known == key).any(is_valid);
        let source = match matches.value_source(id) {
            Some(ValueSource::EnvVariable) => "environment",
            Some(_) if in_file => "file",
            _ => "default",
        };
        let value = if value.is_empty() { "–".to_owned() } else { value.join(" ") };
        super::output::print(one_line(&format!("{key:<12} = {value:<12} # {source}")))?;
    }
    for warning in &parsed.files.warnings {
        super::output::say(warning);
    }
    Ok(())
}

/// Completions for a shell, on standard output.
pub(crate) fn completions(shell: clap_complete::Shell) -> Result<ExitCode> {
    let mut text = Vec::new(); // the generator panics on a closed pipe
    clap_complete::generate(shell, &mut Cli::command(), "draftscope", &mut text);
    std::io::stdout().write_all(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// The manual page on standard output, or all pages in a folder.
pub(crate) fn man(out: Option<&Path>) -> Result<ExitCode> {
    match out {
        None => clap_mangen::Man::new(Cli::command()).render(&mut std::io::stdout().lock())?,
        Some(folder) => {
            let written =
                std::fs::create_dir_all(folder).and_then(|()| clap_mangen::generate_to(Cli::command(), folder));
            written.with_context(|| format!("cannot write manual pages into {}", folder.display()))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}
