//! `draftscope chat`: the live view, or plain text when there is no terminal to draw on.

use std::io::{self, IsTerminal, StdinLock, Write};
use std::process::ExitCode;

use anyhow::{Result, bail};
use draftscope::cli::{ChatArgs, SampleArgs};
use draftscope::headless::{Driver, Outcome, Summary, Text};
use draftscope::host::config::UserFiles;
use draftscope::protocol::stream::Source;
use draftscope::protocol::{Baseline, Lane, Message, Prompt, Speaker};
use draftscope::session::trace::Recorder;
use draftscope::tui::TuiOptions;

use super::prompts::{Division, Prompts, label};
use super::signals::StopSignal;
use super::terminal;

/// What needs no engine, as an error on the screen names it.
const WITHOUT_MODEL: &str = "draftscope demo plays recordings of the real engine, without a model and without network";

pub(crate) fn run(args: &ChatArgs, files: &UserFiles) -> Result<ExitCode> {
    if terminal::can_draw() && !args.per_line { live(args, files) } else { plain(args) }
}

fn live(args: &ChatArgs, files: &UserFiles) -> Result<ExitCode> {
    let grammar = super::grammar::read(&args.grammar)?;
    let recorder = super::trace::recorder(&args.trace)?;
    let baseline = if args.screen.split { Baseline::Race } else { Baseline::PROBE };
    // before the engine starts: this asks the terminal through standard error, which calls into GPU drivers may redirect
    let options = TuiOptions {
        system: args.decode.sample.system.clone(),
        raw: args.decode.sample.raw,
        initial_prompt: args.prompt.clone(),
        pace: args.pace,
        autosave: args.autosave,
        is_recorded: args.trace.trace.is_some(),
        tour: super::first_start::first_start(),
        without_engine: Some(WITHOUT_MODEL.to_owned()),
        ..terminal::screen(&args.screen, files)
    };
    let source = super::engine::start_on_screen(&args.rival, &args.model, &args.decode, grammar, baseline)
        .map_err(|error| super::output::without_model(error, WITHOUT_MODEL))?;
    terminal::show(source, options, recorder)
}

/// Answers `--prompt` and standard input as text, without escape codes.
fn plain(args: &ChatArgs) -> Result<ExitCode> {
    super::run_args::nobody_to_ask(&args.model)?;
    let prompts = prompts(args.prompt.as_deref(), args.per_line)?;
    super::run_args::report_idle_system(&args.decode.sample);
    let grammar = super::grammar::read(&args.grammar)?;
    let recorder = super::trace::recorder(&args.trace)?;
    let source = super::engine::start_against(&args.rival, &args.model, &args.decode, grammar, Baseline::Off)?;
    answer_all(source, &args.decode.sample, (prompts, args.per_line), recorder)
}

/// The prompts of `--prompt` and standard input. What is typed at a terminal is a prompt a line. The first one is read now.
pub(super) fn prompts(option: Option<&str>, per_line: bool) -> Result<Prompts<StdinLock<'static>>> {
    let division = if per_line || io::stdin().is_terminal() { Division::Lines } else { Division::Whole };
    Prompts::start(option, io::stdin().lock(), division)
}

/// Answers these prompts as text, without escape codes; with `per_line`, each after its number.
pub(super) fn answer_all(
    source: Source,
    sample: &SampleArgs,
    (mut prompts, per_line): (Prompts<StdinLock<'static>>, bool),
    recorder: Option<Recorder>,
) -> Result<ExitCode> {
    let mut driver = Driver::new(source);
    let stop = StopSignal::listen()?;
    stop.watch(&mut driver);
    if let Some(recorder) = recorder {
        driver.add(Box::new(recorder));
    }
    driver.add(Box::new(Text::new(io::stdout(), !io::stdout().is_terminal())));
    let (mut messages, mut reported, mut number) = (Vec::new(), 0, 0);
    loop {
        stop.is_idle(true);
        let Some(text) = prompts.next()? else { break };
        stop.is_idle(false);
        number += 1;
        if per_line {
            let gap = if number > 1 { "\n" } else { "" };
            super::output::print(format!("{gap}{}", label(number, &text)))?;
        }
        driver.drop_old_answers();
        let outcome = driver.answer(next_prompt(sample, &mut messages, text));
        let last = if let Outcome::Failed(message) = &outcome { Some(message.as_str()) } else { None };
        super::output::report_notices_before(&driver, &mut reported, last);
        match outcome {
            Outcome::Stopped if stop.is_set() => {
                super::output::complete(driver.finish())?;
                bail!(stop.stopped());
            }
            Outcome::Failed(message) => {
                let place = if per_line { format!("prompt {number}: ") } else { String::new() };
                return Err(super::output::answer_failed(&driver, place + &message));
            }
            _ => {}
        }
        super::output::report_rival(&driver);
        let own = driver.session().turn().map(|turn| Summary::of(turn, Lane::Speculative));
        own.as_ref().and_then(super::output::departures).iter().for_each(|text| super::output::say(text));
        let answer = driver.session().turn().map(|turn| turn.answer(Lane::Speculative).reply());
        messages.push(Message { role: Speaker::Assistant, content: answer.unwrap_or_default() });
        io::stdout().flush()?;
    }
    super::output::complete(driver.finish())?;
    Ok(ExitCode::SUCCESS)
}

/// A prompt that continues the conversation; with `--raw`, one by itself.
fn next_prompt(sample: &SampleArgs, messages: &mut Vec<Message>, text: String) -> Prompt {
    if sample.raw {
        return Prompt::Raw(text);
    }
    match messages.is_empty() {
        true => *messages = super::run_args::conversation(sample, text),
        false => messages.push(Message { role: Speaker::User, content: text }),
    }
    Prompt::Chat(messages.clone())
}
