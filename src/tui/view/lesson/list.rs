//! The list of lessons, with ticks.

use super::super::prelude::*;

pub(super) fn render(screen: Screen, area: Rect, frame: &mut Frame) {
    let block = screen.panel(" Lessons ");
    let keys = screen.keys(Context::Browse, &[(CHOOSE, "choose"), (&[Action::Open], "begins")]);
    let block = block.bottom(Line::styled(format!(" {keys} "), screen.theme[Role::TextDim]));
    let inner = framed(block, area, frame);
    let entries = &screen.app.lessons;
    let height = if usize::from(inner.height) >= entries.len() * 2 { 2 } else { 1 };
    let room = (usize::from(inner.height) / height).max(1);
    let first = (screen.app.lesson.choice + 1).saturating_sub(room);
    let mut lines = Vec::new();
    for (index, entry) in entries.iter().enumerate().skip(first).take(room) {
        let is_chosen = index == screen.app.lesson.choice;
        let marker = if is_chosen { "▸" } else { " " };
        let steps = entry.lesson.step.len();
        let done = screen.app.progress.done(&entry.name, &entry.lesson);
        let tick = if done >= steps { "✓" } else { " " };
        let state = match done {
            0 => String::new(),
            _ if done >= steps => " · done".to_owned(),
            _ => format!(" · {done} of {steps} steps"),
        };
        let own = if entry.is_own { " (yours)" } else { "" };
        let title = format!(" {marker} {tick} {} {}{own}", index + 1, entry.lesson.title);
        let line = Line::from(vec![
            Span::styled(title, screen.theme[Role::TextStrong]),
            Span::styled(state, screen.theme[Role::TextDim]),
        ]);
        lines.push(if is_chosen { line.patch_style(screen.theme[Role::Selected]) } else { line });
        if height == 2 {
            let summary = format!("       {}", entry.lesson.summary);
            lines.push(Line::styled(cut(&summary, inner.width.into()), screen.theme[Role::TextDim]));
        }
    }
    put(lines, inner, frame);
}
