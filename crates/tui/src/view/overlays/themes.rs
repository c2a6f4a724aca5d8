//! The themes to choose from, each in its own colours.
//!
//! Invariant: the screen below the list uses the chosen theme already.

use crate::look::theme::Theme;
use crate::view::prelude::*;

/// Width of the panel and of a theme's name.
const WIDTH: u16 = 50;
const NAME: usize = 18;

/// A sample of the fates.
const SAMPLE: [(Fate, &str); 5] = [
    (Fate::Committed(Provenance::Accepted), "the"),
    (Fate::Committed(Provenance::Recovered), "sky"),
    (Fate::Committed(Provenance::Bonus), "is"),
    (Fate::Rejected, "red"),
    (Fate::NotReached, "and"),
];

pub(in crate::view) fn render(screen: Screen, area: Rect, frame: &mut Frame) {
    let (themes, chosen) = screen.app.themes();
    let height = (themes.len() as u16).saturating_add(2).min(area.height);
    let width = area.width.min(WIDTH);
    // at the right edge: most of the page stays in view
    let area = Rect { x: area.right() - width, y: area.y + (area.height - height) / 2, width, height };
    let keys = screen.keys(Context::Panel, &[(CHOOSE, "choose"), (&[Action::Confirm], "keeps"), (LEAVE, "back")]);
    let block = screen.panel(" Theme ");
    let block = block.bottom(Line::styled(format!(" {keys} "), screen.theme[Role::TextDim]));
    let inner = screen.over(block, area, frame);
    let rows = usize::from(inner.height).max(1);
    let first = (chosen + 1).saturating_sub(rows);
    let lines: Vec<Line> = themes
        .iter()
        .enumerate()
        .skip(first)
        .take(rows)
        .map(|(index, theme)| line(screen, theme, index == chosen, inner.width))
        .collect();
    put(lines, inner, frame);
}

fn line(screen: Screen, theme: &Theme, is_chosen: bool, width: u16) -> Line<'static> {
    let role = if is_chosen { Role::TextStrong } else { Role::Text };
    let mut spans = vec![
        Span::styled(if is_chosen { "▸ " } else { "  " }, screen.theme[Role::Key]),
        Span::styled(fit(&theme.name, NAME), screen.theme[role]),
    ];
    // as if the theme were current: what it does not set is the terminal's
    let ground = Style::reset().patch(theme[Role::Text]);
    spans.push(Span::styled(" ", ground));
    for (fate, word) in SAMPLE {
        spans.push(Span::styled(format!("{}{word}", fate::mark(fate)), ground.patch(theme[fate::role(fate)])));
        spans.push(Span::styled(" ", ground));
    }
    let used: usize = spans.iter().map(Span::width).sum();
    spans.push(Span::styled(" ".repeat(usize::from(width).saturating_sub(used)), ground));
    Line::from(spans)
}
