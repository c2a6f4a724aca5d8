//! The empty screen: what will be shown, and how to begin.
//!
//! Invariant: keys come from the keymap; with little room, lines are left out, the least useful first.

use crate::app::talk::starters::STARTERS;
use crate::view::prelude::*;

/// What will be shown.
const SEEN: [&str; 3] = [
    "A small drafter guesses the next tokens; the target, your model, checks them in one pass.",
    "Right guesses are accepted; the first wrong one is rejected, the target's token follows.",
    "The first answer starts slow, phase by phase. Speed is measured against plain decoding.",
];

/// The same for short lines.
const SEEN_SHORT: [&str; 3] = [
    "A small drafter guesses tokens; the target checks them in one pass.",
    "Right guesses are accepted; the first wrong one is rejected.",
    "The first answer starts slow. Speed is measured while you watch.",
];

/// The last of these lines where the engine is somebody else's.
const ATTACHED: [&str; 2] = [
    "Here they are those of the server that you attached to; a pause stops the display only.",
    "A server of yours: a pause stops the display only.",
];

pub(in crate::view) fn render(screen: Screen, area: Rect, frame: &mut Frame, hit_map: &mut HitMap) {
    let inner = framed(screen.panel(" Speculative decoding, live "), area, frame);
    let inner = Rect { x: inner.x + 1, width: inner.width.saturating_sub(2), ..inner };
    let (lines, first) = lines(screen, inner.width.into(), inner.height.into());
    for index in 0..STARTERS.len() {
        let y = inner.y + (first + index) as u16;
        hit_map.hit(Rect { y, height: 1, ..inner }.intersection(inner), Target::Starter(index));
    }
    put(lines, inner, frame);
}

/// The lines for a room of this size, and the index of the first starter prompt.
fn lines(screen: Screen, width: usize, room: usize) -> (Vec<Line<'static>>, usize) {
    let is_wide = SEEN.iter().all(|line| line.width() <= width);
    let mut seen = if is_wide { SEEN } else { SEEN_SHORT };
    if screen.engine().is_some() {
        seen[2] = ATTACHED[usize::from(!is_wide)];
    }
    let mut seen: Vec<_> = seen.iter().map(|text| Line::styled(cut(text, width), screen.theme[Role::Text])).collect();
    let mut more = each(screen, width);
    let starters = 1 + STARTERS.len();
    if seen.len() + starters + more.len() > room {
        more = vec![Line::styled(cut(&in_one_line(screen), width), screen.theme[Role::TextDim])];
    }
    if seen.len() + starters + more.len() > room {
        seen.clear();
    }
    let left = room.saturating_sub(seen.len() + starters + more.len());
    let gaps = usize::from(left >= 2);
    let mut lines = vec![Line::default(); left.saturating_sub(2 * gaps) / 4]; // above, so that much is empty
    lines.extend(seen);
    lines.extend(vec![Line::default(); gaps]);
    lines.push(Line::styled(cut(&how(screen), width), screen.theme[Role::TextStrong]));
    let first = lines.len();
    lines.extend(STARTERS.iter().enumerate().map(|(index, starter)| self::starter(screen, index, *starter, width)));
    lines.extend(vec![Line::default(); gaps]);
    lines.extend(more);
    (lines, first)
}

fn how(screen: Screen) -> String {
    let key = |action| screen.app.keymap.label(Context::Prompt, action);
    let (down, up, send) = (key(Action::HistoryNext), key(Action::HistoryPrevious), key(Action::Send));
    let type_ = match screen.app.is_typing() {
        true => "Type a prompt".to_owned(),
        false => format!("Press {} to type a prompt", screen.app.key(Action::EditPrompt)),
    };
    format!("{type_}, or take one with {down} {up}; {send} sends it:")
}

fn starter(screen: Screen, index: usize, (prompt, watch): (&str, &str), width: usize) -> Line<'static> {
    let chosen = screen.app.talk.chosen_starter() == Some(index);
    let longest = STARTERS.iter().map(|(prompt, _)| prompt.width()).max().unwrap_or(0);
    let sign = if chosen { "▸ " } else { "  " };
    // what to watch only if the prompts fit
    let room = width.saturating_sub(2);
    let has_room = room >= longest + 3 + STARTERS.iter().map(|(_, watch)| watch.width()).max().unwrap_or(0);
    let prompt = if has_room { fit(prompt, longest + 3) } else { cut(prompt, room) };
    let mut spans = vec![
        Span::styled(sign, screen.theme[Role::Key]),
        Span::styled(prompt, screen.theme[if chosen { Role::TextStrong } else { Role::Text }]),
    ];
    if has_room {
        spans.push(Span::styled(watch.to_owned(), screen.theme[Role::TextDim]));
    }
    Line::from(spans)
}

/// Other ways to begin, and their actions.
const MORE: [(Action, &str, &str); 4] = [
    (Action::ViewLearn, "eight lessons", "eight lessons, each with questions and real runs"),
    (Action::Demo, "a recorded demo", "a demo: a recording of this program, played slowly"),
    (Action::Tour, "tour of the screen", "a tour of the screen in 20 seconds"),
    (Action::Help, "all keys", "all keys"),
];

/// One line for each of them.
fn each(screen: Screen, width: usize) -> Vec<Line<'static>> {
    let keys = MORE.map(|(action, ..)| screen.app.key(action));
    let wide = keys.iter().map(|key| key.width()).max().unwrap_or(0) + 2;
    let line = |(key, (.., text)): (&String, &(Action, &str, &str))| {
        let text = cut(text, width.saturating_sub(wide + 2));
        let key = Span::styled(format!("  {}", fit(key, wide)), screen.theme[Role::Key]);
        Line::from(vec![key, Span::styled(text, screen.theme[Role::TextDim])])
    };
    keys.iter().zip(&MORE).map(line).collect()
}

fn in_one_line(screen: Screen) -> String {
    MORE.map(|(action, text, _)| format!("{} {text}", screen.app.key(action))).join(" · ")
}
