//! Asks the engine one prompt after another.

use anyhow::{Context, Result, bail};
use draftscope::cli::BenchArgs;
use draftscope::headless::{Driver, Outcome};
use draftscope::protocol::{Lane, Message, Prompt, Speaker};
use draftscope::session::Turn;

use crate::commands::run_args;
use crate::commands::signals::StopSignal;

/// Asks all turns of a prompt, each after the answer to the one before, and shows every answer to `measured`.
pub(super) fn converse(
    driver: &mut Driver,
    common: (&BenchArgs, &StopSignal),
    turns: &[String],
    mut measured: impl FnMut(&Driver, &Turn),
) -> Result<()> {
    let mut before = Vec::new();
    for said in turns {
        answer(driver, common, &before, said)?;
        let turn = driver.session().turn().context("nothing was measured; please report this")?;
        measured(driver, turn);
        before.push(Message { role: Speaker::User, content: said.clone() });
        before.push(Message { role: Speaker::Assistant, content: turn.answer(Lane::Speculative).text() });
    }
    Ok(())
}

/// Asks for an answer to `said` after the messages before it.
pub(super) fn answer(
    driver: &mut Driver,
    (args, stop): (&BenchArgs, &StopSignal),
    before: &[Message],
    said: &str,
) -> Result<()> {
    let prompt = if args.decode.sample.raw {
        Prompt::Raw(said.to_owned())
    } else {
        let mut messages = run_args::conversation(&args.decode.sample, said.to_owned());
        let last = messages.len().saturating_sub(1);
        messages.splice(last..last, before.iter().cloned());
        Prompt::Chat(messages)
    };
    match driver.answer(prompt) {
        Outcome::Answered => Ok(()),
        Outcome::Stopped => bail!(stop.stopped()),
        Outcome::Failed(message) => bail!(message),
    }
}
