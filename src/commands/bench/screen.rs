//! `draftscope bench --screen`: measures how much the screen slows the engine.
//!
//! Each prompt is answered with the screen (folding, layout, escape codes, up to 60 frames per second, not shown) and
//! without it, one right after the other on the same engine; the order alternates. Tokens per second are by the wall
//! clock, so that all time that the screen takes counts.

use std::cell::Cell;
use std::process::ExitCode;
use std::rc::Rc;

use anyhow::{Context, Result, bail};
use draftscope::cli::BenchArgs;
use draftscope::host::Taskbar;
use draftscope::protocol::stream::{Consumer, FanOut};
use draftscope::protocol::{Baseline, Committed, Event, EventKind, Lane, Settings};
use draftscope::tui::{Offscreen, TuiOptions};

use super::super::run_args::ANSWER_TOKENS;
use super::sample::Quantiles;

/// Smallest allowed speed with the screen, as a share of the speed without it.
const LEAST: f64 = 0.97;

/// Size of the screen: columns and rows.
const SIZE: (u16, u16) = (120, 40);

/// Tokens of an answer's rounds, and microseconds from the end of the prefill to the last commit.
#[derive(Clone, Copy, Default)]
struct Span {
    tokens: usize,
    began: u64,
    ended: u64,
}

impl Span {
    fn us(self) -> u64 {
        self.ended.saturating_sub(self.began)
    }

    fn speed(self) -> Result<f64> {
        if self.tokens == 0 || self.us() == 0 {
            bail!("an answer of one token says nothing about speed; choose other prompts with --suite");
        }
        Ok(self.tokens as f64 / self.us() as f64 * 1e6)
    }
}

/// Records the [`Span`] of the newest answer.
#[derive(Clone, Default)]
struct Watch(Rc<Cell<Span>>);

impl Consumer for Watch {
    fn name(&self) -> &str {
        "the watch"
    }
    fn event(&mut self, event: &Event) -> std::io::Result<()> {
        let span = self.0.get();
        match &event.kind {
            _ if event.lane != Lane::Speculative => {}
            EventKind::Prefilled(_) => self.0.set(Span { began: event.at_us, ..Span::default() }),
            EventKind::Committed(Committed { tokens, .. }) => {
                self.0.set(Span { tokens: span.tokens + tokens.len(), ended: event.at_us, ..span });
            }
            _ => {}
        }
        Ok(())
    }
    fn finish(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

pub(super) fn run(args: &BenchArgs, suite: &[(String, String)]) -> Result<ExitCode> {
    super::super::run_args::nobody_to_ask(&args.model)?;
    let base = super::super::run_args::settings(&args.model, &args.decode, Baseline::Off)?;
    let settings = Settings { max_tokens: base.max_tokens.min(ANSWER_TOKENS), ..base };
    let source = super::super::engine::spawn(
        super::super::recipe::recipe(&args.model, &settings)?,
        settings,
        super::super::grammar::read(&args.grammar)?,
    )?;
    let options =
        TuiOptions { raw: args.decode.sample.raw, system: args.decode.sample.system.clone(), ..TuiOptions::default() };
    let watch = Watch::default();
    let mut consumers = FanOut::default();
    consumers.add(Box::new(watch.clone()));
    let mut stage = Offscreen::new(source, options, consumers, SIZE)?;
    stage.begin()?;
    let (_, warm_up) = suite.first().context("the suite holds no prompts")?;
    let mut answer = |prompt: &str, seen: bool| -> Result<(Span, u64)> {
        let before = stage.draws();
        let failure = if seen {
            stage.answer(prompt)?;
            stage.session().failure().map(str::to_owned)
        } else {
            stage.answer_unseen(prompt).failure().map(str::to_owned)
        };
        failure.map_or(Ok(()), |failure| bail!(failure))?;
        Ok((watch.0.get(), stage.draws() - before))
    };
    answer(warm_up, true)?;
    answer(warm_up, false)?;
    let (mut ratios, mut speeds, mut frames) = (Vec::new(), [Vec::new(), Vec::new()], Vec::new());
    let mut taskbar = Taskbar::default();
    for repeat in 0..args.repeat {
        for (index, (_, prompt)) in suite.iter().enumerate() {
            let mut pair = [0.0; 2];
            let first = (index + repeat as usize) % 2;
            for arm in [first, 1 - first] {
                let (span, draws) = answer(prompt, arm == 0)?;
                pair[arm] = span.speed()?;
                if arm == 0 {
                    frames.push(draws as f64 / span.us() as f64 * 1e6);
                }
            }
            ratios.push(pair[0] / pair[1]);
            speeds.iter_mut().zip(pair).for_each(|(all, speed)| all.push(speed));
        }
        taskbar.at(u64::from(repeat) + 1, args.repeat.into());
        eprintln!("draftscope: screen, repeat {} of {}", repeat + 1, args.repeat);
    }
    report(ratios, speeds, frames)
}

fn report(ratios: Vec<f64>, speeds: [Vec<f64>; 2], frames: Vec<f64>) -> Result<ExitCode> {
    let of = |values: Vec<f64>| Quantiles::of(values.into_iter()).context("nothing was measured; please report this");
    let ([seen, unseen], frames, ratio) = (speeds.map(of), of(frames)?, of(ratios)?);
    super::super::output::print(format_args!(
        "without the screen  {:.1} tokens/s, median over answers\n\
         with the screen     {:.1} tokens/s, {:.0} frames/s of {} × {}\n\
         with ÷ without      {:.3} ({:.3}–{:.3}); at least {LEAST} is asked",
        unseen?.median, seen?.median, frames.median, SIZE.0, SIZE.1, ratio.median, ratio.p10, ratio.p90
    ))?;
    Ok(if ratio.median < LEAST { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}
