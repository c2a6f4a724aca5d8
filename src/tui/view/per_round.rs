//! Tokens committed by each of the last rounds, as columns.
//!
//! Invariant: the newest round is at the right edge; a full column is k + 1 tokens.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::widgets::Sparkline;

use crate::protocol::Lane;
use crate::tui::theme::Role;

use super::{Screen, number};

pub(super) fn render(screen: Screen, area: Rect, frame: &mut Frame) {
    if area.is_empty() {
        return;
    }
    let answer = screen.turn().map(|turn| turn.answer(Lane::Speculative));
    let mean = number(answer.and_then(|a| a.stats().mean_tokens_per_round()), 2);
    let most = answer.map_or(1, |a| a.rounds.iter().map(|r| r.draft_len).max().unwrap_or(0) + 1);
    let block = screen.panel(if area.width < 42 {
        format!(" Tokens per round: {mean} ")
    } else {
        format!(" Tokens per round: mean {mean}, most {most} ")
    });
    let inner = block.inner(area);
    frame.render_widget(block, area);
    let Some(answer) = answer.filter(|_| !inner.is_empty()) else {
        return;
    };
    let done = answer.rounds.iter().filter(|r| r.is_complete);
    let mut counts: Vec<u64> = done.rev().take(inner.width.into()).map(|r| r.committed.len() as u64).collect();
    counts.reverse();
    let line = Sparkline::default().data(counts).max(most.into()).style(screen.theme[Role::PlotBar]);
    frame.render_widget(line, inner);
}
