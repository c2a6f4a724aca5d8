//! The program draftscope: parses the arguments, runs one command and returns its exit code. The logic is in the
//! library.

mod commands;

use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::process::ExitCode;

use commands::config::Parsed;
use draftscope::cli::CliCommand;
use draftscope::fatal::OutOfMemory;
use draftscope::model::text::template::process;

/// Exit status of an error; 1 means that a comparison found a difference.
const ERROR: u8 = 2;

/// How many threads candle and its pool use.
const THREADS: &str = "RAYON_NUM_THREADS";

fn main() -> ExitCode {
    name_threads();
    if let Some(code) = process::start() {
        return code; // this process was started to render one chat template
    }
    let code = start();
    draftscope::model::close_devices();
    code
}

/// Names the number of threads, unless the user has: otherwise candle reads from a file how many cores there are, before each
/// product, and knows nothing of a container's quota.
#[allow(unsafe_code)]
fn name_threads() {
    if std::env::var_os(THREADS).is_none()
        && let Ok(threads) = std::thread::available_parallelism()
    {
        // SAFETY: this thread is the only one yet.
        unsafe { std::env::set_var(THREADS, threads.to_string()) };
    }
}

/// Runs the command; returns the exit status.
fn start() -> ExitCode {
    commands::closed_stdout::guard();
    draftscope::fatal::install();
    let mut parsed = commands::config::parse();
    commands::config::warn(&parsed);
    if let Some(args) = parsed.cli.model_args_mut() {
        commands::pairing::apply(args);
    }
    // this thread may run out of memory, too
    let result = catch_unwind(AssertUnwindSafe(|| run(&parsed)));
    let result = result.unwrap_or_else(|panic| match OutOfMemory::of(&*panic) {
        Some(refused) => Err(refused.into()),
        None => resume_unwind(panic),
    });
    // what is still in a buffer is part of the result
    match result.and_then(|code| Ok(std::io::stdout().flush().map(|()| code)?)) {
        Ok(code) => code,
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            commands::output::say(&printing_failed(&error).unwrap_or_else(|| format_error(&error)));
            error.downcast_ref::<commands::signals::Stopped>().map_or(ExitCode::from(ERROR), |stopped| stopped.status())
        }
    }
}

fn run(parsed: &Parsed) -> anyhow::Result<ExitCode> {
    let files = &parsed.files;
    match &parsed.cli.command {
        None => commands::chat::run(&parsed.cli.chat, files),
        Some(CliCommand::Chat(args)) => commands::chat::run(args, files),
        Some(CliCommand::Run(args)) => commands::run::run(args),
        Some(CliCommand::Attach(args)) => commands::attach::run(args, files),
        Some(CliCommand::Compare(args)) => commands::compare::run(args),
        Some(CliCommand::Explain(args)) => commands::explain::run(args),
        Some(CliCommand::VerifyIdentity(args)) => commands::identity::run(args),
        Some(CliCommand::Replay(args)) => commands::replay::run(args, files),
        Some(CliCommand::Demo(args)) => commands::demo::run(args, files),
        Some(CliCommand::Learn(args)) => commands::learn::run(args, files),
        Some(CliCommand::Export(args)) => commands::export::run(args),
        Some(CliCommand::Diff(args)) => commands::diff::run(args, files),
        Some(CliCommand::Bench(args)) => commands::bench::run(args),
        Some(CliCommand::Generate(args)) => commands::generate::run(args),
        Some(CliCommand::Train(args)) => commands::train::run(args),
        Some(CliCommand::Models { action }) => commands::models::run(action.clone()),
        Some(CliCommand::Devices { json }) => commands::devices::run(*json),
        Some(CliCommand::Config { action }) => commands::config::run(action, parsed),
        Some(CliCommand::Completions { shell }) => commands::config::completions(*shell),
        Some(CliCommand::Man { out }) => commands::config::man(out.as_deref()),
    }
}

/// The error and its causes, each once: most errors name their cause themselves.
fn format_error(error: &anyhow::Error) -> String {
    error.chain().map(ToString::to_string).fold(String::new(), |text, cause| match text.as_str() {
        "" => cause,
        before if before.contains(&cause) => text,
        before => format!("{before}: {cause}"),
    })
}

/// The sentence for an error of writing to a standard output that was closed.
fn printing_failed(error: &anyhow::Error) -> Option<String> {
    let failed = error.chain().find_map(|cause| cause.downcast_ref::<std::io::Error>())?;
    (commands::closed_stdout::was_closed() && failed.kind() == std::io::ErrorKind::StorageFull)
        .then(|| commands::closed_stdout::explain(failed))
}

/// Whether the reader closed the pipe (`draftscope run … | head`), which is no failure.
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .chain()
        .any(|cause| cause.downcast_ref::<std::io::Error>().is_some_and(|e| e.kind() == std::io::ErrorKind::BrokenPipe))
}
