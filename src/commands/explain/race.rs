//! Races draft lengths against each other, `auto` among them, on one engine.
//!
//! Fair on a shared machine: every prompt is answered with every choice before the next prompt, in a new random order, so
//! that all choices meet the same states of the machine and none always follows the same other one. A prompt's time is
//! the median of its repeats, so that a moment with other load on the machine has no influence.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::process::ExitCode;

use anyhow::{Result, bail};
use draftscope::cli::{DraftLenArg, ExplainArgs};
use draftscope::headless::{Described, Driver, Outcome, Spread};
use draftscope::host::Taskbar;
use draftscope::model::options::LoadOptions;
use draftscope::protocol::{Command, DraftLenMode, Grammar, Lane, Settings, TokenId};
use draftscope::session::LaneStats;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};
use serde::Serialize;

use super::super::output::say;
use super::super::suite::Openings;
use super::asking::{prompt, write};

/// The result of the race.
#[derive(Serialize)]
struct Report {
    choices: Vec<String>,
    repeats: u32,
    /// Figures by category, `all` last.
    categories: Vec<Row>,
    /// Answers that differed from the first choice's answer to the same prompt.
    different_answers: usize,
    answers: usize,
}

/// One category.
#[derive(Serialize)]
struct Row {
    category: String,
    /// Tokens of all prompts ÷ the sum of each prompt's median decode time, one for each choice.
    tokens_per_second: Vec<Option<f64>>,
    tokens_per_round: Vec<Option<f64>>,
    /// The fixed k with the most tokens per second.
    best_fixed: Option<String>,
    /// Speed of `auto` ÷ that of the best fixed k.
    auto_over_best: Option<f64>,
    /// The same ratio for single repeats.
    auto_over_best_by_repeat: Option<Spread>,
    /// Speed of `auto` ÷ plain decoding (k = 0).
    auto_over_plain: Option<f64>,
}

/// One prompt's answers: for each choice, the figures of each repeat.
type Answers = Vec<Vec<LaneStats>>;

pub(super) fn run(
    args: &ExplainArgs,
    choices: &[DraftLenArg],
    (recipe, settings, grammar): (LoadOptions, Settings, Option<Grammar>),
    suite: &Openings,
) -> Result<ExitCode> {
    let mode = if choices.contains(&DraftLenArg::Auto) { DraftLenMode::Auto } else { DraftLenMode::Fixed };
    let driver =
        Driver::new(super::super::engine::spawn(recipe, Settings { draft_len_mode: mode, ..settings }, grammar)?);
    let prompts = suite.iter().map(|(category, _)| (category.clone(), vec![Vec::new(); choices.len()])).collect();
    let mut race = Race { args, choices, driver, prompts, different: 0, answers: 0 };
    for choice in choices {
        race.answer(*choice, &suite[0].1)?; // warm-up
    }
    let mut taskbar = Taskbar::default();
    let all = args.repeat as usize * suite.len();
    for repeat in 0..args.repeat as usize {
        say(&format!("race {} of {}", repeat + 1, args.repeat));
        for (index, (_, text)) in suite.iter().enumerate() {
            race.prompt(index, text, repeat * suite.len() + index)?;
            taskbar.at((repeat * suite.len() + index + 1) as u64, all as u64);
        }
    }
    super::super::output::report_notices(&race.driver, &Outcome::Answered);
    let header = race.driver.session().header().cloned();
    write(args.output, &Described { header, figures: race.report() }, |described| text(&described.figures))
}

struct Race<'a> {
    args: &'a ExplainArgs,
    choices: &'a [DraftLenArg],
    driver: Driver,
    /// Category and answers of each prompt of the suite.
    prompts: Vec<(String, Answers)>,
    different: usize,
    answers: usize,
}

impl Race<'_> {
    /// Answers a prompt with each choice, in random order, and counts answers that differ from the first one.
    fn prompt(&mut self, prompt: usize, text: &str, turn: usize) -> Result<()> {
        let mut first: Option<Vec<TokenId>> = None;
        for index in order(self.choices.len(), turn) {
            let (stats, tokens) = self.answer(self.choices[index], text)?;
            self.prompts[prompt].1[index].push(stats);
            self.answers += 1;
            self.different += usize::from(*first.get_or_insert_with(|| tokens.clone()) != tokens);
        }
        Ok(())
    }

    fn answer(&mut self, choice: DraftLenArg, text: &str) -> Result<(LaneStats, Vec<TokenId>)> {
        self.driver.send(match choice {
            DraftLenArg::Auto => Command::SetAutoDraftLen,
            DraftLenArg::Fixed(draft_len) => Command::SetDraftLen { draft_len },
        });
        if let Outcome::Failed(message) = self.driver.answer(prompt(self.args, text)) {
            bail!(message);
        }
        let answer = self.driver.session().turn().map(|turn| turn.answer(Lane::Speculative));
        let tokens = answer.map(|answer| answer.tokens.iter().map(|token| token.piece.id).collect());
        Ok((answer.map(|answer| answer.stats().clone()).unwrap_or_default(), tokens.unwrap_or_default()))
    }

    fn report(&self) -> Report {
        let mut categories: BTreeMap<&str, Vec<&Answers>> = BTreeMap::new();
        for (category, answers) in &self.prompts {
            categories.entry(category).or_default().push(answers);
        }
        let all: Vec<&Answers> = self.prompts.iter().map(|(_, answers)| answers).collect();
        let rows = categories.iter().map(|(category, prompts)| self.row(category, prompts));
        Report {
            choices: self.choices.iter().map(|choice| name(*choice)).collect(),
            repeats: self.args.repeat,
            categories: rows.chain([self.row("all", &all)]).collect(),
            different_answers: self.different,
            answers: self.answers,
        }
    }

    fn row(&self, category: &str, prompts: &[&Answers]) -> Row {
        let speeds: Vec<Option<f64>> = (0..self.choices.len()).map(|choice| speed(prompts, choice, None)).collect();
        let place = |wanted: DraftLenArg| self.choices.iter().position(|choice| *choice == wanted);
        let fixed = (0..speeds.len()).filter(|choice| self.choices[*choice] != DraftLenArg::Auto);
        let best = fixed.max_by(|a, b| speeds[*a].unwrap_or(0.0).total_cmp(&speeds[*b].unwrap_or(0.0)));
        let over = |a: Option<f64>, b: Option<f64>| a.zip(b).map(|(a, b)| a / b);
        let auto_over = |other: Option<usize>| over(speeds[place(DraftLenArg::Auto)?], speeds[other?]);
        let by_repeat = |best: usize| {
            let auto = place(DraftLenArg::Auto)?;
            let once = |repeat| over(speed(prompts, auto, Some(repeat)), speed(prompts, best, Some(repeat)));
            Spread::of((0..self.args.repeat as usize).filter_map(once).collect())
        };
        Row {
            category: category.to_owned(),
            best_fixed: best.map(|best| name(self.choices[best])),
            auto_over_best: auto_over(best),
            auto_over_best_by_repeat: best.and_then(by_repeat),
            auto_over_plain: auto_over(place(DraftLenArg::Fixed(0))),
            tokens_per_round: (0..self.choices.len()).map(|choice| tokens_per_round(prompts, choice)).collect(),
            tokens_per_second: speeds,
        }
    }
}

/// The numbers 0 to `count` − 1 in a pseudorandom order that depends only on `turn` (Fisher and Yates).
fn order(count: usize, turn: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    let mut chance = ChaCha8Rng::seed_from_u64(turn as u64);
    for last in (1..count).rev() {
        order.swap(last, chance.next_u32() as usize % (last + 1));
    }
    order
}

/// Tokens per second of these prompts with one choice: in one repeat, or with each prompt's median time.
fn speed(prompts: &[&Answers], choice: usize, repeat: Option<usize>) -> Option<f64> {
    let (mut tokens, mut us) = (0.0, 0.0);
    for repeats in prompts.iter().filter_map(|answers| answers.get(choice)) {
        let counted = repeats.iter().enumerate().filter(|(index, _)| repeat.is_none_or(|wanted| wanted == *index));
        us += Spread::of(counted.map(|(_, stats)| stats.decode_us() as f64).collect())?.median;
        tokens += repeats.first()?.committed() as f64; // every repeat gives the same text
    }
    (us > 0.0).then(|| tokens * 1e6 / us)
}

fn tokens_per_round(prompts: &[&Answers], choice: usize) -> Option<f64> {
    let mut sum = LaneStats::default();
    prompts.iter().filter_map(|answers| answers.get(choice)).flatten().for_each(|stats| sum.merge(stats));
    sum.mean_tokens_per_round()
}

fn name(choice: DraftLenArg) -> String {
    match choice {
        DraftLenArg::Auto => "auto".to_owned(),
        DraftLenArg::Fixed(k) => format!("k={k}"),
    }
}

fn text(report: &Report) -> String {
    let mut out = String::new();
    let number = |value: Option<f64>, digits: usize| value.map_or("–".to_owned(), |v| format!("{v:.digits$}"));
    let heads = report.choices.iter().fold(String::new(), |heads, name| heads + &format!("{name:>9}"));
    // writing to a String cannot fail
    let _ = writeln!(out, "tokens/s     {heads}   best fixed   auto ÷ best (by repeat)   auto ÷ plain");
    for row in &report.categories {
        let speeds = row.tokens_per_second.iter();
        let speeds = speeds.fold(String::new(), |speeds, v| speeds + &format!("{:>9}", number(*v, 1)));
        let by_repeat =
            row.auto_over_best_by_repeat.map(|s| format!(" ({:.2}–{:.2})", s.min, s.max)).unwrap_or_default();
        let _ = writeln!(
            out,
            "{:<13}{speeds} {:>12} {:>25} {:>14}",
            row.category,
            row.best_fixed.as_deref().unwrap_or("–"),
            number(row.auto_over_best, 3) + &by_repeat,
            number(row.auto_over_plain, 3)
        );
    }
    let _ = writeln!(out, "{} of {} answers differed", report.different_answers, report.answers);
    out
}
