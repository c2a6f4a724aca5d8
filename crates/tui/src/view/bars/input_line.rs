//! The line in which a note, a place or a draft is typed, instead of the bottom line.
//!
//! Invariant: it covers one line only, so that its subject stays in view; of a long text the end is shown.

use ratatui::widgets::Clear;
use unicode_width::UnicodeWidthChar;

use crate::app::place::marks::place_name;
use crate::input::line_input::LineInput;
use crate::view::prelude::*;
use draftscope_session::PassId;

pub(in crate::view) fn note(screen: Screen, entry: &LineInput, about: Option<PassId>, area: Rect, frame: &mut Frame) {
    let about = format!(" note on {}: ", place_name(about));
    let hint = format!("  {}", screen.keys(Context::Entry, &[(&[Action::Confirm], "keeps it"), (LEAVE, "drops it")]));
    line(screen, (&about, &hint), entry, area, frame);
}

pub(in crate::view) fn place(screen: Screen, entry: &LineInput, area: Rect, frame: &mut Frame) {
    let goes = screen.keys(Context::Entry, &[(&[Action::Confirm], "goes")]);
    let hint = format!("  a round (12), a time (3.5s, 1:05), a share (40%) · {goes}");
    line(screen, (" go to: ", &hint), entry, area, frame);
}

/// The text that the user drafts in a lesson.
pub(in crate::view) fn draft(screen: Screen, entry: &LineInput, area: Rect, frame: &mut Frame) {
    let run = screen.app.learning.run();
    let title = format!(" your draft after “{}”: ", run.map_or("", |run| run.prompt.as_str()));
    let keys = screen.keys(Context::Entry, &[(&[Action::Confirm], "has it judged"), (LEAVE, "drops it")]);
    line(screen, (&title, &format!("  {keys}")), entry, area, frame);
}

fn line(screen: Screen, (title, hint): (&str, &str), entry: &LineInput, area: Rect, frame: &mut Frame) {
    let area = Rect { y: area.bottom().saturating_sub(1), height: 1, ..area };
    frame.render_widget(Clear, area);
    frame.buffer_mut().set_style(area, screen.theme[Role::Text]);
    let room = usize::from(area.width).saturating_sub(Span::raw(title).width() + 1);
    let line = Line::from(vec![
        Span::styled(title.to_owned(), screen.theme[Role::Key]),
        Span::styled(format!("{}▏", tail(entry.text(), room)), screen.theme[Role::TextStrong]),
        Span::styled(
            screen.app.toast.as_deref().map_or(hint.to_owned(), |t| format!("  {t}")),
            screen.theme[Role::TextDim],
        ),
    ]);
    frame.render_widget(line, area);
}

/// As much of the end as fits.
fn tail(text: &str, room: usize) -> &str {
    let mut used = 0;
    let fits = |(_, c): &(usize, char)| {
        used += c.width().unwrap_or(0);
        used <= room
    };
    text.char_indices().rev().take_while(fits).last().map_or("", |(at, _)| &text[at..])
}
