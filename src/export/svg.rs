//! A screen as an SVG picture: neighbouring cells of one style become one text element.
//!
//! Invariant: the picture loads nothing: a monospaced font is enough, and one that stands alone brings its own. Every
//! character is escaped, and one that XML forbids becomes U+FFFD.

use std::io;
use unicode_width::UnicodeWidthStr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::{Buffer, Cell};
use ratatui::style::Modifier;

use draftscope_session::trace::Recording;

use super::atomic_file::Out;
use super::colors::{self, DARK, css};
use super::error::WriteError;
use super::options::ExportOptions;
use super::screen::{self, Stage};

/// Width and height of a cell in pixels: those of the bundled font at 16 pixels.
const CELL: (f32, f32) = (8.0, 20.0);

/// From the top of a cell to the line on which letters stand.
const ASCENT: f32 = 15.44;

/// The bundled font as WOFF2: `assets/font/subset.py` makes it.
pub(super) const FONT: &[u8] = include_bytes!("../../assets/font/marks.woff2");

pub(super) fn write(recording: &Recording, options: &ExportOptions, out: Out<'_>) -> Result<(), WriteError> {
    let mut stage = screen::at(recording, options)?;
    Ok(out.write_all(with_font(&picture(&mut stage, options)?).as_bytes())?)
}

/// Draws the stage as SVG.
pub(super) fn picture(stage: &mut Stage, options: &ExportOptions) -> io::Result<String> {
    let (cols, rows) = options.size;
    let mut terminal = Terminal::new(TestBackend::new(cols, rows)).map_err(io::Error::other)?;
    stage.draw(&mut terminal)?;
    Ok(svg(terminal.backend().buffer()))
}

/// The picture with the bundled font, so that every mark looks alike everywhere.
pub(super) fn with_font(svg: &str) -> String {
    let font = STANDARD.encode(FONT);
    let style = format!(
        "<style>@font-face{{font-family:Marks;src:url(data:font/woff2;base64,{font}) format(\"woff2\")}}</style>\n<rect"
    );
    svg.replacen("<rect", &style, 1)
}

/// The screen as SVG, without a font.
pub(super) fn svg(buffer: &Buffer) -> String {
    let (width, height) = (f32::from(buffer.area.width) * CELL.0, f32::from(buffer.area.height) * CELL.1);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.1} {height:.1}\" width=\"{width:.0}\" height=\"{height:.0}\" \
         font-family=\"Marks,ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace\" font-size=\"16\" xml:space=\"preserve\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"{}\"/>\n",
        css(DARK.paper)
    );
    for y in 0..buffer.area.height {
        let mut x = 0;
        while x < buffer.area.width {
            let end = run(buffer, x, y);
            out.push_str(&piece(buffer, (x, end, y)));
            x = end;
        }
    }
    out.push_str("</svg>\n");
    out
}

/// The rows of the screen as text, without the blanks at their ends.
pub(super) fn lines(buffer: &Buffer) -> Vec<String> {
    (0..buffer.area.height).map(|y| text(buffer, 0, buffer.area.width, y).trim_end().to_owned()).collect()
}

/// Column after the last cell with the style of the cell at `x`.
fn run(buffer: &Buffer, x: u16, y: u16) -> u16 {
    let look = |cell: &Cell| (cell.fg, cell.bg, cell.modifier);
    let first = look(&buffer[(x, y)]);
    // a wide character covers the next cell
    let mut end = x + buffer[(x, y)].symbol().width().max(1) as u16;
    while end < buffer.area.width && look(&buffer[(end, y)]) == first {
        end += buffer[(end, y)].symbol().width().max(1) as u16;
    }
    end.min(buffer.area.width)
}

fn piece(buffer: &Buffer, (from, to, y): (u16, u16, u16)) -> String {
    let cell = &buffer[(from, y)];
    let (fg, bg) = colors::of(cell, DARK);
    let (left, top) = (f32::from(from) * CELL.0, f32::from(y) * CELL.1);
    let width = f32::from(to - from) * CELL.0;
    let mut out = String::new();
    if let Some(bg) = bg {
        out.push_str(&format!(
            "<rect x=\"{left:.1}\" y=\"{top:.1}\" width=\"{width:.1}\" height=\"{:.1}\" fill=\"{}\"/>\n",
            CELL.1,
            css(bg)
        ));
    }
    let text = text(buffer, from, to, y);
    if !text.trim().is_empty() {
        let (fg, baseline) = (css(fg), top + ASCENT);
        out.push_str(&format!(
            "<text x=\"{left:.1}\" y=\"{baseline:.2}\" textLength=\"{width:.1}\" lengthAdjust=\"spacingAndGlyphs\" fill=\"{fg}\"{}>{}</text>\n",
            decoration(cell.modifier),
            escaped(&text)
        ));
    }
    out
}

fn text(buffer: &Buffer, from: u16, to: u16, y: u16) -> String {
    let mut out = String::new();
    let mut x = from;
    while x < to {
        let symbol = buffer[(x, y)].symbol();
        out.push_str(symbol);
        x += symbol.width().max(1) as u16;
    }
    out
}

fn decoration(modifier: Modifier) -> String {
    let mut lines = Vec::new();
    if modifier.contains(Modifier::UNDERLINED) {
        lines.push("underline");
    }
    if modifier.contains(Modifier::CROSSED_OUT) {
        lines.push("line-through");
    }
    let mut out = String::new();
    if !lines.is_empty() {
        out.push_str(&format!(" text-decoration=\"{}\"", lines.join(" ")));
    }
    let others = [
        (Modifier::BOLD, " font-weight=\"bold\""),
        (Modifier::ITALIC, " font-style=\"italic\""),
        (Modifier::DIM, " opacity=\"0.65\""),
    ];
    others.iter().filter(|(m, _)| modifier.contains(*m)).for_each(|(_, text)| out.push_str(text));
    out
}

fn escaped(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            ' ' => out.push('\u{a0}'), // viewers collapse spaces
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use ratatui::layout::Rect;
    use ratatui::style::{Color, Style};

    use super::*;

    #[test]
    fn text_of_a_model_is_escaped_and_colours_are_those_of_the_cells() {
        let mut buffer = Buffer::empty(Rect::new(0, 0, 30, 1));
        buffer.set_string(0, 0, "</text><script>&\"", Style::new().fg(Color::Rgb(1, 2, 3)));
        buffer[(20, 0)].set_symbol("\u{1b}");
        buffer[(22, 0)].set_symbol("日").set_style(Style::new().add_modifier(Modifier::REVERSED | Modifier::BOLD));
        let svg = with_font(&svg(&buffer));
        assert!(svg.contains("&lt;/text&gt;&lt;script&gt;&amp;&quot;") && !svg.contains("<script"));
        assert!(!svg.contains('\u{1b}') && svg.contains('\u{fffd}'));
        assert!(svg.contains("fill=\"#010203\""));
        assert!(svg.contains("width=\"16.0\" height=\"20.0\" fill=\"#d8d8d8\""), "a wide character covers two cells");
        assert!(svg.contains("fill=\"#15151a\" font-weight=\"bold\">日<"));
        assert!(svg.contains("url(data:font/woff2;base64,") && svg.matches("http").count() == 1, "loads nothing");
    }
}
