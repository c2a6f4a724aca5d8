//! `draftscope diff`: two recordings, token by token.

use std::fmt::Write as _;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Result, bail};
use draftscope::cli::DiffArgs;
use draftscope::host::config::UserFiles;
use draftscope::protocol::{FIRST_DIGESTED, Lane, RunSummary, counted};
use draftscope::session::text::{one_line, quoted};
use draftscope::session::trace::Events;
use draftscope::session::{Diff, FirstDifference, Session, Side, TurnDiff};
use draftscope::tui::{Compared, Recorded};

use super::progress::ReadingBar;

/// Formats a figure of the first or second recording.
type Figure<'a> = &'a dyn Fn(usize) -> String;

/// Exit status when tokens differ.
const DIFFERENT: u8 = 1;

pub(crate) fn run(args: &DiffArgs, files: &UserFiles) -> Result<ExitCode> {
    if args.tui && !super::terminal::can_draw() {
        bail!("--tui needs a terminal; without it the difference is written as text");
    }
    if [&args.a, &args.b].iter().all(|path| path.as_os_str() == "-") {
        bail!("standard input gives only one recording; name a file for the other");
    }
    let (a, b) = (fold(&args.a)?, fold(&args.b)?);
    for (path, session) in [(&args.a, &a), (&args.b, &b)] {
        if is_digested(session) {
            bail!(
                "{} has digests in place of text, so its tokens cannot be compared with another recording's; \
                 compare recordings made with --trace-text full",
                path.display()
            );
        }
    }
    let diff = Diff::of(&a, &b);
    if args.tui {
        let side = |path: &Path, session| Recorded { name: path.display().to_string(), session };
        Compared::new(side(&args.a, a), side(&args.b, b), super::terminal::look(&args.look, files)).run()?;
    } else if args.json {
        super::output::print_json(&diff)?;
    } else {
        io::stdout().lock().write_all(report(&diff).as_bytes())?;
    }
    Ok(if diff.is_same() { ExitCode::SUCCESS } else { ExitCode::from(DIFFERENT) })
}

/// Whether tokens of a recording are numbers of its own (`--trace-text digest`).
fn is_digested(session: &Session) -> bool {
    let answers = session.turns().iter().map(|turn| turn.answer(Lane::Speculative));
    let ids = answers.flat_map(|answer| answer.prompt.iter().chain(answer.tokens.iter().map(|token| &token.piece.id)));
    ids.into_iter().any(|id| *id >= FIRST_DIGESTED && !id.is_unknown())
}

fn fold(path: &Path) -> Result<Session> {
    let mut session = Session::new();
    let mut events = Events::open(path)?;
    let mut progress = ReadingBar::new(format!("reading {}", path.display()));
    while let Some(event) = events.next() {
        session.apply(&event?);
        if session.events().is_multiple_of(4096) {
            progress.at(events.share());
        }
    }
    drop(progress);
    if let Some(cut) = events.cut() {
        super::output::say(&format!("{}: {cut}", path.display()));
    }
    Ok(session)
}

fn report(diff: &Diff) -> String {
    let mut out = String::new();
    let mut line = |text: String| {
        let _ = writeln!(out, "{text}"); // writing to a String cannot fail
    };
    for (name, a, b) in &diff.differs_in {
        line(format!("{name:<22} {:<24} {}", one_line(a), one_line(b)));
    }
    line(format!("{:<22} {:<24} second", "", "first"));
    let number = |value: Option<f64>, digits: usize| value.map_or("–".to_owned(), |v| format!("{v:.digits$}"));
    let rows: [(&str, Figure); 5] = [
        ("rule is lossless", &|i| if diff.lossless[i] { "yes".into() } else { "no".into() }),
        ("rounds", &|i| diff.runs[i].rounds.to_string()),
        ("accepted ÷ drafted", &|i| number(diff.runs[i].draft_acceptance_rate, 3)),
        ("tokens per round", &|i| number(diff.tokens_per_round[i], 2)),
        ("tokens per second", &|i| number(diff.runs[i].tokens_per_second, 1)),
    ];
    let shown = if diff.lossless == [true; 2] { &rows[1..] } else { &rows };
    for (name, value) in shown {
        line(format!("{name:<22} {:<24} {}", value(0), value(1)));
    }
    by_position(&diff.runs).into_iter().for_each(&mut line);
    if let Some(ratio) = diff.speed_ratio {
        line(format!("second ÷ first         {ratio:.2}× in tokens per second"));
    }
    for (name, finding) in ["first", "second"].iter().zip(&diff.contradictions) {
        if let Some(finding) = finding {
            line(format!("{name}: {finding}"));
        }
    }
    for turn in &diff.turns {
        line(verdict(turn));
        if let Some(difference) = &turn.divergence {
            sides(difference).into_iter().for_each(&mut line);
        }
    }
    if diff.unpaired_turns > 0 {
        let count = diff.unpaired_turns;
        let turns = if count == 1 { "turn is" } else { "turns are" };
        line(format!("{count} {turns} in only one of the recordings"));
    }
    out
}

/// The positions of a draft at which acceptance differs, a line each.
fn by_position(runs: &[RunSummary; 2]) -> Vec<String> {
    let share = |run: &RunSummary, at: usize| {
        let (offered, accepted) = (*run.offered_per_pos.get(at)?, *run.accepted_per_pos.get(at)?);
        (offered > 0).then(|| format!("{:.1} % of {offered}", accepted as f64 / offered as f64 * 100.0))
    };
    let positions = runs.iter().map(|run| run.offered_per_pos.len()).max().unwrap_or(0);
    let lines = (0..positions).filter_map(|at| {
        let [a, b] = [&runs[0], &runs[1]].map(|run| share(run, at).unwrap_or_else(|| "–".to_owned()));
        (a != b).then(|| format!("{:<22} {a:<24} {b}", format!("accepted, position {}", at + 1)))
    });
    lines.collect()
}

fn verdict(turn: &TurnDiff) -> String {
    let prompt = if turn.same_prompt { "" } else { " (the prompts differ)" };
    let [a, b] = turn.tokens;
    match &turn.divergence {
        _ if turn.is_same() => format!("turn {}: identical, {}{prompt}", turn.turn, counted(a, "token")),
        Some(difference) => {
            let tie = if difference.near_tie { ", a near tie" } else { "" };
            format!("turn {}: first difference at token {}{tie}{prompt}", turn.turn, difference.index + 1)
        }
        None => format!(
            "turn {}: they agree in {}, then one ends ({a} and {b}){prompt}",
            turn.turn,
            counted(turn.identical, "token")
        ),
    }
}

fn sides(difference: &FirstDifference) -> Vec<String> {
    ["first", "second"].iter().zip(&difference.sides).map(|(name, side)| self::side(name, side)).collect()
}

fn side(name: &str, side: &Side) -> String {
    let top: Vec<String> = side.top.iter().map(|c| format!("{} {:.4}", quoted(&c.piece), c.prob)).collect();
    let margin = side.margin.map_or(String::new(), |m| format!(", margin {m:.4}"));
    format!("  {name:<7} round {:<4} took {}; best {}{margin}", side.round, quoted(&side.token), top.join(", "))
}
