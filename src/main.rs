//! draftscope: arguments to a source and its consumers, to an exit code. The only place that names
//! all modules; logic lives in the library.

mod commands;

use std::process::ExitCode;

use draftscope::cli::Action;
use draftscope::model::text::template::process;

/// Exit status of an error; 1 says that what was compared differs.
const ERROR: u8 = 2;

fn main() -> ExitCode {
    if let Some(code) = process::start() {
        return code; // this process was started to render one chat template
    }
    draftscope::fatal::install();
    let parsed = commands::config::parse();
    let files = &parsed.files;
    commands::config::warn(&parsed);
    let result = match &parsed.cli.command {
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
        Some(Action::Config { action }) => commands::config::run(action, &parsed),
        Some(Action::Completions { shell }) => commands::config::completions(*shell),
        Some(Action::Man { out }) => commands::config::man(out.as_deref()),
    };
    match result {
        Ok(code) => code,
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            commands::output::say(&told(&error));
            error.downcast_ref::<commands::signals::Stopped>().map_or(ExitCode::from(ERROR), |stopped| stopped.status())
        }
    }
}

/// The error and its causes, each once: most errors name their cause themselves.
fn told(error: &anyhow::Error) -> String {
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
