//! Why the speed is what it is: break-even, best k, and what limits it, in a few sentences.
//!
//! Invariant: what is said is `session::account`'s account of the turn on show, from its own rounds.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::widgets::Paragraph;

use crate::session::Turn;
use crate::session::account::{Account, Worth};
use crate::tui::theme::Role;
use crate::tui::widgets::flow::wrapped;

use super::Screen;

/// Height with its frame.
pub(super) const HEIGHT: u16 = 6;

pub(super) fn render(screen: Screen, area: Rect, frame: &mut Frame) {
    let block = screen.panel(" Why this speed ");
    let inner = block.inner(area);
    frame.render_widget(block, area);
    let text = screen.turn().and_then(|turn| words(turn, screen.session.settings().draft_len));
    let (text, role) = match text {
        Some(text) => (text, Role::Text),
        None => {
            let text = "Not known yet: a turn with drafts and plain rounds beside it (a probe or a race) tells what passes \
                        cost here, which k pays, and what limits it.";
            (text.to_owned(), Role::TextDim)
        }
    };
    frame.render_widget(Paragraph::new(wrapped(&text, inner.width, screen.theme[role])), inner);
}

/// What limits the speed, then the break-even of the k in use.
fn words(turn: &Turn, draft_len: u8) -> Option<String> {
    let account = Account::of_turn(turn)?;
    let mut text = account.sentence.clone();
    if let Some(first) = text.get(..1).map(str::to_uppercase) {
        text.replace_range(..1, &first);
    }
    let now = account.worth(draft_len.into()).map_or(String::new(), even);
    Some(format!("{text}. {now}"))
}

fn even(now: &Worth) -> String {
    let k = now.draft_len;
    match now.break_even {
        Some(a) => format!("k = {k} breaks even when {:.0} % of drafts are accepted at each position.", a * 100.0),
        None => format!("k = {k} cannot pay at these costs, even if every draft were accepted."),
    }
}
