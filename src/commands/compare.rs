//! `draftscope compare`: plain and speculative decoding of one prompt, interleaved on one device.

use std::cmp::Ordering;
use std::fmt::Write as _;
use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::{Result, bail};
use draftscope::cli::{CompareArgs, OutputArg};
use draftscope::headless::{CompareSummary, Described, Driver, FirstRun, Outcome, Spread, Summary};
use draftscope::protocol::{Baseline, Lane, StopReason, counted};
use draftscope::session::text::one_line;
use draftscope::session::{Answer, Speedup, Turn};

use super::signals::StopSignal;

/// Exit status when greedy outputs differ under a lossless rule.
const DIFFERENT: u8 = 1;

pub(crate) fn run(args: &CompareArgs) -> Result<ExitCode> {
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
        None => super::engine::start(&args.model, &args.decode, grammar, Baseline::Race)?,
    };
    let mut driver = Driver::new(source);
    let stop = StopSignal::listen()?;
    stop.watch(&mut driver);
    if let Some(recorder) = recorder {
        driver.add(Box::new(recorder));
    }
    if args.output == OutputArg::Jsonl {
        driver.add(super::trace::event_stream(&args.trace));
    }
    let outcomes = (0..=args.repeat).map(|_| driver.answer(prompt.clone()));
    let outcome = outcomes.into_iter().find(|o| *o != Outcome::Answered).unwrap_or(Outcome::Answered);
    super::output::report_notices(&driver, &outcome);
    let has_plain = args.attach.is_none() || args.connect.plain_url.is_some();
    let summary = measured(driver.session().turns(), has_plain)
        .map(|figures| Described { header: driver.session().header().cloned(), figures });
    let whole = super::output::complete(driver.finish());
    if let Outcome::Failed(message) = outcome {
        bail!(message);
    }
    let printed = summary.as_ref().map_or(Ok(()), |summary| print(args.output, summary));
    // a recording that broke off takes nothing from what was measured, and is told whoever reads the rest
    whole.and(printed)?;
    if outcome == Outcome::Stopped {
        bail!(stop.stopped());
    }
    let Some(summary) = summary else { bail!("nothing was measured; please report this") };
    let engine = summary.header.as_ref().and_then(|header| header.engine.as_ref());
    let is_other_model = engine.is_some_and(|engine| engine.no_speedup.is_some());
    let must_agree =
        !is_other_model && args.decode.sample.temperature <= 0.0 && summary.figures.speculative.lossless != Some(false);
    Ok(if must_agree && summary.figures.identical == Some(false) {
        ExitCode::from(DIFFERENT)
    } else {
        ExitCode::SUCCESS
    })
}

/// What the repeats came to that all lanes finished; none where only the warm-up is among them.
fn measured(turns: &[Turn], has_plain: bool) -> Option<CompareSummary> {
    let lanes: &[Lane] = if has_plain { &[Lane::Plain, Lane::Speculative] } else { &[Lane::Speculative] };
    let is_whole = |lane: &Answer| lane.finished.is_some_and(|reason| reason != StopReason::Stopped);
    let whole = turns.iter().take_while(|turn| lanes.iter().all(|lane| is_whole(turn.answer(*lane))));
    let whole = &turns[..whole.count()];
    if whole.len() > 1 { CompareSummary::of(whole) } else { None }
}

fn print(output: OutputArg, summary: &Described<CompareSummary>) -> Result<()> {
    match output {
        OutputArg::Summary => super::output::print_json(summary),
        OutputArg::Text => {
            let engine = summary.header.as_ref().and_then(|header| header.engine.as_ref());
            let no_speedup = engine.and_then(|engine| engine.no_speedup.as_deref());
            Ok(io::stdout().lock().write_all(report(&summary.figures, no_speedup).as_bytes())?)
        }
        OutputArg::Jsonl => Ok(()),
    }
}

fn report(summary: &CompareSummary, no_speedup: Option<&str>) -> String {
    let mut out = String::new();
    let mut line = |text: String| {
        let _ = writeln!(out, "{text}"); // writing to a String cannot fail
    };
    let [plain, speculative] = summary.speeds;
    match &summary.plain {
        Some(run) => line(lane("plain", run, (plain, summary.plain_tokens_per_second))),
        None if plain.is_some() => {
            line(format!("plain        {:.1} tokens/s in rounds without drafts", plain.unwrap_or(0.0)));
        }
        None => line("plain        unknown: name a server without speculation with --plain-url".to_owned()),
    }
    line(lane("speculative", &summary.speculative, (speculative, summary.speculative_tokens_per_second)));
    match summary.speedup.zip(summary.speedup_spread) {
        Some((speedup, spread)) => line(verdict(&speedup, spread, summary.repeats)),
        None if no_speedup.is_some() => {
            line(format!("speedup      none: {}", one_line(no_speedup.unwrap_or_default())));
        }
        None if summary.plain.is_none() => {}
        None if summary.speculative.run.rounds > 0 => {
            line("speedup      too few rounds to measure it: ask for a longer answer".to_owned());
        }
        None => {}
    }
    summary
        .speedup
        .and_then(|speedup| speedup.note())
        .into_iter()
        .for_each(|note| line(format!("             {note}")));
    let s = &summary.speculative;
    if let (Some(length), Some(rate)) = (s.tokens_per_round, s.run.draft_acceptance_rate) {
        line(format!("acceptance   {:.0} % of drafts, {length:.2} tokens per round (bonus included)", rate * 100.0));
        let by_position = s.run.offered_per_pos.iter().zip(&s.run.accepted_per_pos);
        let shares: Vec<String> =
            by_position.map(|(o, a)| format!("{:.0} %", *a as f64 / (*o).max(1) as f64 * 100.0)).collect();
        line(format!("by position  {} (accepted ÷ drafted there)", shares.join("  ")));
    }
    summary.first_run.iter().flat_map(first_run).for_each(&mut line);
    super::output::departures(s).into_iter().for_each(|told| line(format!("rule         {told}")));
    super::output::draftable(s).into_iter().for_each(|share| line(format!("vocabulary   {share}")));
    match &summary.first_divergence {
        None if summary.identical.is_none() => {}
        None => line(format!("identical    yes, {}", counted(s.output_tokens as usize, "token"))),
        Some(d) => {
            let text = |piece: &Option<draftscope::protocol::Piece>| match piece {
                Some(piece) => draftscope::session::text::quoted(piece),
                None => "the end".to_owned(),
            };
            line(format!(
                "identical    no: {} places differ; token {} is {} plainly and {} speculatively",
                summary.differing_tokens.unwrap_or(0),
                d.index + 1,
                text(&d.beside),
                text(&d.speculative)
            ));
        }
    }
    out
}

/// The first answer to the prompt apart from the later ones, whose figures stand above.
fn first_run(run: &FirstRun) -> Vec<String> {
    let Some((first, later)) = run.tokens_per_round.zip(run.later_tokens_per_round) else { return Vec::new() };
    let rate = |rate: Option<f64>| rate.map_or("unknown".to_owned(), |rate| format!("{:.0} %", rate * 100.0));
    let (a, b) = (rate(run.draft_acceptance_rate), rate(run.later_draft_acceptance_rate));
    let mut lines =
        vec![format!("first run    {first:.2} tokens per round, {a} of drafts; the later ones: {later:.2}, {b}")];
    if run.is_remembered() {
        lines.push(
            "             this server drafts from earlier answers: a prompt that it has not seen is like the first run"
                .to_owned(),
        );
    }
    lines
}

/// The speedup with its interval, and its range over the repeats.
fn verdict(speedup: &Speedup, Spread { min, max, .. }: Spread, repeats: usize) -> String {
    let verdict = match speedup.against_one() {
        _ if speedup.is_disturbed() => "disturbed",
        Ordering::Less => "slower than plain here",
        Ordering::Equal => "as fast as plain",
        Ordering::Greater => "faster than plain",
    };
    format!("speedup      {speedup} ({min:.2}–{max:.2} over {repeats} repeats, the warm-up left out): {verdict}")
}

/// A lane's speed over all repeats, with its range: by its own clock while there is no speedup.
fn lane(name: &str, summary: &Summary, (speed, range): (Option<f64>, Option<Spread>)) -> String {
    let speed = range.map_or_else(
        || "no round was needed".to_owned(),
        |s| format!("{:.1} tokens/s ({:.1}–{:.1})", speed.unwrap_or(s.median), s.min, s.max),
    );
    let [tokens, rounds] = [(summary.output_tokens, "token"), (summary.run.rounds, "round")]
        .map(|(count, noun)| counted(count as usize, noun));
    format!("{name:<12} {speed}, {tokens} in {rounds}")
}
