//! draftscope: arguments to a source and its consumers, to an exit code. The only place that names
//! all modules; logic lives in the library.

mod commands;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::process::ExitCode;

use commands::config::Parsed;
use draftscope::cli::Action;
use draftscope::fatal::OutOfMemory;
use draftscope::model::text::template::process;

/// Exit status of an error; 1 says that what was compared differs.
const ERROR: u8 = 2;

fn main() -> ExitCode {
    if let Some(code) = process::start() {
        return code; // this process was started to render one chat template
    }
    draftscope::fatal::install();
    let parsed = commands::config::parse();
    commands::config::warn(&parsed);
    // what runs in this thread may need more memory than there is
    let result = catch_unwind(AssertUnwindSafe(|| run(&parsed)));
    let result = result.unwrap_or_else(|panic| match OutOfMemory::of(&*panic) {
        Some(refused) => Err(refused.into()),
        None => resume_unwind(panic),
    });
    match result {
        Ok(code) => code,
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            commands::output::say(&format_error(&error));
            error.downcast_ref::<commands::signals::Stopped>().map_or(ExitCode::from(ERROR), |stopped| stopped.status())
        }
    }
}

fn run(parsed: &Parsed) -> anyhow::Result<ExitCode> {
    let files = &parsed.files;
    match &parsed.cli.command {
        None => commands::chat::run(&parsed.cli.chat, files),
        Some(Action::Chat(args)) => commands::chat::run(args, files),
        Some(Action::Run(args)) => commands::run::run(args),
        Some(Action::Compare(args)) => commands::compare::run(args),
        Some(Action::Explain(args)) => commands::explain::run(args),
        Some(Action::VerifyIdentity(args)) => commands::identity::run(args),
        Some(Action::Replay(args)) => commands::replay::run(args, files),
        Some(Action::Demo(args)) => commands::demo::run(args, files),
        Some(Action::Export(args)) => commands::export::run(args),
        Some(Action::Diff(args)) => commands::diff::run(args, files),
        Some(Action::Bench(args)) => commands::bench::run(args),
        Some(Action::Generate(args)) => commands::generate::run(args),
        Some(Action::Train(args)) => commands::train::run(args),
        Some(Action::Models { action }) => commands::models::run(action.clone()),
        Some(Action::Config { action }) => commands::config::run(action, parsed),
        Some(Action::Completions { shell }) => commands::config::completions(*shell),
        Some(Action::Man { out }) => commands::config::man(out.as_deref()),
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

/// A reader that has enough (`draftscope run … | head`) is no failure.
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .chain()
        .any(|cause| cause.downcast_ref::<std::io::Error>().is_some_and(|e| e.kind() == std::io::ErrorKind::BrokenPipe))
}
