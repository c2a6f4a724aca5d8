//! The bottom: a message, in as many lines as it needs, else a line with the keys that matter now.
//!
//! Invariant: keys come from the keymap, never from here; this file only chooses which actions to hint at.

use crate::app::Overlay;
use crate::app::learning::quiz::Stage;
use crate::app::place::page::Pane;
use crate::view::prelude::*;

/// Most lines of a message.
const MOST: u16 = 4;

/// Lines that it takes of a screen of this size: those of a message, or one of keys.
pub(in crate::view) fn height(screen: Screen, area: Rect) -> u16 {
    let most = MOST.min(area.height / 4).max(1);
    message(screen).map_or(1, |message| lines(screen, &message, area.width, most).len() as u16)
}

pub(in crate::view) fn render(screen: Screen, area: Rect, frame: &mut Frame) {
    of(screen, screen.app.context(), area, frame);
}

/// The same for a screen that knows where keys go.
pub(in crate::view) fn of(screen: Screen, context: Context, area: Rect, frame: &mut Frame) {
    let lines = match message(screen) {
        Some(message) => lines(screen, &message, area.width, area.height),
        None => vec![hints(screen, context, area.width.into())],
    };
    put(lines, area, frame);
}

/// A message in as many lines as it needs; the middle of one that is too long is cut, since its end says what to do.
fn lines(screen: Screen, message: &str, width: u16, most: u16) -> Vec<Line<'static>> {
    let (sign, role) = if screen.app.toast.is_some() { ("·", Role::Text) } else { ("!", Role::Warning) };
    let style = screen.theme[role];
    let whole = wrapped(&format!(" {sign} {}", text::one_line(message)), width, style);
    without_middle(whole, most.into(), style)
}

/// As many lines of these as there is room for: the first ones, and the last half of the room from the end.
pub(in crate::view) fn without_middle(mut lines: Vec<Line<'static>>, most: usize, style: Style) -> Vec<Line<'static>> {
    if lines.len() <= most {
        return lines;
    }
    let end = lines.split_off(lines.len() - most / 2);
    lines.truncate(most - end.len());
    if let Some(line) = lines.last_mut() {
        let width = line.width().saturating_sub(2);
        *line = Line::styled(format!("{} …", cut(&line.to_string(), width).trim_end_matches(['…', ' '])), style);
    }
    lines.extend(end);
    lines
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

/// Keys that belong together, and their effect.
const PAIRS: &[(Action, Action, &str)] = &[
    (Action::Slower, Action::Faster, "pace"),
    (Action::Up, Action::Down, "move"),
    (Action::Left, Action::Right, "token"),
    (Action::RejectPrevious, Action::RejectNext, "rejected"),
    (Action::DraftLenDown, Action::DraftLenUp, "k"),
];

fn hints(screen: Screen, context: Context, width: usize) -> Line<'static> {
    let mut spans: Vec<Span> = mode(screen, context).into_iter().collect();
    let mut hints: Vec<(Action, [Span; 2])> = Vec::new();
    let header = screen.session.header();
    let is_listed = header.is_some_and(|header| header.capabilities.listed.is_some());
    let is_apt = |action: &&Action| match action {
        _ if !can(screen, **action) => false,
        Action::RecordingNext => is_listed,
        Action::Open => screen.app.place.page != Page::Inspect || context != Context::Browse, // it is open
        Action::EditPrompt => !screen.app.opens_prompt(screen.time), // so does the key that opens
        _ => true,
    };
    let key = |action| {
        let binding = screen.app.keymap.binding(context, action)?;
        Some((screen.app.keymap.first_key(binding), binding.desc.clone()))
    };
    let is_welcome = screen.app.is_welcome(screen.time.live());
    let shown: Vec<Action> = actions(context, screen).iter().filter(is_apt).copied().collect();
    let pair_of = |action| PAIRS.iter().find(|(first, second, _)| *first == action && shown.contains(second));
    let is_second = |action: &Action| PAIRS.iter().any(|(first, second, _)| second == action && shown.contains(first));
    for action in shown.iter().filter(|action| !is_second(action)) {
        let hint = match pair_of(*action).and_then(|pair| Some((key(pair.0)?, key(pair.1)?, pair.2))) {
            Some((first, second, desc)) => {
                let desc = if context == Context::Panel && *action == Action::Left { "change" } else { desc };
                Some((format!("{} {}", first.0, second.0), desc.to_owned()))
            }
            None if is_welcome && *action == Action::HistoryNext => {
                key(*action).map(|(key, _)| (key, "a starter prompt".to_owned()))
            }
            None if *action == Action::ToggleSplit && screen.app.place.split => {
                key(*action).map(|(key, _)| (key, "end the race".to_owned()))
            }
            None if *action == Action::Open && screen.app.opens_prompt(screen.time) => {
                key(*action).map(|(key, _)| (key, "prompt".to_owned()))
            }
            None if *action == Action::NextDisplay => {
                key(*action).map(|(key, _)| (key, format!("drafts: {}", screen.display().name())))
            }
            None if *action == Action::Present && screen.app.place.presents => {
                key(*action).map(|(key, _)| (key, "end presenter".to_owned()))
            }
            None if *action == Action::Open && screen.app.place.page == Page::Learn => {
                key(*action).map(|(key, _)| (key, enter_in_lessons(screen).to_owned()))
            }
            None if *action == Action::Leave && returns_to_lesson(screen, context) => {
                key(*action).map(|(key, _)| (key, "the lesson".to_owned()))
            }
            None => key(*action),
        };
        let Some((keys, desc)) = hint else { continue };
        let keys = Span::styled(format!(" {keys} "), screen.theme[Role::Key]);
        hints.push((*action, [keys, Span::styled(format!("{desc} "), screen.theme[Role::TextDim])]));
    }
    let used = spans.iter().map(Span::width).sum();
    spans.extend(fitting(hints, context, width.saturating_sub(used)));
    Line::from(spans)
}

/// As many hints as fit. The last ones go first; those that name the help and the way out go last.
fn fitting(mut hints: Vec<(Action, [Span<'static>; 2])>, context: Context, width: usize) -> Vec<Span<'static>> {
    let wide = |hints: &[(Action, [Span; 2])]| hints.iter().flat_map(|hint| &hint.1).map(Span::width).sum::<usize>();
    while wide(&hints) > width
        && let Some(last) = hints.iter().rposition(|hint| !stays(context, hint.0)).or(hints.len().checked_sub(1))
    {
        hints.remove(last);
    }
    hints.into_iter().flat_map(|hint| hint.1).collect()
}

/// Whether a hint names the help, a way out or, in the prompt, how to send.
fn stays(context: Context, action: Action) -> bool {
    use Action::{Follow, Help, Leave, Present, Quit, Send, StopOrQuit};
    match action {
        Leave => context != Context::Prompt,
        _ => matches!(action, Follow | Help | Present | Quit | Send | StopOrQuit),
    }
}

/// Whether the key that leaves goes to the lesson under way.
fn returns_to_lesson(screen: Screen, context: Context) -> bool {
    let is_beside = screen.app.place.page == Page::Learn && screen.app.place.pane != Pane::Lesson;
    context == Context::Browse && (is_beside || screen.app.returns_to_lesson())
}

/// Whether the engine can do what the action needs: a key that only says that it cannot is no help.
fn can(screen: Screen, action: Action) -> bool {
    let header = screen.session.header();
    action.needs().is_none_or(|ability| header.is_none_or(|header| header.can(ability)))
}

/// What the page on show is for, by keys outside the prompt.
pub(in crate::view) fn of_page(screen: Screen) -> impl Iterator<Item = Action> {
    actions(Context::Browse, screen).iter().copied().filter(move |action| can(screen, *action))
}

/// Where keys go, on the page that has a prompt.
fn mode(screen: Screen, context: Context) -> Option<Span<'static>> {
    let says = match context {
        Context::Prompt => " Typing:",
        Context::Browse if screen.app.place.page == Page::Chat && !screen.app.clock.is_recording => " Keys:",
        _ => return None,
    };
    Some(Span::styled(says, screen.theme[Role::PanelFocused]))
}

/// What the key that opens does in the lessons.
fn enter_in_lessons(screen: Screen) -> &'static str {
    let study = &screen.app.learning.study;
    let Some((lesson, step)) = study.at(&screen.app.learning.lessons) else { return "begin" };
    match () {
        () if screen.app.asks_in_lesson() => "answer",
        () if screen.app.place.pane != Pane::Lesson => "inspect",
        () if step.run.is_some() && !study.is_revealed => "run",
        () if step.goal.is_some() || step.task.is_some() => "check",
        () if study.step + 1 == lesson.step.len() => "end the lesson",
        () => "go on",
    }
}

/// In the lessons: what the list takes, a step of words, one that asks, and one whose run is on show.
fn lessons(screen: Screen) -> &'static [Action] {
    use Action::{BackRound, Down, Help, Leave, Left, Open, PauseResume, Right, StepPhase, StopOrQuit, Up, ViewChat};
    let study = &screen.app.learning.study;
    let Some((_, step)) = study.at(&screen.app.learning.lessons) else {
        return &[Up, Down, Open, Help, ViewChat, StopOrQuit];
    };
    if screen.app.place.pane != Pane::Lesson {
        return match step.choices.is_empty() || study.is_revealed {
            true => &[Left, Right, Open, Leave, BackRound, Help, StopOrQuit],
            false => &[Left, Right, Up, Down, Open, Leave, Help, StopOrQuit], // the question keeps its keys
        };
    }
    let has_run = study.run(&screen.app.learning.lessons).is_some_and(|run| run.turn(screen.session).is_some());
    match step.choices.is_empty() && step.task.is_none() {
        _ if has_run => &[Up, Down, Open, Leave, PauseResume, StepPhase, BackRound, Help, StopOrQuit, ViewChat],
        true => &[Open, Leave, Help, ViewChat, StopOrQuit],
        false => &[Up, Down, Open, Leave, Help, ViewChat, StopOrQuit],
    }
}

/// In presenter mode, on every page.
const PRESENTER: &[Action] = &[
    Action::PauseResume,
    Action::StepPhase,
    Action::BackPhase,
    Action::RoundPrevious,
    Action::RoundNext,
    Action::Slower,
    Action::Faster,
    Action::EditPrompt,
    Action::Present,
    Action::Help,
];

/// The keys that matter on this page now, the most useful first.
fn actions(context: Context, screen: Screen) -> &'static [Action] {
    use Action::{
        BackRound, BackToken, Bookmark, Confirm, ContinueHere, Demo, DivergenceNext, Down, DraftLenDown, DraftLenUp,
        EditPrompt, Faster, FocusNext, Follow, GoTo, Help, HistoryNext, HistoryPrevious, Leave, Left, MarkNext,
        Newline, NextBaseline, NextDisplay, NextFilter, NextToken, Note, Open, Palette, PauseResume, Quit,
        RecordingNext, RejectNext, RejectPrevious, Replay, Right, Save, Search, Send, Settings, Slower, StepPhase,
        StepRound, StopOrQuit, ToggleLossless, ToggleSplit, Tour, TurnNext, Up, Versus, ViewChat, ViewCompare,
        ViewLearn, ViewRounds, WhatIf, Zoom,
    };
    let live = screen.time.live();
    match context {
        // any other key ends the tour, and these do what they say
        _ if screen.app.clock.tour.is_some() => &[Help, Palette, StopOrQuit],
        Context::Prompt if screen.app.is_welcome(live) => {
            &[Send, HistoryNext, ViewLearn, Demo, Tour, Help, Palette, StopOrQuit, Newline]
        }
        Context::Prompt => {
            &[Send, Leave, StopOrQuit, Help, Palette, HistoryPrevious, Newline, ViewRounds, ViewLearn, ToggleSplit]
        }
        Context::Browse | Context::Global if screen.app.is_welcome(live) => {
            &[Open, EditPrompt, ViewLearn, Demo, Tour, Settings, Help, Palette, Quit]
        }
        Context::Help => &[Up, Down, Search, Leave],
        Context::Quit => &[Save, Quit, Leave],
        Context::Panel
            if matches!(
                screen.app.place.overlay,
                Some(Overlay::Export(_) | Overlay::Themes(_) | Overlay::SentPrompt(_) | Overlay::Why)
            ) =>
        {
            &[Up, Down, Confirm, Leave]
        }
        Context::Panel => &[Up, Down, Left, Right, Confirm, Leave],
        Context::Entry => &[Confirm, Up, Down, Leave],
        Context::Quiz => quiz(screen),
        Context::Diff => &[DivergenceNext, TurnNext, Up, Down, Help, Quit],
        Context::Watch => &[Up, Down, Help, Quit],
        Context::Browse | Context::Global if screen.app.place.page == Page::Learn => lessons(screen),
        Context::Browse | Context::Global if screen.app.place.presents => PRESENTER,
        Context::Browse | Context::Global if screen.app.returns_to_lesson() => match screen.app.place.page {
            Page::Inspect => &[Leave, Left, Right, Up, Down, WhatIf, Help, StopOrQuit],
            _ => &[Leave, Up, Down, Open, PauseResume, StepPhase, BackRound, Help, StopOrQuit],
        },
        Context::Browse | Context::Global if screen.app.learning.is_demo() => {
            &[PauseResume, Slower, Faster, StepPhase, BackRound, Leave, RejectNext, GoTo, Help, WhatIf, StopOrQuit]
        }
        Context::Browse | Context::Global if screen.app.clock.is_recording => &[
            RecordingNext,
            PauseResume,
            Slower,
            Faster,
            StepPhase,
            BackRound,
            RejectNext,
            Bookmark,
            Note,
            MarkNext,
            GoTo,
            Help,
            WhatIf,
            Quit,
        ],
        Context::Browse | Context::Global if screen.time.is_past() => &[
            PauseResume,
            Follow,
            StepPhase,
            StepRound,
            BackRound,
            BackToken,
            NextToken,
            Slower,
            Faster,
            WhatIf,
            ContinueHere,
            Help,
        ],
        // paused: keys for a round that stands still
        Context::Browse | Context::Global
            if live.is_paused() && !screen.app.clock.plays && screen.app.is_busy(live) =>
        {
            &[PauseResume, StepPhase, StepRound, BackRound, WhatIf, Left, Right, Open, Slower, Faster, StopOrQuit, Help]
        }
        Context::Browse | Context::Global if screen.app.is_busy(live) => busy(screen),
        Context::Browse | Context::Global => match screen.app.place.page {
            Page::Chat if screen.app.opens_prompt(screen.time) => &[
                Open,
                Left,
                Right,
                NextDisplay,
                Replay,
                BackRound,
                WhatIf,
                Help,
                Search,
                ViewCompare,
                ViewRounds,
                Quit,
            ],
            Page::Chat => &[
                EditPrompt,
                Left,
                Right,
                Open,
                NextDisplay,
                Replay,
                BackRound,
                WhatIf,
                Help,
                Search,
                ContinueHere,
                Quit,
            ],
            Page::Rounds => {
                &[Up, Down, NextFilter, RejectPrevious, RejectNext, Open, BackRound, WhatIf, Help, ViewChat, Quit]
            }
            Page::Inspect => &[Left, Right, Up, Down, Open, WhatIf, BackRound, Help, ViewChat, Quit],
            Page::Speed => {
                &[DraftLenDown, DraftLenUp, NextBaseline, Settings, FocusNext, Zoom, EditPrompt, Help, ViewChat, Quit]
            }
            Page::Compare => &[Versus, ToggleLossless, Up, Down, EditPrompt, Zoom, Help, ViewChat, ToggleSplit, Quit],
            Page::Learn => lessons(screen),
        },
    }
}

/// In the quiz: what its screens take.
fn quiz(screen: Screen) -> &'static [Action] {
    use Action::{
        Confirm, Down, Help, Leave, MarkAccepted, MarkNotReached, MarkRejected, NextVerdict, OpenLesson, Save, Up,
    };
    match screen.app.learning.quiz.stage {
        Stage::Item if !screen.app.learning.quiz.is_answered() => {
            &[MarkAccepted, MarkRejected, MarkNotReached, Confirm, NextVerdict, Up, Down, Leave, Help]
        }
        Stage::Item => &[Confirm, OpenLesson, Leave, Help],
        Stage::Certificate => &[Save, OpenLesson, Up, Down, Leave, Help],
        Stage::Home | Stage::Statement => &[Up, Down, Confirm, Leave, Help],
    }
}

/// While an answer runs: first keys that change how it runs, then keys of the page.
fn busy(screen: Screen) -> &'static [Action] {
    use Action::{
        BackRound, DraftLenDown, DraftLenUp, Faster, Help, NextDisplay, NextFilter, Open, PauseResume, Settings,
        Slower, StepPhase, StepRound, StopOrQuit, WhatIf, Zoom,
    };
    match screen.app.place.page {
        Page::Rounds => {
            &[PauseResume, Slower, Faster, StepRound, BackRound, NextFilter, StopOrQuit, Help, WhatIf, Open]
        }
        Page::Speed => {
            &[PauseResume, Slower, Faster, DraftLenDown, DraftLenUp, Settings, StopOrQuit, Zoom, Help, StepRound]
        }
        Page::Chat => {
            &[PauseResume, Slower, Faster, StepPhase, NextDisplay, BackRound, StopOrQuit, Help, WhatIf, StepRound, Open]
        }
        _ => &[PauseResume, Slower, Faster, StepPhase, StepRound, BackRound, StopOrQuit, Help, WhatIf, Open, Settings],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_keeps_its_beginning_and_its_end() {
        let long = (0..100).map(|n| format!("word{n}")).collect::<Vec<_>>().join(" ");
        let text = format!("{long}; use --raw");
        for most in 1..6 {
            let lines = without_middle(wrapped(&text, 40, Style::new()), most, Style::new());
            let shown = lines.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
            assert_eq!(lines.len(), most);
            assert!(shown.starts_with("word0") && shown.contains('…') && lines.iter().all(|line| line.width() <= 40));
            assert_eq!(shown.ends_with("--raw"), most > 1, "{shown}");
        }
        assert_eq!(without_middle(wrapped("short", 40, Style::new()), 3, Style::new()).len(), 1);
    }
}
