//! The line of pages and their keys.
//!
//! Invariant: keys come from the keymap. The current page is marked by more than colour.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

use crate::app::clock::tour::stop;
use crate::app::place::hit_map::{HitMap, Target};
use crate::app::place::page::Page;
use crate::input::keymap::Context;
use crate::look::theme::Role;
use crate::widgets::cell::fit;

use crate::view::screen::Screen;

pub(in crate::view) fn render(screen: Screen, area: Rect, frame: &mut Frame, hit_map: &mut HitMap) {
    if area.is_empty() {
        return;
    }
    // positions do not depend on the focus, only which keys are named does
    let label = |context, page: &Page| {
        let binding = screen.app.keymap.binding(context, page.action());
        binding.map_or(String::new(), |binding| screen.app.keymap.first_key(binding))
    };
    let of = |context| Page::ALL.iter().map(|page| label(context, page)).collect::<Vec<String>>();
    let (typing, browsing) = (of(Context::Prompt), of(Context::Browse));
    let shared = shared(&typing);
    let own = if screen.app.is_typing() { &typing } else { &browsing };
    let is_lit = screen.app.clock.tour.and_then(stop).is_some_and(|(_, shown, _)| shown.is_none());
    let (mut spans, mut x) = (Vec::new(), area.x);
    if !shared.is_empty() {
        let prefix = if screen.app.is_typing() { shared } else { "View" };
        let style = screen.theme[if screen.app.is_typing() { Role::Key } else { Role::TextDim }];
        spans.push(Span::styled(format!(" {}", fit(prefix, shared.len())), style));
        x += shared.len() as u16 + 1;
    }
    let bare = |key: &str| key.strip_prefix(shared).unwrap_or(key).to_owned();
    let widths = typing.iter().zip(&browsing).map(|(a, b)| Span::raw(bare(a)).width().max(Span::raw(bare(b)).width()));
    let widths: Vec<usize> = widths.collect();
    // a space and the key, then the name between brackets or spaces
    let needed: usize = Page::ALL.iter().zip(&widths).map(|(page, width)| width + page.name().len() + 3).sum();
    let is_narrow = usize::from(x) + needed > usize::from(area.right());
    for ((page, key), width) in Page::ALL.iter().zip(own).zip(widths) {
        let key = fit(&bare(key), width);
        let is_on = screen.app.place.page == *page;
        let name = if is_narrow { page.short_name() } else { page.name() };
        let name = if is_on { format!("[{name}]") } else { format!(" {name} ") };
        let width = (width + Span::raw(&name).width() + 1) as u16;
        if x + width > area.right() {
            break;
        }
        hit_map.hit(Rect { x, width, ..area }, Target::Page(*page));
        x += width;
        spans.push(Span::styled(format!(" {key}"), screen.theme[Role::Key]));
        let role = if is_on || is_lit { Role::TextStrong } else { Role::TextDim };
        spans.push(Span::styled(name, screen.theme[role]));
    }
    frame.render_widget(Line::from(spans), area);
}

/// The common prefix of all keys (`Alt+`): it is written once.
fn shared(keys: &[String]) -> &str {
    let first = keys.first().and_then(|key| Some(&key[..=key.find('+')?])).unwrap_or("");
    let is_shared = keys.iter().all(|key| key.starts_with(first) && key.len() > first.len());
    if is_shared { first } else { "" }
}
