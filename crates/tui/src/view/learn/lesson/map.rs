//! The map: batch × context, and at each place what pays there, calculated from published figures.
//!
//! Invariant: nothing here is measured, and the panel says so.

use crate::view::prelude::*;
use draftscope_learn::lesson::grouped;
use draftscope_learn::theory::{BATCHES, Best, CONTEXTS, Layer, MapRow};

/// Width of a row's name, and of a column.
const NAME: usize = 12;
const COLUMN: usize = 6;

pub(super) fn render(screen: Screen, area: Rect, frame: &mut Frame) {
    let inner = framed(screen.panel(" Calculated, not measured: where speculation pays "), area, frame);
    put(content(screen, inner.width), inner, frame);
}

/// All lines in so many columns.
pub(super) fn content(screen: Screen, width: u16) -> Vec<Line<'static>> {
    let mut lines: Vec<Line> = MapRow::ALL.iter().enumerate().map(|(index, row)| choice(screen, index, *row)).collect();
    let room = usize::from(width).saturating_sub(NAME) / COLUMN;
    let every = if room >= BATCHES.len() { 1 } else { 2 };
    let batches: Vec<u32> = BATCHES.iter().copied().step_by(every).collect();
    let head = batches.iter().map(|batch| format!("{batch:>COLUMN$}")).collect::<String>();
    lines.push(Line::styled(format!("{:<NAME$}{head}", "sequences"), screen.theme[Role::TextDim]));
    lines.extend(CONTEXTS.iter().map(|context| places(screen, *context, &batches)));
    let legend = "rows: positions of each sequence; –: more than the memory of one device has room for";
    lines.extend(wrapped(legend, width, screen.theme[Role::TextDim]));
    let model = "T(m) = the longer of bytes ÷ bandwidth and operations ÷ compute; a draft 0.05 of T(1)";
    lines.extend(wrapped(model, width, screen.theme[Role::TextDim]));
    lines
}

/// A row of what can be set.
fn choice(screen: Screen, index: usize, row: MapRow) -> Line<'static> {
    let choice = &screen.app.learning.study.map;
    let map = choice.map();
    let (name, value) = match row {
        MapRow::Hardware => {
            let (bytes, operations) = (map.hardware.bandwidth / 1e9, map.hardware.compute / 1e12);
            ("hardware", format!("{}: {} GB/s, {operations:.0} TFLOPS", map.hardware.name, grouped(bytes as u64)))
        }
        MapRow::Model => ("model", format!("{} (bf16)", map.model.name)),
        MapRow::Acceptance => ("acceptance", format!("{:.2}", map.acceptance)),
        MapRow::Shown => ("shown", choice.layer.name().to_owned()),
    };
    let is_chosen = index == screen.app.learning.study.slider.min(MapRow::ALL.len() - 1);
    let marker = if is_chosen { "▸" } else { " " };
    let line = Line::from(vec![
        Span::styled(fit(&format!("{marker} {name}"), NAME + 2), screen.theme[Role::TextDim]),
        Span::styled(value, screen.theme[Role::TextStrong]),
    ]);
    if is_chosen { line.patch_style(screen.theme[Role::Selected]) } else { line }
}

/// The places of a context.
fn places(screen: Screen, context: u32, batches: &[u32]) -> Line<'static> {
    let choice = &screen.app.learning.study.map;
    let map = choice.map();
    let label = Span::styled(format!("{:>8}    ", grouped(context.into())), screen.theme[Role::TextDim]);
    let place = |batch: &u32| {
        let Some(best) = map.best(*batch, context) else {
            return Span::styled(format!("{:>COLUMN$}", "–"), screen.theme[Role::TextDim]);
        };
        Span::styled(format!("{:>COLUMN$}", shown(choice.layer, best)), screen.theme[role(choice.layer, best)])
    };
    Line::from([label].into_iter().chain(batches.iter().map(place)).collect::<Vec<_>>())
}

fn shown(layer: Layer, best: Best) -> String {
    match layer {
        Layer::DraftLen if best.k == 0 => "·".to_owned(),
        Layer::DraftLen => best.k.to_string(),
        Layer::Speedup => format!("{:.1}×", best.speedup),
        Layer::Energy => format!("{:.2}", best.energy),
    }
}

/// A gain of a tenth and more is good, a loss bad.
fn role(layer: Layer, best: Best) -> Role {
    let is_gain = match layer {
        Layer::Energy if best.energy > 1.0 => return Role::Bad,
        Layer::Energy => best.energy < 0.9,
        Layer::DraftLen | Layer::Speedup => best.speedup > 1.1,
    };
    if is_gain { Role::Good } else { Role::Text }
}
