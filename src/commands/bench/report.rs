//! The report of `bench`: rows of figures, the table, CSV, and a comparison with an earlier report.
//!
//! Invariant: a comparison of two reports judges only ratios to plain decoding on the same engine, because a machine's
//! speed changes between runs. It lists everything else that differs between them.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use anyhow::Result;
use draftscope::protocol::{DrafterInfo, Header};
use draftscope::session::text::one_line;
use draftscope::session::{DISTURBED, HeaderDifference, header_diff};
use serde::{Deserialize, Serialize};

use super::acceptance::{AcceptanceChange, lines as acceptance_lines};
use super::matrix::CaseMatrix;
use super::row::{Case, ENOUGH, Fact, OF_ROWS, Row, spread};
use super::sample::Quantiles;

/// Verdict on a case that is slower than before by more than both spreads.
const WORSE: &str = "worse";

/// What `--json` writes and `--baseline` reads.
#[derive(Serialize, Deserialize)]
pub(super) struct Report {
    /// sha256 of the prompts: only reports with the same prompts can be compared.
    pub(super) suite_sha256: String,
    pub(super) prompts: usize,
    pub(super) repeats: u32,
    pub(super) max_tokens: u32,
    pub(super) temperature: f32,
    pub(super) header: Option<Header>,
    /// Acceptance by category, computed from the same answers as the rows.
    #[serde(skip_deserializing)]
    pub(super) matrix: Vec<CaseMatrix>,
    pub(super) rows: Vec<Row>,
}

pub(super) fn table(rows: &[Row]) -> String {
    let raced = rows.iter().any(|row| row.speedup.is_some());
    let how = if raced { "; each answer raced against plain decoding on the same engine" } else { "" };
    let mut out = format!(
        "median (p10–p90) over answers{how}\n\
         drafter  rule         k  category      speedup            tokens/s           tokens/round       accepted  identical\n",
    );
    for row in rows {
        let Case { drafter, rule, k, category } = &row.case;
        let rate = row.draft_acceptance_rate.map_or("–".to_owned(), |rate| format!("{:.0} %", rate * 100.0));
        let mark = if row.disturbed { "~" } else { "" };
        let (speedup, rounds) = (format!("{mark}{}", spread(row.speedup, 2)), spread(row.tokens_per_round, 2));
        let speed = spread(row.speculative_tokens_per_second, 0);
        let same = row.identical.map_or("–".to_owned(), |identical| format!("{identical}/{}", row.answers));
        let _ = writeln!(
            out,
            "{drafter:<8} {rule:<9} {k:>4}  {category:<12}  {speedup:<17}  {speed:<17}  {rounds:<17}  {rate:<8}  {same}"
        ); // writing to a String cannot fail
    }
    if rows.iter().any(|row| row.disturbed) {
        let _ = writeln!(out, "~ {DISTURBED}");
    }
    let lenient: BTreeSet<&str> =
        rows.iter().filter(|row| !row.is_lossless()).map(|row| row.case.rule.as_str()).collect();
    for rule in lenient {
        let _ = writeln!(out, "{rule} is not lossless: its answers need not be the plain ones");
    }
    out
}

/// The cell of a row in a column.
type Cell = fn(&Row) -> String;

/// The columns of the table.
const COLUMNS: [(&str, Cell); 18] = [
    ("drafter", |row| row.case.drafter.clone()),
    ("rule", |row| row.case.rule.clone()),
    ("k", |row| row.case.k.clone()),
    ("category", |row| row.case.category.clone()),
    ("answers", |row| row.answers.to_string()),
    ("speedup_p10", |row| number(row.speedup.map(|q| q.p10))),
    ("speedup_median", |row| number(row.speedup.map(|q| q.median))),
    ("speedup_p90", |row| number(row.speedup.map(|q| q.p90))),
    ("speedup_low", |row| number(row.speedup_low)),
    ("speedup_high", |row| number(row.speedup_high)),
    ("disturbed", |row| row.disturbed.to_string()),
    ("speculative_tokens_per_second_median", |row| number(row.speculative_tokens_per_second.map(|q| q.median))),
    ("plain_tokens_per_second_median", |row| number(row.plain_tokens_per_second.map(|q| q.median))),
    ("tokens_per_round_median", |row| number(row.tokens_per_round.map(|q| q.median))),
    ("draft_acceptance_rate", |row| number(row.draft_acceptance_rate)),
    ("draft_n", |row| row.timings.draft_n.map_or(String::new(), |count| count.to_string())),
    ("draft_n_accepted", |row| row.timings.draft_n_accepted.map_or(String::new(), |count| count.to_string())),
    ("identical", |row| row.identical.map_or(String::new(), |identical| identical.to_string())),
];

fn number(value: Option<f64>) -> String {
    value.map_or(String::new(), |value| value.to_string())
}

pub(super) fn csv(rows: &[Row]) -> Result<String> {
    let mut table = csv::Writer::from_writer(Vec::new());
    table.write_record(COLUMNS.map(|(name, _)| name))?;
    for row in rows {
        table.write_record(COLUMNS.map(|(_, cell)| cell(row)))?;
    }
    Ok(String::from_utf8(table.into_inner()?)?)
}

/// Compares this run with an earlier one. It judges only figures that do not depend on the machine's speed of that day:
/// the ratio to plain decoding, and tokens per round.
pub(super) fn against(report: &Report, baseline: &Report) -> String {
    let mut out = String::from("against the baseline (speedup, median):\n");
    let mut line = |text: String| {
        let _ = writeln!(out, "{text}"); // writing to a String cannot fail
    };
    for (what, now, then) in differences(report, baseline) {
        line(format!("  not alike: {what}: {then} → {now}; compare with care"));
    }
    for row in &report.rows {
        let Some(old) = baseline.rows.iter().find(|old| old.case.is_same(&row.case)) else {
            continue;
        };
        let Case { drafter, rule, k, category } = &row.case;
        if let (Some(new), Some(then), Some(verdict)) = (row.speedup, old.speedup, verdict(old, row)) {
            let change = (new.median / then.median - 1.0) * 100.0;
            line(format!(
                "  {drafter} {rule} k = {k} {category:<12} {:.2} → {:.2} ({change:+.1} %), {verdict}",
                then.median, new.median,
            ));
        }
        acceptance_lines(old, row).into_iter().for_each(&mut line);
    }
    let missing = baseline.rows.iter().filter(|old| report.rows.iter().all(|row| !row.case.is_same(&old.case))).count();
    if missing > 0 {
        line(format!("  {missing} cases of the baseline were not run"));
    }
    out
}

/// The conditions in which two reports differ, with the new and the old value.
fn differences(report: &Report, baseline: &Report) -> Vec<HeaderDifference> {
    let prompts = |r: &Report| format!("{} ({}…)", r.prompts, r.suite_sha256.chars().take(8).collect::<String>());
    let both = [report, baseline];
    let mut facts: Vec<Fact> = vec![
        ("the prompts".into(), both.map(prompts)),
        ("the longest answer".into(), both.map(|r| r.max_tokens.to_string())),
        ("the temperature".into(), both.map(|r| r.temperature.to_string())),
    ];
    if let (Some(now), Some(then)) = (&report.header, &baseline.header) {
        let same_for_all =
            |(name, ..): &HeaderDifference| !name.starts_with("drafter") && !OF_ROWS.contains(&name.as_str());
        facts.extend(
            header_diff(now, then).into_iter().filter(same_for_all).map(|(name, now, then)| (name, [now, then])),
        );
        facts.extend(if is_server(report) { server_drafter(now, then) } else { drafters(now, then) });
    }
    let differing = facts.into_iter().filter(|(_, [now, then])| now != then);
    differing.map(|(what, [now, then])| (what, one_line(&now).into_owned(), one_line(&then).into_owned())).collect()
}

/// The drafters of both reports, with digests of their weights if both have them. All loaded drafters are compared,
/// because a header names only the one that was measured last.
fn drafters(now: &Header, then: &Header) -> Vec<Fact> {
    let both =
        now.drafters.iter().filter_map(|new| Some((new, then.drafters.iter().find(|old| old.kind == new.kind)?)));
    let weights = |of: &DrafterInfo| of.sha256.as_deref().map(|sha256| sha256.chars().take(8).collect::<String>());
    let facts = both.map(|(new, old)| {
        let known = weights(new).zip(weights(old));
        let of = |info: &DrafterInfo, sha256: Option<String>| match sha256 {
            Some(sha256) => format!("{} ({sha256}…)", info.name),
            None => info.name.clone(),
        };
        let (a, b) = known.map_or((None, None), |(a, b)| (Some(a), Some(b)));
        (format!("the drafter {}", new.kind), [of(new, a), of(old, b)])
    });
    facts.collect()
}

/// What the servers of both reports draft with, k included where they report it.
fn server_drafter(now: &Header, then: &Header) -> Vec<Fact> {
    let name = |header: &Header| header.drafter.as_ref().map_or_else(|| "none".to_owned(), |info| info.name.clone());
    vec![("the server's drafter".to_owned(), [name(now), name(then)])]
}

fn judged(old: Quantiles, new: Quantiles) -> &'static str {
    if new.p10 > old.p90 {
        "better"
    } else if new.p90 < old.p10 {
        WORSE
    } else {
        "within the spread"
    }
}

/// Whether an attached server was measured.
fn is_server(report: &Report) -> bool {
    report.header.as_ref().is_some_and(|header| header.engine.is_some())
}

/// What an upgrade of a server changes: whether that lost acceptance is the question.
fn is_of_server(what: &str) -> bool {
    what.starts_with("engine") || matches!(what, "device" | "backend" | "program")
}

/// Whether a case is worse than in the baseline, and both runs had the same conditions.
pub(super) fn is_worse(report: &Report, baseline: &Report) -> bool {
    let worse = |row: &Row| {
        let old = baseline.rows.iter().find(|old| old.case.is_same(&row.case));
        old.is_some_and(|old| {
            verdict(old, row) == Some(WORSE) || AcceptanceChange::of(old, row).is_some_and(|c| c.is_lost())
        })
    };
    let is_alike = differences(report, baseline).iter().all(|(what, ..)| is_server(report) && is_of_server(what));
    is_alike && report.rows.iter().any(worse)
}

/// The verdict on a case; none if either run has no speedup.
fn verdict(old: &Row, new: &Row) -> Option<&'static str> {
    let (then, now) = (old.speedup?, new.speedup?);
    Some(if old.answers.min(new.answers) < ENOUGH { "too few answers for a verdict" } else { judged(then, now) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::bench::figures::Figures;
    use crate::commands::bench::sample::DraftTimings;

    #[test]
    fn only_what_leaves_the_spread_is_better_or_worse() {
        let q = |p10, median, p90| Quantiles { p10, median, p90 };
        assert_eq!(judged(q(1.0, 1.1, 1.2), q(1.25, 1.3, 1.4)), "better");
        assert_eq!(judged(q(1.0, 1.1, 1.2), q(0.7, 0.8, 0.9)), "worse");
        assert_eq!(judged(q(1.0, 1.1, 1.2), q(1.1, 1.2, 1.3)), "within the spread");
    }

    fn report(median: f64, identical: usize) -> Report {
        let case = Case { drafter: "mtp".into(), rule: "exact".into(), k: "2".into(), category: "chat".into() };
        let speedup = Some(Quantiles { p10: median - 0.01, median, p90: median + 0.01 });
        let row = Row {
            case,
            answers: 5,
            timings: DraftTimings::default(),
            figures: Figures::default(),
            speedup,
            speedup_low: None,
            speedup_high: None,
            disturbed: false,
            speculative_tokens_per_second: None,
            plain_tokens_per_second: None,
            tokens_per_round: None,
            prompt_tokens: None,
            one_row_us: None,
            drafted_us: None,
            draft_acceptance_rate: None,
            acceptance_by_answer: Vec::new(),
            offered_per_pos: Vec::new(),
            accepted_per_pos: Vec::new(),
            identical: Some(identical),
        };
        let header = Some(Header { device: "cpu (avx2)".into(), ..Header::default() });
        let (suite_sha256, prompts, repeats, max_tokens) = ("ab".repeat(32), 4, 1, 64);
        Report {
            suite_sha256,
            prompts,
            repeats,
            max_tokens,
            temperature: 0.0,
            header,
            matrix: Vec::new(),
            rows: vec![row],
        }
    }

    #[test]
    fn reports_of_unlike_runs_say_what_was_unlike() {
        let (now, mut then) = (report(1.2, 5), report(1.3, 5));
        assert!(differences(&now, &then).is_empty());
        assert!(is_worse(&now, &then) && !is_worse(&then, &now));
        then.max_tokens = 32;
        then.header = Some(Header { device: "cpu (neon)".into(), ..Header::default() });
        let text = against(&now, &then);
        assert!(text.contains("the longest answer: 32 → 64"), "{text}");
        assert!(text.contains("device: cpu (neon) → cpu (avx2)"), "{text}");
        assert!(text.contains("1.30 → 1.20 (-7.7 %), worse"), "{text}");
        assert!(!is_worse(&now, &then), "only runs that are alike are judged by the exit status");
        let mut settings = now.header.clone().unwrap();
        settings.settings.drafting.p_min = 0.5;
        settings.settings.draft_len = 9;
        then = Report { header: Some(settings), ..report(1.3, 5) };
        let text = against(&now, &then);
        assert!(text.contains("p-min: 0.5 → 0.0") && !text.contains("alike: k"), "k is each row's own: {text}");
        assert!(!is_worse(&now, &then));
        then.rows[0].answers = 2;
        assert!(against(&now, &then).contains("too few answers for a verdict"));
    }

    fn accepted(rates: &[f64], per_pos: [u64; 2]) -> Report {
        let mut report = report(1.0, 5);
        let row = &mut report.rows[0];
        row.draft_acceptance_rate = Some(rates.iter().sum::<f64>() / rates.len() as f64);
        row.acceptance_by_answer = rates.iter().map(|rate| Some(*rate)).collect();
        (row.offered_per_pos, row.accepted_per_pos) = (vec![10, 10], per_pos.to_vec());
        row.speedup = None;
        report
    }

    #[test]
    fn a_loss_of_acceptance_is_found_by_the_same_answers_and_by_position() {
        let then = accepted(&[0.9, 0.5, 0.8, 0.4, 0.7, 0.6], [9, 5]);
        let now = accepted(&[0.8, 0.41, 0.7, 0.3, 0.58, 0.5], [9, 3]);
        let text = against(&now, &then);
        assert!(text.contains("acceptance 65.0 % → 54.8 %, lost"), "{text}");
        assert!(text.contains("by position 2: 50 % → 30 %"), "only what changed: {text}");
        assert!(is_worse(&now, &then) && !is_worse(&then, &now) && !is_worse(&then, &then));
        let noisy = accepted(&[0.2, 0.9, 0.5, 0.8, 0.3, 0.9], [9, 5]);
        assert!(against(&noisy, &then).contains("no change beyond the spread"));
        assert!(!is_worse(&noisy, &then), "answers differ by more than they fell");
        assert!(against(&accepted(&[0.1; 3], [1, 1]), &then).contains("too few answers"));
    }

    #[test]
    fn only_a_lossless_rule_must_agree() {
        let mut row = report(1.2, 4).rows.remove(0);
        assert!(row.differs());
        row.case.rule = "typical".into();
        assert!(!row.differs() && !report(1.2, 5).rows[0].differs());
        assert!(table(&[row]).contains("typical is not lossless"));
        assert!(!table(&report(1.2, 4).rows).contains("not lossless"));
    }
}
