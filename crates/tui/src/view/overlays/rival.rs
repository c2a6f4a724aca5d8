//! The settings of the rival lane.
//!
//! Invariant: a requested value that is not in force yet has a `→`; values equal to the run's own are dim, so that the
//! difference is seen at once.

use crate::app::overlay::setting_row::SettingRow;
use draftscope_protocol::{DraftLenMode, Rival, Settings};

use crate::view::prelude::*;
use crate::view::screen::keys_of_choices;
use crate::view::screens;

/// Width of the names and of the values.
const NAME: usize = 19;
const VALUE: usize = 24;

pub(in crate::view) fn render(screen: Screen, row: usize, area: Rect, frame: &mut Frame) {
    let area = screens::centre(area, area.width.min(76), 14.min(area.height));
    let block = screen.panel(" Versus: race other settings beside ");
    let inner = screen.over(block.bottom(keys_of_choices(screen)), area, frame);
    let live = screen.time.live();
    let (now, wanted) = (*live.settings(), screen.app.requests.settings(live));
    let on = |settings: &Settings| if settings.rival.is_some() { "yes" } else { "no" }.to_owned();
    let mut lines = vec![Line::from(vec![
        Span::styled(fit("", 2 + NAME), screen.theme[Role::TextDim]),
        Span::styled(fit("  the rival", VALUE), screen.theme[Role::PlotPlain]),
        Span::styled("yours", screen.theme[Role::PlotSpeculative]),
    ])];
    lines.push(line(screen, (row == 0, "race beside"), (on(&now), on(&wanted)), "", inner.width));
    for (index, setting) in SettingRow::RIVAL.iter().enumerate() {
        let of = |settings: &Settings| {
            let rival = settings.rival.unwrap_or(Rival::like(settings));
            setting.value(&rival.settings(settings))
        };
        let own = setting.value(&wanted);
        let text = line(screen, (row == index + 1, setting.name()), (of(&now), of(&wanted)), &own, inner.width);
        lines.push(text);
    }
    lines.push(Line::default());
    let text = "From the next turn on both answer the same prompt, each with caches and a clock of its own; the lane \
                with less time runs next. View 5 shows them side by side and how long they write the same.";
    lines.extend(wrapped(text, inner.width, screen.theme[Role::TextDim]));
    put(lines, inner, frame);
}

fn line(
    screen: Screen,
    (chosen, name): (bool, &str),
    (is, wanted): (String, String),
    own: &str,
    width: u16,
) -> Line<'static> {
    let arrow = if wanted == is { "  " } else { "→ " };
    let role = if wanted == own { Role::TextDim } else { Role::TextStrong };
    let room = usize::from(width).saturating_sub(2 + NAME + VALUE);
    let line = Line::from(vec![
        Span::styled(if chosen { "▸ " } else { "  " }, screen.theme[Role::Key]),
        Span::styled(fit(name, NAME), screen.theme[Role::Text]),
        Span::styled(fit(&format!("{arrow}{wanted}"), VALUE), screen.theme[role]),
        Span::styled(cut(own, room), screen.theme[Role::TextDim]),
    ]);
    if chosen { line.patch_style(screen.theme[Role::Selected]) } else { line }
}

/// The settings of one lane that differ from the other's, in a few words; `the same` if none do.
pub(in crate::view) fn difference(own: &Settings, other: &Settings) -> String {
    let draft_len = |settings: &Settings| match settings.draft_len_mode {
        DraftLenMode::Fixed => format!("k={}", settings.draft_len),
        DraftLenMode::Auto => "k auto".to_owned(),
    };
    let mut parts = Vec::new();
    if draft_len(own) != draft_len(other) {
        parts.push(draft_len(own));
    }
    if own.drafter != other.drafter {
        parts.push(own.drafter.to_string());
    }
    if own.rule != other.rule {
        parts.push(own.rule.to_string());
    }
    if (own.sampling.temperature - other.sampling.temperature).abs() > 1e-6 {
        parts.push(format!("T {}", own.sampling.temperature));
    }
    if parts.is_empty() { "the same".to_owned() } else { parts.join(" ") }
}
