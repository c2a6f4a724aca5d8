//! Tokens committed by each of the last rounds, as columns; and how many drafts rounds accepted.
//!
//! Invariant: the newest round is at the right edge; a full column is one token more than the longest chain of drafts, announced or made.

use ratatui::widgets::Sparkline;

use super::prelude::*;
use super::screen::listed;
use super::values::number;

pub(super) fn render(screen: Screen, area: Rect, frame: &mut Frame) {
    if area.is_empty() {
        return;
    }
    let answer = screen.turn().map(|turn| turn.answer(Lane::Speculative));
    let mean = number(answer.and_then(|a| a.stats().mean_tokens_per_round()), 2);
    let most = answer.and_then(|a| a.rounds.iter().map(|round| longest(round)).max()).map_or(1, |longest| longest + 1);
    let block = screen.panel(if area.width < 42 || answer.is_none_or(|answer| answer.rounds.is_empty()) {
        format!(" Tokens per round: {mean} ")
    } else {
        format!(" Tokens per round: mean {mean}, at most {most} ")
    });
    let inner = framed(block, area, frame);
    let Some(answer) = answer.filter(|_| !inner.is_empty()) else {
        return;
    };
    let done = answer.rounds.iter().filter(|r| r.is_complete);
    let mut counts: Vec<u64> = done.rev().take(inner.width.into()).map(|r| r.committed.len() as u64).collect();
    counts.reverse();
    let line = Sparkline::default().data(counts).max(most).style(screen.theme[Role::PlotBar]);
    frame.render_widget(line, inner);
}

/// The longest chain of drafts that a round has or is to have.
fn longest(round: &Round) -> u64 {
    let drafted = (0..round.drafts.len()).map(|index| round.depth(index) as u64 + 1).max();
    drafted.unwrap_or(0).max(round.draft_len.into())
}

/// How many rounds accepted 0, 1, 2 … drafts.
pub(super) fn histogram(screen: Screen, area: Rect, frame: &mut Frame) {
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
