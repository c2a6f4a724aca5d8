//! `draftscope chat`: the live view, or plain text when there is no terminal to draw on.

use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;

use anyhow::{Result, bail};
use draftscope::cli::{ChatArgs, DecodeArgs};
use draftscope::config::UserFiles;
use draftscope::headless::{Driver, Outcome, Summary, Text};
use draftscope::protocol::{Baseline, Lane, Message, Prompt, Speaker};
use draftscope::stream::FanOut;
use draftscope::tui::{self, Ended, TuiOptions};

use super::prompts::{Division, Prompts, label};
use super::terminal;

pub(crate) fn run(args: &ChatArgs, files: &UserFiles) -> Result<ExitCode> {
    if terminal::can_draw() && !args.per_line { live(args, files) } else { plain(args) }
}

fn live(args: &ChatArgs, files: &UserFiles) -> Result<ExitCode> {
    let mut consumers = FanOut::default();
    if let Some(recorder) = super::trace::recorder(&args.trace)? {
        consumers.add(Box::new(recorder));
    }
    let baseline = if args.screen.split { Baseline::Race } else { Baseline::PROBE };
    let source = super::engine::start_against(&args.rival, &args.model, &args.decode, baseline)?;
    let options = TuiOptions {
        system: args.decode.system.clone(),
        raw: args.decode.raw,
        initial_prompt: args.prompt.clone(),
        pace: args.pace,
        autosave: args.autosave,
        is_recorded: args.trace.trace.is_some(),
        tour: super::first_start::first_start(),
        ..terminal::screen(&args.screen, files)
    };
    match tui::run(source, options, consumers)? {
        Ended::Quit => Ok(ExitCode::SUCCESS),
        Ended::Failed(message) => bail!(message),
        Ended::Incomplete(dropped) => super::output::complete(vec![dropped]).map(|()| ExitCode::SUCCESS),
    }
}

/// Answers `--prompt` and standard input as text, without escape codes. What is typed at a terminal is a prompt a line.
fn plain(args: &ChatArgs) -> Result<ExitCode> {
    super::run_args::nobody_to_ask(&args.model)?;
    let is_typed = io::stdin().is_terminal();
    let division = if args.per_line || is_typed { Division::Lines } else { Division::Whole };
    let mut prompts = Prompts::start(args.prompt.as_deref(), io::stdin().lock(), division)?;
    super::run_args::report_idle_system(&args.decode);
    let recorder = super::trace::recorder(&args.trace)?;
    let mut driver = Driver::new(super::engine::start_against(&args.rival, &args.model, &args.decode, Baseline::Off)?);
    if let Some(recorder) = recorder {
        driver.add(Box::new(recorder));
    }
    driver.add(Box::new(Text::new(io::stdout(), !io::stdout().is_terminal())));
    let (mut messages, mut reported, mut number) = (Vec::new(), 0, 0);
    while let Some(text) = prompts.next()? {
        number += 1;
        if args.per_line {
            let gap = if number > 1 { "\n" } else { "" };
            super::output::print(format!("{gap}{}", label(number, &text)))?;
        }
        let outcome = driver.answer(next_prompt(&args.decode, &mut messages, text));
        super::output::report_new_notices(&driver, &mut reported);
        match outcome {
            Outcome::Failed(message) if args.per_line => bail!("prompt {number}: {message}"),
            Outcome::Failed(message) => bail!(message),
            _ => {}
        }
        super::output::report_rival(&driver);
        let own = driver.session().turn().map(|turn| Summary::of(turn, Lane::Speculative));
        own.as_ref().and_then(super::output::departures).iter().for_each(|text| super::output::say(text));
        let answer = driver.session().turn().map(|turn| turn.answer(Lane::Speculative).text());
        messages.push(Message { role: Speaker::Assistant, content: answer.unwrap_or_default() });
        io::stdout().flush()?;
    }
    super::output::complete(driver.finish())?;
    Ok(ExitCode::SUCCESS)
}

/// A prompt that continues the conversation; with `--raw`, one by itself.
fn next_prompt(decode: &DecodeArgs, messages: &mut Vec<Message>, text: String) -> Prompt {
    if decode.raw {
        return Prompt::Raw(text);
    }
    match messages.is_empty() {
        true => *messages = super::run_args::conversation(decode, text),
        false => messages.push(Message { role: Speaker::User, content: text }),
    }
    Prompt::Chat(messages.clone())
}
