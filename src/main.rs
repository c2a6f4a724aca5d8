//! draftscope: arguments to a source and its consumers, to an exit code. The only place that names
//! all modules; logic lives in the library.

mod commands;

use std::process::ExitCode;

use clap::Parser;
use draftscope::cli::{Action, Cli};

fn main() -> ExitCode {
    let cli = Cli::parse();
    let result = match cli.command {
        None => commands::chat::run(&cli.chat),
        Some(Action::Chat(args)) => commands::chat::run(&args),
        Some(Action::Run(args)) => commands::run::run(&args),
        Some(Action::Compare(args)) => commands::compare::run(&args),
        Some(Action::Explain(args)) => commands::explain::run(&args),
        Some(Action::VerifyIdentity(args)) => commands::identity::run(&args),
        Some(Action::Generate(args)) => commands::generate::run(&args),
        Some(Action::Train(args)) => commands::train::run(&args),
        Some(Action::Models { action }) => commands::models::run(action),
    };
    match result {
        Ok(code) => code,
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("draftscope: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// A reader that has enough (`draftscope run … | head`) is no failure.
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .chain()
        .any(|cause| cause.downcast_ref::<std::io::Error>().is_some_and(|e| e.kind() == std::io::ErrorKind::BrokenPipe))
}
