//! A screen as a PNG picture, drawn with the bundled font.
//!
//! Invariant: a cell is a whole number of pixels and the font's line fills it, so that boxes and bars have no gaps.
//! A character that the font lacks is an empty box.

use std::io;

use ab_glyph_rasterizer::{Point, Rasterizer, point};
use ratatui::buffer::{Buffer, Cell};
use ratatui::style::Modifier;
use skrifa::instance::{LocationRef, Size};
use skrifa::outline::{DrawSettings, OutlinePen};
use skrifa::{FontRef, GlyphId, MetadataProvider};
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use super::colors::{self, DARK, Rgb};

/// The bundled font: `assets/font/subset.py` makes it.
pub(super) const FONT: &[u8] = include_bytes!("../../assets/font/marks.ttf");

/// Width and height of a cell in pixels.
pub(super) const CELL: (u32, u32) = (16, 40);

/// Pixels per unit of the font, whose line is 1250 units high. Outlines are scaled here, because a fixed-point size
/// would leave gaps of a fraction of a pixel between cells.
const SCALE: f32 = CELL.1 as f32 / 1250.0;

/// Pixels around a cell into which an outline may reach.
const MARGIN: u32 = 16;

/// Share of a dim character's colour; the rest is background.
const DIM: f32 = 0.65;

/// How far slanted text leans to the right per pixel of height.
const SLANT: f32 = 0.18;

/// Draws the screen.
///
/// # Errors
/// When the picture cannot be encoded.
pub(super) fn picture(buffer: &Buffer) -> io::Result<Vec<u8>> {
    let font = FontRef::new(FONT).map_err(io::Error::other)?;
    let (width, height) = (u32::from(buffer.area.width) * CELL.0, u32::from(buffer.area.height) * CELL.1);
    let mut canvas = Canvas { width, height, pixels: DARK.paper.repeat((width * height) as usize) };
    for row in 0..buffer.area.height {
        let mut column = 0;
        while column < buffer.area.width {
            let cell = &buffer[(buffer.area.x + column, buffer.area.y + row)];
            let columns = cell.symbol().width().max(1) as u16;
            canvas.cell(&font, cell, (column.into(), row.into()), columns.into());
            column += columns;
        }
    }
    let mut out = Vec::new();
    let mut encoder = png::Encoder::new(&mut out, width, height);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    let mut writer = encoder.write_header().map_err(io::Error::other)?;
    writer.write_image_data(&canvas.pixels).map_err(io::Error::other)?;
    writer.finish().map_err(io::Error::other)?;
    Ok(out)
}

struct Canvas {
    width: u32,
    height: u32,
    /// Red, green and blue of each pixel, row by row.
    pixels: Vec<u8>,
}

impl Canvas {
    /// Draws a cell that stands at a column and row and covers so many columns.
    fn cell(&mut self, font: &FontRef<'_>, cell: &Cell, (column, row): (u32, u32), columns: u32) {
        let (left, top) = (column * CELL.0, row * CELL.1);
        let (ink, paper) = colors::of(cell, DARK);
        let width = columns * CELL.0;
        if let Some(paper) = paper {
            self.fill((left, top), (width, CELL.1), paper);
        }
        let share = if cell.modifier.contains(Modifier::DIM) { DIM } else { 1.0 };
        for c in cell.symbol().chars().filter(|c| c.width().unwrap_or(1) > 0 && *c != ' ') {
            self.character(font, c, (left, top), cell.modifier, (ink, share));
        }
        let lines = [(Modifier::UNDERLINED, 35), (Modifier::CROSSED_OUT, 22)];
        for (_, y) in lines.iter().filter(|(line, _)| cell.modifier.contains(*line)) {
            self.fill((left, top + y), (width, 2), ink);
        }
    }

    fn character(
        &mut self,
        font: &FontRef<'_>,
        c: char,
        (left, top): (u32, u32),
        modifier: Modifier,
        (ink, share): (Rgb, f32),
    ) {
        let glyph = font.charmap().map(c).unwrap_or(GlyphId::NOTDEF);
        let Some(outline) = font.outline_glyphs().get(glyph) else {
            return;
        };
        let ascent = font.metrics(Size::unscaled(), LocationRef::default()).ascent * SCALE;
        let strokes = if modifier.contains(Modifier::BOLD) { 2 } else { 1 };
        for stroke in 0..strokes {
            let mut pen = Pen {
                rasterizer: Rasterizer::new((2 * (CELL.0 + MARGIN)) as usize, (CELL.1 + 2 * MARGIN) as usize),
                origin: point(MARGIN as f32 + stroke as f32, MARGIN as f32 + ascent),
                slant: if modifier.contains(Modifier::ITALIC) { SLANT } else { 0.0 },
                start: point(0.0, 0.0),
                last: point(0.0, 0.0),
            };
            let size = Size::unscaled();
            if outline.draw(DrawSettings::unhinted(size, LocationRef::default()), &mut pen).is_err() {
                return; // a test draws every glyph of the bundled font
            }
            let corner = (left as f32 - MARGIN as f32, top as f32 - MARGIN as f32);
            pen.rasterizer.for_each_pixel_2d(|x, y, coverage| {
                self.blend(corner.0 + x as f32, corner.1 + y as f32, ink, coverage * share);
            });
        }
    }

    fn fill(&mut self, (left, top): (u32, u32), (width, height): (u32, u32), color: Rgb) {
        for y in top..(top + height).min(self.height) {
            for x in left..(left + width).min(self.width) {
                let at = ((y * self.width + x) * 3) as usize;
                self.pixels[at..at + 3].copy_from_slice(&color);
            }
        }
    }

    /// Mixes a colour into a pixel; outside of the picture nothing happens.
    fn blend(&mut self, x: f32, y: f32, color: Rgb, share: f32) {
        if x < 0.0 || y < 0.0 || x >= self.width as f32 || y >= self.height as f32 {
            return;
        }
        let share = share.clamp(0.0, 1.0);
        let at = ((y as u32 * self.width + x as u32) * 3) as usize;
        for (old, new) in self.pixels[at..at + 3].iter_mut().zip(color) {
            *old = (f32::from(*old) * (1.0 - share) + f32::from(new) * share).round() as u8;
        }
    }
}

/// Passes an outline, which has y upwards, to the rasterizer.
struct Pen {
    rasterizer: Rasterizer,
    origin: Point,
    slant: f32,
    start: Point,
    last: Point,
}

impl Pen {
    fn place(&self, x: f32, y: f32) -> Point {
        point(self.origin.x + (x + y * self.slant) * SCALE, self.origin.y - y * SCALE)
    }
}

impl OutlinePen for Pen {
    fn move_to(&mut self, x: f32, y: f32) {
        (self.start, self.last) = (self.place(x, y), self.place(x, y));
    }

    fn line_to(&mut self, x: f32, y: f32) {
        let to = self.place(x, y);
        self.rasterizer.draw_line(self.last, to);
        self.last = to;
    }

    fn quad_to(&mut self, cx: f32, cy: f32, x: f32, y: f32) {
        let to = self.place(x, y);
        self.rasterizer.draw_quad(self.last, self.place(cx, cy), to);
        self.last = to;
    }

    fn curve_to(&mut self, ax: f32, ay: f32, bx: f32, by: f32, x: f32, y: f32) {
        let to = self.place(x, y);
        self.rasterizer.draw_cubic(self.last, self.place(ax, ay), self.place(bx, by), to);
        self.last = to;
    }

    fn close(&mut self) {
        self.rasterizer.draw_line(self.last, self.start);
        self.last = self.start;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::Path;

    use ratatui::layout::Rect;
    use ratatui::style::{Color, Style};

    use super::*;

    /// Decodes a PNG: its size and its pixels.
    fn decoded(bytes: &[u8]) -> ((u32, u32), Vec<u8>) {
        let mut reader = png::Decoder::new(io::Cursor::new(bytes)).read_info().unwrap();
        let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
        let info = reader.next_frame(&mut pixels).unwrap();
        ((info.width, info.height), pixels)
    }

    /// Characters of the source files and snapshots below a folder that are not ASCII.
    fn marks(folder: &Path, found: &mut BTreeSet<char>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                // prompts are sent to a model; where they are shown, they are text of a user
                if path.file_name().is_none_or(|name| name != "prompts") {
                    marks(&path, found);
                }
            } else if path.extension().is_some_and(|e| e == "rs" || e == "toml" || e == "snap") {
                found.extend(fs::read_to_string(&path).unwrap().chars().filter(|c| !c.is_ascii()));
            }
        }
    }

    #[test]
    fn the_font_has_every_mark_that_the_program_draws() {
        let font = FontRef::new(FONT).unwrap();
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let mut found = BTreeSet::new();
        ["crates/tui/src", "crates/session/src", "assets"]
            .iter()
            .for_each(|folder| marks(&root.join(folder), &mut found));
        found.extend('\u{2800}'..='\u{28ff}'); // plots
        found.extend(' '..='~');
        // scripts of model output, which no small font has; a character of width 0 is not drawn
        let is_wide = |c: &char| c.width() == Some(2);
        let is_flag = |c: &char| matches!(c, '\u{1f1e6}'..='\u{1f1ff}');
        let (charmap, outlines) = (font.charmap(), font.outline_glyphs());
        let metrics = font.glyph_metrics(Size::unscaled(), LocationRef::default());
        let fills_a_cell = |c: char| {
            let glyph = charmap.map(c).filter(|glyph| outlines.get(*glyph).is_some());
            glyph.and_then(|glyph| metrics.advance_width(glyph)) == Some(500.0)
        };
        let missing: String = found
            .into_iter()
            .filter(|c| c.width().unwrap_or(0) > 0 && !is_wide(c) && !is_flag(c))
            .filter(|c| !fills_a_cell(*c))
            .collect();
        assert_eq!(missing, "", "add the blocks of these characters to assets/font/subset.py");
        assert!(FONT.len() + super::super::svg::FONT.len() <= 150_000);
    }

    #[test]
    fn a_picture_has_the_size_of_the_screen_and_shows_text_colours_and_lines() {
        let mut buffer = Buffer::empty(Rect::new(0, 0, 4, 2));
        buffer.set_string(0, 0, "█", Style::new().fg(Color::Rgb(200, 10, 20)));
        buffer.set_string(1, 0, " ", Style::new().fg(Color::Rgb(1, 2, 3)).add_modifier(Modifier::REVERSED));
        buffer.set_string(2, 0, "日", Style::new());
        buffer.set_string(0, 1, "M", Style::new().add_modifier(Modifier::BOLD | Modifier::ITALIC));
        let ((width, height), pixels) = decoded(&picture(&buffer).unwrap());
        assert_eq!((width, height), (4 * CELL.0, 2 * CELL.1));
        let at = |x: u32, y: u32| &pixels[((y * width + x) * 3) as usize..][..3];
        for (x, y) in [(0, 0), (15, 0), (0, 39), (15, 39), (8, 20)] {
            assert_eq!(at(x, y), [200, 10, 20], "a full block fills its cell at {x}, {y}");
        }
        assert_eq!(at(24, 20), [1, 2, 3]);
        let drawn = |columns: std::ops::Range<u32>, rows: std::ops::Range<u32>| {
            rows.flat_map(|y| columns.clone().map(move |x| (x, y))).filter(|(x, y)| at(*x, *y) != DARK.paper).count()
        };
        assert!(drawn(32..64, 0..40) > 20, "a character that the font lacks is a box");
        assert!(drawn(0..16, 40..80) > 80);
        assert_eq!(drawn(20..64, 40..80), 0);
    }
}
