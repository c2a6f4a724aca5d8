//! Drawing: multi-token prediction in training. Trained together, both losses change the target; trained later on a frozen
//! target, only the module changes (DeepSeek-V3 report, arXiv:2412.19437, section 2.2; `training/README.md`).
//!
//! Invariant: sizes are those of the header; without one the drawing has none.

use super::saving;
use crate::view::prelude::*;

/// Trained together, as DeepSeek-V3 was.
const TOGETHER: [&str; 5] = [
    "Trained together: two losses at each position",
    " token t ─► target ─┬─► head ─► t + 1   loss 1",
    "                    │ hidden state",
    " token t + 1 ───────┴─► module ─► t + 2  loss 2",
    " Both change the target; plain decoding leaves the module out.",
];

/// Trained later, as the built-in module was.
const LATER: [&str; 4] = [
    "Trained later: the target is frozen",
    " token t ─► target (fixed) ─┐ hidden state",
    " token t + 1 ───────────────┴─► module ─► t + 2",
    " The loss changes the module alone: the target answers as before.",
];

pub(super) fn render(screen: Screen, area: Rect, frame: &mut Frame) {
    let inner = framed(screen.panel(" MTP in training "), area, frame);
    put(content(screen, inner.width), inner, frame);
}

/// All lines in so many columns.
pub(super) fn content(screen: Screen, width: u16) -> Vec<Line<'static>> {
    // a drawing is as wide as it is, its sentences are not
    let drawn = |lines: &[&'static str]| {
        let line = |(index, line): (usize, &&'static str)| {
            let style = screen.theme[if index == 0 { Role::PanelTitle } else { Role::Text }];
            let is_whole = line.width() <= width.into();
            if is_whole { vec![Line::styled(*line, style)] } else { wrapped(line.trim_start(), width, style) }
        };
        lines.iter().enumerate().flat_map(line).collect::<Vec<_>>()
    };
    let sizes = wrapped(&sizes(screen), width, screen.theme[Role::TextDim]);
    let gap = || std::iter::once(Line::default());
    drawn(&TOGETHER).into_iter().chain(gap()).chain(drawn(&LATER)).chain(gap()).chain(sizes).collect()
}

/// What a second loss costs, in the sizes of the loaded models.
fn sizes(screen: Screen) -> String {
    let Some(header) = screen.session.header() else { return String::new() };
    let (layers, megabytes) = (header.model.layers, header.model.weight_bytes as f64 / 1e6);
    let module = saving::module(header).and_then(|module| saving::weights(header, module));
    let module =
        module.map_or(String::new(), |weights| format!(", the module about {:.1} million weights", weights / 1e6));
    format!("Here: the target has {} in {megabytes:.1} MB{module}.", counted(layers as usize, "block"))
}
