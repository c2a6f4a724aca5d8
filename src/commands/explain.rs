//! `draftscope explain`: the account of speed, measured on this machine.
//!
//! Passes are timed alone (the cost curve), acceptance comes from running a suite of prompts at the
//! longest draft, and the prediction for every k is held against a real race at the best one.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use draftscope::cli::{ExplainArgs, OutputArg};
use draftscope::engine::measure::{self, CostCurve};
use draftscope::headless::{Driver, Outcome, Spread};
use draftscope::model::load::Recipe;
use draftscope::protocol::{Baseline, DrafterKind, Lane, Prompt, Settings};
use draftscope::session::account::{self, Costs, Worth};
use draftscope::session::{LaneStats, Turn};
use serde::{Deserialize, Serialize};

/// Draft length at which acceptance is measured, and the longest that is predicted.
const LONGEST: u8 = 8;

/// Longest answer to a prompt of the suite.
const ANSWER_TOKENS: u32 = 128;

/// Prompts by category.
#[derive(Deserialize)]
struct Category {
    prompts: Vec<String>,
}

/// Everything that was measured, and what follows from it.
#[derive(Serialize)]
struct Report {
    cost: CostCurve,
    /// Share of rounds in which the draft at each position was accepted.
    accepted_by_position: Vec<f64>,
    /// Tokens per round at the longest draft, by category.
    tokens_per_round_by_category: BTreeMap<String, f64>,
    costs: Costs,
    predicted: Vec<Worth>,
    measured: Option<Measured>,
    sentence: String,
}

/// A race at one k over the suite.
#[derive(Serialize)]
struct Measured {
    draft_len: u8,
    prompts: usize,
    plain_tokens_per_second: Option<f64>,
    speculative_tokens_per_second: Option<f64>,
    /// Tokens per second of all prompts together, speculative ÷ plain.
    speedup: Option<f64>,
    /// The same per prompt.
    speedup_by_prompt: Option<Spread>,
    tokens_per_round: Option<f64>,
    /// What the account says for this k from the acceptance of this very race.
    predicted_speedup: Option<f64>,
    /// Time outside model passes ÷ time of rounds.
    overhead_share: f64,
    /// Prompts whose plain and speculative answers were the same.
    identical: usize,
}

pub(crate) fn run(args: &ExplainArgs) -> Result<ExitCode> {
    if args.model.drafter == DrafterKind::None.name() {
        bail!("there is nothing to explain without a drafter; leave out --drafter none");
    }
    super::nobody_to_ask(&args.model)?;
    let suite = suite(args.suite.as_deref())?;
    let recipe = super::recipe(&args.model)?;
    let say = |what: &str| eprintln!("draftscope: {what}");
    say("timing passes");
    let cost = measure::measure(&recipe, args.at as usize, args.turns as usize)?;
    if args.costs_only {
        match args.output {
            OutputArg::Text => io::stdout().lock().write_all(cost_text(&cost).as_bytes())?,
            OutputArg::Summary | OutputArg::Jsonl => super::run::print_json(&cost)?,
        }
        return Ok(ExitCode::SUCCESS);
    }
    let base = super::settings(&args.model, &args.decode, Baseline::Off)?;
    let settings = Settings { max_tokens: base.max_tokens.min(ANSWER_TOKENS), ..base };
    say("measuring acceptance");
    let longest = Settings { draft_len: LONGEST, ..settings };
    let tried = answer(&recipe, longest, args, &suite)?;
    let stats = total(tried.iter().map(|(_, turn)| turn), Lane::Speculative);
    let reach = account::reach(&stats);
    let costs = costs(&cost, &stats)?;
    let predicted = account::worths(&costs, &reach);
    let best = predicted.iter().max_by(|a, b| a.speedup.total_cmp(&b.speedup)).map(|w| w.draft_len as u8);
    let measured = match best {
        Some(k) => {
            say(&format!("racing plain decoding at k = {k}"));
            let race = Settings { draft_len: k, baseline: Baseline::Race, ..settings };
            Some(raced(k, &answer(&recipe, race, args, &suite)?, &cost)?)
        }
        None => None,
    };
    let report = Report {
        sentence: account::sentence(&costs, &reach, &predicted),
        tokens_per_round_by_category: by_category(&tried),
        accepted_by_position: reach,
        cost,
        costs,
        predicted,
        measured,
    };
    match args.output {
        OutputArg::Text => io::stdout().lock().write_all(text(&report).as_bytes())?,
        OutputArg::Summary | OutputArg::Jsonl => super::run::print_json(&report)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn suite(path: Option<&Path>) -> Result<Vec<(String, String)>> {
    let text = match path {
        None => include_str!("../../assets/prompts/suite.toml").to_owned(),
        Some(path) => {
            std::fs::read_to_string(path).with_context(|| format!("cannot read the suite {}", path.display()))?
        }
    };
    let suite: BTreeMap<String, Category> = toml::from_str(&text).context("the suite is not as it should be")?;
    let pairs = suite.into_iter().flat_map(|(name, category)| {
        category.prompts.into_iter().map(move |prompt| (name.clone(), prompt)).collect::<Vec<_>>()
    });
    let pairs: Vec<_> = pairs.collect();
    if pairs.is_empty() {
        bail!("the suite holds no prompts");
    }
    Ok(pairs)
}

/// Answers every prompt; (category, turn) each. One prompt runs first as warm-up.
fn answer(
    recipe: &Recipe,
    settings: Settings,
    args: &ExplainArgs,
    suite: &[(String, String)],
) -> Result<Vec<(String, Turn)>> {
    let mut driver = Driver::new(super::spawn(recipe.clone(), settings)?);
    for (_, prompt) in suite.iter().take(1).chain(suite) {
        let prompt = if args.decode.raw {
            Prompt::Raw(prompt.clone())
        } else {
            Prompt::Chat(super::conversation(&args.decode, prompt.clone()))
        };
        if let Outcome::Failed(message) = driver.answer(prompt) {
            bail!(message);
        }
    }
    let turns = driver.session().turns().iter().skip(1).cloned();
    Ok(suite.iter().map(|(category, _)| category.clone()).zip(turns).collect())
}

fn total<'a>(turns: impl Iterator<Item = &'a Turn>, lane: Lane) -> LaneStats {
    let mut sum = LaneStats::default();
    turns.for_each(|turn| sum.merge(turn.answer(lane).stats()));
    sum
}

/// Medians of the curve, and the overhead that the rounds really had.
fn costs(cost: &CostCurve, stats: &LaneStats) -> Result<Costs> {
    let draft = cost.draft.context("the model was loaded without its drafter; see the notice above")?;
    Ok(Costs {
        verify_us: cost.verify.iter().map(|t| t.median_us).collect(),
        draft_us: draft.median_us,
        overhead_us: stats.other_us() as f64 / stats.rounds().max(1) as f64,
    })
}

fn by_category(turns: &[(String, Turn)]) -> BTreeMap<String, f64> {
    let mut sums: BTreeMap<String, LaneStats> = BTreeMap::new();
    for (category, turn) in turns {
        sums.entry(category.clone()).or_default().merge(turn.answer(Lane::Speculative).stats());
    }
    sums.into_iter().filter_map(|(category, stats)| Some((category, stats.mean_tokens_per_round()?))).collect()
}

fn raced(k: u8, turns: &[(String, Turn)], cost: &CostCurve) -> Result<Measured> {
    let lane = |lane| total(turns.iter().map(|(_, turn)| turn), lane);
    let (plain, fast) = (lane(Lane::Plain), lane(Lane::Speculative));
    let costs = costs(cost, &fast)?;
    let predicted = account::worths(&costs, &account::reach(&fast));
    let (plain_speed, fast_speed) = (plain.tokens_per_second(), fast.tokens_per_second());
    let same = |turn: &&(String, Turn)| turn.1.agreement().is_some_and(|a| a.divergence.is_none());
    Ok(Measured {
        draft_len: k,
        prompts: turns.len(),
        plain_tokens_per_second: plain_speed,
        speculative_tokens_per_second: fast_speed,
        speedup: fast_speed.zip(plain_speed).map(|(fast, plain)| fast / plain),
        speedup_by_prompt: Spread::of(turns.iter().filter_map(|(_, turn)| turn.speedup()).collect()),
        tokens_per_round: fast.mean_tokens_per_round(),
        predicted_speedup: predicted.get(usize::from(k) - 1).map(|worth| worth.speedup),
        overhead_share: fast.other_us() as f64 / fast.decode_us().max(1) as f64,
        identical: turns.iter().filter(same).count(),
    })
}

fn cost_text(cost: &CostCurve) -> String {
    let mut out = String::new();
    let mut line = |text: String| {
        let _ = writeln!(out, "{text}"); // writing to a String cannot fail
    };
    let plain = cost.verify[0];
    line(format!(
        "{}, {} thread{}, {} positions in the cache",
        cost.backend,
        cost.threads,
        if cost.threads == 1 { "" } else { "s" },
        cost.ctx
    ));
    line(format!(
        "one row {:.2} ms ({:.2}–{:.2}), {:.0} tokens/s; {:.0} % of the rate at which a loop that only reads gets as many bytes, {:.1} GB/s; prefill {:.0} tokens/s",
        plain.median_us / 1e3,
        plain.p10_us / 1e3,
        plain.p90_us / 1e3,
        1e6 / plain.median_us,
        cost.bandwidth_share * 100.0,
        cost.memory_bandwidth / 1e9,
        cost.prefill_tokens_per_second,
    ));
    let mb = |bytes: u64| bytes as f64 / 1e6;
    line(format!(
        "memory: target weights {:.1} MB, drafter weights {:.1} MB, KV cache {:.1} kB a position",
        mb(cost.weight_bytes),
        mb(cost.draft_weight_bytes),
        cost.kv_bytes_per_token as f64 / 1e3,
    ));
    let curve =
        cost.verify.iter().enumerate().map(|(i, t)| format!("T({}) {:.2}", i + 1, t.median_us / plain.median_us));
    line(format!("in units of T(1):  {}", curve.collect::<Vec<_>>().join("  ")));
    if let Some(draft) = cost.draft {
        let (ms, share) = (draft.median_us / 1e3, draft.median_us / plain.median_us * 100.0);
        line(format!("one drafted token {ms:.2} ms, {share:.1} % of T(1)"));
    }
    out
}

fn text(report: &Report) -> String {
    let mut out = cost_text(&report.cost);
    let mut line = |text: String| {
        let _ = writeln!(out, "{text}"); // writing to a String cannot fail
    };
    let shares = report.accepted_by_position.iter().map(|a| format!("{:.0} %", a * 100.0));
    line(format!("rounds that accepted position 1, 2, …:  {}", shares.collect::<Vec<_>>().join("  ")));
    let categories = report.tokens_per_round_by_category.iter().map(|(name, tokens)| format!("{name} {tokens:.2}"));
    line(format!("tokens per round at k = {LONGEST}:  {}", categories.collect::<Vec<_>>().join("  ")));
    line("predicted:   k   tokens per round   round in plain tokens   speedup   break-even acceptance".to_owned());
    for worth in &report.predicted {
        line(format!(
            "{:>14} {:>18.2} {:>23.2} {:>8.2}× {:>23}",
            worth.draft_len,
            worth.tokens_per_round,
            worth.round_cost,
            worth.speedup,
            worth.break_even.map_or("never".to_owned(), |a| format!("{:.0} %", a * 100.0)),
        ));
    }
    if let Some(m) = &report.measured {
        line(raced_line(m));
    }
    line(report.sentence.clone());
    out
}

fn raced_line(m: &Measured) -> String {
    let number = |value: Option<f64>, digits: usize| value.map_or("–".to_owned(), |v| format!("{v:.digits$}"));
    format!(
        "measured at k = {} over {} prompts: plain {} tokens/s, speculative {} tokens/s, {}× (predicted {}×), {} tokens per round, overhead {:.1} %, {} of {} answers identical",
        m.draft_len,
        m.prompts,
        number(m.plain_tokens_per_second, 1),
        number(m.speculative_tokens_per_second, 1),
        number(m.speedup, 2),
        number(m.predicted_speedup, 2),
        number(m.tokens_per_round, 2),
        m.overhead_share * 100.0,
        m.identical,
        m.prompts,
    )
}
