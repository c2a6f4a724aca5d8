//! Horizontal bars: thin lines, so that adjacent rows do not merge into a wall.
//!
//! Invariant: a bar is exactly as wide as asked; 0 is empty, 1 is full, values outside are clamped.

use ratatui::text::Span;

use ratatui::style::Style;

/// A bar for a share of 0 to 1: the filled part in halves of a cell, then the rest as a track.
pub(crate) fn bar(share: f64, width: usize, full: Style, rest: Style) -> Vec<Span<'static>> {
    let share = if share.is_finite() { share.clamp(0.0, 1.0) } else { 0.0 };
    let halves = (share * width as f64 * 2.0).round() as usize;
    let filled = format!("{}{}", "━".repeat(halves / 2), "╸".repeat(halves % 2));
    vec![Span::styled(filled, full), Span::styled("─".repeat(width - halves.div_ceil(2)), rest)]
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
        assert_eq!(bar(0.55, 10, Style::new(), Style::new())[0].content, "━━━━━╸");
    }
}
