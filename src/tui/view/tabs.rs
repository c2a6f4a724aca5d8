//! The line of views and their keys.
//!
//! Invariant: keys come from the keymap. The view on show is marked by more than colour.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

use crate::tui::hit_map::{HitMap, Target};
use crate::tui::keymap::Context;
use crate::tui::page::Page;
use crate::tui::theme::Role;

use super::screen::Screen;

pub(super) fn render(screen: Screen, area: Rect, frame: &mut Frame, hit_map: &mut HitMap) {
    if area.is_empty() {
        return;
    }
    let context = if screen.app.is_typing() { Context::Prompt } else { Context::Browse };
    let label = |page: &Page| {
        let binding = screen.app.keymap.binding(context, page.action());
        binding.map_or(String::new(), |binding| screen.app.keymap.first_key(binding))
    };
    let keys: Vec<String> = Page::ALL.iter().map(label).collect();
    let shared = shared(&keys, area.width.into());
    let (mut spans, mut x) = (Vec::new(), area.x);
    if !shared.is_empty() {
        spans.push(Span::styled(format!(" {shared}"), screen.theme[Role::Key]));
        x += shared.len() as u16 + 1;
    }
    for (page, key) in Page::ALL.iter().zip(&keys) {
        let key = &key[shared.len()..];
        let is_on = screen.app.page == *page;
        let name = if is_on { format!("[{}]", page.name()) } else { format!(" {} ", page.name()) };
        let width = (Span::raw(key).width() + Span::raw(&name).width() + 1) as u16;
        if x + width > area.right() {
            break;
        }
        hit_map.hit(Rect { x, width, ..area }, Target::Page(*page));
        x += width;
        spans.push(Span::styled(format!(" {key}"), screen.theme[Role::Key]));
        spans.push(Span::styled(name, screen.theme[if is_on { Role::PanelTitle } else { Role::TextDim }]));
    }
    frame.render_widget(Line::from(spans), area);
}

/// What all keys begin with (`Alt+`), if there is no room to say it at each: it is said once then.
fn shared(keys: &[String], width: usize) -> String {
    let names: usize = Page::ALL.iter().map(|page| page.name().len() + 3).sum();
    let whole: usize = keys.iter().map(|key| Span::raw(key).width()).sum();
    let first = keys.first().and_then(|key| Some(&key[..=key.find('+')?])).unwrap_or("");
    let is_shared = keys.iter().all(|key| key.starts_with(first) && key.len() > first.len());
    if is_shared && names + whole > width { first.to_owned() } else { String::new() }
}
