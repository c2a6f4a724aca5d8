//! The race at the best k, with which the prediction is compared.
//!
//! Invariant: the costs of a prediction are measured next to the predicted answer. On a shared machine the time of a
//! pass changes within seconds, so passes are timed before and after every prompt of the race, at the number of cached
//! positions that its answer has in the middle, and each prompt is predicted from its own costs. The race itself gives the
//! number of rounds with each number of drafts, and the time outside passes.

use std::time::{Duration, Instant};

use anyhow::Result;
use draftscope::cli::ExplainArgs;
use draftscope::engine::measure::{CostCurve, PassTimer, Timing};
use draftscope::headless::{Driver, Outcome, Spread};
use draftscope::model::ModelError;
use draftscope::model::options::LoadOptions;
use draftscope::protocol::{Costs, Lane, Settings};
use draftscope::session::{Figure, LaneStats, Speedup, Turn, at_least_one_row};
use serde::Serialize;

use super::super::suite::Openings;

/// Timing turns before a prompt, and again after it, each following one warm-up turn. A turn times every width once.
const TURNS: usize = 8;

/// Time limit of these turns, except the first two: a slow model needs fewer.
const ENOUGH: Duration = Duration::from_millis(300);

/// A race at one k over the suite.
#[derive(Serialize)]
pub(super) struct Measured {
    pub(super) draft_len: u8,
    pub(super) prompts: usize,
    pub(super) plain_tokens_per_second: Option<f64>,
    pub(super) speculative_tokens_per_second: Option<f64>,
    /// Speculative ÷ plain tokens per second over all prompts, measured next to each other.
    #[serde(flatten)]
    pub(super) figure: Figure,
    #[serde(skip)]
    pub(super) speedup: Option<Speedup>,
    /// The same per prompt.
    pub(super) speedup_by_prompt: Option<Spread>,
    pub(super) tokens_per_round: Option<f64>,
    /// The speedup computed for this k from the acceptance in this race, the times of passes and drafts, and the time
    /// outside of them.
    pub(super) predicted_speedup: Option<f64>,
    /// The plain speed in this prediction, in tokens per second.
    pub(super) predicted_plain_tokens_per_second: Option<f64>,
    /// Whether passes were timed in turns with the race; if not, they were timed before it.
    pub(super) timed_in_turns: bool,
    /// Where the time of a round went, in microseconds.
    pub(super) waterfall: Waterfall,
    /// Time outside model passes ÷ time of rounds.
    pub(super) overhead_share: f64,
    /// Prompts whose plain and speculative answers were the same.
    pub(super) identical: usize,
}

/// Where the mean round's time went, in microseconds.
#[derive(Serialize)]
pub(super) struct Waterfall {
    /// One row, as the plain lane measured it.
    pub(super) first_row: f64,
    /// Time that the other rows of the pass added.
    pub(super) more_rows: f64,
    pub(super) drafts: f64,
    /// Sampling, verdict, rollback, events.
    pub(super) overhead: f64,
    /// The whole round.
    pub(super) round: f64,
    /// The round ÷ its tokens.
    pub(super) per_token: f64,
    /// A plain token.
    pub(super) plain_token: f64,
}

/// Times passes before and after every prompt.
struct InTurns {
    timer: PassTimer,
    draft_len: usize,
}

/// Times of passes and drafts before and after one prompt.
#[derive(Default)]
struct Taken {
    passes: Vec<Vec<Duration>>, // by number of rows, from 1
    chains: Vec<Duration>,      // of k drafts each
}

impl InTurns {
    /// Loads the models a second time; none, with a warning, if they do not fit into memory beside the engine's.
    fn new(recipe: &LoadOptions, draft_len: usize) -> Option<Self> {
        let warn = |error: &ModelError| {
            super::super::output::say(&format!(
                "passes cannot be timed in turns with the race, so the prediction uses those timed before it: {error}"
            ));
        };
        let timer = PassTimer::load(recipe).inspect_err(warn).ok()?;
        Some(Self { timer, draft_len })
    }

    /// Fills the cache with this many positions.
    fn go_to(&mut self, ctx: usize) -> Result<(), ModelError> {
        self.timer.fill(ctx.min(self.timer.longest())).map(drop)
    }

    /// Adds the times of some turns.
    fn time(&mut self, taken: &mut Taken) -> Result<(), ModelError> {
        let begun = Instant::now();
        taken.passes.resize(self.draft_len + 1, Vec::new());
        for turn in 0..=TURNS {
            if turn > 1 && begun.elapsed() > ENOUGH {
                break;
            }
            for rows in 1..=self.draft_len + 1 {
                // as in a round: drafts, then the pass that verifies them
                let chain = if rows > 1 { self.timer.chain(self.draft_len)? } else { None };
                let pass = self.timer.pass(rows)?;
                if turn > 0 {
                    taken.passes[rows - 1].push(pass);
                    taken.chains.extend(chain);
                }
            }
        }
        Ok(())
    }
}

/// Predicted microseconds of plain and speculative decoding over some prompts, with the time outside passes.
#[derive(Default)]
struct Predicted {
    plain_us: f64,
    fast_us: f64,
}

impl Predicted {
    /// Adds a prompt with these costs; none if they lack a number of rows that its rounds had.
    fn add(&mut self, costs: &Costs, plain: &LaneStats, fast: &LaneStats) -> Option<()> {
        let with_drafts = |least: usize| match least {
            0 => fast.rounds(),
            _ => fast.offered_per_pos().get(least - 1).copied().unwrap_or(0),
        };
        let rounds = |drafts: usize| (with_drafts(drafts) - with_drafts(drafts + 1)) as f64;
        let us = (0..=fast.offered_per_pos().len()).map(|drafts| Some(rounds(drafts) * costs.round_us(drafts)?));
        self.fast_us += us.sum::<Option<f64>>()? + fast.other_us() as f64;
        self.plain_us += plain.rounds() as f64 * costs.round_us(0)? + plain.other_us() as f64;
        Some(())
    }
}

/// Races plain decoding at the settings' k over the suite; `probed` has its answers in the probe run.
pub(super) fn race(
    recipe: &LoadOptions,
    settings: Settings,
    args: &ExplainArgs,
    suite: &Openings,
    (cost, probed): (&CostCurve, &[(String, Turn)]),
) -> Result<Measured> {
    let k = usize::from(settings.draft_len);
    let mut driver = Driver::new(super::super::engine::spawn(recipe.clone(), settings, None)?);
    super::asking::ask(&mut driver, args, &suite[0].1)?; // warm-up; after it the engine has allocated its memory
    let mut in_turns = InTurns::new(recipe, k);
    let mut taken = Vec::new();
    for ((_, text), (_, turn)) in suite.iter().zip(probed) {
        let answer = turn.answer(Lane::Speculative);
        let middle = answer.prompt.len() + answer.tokens.len() / 2;
        let mut around = Taken::default();
        in_turns.as_mut().map_or(Ok(()), |in_turns| in_turns.go_to(middle))?;
        let mut time = || in_turns.as_mut().map_or(Ok(()), |in_turns| in_turns.time(&mut around));
        time()?;
        super::asking::ask(&mut driver, args, text)?;
        time()?;
        taken.push(around);
    }
    super::super::output::report_notices(&driver, &Outcome::Answered);
    let turns = &driver.session().turns()[1..];
    let mut predicted = Some(Predicted::default());
    for (turn, taken) in turns.iter().zip(&taken) {
        let [plain, fast] = [Lane::Plain, Lane::Speculative].map(|lane| turn.answer(lane).stats());
        let costs = costs(in_turns.is_some().then_some(taken), cost, (k, fast));
        predicted = predicted.and_then(|mut sum| sum.add(&costs, plain, fast).map(|()| sum));
    }
    Ok(measured(settings.draft_len, turns, predicted.as_ref(), in_turns.is_some()))
}

/// The costs around one prompt. For drafters without a module, those of their own rounds.
fn costs(taken: Option<&Taken>, cost: &CostCurve, (k, fast): (usize, &LaneStats)) -> Costs {
    let own = fast.draft_us() as f64 / fast.drafted().max(1) as f64;
    let chain_us = taken.map(|taken| Timing::of(taken.chains.clone()).median_us);
    let drafting = cost.drafting_us().map(|(each, pass)| match chain_us {
        Some(us) if cost.draft_one.is_some() => (each, (us - k.clamp(1, cost.drafts_of_a_pass) as f64 * each).max(0.0)),
        Some(us) => (us / k.max(1) as f64, 0.0),
        None => (each, pass),
    });
    let (draft_us, draft_pass_us) = drafting.unwrap_or((own, 0.0));
    Costs {
        verify_us: match taken {
            Some(taken) => {
                let medians = taken.passes.iter().map(|times| Timing::of(times.clone()).median_us).collect();
                if super::asking::is_native(cost) { at_least_one_row(medians) } else { medians }
            }
            None => super::asking::verify_us(cost),
        },
        draft_us,
        draft_pass_us,
        settle_us: 0.0,
        overhead_us: 0.0,
    }
}

fn measured(draft_len: u8, turns: &[Turn], predicted: Option<&Predicted>, timed_in_turns: bool) -> Measured {
    let [plain, fast] = [Lane::Plain, Lane::Speculative].map(|lane| super::points::total(turns.iter(), lane));
    let own_us = |turn: &Turn| turn.answer(Lane::Speculative).stats().decode_us();
    let speedup = Speedup::over_turns(turns.iter().filter_map(|turn| Some((turn.speedup()?, own_us(turn)))));
    let fast_speed = fast.tokens_per_second();
    let plain_speed = match speedup {
        Some(speedup) => fast_speed.map(|speed| speed / speedup.value),
        None => plain.tokens_per_second(),
    };
    let speed = |stats: &LaneStats, us: f64| (us > 0.0).then(|| stats.committed() as f64 * 1e6 / us);
    let plain_predicted = predicted.and_then(|sum| speed(&plain, sum.plain_us));
    let fast_predicted = predicted.and_then(|sum| speed(&fast, sum.fast_us));
    let same = |turn: &&Turn| turn.agreement().is_some_and(|a| a.divergence.is_none());
    Measured {
        draft_len,
        prompts: turns.len(),
        plain_tokens_per_second: plain_speed,
        speculative_tokens_per_second: fast_speed,
        figure: speedup.into(),
        speedup,
        speedup_by_prompt: Spread::of(turns.iter().filter_map(|turn| Some(turn.speedup()?.value)).collect()),
        tokens_per_round: fast.mean_tokens_per_round(),
        predicted_speedup: fast_predicted.zip(plain_predicted).map(|(fast, plain)| fast / plain),
        predicted_plain_tokens_per_second: plain_predicted,
        timed_in_turns,
        waterfall: waterfall(turns, (&plain, &fast), speedup),
        overhead_share: fast.other_us() as f64 / fast.decode_us().max(1) as f64,
        identical: turns.iter().filter(same).count(),
    }
}

/// Where a turn measured what its passes cost, their first row is what they took ÷ T(m) in rows; else it is the plain
/// lane's mean.
fn waterfall(turns: &[Turn], (plain, fast): (&LaneStats, &LaneStats), speedup: Option<Speedup>) -> Waterfall {
    let mean = |us: u64, stats: &LaneStats| us as f64 / stats.rounds().max(1) as f64;
    let first_rows: Option<f64> = turns.iter().map(first_rows_us).sum();
    let first_row = first_rows.map_or(mean(plain.verify_us(), plain), |us| us / fast.rounds().max(1) as f64);
    let round = mean(fast.decode_us(), fast);
    let per_token = fast.decode_us() as f64 / fast.committed().max(1) as f64;
    Waterfall {
        first_row,
        more_rows: mean(fast.verify_us(), fast) - first_row,
        drafts: mean(fast.draft_us(), fast),
        overhead: mean(fast.other_us(), fast),
        round,
        per_token,
        plain_token: match speedup {
            Some(speedup) => per_token * speedup.value,
            None => plain.decode_us() as f64 / plain.committed().max(1) as f64,
        },
    }
}

/// What one row would have taken in all passes of a turn's own rounds, at their moments.
fn first_rows_us(turn: &Turn) -> Option<f64> {
    let costs = turn.pass_costs()?;
    let rounds = turn.answer(Lane::Speculative).rounds.iter().filter(|round| round.is_complete());
    rounds.map(|round| Some(round.verify_us() as f64 / costs.rows(round.rows().len())?.ratio)).sum()
}
