//! The line in which a search is typed, instead of the bottom line.
//!
//! Invariant: it covers one line only, so that hits stay in view.

use ratatui::widgets::Clear;

use crate::app::place::search;
use crate::input::line_input::LineInput;
use crate::view::prelude::*;

pub(in crate::view) fn render(screen: Screen, entry: &LineInput, area: Rect, frame: &mut Frame) {
    let area = Rect { y: area.bottom().saturating_sub(1), height: 1, ..area };
    let hint = match &screen.app.toast {
        Some(toast) => format!("  {toast}"),
        None => {
            let next: &[Action] = &[Action::Confirm, Action::Down];
            format!(
                "  {}",
                screen.keys(Context::Entry, &[(next, "next"), (&[Action::Up], "before"), (LEAVE, "closes")])
            )
        }
    };
    frame.render_widget(Clear, area);
    frame.buffer_mut().set_style(area, screen.theme[Role::Text]);
    let line = Line::from(vec![
        Span::styled(" /", screen.theme[Role::Key]),
        Span::styled(format!("{}▏", entry.text()), screen.theme[Role::TextStrong]),
        Span::styled(count(screen, entry), screen.theme[Role::TextStrong]),
        Span::styled(hint, screen.theme[Role::TextDim]),
    ]);
    frame.render_widget(line, area);
}

/// Which of the hits is selected.
fn count(screen: Screen, entry: &LineInput) -> String {
    let selected = screen.app.place.selected.map(|at| (at, screen.app.place.cell));
    match search::standing(screen.session, entry.text(), selected) {
        (_, 0) if entry.text().is_empty() => String::new(),
        (_, 0) => "  none".to_owned(),
        (Some(number), all) => format!("  {number} of {all}"),
        (None, all) => format!("  {all} found"),
    }
}
