//! The bottom line: a message if there is one, else the keys that matter now.
//!
//! Invariant: keys come from the keymap, never from here; only which actions to hint at is chosen.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

use crate::session::text;
use crate::tui::action::Action;
use crate::tui::keymap::Context;
use crate::tui::theme::Role;
use crate::tui::widgets::cell::cut;

use super::Screen;

pub(super) fn render(screen: Screen, area: Rect, frame: &mut Frame) {
    let line = match message(screen) {
        Some(message) => {
            let message = cut(&format!(" ! {}", text::one_line(&message)), area.width.into());
            Line::styled(message, screen.theme[Role::Warning])
        }
        None => hints(screen, area.width.into()),
    };
    frame.render_widget(line, area);
}

/// A reply to the last key, else a notice that was not read yet.
fn message(screen: Screen) -> Option<String> {
    if let Some(toast) = &screen.app.toast {
        return Some(toast.clone());
    }
    let unread = screen.session.notices_seen() > screen.app.notices_read;
    let newest = screen.session.notices().next_back().filter(|_| unread)?;
    Some(newest.to_owned())
}

fn hints(screen: Screen, width: usize) -> Line<'static> {
    let context = screen.app.context();
    let mut spans = Vec::new();
    let mut used = 0;
    for action in actions(context, screen) {
        let Some(binding) = screen.app.keymap.binding(context, *action) else {
            continue;
        };
        let key = format!(" {} ", binding.on.first().map_or(String::new(), |c| c.label()));
        let desc = format!("{} ", binding.desc);
        let wide = Span::raw(&key).width() + Span::raw(&desc).width();
        if used + wide > width {
            break;
        }
        used += wide;
        spans.push(Span::styled(key, screen.theme[Role::Key]));
        spans.push(Span::styled(desc, screen.theme[Role::TextDim]));
    }
    Line::from(spans)
}

fn actions(context: Context, screen: Screen) -> &'static [Action] {
    use Action::{
        DraftLenDown, DraftLenUp, EditPrompt, FocusNext, Follow, Help, Leave, NewConversation, Newline, NextRule,
        NextTheme, PauseResume, Quit, RejectPrevious, RoundNext, RoundPrevious, ScrollDown, ScrollUp, Send, StepPhase,
        StepRound, StopOrQuit, ToggleDiscarded, ToggleSplit,
    };
    match context {
        Context::Prompt => {
            &[Send, Newline, FocusNext, StopOrQuit, Help, ToggleSplit, DraftLenUp, DraftLenDown, NewConversation]
        }
        Context::Help => &[ScrollUp, ScrollDown, Leave],
        Context::Browse | Context::Global if screen.app.is_busy(screen.session) => &[
            PauseResume,
            StepPhase,
            StepRound,
            RoundPrevious,
            StopOrQuit,
            Help,
            DraftLenUp,
            DraftLenDown,
            ToggleDiscarded,
            Follow,
            ToggleSplit,
        ],
        Context::Browse | Context::Global => &[
            EditPrompt,
            RoundPrevious,
            RoundNext,
            RejectPrevious,
            Help,
            Quit,
            ToggleSplit,
            ToggleDiscarded,
            DraftLenUp,
            NextRule,
            NextTheme,
        ],
    }
}
