//! `draftscope run`: one prompt without a screen.

use std::io::{self, IsTerminal};
use std::process::ExitCode;

use anyhow::{Result, bail};
use draftscope::cli::{OutputArg, RunArgs};
use draftscope::headless::{Described, Driver, Outcome, SentPrompts, Summary, Text};
use draftscope::protocol::{Baseline, Header, Lane, StopReason, counted};
use serde::Serialize;

use super::signals::StopSignal;

/// The figures of the run, and those of its rival.
#[derive(Serialize)]
struct Raced {
    #[serde(flatten)]
    own: Summary,
    #[serde(skip_serializing_if = "Option::is_none")]
    rival: Option<Summary>,
}

pub(crate) fn run(args: &RunArgs) -> Result<ExitCode> {
    if args.attach.is_none() {
        super::run_args::nobody_to_ask(&args.model)?;
    }
    let prompt = super::run_args::prompt(&args.prompt, &args.decode)?;
    let grammar = super::grammar::read(&args.grammar)?;
    let recorder = super::trace::recorder(&args.trace)?;
    let source = match &args.attach {
        Some(url) => {
            let model = super::attach::named(&args.model);
            super::attach::start(url, model, &args.connect, &args.decode.sample, grammar)?
        }
        None => super::engine::start_against(&args.rival, &args.model, &args.decode, grammar, Baseline::Off)?,
    };
    let mut driver = Driver::new(source);
    let stop = StopSignal::listen()?;
    stop.watch(&mut driver);
    if let Some(recorder) = recorder {
        driver.add(Box::new(recorder));
    }
    if args.show_prompt {
        driver.add(Box::new(SentPrompts(io::stderr())));
    }
    match args.output {
        OutputArg::Text => driver.add(Box::new(Text::new(io::stdout(), !io::stdout().is_terminal()))),
        OutputArg::Jsonl => driver.add(super::trace::event_stream(&args.trace)),
        OutputArg::Summary => {}
    }
    let outcome = driver.answer(prompt);
    super::output::report_notices(&driver, &outcome);
    let summary = driver.session().turn().map(|turn| Raced {
        own: Summary::of(turn, Lane::Speculative),
        rival: Some(Summary::of(turn, Lane::Rival)).filter(|rival| rival.output_tokens > 0),
    });
    let summary = summary.map(|figures| Described { header: driver.session().header().cloned(), figures });
    if args.output == OutputArg::Text {
        super::output::report_rival(&driver);
    }
    let was_stopped = outcome == Outcome::Stopped;
    let failed = match outcome {
        Outcome::Failed(message) => Some(super::output::answer_failed(&driver, message)),
        _ => None,
    };
    let whole = super::output::complete(driver.finish());
    // what came of an answer that broke off has its figures, too
    let has_text = summary.as_ref().is_some_and(|summary| summary.figures.own.output_tokens > 0);
    if let Some(failed) = failed {
        if let (OutputArg::Summary, true, Some(summary)) = (args.output, has_text, &summary) {
            super::output::print_json(summary)?;
        }
        return Err(failed);
    }
    let printed = match (args.output, summary) {
        (OutputArg::Summary, Some(summary)) => super::output::print_json(&summary),
        (OutputArg::Text, Some(summary)) => {
            let own = &summary.figures.own;
            let sentences = [
                super::output::departures(own),
                super::output::draftable(own).filter(|_| has_other_tokenizer(summary.header.as_ref())),
                cut_short(own),
                own.contradiction.clone(),
            ];
            sentences.iter().flatten().for_each(|text| super::output::say(text));
            Ok(())
        }
        _ => Ok(()),
    };
    // an incomplete recording is an error, but what was measured is printed all the same
    whole.and(printed)?;
    if was_stopped {
        bail!(stop.stopped());
    }
    Ok(ExitCode::SUCCESS)
}

/// Whether a draft model with another tokenizer is loaded, whose worth follows from the share of tokens that it has.
fn has_other_tokenizer(header: Option<&Header>) -> bool {
    header.is_some_and(|header| header.drafters.iter().any(|drafter| drafter.vocab_method.is_some()))
}

/// A warning that the answer ended because the context is full.
fn cut_short(run: &Summary) -> Option<String> {
    let is_full = run.finish_reason == Some(StopReason::ContextFull);
    is_full.then(|| {
        let tokens = counted(run.output_tokens as usize, "token");
        format!("the answer ends after {tokens} because the context is full; give more with --ctx")
    })
}
