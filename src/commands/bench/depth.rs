//! Prompts after a long text, so that drafts are measured at several depths of the context.
//!
//! Invariant: the texts are made, the same ones each time, and hardly repeat themselves, so that copying drafters find no
//! more in them than in notes of a person.

use std::fmt::Write as _;

use anyhow::{Result, bail};

use super::super::suite::SuitePrompt;
use super::row::{Case, Row};

/// Name of the category of prompts at a depth, before the depth in tokens.
const CATEGORY: &str = "context";

/// Lines whose tokens are counted to learn how long a line is.
const COUNTED: usize = 200;

const WHO: [&str; 16] = [
    "Ada", "Bruno", "Chen", "Dora", "Emre", "Fatou", "Goran", "Hana", "Ivo", "Jun", "Kofi", "Lena", "Mara", "Nils",
    "Omar", "Petra",
];
const DID: [&str; 13] = [
    "moved",
    "painted",
    "measured",
    "lost",
    "repaired",
    "sold",
    "described",
    "weighed",
    "borrowed",
    "photographed",
    "counted",
    "cleaned",
    "hid",
];
const WHAT: [&str; 19] = [
    "copper lamp",
    "oak table",
    "paper map",
    "blue kite",
    "iron gate",
    "glass bowl",
    "old radio",
    "wool coat",
    "stone bridge",
    "tin box",
    "green boat",
    "clay pot",
    "wall clock",
    "pear tree",
    "brass key",
    "red ladder",
    "silver coin",
    "straw hat",
    "wooden flute",
];
const WHERE: [&str; 17] = [
    "beside the harbour",
    "under the stairs",
    "near the mill",
    "beside the school",
    "at the market",
    "in the north tower",
    "on the second floor",
    "by the railway",
    "in the garden",
    "across the river",
    "below the hill",
    "at the border",
    "in the workshop",
    "on the roof",
    "next to the well",
    "inside the theatre",
    "along the canal",
];
const WHEN: [&str; 11] = [
    "in January",
    "last winter",
    "on a Monday",
    "at noon",
    "before the storm",
    "in the spring",
    "after the concert",
    "one evening",
    "during the fair",
    "on the third of May",
    "a year ago",
];

/// A line of notes; the lists' lengths have no common factor, so that no two of the first 700,000 are alike.
fn line(index: usize, into: &mut String) {
    let of = |list: &[&'static str]| list[index % list.len()];
    let (who, did, what, place, when) = (of(&WHO), of(&DID), of(&WHAT), of(&WHERE), of(&WHEN));
    let _ = writeln!(into, "{}. {who} {did} the {what} {place} {when}.", index + 1); // writing to a String cannot fail
}

fn notes(lines: usize) -> String {
    let mut text = String::new();
    (0..lines).for_each(|index| line(index, &mut text));
    text
}

/// Every prompt at every depth, after about so many tokens; `count` counts the tokens of a text.
pub(super) fn at_depths(
    suite: &[SuitePrompt],
    depths: &[u32],
    count: impl FnOnce(&str) -> Result<usize>,
) -> Result<Vec<SuitePrompt>> {
    let a_line = count(&notes(COUNTED))? as f64 / COUNTED as f64;
    if a_line < 1.0 {
        bail!("the tokenizer makes no tokens of a text, so no context of a given length can be made");
    }
    let mut deep = Vec::with_capacity(suite.len() * depths.len());
    for depth in depths {
        let notes = notes((f64::from(*depth) / a_line).round() as usize);
        let deepened = |prompt: &SuitePrompt| {
            let mut turns = prompt.turns.clone();
            if let Some(first) = turns.first_mut() {
                *first = format!("{notes}\n{first}");
            }
            SuitePrompt { category: format!("{CATEGORY} {depth}"), turns }
        };
        deep.extend(suite.iter().map(deepened));
    }
    Ok(deep)
}

/// Puts the rows of each case in the order of their depths.
pub(super) fn sort(rows: &mut [Row]) {
    rows.sort_by(|a, b| {
        let case = |row: &Row| Case { category: String::new(), ..row.case.clone() };
        case(a).cmp(&case(b)).then_with(|| depth(a).cmp(&depth(b)))
    });
}

fn depth(row: &Row) -> Option<u32> {
    row.case.category.strip_prefix(CATEGORY)?.trim().parse().ok()
}

/// For each drafter, rule and k: from which depth on drafts no longer pay, or that they do at all of them. Where no speedup was
/// measured, as of a server without another one beside it, what became of the tokens per round.
pub(super) fn findings(rows: &[Row]) -> String {
    let mut cases: Vec<Case> = rows.iter().map(|row| Case { category: String::new(), ..row.case.clone() }).collect();
    cases.dedup();
    let mut out = String::new();
    for case in cases {
        let of_case = |row: &&Row| Case { category: String::new(), ..row.case.clone() } == case;
        let speedup = |row: &Row| Some((depth(row)?, row.speedup.filter(|_| !row.disturbed)?.median));
        let mut found: Vec<(u32, f64)> = rows.iter().filter(of_case).filter_map(speedup).collect();
        found.sort_by_key(|(depth, _)| *depth);
        let rounds = |row: &Row| Some((depth(row)?, row.tokens_per_round?.median));
        let mut lengths: Vec<(u32, f64)> = rows.iter().filter(of_case).filter_map(rounds).collect();
        lengths.sort_by_key(|(depth, _)| *depth);
        let says = if found.is_empty() { without_plain(&lengths) } else { finding(&found) };
        let passes: Vec<String> = rows.iter().filter(of_case).filter_map(passes).collect();
        let k = if case.k == case.rule { String::new() } else { format!(" k = {}", case.k) };
        let _ = writeln!(out, "{} {}{k}: {says}", case.drafter, case.rule); // as above
        if !passes.is_empty() {
            let _ = writeln!(out, "  T(1) and T(k + 1) in ms: {}", passes.join("; "));
        }
    }
    out
}

/// What passes took at a depth.
fn passes(row: &Row) -> Option<String> {
    let (depth, one, drafted) = (depth(row)?, row.one_row_us?, row.drafted_us?);
    Some(format!("{:.1} and {:.1} at {depth} tokens", one.median / 1e3, drafted.median / 1e3))
}

/// What is known without plain decoding.
fn without_plain(lengths: &[(u32, f64)]) -> String {
    let [first, .., last] = lengths else { return finding(&[]) };
    format!(
        "{:.2} tokens per round at {} and {:.2} at {} tokens; whether drafts pay is not known without plain decoding beside it \
         (--plain-url)",
        first.1, first.0, last.1, last.0
    )
}

fn finding(found: &[(u32, f64)]) -> String {
    let [first, .., last] = found else { return "too few depths were measured to compare them".to_owned() };
    let stops = found.iter().enumerate().find(|(at, _)| found[*at..].iter().all(|(_, speedup)| *speedup < 1.0));
    match stops {
        Some((0, _)) => "drafts pay at no depth that was measured".to_owned(),
        Some((_, (depth, speedup))) => format!("drafts stop paying at a context of {depth} tokens ({speedup:.2}×)"),
        None => {
            format!("drafts pay at all depths, {:.2}× at {} and {:.2}× at {} tokens", first.1, first.0, last.1, last.0)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_have_about_the_wanted_length_and_no_line_twice() {
        let prompt = |text: &str| SuitePrompt { category: text.to_lowercase(), turns: vec![text.to_owned()] };
        let suite = [prompt("Hello?"), prompt("Why?")];
        let words = |text: &str| Ok(text.split_whitespace().count());
        let deep = at_depths(&suite, &[512, 4096], words).unwrap();
        let names: Vec<_> = deep.iter().map(|prompt| prompt.category.as_str()).collect();
        assert_eq!(names, ["context 512", "context 512", "context 4096", "context 4096"]);
        for SuitePrompt { category: name, turns } in &deep {
            let prompt = &turns[0];
            let wanted: f64 = name.strip_prefix("context ").unwrap().parse().unwrap();
            let has = words(prompt).unwrap() as f64;
            assert!((has - wanted).abs() < 0.03 * wanted, "{has} words for {wanted}");
            let lines: std::collections::BTreeSet<_> =
                prompt.lines().map(|line| line.split_once(". ").unwrap_or(("", line)).1).collect();
            assert!(lines.len() + 1 >= prompt.lines().count(), "{name}");
        }
        assert!(deep[0].opening().ends_with("\nHello?"));
        assert!(at_depths(&suite, &[512], |_| Ok(0)).is_err());
    }

    #[test]
    fn drafts_stop_paying_where_they_pay_no_more_from_there_on() {
        let says = |found: &[(u32, f64)]| finding(found);
        assert_eq!(
            says(&[(512, 1.8), (4096, 0.9), (8192, 0.8)]),
            "drafts stop paying at a context of 4096 tokens (0.90×)"
        );
        assert!(says(&[(512, 1.8), (4096, 0.9), (8192, 1.1)]).starts_with("drafts pay at all depths, 1.80× at 512"));
        assert_eq!(says(&[(512, 0.8), (4096, 0.9)]), "drafts pay at no depth that was measured");
        assert!(says(&[(512, 0.8)]).starts_with("too few"));
        let known = without_plain(&[(512, 2.5), (4096, 1.75)]);
        assert!(known.starts_with("2.50 tokens per round at 512 and 1.75 at 4096 tokens; whether"), "{known}");
        assert!(without_plain(&[(512, 2.5)]).starts_with("too few"));
    }
}
