//! Compares the lanes of a turn: a bar each on the measured clocks, their figures, and how far they agree.
//!
//! Invariant: each lane has its own clock, and the bars show what each had written after the same time on it; a number
//! that a lane did not measure is a dash.

use std::cmp::Ordering;

use draftscope_protocol::{Baseline, Piece, VerifyRule};
use draftscope_session::{Agreement, NEAR_TIE, Race, Side};

use crate::view::compare::agreement::{Promise, promise, tokens};
use crate::view::compare::aligned;
use crate::view::prelude::*;
use crate::view::speed::hero;
use crate::view::values::{duration, number, role_of};

/// Width of the captions and of the numbers.
const NAME: usize = 12;
const VALUE: usize = 10;

/// Least and greatest width of a bar.
const BAR: (usize, usize) = (16, 60);

/// Width from which on it is said that the speedup is still being measured.
const WITH_NOTE: u16 = 90;

/// Least height with its frame, so that the panel does not grow with the first tokens.
const LEAST: u16 = 7;

/// Height with its frame.
pub(in crate::view) fn height(screen: Screen, width: u16) -> u16 {
    let lines = screen.turn().map_or(0, |turn| table(screen, turn, width.saturating_sub(2)).len());
    u16::try_from(lines).unwrap_or(u16::MAX).saturating_add(FRAME).max(LEAST)
}

pub(in crate::view) fn render(screen: Screen, area: Rect, frame: &mut Frame) {
    let figure = hero::in_title(screen, area.width / 2);
    let title = title(screen, area.width.saturating_sub(figure.width() as u16 + 1));
    let inner = framed(screen.panel(title).title_right(figure), area, frame);
    let Some(turn) = screen.turn().filter(|_| !inner.is_empty()) else {
        let (race, versus) = (screen.app.key(Action::ToggleSplit), screen.app.key(Action::Versus));
        let text = format!(
            "Send a prompt in Chat. Plain decoding then runs to its end here; {race} races it beside the next turns, \
             {versus} races other settings of your choice."
        );
        put(wrapped(&text, inner.width, screen.theme[Role::TextDim]), inner, frame);
        return;
    };
    put(table(screen, turn, inner.width), inner, frame);
}

fn title(screen: Screen, width: u16) -> String {
    let Some(turn) = screen.turn() else { return " Compare ".to_owned() };
    let typed = text::one_line(&turn.typed);
    cut(&format!(" Turn {}: {typed} ", turn.number), width.saturating_sub(2).into())
}

fn table(screen: Screen, turn: &Turn, width: u16) -> Vec<Line<'static>> {
    let lanes = aligned::lanes(screen, width.saturating_add(2));
    let race = turn.race(&lanes);
    let names = ["tokens", "tokens/s", "clock", "tok/round", "accepted", "prefill"];
    let room = usize::from(width).saturating_sub(NAME + BAR.0 + 2);
    let columns = (room / VALUE).min(names.len());
    let bar = (usize::from(width).saturating_sub(NAME + 2 + columns * VALUE)).min(BAR.1);
    let cells = |values: &[String], role: Role| -> Vec<Span<'static>> {
        values.iter().take(columns).map(|value| Span::styled(fit(value, VALUE), screen.theme[role])).collect()
    };
    let mut head = vec![Span::raw(" ".repeat(NAME + bar + 2))];
    head.extend(cells(&names.map(str::to_owned), Role::TextDim));
    let mut lines = vec![Line::from(head)];
    for lane in &lanes {
        let role = if *lane == Lane::Speculative { Role::PlotSpeculative } else { Role::PlotPlain };
        let mut spans = vec![Span::styled(fit(name(&lanes, *lane), NAME), screen.theme[role])];
        spans.extend(progress(screen, turn, &lanes, (*lane, race), bar));
        spans.extend(cells(&figures(turn, *lane), Role::TextStrong));
        lines.push(Line::from(spans));
    }
    let beside: Vec<Lane> = lanes.iter().copied().filter(|lane| *lane != Lane::Speculative).collect();
    for lane in &beside {
        lines.extend(ratio(screen, turn, (&lanes, *lane), width));
    }
    if let Some(race) = race {
        let ahead = wrapped(&ahead(&lanes, race), width, screen.theme[Role::Text]);
        lines.extend(ahead);
    }
    let runs_on = |lane: Lane| {
        let answer = turn.answer(lane);
        !answer.tokens.is_empty() && answer.finished.is_none()
    };
    let has_room = width >= WITH_NOTE;
    if has_room && turn.answer(Lane::Speculative).finished.is_some() && runs_on(Lane::Plain) {
        let text = "plain decoding runs on to its end here, which measures the speedup anew";
        lines.extend(wrapped(text, width, screen.theme[Role::TextDim]));
    }
    for lane in &beside {
        lines.extend(agreement(screen, turn, (&lanes, *lane), width));
    }
    lines
}

/// The name of a lane: with a rival, the run's own is "yours".
fn name(lanes: &[Lane], lane: Lane) -> &'static str {
    match lane {
        Lane::Speculative if lanes.contains(&Lane::Rival) => "yours",
        lane => lane.name(),
    }
}

/// The names of the run's own lane and another one in sentences.
fn names(lanes: &[Lane], beside: Lane) -> (&'static str, &'static str) {
    (name(lanes, Lane::Speculative), if beside == Lane::Rival { "the rival" } else { "plain" })
}

/// What a lane had written by the time of the race, what it has written since, and what the longest one has.
fn progress(
    screen: Screen,
    turn: &Turn,
    lanes: &[Lane],
    (lane, race): (Lane, Option<Race>),
    width: usize,
) -> Vec<Span<'static>> {
    let written = |lane: &Lane| turn.answer(*lane).tokens.len();
    let most = lanes.iter().map(written).max().unwrap_or(0).max(1);
    let cells = |tokens: usize| (tokens * width).div_ceil(most).min(width);
    let all = cells(written(&lane));
    let then = race.map_or(0, |race| cells(race.written[lane.index()])).min(all);
    let role = if lane == Lane::Speculative { Role::PlotSpeculative } else { Role::PlotPlain };
    vec![
        Span::styled("█".repeat(then), screen.theme[role]),
        Span::styled("▒".repeat(all - then), screen.theme[role]),
        Span::styled("┈".repeat(width - all), screen.theme[Role::PlotRest]),
        Span::raw("  "),
    ]
}

/// Who is ahead after the same time on their clocks, and by how many tokens.
fn ahead(lanes: &[Lane], race: Race) -> String {
    let first = name(lanes, Lane::Speculative);
    let own = race.written[Lane::Speculative.index()];
    let (mut ahead, mut others) = (Vec::new(), Vec::new());
    for lane in lanes.iter().filter(|lane| **lane != Lane::Speculative) {
        let other = race.written[lane.index()];
        let name = names(lanes, *lane).1;
        match own.cmp(&other) {
            Ordering::Greater => ahead.push(format!("{} ahead of {name}", tokens(own - other))),
            Ordering::Less => others.push(format!("{name} is {} ahead of {first}", tokens(other - own))),
            Ordering::Equal => others.push(format!("{first} and {name} are level")),
        }
    }
    if !ahead.is_empty() {
        others.insert(0, format!("{first} is {}", ahead.join(" and ")));
    }
    format!("after {} on each clock: {}", duration(race.at_us), others.join("; "))
}

fn figures(turn: &Turn, lane: Lane) -> Vec<String> {
    let answer = turn.answer(lane);
    let stats = answer.stats();
    let percent = number(stats.acceptance_rate().map(|rate| rate * 100.0), 0);
    vec![
        answer.tokens.len().to_string(),
        number(turn.tokens_per_second(lane), 1),
        duration(turn.decode_us(lane)),
        number(stats.mean_tokens_per_round(), 2),
        if stats.drafted() > 0 { format!("{percent} %") } else { "–".to_owned() },
        if answer.prefill_us > 0 { duration(answer.prefill_us) } else { "–".to_owned() },
    ]
}

/// How fast the run's own lane is against one beside, wherever both were timed: with its interval where there are enough
/// measurements for one, else the quotient of the two speeds above.
fn ratio(screen: Screen, turn: &Turn, (lanes, beside): (&[Lane], Lane), width: u16) -> Vec<Line<'static>> {
    let (own, other) = names(lanes, beside);
    let own = if own == "yours" { "your settings are" } else { "speculative is" };
    let (before, number, after, role) = match turn.speedup_over(beside) {
        Some(speedup) if beside == Lane::Rival && speedup.against_one() == Ordering::Less => {
            ("the rival is", speedup.inverse().to_string(), " as fast as your settings".to_owned(), role_of(&speedup))
        }
        Some(speedup) => (own, speedup.to_string(), format!(" as fast as {other}"), role_of(&speedup)),
        None => {
            let speeds = turn.tokens_per_second(Lane::Speculative).zip(turn.tokens_per_second(beside));
            let Some((fast, slow)) = speeds else { return Vec::new() };
            let why = format!(" as fast as {other} by their clocks (too few measurements for an interval)");
            (own, format!("{:.2}×", fast / slow), why, Role::Text)
        }
    };
    let mut flow = Flow::new(width);
    flow.push(before, screen.theme[role]);
    flow.push(&format!(" {number} "), screen.hero_style(role));
    flow.push(after.trim_start(), screen.theme[role]);
    let mut lines = flow.finish();
    let note = turn.speedup_over(beside).and_then(|speedup| speedup.note());
    lines.extend(note.map(|note| wrapped(note, width, screen.theme[Role::TextDim])).unwrap_or_default());
    lines
}

/// How long the run's own lane and one beside wrote the same.
fn agreement(screen: Screen, turn: &Turn, (lanes, beside): (&[Lane], Lane), width: u16) -> Vec<Line<'static>> {
    let mut lines = Vec::new();
    let Some(agreement) = turn.agreement_with(beside) else {
        let text = match beside {
            Lane::Rival => "the rival has not begun in this turn",
            _ if screen.engine().is_some() && screen.session.settings().baseline == Baseline::Off => {
                "no plain text to compare with: --plain-url names a server without speculation"
            }
            _ => "plain decoding has not run in this turn",
        };
        lines.extend(wrapped(text, width, screen.theme[Role::TextDim]));
        return lines;
    };
    let (text, role) = words(turn, lanes, beside, &agreement);
    lines.extend(wrapped(&text, width, screen.theme[role]));
    lines
}

/// Whether the lanes agree, or where and why they differ.
fn words(turn: &Turn, lanes: &[Lane], beside: Lane, agreement: &Agreement) -> (String, Role) {
    let (own, other) = names(lanes, beside);
    let count = agreement.identical;
    let Some(differs) = &agreement.divergence else {
        let to = if lanes.len() > 2 { format!(" to {other}") } else { String::new() };
        let all = if agreement.is_final { ": all" } else { " so far:" };
        return (format!("identical{to}{all} {}", tokens(count)), Role::Good);
    };
    let name = |piece: &Option<Piece>| piece.as_ref().map_or("the end".to_owned(), text::quoted);
    let (fast, slow) = (name(&differs.speculative), name(&differs.beside));
    let (why, role) = match promise(turn, beside) {
        Promise::Text => (margin(turn, beside, differs.index), Role::Warning),
        Promise::Law => ("; sampled, so only the distribution is the same".to_owned(), Role::TextDim),
        Promise::Rules => ("; drawn by another rule, so only the distribution is the same".to_owned(), Role::TextDim),
        Promise::Other => ("; at another temperature".to_owned(), Role::TextDim),
        Promise::Lossy(rule) => (lossy(turn, beside, rule), Role::Warning),
    };
    (format!("identical for {}, then {other} wrote {slow}, {own} {fast}{why}", tokens(count)), role)
}

/// How close the target's two best tokens were at an unexpected difference.
fn margin(turn: &Turn, beside: Lane, index: usize) -> String {
    let side = |lane| Side::at(turn.answer(lane), index).and_then(|side| side.margin);
    match side(beside).or_else(|| side(Lane::Speculative)) {
        Some(margin) if margin < NEAR_TIE => {
            format!("; a near tie: the two best tokens were {margin:.3} apart in probability")
        }
        Some(margin) => format!(
            "; no near tie: the two best tokens were {margin:.3} apart; draftscope verify-identity looks for the cause"
        ),
        None => String::new(),
    }
}

/// How far a lossy rule has led from the text.
fn lossy(turn: &Turn, beside: Lane, rule: VerifyRule) -> String {
    let departures = [Lane::Speculative, beside].map(|lane| turn.answer(lane).departures());
    let taken: usize = departures.into_iter().map(Iterator::count).sum();
    let differing = turn.differing_from(beside).unwrap_or(0);
    format!(
        "; {rule} is not lossless: {taken} draft{} accepted that the target would not have picked, {differing} place{} differ{}",
        if taken == 1 { "" } else { "s" },
        if differing == 1 { "" } else { "s" },
        if differing == 1 { "s" } else { "" },
    )
}
