//! The lanes of a turn in numbers, side by side, and how long they wrote the same.
//!
//! Invariant: each lane has its own clock; a number that a lane did not measure is a dash.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;

use crate::protocol::{Lane, VerifyRule};
use crate::session::{Turn, text};
use crate::tui::action::Action;
use crate::tui::theme::Role;
use crate::tui::widgets::cell::fit;
use crate::tui::widgets::flow::wrapped;

use super::agreement::{Promise, promise, tokens};
use super::screen::Screen;
use super::values::{duration, number, role_of};

/// Width of the captions and of the numbers.
const NAME: usize = 12;
const VALUE: usize = 10;

/// Least height with its frame, so that the panel does not grow with the first tokens.
const LEAST: u16 = 8;

/// Height with its frame.
pub(super) fn height(screen: Screen, width: u16) -> u16 {
    let lines = screen.turn().map_or(0, |turn| table(screen, turn, width.saturating_sub(2)).len());
    u16::try_from(lines).unwrap_or(u16::MAX).saturating_add(2).max(LEAST)
}

pub(super) fn render(screen: Screen, area: Rect, frame: &mut Frame) {
    let title = match screen.beside() {
        Lane::Rival => " Your settings against the rival's, this turn ",
        _ => " Plain against speculative, this turn ",
    };
    let block = screen.panel(title);
    let inner = block.inner(area);
    frame.render_widget(block, area);
    let Some(turn) = screen.turn().filter(|_| !inner.is_empty()) else {
        let (race, versus) = (screen.app.key(Action::ToggleSplit), screen.app.key(Action::Versus));
        let text = format!(
            "Send a prompt in Chat. {race} asks for the plain lane to run to its end beside the next turns, {versus} \
             for other settings of your choice."
        );
        frame.render_widget(Paragraph::new(wrapped(&text, inner.width, screen.theme[Role::TextDim])), inner);
        return;
    };
    frame.render_widget(Paragraph::new(table(screen, turn, inner.width)), inner);
}

fn table(screen: Screen, turn: &Turn, width: u16) -> Vec<Line<'static>> {
    let names = ["", "tokens", "tokens/s", "clock", "tok/round", "accepted", "prefill"];
    let columns = (usize::from(width).saturating_sub(NAME) / VALUE).min(names.len() - 1);
    let row = |values: &[String], role: Role| {
        let mut spans = vec![Span::styled(fit(&values[0], NAME), screen.theme[Role::TextDim])];
        let cells = values[1..].iter().take(columns);
        spans.extend(cells.map(|value| Span::styled(fit(value, VALUE), screen.theme[role])));
        Line::from(spans)
    };
    let heads: Vec<String> = names.map(str::to_owned).to_vec();
    let mut lines = vec![row(&heads, Role::TextDim)];
    let races = screen.beside() == Lane::Rival;
    if !races || !turn.answer(Lane::Plain).tokens.is_empty() {
        lines.push(row(&lane(turn, Lane::Plain, "plain"), Role::PlotPlain));
    }
    if races {
        lines.push(row(&lane(turn, Lane::Rival, "rival"), Role::PlotPlain));
    }
    lines.push(row(&lane(turn, Lane::Speculative, if races { "yours" } else { "speculative" }), Role::PlotSpeculative));
    if races {
        lines.extend(verdict(screen, turn, Lane::Rival, width));
    }
    if !races || turn.speedup().is_some() {
        lines.extend(verdict(screen, turn, Lane::Plain, width));
    }
    lines
}

fn lane(turn: &Turn, lane: Lane, name: &str) -> Vec<String> {
    let answer = turn.answer(lane);
    let stats = answer.stats();
    let percent = number(stats.acceptance_rate().map(|rate| rate * 100.0), 0);
    vec![
        name.to_owned(),
        answer.tokens.len().to_string(),
        number(turn.tokens_per_second(lane), 1),
        duration(turn.decode_us(lane)),
        number(stats.mean_tokens_per_round(), 2),
        if stats.drafted() > 0 { format!("{percent} %") } else { "–".to_owned() },
        if answer.prefill_us > 0 { duration(answer.prefill_us) } else { "–".to_owned() },
    ]
}

fn verdict(screen: Screen, turn: &Turn, beside: Lane, width: u16) -> Vec<Line<'static>> {
    let mut lines = Vec::new();
    let races = screen.beside() == Lane::Rival;
    let (own, other) =
        (if races { "yours" } else { "speculative" }, if beside == Lane::Rival { "the rival" } else { "plain" });
    if let Some(speedup) = turn.speedup_over(beside) {
        let who = if races { "your settings are" } else { "speculative is" };
        lines.push(Line::styled(format!("{who} {speedup} as fast as {other}"), screen.theme[role_of(&speedup)]));
        let note = speedup.note().map(|note| wrapped(note, width, screen.theme[Role::TextDim]));
        lines.extend(note.unwrap_or_default());
    }
    let Some(agreement) = turn.agreement_with(beside) else {
        let (race, baseline) = (screen.app.key(Action::ToggleSplit), screen.app.key(Action::NextBaseline));
        let text = match beside {
            Lane::Rival => "the rival has not begun in this turn".to_owned(),
            _ => format!("the plain lane has not run in this turn: {race} or {baseline} asks for it"),
        };
        lines.extend(wrapped(&text, width, screen.theme[Role::TextDim]));
        return lines;
    };
    let count = agreement.identical;
    let (text, role) = match agreement.divergence {
        None if races => (format!("identical to {other} so far: {}", tokens(count)), Role::Good),
        None => (format!("identical so far: {}", tokens(count)), Role::Good),
        Some(differs) => {
            let name = |piece: Option<crate::protocol::Piece>| piece.map_or("the end".to_owned(), |p| text::quoted(&p));
            let (fast, slow) = (name(differs.speculative), name(differs.beside));
            let (why, role) = match promise(turn, beside) {
                Promise::Text => (String::new(), Role::Warning),
                Promise::Law => ("; sampled, so only the distribution is the same".to_owned(), Role::TextDim),
                Promise::Rules => {
                    ("; drawn by another rule, so only the distribution is the same".to_owned(), Role::TextDim)
                }
                Promise::Other => ("; at another temperature".to_owned(), Role::TextDim),
                Promise::Lossy(rule) => (lossy(turn, beside, rule), Role::Warning),
            };
            (format!("identical for {}, then {other} wrote {slow}, {own} {fast}{why}", tokens(count)), role)
        }
    };
    lines.extend(wrapped(&text, width, screen.theme[role]));
    lines
}

/// How far a rule that is not lossless has led from the text.
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
