//! Acceptance by category: the first table of a report, as NVIDIA's SPEED-Bench and AIPerf's `speed-bench-report` have it.
//!
//! Tools average the same figure in three ways and give all of them one name. Here each has its own:
//!
//! - **Pooled**: a quotient of sums over all rounds, so that long answers count more. So do vLLM's counters
//!   (`vllm:spec_decode_num_accepted_tokens` ÷ `vllm:spec_decode_num_draft_tokens`), SGLang's `avg_spec_accept_length`
//!   (`spec_total_num_accept_tokens` ÷ `spec_total_num_forward_ct`, `managers/scheduler.py`), Spec-Bench's *mean accepted
//!   tokens* (the mean over all passes, `evaluation/speed.py`), and each column of AIPerf's report (`--source records`: sums
//!   across the category) and its *overall draft acceptance rate*.
//! - **Mean of answers**: each answer's own quotient counts once. So do AIPerf's *acceptance length* and *draft acceptance
//!   rate* (means over requests), and means of what llama-server reports for each answer (`timings.draft_n_accepted` ÷
//!   `timings.draft_n`).
//! - **Mean of categories**: AIPerf's column *Overall* (`statistics.mean` of the others, `speed_bench_report.py`).

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::Serialize;

use super::super::suite::ALL;
use super::figures::{Averages, Figures, mean};
use super::row::{Case, FIRST, Row};

/// Columns of a terminal that the table keeps to.
const WIDTH: usize = 100;

/// Columns of the names of categories, and of the figures of a case.
const NAMES: usize = 17;
const FIGURES: usize = 32;

/// A row of the matrix.
#[derive(Clone, Debug, Serialize)]
pub(super) struct CategoryFigures {
    category: String,
    answers: usize,
    #[serde(flatten)]
    figures: Figures,
    /// Whether an answer's speedup cannot be.
    disturbed: bool,
}

/// Means of the categories' pooled figures.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct CategoryMeans {
    tokens_per_round: Option<f64>,
    mean_acceptance_length: Option<f64>,
    draft_acceptance_rate: Option<f64>,
    speedup: Option<f64>,
}

/// The matrix of one drafter, rule and k.
#[derive(Clone, Debug, Serialize)]
pub(super) struct CaseMatrix {
    drafter: String,
    rule: String,
    k: String,
    /// Whether only the first answer to each prompt counts, since later ones may draft from it.
    first_answers_only: bool,
    categories: Vec<CategoryFigures>,
    /// Over all answers; none where the categories are depths of the context, which have nothing in common.
    all: Option<CategoryFigures>,
    mean_of_categories: Option<CategoryMeans>,
}

impl CaseMatrix {
    fn of((drafter, rule, k): (&str, &str, &str), rows: &[&Row]) -> Self {
        let first_answers_only = rows.iter().any(|row| row.case.category.ends_with(FIRST));
        let counts = |row: &&&Row| row.case.category.ends_with(FIRST) == first_answers_only;
        let figures = |row: &&Row| CategoryFigures {
            category: row.case.category.strip_suffix(FIRST).unwrap_or(&row.case.category).to_owned(),
            answers: row.answers,
            figures: row.figures,
            disturbed: row.disturbed,
        };
        let (all, categories): (Vec<_>, Vec<_>) =
            rows.iter().filter(counts).map(figures).partition(|row| row.category == ALL);
        let all = all.into_iter().next();
        let means = CategoryMeans::of(&categories);
        let (drafter, rule, k) = (drafter.to_owned(), rule.to_owned(), k.to_owned());
        Self {
            drafter,
            rule,
            k,
            first_answers_only,
            mean_of_categories: all.is_some().then_some(means),
            categories,
            all,
        }
    }

    fn name(&self) -> String {
        match self.rule == self.k {
            true => format!("{} {}", self.drafter, self.rule),
            false => format!("{} {} k = {}", self.drafter, self.rule, self.k),
        }
    }

    /// The figures of a line of the table.
    fn line(&self, line: Line<'_>) -> Cells {
        let cells = |of: fn(&Averages) -> Option<f64>, row: &CategoryFigures| {
            let Figures { tokens_per_round, draft_acceptance_rate, speedup, .. } = &row.figures;
            Cells([of(tokens_per_round), of(draft_acceptance_rate), of(speedup)], row.disturbed)
        };
        let (pooled, means) = (|a: &Averages| a.pooled, |a: &Averages| a.mean_of_answers);
        let found = match line {
            Line::Category(name) => {
                self.categories.iter().find(|row| row.category == name).map(|row| cells(pooled, row))
            }
            Line::Pooled => self.all.as_ref().map(|row| cells(pooled, row)),
            Line::MeanOfAnswers => self.all.as_ref().map(|row| cells(means, row)),
            Line::MeanOfCategories => self.mean_of_categories.map(|means| {
                let disturbed = self.all.as_ref().is_some_and(|row| row.disturbed);
                Cells([means.tokens_per_round, means.draft_acceptance_rate, means.speedup], disturbed)
            }),
        };
        found.unwrap_or_default()
    }
}

impl CategoryMeans {
    fn of(categories: &[CategoryFigures]) -> Self {
        let of =
            |figure: fn(&Figures) -> Averages| mean(categories.iter().filter_map(|row| figure(&row.figures).pooled));
        Self {
            tokens_per_round: of(|f| f.tokens_per_round),
            mean_acceptance_length: of(|f| f.mean_acceptance_length),
            draft_acceptance_rate: of(|f| f.draft_acceptance_rate),
            speedup: of(|f| f.speedup),
        }
    }
}

/// The matrices of all drafters, rules and k, in the order of the rows.
pub(super) fn of(rows: &[Row]) -> Vec<CaseMatrix> {
    let mut cases: Vec<(&str, &str, &str)> = Vec::new();
    let mut of_case: BTreeMap<(&str, &str, &str), Vec<&Row>> = BTreeMap::new();
    for row in rows {
        let Case { drafter, rule, k, .. } = &row.case;
        let case = (drafter.as_str(), rule.as_str(), k.as_str());
        if !cases.contains(&case) {
            cases.push(case);
        }
        of_case.entry(case).or_default().push(row);
    }
    cases.into_iter().map(|case| CaseMatrix::of(case, &of_case[&case])).collect()
}

/// A line of the table.
#[derive(Clone, Copy)]
enum Line<'a> {
    Category(&'a str),
    Pooled,
    MeanOfAnswers,
    MeanOfCategories,
}

impl Line<'_> {
    fn name(&self) -> &str {
        match self {
            Self::Category(name) => name,
            Self::Pooled => "all, pooled",
            Self::MeanOfAnswers => "mean of answers",
            Self::MeanOfCategories => "mean of categories",
        }
    }
}

/// Tokens per round, share accepted and speedup, and whether that is disturbed.
#[derive(Default)]
struct Cells([Option<f64>; 3], bool);

impl Cells {
    fn text(&self) -> String {
        let none = || "–".to_owned();
        let Self([rounds, rate, speedup], disturbed) = self;
        let mark = if *disturbed { "~" } else { "" };
        let rounds = rounds.map_or_else(none, |rounds| format!("{rounds:.2}"));
        let rate = rate.map_or_else(none, |rate| format!("{:.0} %", rate * 100.0));
        let speedup = speedup.map_or_else(none, |speedup| format!("{mark}{speedup:.2}×"));
        format!("{rounds:>14}{rate:>10}{speedup:>8}")
    }
}

/// What the names of the averages mean, and who uses which.
const LEGEND: &str = "\
pooled, as each category: sums over all rounds (vLLM, SGLang, Spec-Bench, columns of AIPerf)
mean of answers: each counts once (AIPerf's figures per request, averages of llama-server's timings)
mean of categories: AIPerf's column Overall
";

/// The matrix as text; nothing without rows.
pub(super) fn text(matrices: &[CaseMatrix]) -> String {
    let mut out = String::new();
    let mut names: Vec<&str> = Vec::new();
    for row in matrices.iter().flat_map(|matrix| &matrix.categories) {
        if !names.contains(&row.category.as_str()) {
            names.push(&row.category);
        }
    }
    let has_sums = matrices.iter().any(|matrix| matrix.all.is_some());
    let sums = [Line::Pooled, Line::MeanOfAnswers, Line::MeanOfCategories];
    let lines: Vec<Line> =
        names.iter().map(|name| Line::Category(name)).chain(sums.into_iter().filter(|_| has_sums)).collect();
    let width = lines.iter().map(|line| line.name().chars().count()).fold(NAMES, usize::max);
    for block in matrices.chunks((WIDTH.saturating_sub(width) / FIGURES).max(1)) {
        let mut line = |first: &str, cells: &mut dyn Iterator<Item = String>| {
            let line = format!("{first:<width$}{}", cells.collect::<String>());
            let _ = writeln!(out, "{}", line.trim_end()); // writing to a String cannot fail
        };
        line("acceptance by", &mut block.iter().map(|matrix| format!("{:>FIGURES$}", matrix.name())));
        line(
            "category",
            &mut block.iter().map(|_| format!("{:>14}{:>10}{:>8}", "tokens/round", "accepted", "speedup")),
        );
        for of in &lines {
            line(of.name(), &mut block.iter().map(|matrix| matrix.line(*of).text()));
        }
    }
    if has_sums {
        out.push_str(LEGEND);
    }
    if matrices.iter().any(|matrix| matrix.first_answers_only) {
        out.push_str("only the first answer to each prompt counts here: this server may draft from earlier answers\n");
    }
    if !matrices.is_empty() {
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::super::row::SERVER;
    use super::*;
    use crate::commands::bench::sample::Sample;

    fn sample(rounds: u64, committed: u64, drafted: u64, accepted: u64) -> Sample {
        Sample { rounds, committed, drafted, accepted, rounds_with_drafts: rounds, ..Sample::default() }
    }

    fn row(category: &str, samples: &[Sample]) -> Row {
        let case = Case { drafter: "mtp".into(), rule: "exact".into(), k: "2".into(), category: category.into() };
        Row::of(case, samples)
    }

    #[test]
    fn each_average_has_its_own_value_and_its_own_name() {
        let (long, short, other) = (sample(100, 280, 200, 180), sample(10, 12, 20, 2), sample(10, 20, 20, 10));
        let rows = [
            row(ALL, &[long.clone(), short.clone(), other.clone()]),
            row("coding", &[long, short]),
            row("math", &[other]),
        ];
        let matrix = of(&rows);
        let [only] = matrix.as_slice() else { panic!("{matrix:?}") };
        let rate = |figures: &Figures| figures.draft_acceptance_rate;
        let all = rate(&only.all.as_ref().unwrap().figures);
        let near = |a: Option<f64>, b: f64| assert!((a.unwrap() - b).abs() < 1e-9, "{a:?} {b}");
        near(all.pooled, 192.0 / 240.0);
        near(all.mean_of_answers, (0.9 + 0.1 + 0.5) / 3.0);
        near(only.mean_of_categories.unwrap().draft_acceptance_rate, (182.0 / 220.0 + 0.5) / 2.0);
        near(only.categories[0].figures.mean_acceptance_length.pooled, 1.0 + 182.0 / 110.0);
        near(only.categories[0].figures.tokens_per_round.pooled, 292.0 / 110.0);
        let text = text(&matrix);
        assert!(text.starts_with("acceptance by") && text.contains("mtp exact k = 2"), "{text}");
        let line = |name: &str| {
            text.lines().find(|line| line.starts_with(name)).unwrap().split_whitespace().collect::<Vec<_>>()
        };
        assert_eq!(line("coding"), ["coding", "2.65", "83", "%", "–"]);
        assert_eq!(line("all, pooled")[2..], ["2.60", "80", "%", "–"]);
        assert_eq!(line("mean of answers")[3..], ["2.00", "50", "%", "–"]);
        assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "{text}");
    }

    #[test]
    fn first_answers_stand_for_a_server_that_remembers() {
        let of_server = |category: String, samples: &[Sample]| {
            let mut row = row(&category, samples);
            (row.case.rule, row.case.k) = (SERVER.into(), SERVER.into());
            row
        };
        let (first, later) = (sample(10, 15, 20, 5), sample(10, 29, 20, 19));
        let both = [first.clone(), later];
        let names = [ALL, "a"].map(str::to_owned);
        let rows = names
            .clone()
            .map(|name| of_server(name, &both))
            .into_iter()
            .chain(names.map(|name| of_server(format!("{name}{FIRST}"), std::slice::from_ref(&first))));
        let rows: Vec<Row> = rows.collect();
        let matrix = of(&rows);
        assert_eq!((matrix.len(), matrix[0].categories.len(), matrix[0].first_answers_only), (1, 1, true));
        assert_eq!(matrix[0].categories[0].figures.draft_acceptance_rate.pooled, Some(0.25));
        assert!(text(&matrix).contains("only the first answer") && text(&matrix).contains("mtp server"));
    }

    #[test]
    fn what_is_not_known_is_no_number() {
        let matrix = of(&[row("a", &[sample(10, 20, 0, 0)])]);
        let figures = matrix[0].categories[0].figures;
        assert_eq!((figures.draft_acceptance_rate, figures.speedup), (Averages::default(), Averages::default()));
        assert!(matrix[0].all.is_none() && matrix[0].mean_of_categories.is_none());
        assert!(!text(&matrix).contains("mean of") && of(&[]).is_empty() && text(&[]).is_empty());
    }

    #[test]
    fn many_cases_are_laid_out_in_blocks() {
        let rows: Vec<Row> = ["1", "2", "3", "4"]
            .map(|k| {
                let mut row = row("a", &[sample(10, 20, 10, 5)]);
                row.case.k = k.into();
                row
            })
            .into();
        let text = text(&of(&rows));
        assert_eq!(text.lines().filter(|line| line.starts_with("a ")).count(), 2, "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "{text}");
    }
}
