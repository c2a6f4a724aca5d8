//! The prompt box.
//!
//! Invariant: it grows with its text up to a quarter of the screen, then scrolls inside. Editing is
//! `editor.rs`.

use crate::app::place::page::Pane;

use crate::view::bars::player;
use crate::view::chat::pacing;
use crate::view::prelude::*;

/// Tokens at the end of an answer among which its last word is looked for.
const LAST: usize = 4;

/// Height with its frame.
pub(in crate::view) fn height(screen: Screen, area: Rect) -> u16 {
    let most = (area.height / 4).max(3) - 2;
    screen.app.talk.editor.rows(area.width.saturating_sub(2).max(1), most) + 2
}

/// The person is the drafter: what to type, and how good the guesses were so far.
fn asks(screen: Screen, count: u8) -> String {
    if let Some(word) = continued_word(screen) {
        return format!(" This goes on in the word “{word}”: a space first begins a new one ");
    }
    let stats = screen.turn().map(|turn| turn.answer(Lane::Speculative).stats());
    let score = stats.map_or(String::new(), |s| format!(" · so far {} of {} accepted", s.accepted(), s.drafted()));
    let mark = if screen.app.place.has_focus(Pane::Prompt) { " ▸" } else { "" };
    format!(" You are the drafter: up to {}{score}{mark} ", counted(count.into(), "token"))
}

/// The word at the end of the answer that the draft would continue, as it is typed.
fn continued_word(screen: Screen) -> Option<String> {
    screen.app.talk.editor.text().chars().next().filter(|first| first.is_alphanumeric())?;
    let tokens = &screen.time.live().turn()?.answer(Lane::Speculative).tokens;
    let bytes: Vec<u8> = tokens
        .iter()
        .skip(tokens.len().saturating_sub(LAST))
        .flat_map(|token| token.piece.text_bytes().to_vec())
        .collect();
    let text = String::from_utf8_lossy(&bytes);
    let start = text.char_indices().rev().take_while(|(_, c)| c.is_alphanumeric()).last()?.0;
    Some(text[start..].to_owned())
}

/// Shown instead of the prompt while a recording plays.
fn recording(screen: Screen, area: Rect, frame: &mut Frame) {
    let key = |action| screen.app.keymap.label(Context::Browse, action);
    let play = key(Action::PauseResume);
    let text = format!(
        "{} {} opens the selected token, {}{} goes to a moment, {} and {} mark it.",
        if player::is_over(screen) {
            format!("The end. {play} plays it again.")
        } else {
            "It takes no prompt.".to_owned()
        },
        key(Action::Open),
        if player::is_over(screen) { String::new() } else { format!("{play} pauses and resumes, ") },
        key(Action::GoTo),
        key(Action::Bookmark),
        key(Action::Note),
    );
    let made = screen.session.header().map_or(String::new(), |header| {
        format!(" of {} on {}", text::one_line(&header.model.name), text::one_line(&header.device))
    });
    let title = cut(&format!(" Recording{made} "), area.width.saturating_sub(4).into());
    let inner = framed(screen.panel(title), area, frame);
    put(wrapped(&text, inner.width, screen.theme[Role::TextDim]), inner, frame);
}

/// What stands in the prompt while keys go elsewhere.
fn invitation(screen: Screen) -> String {
    let open = screen.app.keymap.label(Context::Browse, Action::Open);
    let prompt = screen.app.keymap.label(Context::Browse, Action::EditPrompt);
    let keys = if screen.app.opens_prompt(screen.time) { format!("{open} or {prompt}") } else { prompt };
    format!("{keys}: type the next prompt")
}

pub(in crate::view) fn render(screen: Screen, area: Rect, frame: &mut Frame) {
    if screen.app.clock.is_recording {
        return recording(screen, area, frame);
    }
    let focused = screen.app.place.has_focus(Pane::Prompt);
    let border = if focused { Role::PanelFocused } else { Role::PanelBorder };
    let paced = pacing::words(screen).filter(|_| !focused && screen.app.talk.editor.is_empty());
    let title = match screen.time.live().draft_asked() {
        None if let Some((title, _)) = &paced => cut(title, area.width.saturating_sub(2).into()),
        Some(count) => asks(screen, count),
        None => (if focused { " Prompt ▸ " } else { " Prompt " }).to_owned(),
    };
    let inner = boxed(screen.panel(title).border_style(screen.theme[border]), area, frame);
    if inner.is_empty() {
        return;
    }
    if focused {
        screen.app.talk.editor.render(inner, frame.buffer_mut());
        return;
    }
    let text = screen.app.talk.editor.text();
    let asked = screen.time.live().draft_asked().is_some();
    let shown = match text.is_empty() {
        true if asked => {
            format!("the engine waits for your draft: come back here with {}", screen.app.key(Action::EditPrompt))
        }
        true if let Some((_, keys)) = paced => keys,
        true => invitation(screen),
        false => text,
    };
    put(wrapped(&shown, inner.width, screen.theme[Role::TextDim]), inner, frame);
}
