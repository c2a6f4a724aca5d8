//! `draftscope explain`: explains the speed with measurements on this machine.
//!
//! It times passes alone (the cost curve). One probe run over a suite of prompts records the drafter's proposals at every
//! position; from these, every k, p-min and the automatic choice are simulated. A race at the best k, which times passes
//! again, then checks the prediction.

mod ignored_options;
mod measured;
mod race;
mod text;
mod tree;

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::{Context, Result, anyhow, bail};
use draftscope::cli::{ExplainArgs, ReportArg};
use draftscope::engine::measure::{self, CostCurve};
use draftscope::headless::{Described, Driver, Outcome};
use draftscope::model::ModelError;
use draftscope::model::options::LoadOptions;
use draftscope::protocol::{
    Baseline, Costs, DraftLenMode, DrafterKind, Drafting, Header, Lane, Prompt, Settings, VerifyRule,
};
use draftscope::session::account::{Account, Worth, acceptance};
use draftscope::session::classes::{ClassTally, by_class};
use draftscope::session::probe::{ProbeRun, RankTally, Simulated, automatic};
use draftscope::session::{LaneStats, Turn, at_least_one_row, has_ceiling};
use serde::Serialize;

use super::run_args::ANSWER_TOKENS;
use super::suite::{Openings, openings, suite};
use measured::Measured;
use tree::{Tree, per_draft};

/// Depth of the probe run's chains, and the longest k that is simulated.
const LONGEST: u8 = 8;

/// Values of p-min that are simulated at the best k.
const P_MINS: [f32; 6] = [0.0, 0.1, 0.2, 0.3, 0.5, 0.7];

/// Why nothing is predicted under a grammar.
const NO_GRAMMAR: &str = "explain predicts from drafts that each cost a pass of the drafter, and tokens that a grammar forces cost \
                          none; race draft lengths under it with --race, or run bench";

/// All measurements and their results.
#[derive(Serialize)]
struct Report {
    cost: CostCurve,
    /// Why nothing is predicted from these times; none if they are possible.
    #[serde(skip_serializing_if = "Option::is_none")]
    disturbed: Option<String>,
    /// The formulas with measured costs and the acceptance of the probe run.
    account: Account,
    /// Every k, simulated from the probe run.
    simulated: Vec<Point>,
    /// The automatic choice of k, simulated round by round.
    automatic: Point,
    /// The best k with each value of p-min.
    p_min: Vec<Confidence>,
    /// How often the drafter's candidates contained the target's choice, by depth.
    ranks: Vec<RankTally>,
    /// First drafts by class of the target's token.
    by_class: Vec<ClassTally>,
    by_category: BTreeMap<String, InCategory>,
    /// A tree of drafts, simulated; none if none was requested.
    tree: Option<Tree>,
    measured: Option<Measured>,
}

/// One k over the whole suite.
#[derive(Serialize)]
struct Point {
    /// k; none for the automatic choice.
    draft_len: Option<usize>,
    tokens_per_round: Option<f64>,
    tokens_per_second: Option<f64>,
    /// Speed ÷ that of k = 0 with the same costs.
    speedup: Option<f64>,
    counts: Simulated,
}

/// The best k, with drafts that end where q is below `p_min`.
#[derive(Serialize)]
struct Confidence {
    p_min: f32,
    drafted: u64,
    accepted: u64,
    tokens_per_second: Option<f64>,
}

/// One category of the suite.
#[derive(Serialize)]
struct InCategory {
    /// First drafts that equal the target's choice ÷ positions.
    first_draft: Option<f64>,
    /// The k with the most tokens per second with the measured costs.
    best_draft_len: Option<usize>,
    tokens_per_round: Option<f64>,
    speedup: Option<f64>,
}

pub(crate) fn run(args: &ExplainArgs) -> Result<ExitCode> {
    super::run_args::nobody_to_ask(&args.model)?;
    if args.model.drafter == DrafterKind::None.name() {
        bail!("there is nothing to explain without a drafter; leave out --drafter none");
    }
    if args.decode.sample.temperature > 0.0 {
        bail!("explain needs greedy decoding; leave out --temperature");
    }
    let grammar = super::grammar::read(&args.grammar)?;
    if grammar.is_some() && args.race.is_none() {
        bail!(NO_GRAMMAR);
    }
    let suite = openings(&suite(args.suite.as_deref())?);
    let settings = settings(args)?;
    let recipe = super::recipe::recipe(&args.model, &settings)?;
    super::run_args::report_short_answers(&args.decode);
    ignored_options::ignored(args).iter().for_each(|warning| super::output::say(warning));
    if let Some(choices) = &args.race {
        return race::run(args, choices, (recipe, settings, grammar), &suite);
    }
    let wanted = tree::settings(args, &settings)?;
    super::output::say("timing passes");
    let cost =
        measure::measure(&recipe, args.at as usize, args.turns as usize).map_err(|error| no_room(args, error))?;
    if args.costs_only {
        return write(args.output, &cost, text::cost);
    }
    super::output::say("probing: a chain of drafts at every position");
    let probe = Settings { probe_depth: LONGEST, draft_len: 0, ..settings };
    let (header, probed) = answer(&recipe, probe, args, &suite)?;
    // the curve times the MTP module; the costs of other drafters come from their own rounds
    let cost = CostCurve { draft: cost.draft.filter(|_| settings.drafter == DrafterKind::Mtp), ..cost };
    let mut report = report(cost, &probed)?;
    if let Some(tree) = wanted {
        super::output::say("probing: a tree of drafts at every position");
        report.tree = Some(tree::played(&tree, &answer(&recipe, tree, args, &suite)?.1, &report)?);
    }
    let k = if report.disturbed.is_some() { settings.draft_len } else { report.account.best as u8 };
    if k > 0 {
        super::output::say(&format!("racing plain decoding at k = {k}"));
        let race = Settings { draft_len: k, baseline: Baseline::Race, ..settings };
        report.measured = Some(measured::race(&recipe, race, args, &suite, (&report.cost, &probed))?);
    }
    write(args.output, &Described { header, figures: report }, |described| text::report(&described.figures))
}

fn no_room(args: &ExplainArgs, error: ModelError) -> anyhow::Error {
    match error {
        ModelError::ContextFull { needed, ctx_len } => anyhow!(
            "--at {} needs {needed} positions, those of the {} rows that are timed among them, and the cache holds {ctx_len}; \
             lower --at or start with a larger --ctx",
            args.at,
            measure::MAX_ROWS,
        ),
        other => other.into(),
    }
}

fn write<T: Serialize>(output: ReportArg, value: &T, as_text: fn(&T) -> String) -> Result<ExitCode> {
    match output {
        ReportArg::Text => io::stdout().lock().write_all(as_text(value).as_bytes())?,
        ReportArg::Summary => super::output::print_json(value)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// The settings that a probe run can simulate: greedy chains under the rule exact.
fn settings(args: &ExplainArgs) -> Result<Settings> {
    let base = super::run_args::settings(&args.model, &args.decode, Baseline::Off)?;
    Ok(Settings {
        max_tokens: base.max_tokens.min(ANSWER_TOKENS),
        draft_len_mode: DraftLenMode::Fixed,
        rule: VerifyRule::Exact,
        drafting: Drafting { tree: None, p_min: 0.0, ..base.drafting },
        ..base
    })
}

fn prompt(args: &ExplainArgs, text: &str) -> Prompt {
    if args.decode.sample.raw {
        Prompt::Raw(text.to_owned())
    } else {
        Prompt::Chat(super::run_args::conversation(&args.decode.sample, text.to_owned()))
    }
}

/// A run over the suite: its header, and category and turn of each prompt.
type Answered = (Option<Header>, Vec<(String, Turn)>);

/// Answers every prompt. One prompt runs first as warm-up.
fn answer(recipe: &LoadOptions, settings: Settings, args: &ExplainArgs, suite: &Openings) -> Result<Answered> {
    let mut driver = Driver::new(super::engine::spawn(recipe.clone(), settings, None)?);
    for (_, text) in suite.iter().take(1).chain(suite) {
        ask(&mut driver, args, text)?;
    }
    super::output::report_notices(&driver, &Outcome::Answered);
    let turns = driver.session().turns().iter().skip(1).cloned();
    let turns = suite.iter().map(|(category, _)| category.clone()).zip(turns).collect();
    Ok((driver.session().header().cloned(), turns))
}

fn ask(driver: &mut Driver, args: &ExplainArgs, text: &str) -> Result<()> {
    match driver.answer(prompt(args, text)) {
        Outcome::Failed(message) => bail!(message),
        Outcome::Answered | Outcome::Stopped => Ok(()),
    }
}

fn total<'a>(turns: impl Iterator<Item = &'a Turn>, lane: Lane) -> LaneStats {
    let mut sum = LaneStats::default();
    turns.for_each(|turn| sum.merge(turn.answer(lane).stats()));
    sum
}

/// Medians of the curve. Overhead is the time of the probe's plain rounds outside passes and chains. The time of a draft
/// is that of the curve or, for drafters without a module, that of the probe's chains.
fn costs(cost: &CostCurve, probed: &[(String, Turn)]) -> Costs {
    let answers = || probed.iter().map(|(_, turn)| turn.answer(Lane::Speculative));
    let rounds: usize = answers().map(|answer| answer.rounds.len()).sum();
    let outside: u64 = answers().flat_map(|a| &a.rounds).map(|r| r.sample_us() + r.rollback_us()).sum();
    let (draft_us, draft_pass_us) = cost.drafting_us().unwrap_or_else(|| (per_draft(probed), 0.0));
    Costs {
        verify_us: verify_us(cost),
        draft_us,
        draft_pass_us,
        settle_us: 0.0,
        overhead_us: outside as f64 / rounds.max(1) as f64,
    }
}

/// Medians of T(m), at least T(1) where less is impossible.
fn verify_us(cost: &CostCurve) -> Vec<f64> {
    let medians = cost.verify.iter().map(|timing| timing.median_us).collect();
    if is_native(cost) { at_least_one_row(medians) } else { medians }
}

/// Whether no pass over several rows can cost less than one over one row.
fn is_native(cost: &CostCurve) -> bool {
    cost.backend.split(' ').next().is_some_and(has_ceiling)
}

/// What is said instead of a prediction where a pass over several rows took less than one over one row by more than the
/// spread of both, though that is impossible.
fn disturbed(cost: &CostCurve) -> Option<String> {
    let one = cost.verify.first().filter(|_| is_native(cost))?;
    let below = cost.verify.iter().position(|timing| timing.p90_us < one.p10_us)?;
    Some(format!(
        "not known on this busy machine: a pass over {} rows took {:.2} of the time of one row, which is impossible, so \
         other work disturbed the times and nothing is predicted from them; pause that work and run explain again",
        below + 1,
        cost.verify[below].median_us / one.median_us,
    ))
}

impl Report {
    /// Leaves out what would be predicted from times that cannot be.
    fn without_predictions(mut self, why: String) -> Self {
        let points = self.simulated.iter_mut().chain([&mut self.automatic]);
        points.for_each(|point| (point.tokens_per_second, point.speedup) = (None, None));
        self.p_min.iter_mut().for_each(|stop| stop.tokens_per_second = None);
        self.by_category.values_mut().for_each(|of| (of.best_draft_len, of.speedup) = (None, None));
        self.account = Account { worths: Vec::new(), best: 0, limit: None, sentence: why.clone(), ..self.account };
        self.disturbed = Some(why);
        self
    }
}

fn recordings<'a>(turns: impl Iterator<Item = &'a Turn>) -> Result<Vec<ProbeRun>> {
    let recordings = turns.map(|turn| ProbeRun::of(turn.answer(Lane::Speculative)));
    recordings.collect::<Option<_>>().context("the probe run was cut short; please report this")
}

fn all(recordings: &[ProbeRun], play: impl Fn(&ProbeRun) -> Simulated) -> Simulated {
    let mut sum = Simulated::default();
    recordings.iter().for_each(|recording| sum.merge(&play(recording)));
    sum
}

/// Every k from 0 on, with these costs.
fn curve(recordings: &[ProbeRun], costs: &Costs) -> Vec<Point> {
    let plain = all(recordings, |r| r.fixed(0, 0.0)).tokens_per_second(costs);
    let counts = (0..=usize::from(LONGEST)).map(|k| (Some(k), all(recordings, |r| r.fixed(k, 0.0))));
    counts.map(|(k, counts)| point(k, counts, costs, plain)).collect()
}

fn point(draft_len: Option<usize>, counts: Simulated, costs: &Costs, plain: Option<f64>) -> Point {
    let speed = counts.tokens_per_second(costs);
    let speedup = speed.zip(plain).map(|(speed, plain)| speed / plain);
    Point { draft_len, tokens_per_round: counts.tokens_per_round(), tokens_per_second: speed, speedup, counts }
}

fn fastest(curve: &[Point]) -> Option<&Point> {
    let known = curve.iter().filter(|point| point.speedup.is_some());
    known.reduce(|best, point| if point.speedup > best.speedup { point } else { best })
}

fn report(cost: CostCurve, probed: &[(String, Turn)]) -> Result<Report> {
    let costs = costs(&cost, probed);
    let all_recordings = recordings(probed.iter().map(|(_, turn)| turn))?;
    let simulated = curve(&all_recordings, &costs);
    let best = fastest(&simulated[1..]).and_then(|point| point.draft_len).unwrap_or(1);
    // each k has its rounds at other positions, so the best k's acceptance counts, and after it the longest k's
    let mut reach = reached(&simulated[best].counts);
    reach.extend(reached(&simulated[usize::from(LONGEST)].counts).into_iter().skip(best));
    let account = Account::new(costs.clone(), acceptance(&reach));
    let account = match account.worth(best).copied().zip(simulated[best].tokens_per_round) {
        Some((worth, tokens_per_round)) => {
            let speedup = simulated[best].speedup.unwrap_or(worth.speedup);
            account.with_best(Worth { tokens_per_round, speedup, ..worth })
        }
        None => account,
    };
    let p_min = P_MINS.map(|p_min| {
        let counts = all(&all_recordings, |recording| recording.fixed(best, p_min));
        let tokens_per_second = counts.tokens_per_second(&costs);
        Confidence { p_min, drafted: counts.drafted, accepted: counts.accepted, tokens_per_second }
    });
    let plain = simulated[0].tokens_per_second;
    let why = disturbed(&cost);
    let report = Report {
        automatic: point(None, automatic(&all_recordings, &costs), &costs, plain),
        p_min: p_min.into(),
        ranks: ranks(&all_recordings),
        by_class: by_class(probed.iter().map(|(_, turn)| turn.answer(Lane::Speculative))),
        by_category: by_category(probed, &costs)?,
        account,
        simulated,
        cost,
        tree: None,
        measured: None,
        disturbed: None,
    };
    Ok(match why {
        Some(why) => report.without_predictions(why),
        None => report,
    })
}

/// The share of rounds in which the draft at each position was accepted, rounds without that draft included.
fn reached(counts: &Simulated) -> Vec<f64> {
    counts.accepted_per_pos.iter().map(|accepted| *accepted as f64 / counts.rounds.max(1) as f64).collect()
}

fn ranks(recordings: &[ProbeRun]) -> Vec<RankTally> {
    let mut sum = vec![RankTally::default(); LONGEST.into()];
    for recording in recordings {
        for (sum, part) in sum.iter_mut().zip(recording.ranks()) {
            sum.reached += part.reached;
            sum.by_rank.iter_mut().zip(part.by_rank).for_each(|(sum, part)| *sum += part);
        }
    }
    sum
}

fn by_category(probed: &[(String, Turn)], costs: &Costs) -> Result<BTreeMap<String, InCategory>> {
    let mut turns: BTreeMap<&String, Vec<&Turn>> = BTreeMap::new();
    probed.iter().for_each(|(category, turn)| turns.entry(category).or_default().push(turn));
    let one = |(category, turns): (&String, Vec<&Turn>)| {
        let recordings = recordings(turns.into_iter())?;
        let curve = curve(&recordings, costs);
        let best = fastest(&curve);
        let first = ranks(&recordings);
        let first_draft = first.first().filter(|tally| tally.reached > 0);
        let first_draft = first_draft.map(|tally| tally.by_rank[0] as f64 / tally.reached as f64);
        let tokens_per_round = best.and_then(|best| best.tokens_per_round);
        let in_category = InCategory {
            first_draft,
            best_draft_len: best.and_then(|best| best.draft_len),
            tokens_per_round,
            speedup: best.and_then(|best| best.speedup),
        };
        Ok((category.clone(), in_category))
    };
    turns.into_iter().map(one).collect()
}
