//! The bottom line: a message if there is one, else the keys that matter now.
//!
//! Invariant: keys come from the keymap, never from here; only which actions to hint at is chosen.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

use crate::session::text;
use crate::tui::action::Action;
use crate::tui::keymap::Context;
use crate::tui::page::Page;
use crate::tui::theme::Role;
use crate::tui::widgets::cell::cut;

use super::screen::Screen;

pub(super) fn render(screen: Screen, area: Rect, frame: &mut Frame) {
    of(screen, screen.app.context(), area, frame);
}

/// The same for a screen that knows better where keys go.
pub(super) fn of(screen: Screen, context: Context, area: Rect, frame: &mut Frame) {
    let line = match message(screen) {
        Some(message) => {
            let message = cut(&format!(" ! {}", text::one_line(&message)), area.width.into());
            Line::styled(message, screen.theme[Role::Warning])
        }
        None => hints(screen, context, area.width.into()),
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

fn hints(screen: Screen, context: Context, width: usize) -> Line<'static> {
    let mut spans = Vec::new();
    let mut used = 0;
    let is_listed = screen.session.header().is_some_and(|header| header.capabilities.listed.is_some());
    let is_apt = |action: &&Action| match action {
        Action::RecordingNext => is_listed,
        Action::Open => screen.app.page != Page::Inspect || context != Context::Browse, // it is open
        _ => true,
    };
    for action in actions(context, screen).iter().filter(is_apt) {
        let Some(binding) = screen.app.keymap.binding(context, *action) else {
            continue;
        };
        let key = format!(" {} ", screen.app.keymap.first_key(binding));
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

/// In the lessons, whatever is on show.
const LESSONS: &[Action] = &[
    Action::Up,
    Action::Down,
    Action::Open,
    Action::Leave,
    Action::PauseResume,
    Action::StepPhase,
    Action::BackRound,
    Action::Help,
    Action::StopOrQuit,
    Action::ViewChat,
];

fn actions(context: Context, screen: Screen) -> &'static [Action] {
    use Action::{
        BackRound, BackToken, Bookmark, Confirm, ContinueHere, DivergenceNext, Down, DraftLenUp, EditPrompt, Faster,
        FocusNext, Follow, GoTo, Help, HistoryPrevious, Leave, Left, MarkNext, Newline, NextFilter, NextToken, Note,
        Open, Palette, PauseResume, Quit, RecordingNext, RejectNext, RejectPrevious, Right, Search, Send, Settings,
        Slower, StepPhase, StepRound, StopOrQuit, ToggleSplit, TurnNext, Up, Versus, ViewChat, ViewLearn, ViewRounds,
        WhatIf, Zoom,
    };
    match context {
        Context::Prompt => {
            &[Send, FocusNext, StopOrQuit, Help, Palette, HistoryPrevious, Newline, ViewRounds, ViewLearn, ToggleSplit]
        }
        Context::Help => &[Up, Down, Leave],
        Context::Panel => &[Up, Down, Left, Right, Confirm, Leave],
        Context::Entry => &[Confirm, Up, Down, Leave],
        Context::Diff => &[DivergenceNext, TurnNext, Up, Down, Help, Quit],
        Context::Browse | Context::Global if screen.app.page == Page::Learn => LESSONS,
        Context::Browse | Context::Global if screen.app.is_recording => &[
            RecordingNext,
            PauseResume,
            StepPhase,
            BackRound,
            Slower,
            Faster,
            RejectNext,
            Bookmark,
            Note,
            MarkNext,
            GoTo,
            Help,
            WhatIf,
            Quit,
        ],
        Context::Browse | Context::Global if screen.time.is_past() => {
            &[PauseResume, StepPhase, StepRound, BackRound, BackToken, NextToken, Follow, WhatIf, ContinueHere, Help]
        }
        Context::Browse | Context::Global if screen.app.is_busy(screen.session) => {
            &[PauseResume, StepPhase, StepRound, BackRound, StopOrQuit, Help, WhatIf, Open, Settings, Zoom, ToggleSplit]
        }
        Context::Browse | Context::Global => match screen.app.page {
            Page::Chat => {
                &[EditPrompt, Left, Right, Open, BackRound, Help, Search, WhatIf, ContinueHere, Palette, Quit]
            }
            Page::Rounds => &[Up, Down, NextFilter, RejectPrevious, Open, BackRound, WhatIf, Help, ViewChat, Quit],
            Page::Inspect => &[Left, Right, Up, Down, Open, WhatIf, BackRound, Help, ViewChat],
            Page::Speed => &[DraftLenUp, Settings, FocusNext, Zoom, EditPrompt, Help, ViewChat],
            Page::Compare => &[Versus, ToggleSplit, Up, Down, EditPrompt, Zoom, Help, ViewChat],
            Page::Learn => LESSONS,
        },
    }
}
