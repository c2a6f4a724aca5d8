//! `draftscope chat`: the live view, or plain text when there is no terminal to draw on.

use std::io::{self, BufRead, IsTerminal, Write};
use std::process::ExitCode;

use anyhow::{Result, bail};
use draftscope::cli::{ChatArgs, LookArgs, ScreenArgs, ViewArg};
use draftscope::config::UserFiles;
use draftscope::headless::{Driver, Outcome, Summary, Text};
use draftscope::protocol::{Baseline, Lane, Message, Prompt, Speaker};
use draftscope::stream::FanOut;
use draftscope::tui::{self, Ended, Page, TuiOptions};

use super::{demo, files};

pub(crate) fn run(args: &ChatArgs, files: &UserFiles) -> Result<ExitCode> {
    if can_draw() { live(args, files) } else { plain(args) }
}

/// Whether there is a terminal that understands more than text.
pub(crate) fn can_draw() -> bool {
    let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    !dumb && io::stdout().is_terminal() && io::stdin().is_terminal()
}

fn live(args: &ChatArgs, files: &UserFiles) -> Result<ExitCode> {
    let mut consumers = FanOut::default();
    if let Some(recorder) = super::recorder(&args.trace)? {
        consumers.add(Box::new(recorder));
    }
    let baseline = if args.screen.split { Baseline::Race } else { Baseline::PROBE };
    let source = super::start_against(&args.rival, &args.model, &args.decode, baseline)?;
    let options = TuiOptions {
        system: args.decode.system.clone(),
        raw: args.decode.raw,
        initial_prompt: args.prompt.clone(),
        ..screen(&args.screen, files)
    };
    match tui::run(source, options, consumers)? {
        Ended::Quit => Ok(ExitCode::SUCCESS),
        Ended::Failed(message) => bail!(message),
        Ended::Incomplete(dropped) => super::complete(vec![dropped]).map(|()| ExitCode::SUCCESS),
    }
}

/// How any screen looks: options, and the user's keys and themes.
pub(crate) fn look(args: &LookArgs, files: &UserFiles) -> TuiOptions {
    let options = TuiOptions::from_env();
    let fitting = || if options.no_color { None } else { tui::fitting_theme() };
    TuiOptions {
        theme: args.theme.clone().or_else(fitting),
        themes: files.themes.clone(),
        keymap: files.keymap.clone(),
        ascii: args.ascii,
        no_mouse: args.no_mouse,
        warnings: files.warnings.clone(),
        ..options
    }
}

/// How the screen of a run looks.
pub(crate) fn screen(args: &ScreenArgs, files: &UserFiles) -> TuiOptions {
    TuiOptions {
        page: match args.view {
            ViewArg::Chat => Page::Chat,
            ViewArg::Rounds => Page::Rounds,
            ViewArg::Inspect => Page::Inspect,
            ViewArg::Speed => Page::Speed,
            ViewArg::Compare => Page::Compare,
            ViewArg::Learn => Page::Learn,
        },
        split: args.split,
        save: Some(files::saver()),
        export: Some(files::exporter()),
        recordings: Some(demo::lessons()),
        ..look(&args.look, files)
    }
}

/// One prompt per line of standard input, answers as text, no escape codes.
fn plain(args: &ChatArgs) -> Result<ExitCode> {
    super::nobody_to_ask(&args.model)?;
    let recorder = super::recorder(&args.trace)?;
    let mut driver = Driver::new(super::start_against(&args.rival, &args.model, &args.decode, Baseline::Off)?);
    if let Some(recorder) = recorder {
        driver.add(Box::new(recorder));
    }
    driver.add(Box::new(Text::new(io::stdout(), !io::stdout().is_terminal())));
    let (mut messages, mut told): (Vec<Message>, u64) = (Vec::new(), 0);
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
                true => messages = super::conversation(&args.decode, text),
                false => messages.push(Message { role: Speaker::User, content: text }),
            }
            Prompt::Chat(messages.clone())
        };
        let outcome = driver.answer(prompt);
        super::tell_new_notices(&driver, &mut told);
        if let Outcome::Failed(message) = outcome {
            bail!(message);
        }
        super::tell_rival(&driver);
        let own = driver.session().turn().map(|turn| Summary::of(turn, Lane::Speculative));
        own.as_ref().and_then(super::departures).iter().for_each(|told| super::say(told));
        let answer = driver.session().turn().map(|turn| turn.answer(Lane::Speculative).text());
        messages.push(Message { role: Speaker::Assistant, content: answer.unwrap_or_default() });
        io::stdout().flush()?;
    }
    super::complete(driver.finish())?;
    Ok(ExitCode::SUCCESS)
}
