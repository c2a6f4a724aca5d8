//! The line of views and their keys.
//!
//! Invariant: keys come from the keymap. The view on show is marked by more than colour.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

use crate::tui::keymap::Context;
use crate::tui::page::Page;
use crate::tui::theme::Role;

use super::{Screen, Seen, Target};

pub(super) fn render(screen: Screen, area: Rect, frame: &mut Frame, seen: &mut Seen) {
    if area.is_empty() {
        return;
    }
    let context = if screen.app.is_typing() { Context::Prompt } else { Context::Browse };
    let (mut spans, mut x) = (Vec::new(), area.x);
    for page in Page::ALL {
        let binding = screen.app.keymap.binding(context, page.action());
        let key = binding.and_then(|b| b.on.first()).map_or(String::new(), |chord| chord.label());
        let is_on = screen.app.page == *page;
        let name = if is_on { format!("[{}]", page.name()) } else { format!(" {} ", page.name()) };
        let key = key.replace("Alt+", "M-");
        let width = (Span::raw(&key).width() + Span::raw(&name).width() + 1) as u16;
        if x + width > area.right() {
            break;
        }
        seen.hit(Rect { x, width, ..area }, Target::Page(*page));
        x += width;
        spans.push(Span::styled(format!(" {key}"), screen.theme[Role::Key]));
        spans.push(Span::styled(name, screen.theme[if is_on { Role::PanelTitle } else { Role::TextDim }]));
    }
    frame.render_widget(Line::from(spans), area);
}
