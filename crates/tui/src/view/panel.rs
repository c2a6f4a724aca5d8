//! What a panel is drawn with: a line with a title above it, or a box for what lies over a page or is typed into.
//!
//! Invariant: nothing is cut off unseen. A title, a line and a text that do not fit end in `…`.

use ratatui::Frame;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::Line;
use ratatui::widgets::{Block, Borders, Padding, Paragraph};

use crate::widgets::cell::{cut_line, cut_lines};

/// Titles and looks of a panel.
pub(super) struct Panel {
    /// At the left and at the right of the line above.
    titles: [Line<'static>; 2],
    /// At the left and at the right of the last line.
    bottoms: [Line<'static>; 2],
    border: Style,
    title: Style,
}

impl Panel {
    pub(super) fn new(title: impl Into<Line<'static>>, border: Style, style: Style) -> Self {
        let titles = [title.into(), Line::default()];
        Self { titles, bottoms: Default::default(), border, title: style }
    }

    /// With something at the right end of its title line.
    pub(super) fn title_right(mut self, title: impl Into<Line<'static>>) -> Self {
        self.titles[1] = title.into();
        self
    }

    /// With something in its last line.
    pub(super) fn bottom(mut self, line: impl Into<Line<'static>>) -> Self {
        self.bottoms[0] = line.into();
        self
    }

    /// With something at the right end of its last line.
    pub(super) fn bottom_right(mut self, line: impl Into<Line<'static>>) -> Self {
        self.bottoms[1] = line.into();
        self
    }

    pub(super) fn border_style(self, border: Style) -> Self {
        Self { border, ..self }
    }

    pub(super) fn title_style(self, title: Style) -> Self {
        Self { title, ..self }
    }

    fn block(self, width: u16) -> Block<'static> {
        let mut block = Block::new().border_style(self.border).title_style(self.title);
        let width = usize::from(width);
        let fitted = |[mut left, right]: [Line<'static>; 2]| {
            // what does not fit beside the left one is left out
            let right = if left.width() + right.width() <= width { right } else { Line::default() };
            cut_line(&mut left, width);
            [left, right.right_aligned()]
        };
        for title in fitted(self.titles).into_iter().filter(|title| title.width() > 0) {
            block = block.title_top(title);
        }
        for bottom in fitted(self.bottoms).into_iter().filter(|bottom| bottom.width() > 0) {
            block = block.title_bottom(bottom);
        }
        block
    }
}

/// Height of what [`framed`] draws above a panel's content.
pub(super) const FRAME: u16 = 1;

/// Draws a panel: a line above it, and one at its left where another panel stands there; what is inside of it.
pub(super) fn framed(panel: Panel, area: Rect, frame: &mut Frame) -> Rect {
    let has_left = area.x > frame.area().x;
    let (borders, left) = if has_left { (Borders::TOP | Borders::LEFT, 0) } else { (Borders::TOP, 1) };
    let border = panel.border;
    let block = panel.block(area.width.saturating_sub(2)).borders(borders).padding(Padding::new(left, 1, 0, 0));
    let inner = block.inner(area);
    frame.render_widget(block, area);
    join(area, (has_left, border), frame.buffer_mut());
    inner
}

/// Draws a box; what is inside of it.
pub(super) fn boxed(panel: Panel, area: Rect, frame: &mut Frame) -> Rect {
    let block = panel.block(area.width.saturating_sub(2)).borders(Borders::ALL);
    let inner = block.inner(area);
    frame.render_widget(block, area);
    inner
}

/// Joins the lines of a panel with those of the panels above.
fn join(area: Rect, (has_left, border): (bool, Style), buffer: &mut Buffer) {
    let is_line = |buffer: &Buffer, x: u16| {
        let above = area.y.checked_sub(1).and_then(|y| buffer.cell((x, y)));
        let is_ours = |cell: &&ratatui::buffer::Cell| border.fg.is_none_or(|fg| fg == cell.fg);
        above.filter(is_ours).is_some_and(|cell| "│├┬".contains(cell.symbol()))
    };
    for x in area.left()..area.right() {
        let is_corner = has_left && x == area.left();
        let joined = match is_line(buffer, x) {
            true if is_corner => "├",
            true => "┴",
            false if is_corner => "┬",
            false => continue,
        };
        if let Some(cell) = buffer.cell_mut((x, area.y)).filter(|cell| "─┌".contains(cell.symbol())) {
            cell.set_symbol(joined);
        }
    }
}

/// Draws lines into an area. What does not fit ends in `…`.
pub(super) fn put(lines: Vec<Line<'static>>, area: Rect, frame: &mut Frame) {
    #[cfg(test)]
    cuts::note(&lines, area);
    frame.render_widget(Paragraph::new(cut_lines(lines, area.width, area.height)), area);
}

/// What was cut while a test drew.
#[cfg(test)]
pub(crate) mod cuts {
    use std::cell::RefCell;

    use unicode_width::UnicodeWidthStr;

    use super::{Line, Rect};

    thread_local! {
        static CUTS: RefCell<Vec<(Rect, String)>> = const { RefCell::new(Vec::new()) };
    }

    pub(super) fn note(lines: &[Line], area: Rect) {
        let is_cut = lines.len() > area.height.into()
            || lines.iter().any(|line| line.to_string().trim_end().width() > area.width.into());
        let last = || lines.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
        if is_cut && !area.is_empty() {
            CUTS.with_borrow_mut(|cuts| cuts.push((area, last())));
        }
    }

    /// All cuts since the last call.
    pub(crate) fn taken() -> Vec<(Rect, String)> {
        CUTS.with_borrow_mut(std::mem::take)
    }
}
