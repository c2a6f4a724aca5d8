//! Colours of a cell of the screen as red, green and blue.

use ratatui::buffer::Cell;
use ratatui::style::{Color, Modifier};

/// Red, green, blue.
pub(super) type Rgb = [u8; 3];

/// A terminal's own colours of text and background: what a theme leaves open.
#[derive(Clone, Copy)]
pub(super) struct Ground {
    pub(super) ink: Rgb,
    pub(super) paper: Rgb,
}

/// A dark terminal. The light themes set their own background.
pub(super) const DARK: Ground = Ground { ink: [0xd8; 3], paper: [0x15, 0x15, 0x1a] };

/// Colours of a cell's text and, where it differs from the picture's, of its background.
pub(super) fn of(cell: &Cell, ground: Ground) -> (Rgb, Option<Rgb>) {
    let (fg, bg) = (rgb(cell.fg), rgb(cell.bg));
    if cell.modifier.contains(Modifier::REVERSED) {
        (bg.unwrap_or(ground.paper), Some(fg.unwrap_or(ground.ink)))
    } else {
        (fg.unwrap_or(ground.ink), bg)
    }
}

/// The colour in CSS.
pub(super) fn css([r, g, b]: Rgb) -> String {
    format!("#{r:02x}{g:02x}{b:02x}")
}

/// The 16 named terminal colours, as xterm shows them.
const NAMED: [u32; 16] = [
    0x00_00_00, 0xcd_31_31, 0x0d_bc_79, 0xe5_e5_10, 0x24_72_c8, 0xbc_3f_bc, 0x11_a8_cd, 0xe5_e5_e5, 0x66_66_66,
    0xf1_4c_4c, 0x23_d1_8b, 0xf5_f5_43, 0x3b_8e_ea, 0xd6_70_d6, 0x29_b8_db, 0xff_ff_ff,
];

/// None for the terminal's default.
fn rgb(color: Color) -> Option<Rgb> {
    let index = match color {
        Color::Reset => return None,
        Color::Rgb(r, g, b) => return Some([r, g, b]),
        Color::Indexed(index) => index,
        Color::Black => 0,
        Color::Red => 1,
        Color::Green => 2,
        Color::Yellow => 3,
        Color::Blue => 4,
        Color::Magenta => 5,
        Color::Cyan => 6,
        Color::Gray => 7,
        Color::DarkGray => 8,
        Color::LightRed => 9,
        Color::LightGreen => 10,
        Color::LightYellow => 11,
        Color::LightBlue => 12,
        Color::LightMagenta => 13,
        Color::LightCyan => 14,
        Color::White => 15,
    };
    let [_, r, g, b] = indexed(index).to_be_bytes();
    Some([r, g, b])
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
