//! A screen as an SVG picture: neighbouring cells of one style become one text element.
//!
//! Invariant: the picture needs only a monospaced font and loads nothing. Every character is escaped, and one that XML
//! forbids becomes U+FFFD.

use std::io;

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::{Buffer, Cell};
use ratatui::style::{Color, Modifier};
use unicode_width::UnicodeWidthStr;

use crate::trace::Recording;

use super::atomic_file::Out;
use super::screen::{self, Stage};
use super::{ExportOptions, WriteError};

/// Width and height of a cell in pixels.
const CELL: (f32, f32) = (8.4, 18.0);

pub(super) fn write(recording: &Recording, options: &ExportOptions, out: Out<'_>) -> Result<(), WriteError> {
    let mut stage = screen::at(recording, options)?;
    Ok(out.write_all(picture(&mut stage, options)?.as_bytes())?)
}

/// Draws the stage as SVG.
pub(super) fn picture(stage: &mut Stage, options: &ExportOptions) -> io::Result<String> {
    let (cols, rows) = options.size;
    let mut terminal = Terminal::new(TestBackend::new(cols, rows)).map_err(io::Error::other)?;
    stage.draw(&mut terminal)?;
    let is_light = options.theme.as_deref().is_some_and(|theme| theme.contains("light"));
    Ok(svg(terminal.backend().buffer(), if is_light { ["#1c1c1c", "#fafafa"] } else { ["#d8d8d8", "#15151a"] }))
}

fn svg(buffer: &Buffer, [ink, paper]: [&str; 2]) -> String {
    let (width, height) = (f32::from(buffer.area.width) * CELL.0, f32::from(buffer.area.height) * CELL.1);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.1} {height:.1}\" width=\"{width:.0}\" height=\"{height:.0}\" \
         font-family=\"ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace\" font-size=\"14\" xml:space=\"preserve\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"{paper}\"/>\n"
    );
    for y in 0..buffer.area.height {
        let mut x = 0;
        while x < buffer.area.width {
            let end = run(buffer, x, y);
            out.push_str(&piece(buffer, (x, end, y), [ink, paper]));
            x = end;
        }
    }
    out.push_str("</svg>\n");
    out
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

fn piece(buffer: &Buffer, (from, to, y): (u16, u16, u16), [ink, paper]: [&str; 2]) -> String {
    let cell = &buffer[(from, y)];
    let (mut fg, mut bg) = (colour(cell.fg), colour(cell.bg));
    if cell.modifier.contains(Modifier::REVERSED) {
        (fg, bg) = (bg.or(Some(paper.to_owned())), fg.or(Some(ink.to_owned())));
    }
    let (left, top) = (f32::from(from) * CELL.0, f32::from(y) * CELL.1);
    let width = f32::from(to - from) * CELL.0;
    let mut out = String::new();
    if let Some(bg) = bg {
        out.push_str(&format!(
            "<rect x=\"{left:.1}\" y=\"{top:.1}\" width=\"{width:.1}\" height=\"{:.1}\" fill=\"{bg}\"/>\n",
            CELL.1
        ));
    }
    let text = text(buffer, from, to, y);
    if !text.trim().is_empty() {
        let fg = fg.unwrap_or_else(|| ink.to_owned());
        let baseline = top + 13.5;
        out.push_str(&format!(
            "<text x=\"{left:.1}\" y=\"{baseline:.1}\" textLength=\"{width:.1}\" lengthAdjust=\"spacingAndGlyphs\" fill=\"{fg}\"{}>{}</text>\n",
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

/// The 16 named terminal colours, as xterm shows them.
const NAMED: [u32; 16] = [
    0x00_00_00, 0xcd_31_31, 0x0d_bc_79, 0xe5_e5_10, 0x24_72_c8, 0xbc_3f_bc, 0x11_a8_cd, 0xe5_e5_e5, 0x66_66_66,
    0xf1_4c_4c, 0x23_d1_8b, 0xf5_f5_43, 0x3b_8e_ea, 0xd6_70_d6, 0x29_b8_db, 0xff_ff_ff,
];

/// The colour in CSS; none for the terminal's default.
fn colour(colour: Color) -> Option<String> {
    let hex = |rgb: u32| Some(format!("#{rgb:06x}"));
    match colour {
        Color::Reset => None,
        Color::Rgb(r, g, b) => hex(u32::from_be_bytes([0, r, g, b])),
        Color::Indexed(index) => hex(indexed(index)),
        Color::Black => hex(NAMED[0]),
        Color::Red => hex(NAMED[1]),
        Color::Green => hex(NAMED[2]),
        Color::Yellow => hex(NAMED[3]),
        Color::Blue => hex(NAMED[4]),
        Color::Magenta => hex(NAMED[5]),
        Color::Cyan => hex(NAMED[6]),
        Color::Gray => hex(NAMED[7]),
        Color::DarkGray => hex(NAMED[8]),
        Color::LightRed => hex(NAMED[9]),
        Color::LightGreen => hex(NAMED[10]),
        Color::LightYellow => hex(NAMED[11]),
        Color::LightBlue => hex(NAMED[12]),
        Color::LightMagenta => hex(NAMED[13]),
        Color::LightCyan => hex(NAMED[14]),
        Color::White => hex(NAMED[15]),
    }
}

/// xterm's 256 colours: the named ones, a 6×6×6 cube, greys.
fn indexed(index: u8) -> u32 {
    match index {
        0..16 => NAMED[usize::from(index)],
        16..232 => {
            let level = |n: u8| if n == 0 { 0 } else { 55 + 40 * u32::from(n) };
            let n = index - 16;
            level(n / 36) << 16 | level(n / 6 % 6) << 8 | level(n % 6)
        }
        232.. => (8 + 10 * u32::from(index - 232)) * 0x01_01_01,
    }
}
