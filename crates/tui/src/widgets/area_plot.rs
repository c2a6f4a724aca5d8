//! A curve over time as an area on either side of a line: what is above it is gain, what is below it is loss.
//!
//! Invariant: no curve is drawn before the first point and after the last; ticks are round numbers; the line has its
//! label at the left and its name at the right. Of a plot that is too small one row of blocks is left, with the line's
//! value before it.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use unicode_width::UnicodeWidthStr;

/// Rows from which on there is a plot, without its axis.
const LEAST: u16 = 4;

/// Dots of a cell, from top to bottom.
const DOTS: usize = 4;

/// How the parts of a plot look.
#[derive(Clone, Copy)]
pub(crate) struct Look {
    pub(crate) gain: Style,
    pub(crate) loss: Style,
    pub(crate) axis: Style,
    pub(crate) label: Style,
    pub(crate) is_ascii: bool,
}

/// A curve, by seconds.
#[derive(Clone, Copy)]
pub(crate) struct AreaPlot<'a> {
    /// Points in the order of time.
    pub(crate) points: &'a [(f64, f64)],
    /// Where the time ends; it begins at 0.
    pub(crate) end: f64,
    /// Why there is no curve before the first point, the longest words first.
    pub(crate) before: &'a [&'a str],
    /// The value of the line.
    pub(crate) base: f64,
    /// What the line is.
    pub(crate) name: &'a str,
    /// A value as it is written at the left.
    pub(crate) label: fn(f64) -> String,
    /// Times at which something changed: a line from top to bottom.
    pub(crate) marks: &'a [f64],
    /// Whether the last row names times.
    pub(crate) has_times: bool,
    pub(crate) look: Look,
}

/// Columns of the labels at the left of every plot of a stack, so that their times stand below each other.
pub(crate) const MARGIN: u16 = 5;

/// The scale of a plot: cells above the line and below it, and the value of a dot.
#[derive(Clone, Copy)]
struct Scale {
    above: u16,
    below: u16,
    dot: f64,
}

impl AreaPlot<'_> {
    pub(crate) fn render(&self, area: Rect, buffer: &mut Buffer) {
        if self.points.is_empty() || area.width <= MARGIN + 4 || area.height == 0 {
            return;
        }
        let has_times = self.has_times && area.height > LEAST;
        let plot = Rect { height: area.height - u16::from(has_times), ..area };
        let field = Rect { x: plot.x + MARGIN, width: plot.width - MARGIN, ..plot };
        if plot.height < LEAST {
            self.in_a_row(Rect { height: 1, ..plot }, buffer);
            return;
        }
        let scale = self.scale(plot.height);
        self.lines(scale, plot, field, buffer);
        self.marks(field, buffer);
        self.dots(scale, field, buffer);
        self.before(scale, field, buffer);
        if has_times {
            let row = Rect { y: plot.bottom(), height: 1, ..field };
            times(self.end, row, self.look.label, buffer);
        }
    }

    /// Largest gain and loss of the curve.
    fn extent(&self) -> (f64, f64) {
        let gains = self.points.iter().map(|point| point.1 - self.base).filter(|gain| gain.is_finite());
        gains.fold((0.0, 0.0), |(gain, loss), at| (at.max(gain), (-at).max(loss)))
    }

    fn scale(&self, height: u16) -> Scale {
        let rows = height - 1; // the line has one
        let (gain, loss) = self.extent();
        // the top is a little above the data, and a curve that hardly leaves the line is not blown up
        let (gain, loss) = ((gain * 1.08).max(self.least()), loss);
        let share = loss / (gain + loss);
        let wanted = (f64::from(rows) * share).ceil() as u16;
        let below = wanted.max(u16::from(rows >= 5)).min(rows - 1);
        let above = rows - below;
        let dot = (gain / f64::from(above)).max(loss / f64::from(below.max(1))) / DOTS as f64;
        Scale { above, below, dot }
    }

    /// The smallest range above the line.
    fn least(&self) -> f64 {
        if self.base == 0.0 { 4.0 } else { self.base * 0.25 }
    }

    /// The line, its label and name, and ticks on either side of it.
    fn lines(&self, scale: Scale, plot: Rect, field: Rect, buffer: &mut Buffer) {
        let y = plot.y + scale.above;
        self.line(y, "─", self.base, plot, buffer);
        let name = format!(" {} ─", self.name);
        let width = name.width() as u16;
        if !self.name.is_empty() && width + 8 < field.width {
            buffer.set_string(field.right() - width, y, format!(" {} ", self.name), self.look.label);
        }
        let step = self.step(scale);
        let rows_of = |value: f64| (value / (scale.dot * DOTS as f64)).round() as u16;
        let ticks = (1..100).map(|n| f64::from(n) * step).map(|gain| (gain, rows_of(gain)));
        for (gain, rows) in ticks.take_while(|(_, rows)| *rows <= scale.above).filter(|(_, rows)| *rows > 0) {
            self.line(y - rows, "┈", self.base + gain, plot, buffer);
        }
        let rows = rows_of(step);
        if (2..=scale.below).contains(&rows) {
            self.line(y + rows, "┈", self.base - step, plot, buffer);
        }
    }

    fn marks(&self, field: Rect, buffer: &mut Buffer) {
        for time in self.marks.iter().filter(|time| (0.0..=self.end).contains(*time)) {
            let x = (time / self.end.max(f64::MIN_POSITIVE) * f64::from(field.width)) as u16;
            for y in field.top()..field.bottom() {
                buffer.set_string(field.x + x.min(field.width - 1), y, "┊", self.look.label);
            }
        }
    }

    /// The words in front of the curve, above the line.
    fn before(&self, scale: Scale, field: Rect, buffer: &mut Buffer) {
        let first = self.points.first().map_or(0.0, |point| point.0) / self.end.max(f64::MIN_POSITIVE);
        let room = (first.clamp(0.0, 1.0) * f64::from(field.width)) as usize;
        if let Some(words) = self.before.iter().find(|words| words.width() < room) {
            buffer.set_string(field.x, field.y + scale.above.saturating_sub(1), words, self.look.label);
        }
    }

    fn line(&self, y: u16, glyph: &str, value: f64, plot: Rect, buffer: &mut Buffer) {
        if y < plot.y || y >= plot.bottom() {
            return;
        }
        let label = (self.label)(value);
        let room = usize::from(MARGIN) - 1;
        let x = plot.x + room.saturating_sub(label.width()) as u16;
        buffer.set_stringn(x, y, &label, room, self.look.label);
        let width = usize::from(plot.width - MARGIN);
        buffer.set_stringn(plot.x + MARGIN, y, glyph.repeat(width), width, self.look.axis);
    }

    /// A round distance of ticks: at most one in three rows.
    fn step(&self, scale: Scale) -> f64 {
        let rows = f64::from(scale.above);
        let range = scale.dot * DOTS as f64 * rows;
        let most = (rows / 3.0).floor().max(1.0);
        [0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0]
            .into_iter()
            .find(|step| range / step < most + 1.0)
            .unwrap_or(range)
    }

    fn dots(&self, scale: Scale, field: Rect, buffer: &mut Buffer) {
        let columns = usize::from(field.width) * 2;
        let most = [usize::from(scale.above), usize::from(scale.below)].map(|rows| rows * DOTS);
        let gain = |column: usize| {
            let value = self.at(column, columns)? - self.base;
            let dots = (value.abs() / scale.dot).round() as usize;
            let (up, down) = if value >= 0.0 { (dots.min(most[0]), 0) } else { (0, dots.min(most[1])) };
            Some((up, down))
        };
        let y = field.y + scale.above;
        for x in 0..field.width {
            let [left, right] = [0, 1].map(|half| gain(usize::from(x) * 2 + half).unwrap_or_default());
            for row in 0..scale.above {
                let lit = [left.0, right.0].map(|dots| dots.saturating_sub(usize::from(row) * DOTS).min(DOTS));
                self.cell((field.x + x, y - 1 - row), lit, true, buffer);
            }
            for row in 0..scale.below {
                let lit = [left.1, right.1].map(|dots| dots.saturating_sub(usize::from(row) * DOTS).min(DOTS));
                self.cell((field.x + x, y + 1 + row), lit, false, buffer);
            }
        }
    }

    /// So many dots in each half of a cell, from the line on.
    fn cell(&self, (x, y): (u16, u16), lit: [usize; 2], is_gain: bool, buffer: &mut Buffer) {
        const BITS: [[u8; DOTS]; 2] = [[0x01, 0x02, 0x04, 0x40], [0x08, 0x10, 0x20, 0x80]];
        if lit == [0, 0] {
            return;
        }
        let style = if is_gain { self.look.gain } else { self.look.loss };
        let Some(cell) = buffer.cell_mut((x, y)) else { return };
        if self.look.is_ascii {
            if lit.iter().max() >= Some(&2) {
                cell.set_symbol(if is_gain { "#" } else { ":" }).set_style(style);
            }
            return;
        }
        let half = |half: usize| {
            let dots = (0..lit[half]).map(|dot| BITS[half][if is_gain { DOTS - 1 - dot } else { dot }]);
            dots.fold(0, |bits, bit| bits | bit)
        };
        let glyph = char::from_u32(0x2800 + u32::from(half(0) | half(1))).unwrap_or(' ');
        cell.set_char(glyph).set_style(style);
    }

    /// The value in a column of dots: that of the newest point up to there.
    fn at(&self, column: usize, columns: usize) -> Option<f64> {
        let time = (column as f64 + 0.5) / columns as f64 * self.end;
        let next = self.points.partition_point(|point| point.0 <= time);
        let (first, last) = (self.points.first()?, self.points.last()?);
        // the newest point is shown, however narrow the plot
        let width = self.end / columns as f64;
        match next.checked_sub(1).and_then(|at| self.points.get(at)) {
            Some(_) if time > last.0 + width => None,
            Some(point) => Some(point.1),
            None => (first.0 - time <= width).then_some(first.1),
        }
        .filter(|value| value.is_finite())
    }

    /// Blocks from the smallest value to the largest, in the colours of gain and loss.
    fn in_a_row(&self, row: Rect, buffer: &mut Buffer) {
        const BLOCKS: [&str; 8] = ["▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"];
        const ASCII: [&str; 8] = [".", ".", ":", ":", "+", "+", "#", "#"];
        let label = (self.label)(self.base);
        let room = usize::from(MARGIN) - 1;
        let x = row.x + room.saturating_sub(label.width()) as u16;
        buffer.set_stringn(x, row.y, &label, room, self.look.label);
        let (gain, loss) = self.extent();
        let (low, range) = (self.base - loss, (gain + loss).max(self.least()));
        let columns = usize::from(row.width - MARGIN);
        for column in 0..columns {
            let Some(value) = self.at(column, columns) else { continue };
            let level = (((value - low) / range * 7.0).round() as usize).min(7);
            let style = if value >= self.base { self.look.gain } else { self.look.loss };
            let glyph = if self.look.is_ascii { ASCII[level] } else { BLOCKS[level] };
            buffer.set_string(row.x + MARGIN + column as u16, row.y, glyph, style);
        }
    }
}

/// Times below plots that share them: from 0 to the end, at round distances, with the unit at the last one.
pub(crate) fn times(end: f64, row: Rect, style: Style, buffer: &mut Buffer) {
    if row.is_empty() || !end.is_finite() || end <= 0.0 {
        return;
    }
    let most = (f64::from(row.width) / 10.0).floor().max(1.0);
    let magnitudes = (-3..7).flat_map(|power| [1.0, 2.0, 5.0].map(|digit| digit * 10_f64.powi(power)));
    let Some(step) = magnitudes.into_iter().find(|step| end / step < most + 1.0) else { return };
    let is_whole = |value: f64| (value - value.round()).abs() < 1e-6;
    let digits = (0..3_u8).find(|digits| is_whole(step * 10_f64.powi((*digits).into()))).unwrap_or(3).into();
    let count = (end / step + 1e-9).floor() as u32;
    for n in 0..=count {
        let time = f64::from(n) * step;
        let unit = if n == count { " s" } else { "" };
        let label = if n == 0 && count > 0 { "0".to_owned() } else { format!("{time:.digits$}{unit}") };
        let x = (time / end * f64::from(row.width)) as u16;
        let x = x.saturating_sub(if n == 0 { 0 } else { label.width() as u16 / 2 });
        let x = x.min(row.width.saturating_sub(label.width() as u16));
        buffer.set_stringn(row.x + x, row.y, &label, usize::from(row.width - x), style);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(points: &[(f64, f64)], (width, height): (u16, u16), is_ascii: bool) -> Vec<String> {
        let style = Style::new();
        let look = Look { gain: style, loss: style, axis: style, label: style, is_ascii };
        let label = |value: f64| if value.fract() == 0.0 { format!("{value:.0}×") } else { format!("{value:.1}×") };
        let plot = AreaPlot {
            points,
            end: 2.0,
            before: &[],
            base: 1.0,
            name: "plain decoding",
            label,
            marks: &[1.0],
            has_times: true,
            look,
        };
        let area = Rect::new(0, 0, width, height);
        let mut buffer = Buffer::empty(area);
        plot.render(area, &mut buffer);
        let row = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>().trim_end().to_owned();
        (0..height).map(row).collect()
    }

    #[test]
    fn gains_rise_from_the_line_and_losses_hang_from_it() {
        let points = [(0.5, 1.5), (1.0, 2.1), (1.5, 0.7), (2.0, 1.2)];
        let rows = drawn(&points, (48, 12), true);
        let line = rows.iter().position(|row| row.trim_start().starts_with("1×")).unwrap();
        assert!(rows[line].contains(" plain decoding "), "{rows:#?}");
        assert!(rows[line - 1].contains('#') && !rows[line - 1].contains(':'), "{rows:#?}");
        assert!(rows[line + 1].contains(':') && !rows[line + 1].contains('#'), "{rows:#?}");
        assert!(rows[..line].iter().any(|row| row.trim_start().starts_with("2×")), "{rows:#?}");
        assert_eq!(rows[line - 1].find('#'), Some(MARGIN as usize + 10), "nothing before the first point");
        assert!(rows.last().unwrap().ends_with("2.0 s"), "{rows:#?}");
    }

    #[test]
    fn without_data_nothing_is_drawn_and_a_small_plot_is_a_row() {
        assert!(drawn(&[], (48, 12), false).iter().all(String::is_empty));
        let rows = drawn(&[(0.5, 1.5), (1.0, 2.1), (1.5, 0.8)], (30, 3), false);
        assert!(rows[0].trim_start().starts_with("1×") && rows[0].contains('█') && rows[0].contains('▁'), "{rows:?}");
        assert!(rows[1..].iter().all(String::is_empty));
    }

    #[test]
    fn no_size_and_no_value_panics() {
        for values in [[1.0, 1.0], [0.0, 1e9], [f64::NAN, f64::INFINITY], [0.1, 0.2], [40.0, 41.0]] {
            let points = [(0.0, values[0]), (2.0, values[1])];
            for width in [0, 1, 9, 10, 11, 40] {
                (0..14).for_each(|height| drop(drawn(&points, (width, height), height % 2 == 0)));
            }
        }
    }
}
