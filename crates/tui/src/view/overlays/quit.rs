//! The question before quitting with an unsaved session.

use crate::view::prelude::*;
use crate::view::screens;

pub(in crate::view) fn render(screen: Screen, area: Rect, frame: &mut Frame) {
    let width = area.width.min(64);
    let key = |action| screen.app.keymap.label(Context::Quit, action);
    let turns = screen.time.live().turns().len();
    let what = if turns == 1 { "one answer".to_owned() } else { format!("{turns} answers") };
    let asks = format!("This session is not saved: {what}, with every round.");
    let mut lines = wrapped(&asks, width.saturating_sub(4), screen.theme[Role::Text]);
    lines.push(Line::default());
    for (keys, does) in [
        (key(Action::Save), "save it here, and quit"),
        (format!("{} {}", key(Action::Quit), key(Action::StopOrQuit)), "quit without saving"),
        (key(Action::Leave), "stay"),
    ] {
        lines.push(Line::styled(format!("  {keys:<10} {does}"), screen.theme[Role::TextStrong]));
    }
    lines.push(Line::default());
    let always = format!(
        "autosave, in the settings ({}), saves without asking.",
        screen.app.keymap.label(Context::Browse, Action::Settings)
    );
    lines.extend(wrapped(&always, width.saturating_sub(4), screen.theme[Role::TextDim]));
    let area = screens::centre(area, width, (lines.len() as u16 + 2).min(area.height));
    let inner = screen.over(screen.panel(" Quit? "), area, frame);
    put(lines, Rect { x: inner.x + 1, width: inner.width.saturating_sub(2), ..inner }, frame);
}
