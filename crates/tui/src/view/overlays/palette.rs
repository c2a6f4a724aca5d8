//! The list of actions: the typed text, and the matching actions with their keys.
//!
//! Invariant: the list is the closed list of actions; the chosen one is always in view, and all that there is to say of it
//! stands below the list.

use crate::input::line_input::LineInput;

use crate::view::prelude::*;
use crate::view::screens;

/// Width of the keys.
const KEYS: usize = 12;

/// Lines for what the chosen one does.
const ABOUT: u16 = 2;

/// Width of the names.
const NAME: usize = 20;

pub(in crate::view) fn render(screen: Screen, entry: &LineInput, area: Rect, frame: &mut Frame) {
    let area = screens::centre(area, area.width.min(90), area.height.saturating_sub(4).min(22));
    let found = entry.actions();
    let page: &[Action] = &[Action::PageUp, Action::PageDown];
    let keys = screen.keys(Context::Entry, &[(CHOOSE, "choose"), (&[Action::Confirm], "does it"), (LEAVE, "closes")]);
    let pages = screen.keys(Context::Global, &[(page, "more")]);
    let at = format!(" {} of {} ", (entry.choice + 1).min(found.len()), found.len());
    let panel = screen.panel(" Actions ").title_right(Line::styled(at, screen.dim_title()));
    let panel = panel.bottom(Line::styled(format!(" {keys} · {pages} "), screen.theme[Role::TextDim]));
    let inner = screen.over(panel, area, frame);
    let about = found.get(entry.choice).map_or("", |action| action.describe());
    let about = wrapped(about, inner.width.saturating_sub(2), screen.theme[Role::Text]);
    let [inner, below] = Layout::vertical([Constraint::Min(2), Constraint::Length(ABOUT)]).areas(inner);
    put(about, Rect { x: below.x + 2, width: below.width.saturating_sub(2), ..below }, frame);
    let mut lines = vec![Line::from(vec![
        Span::styled(":", screen.theme[Role::Key]),
        Span::styled(format!("{}▏", entry.text()), screen.theme[Role::TextStrong]),
        Span::styled(completion(entry, &found), screen.theme[Role::TextDim]),
    ])];
    let rows = usize::from(inner.height).saturating_sub(1).max(1);
    let top = (entry.choice + 1).saturating_sub(rows);
    for (index, action) in found.iter().enumerate().skip(top).take(rows) {
        lines.push(line(screen, *action, index == entry.choice, inner.width));
    }
    put(lines, inner, frame);
}

/// The part of the chosen name that is not typed yet.
fn completion(entry: &LineInput, found: &[Action]) -> String {
    let name = found.get(entry.choice).map(|action| action.name().replace('_', " "));
    name.and_then(|name| name.strip_prefix(entry.text()).map(str::to_owned)).unwrap_or_default()
}

fn line(screen: Screen, action: Action, chosen: bool, width: u16) -> Line<'static> {
    let binding = screen.app.keymap.binding(Context::Browse, action);
    let binding = binding.or_else(|| screen.app.keymap.binding(Context::Prompt, action));
    let keys = binding.map_or(String::new(), |binding| screen.app.keymap.keys(binding));
    let room = usize::from(width).saturating_sub(2 + NAME + KEYS);
    let line = Line::from(vec![
        Span::styled(if chosen { "▸ " } else { "  " }, screen.theme[Role::Key]),
        Span::styled(fit(&action.name().replace('_', " "), NAME), screen.theme[Role::TextStrong]),
        Span::styled(fit(&cut(&keys, KEYS - 1), KEYS), screen.theme[Role::Key]),
        Span::styled(cut(action.describe(), room), screen.theme[Role::TextDim]),
    ]);
    if chosen { line.patch_style(screen.theme[Role::Selected]) } else { line }
}
