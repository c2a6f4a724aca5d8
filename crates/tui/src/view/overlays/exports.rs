//! The formats in which a session can be exported.
//!
//! Invariant: the caller supplies the list; the writer of a file reports what was written, and where.

use crate::view::prelude::*;
use crate::view::screens;

/// Width of the names.
const NAME: usize = 14;

pub(in crate::view) fn render(screen: Screen, row: usize, area: Rect, frame: &mut Frame) {
    let Some(exporter) = &screen.app.options.export else {
        return;
    };
    // below the list, all that there is to say of the chosen one
    let width = area.width.min(76).saturating_sub(4);
    let about = exporter.formats.get(row).map_or("", |(_, about)| about);
    let about = wrapped(about, width, screen.theme[Role::Text]);
    let height = exporter.formats.len() as u16 + 2 + about.len() as u16;
    let area = screens::centre(area, area.width.min(76), height.min(area.height));
    let block = screen.panel(" Export the session as ");
    let hint = screen.keys(
        Context::Panel,
        &[(CHOOSE, "choose"), (&[Action::Confirm], "writes it into this folder"), (LEAVE, "closes")],
    );
    let block = block.bottom(Line::styled(format!(" {hint} "), screen.theme[Role::TextDim]));
    let inner = screen.over(block, area, frame);
    let [inner, below] = Layout::vertical([Constraint::Min(1), Constraint::Length(about.len() as u16)]).areas(inner);
    put(about, Rect { x: below.x + 2, width: below.width.saturating_sub(2), ..below }, frame);
    let room = usize::from(inner.width).saturating_sub(2 + NAME);
    let rows = usize::from(inner.height).max(1);
    let top = (row + 1).saturating_sub(rows);
    let line = |(index, (name, about)): (usize, &(String, String))| {
        let line = Line::from(vec![
            Span::styled(if index == row { "▸ " } else { "  " }, screen.theme[Role::Key]),
            Span::styled(fit(name, NAME), screen.theme[Role::TextStrong]),
            Span::styled(cut(about, room), screen.theme[Role::TextDim]),
        ]);
        if index == row { line.patch_style(screen.theme[Role::Selected]) } else { line }
    };
    let lines = exporter.formats.iter().enumerate().skip(top).take(rows).map(line);
    put(lines.collect(), inner, frame);
}
