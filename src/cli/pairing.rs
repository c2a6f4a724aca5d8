//! The options on the model of whatever subcommand was given.

use super::{ChatArgs, Cli, CliCommand, ModelArgs};

impl Cli {
    /// The options on the model; none for a subcommand that loads none.
    pub fn model_args_mut(&mut self) -> Option<&mut ModelArgs> {
        Some(match &mut self.command {
            None => chat(&mut self.chat),
            Some(CliCommand::Chat(args)) => chat(args),
            Some(CliCommand::Run(args)) => &mut args.model,
            Some(CliCommand::Compare(args)) => &mut args.model,
            Some(CliCommand::Explain(args)) => &mut args.model,
            Some(CliCommand::VerifyIdentity(args)) => &mut args.model,
            Some(CliCommand::Learn(args)) => &mut args.model,
            Some(CliCommand::Bench(args)) => &mut args.model,
            Some(_) => return None,
        })
    }
}

fn chat(args: &mut ChatArgs) -> &mut ModelArgs {
    &mut args.model
}
