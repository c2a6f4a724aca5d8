//! Tokens committed by each of the last rounds, as columns; and how many drafts rounds accepted.
//!
//! Invariant: the newest round is at the right edge; a full column is one token more than the longest chain of drafts, announced or made.

use ratatui::widgets::Sparkline;

use crate::view::prelude::*;
use crate::view::screen::listed;
use crate::view::values::{draft_sign, fate_of, next_fate, number};

pub(in crate::view) fn render(screen: Screen, area: Rect, frame: &mut Frame) {
    if area.is_empty() {
        return;
    }
    let answer = screen.turn().map(|turn| turn.answer(Lane::Speculative));
    let mean = number(answer.and_then(|a| a.stats().mean_tokens_per_round()), 2);
    let most = screen.turn().map_or(1, Turn::most_tokens_per_round);
    let block = screen.panel(if area.width < 42 || answer.is_none_or(|answer| answer.rounds.is_empty()) {
        format!(" Tokens per round: {mean} ")
    } else {
        format!(" Tokens per round: mean {mean}, at most {most} ")
    });
    let inner = framed(block, area, frame);
    let Some(answer) = answer.filter(|_| !inner.is_empty()) else {
        return;
    };
    let done = answer.rounds.iter().filter(|r| r.is_complete());
    let mut counts: Vec<u64> = done.rev().take(inner.width.into()).map(|r| r.committed().len() as u64).collect();
    counts.reverse();
    let line = Sparkline::default().data(counts).max(most).style(screen.theme[Role::PlotBar]);
    frame.render_widget(line, inner);
}

/// Width of a round's column, with the gap after it.
const COLUMN: usize = 3;

/// Each of the newest rounds as a column: the target's own token, accepted drafts above it, and marks where drafts were
/// lost.
pub(in crate::view) fn columns(screen: Screen, area: Rect, frame: &mut Frame) {
    let answer = screen.turn().map(|turn| turn.answer(Lane::Speculative));
    let lost = [Fate::Rejected, Fate::NotReached]
        .map(|fate| Span::styled(format!(" {}", fate::sign(fate)), undecorated(screen.theme[fate::role(fate)])));
    let [rejected, not_reached] = lost;
    let legend = Line::from(vec![rejected, not_reached, Span::styled(" discarded ", screen.dim_title())]);
    let inner = framed(screen.panel(" Tokens of each round ").title_right(legend), area, frame);
    let rounds = answer.map_or(&[][..], |answer| &answer.rounds[..]);
    let room = (usize::from(inner.width) / COLUMN).max(1);
    let shown = &rounds[rounds.len().saturating_sub(room)..];
    let most = shown.iter().map(|round| round.most_tokens()).max().unwrap_or(1) as u16;
    if inner.height < 2 || shown.is_empty() {
        return;
    }
    let height = ((inner.height - 1) / most).clamp(1, 4);
    for (place, round) in shown.iter().enumerate() {
        let x = inner.x + (place * COLUMN) as u16;
        let number = Rect { x, y: inner.bottom() - 1, width: COLUMN as u16, height: 1 }.intersection(inner);
        frame.render_widget(Line::styled(format!("{:>2}", round.number() % 1000), screen.theme[Role::TextDim]), number);
        let levels = levels(round);
        for (level, (glyph, role)) in levels.into_iter().enumerate() {
            let top = (level as u16 + 1) * height;
            if top > inner.height - 1 {
                break;
            }
            let cell = Rect { x, y: inner.bottom() - 1 - top, width: 2, height };
            let style = undecorated(screen.theme[role]);
            let lines = match glyph {
                None => vec![Line::styled("██", style); height.into()],
                Some(mark) => {
                    let mut lines = vec![Line::default(); usize::from(height / 2)];
                    lines.push(Line::styled(format!(" {mark}"), style));
                    lines
                }
            };
            put(lines, cell, frame);
        }
    }
}

/// What stands in a round's column from below: a block for a kept token, else the mark of a draft.
fn levels(round: &Round) -> Vec<(Option<&'static str>, Role)> {
    let is_known = round.verdict.is_some();
    let own = if is_known { (None, fate::role(next_fate(round))) } else { (Some(" "), Role::TextDim) };
    let draft = |index: usize| match fate_of(round, index) {
        Fate::Committed(_) => (None, draft_sign(round, index).0),
        fate => (Some(fate::sign(fate)), fate::role(fate)),
    };
    let drafts = (0..round.drafts.len()).filter(|index| !round.is_tree() || round.path().any(|at| at == *index));
    std::iter::once(own).chain(drafts.map(draft)).collect()
}

/// How many rounds accepted 0, 1, 2 … drafts.
pub(in crate::view) fn histogram(screen: Screen, area: Rect, frame: &mut Frame) {
    let stats = screen.turn().map(|turn| turn.answer(Lane::Speculative).stats());
    let inner = framed(screen.panel(" Accepted drafts per round "), area, frame);
    let Some(stats) = stats.filter(|_| !inner.is_empty()) else {
        return;
    };
    let rounds = stats.rounds_with_drafts().max(1);
    let line = |(accepted, count): (usize, &u64)| {
        let share = *count as f64 / rounds as f64;
        let label = format!("{accepted:>2} ");
        let tail = format!(" {:>3.0}% {count}", share * 100.0);
        let room = usize::from(inner.width).saturating_sub(label.len() + tail.len());
        let mut spans = vec![Span::styled(label, screen.theme[Role::TextDim])];
        spans.extend(bar(share, room, screen.theme[Role::PlotBar], screen.theme[Role::PlotRest]));
        spans.push(Span::styled(tail, screen.theme[Role::Text]));
        Line::from(spans)
    };
    let lines = stats.acceptance_histogram().iter().enumerate().map(line);
    put(listed(screen, lines.collect(), inner), inner, frame);
}
