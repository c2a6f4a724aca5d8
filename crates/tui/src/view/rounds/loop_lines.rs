//! The loop of speculative decoding in ten lines, beside the round that runs: the lines of the phase are lit, and what has
//! happened stands beside them.
//!
//! Invariant: a line shows what an event of this round said, or nothing; the lines are those of one round in the source
//! files that they name.

use draftscope_protocol::{NextKind, Outcome, VerifyRule};
use draftscope_session::Phase;

use crate::view::prelude::*;
use crate::view::values::duration;

/// Height of the panel.
pub(in crate::view) const HEIGHT: u16 = LINES.len() as u16 + FRAME;

/// Width of the lines, numbers included.
const CODE: usize = 54;

/// Width from which on the source stands at the right.
const WITH_SOURCE: usize = 110;

/// A line of the loop.
struct CodeLine {
    text: &'static str,
    phase: Phase,
    /// The file that does it, and what to look for there.
    source: [&'static str; 2],
    /// What the round has shown of it.
    value: fn(Screen, &Round) -> String,
}

const DECODER: &str = "crates/engine/src/speculate/decoder.rs";
const DRAFTER: &str = "crates/engine/src/speculate/drafter/mod.rs";
const RULES: &str = "crates/protocol/src/verify/walk.rs";

const LINES: [CodeLine; 10] = [
    line("drafts = []", Phase::Drafting, [DECODER, "fn round"], |_, round| format!("k = {}", round.draft_len())),
    line("while len(drafts) < k:", Phase::Drafting, [DRAFTER, "fn left"], drafted),
    line("    drafts += pick(drafter(text + drafts))", Phase::Drafting, [DRAFTER, "fn propose"], newest_draft),
    line("p = target(text + drafts)      # ONE pass", Phase::Verifying, [DECODER, "fn run_target"], passed),
    line("kept = 0", Phase::Judging, [RULES, "fn verify"], |_, _| String::new()),
    line("while kept < k and accept(drafts[kept], p[kept]):", Phase::Judging, [RULES, "fn choose"], accepts),
    line("    kept += 1", Phase::Judging, [RULES, "fn step"], kept),
    line("next = pick(p[kept])", Phase::Judging, [RULES, "fn verify"], next),
    line("caches.cut(text + drafts[:kept])", Phase::Committing, [DECODER, "target.truncate"], cut_off),
    line("text += drafts[:kept] + [next]", Phase::Committing, [DECODER, "committed.extend"], committed),
];

const fn line(
    text: &'static str,
    phase: Phase,
    source: [&'static str; 2],
    value: fn(Screen, &Round) -> String,
) -> CodeLine {
    CodeLine { text, phase, source, value }
}

pub(in crate::view) fn render(screen: Screen, area: Rect, frame: &mut Frame) {
    // the first token comes from the prompt's pass, which is no round of the loop
    let round = screen.app.round(screen.session).filter(|round| round.number() > 0);
    let title = match round {
        Some(round) => format!(" The loop, in round {} ", round.number()),
        None => " The loop ".to_owned(),
    };
    let inner = framed(screen.panel(title), area, frame);
    // what runs stays in sight where not all lines fit
    let lit = LINES.iter().position(|line| is_lit(screen, round, line)).unwrap_or(0);
    let room = usize::from(inner.height).min(LINES.len());
    let first = lit.saturating_sub(room / 3).min(LINES.len() - room);
    let rows = LINES.iter().enumerate().skip(first).take(room);
    put(rows.map(|(index, line)| row(screen, round, (index, line), inner.width.into())).collect(), inner, frame);
}

/// Whether the line runs at the shown moment.
fn is_lit(screen: Screen, round: Option<&Round>, line: &CodeLine) -> bool {
    let is_now = round.is_some_and(|round| !round.is_complete()) && screen.app.place.selected.is_none();
    is_now && screen.session.phase(Lane::Speculative) == line.phase
}

fn row(screen: Screen, round: Option<&Round>, (index, line): (usize, &CodeLine), width: usize) -> Line<'static> {
    let is_lit = is_lit(screen, round, line);
    let value = round.map_or(String::new(), |round| (line.value)(screen, round));
    let sign = if is_lit { "▸" } else { " " };
    let role = match (is_lit, value.is_empty()) {
        (true, _) => Role::StatusActive,
        (false, false) => Role::TextStrong,
        (false, true) => Role::Text,
    };
    let code = fit(&format!("{sign}{:>2}  {}", index + 1, line.text), CODE.min(width));
    let rest = width.saturating_sub(CODE + 1);
    let [file, name] = line.source;
    let source = format!("{} · {name}", file.rsplit_once("src/").map_or(file, |(_, file)| file));
    let source = if width >= WITH_SOURCE { source } else { String::new() };
    let room = rest.saturating_sub(source.width() + usize::from(!source.is_empty()));
    Line::from(vec![
        Span::styled(code, screen.theme[role]),
        Span::raw(" "),
        Span::styled(fit(&value, room), screen.theme[Role::Text]),
        Span::raw(" "),
        Span::styled(source, screen.theme[Role::TextDim]),
    ])
}

fn drafted(_: Screen, round: &Round) -> String {
    let ended = if round.stopped.is_some() { ", ended by p-min" } else { "" };
    match round.drafts.len() {
        0 if round.rows().is_empty() => String::new(),
        drafts => format!("{drafts} of {}{ended}", round.draft_len()),
    }
}

fn newest_draft(_: Screen, round: &Round) -> String {
    let Some(draft) = round.drafts.last() else { return String::new() };
    let q = draft.q.map_or(String::new(), |q| format!(", q {q:.2}"));
    format!("{}{q}", text::quoted(&draft.token))
}

fn passed(_: Screen, round: &Round) -> String {
    let rows = match round.rows().len() {
        0 => return String::new(),
        rows => counted(rows, "row"),
    };
    if round.verify_us() > 0 { format!("{rows}: {}", duration(round.verify_us())) } else { rows }
}

/// What the rule asks.
fn accepts(_: Screen, round: &Round) -> String {
    if round.rows().is_empty() {
        return String::new();
    }
    match round.judged_by() {
        VerifyRule::Exact => "the target's own pick?".to_owned(),
        VerifyRule::Rejection => "rejection: u < p ÷ q?".to_owned(),
        VerifyRule::Block => "block: the longest run".to_owned(),
        rule => format!("{rule}: {}", rule.label()),
    }
}

fn kept(_: Screen, round: &Round) -> String {
    if round.verdict.is_none() || round.drafts.is_empty() {
        return String::new();
    }
    let rejected = (0..round.drafts.len()).find(|index| round.outcome(*index) == Some(Outcome::Rejected));
    let end = rejected.map_or(String::new(), |index| format!("; ✗ {}", text::quoted(&round.drafts[index].token)));
    format!("{} of {}{end}", round.accepted(), round.drafts.len())
}

fn next(_: Screen, round: &Round) -> String {
    let Some((kind, piece)) = round.next_kind().zip(round.next_piece()) else { return String::new() };
    let why = match kind {
        NextKind::Recovered => "recovered",
        NextKind::Bonus => "bonus",
    };
    format!("{}, {why}", text::quoted(&piece))
}

fn cut_off(_: Screen, round: &Round) -> String {
    if !round.is_complete() {
        return String::new();
    }
    match round.drafts.len() - round.accepted() {
        0 => "nothing to remove".to_owned(),
        rows => format!("{} removed", counted(rows, "row")),
    }
}

fn committed(_: Screen, round: &Round) -> String {
    match round.committed().len() {
        0 => String::new(),
        tokens => format!("{}, from one pass", counted(tokens, "token")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The loop of a lesson must not name what is no longer there.
    #[test]
    fn every_line_is_in_the_file_that_it_names() {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        for line in &LINES {
            let [file, name] = line.source;
            let source = std::fs::read_to_string(root.join(file)).unwrap();
            assert!(source.contains(name), "{file} has no {name}: {}", line.text);
            assert!(line.text.width() + 5 <= CODE, "{}", line.text);
        }
    }
}
