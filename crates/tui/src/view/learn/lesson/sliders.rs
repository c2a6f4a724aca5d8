//! The cost model with its numbers on sliders, and beside it the point that this machine measured.
//!
//! Invariant: what was measured is named as measured; what the sliders give is named as a calculation.

use crate::view::learn::hidden::hides;
use crate::view::prelude::*;
use draftscope_learn::lesson::Hidden;
use draftscope_learn::theory::{Slider, Sliders};
use draftscope_session::account::Account;

/// Width of a slider's name and of its value.
const NAME: usize = 16;
const VALUE: usize = 13;

/// Width of the mark of a slider that is fixed.
const FIXED: usize = 2;

pub(super) fn render(screen: Screen, area: Rect, frame: &mut Frame) {
    let inner = framed(screen.panel(" Calculated: what a round yields and costs "), area, frame);
    put(content(screen, inner.width), inner, frame);
}

/// All lines in so many columns.
pub(super) fn content(screen: Screen, width: u16) -> Vec<Line<'static>> {
    let point = screen.app.learning.study.sliders;
    let task = screen.app.learning.step().and_then(|step| step.task.as_ref());
    let mut lines: Vec<Line> = Slider::ALL
        .into_iter()
        .enumerate()
        .map(|(index, slider)| {
            let is_free = task.is_none_or(|task| task.free.contains(&slider));
            let is_chosen = task.is_some() && index == screen.app.learning.study.slider;
            let marker = if is_chosen { "▸" } else { " " };
            let role = if is_free { Role::TextStrong } else { Role::TextDim };
            let mut spans = vec![Span::styled(fit(&format!("{marker} {}", slider.name()), NAME), screen.theme[role])];
            let room = usize::from(width).saturating_sub(NAME + VALUE + FIXED + 1);
            spans.extend(bar(point.share(slider), room, screen.theme[Role::PlotBar], screen.theme[Role::PlotRest]));
            let fixed = if is_free { "" } else { " ·" };
            spans.push(Span::styled(format!(" {}{fixed}", fit(&point.shown(slider), VALUE)), screen.theme[role]));
            let line = Line::from(spans);
            if is_chosen { line.patch_style(screen.theme[Role::Selected]) } else { line }
        })
        .collect();
    let sums = [
        format!("E = 1 + a + … + a^k = {:.2} tokens a round", point.tokens()),
        format!("cost = T(k + 1) + k·d = {:.2} plain tokens", point.cost()),
    ];
    lines.extend(sums.map(|text| Line::styled(cut(&text, width.into()), screen.theme[Role::Text])));
    lines.push(result(screen, &point, width.into()));
    if !hides(screen, Hidden::Measured) {
        lines.extend(wrapped(&measured(screen), width, screen.theme[Role::TextDim]));
    }
    lines
}

/// E ÷ cost, as a factor and in per cent.
fn result(screen: Screen, point: &Sliders, width: usize) -> Line<'static> {
    let speedup = point.speedup();
    let percent = (speedup - 1.0) * 100.0;
    let word = if percent < 0.0 { "slower" } else { "faster" };
    let role = if percent < 0.0 { Role::Bad } else { Role::Good };
    let text = format!("speedup = E ÷ cost = {speedup:.2}×: {:.0} % {word} than plain", percent.abs());
    Line::styled(cut(&text, width), screen.theme[role])
}

/// The point that a turn of this session measured, in words.
fn measured(screen: Screen) -> String {
    let own = screen.app.learning.run().and_then(|run| run.turn(screen.session));
    let turn = own.or_else(|| screen.session.turns().iter().rev().find(|turn| Account::of_turn(turn).is_some()));
    let point = turn.and_then(|turn| {
        let tokens = turn.answer(Lane::Speculative).stats().mean_tokens_per_round()?;
        Some((turn, Sliders::measured(&Account::of_turn(turn)?, turn.begun.draft_len, tokens)?))
    });
    match point {
        Some((turn, point)) => {
            let speedup = turn.speedup().map_or(String::new(), |speedup| format!(": {:.2}×", speedup.value));
            format!(
                "Measured, turn {}: a {:.2}, k {}, row {:.2}, draft {:.2} of T(1){speedup}",
                turn.number, point.acceptance, point.k, point.row, point.draft
            )
        }
        None => "This machine's own point stands here once a run has been measured.".to_owned(),
    }
}
