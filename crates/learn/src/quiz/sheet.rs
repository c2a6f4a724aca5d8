//! Ten items to print: for a class as HTML or Markdown, with the answers as JSON for grading.

use std::fmt::Write as _;

use serde::Serialize;

use draftscope_protocol::Outcome;

use super::bank::bank;
use super::draw::{ITEMS, draw};
use super::item::{Item, reason};
use super::shown::{Answer, Shown, row_kind, row_text, word};
use super::statements::statements;

/// A printable quiz.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sheet {
    /// Items and answers, an object: see `docs/teaching.md`.
    pub json: String,
    /// Items without answers, a whole page.
    pub html: String,
    /// The same as Markdown.
    pub markdown: String,
}

#[derive(Serialize)]
struct Written<'a> {
    /// Gives the same items again.
    seed: u64,
    items: Vec<WrittenItem<'a>>,
    statements: Vec<WrittenStatement>,
}

#[derive(Serialize)]
struct WrittenItem<'a> {
    number: usize,
    id: &'a str,
    #[serde(flatten)]
    shown: &'a Shown,
    answer: &'a Answer,
    committed: String,
    reason: String,
}

#[derive(Serialize)]
struct WrittenStatement {
    text: String,
    judge: String,
    answer: &'static str,
    why: String,
    source: String,
    lesson: String,
    step: usize,
}

/// Ten items of the bank, chosen by a seed.
#[must_use]
pub fn sheet(seed: u64) -> Sheet {
    let items = draw(&bank(), &[], seed);
    let shown: Vec<Shown> = items.iter().map(Shown::of).collect();
    let markdown = markdown(&shown, seed);
    Sheet { json: json(&items, &shown, seed), html: html(&shown, seed), markdown }
}

fn json(items: &[Item], shown: &[Shown], seed: u64) -> String {
    let written = items.iter().zip(shown).enumerate().map(|(index, (item, shown))| WrittenItem {
        number: index + 1,
        id: &item.id,
        shown,
        answer: &shown.right,
        committed: shown.choices.get(shown.right.committed).map_or(String::new(), ToString::to_string),
        reason: reason(item),
    });
    let statements = statements().into_iter().map(|statement| WrittenStatement {
        text: statement.text,
        judge: statement.judge,
        answer: statement.answer.name(),
        why: statement.why,
        source: statement.source,
        lesson: statement.lesson,
        step: statement.step,
    });
    let all = Written { seed, items: written.collect(), statements: statements.collect() };
    serde_json::to_string_pretty(&all).unwrap_or_default()
}

/// The words for marks, in the order in which they are printed.
const MARKS: [Outcome; 3] = [Outcome::Accepted, Outcome::Rejected, Outcome::NotReached];

const INTRODUCTION: &str = "Mark every draft as accepted, rejected or not reached, and say what the target adds after \
    the accepted drafts. An item counts if all of it is right. q: the drafter's probability. p: the target's. u: a \
    number drawn from 0 to 1; a token whose draws contain it is picked.";

/// Where a row stands, in words.
fn row_name(shown: &Shown, row: usize) -> String {
    match row.checked_sub(1).and_then(|draft| shown.drafts.get(draft)) {
        None => "after the text".to_owned(),
        Some(draft) => format!("after draft {row} {}", draft.token),
    }
}

/// A draft with its numbers.
fn draft_text(shown: &Shown, index: usize) -> String {
    let draft = &shown.drafts[index];
    let mut text = format!("{} {}", index + 1, draft.token);
    if shown.is_tree {
        text.push_str(&format!(", {}", row_name(shown, draft.row)));
    }
    if let Some(q) = draft.q {
        text.push_str(&format!(": q {q}"));
    }
    text.push_str(&format!(", p {}", draft.p));
    if let Some(u) = draft.u {
        text.push_str(&format!(", u {u}"));
    }
    text
}

/// Characters of Markdown that a token may not use.
fn escaped(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        if "\\`*_{}[]<>#|&".contains(c) {
            out.push('\\');
        }
        out.push(c);
    }
    out
}

fn markdown(items: &[Shown], seed: u64) -> String {
    let mut text = format!("# Ten rounds to judge\n\n{INTRODUCTION}\n\nSheet {seed}\n");
    for (index, shown) in items.iter().enumerate() {
        let _ = write!(text, "\n## {}. {}\n\n", index + 1, escaped(&shown.settings));
        let _ = write!(text, "Prompt: {}\n\nAnswer so far: {}\n\n", escaped(&shown.prompt), escaped(&shown.context));
        for row in 0..shown.rows.len() {
            let _ = writeln!(
                text,
                "- {} {}: {}",
                row_kind(shown, row),
                escaped(&row_name(shown, row)),
                escaped(&row_text(shown, row, " | "))
            );
        }
        text.push('\n');
        for draft in 0..shown.drafts.len() {
            let boxes = MARKS.map(|mark| format!("□ {}", word(mark))).join("  ");
            let _ = writeln!(text, "- Draft {}: {boxes}", escaped(&draft_text(shown, draft)));
        }
        if let Some(u) = shown.next_u {
            let _ = write!(text, "\nThe draw for the token after the drafts: u {u}\n");
        }
        text.push_str("\nThe target adds:\n\n");
        for choice in &shown.choices {
            let _ = writeln!(text, "- □ {}", escaped(&choice.to_string()));
        }
    }
    text
}

/// Text for HTML.
fn safe(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

const STYLE: &str = "body{font:15px/1.4 system-ui,sans-serif;max-width:50em;margin:2em auto;padding:0 1em}\
    section{break-inside:avoid;border-top:1px solid #888;padding:.5em 0}\
    table{border-collapse:collapse;margin:.5em 0}td,th{border:1px solid #888;padding:.15em .5em;text-align:left}\
    .t{font-family:ui-monospace,monospace;white-space:pre-wrap}h2{font-size:1.05em}";

fn html(items: &[Shown], seed: u64) -> String {
    let mut page = format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>Ten rounds to judge</title><style>{STYLE}</style>\
         <h1>Ten rounds to judge</h1><p>{INTRODUCTION}</p><p>Sheet {seed} · Name: ____________________</p>"
    );
    for (index, shown) in items.iter().enumerate() {
        let _ = write!(page, "<section><h2>{}. {}</h2>", index + 1, safe(&shown.settings));
        let _ = write!(page, "<p>Prompt: <span class=\"t\">{}</span></p>", safe(&shown.prompt));
        let _ = write!(page, "<p>Answer so far: <span class=\"t\">{}</span></p><table>", safe(&shown.context));
        for row in 0..shown.rows.len() {
            let (name, text) = (safe(&row_name(shown, row)), safe(&row_text(shown, row, " | ")));
            let _ = write!(page, "<tr><th>{} {name}</th><td class=\"t\">{text}</td></tr>", row_kind(shown, row));
        }
        page.push_str("</table><table>");
        for draft in 0..shown.drafts.len() {
            let boxes = MARKS.map(|mark| format!("<td>□ {}</td>", word(mark))).join("");
            let _ = write!(page, "<tr><th class=\"t\">draft {}</th>{boxes}</tr>", safe(&draft_text(shown, draft)));
        }
        page.push_str("</table>");
        if let Some(u) = shown.next_u {
            let _ = write!(page, "<p>The draw for the token after the drafts: u {u}</p>");
        }
        let choices: Vec<_> = shown.choices.iter().map(|choice| format!("□ {}", safe(&choice.to_string()))).collect();
        let _ = write!(page, "<p class=\"t\">The target adds:  {}</p></section>", choices.join("   "));
    }
    page.push_str("</html>\n");
    debug_assert!(items.len() <= ITEMS);
    page
}
