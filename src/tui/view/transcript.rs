//! The conversation: prompts, and answers in which every token shows its fate.
//!
//! Invariant: output tokens appear in order, joined into whole characters; discarded drafts stand
//! where they were, before the token that took their place, marked and struck through, and never
//! break a line. Which lines are in view is decided here from the user's scroll wish; turns that
//! have ended are laid out once and kept, so that a frame costs what is new, not what is old.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;

use crate::protocol::{Lane, StopReason};
use crate::session::text::{self, Joiner};
use crate::session::{Answer, Fate, Strand, Turn};
use crate::tui::app::Scroll;
use crate::tui::fate;
use crate::tui::theme::Role;
use crate::tui::widgets::flow::{Flow, Tagged};

use super::{Hit, Screen, Seen, Target, agreement, duration, number};

/// Lines of one turn, whose tokens stand on them, and on which the selected round begins.
#[derive(Clone, Default)]
struct Laid {
    lines: Rc<[Line<'static>]>,
    tags: Rc<[Vec<Tagged>]>,
    selected: Option<usize>,
}

impl Laid {
    fn of(flow: Flow, selected: Option<usize>) -> Self {
        let (lines, tags) = flow.finish_tagged();
        Self { lines: lines.into(), tags: tags.into(), selected }
    }
}

/// Lines, and the tokens on each.
type Lines = (Rc<[Line<'static>]>, Rc<[Vec<Tagged>]>);

/// A lane, and whether it stands beside the other one.
type Place = (Lane, bool);

/// What the lines of an ended turn depend on, beside its events.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Key {
    turn: usize,
    plain: bool,
    width: u16,
    theme: String,
    hides_discarded: bool,
    starts_conversation: bool,
    is_abandoned: bool,
    /// Tokens of both lanes.
    tokens: [usize; 2],
}

/// Lines of turns that have ended.
#[derive(Default)]
pub(in crate::tui) struct Cache {
    turns: RefCell<HashMap<Key, Lines>>,
}

const LANES: [Lane; 2] = [Lane::Speculative, Lane::Plain];

/// Turns kept; beyond that the cache starts anew.
const MAX_CACHED: usize = 512;

impl Cache {
    fn get(&self, key: Key, lay: impl FnOnce() -> Lines) -> Lines {
        let mut turns = self.turns.borrow_mut();
        if turns.len() >= MAX_CACHED {
            turns.clear();
        }
        turns.entry(key).or_insert_with(lay).clone()
    }
}

pub(super) fn render(screen: Screen, place: Place, area: Rect, frame: &mut Frame, seen: &mut Seen) {
    let (lane, is_beside) = place;
    let mut block = screen.panel(title(screen, place, area.width));
    if lane == Lane::Speculative {
        block = block.title_bottom(legend(screen, area.width));
    }
    if let Some(meter) = agreement::meter(screen).filter(|_| is_beside && lane == Lane::Plain) {
        block = block.title_bottom(meter);
    }
    let inner = block.inner(area);
    frame.render_widget(block, area);
    if inner.is_empty() {
        return;
    }
    let laid = lay_out(screen, lane, inner.width);
    let height = usize::from(inner.height);
    let total: usize = laid.iter().map(|turn| turn.lines.len()).sum();
    let max_top = total.saturating_sub(height);
    let top = match (screen.app.scroll, selected_line(&laid)) {
        (Scroll::Follow, _) | (Scroll::Selected, None) => max_top,
        (Scroll::Top(top), _) => top.min(max_top),
        (Scroll::Selected, Some(line)) => line.saturating_sub(height / 2).min(max_top),
    };
    (seen.top, seen.max_top, seen.page) = (top, max_top, height);
    if lane == Lane::Speculative {
        mark(&laid, top, inner, seen);
    }
    frame.render_widget(Paragraph::new(visible(&laid, top, height)), inner);
}

/// Tells the mouse where the tokens in view stand.
fn mark(laid: &[Laid], top: usize, area: Rect, seen: &mut Seen) {
    let mut y = 0;
    for (turn, part) in laid.iter().enumerate() {
        for tags in part.tags.iter() {
            if y >= top && y < top + usize::from(area.height) {
                let row = area.y + (y - top) as u16;
                for tag in tags.iter().filter(|tag| tag.round > 0) {
                    let place = Rect { x: area.x + tag.x, y: row, width: tag.width, height: 1 };
                    let target = Target::Token { turn, round: tag.round, column: tag.column.into() };
                    seen.hits.push(Hit { area: place.intersection(area), target });
                }
            }
            y += 1;
        }
    }
}

/// Line of the whole transcript on which the selected round begins.
fn selected_line(laid: &[Laid]) -> Option<usize> {
    let mut before = 0;
    for turn in laid {
        if let Some(line) = turn.selected {
            return Some(before + line);
        }
        before += turn.lines.len();
    }
    None
}

fn visible(laid: &[Laid], top: usize, height: usize) -> Vec<Line<'static>> {
    let mut skip = top;
    let mut shown = Vec::new();
    for turn in laid {
        if skip < turn.lines.len() {
            shown.extend(turn.lines.iter().skip(skip).take(height - shown.len()).cloned());
        }
        skip = skip.saturating_sub(turn.lines.len());
    }
    shown
}

fn title(screen: Screen, place: Place, width: u16) -> Line<'static> {
    let (lane, is_beside) = place;
    if !is_beside {
        return Line::from(" Answer ");
    }
    let (name, role) = match lane {
        Lane::Speculative if width < 46 => ("Spec.", Role::PlotSpeculative),
        Lane::Speculative => ("Speculative", Role::PlotSpeculative),
        Lane::Plain => ("Plain", Role::PlotPlain),
    };
    let mut spans = vec![Span::styled(format!(" {name} "), screen.theme[role])];
    if let Some(turn) = screen.turn() {
        let stats = turn.answer(lane).stats();
        let speed = number(stats.tokens_per_second(), 1);
        let text = format!("{speed} tok/s · {} ", duration(stats.decode_us()));
        spans.push(Span::styled(text, screen.theme[Role::TextStrong]));
        if let Some(speedup) = turn.speedup().filter(|_| lane == Lane::Speculative) {
            let role = if speedup < 0.995 { Role::Warning } else { Role::Good };
            spans.push(Span::styled(format!("· {speedup:.2}× "), screen.theme[role]));
        }
    }
    Line::from(spans)
}

/// The marks with the longest names that fit.
fn legend(screen: Screen, width: u16) -> Line<'static> {
    let at = |length: usize| {
        let entry = |(fate, names): &(Fate, [&'static str; 3])| {
            let style = screen.theme[fate::role(*fate)];
            let text = format!("{}{}", fate::sign(*fate), names[length]);
            [Span::styled(text, style), Span::raw(" ")]
        };
        Line::from(fate::LEGEND.iter().flat_map(entry).collect::<Vec<_>>())
    };
    let fits = |line: &Line| line.width() + 2 <= width.into();
    (0..2).map(at).find(fits).unwrap_or_else(|| at(2))
}

/// The transcript by turns; the last part is what no turn holds yet.
fn lay_out(screen: Screen, lane: Lane, width: u16) -> Vec<Laid> {
    let turns = screen.session.turns();
    let mut laid: Vec<_> = (0..turns.len()).map(|index| laid_turn(screen, lane, index, width)).collect();
    let mut flow = Flow::new(width);
    if screen.app.conversations.last() == Some(&turns.len()) && !turns.is_empty() {
        rule(screen, &mut flow);
    }
    if let Some(awaiting) = screen.app.awaiting.as_ref().filter(|_| screen.app.is_awaiting(screen.session)) {
        user(screen, &awaiting.text, &mut flow);
    } else if turns.is_empty() {
        welcome(screen, &mut flow);
    }
    laid.push(Laid::of(flow, None));
    laid
}

fn laid_turn(screen: Screen, lane: Lane, index: usize, width: u16) -> Laid {
    let turn = &screen.session.turns()[index];
    let has_selected = screen.app.selected.is_some_and(|at| at.turn == index);
    let is_last = index + 1 == screen.session.turns().len();
    if has_selected || is_last || !has_ended(turn) {
        return lay_turn(screen, lane, index, width);
    }
    let key = Key {
        turn: index,
        plain: lane == Lane::Plain,
        width,
        theme: screen.theme.name.clone(),
        hides_discarded: screen.app.hides_discarded,
        starts_conversation: screen.app.conversations.contains(&index),
        is_abandoned: screen.app.abandoned.contains(&turn.number),
        tokens: LANES.map(|lane| turn.answer(lane).tokens.len()),
    };
    let (lines, tags) = screen.app.transcript.get(key, || {
        let laid = lay_turn(screen, lane, index, width);
        (laid.lines, laid.tags)
    });
    Laid { lines, tags, selected: None }
}

/// Whether no event can change how a turn looks.
fn has_ended(turn: &Turn) -> bool {
    let ended = |answer: &Answer| answer.tokens.is_empty() || answer.finished.is_some();
    LANES.iter().all(|lane| ended(turn.answer(*lane)))
}

fn lay_turn(screen: Screen, lane: Lane, index: usize, width: u16) -> Laid {
    let turn = &screen.session.turns()[index];
    let mut flow = Flow::new(width);
    if index > 0 && screen.app.conversations.contains(&index) {
        rule(screen, &mut flow);
    }
    head(screen, turn, &mut flow);
    let selected = answer(screen, turn, lane, &mut flow);
    caption(screen, turn, lane, &mut flow);
    flow.end_line();
    Laid::of(flow, selected)
}

fn rule(screen: Screen, flow: &mut Flow) {
    flow.push("─── new conversation ", screen.theme[Role::TextDim]);
    flow.end_line();
}

fn welcome(screen: Screen, flow: &mut Flow) {
    let dim = screen.theme[Role::TextDim];
    flow.push("A small drafter proposes tokens, the large target checks them all in one pass. ", dim);
    flow.push("Type a prompt and watch which drafts are kept. ? or F1 shows every key.\n", dim);
}

/// What the turn answers: a prompt, or the point of another turn that it goes on from.
fn head(screen: Screen, turn: &Turn, flow: &mut Flow) {
    let Some(branch) = turn.branch else {
        user(screen, &turn.typed, flow);
        return;
    };
    let left = if screen.app.abandoned.contains(&turn.number) { " (left again)" } else { "" };
    let text = format!("⑂ turn {}, going on behind token {}{left}", branch.turn, branch.kept);
    flow.push(&text, screen.theme[Role::User]);
    if branch.forced {
        flow.push(" ⚠ not what the target would have written", screen.theme[Role::Warning]);
    }
    flow.end_line();
}

fn user(screen: Screen, typed: &str, flow: &mut Flow) {
    flow.push("❯ ", screen.theme[Role::User]);
    flow.push(&text::printable(typed), screen.theme[Role::User]);
    flow.end_line();
}

/// Lays an answer out; returns the line on which the selected round begins.
fn answer(screen: Screen, turn: &Turn, lane: Lane, flow: &mut Flow) -> Option<usize> {
    let answer = turn.answer(lane);
    let selected = screen.app.selected.and_then(|_| screen.app.round(screen.session));
    let number = selected.filter(|r| r.turn == turn.number).map(|r| r.round);
    let mut line = None;
    let mut joiner = Joiner::default();
    let mut aside = Joiner::default();
    for strand in answer.strands() {
        let is_selected = lane == Lane::Speculative && number == Some(strand.round);
        if is_selected && line.is_none() {
            line = Some(flow.line_index());
        }
        let mut style = screen.theme[fate::role(strand.fate)];
        if is_selected {
            style = style.patch(screen.theme[Role::Selected]);
        }
        if is_selected && screen.app.cell == Some(strand.column) {
            style = style.add_modifier(Modifier::REVERSED);
        }
        flow.tag(strand.round, strand.column);
        match strand.fate {
            Fate::Committed(_) => {
                committed(screen, strand, &joiner.push(&strand.piece.bytes), style, flow);
                aside = joiner.clone();
            }
            _ if screen.app.hides_discarded => {}
            _ => discarded(strand, &aside.push(&strand.piece.bytes), style, flow),
        }
    }
    flow.push(&joiner.finish(), screen.theme[Role::TokenPlain]);
    flow.tag(0, 0);
    line
}

fn committed(screen: Screen, strand: Strand, text: &str, style: Style, flow: &mut Flow) {
    let mark = fate::mark(strand.fate);
    let inner = text.trim_start_matches(' ');
    flow.push(&text[..text.len() - inner.len()], style);
    // The mark is not part of the answer: it is neither underlined nor struck through.
    flow.push(mark, style);
    let shown = text::printable(inner);
    for (i, part) in shown.split('\n').enumerate() {
        if i > 0 {
            flow.push("⏎", screen.theme[Role::TextDim]);
            flow.end_line();
        }
        flow.push(part, style);
    }
}

fn discarded(strand: Strand, text: &str, style: Style, flow: &mut Flow) {
    let inner = text.trim_start_matches(' ');
    let mark_style = style.remove_modifier(Modifier::CROSSED_OUT);
    flow.push(&text[..text.len() - inner.len()], mark_style);
    flow.push(fate::mark(strand.fate), mark_style);
    let shown = text::one_line(inner);
    flow.push(if shown.is_empty() { "·" } else { &shown }, style);
}

/// What the answer cost, under it.
fn caption(screen: Screen, turn: &Turn, lane: Lane, flow: &mut Flow) {
    let answer = turn.answer(lane);
    flow.break_line();
    if answer.tokens.is_empty() {
        if answer.finished == Some(StopReason::Refused) {
            flow.push("└ the prompt was refused", screen.theme[Role::Warning]);
            flow.end_line();
        } else if lane == Lane::Plain && turn.answer(Lane::Speculative).finished.is_some() {
            flow.push("(plain decoding was not run)", screen.theme[Role::TextDim]);
            flow.end_line();
        }
        return;
    }
    let Some(reason) = answer.finished else {
        return;
    };
    flow.push(&summary(answer, turn, lane, reason), screen.theme[Role::TextDim]);
    flow.end_line();
}

fn summary(answer: &Answer, turn: &Turn, lane: Lane, reason: StopReason) -> String {
    let speed = number(answer.stats().tokens_per_second(), 1);
    let mut text = format!("└ {} tokens · {speed} tok/s", answer.tokens.len());
    if let Some(speedup) = turn.speedup().filter(|_| lane == Lane::Speculative) {
        text.push_str(&format!(" · {speedup:.2}× plain"));
    }
    let why = match reason {
        StopReason::Eos => "",
        StopReason::MaxTokens => " · cut at max-tokens",
        StopReason::ContextFull => " · context full",
        StopReason::Stopped => " · stopped",
        StopReason::Refused => " · refused",
        StopReason::Measured => " · measured enough",
    };
    text.push_str(why);
    text
}
