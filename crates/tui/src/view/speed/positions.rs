//! Acceptance by position: of the rounds that drafted a token there, the share that kept it.
//!
//! Invariant: accepted ÷ offered as counted in the turn on show; a draft after a rejected one
//! counts as offered, so at one draft length the bars can only fall from left to right (where the
//! length varies, long drafts are those that went well, and a later bar may be the higher one).

use draftscope_protocol::DraftLenMode;
use draftscope_session::LaneStats;

use crate::view::prelude::*;
use crate::view::screen::listed;
use crate::view::values::number;

/// Height that shows every position, with its frame.
pub(in crate::view) fn height(screen: Screen) -> u16 {
    let seen = stats(screen).map_or(0, |stats| stats.offered_per_pos().len());
    let settings = screen.settings();
    // the engine's k is the most that a round may draft, and most rounds draft less
    let meant = if settings.draft_len_mode == DraftLenMode::Fixed { settings.draft_len.into() } else { 1 };
    let k = seen.max(meant);
    k.clamp(1, 16) as u16 + FRAME
}

fn stats<'a>(screen: Screen<'a>) -> Option<&'a LaneStats> {
    screen.turn().map(|turn| turn.answer(Lane::Speculative).stats())
}

pub(in crate::view) fn render(screen: Screen, area: Rect, frame: &mut Frame) {
    if area.is_empty() {
        return;
    }
    let stats = stats(screen);
    let percent = |rate: Option<f64>| number(rate.map(|r| r * 100.0), 0);
    let rate = percent(stats.and_then(LaneStats::acceptance_rate));
    let tested = percent(stats.and_then(LaneStats::accepted_over_tested));
    let title = if area.width >= 56 {
        format!(" Accepted: {rate}% of drafted, {tested}% of tested; by position ")
    } else {
        format!(" Accepted by position: {rate}% ")
    };
    let inner = framed(screen.panel(title), area, frame);
    let Some(stats) = stats.filter(|_| !inner.is_empty()) else {
        return;
    };
    let pairs = stats.accepted_per_pos().iter().zip(stats.offered_per_pos());
    let lines =
        pairs.enumerate().map(|(index, (accepted, offered))| line(screen, index, (*accepted, *offered), inner.width));
    put(listed(screen, lines.collect(), inner), inner, frame);
}

fn line(screen: Screen, index: usize, counts: (u64, u64), width: u16) -> Line<'static> {
    let (accepted, offered) = counts;
    let share = accepted as f64 / offered.max(1) as f64;
    let label = format!("{:>2} ", index + 1);
    let tail = format!(" {:>3.0}% {accepted}/{offered}", share * 100.0);
    let room = usize::from(width).saturating_sub(label.len() + tail.len());
    let mut spans = vec![Span::styled(label, screen.theme[Role::TextDim])];
    spans.extend(bar(share, room, screen.theme[Role::PlotBar], screen.theme[Role::PlotRest]));
    spans.push(Span::styled(tail, screen.theme[Role::Text]));
    Line::from(spans)
}
