//! Draft lengths against each other, the automatic one among them, on one engine.
//!
//! Honest on a shared machine: every prompt is answered with every choice before the next prompt comes,
//! in an order that rotates, so that all choices see the same machine.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::process::ExitCode;

use anyhow::{Result, bail};
use draftscope::cli::{DraftLenArg, ExplainArgs};
use draftscope::headless::{Driver, Outcome};
use draftscope::model::load::Recipe;
use draftscope::protocol::{Command, DraftLenMode, Lane, Settings, TokenId};
use draftscope::session::LaneStats;
use serde::Serialize;

use super::{Suite, prompt, say, write};

/// What the race gave.
#[derive(Serialize)]
struct Report {
    choices: Vec<String>,
    repeats: u32,
    /// By category, `all` last.
    categories: Vec<Row>,
    /// Answers that differed from the first choice's answer to the same prompt.
    different_answers: usize,
    answers: usize,
}

/// One category.
#[derive(Serialize)]
struct Row {
    category: String,
    /// Tokens per second, one for each choice.
    tokens_per_second: Vec<Option<f64>>,
    tokens_per_round: Vec<Option<f64>>,
    /// The fixed k of most tokens per second.
    best_fixed: Option<String>,
    /// Automatic ÷ best fixed.
    auto_over_best: Option<f64>,
    /// Automatic ÷ plain (k = 0).
    auto_over_plain: Option<f64>,
}

/// Sums by category and choice.
type Sums = BTreeMap<String, Vec<LaneStats>>;

pub(super) fn run(
    args: &ExplainArgs,
    choices: &[DraftLenArg],
    recipe: Recipe,
    settings: Settings,
    suite: &Suite,
) -> Result<ExitCode> {
    let mode = if choices.contains(&DraftLenArg::Auto) { DraftLenMode::Auto } else { DraftLenMode::Fixed };
    let driver = Driver::new(super::super::spawn(recipe, Settings { draft_len_mode: mode, ..settings })?);
    let mut race = Race { args, choices, driver, sums: Sums::new(), different: 0, answers: 0 };
    for choice in choices {
        race.answer(*choice, &suite[0].1)?; // warm-up
    }
    for repeat in 0..args.repeat as usize {
        say(&format!("race {} of {}", repeat + 1, args.repeat));
        for (index, (category, text)) in suite.iter().enumerate() {
            race.prompt(category, text, repeat + index)?;
        }
    }
    super::super::tell_notices(&race.driver, &Outcome::Answered);
    write(args.output, &race.report(), text)
}

struct Race<'a> {
    args: &'a ExplainArgs,
    choices: &'a [DraftLenArg],
    driver: Driver,
    sums: Sums,
    different: usize,
    answers: usize,
}

impl Race<'_> {
    fn prompt(&mut self, category: &str, text: &str, turn: usize) -> Result<()> {
        let count = self.choices.len();
        let mut first: Option<Vec<TokenId>> = None;
        for place in 0..count {
            let index = (place + turn) % count;
            let (stats, tokens) = self.answer(self.choices[index], text)?;
            let sums = self.sums.entry(category.to_owned()).or_insert_with(|| vec![LaneStats::default(); count]);
            sums[index].merge(&stats);
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
        let mut all = vec![LaneStats::default(); self.choices.len()];
        for sums in self.sums.values() {
            all.iter_mut().zip(sums).for_each(|(all, part)| all.merge(part));
        }
        let rows = self.sums.iter().map(|(category, sums)| self.row(category, sums));
        Report {
            choices: self.choices.iter().map(|choice| name(*choice)).collect(),
            repeats: self.args.repeat,
            categories: rows.chain([self.row("all", &all)]).collect(),
            different_answers: self.different,
            answers: self.answers,
        }
    }

    fn row(&self, category: &str, sums: &[LaneStats]) -> Row {
        let speeds: Vec<Option<f64>> = sums.iter().map(LaneStats::tokens_per_second).collect();
        let of = |wanted: DraftLenArg| {
            let index = self.choices.iter().position(|choice| *choice == wanted)?;
            speeds[index]
        };
        let fixed = self.choices.iter().zip(&speeds).filter(|(choice, _)| **choice != DraftLenArg::Auto);
        let best = fixed.max_by(|a, b| a.1.unwrap_or(0.0).total_cmp(&b.1.unwrap_or(0.0)));
        let auto = of(DraftLenArg::Auto);
        let over = |other: Option<f64>| auto.zip(other).map(|(auto, other)| auto / other);
        Row {
            category: category.to_owned(),
            best_fixed: best.map(|(choice, _)| name(*choice)),
            auto_over_best: over(best.and_then(|(_, speed)| *speed)),
            auto_over_plain: over(of(DraftLenArg::Fixed(0))),
            tokens_per_round: sums.iter().map(LaneStats::mean_tokens_per_round).collect(),
            tokens_per_second: speeds,
        }
    }
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
    let _ = writeln!(out, "tokens/s     {heads}   best fixed   auto ÷ best   auto ÷ plain");
    for row in &report.categories {
        let speeds = row.tokens_per_second.iter();
        let speeds = speeds.fold(String::new(), |speeds, v| speeds + &format!("{:>9}", number(*v, 1)));
        let _ = writeln!(
            out,
            "{:<13}{speeds} {:>12} {:>13} {:>14}",
            row.category,
            row.best_fixed.as_deref().unwrap_or("–"),
            number(row.auto_over_best, 3),
            number(row.auto_over_plain, 3)
        );
    }
    let _ = writeln!(out, "{} of {} answers differed", report.different_answers, report.answers);
    out
}
