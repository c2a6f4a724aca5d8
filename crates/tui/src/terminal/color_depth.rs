//! How many colours a terminal shows, and the nearest one to a colour that it lacks.

use ratatui::style::Color;

/// How many colours a terminal shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ColorDepth {
    /// 24 bits.
    True,
    /// The 256-colour palette.
    #[default]
    Indexed,
    /// The 16 colours of the terminal.
    Ansi,
    /// None.
    Mono,
}

/// The 16 colours as terminals usually show them.
const ANSI: [(Color, [u8; 3]); 16] = [
    (Color::Black, [0, 0, 0]),
    (Color::Red, [170, 0, 0]),
    (Color::Green, [0, 170, 0]),
    (Color::Yellow, [170, 128, 0]),
    (Color::Blue, [0, 0, 170]),
    (Color::Magenta, [170, 0, 170]),
    (Color::Cyan, [0, 170, 170]),
    (Color::Gray, [190, 190, 190]),
    (Color::DarkGray, [110, 110, 110]),
    (Color::LightRed, [255, 110, 110]),
    (Color::LightGreen, [110, 255, 110]),
    (Color::LightYellow, [255, 230, 110]),
    (Color::LightBlue, [110, 150, 255]),
    (Color::LightMagenta, [255, 130, 255]),
    (Color::LightCyan, [110, 255, 255]),
    (Color::White, [255, 255, 255]),
];

impl ColorDepth {
    /// From the values of `COLORTERM` and `TERM`.
    #[must_use]
    pub fn of(colorterm: Option<&str>, term: Option<&str>) -> Self {
        if matches!(colorterm, Some("truecolor" | "24bit")) {
            return Self::True;
        }
        match term {
            Some(term) if term.contains("direct") => Self::True,
            Some(term) if ["256color", "kitty", "alacritty", "ghostty"].iter().any(|t| term.contains(t)) => {
                Self::Indexed
            }
            _ => Self::Ansi,
        }
    }

    /// The nearest colour that it has; `None` if it has no colours.
    #[must_use]
    pub fn fit(self, color: Color) -> Option<Color> {
        match (self, color) {
            (Self::Mono, _) => None,
            (Self::Indexed, Color::Rgb(r, g, b)) => Some(to_indexed(r, g, b)),
            (Self::Ansi, Color::Rgb(r, g, b)) => Some(to_ansi(r, g, b)),
            _ => Some(color),
        }
    }
}

/// The nearest colour of the 6 × 6 × 6 cube or the grey ramp.
fn to_indexed(r: u8, g: u8, b: u8) -> Color {
    let level = |v: u8| match v {
        0..48 => 0,
        48..115 => 1,
        _ => (v - 35) / 40,
    };
    let spread = r.max(g).max(b) - r.min(g).min(b);
    if spread < 10 && (8..=238).contains(&r) {
        return Color::Indexed(232 + (r - 8) / 10);
    }
    Color::Indexed(16 + 36 * level(r) + 6 * level(g) + level(b))
}

fn to_ansi(r: u8, g: u8, b: u8) -> Color {
    let distance = |known: &[u8; 3]| -> i32 {
        let part = |i: usize, v: u8| (i32::from(known[i]) - i32::from(v)).pow(2);
        part(0, r) + part(1, g) + part(2, b)
    };
    ANSI.iter().min_by_key(|(_, known)| distance(known)).map_or(Color::Reset, |(color, _)| *color)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_tells_the_depth() {
        assert_eq!(ColorDepth::of(Some("truecolor"), Some("xterm")), ColorDepth::True);
        assert_eq!(ColorDepth::of(None, Some("xterm-256color")), ColorDepth::Indexed);
        assert_eq!(ColorDepth::of(Some(""), Some("tmux-256color")), ColorDepth::Indexed);
        assert_eq!(ColorDepth::of(None, Some("linux")), ColorDepth::Ansi);
        assert_eq!(ColorDepth::of(None, None), ColorDepth::Ansi);
    }

    #[test]
    fn colours_become_the_nearest_there_is() {
        assert_eq!(ColorDepth::Indexed.fit(Color::Rgb(255, 0, 0)), Some(Color::Indexed(196)));
        assert_eq!(ColorDepth::Indexed.fit(Color::Rgb(255, 255, 255)), Some(Color::Indexed(231)));
        assert_eq!(ColorDepth::Ansi.fit(Color::Rgb(127, 216, 143)), Some(Color::LightGreen));
        assert_eq!(ColorDepth::Ansi.fit(Color::Rgb(240, 113, 120)), Some(Color::LightRed));
        assert_eq!(ColorDepth::Ansi.fit(Color::Blue), Some(Color::Blue));
        assert_eq!(ColorDepth::Mono.fit(Color::Blue), None);
        assert_eq!(ColorDepth::True.fit(Color::Rgb(1, 2, 3)), Some(Color::Rgb(1, 2, 3)));
    }
}
