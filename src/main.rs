//! The program draftscope: parses the arguments, runs one command and returns its exit code. The logic is in the
//! library.

mod commands;

use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::process::ExitCode;

use commands::config::{ERROR, Parsed};
use draftscope::cli::CliCommand;
use draftscope::host::fatal::{NotingAllocator, OutOfMemory};
use draftscope::model::text::template::process;

/// Notes what the system refuses, so that a program that runs out of memory says so.
#[global_allocator]
static MEMORY: NotingAllocator = NotingAllocator;

/// How many threads candle and its pool use.
const THREADS: &str = "RAYON_NUM_THREADS";

/// More threads than the largest machines have cores, and few enough that the system starts them at once.
const MOST_THREADS: usize = 512;

/// Whether errors capture a backtrace; panics follow `RUST_BACKTRACE`.
const ERROR_BACKTRACES: &str = "RUST_LIB_BACKTRACE";

fn main() -> ExitCode {
    let reduced = set_environment();
    if let Some(code) = process::start() {
        return code; // this process was started to render one chat template
    }
    if let Some(reduced) = reduced {
        commands::output::say(&reduced);
    }
    let code = start();
    draftscope::model::close_devices();
    code
}

/// Names the number of threads, unless the user has: otherwise candle reads from a file how many cores there are, before each
/// product, and knows nothing of a container's quota. More than [`MOST_THREADS`] are reduced, with a sentence.
///
/// Errors never capture a backtrace: they are no bugs, a message has no room for one, and where memory is short, looking up
/// its symbols fails and hangs the program.
#[allow(unsafe_code)]
fn set_environment() -> Option<String> {
    let asked = std::env::var(THREADS).ok().and_then(|asked| asked.trim().parse::<usize>().ok()).filter(|n| *n > 0);
    let threads = match asked {
        Some(asked) => Some(asked.min(MOST_THREADS)),
        None => std::thread::available_parallelism().ok().map(usize::from),
    };
    // SAFETY: this thread is the only one yet.
    unsafe {
        if let Some(threads) = threads {
            std::env::set_var(THREADS, threads.to_string());
        }
        std::env::set_var(ERROR_BACKTRACES, "0");
    }
    let asked = asked.filter(|asked| *asked > MOST_THREADS)?;
    Some(format!("{THREADS} asks for {asked} threads; {MOST_THREADS} are used, which is the most"))
}

/// Runs the command; returns the exit status.
fn start() -> ExitCode {
    commands::closed_stdout::guard();
    draftscope::host::fatal::install();
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
            commands::output::say(&printing_failed(&error).unwrap_or_else(|| commands::output::with_causes(&error)));
            if error.is::<commands::output::AnswerFailed>() {
                return ExitCode::FAILURE;
            }
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
        Some(CliCommand::Bench(args)) => commands::bench::start::run(args),
        Some(CliCommand::Generate(args)) => commands::generate::run(args),
        Some(CliCommand::Train(args)) => commands::train::run(args),
        Some(CliCommand::Models { action }) => commands::models::run(action.clone()),
        Some(CliCommand::Doctor(args)) => commands::doctor::run(args, parsed),
        Some(CliCommand::Devices { json }) => commands::devices::run(*json),
        Some(CliCommand::Config { action }) => commands::config::run(action, parsed),
        Some(CliCommand::Completions { shell }) => commands::config::completions(*shell),
        Some(CliCommand::Man { out }) => commands::config::man(out.as_deref()),
    }
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
