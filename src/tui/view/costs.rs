//! What passes cost in this session: T(m) ÷ T(1), and a drafted token.
//!
//! Invariant: T(m) are medians of rounds that happened, and only widths that happened are shown; a draft's price
//! is the one that the account beside it reckons with.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;

use crate::session::Observed;
use crate::session::account::Account;
use crate::tui::theme::Role;
use crate::tui::widgets::bars::bar;
use crate::tui::widgets::flow::wrapped;

use super::screen::Screen;

pub(super) fn render(screen: Screen, area: Rect, frame: &mut Frame) {
    let title = if area.width < 46 {
        " Cost of a pass: T(m) ÷ T(1) "
    } else {
        " Cost of a pass: T(m) ÷ T(1), measured here "
    };
    let block = screen.panel(title);
    let inner = block.inner(area);
    frame.render_widget(block, area);
    if inner.is_empty() {
        return;
    }
    let observed = Observed::of(screen.session);
    let mut lines = curve(screen, &observed, inner.width);
    if lines.len() < 2 {
        let text = "Rounds with and without drafts are needed: plain decoding runs beside a turn as a probe or a race.";
        lines.extend(wrapped(text, inner.width, screen.theme[Role::TextDim]));
    }
    lines.extend(draft(screen, &observed).map(|text| Line::styled(text, screen.theme[Role::Text])));
    // one row, which all else is measured by, stays
    let over = lines.len().saturating_sub(inner.height.into()).min(lines.len().saturating_sub(1));
    lines.drain(1..1 + over);
    frame.render_widget(Paragraph::new(lines), inner);
}

/// The price of a draft: that of the turn on show, which its account names too, else the session's.
fn draft(screen: Screen, observed: &Observed) -> Option<String> {
    if let Some(account) = screen.turn().and_then(Account::of_turn) {
        let one = account.costs.verify_us.first().filter(|us| **us > 0.0)?;
        return Some(format!("a draft, this turn: {:.2} of T(1)", account.costs.draft_us / one));
    }
    let (draft, one) = observed.draft.zip(observed.rows(1))?;
    Some(format!("a drafted token: {:.2} of T(1)", draft.us / one.us))
}

/// A bar per width that occurred.
fn curve(screen: Screen, observed: &Observed, width: u16) -> Vec<Line<'static>> {
    let measured = observed.verify.iter().enumerate().filter_map(|(i, median)| Some((i + 1, (*median)?)));
    let all: Vec<_> = measured.filter_map(|(rows, median)| Some((rows, median, observed.ratio(rows)?))).collect();
    let most = all.iter().map(|(.., ratio)| *ratio).fold(1.0, f64::max);
    let line = |(rows, median, ratio): &(usize, crate::session::Median, f64)| {
        let label = format!("{rows:>2} row{} ", if *rows == 1 { " " } else { "s" });
        let tail = format!(" {ratio:.2}× {:>5.1} ms ({})", median.us / 1e3, median.count);
        let room = usize::from(width).saturating_sub(label.len() + Span::raw(&tail).width());
        let mut spans = vec![Span::styled(label, screen.theme[Role::TextDim])];
        spans.extend(bar(ratio / most, room, screen.theme[Role::PlotBar], screen.theme[Role::PlotRest]));
        spans.push(Span::styled(tail, screen.theme[Role::Text]));
        Line::from(spans)
    };
    all.iter().map(line).collect()
}
