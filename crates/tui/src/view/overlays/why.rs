//! Why a figure is disturbed, in a box over the page.

use crate::view::prelude::*;
use crate::view::screens;

pub(in crate::view) fn render(screen: Screen, area: Rect, frame: &mut Frame) {
    let Some(text) = screen.turn().and_then(Turn::disturbance) else { return };
    let width = area.width.min(76);
    let lines = wrapped(&text, width.saturating_sub(4), screen.theme[Role::Text]);
    let area = screens::centre(area, width, (lines.len() as u16 + 2).min(area.height));
    let hint = screen.keys(Context::Panel, &[(LEAVE, "closes")]);
    let hint = Line::styled(format!(" {hint} "), screen.theme[Role::TextDim]);
    let inner = screen.over(screen.panel(" Why “disturbed”? ").bottom(hint), area, frame);
    put(lines, Rect { x: inner.x + 1, width: inner.width.saturating_sub(2), ..inner }, frame);
}
