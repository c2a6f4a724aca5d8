//! `draftscope chat`: the live view, or plain text when there is no terminal to draw on.

use std::io::{self, BufRead, IsTerminal, Write};
use std::process::ExitCode;

use anyhow::{Result, bail};
use draftscope::cli::ChatArgs;
use draftscope::config::UserFiles;
use draftscope::headless::{Driver, Outcome, Summary, Text};
use draftscope::protocol::{Baseline, Lane, Message, Prompt, Speaker};
use draftscope::stream::FanOut;
use draftscope::tui::{self, Ended, TuiOptions};

use super::terminal;

pub(crate) fn run(args: &ChatArgs, files: &UserFiles) -> Result<ExitCode> {
    if terminal::can_draw() { live(args, files) } else { plain(args) }
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

/// One prompt per line of standard input, answers as text, no escape codes.
fn plain(args: &ChatArgs) -> Result<ExitCode> {
    super::run_args::nobody_to_ask(&args.model)?;
    let recorder = super::trace::recorder(&args.trace)?;
    let mut driver = Driver::new(super::engine::start_against(&args.rival, &args.model, &args.decode, Baseline::Off)?);
    if let Some(recorder) = recorder {
        driver.add(Box::new(recorder));
    }
    driver.add(Box::new(Text::new(io::stdout(), !io::stdout().is_terminal())));
    let (mut messages, mut reported): (Vec<Message>, u64) = (Vec::new(), 0);
    let lines = args.prompt.clone().map(Ok).into_iter().chain(io::stdin().lock().lines());
    for line in lines {
        let text = line?;
        if text.trim().is_empty() {
            continue;
        }
        let prompt = if args.decode.raw {
            Prompt::Raw(text)
        } else {
            match messages.is_empty() {
                true => messages = super::run_args::conversation(&args.decode, text),
                false => messages.push(Message { role: Speaker::User, content: text }),
            }
            Prompt::Chat(messages.clone())
        };
        let outcome = driver.answer(prompt);
        super::output::report_new_notices(&driver, &mut reported);
        if let Outcome::Failed(message) = outcome {
            bail!(message);
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
