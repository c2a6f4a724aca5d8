//! A report: settings, figures, and each turn with its text.

use std::io;

use draftscope_protocol::{Lane, RunSummary, VerifyRule, counted};
use draftscope_session::trace::Recording;
use draftscope_session::{PartStats, Session, Speedup, Turn, explain, text};

use super::atomic_file::Out;
use super::run_settings::{changed, rivals};

/// Formats one figure of a lane's summary.
type Figure<'a> = &'a dyn Fn(&RunSummary) -> String;

/// Most rejections listed per turn.
const REJECTS: usize = 8;

pub(super) fn write(session: &Session, recording: &Recording, out: Out<'_>) -> io::Result<()> {
    writeln!(out, "# A recording of speculative decoding\n")?;
    if let Some(header) = session.header() {
        let drafter = header.drafter.as_ref().map_or("none".to_owned(), |d| d.name.clone());
        let sha = |sha: Option<&String>| sha.map_or("not computed".to_owned(), Clone::clone);
        let s = &header.settings;
        let rows = [
            ("program", header.program.clone()),
            ("target", header.model.name.clone()),
            ("target sha256", sha(header.model.sha256.as_ref())),
            ("drafter", drafter),
            ("drafter sha256", sha(header.drafter.as_ref().and_then(|d| d.sha256.as_ref()))),
            (
                "device",
                format!("{}, {}, {}", header.device, header.backend, counted(header.threads as usize, "thread")),
            ),
            ("dtype", header.dtype.clone()),
            (
                "k, rule",
                match header.engine.is_some() && s.rule == VerifyRule::default() {
                    true => "set by the server".to_owned(),
                    false => format!(
                        "{}, {}{}",
                        s.asked_draft_len(),
                        s.rule,
                        if s.rule.is_lossless() { "" } else { " (not lossless)" }
                    ),
                },
            ),
            ("temperature, seed", format!("{}, {}", s.sampling.temperature, s.sampling.seed)),
            ("other changed settings", changed(header).unwrap_or_else(|| "none".to_owned())),
        ];
        writeln!(out, "| | |\n|---|---|")?;
        for (name, value) in rows {
            writeln!(out, "| {name} | {} |", cell(&value))?;
        }
    }
    if let Some(cut) = recording.cut() {
        writeln!(out, "\n**{cut}.**")?;
    }
    writeln!(out, "\n## In numbers\n")?;
    numbers(session, out)?;
    lenient(session, out)?;
    if let Some(finding) = session.stats(Lane::Speculative).evidence().sentence() {
        writeln!(out, "\n**{finding}.**")?;
    }
    for turn in session.turns() {
        self::turn(turn, out)?;
    }
    marks(session, out)
}

fn numbers(session: &Session, out: Out<'_>) -> io::Result<()> {
    let has_rival = session.stats(Lane::Rival).rounds() > 0;
    let lanes = [Lane::Speculative, Lane::Plain, Lane::Rival];
    let lanes = &lanes[..if has_rival { 3 } else { 2 }];
    let names = lanes.iter().map(|lane| format!(" {} |", lane.name())).collect::<String>();
    writeln!(out, "| |{names}\n|---|{}", "---|".repeat(lanes.len()))?;
    let runs: Vec<RunSummary> = lanes.iter().map(|lane| session.stats(*lane).summary()).collect();
    let number = |value: Option<f64>, digits: usize| value.map_or("–".to_owned(), |v| format!("{v:.digits$}"));
    let percent = |value: Option<f64>| value.map_or("–".to_owned(), |v| format!("{:.1} %", v * 100.0));
    let rows: [(&str, Figure); 5] = [
        ("rounds", &|s| s.rounds.to_string()),
        ("acceptance rate (accepted ÷ drafted)", &|s| percent(s.draft_acceptance_rate)),
        ("mean acceptance length (vLLM: 1 + accepted ÷ rounds that drafted)", &|s| {
            number(s.mean_acceptance_length, 2)
        }),
        ("drafter's share of the time", &|s| percent(s.draft_seconds.and_then(|seconds| share(seconds, s)))),
        ("target's share of the time", &|s| percent(s.verify_seconds.and_then(|seconds| share(seconds, s)))),
    ];
    for (name, value) in rows {
        let values = runs.iter().map(|run| format!(" {} |", value(run))).collect::<String>();
        writeln!(out, "| {name} |{values}")?;
    }
    let copies: Vec<_> = lanes.iter().map(|lane| session.stats(*lane).copies().acceptance_rate()).collect();
    if copies.iter().any(Option::is_some) {
        let values = copies.into_iter().map(|rate| format!(" {} |", percent(rate))).collect::<String>();
        writeln!(out, "| acceptance rate of copies (accepted ÷ drafted) |{values}")?;
    }
    if lanes.iter().any(|lane| session.stats(*lane).forced() > 0) {
        let values = lanes.iter().map(|lane| format!(" {} |", session.stats(*lane).forced())).collect::<String>();
        writeln!(out, "| drafts that the grammar forced |{values}")?;
    }
    let per_round = |lane: &Lane| format!(" {} |", number(session.stats(*lane).mean_tokens_per_round(), 2));
    writeln!(out, "| tokens per round (committed ÷ rounds) |{}", lanes.iter().map(per_round).collect::<String>())?;
    let speed = |lane: &Lane| format!(" {} |", number(session.tokens_per_second(*lane), 1));
    writeln!(out, "| tokens per second |{}", lanes.iter().map(speed).collect::<String>())?;
    let parts = lanes.iter().map(|lane| session.stats(*lane).thought_and_answer());
    let parts: Vec<_> = parts.collect();
    for (name, index) in [("thought", 0), ("answer", 1)].into_iter().filter(|_| parts.iter().any(Option::is_some)) {
        let rate = |parts: &Option<[PartStats; 2]>| percent(parts.and_then(|parts| parts[index].acceptance_rate()));
        let values = parts.iter().map(|parts| format!(" {} |", rate(parts))).collect::<String>();
        writeln!(out, "| acceptance rate in the {name} |{values}")?;
    }
    let blank = " |".repeat(lanes.len() - 1);
    let ratio = |speedup: Option<Speedup>| match speedup {
        Some(speedup) if speedup.is_disturbed() => format!("{speedup} (disturbed)"),
        Some(speedup) => speedup.to_string(),
        None => "–".to_owned(),
    };
    let speedup = session.speedup();
    writeln!(
        out,
        "| speedup (over all turns with the last one's settings, with its 95 % interval; the first of compare is its \
         warm-up) | {} |{blank}",
        ratio(speedup)
    )?;
    if has_rival {
        writeln!(out, "| against the rival | {} |{blank}", ratio(session.speedup_over(Lane::Rival)))?;
        writeln!(out, "\nThe rival: {}.", cell(&rivals(session)))?;
    }
    if let Some(note) = speedup.and_then(|speedup| speedup.note()) {
        writeln!(out, "\n{note}")?;
    }
    Ok(())
}

/// How many tokens a rule that is not lossless changed.
fn lenient(session: &Session, out: Out<'_>) -> io::Result<()> {
    let answers = || session.turns().iter().map(|turn| turn.answer(Lane::Speculative)).filter(|a| !a.is_lossless());
    let tokens: usize = answers().map(|answer| answer.tokens.len()).sum();
    let departures: usize = answers().map(|answer| answer.departures().count()).sum();
    if tokens > 0 {
        writeln!(
            out,
            "\nThe rule was not lossless: the target would not have picked {departures} of {tokens} tokens."
        )?;
    }
    Ok(())
}

fn share(part: f64, run: &RunSummary) -> Option<f64> {
    (run.decode_seconds > 0.0).then(|| part / run.decode_seconds)
}

fn turn(turn: &Turn, out: Out<'_>) -> io::Result<()> {
    let answer = turn.answer(Lane::Speculative);
    writeln!(out, "\n## Turn {}\n\nPrompt:\n", turn.number)?;
    fenced(&turn.typed, out)?;
    let (tokens, rounds) = (answer.tokens.len(), answer.stats().rounds() as usize);
    writeln!(out, "\nAnswer, {} in {}:\n", counted(tokens, "token"), counted(rounds, "round"))?;
    fenced(&answer.text(), out)?;
    let rejected = answer.rounds.iter().filter_map(|round| {
        let index =
            (0..round.drafts.len()).find(|i| round.outcome(*i) == Some(draftscope_protocol::Outcome::Rejected))?;
        Some((round, explain(round, index)?))
    });
    let rejected: Vec<_> = rejected.collect();
    if !rejected.is_empty() {
        writeln!(out, "\n{} rejections; the first ones:\n", rejected.len())?;
    }
    for (round, finding) in rejected.iter().take(REJECTS) {
        writeln!(out, "- round {}: {}", round.number(), escaped(&finding.text))?;
    }
    Ok(())
}

fn marks(session: &Session, out: Out<'_>) -> io::Result<()> {
    if session.marks().is_empty() {
        return Ok(());
    }
    writeln!(out, "\n## Notes and bookmarks\n")?;
    for mark in session.marks() {
        let place = mark.place.map_or(String::new(), |place| format!("{place}: "));
        let text = if mark.text.is_empty() { "bookmark" } else { mark.text.as_str() };
        writeln!(out, "- {place}{}", escaped(&text::one_line(text)))?;
    }
    Ok(())
}

/// Text between fences that are longer than any fence within it.
fn fenced(content: &str, out: Out<'_>) -> io::Result<()> {
    let content = text::printable(content);
    let longest = content.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest.max(2) + 1);
    writeln!(out, "{fence}text\n{}\n{fence}", content.trim_end_matches('\n'))
}

fn cell(value: &str) -> String {
    escaped(&text::one_line(value)).replace('|', "\\|")
}

/// Escapes the characters that Markdown, or HTML made from it, would act on.
fn escaped(value: &str) -> String {
    let mut out = String::new();
    for c in value.chars() {
        match c {
            '<' => out.push_str("&lt;"),
            '&' => out.push_str("&amp;"),
            '\\' | '`' | '*' | '_' | '[' | ']' => out.extend(['\\', c]),
            c => out.push(c),
        }
    }
    out
}
