//! Measures the costs of a round's parts before the first answer, within a few seconds.
//!
//! Every turn times all widths one after the other, so that a change of the machine's speed affects all of them. The
//! first turn is a warm-up and is dropped. While nothing is committed, whole rounds are timed: a pass after drafts
//! finds less of its weights in a cache than a pass after another pass, so this is its cost in use. Widths that no
//! round reached are timed as single passes on a copy of the target, and so are all widths once an answer has begun.
//! Invariant: target and drafter are unchanged afterwards.

use std::hint::black_box;
use std::time::{Duration, Instant};

use super::Decoder;
use super::measured_costs::{MeasuredCosts, TIMED_ROWS};
use crate::speculate::SpecError;
use crate::speculate::report::prediction;
use draftscope_model::{Checkpoint, Model};
use draftscope_protocol::policy::rising;
use draftscope_protocol::statistics::{median, quantiles};
use draftscope_protocol::{Costs, Drafted, Drafting, EventKind, Scored, Settings, TokenId};
/// Tokens of the prompt for the measurement, when nothing is committed.
const PROMPT: usize = 96;
/// Most turns; slow machines run out of time first.
const TURNS: usize = 18;
/// Step sizes that visit all widths, for another order in each turn: the cost of a pass depends on the pass before it.
const STEPS: [usize; 6] = [1, 2, 4, 5, 7, 8];
/// Rounds without drafts in a row; the first follows drafts and is not timed.
const PLAIN_RUN: usize = 3;
/// Plain rounds before timing how long the drafter needs to catch up.
const PLAIN: usize = 16;
/// Cost of a draft relative to one row, if it could not be timed.
const DRAFT_GUESS: f64 = 0.1;

/// A machine is steady if the upper quartile of its plain passes takes at most this many times the lower quartile.
const STEADY: f64 = 1.5;

/// Times of one round, in microseconds.
#[derive(Default)]
struct RoundTimes {
    rows: usize,
    verify: f64,
    drafts: u32,
    draft: f64,
    first_draft: f64,
    /// Whether one pass made the drafts.
    one_pass: bool,
    /// Whether some of them were copied, which costs no pass, and others were not.
    is_mixed: bool,
    round: f64,
}

impl RoundTimes {
    /// Time of one draft, and of the pass that made all of them; 0 for drafts with a pass each.
    fn drafting(&self) -> (f64, f64) {
        let drafts = f64::from(self.drafts.max(1));
        if self.one_pass && self.drafts > 1 {
            let each = (self.draft - self.first_draft) / (drafts - 1.0);
            return (each, (self.first_draft - each).max(0.0));
        }
        (self.draft / drafts, 0.0)
    }
}

/// Times of all turns, in microseconds.
#[derive(Default)]
struct Times {
    verify: [Vec<f64>; TIMED_ROWS],
    draft: Vec<f64>,
    draft_pass: Vec<f64>,
    overhead: Vec<f64>,
    settle: f64,
}

impl Decoder {
    /// Measures the costs of passes, drafts and the work around them on this machine. Stops after `limit`, but makes at
    /// least one turn.
    ///
    /// # Errors
    /// When the target cannot be run.
    pub fn measure_costs(&mut self, limit: Duration) -> Result<MeasuredCosts, SpecError> {
        let (is_new, settings) = (self.committed.is_empty(), self.settings);
        let grammar = self.grammar.take(); // the text of a measurement matches none
        let times = self.time_all(is_new, Instant::now() + limit);
        self.grammar = grammar;
        if is_new {
            self.reset(&settings)?; // also if the timing failed
        }
        Ok(times?.measured())
    }

    fn time_all(&mut self, is_new: bool, until: Instant) -> Result<Times, SpecError> {
        let vocab = self.target.spec().info.vocab;
        let tokens: Vec<TokenId> =
            (0..PROMPT.max(TIMED_ROWS)).map(|i| TokenId((i as u32 * 7919 + 13) % vocab)).collect();
        if is_new {
            self.prefill(0, &tokens[..PROMPT.min(self.target.spec().ctx_len / 4).max(1)])?;
        }
        let mut target = self.target.fork()?;
        let mut times = Times::default();
        for turn in 0..TURNS {
            if turn > 0 && Instant::now() >= until {
                break;
            }
            let reached = if is_new { self.time_rounds(turn, &mut times)? } else { [false; TIMED_ROWS] };
            self.time_passes(target.as_mut(), &tokens, &reached, &mut times)?;
            if turn == 0 && Instant::now() < until {
                times = Times::default(); // a warm-up, if there is time for another turn
            }
        }
        if is_new {
            times.settle = self.time_settling(times.one_draft(), until)?;
        }
        Ok(times)
    }

    /// Times a round of each k. Returns which widths were reached.
    fn time_rounds(&mut self, turn: usize, times: &mut Times) -> Result<[bool; TIMED_ROWS], SpecError> {
        let mut reached = [false; TIMED_ROWS];
        for index in 0..TIMED_ROWS {
            let draft_len = (index * STEPS[turn % STEPS.len()] + turn) % TIMED_ROWS;
            for run in 0..if draft_len == 0 { PLAIN_RUN } else { 1 } {
                let took = self.time_round(draft_len as u8)?;
                if took.rows != draft_len + 1 || took.is_mixed || (draft_len == 0 && run == 0) {
                    continue;
                }
                reached[draft_len] = true;
                times.verify[draft_len].push(took.verify);
                times.overhead.push(took.round - took.verify - took.draft);
                // a single draft after plain rounds would include the drafter's catching up
                if draft_len > 1 {
                    let (each, pass) = took.drafting();
                    times.draft.push(each);
                    times.draft_pass.push(pass);
                }
            }
        }
        Ok(reached)
    }

    fn time_passes(
        &mut self,
        target: &mut dyn Model,
        tokens: &[TokenId],
        reached: &[bool; TIMED_ROWS],
        times: &mut Times,
    ) -> Result<(), SpecError> {
        let since = target.checkpoint()?;
        let widest = TIMED_ROWS.min(target.spec().ctx_len.saturating_sub(since.len));
        for rows in (1..=widest).filter(|rows| !reached[rows - 1]) {
            let started = Instant::now();
            let out = black_box(target.forward(&tokens[..rows], self.logit_rows())?);
            times.verify[rows - 1].push(micros(started));
            let started = Instant::now();
            let (target_rows, _) = self.distributions(&[], &out, since.len)?;
            black_box(target_rows.iter().map(prediction).collect::<Vec<_>>());
            target.truncate(since.len, &since)?;
            times.overhead.push(micros(started));
        }
        Ok(())
    }

    /// Times a round of `draft_len` drafts, without p-min. All times are 0 if the context has no room.
    fn time_round(&mut self, draft_len: u8) -> Result<RoundTimes, SpecError> {
        let mut took = RoundTimes::default();
        if !self.has_room() {
            return Ok(took);
        }
        let drafting = Drafting { p_min: 0.0, ..self.settings.drafting };
        self.settings = Settings { draft_len, probe_depth: 0, drafting, ..self.settings };
        let mut notices = Vec::new();
        let is_stacked = self.settings.drafter.stacks_copies();
        let before = self.clock;
        self.round(&mut |event| {
            match event {
                EventKind::Drafted(Drafted { more, copied, took_us, .. }) => {
                    took.is_mixed |= is_stacked && copied.is_some();
                    if took.drafts == 0 {
                        took.first_draft = took_us as f64;
                    }
                    took.drafts += 1;
                    took.draft += took_us as f64;
                    took.one_pass |= more;
                }
                EventKind::Scored(Scored { rows, verify_us, .. }) => {
                    (took.rows, took.verify) = (rows.len(), verify_us as f64);
                }
                EventKind::Notice { message } => notices.push(message),
                _ => {}
            }
            Duration::ZERO
        })?;
        took.round = self.clock.saturating_sub(before).as_secs_f64() * 1e6;
        self.notices.extend(notices); // sent after the measurement
        Ok(took)
    }

    /// Time, in microseconds, that the drafter needs to catch up on one token; `usual` is the time of a round's only draft.
    fn time_settling(&mut self, usual: Option<f64>, until: Instant) -> Result<f64, SpecError> {
        let mut rounds = 0;
        while rounds < PLAIN && self.has_room() && (rounds < 2 || Instant::now() < until) {
            self.time_round(0)?;
            rounds += 1;
        }
        let late = self.time_round(1)?;
        let Some(usual) = usual.filter(|_| late.drafts > 0 && !late.is_mixed) else {
            return Ok(0.0);
        };
        Ok((late.draft - usual).max(0.0) / rounds.max(1) as f64)
    }

    /// Removes the measurement's prompt and rounds.
    fn reset(&mut self, settings: &Settings) -> Result<(), SpecError> {
        self.settings = *settings;
        self.target.truncate(0, &Checkpoint { len: 0 })?;
        self.drafter.rewind(0)?;
        self.committed.clear();
        self.round = 0;
        self.clock = Duration::ZERO;
        Ok(())
    }
}

impl Times {
    /// Time of a round's only draft: with its pass.
    fn one_draft(&self) -> Option<f64> {
        Some(median(self.draft.clone())? + median(self.draft_pass.clone())?)
    }

    /// Medians rather than minima: wide passes suffer more from other programs than narrow ones, in rounds as here.
    fn measured(self) -> MeasuredCosts {
        let is_steady = is_steady(&self.verify[0]);
        let verify_us: Vec<f64> = self.verify.into_iter().map_while(median).collect();
        let plain = verify_us.first().copied().unwrap_or_default();
        let costs = Costs {
            draft_us: median(self.draft).unwrap_or(plain * DRAFT_GUESS),
            draft_pass_us: median(self.draft_pass).unwrap_or_default(),
            settle_us: self.settle,
            overhead_us: median(self.overhead).unwrap_or_default(),
            verify_us: rising(verify_us),
        };
        MeasuredCosts { costs, is_steady }
    }
}

fn micros(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1e6
}

fn is_steady(times: &[f64]) -> bool {
    let quarters = quantiles(times.to_vec(), [0.25, 0.75]);
    times.len() > 4 && quarters.is_some_and(|[low, high]| high <= low * STEADY)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pass_of_a_block_is_timed_apart_from_its_tokens() {
        let block = RoundTimes { drafts: 4, draft: 430.0, first_draft: 400.0, one_pass: true, ..RoundTimes::default() };
        assert_eq!(block.drafting(), (10.0, 390.0));
        assert_eq!(RoundTimes { one_pass: false, ..block }.drafting(), (107.5, 0.0));
        let mut times = Times::default();
        times.verify[0] = vec![1000.0];
        assert_eq!(times.one_draft(), None);
        (times.draft, times.draft_pass) = (vec![10.0, 12.0, 11.0], vec![390.0, 380.0, 900.0]);
        assert_eq!(times.one_draft(), Some(401.0));
        let costs = times.measured().costs;
        assert_eq!((costs.draft_us, costs.draft_pass_us, costs.drafting_us(4)), (11.0, 390.0, 434.0));
    }
}
