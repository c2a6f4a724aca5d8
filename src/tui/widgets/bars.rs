//! Horizontal bars of eighth blocks, and columns of a tiny histogram over time.
//!
//! Invariant: a bar is exactly as wide as asked; 0 is empty, 1 is full, values outside are clamped.

use ratatui::text::Span;

use ratatui::style::Style;

/// A bar for a share of 0 to 1: the filled part, then the rest as a dotted track.
pub(in crate::tui) fn bar(share: f64, width: usize, full: Style, rest: Style) -> Vec<Span<'static>> {
    const PARTS: [char; 8] = [' ', '▏', '▎', '▍', '▌', '▋', '▊', '▉'];
    let share = if share.is_finite() { share.clamp(0.0, 1.0) } else { 0.0 };
    let eighths = (share * width as f64 * 8.0).round() as usize;
    let mut filled = "█".repeat(eighths / 8);
    let mut used = eighths / 8;
    if !eighths.is_multiple_of(8) {
        filled.push(PARTS[eighths % 8]);
        used += 1;
    }
    vec![Span::styled(filled, full), Span::styled("┈".repeat(width.saturating_sub(used)), rest)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_as_wide_as_asked() {
        for share in [-1.0, 0.0, 0.33, 0.5, 1.0, 7.0, f64::NAN] {
            let spans = bar(share, 10, Style::new(), Style::new());
            assert_eq!(spans.iter().map(Span::width).sum::<usize>(), 10, "{share}");
        }
        assert_eq!(bar(0.55, 10, Style::new(), Style::new())[0].content, "█████▌");
    }
}
