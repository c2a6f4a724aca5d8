//! `draftscope explain`: explains the speed with measurements on this machine.
//!
//! It times passes alone (the cost curve). One probe run over a suite of prompts records the drafter's proposals at every
//! position; from these, every k, p-min and the automatic choice are simulated. A race at the best k, which times passes
//! again, then checks the prediction.

mod asking;
mod ignored_options;
mod measured;
mod points;
mod race;
mod report;
mod text;
mod tree;

use std::collections::BTreeMap;
use std::process::ExitCode;

use anyhow::{Result, anyhow, bail};
use draftscope::cli::ExplainArgs;
use draftscope::engine::measure::{self, CostCurve};
use draftscope::headless::Described;
use draftscope::model::ModelError;
use draftscope::protocol::{Baseline, Costs, DraftLenMode, DrafterKind, Drafting, Lane, Settings, VerifyRule};
use draftscope::session::Turn;
use draftscope::session::account::{Account, Worth, acceptance};
use draftscope::session::classes::by_class;
use draftscope::session::probe::{ProbeRun, RankTally, Simulated, automatic};

use super::run_args::ANSWER_TOKENS;
use super::suite::{openings, suite};
use asking::{answer, is_native, verify_us, write};
use points::{LONGEST, all, curve, fastest, point, recordings};
use report::{Confidence, InCategory, Report};
use tree::per_draft;

/// Values of p-min that are simulated at the best k.
const P_MINS: [f32; 6] = [0.0, 0.1, 0.2, 0.3, 0.5, 0.7];

/// Why nothing is predicted under a grammar.
const NO_GRAMMAR: &str = "explain predicts from drafts that each cost a pass of the drafter, and tokens that a grammar forces cost \
                          none; race draft lengths under it with --race, or run bench";

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
