//! Drawing: the slots of the target's KV cache through a round: before the pass, after it, and after the rollback.
//!
//! Invariant: slots are those of the round on show; what has not happened yet is an empty line that says so.

use crate::view::learn::hidden::hides;
use crate::view::prelude::*;
use crate::view::rounds::round::verdict;
use draftscope_learn::lesson::Hidden;

/// Width of the labels.
const LABEL: usize = 16;

pub(super) fn render(screen: Screen, area: Rect, frame: &mut Frame) {
    let inner = framed(screen.panel(" Slots of the target's KV cache "), area, frame);
    put(content(screen, inner.width), inner, frame);
}

/// All lines in so many columns.
pub(super) fn content(screen: Screen, width: u16) -> Vec<Line<'static>> {
    match round(screen) {
        Some(round) => drawn(screen, round, width),
        None => {
            let text = "Each position of the text has a slot with its keys and values. A round adds one for the anchor and \
                one for each draft; the drawing shows them as soon as a round is under way.";
            wrapped(text, width, screen.theme[Role::TextDim])
        }
    }
}

/// The round on show, if it has drafts and is of the lesson's run.
fn round(screen: Screen<'_>) -> Option<&Round> {
    let turn = screen.app.learning.run()?.turn(screen.session)?;
    let shown = screen.app.round(screen.session)?;
    (shown.turn == turn.number && shown.number() > 0 && !shown.is_tree()).then_some(shown)
}

fn drawn(screen: Screen, round: &Round, width: u16) -> Vec<Line<'static>> {
    let k = usize::from(round.draft_len()).max(round.drafts.len());
    let cell = (usize::from(width).saturating_sub(LABEL + 8) / (k + 1)).clamp(6, 14);
    let first = round.base_len();
    let row = |label: &str, before: &str, cells: Vec<(String, Style)>| {
        let mut spans = vec![
            Span::styled(fit(label, LABEL), screen.theme[Role::TextDim]),
            Span::styled(format!("{before:<6}│ "), screen.theme[Role::TextDim]),
        ];
        spans.extend(cells.into_iter().map(|(text, style)| Span::styled(format!("{} ", fit(&text, cell - 1)), style)));
        Line::from(spans)
    };
    let dim = screen.theme[Role::TextDim];
    let name = |index: usize| match index.checked_sub(1) {
        None => "anchor".to_owned(),
        Some(draft) => round.drafts.get(draft).map_or("…".to_owned(), |draft| text::inline(&draft.token)),
    };
    let empty = |_: usize| ("·".to_owned(), dim);
    let slot = (0..=k).map(|index| ((first as usize + index).to_string(), dim)).collect();
    let is_run = !round.rows().is_empty();
    let filled = |index: usize| (name(index), screen.theme[if is_run { Role::Text } else { Role::TextDim }]);
    let kept = |index: usize| index <= round.accepted();
    let mut lines = vec![
        row("slot", &format!("0…{}", first.saturating_sub(1)), slot),
        row("before the pass", "▒▒▒▒▒", (0..=k).map(empty).collect()),
    ];
    if is_run {
        lines.push(row("after the pass", "▒▒▒▒▒", (0..=round.drafts.len()).map(filled).collect()));
    } else {
        lines.push(Line::styled(format!("{}       │ not run yet", fit("after the pass", LABEL - 1)), dim));
    }
    if round.verdict.is_some() {
        let judged = |index: usize| match index.checked_sub(1) {
            None if hides(screen, Hidden::Rollback) => ("–".to_owned(), dim),
            None => ("stays".to_owned(), dim),
            Some(draft) => {
                let cell = verdict(screen, round, draft, cell);
                (cell.word, cell.style)
            }
        };
        lines.push(row("verdict", "", (0..=round.drafts.len()).map(judged).collect()));
    }
    if round.is_complete() && !hides(screen, Hidden::Rollback) {
        let after = |index: usize| if kept(index) { filled(index) } else { empty(index) };
        lines.push(row("after rollback", "▒▒▒▒▒", (0..=round.drafts.len()).map(after).collect()));
        let (stay, gone) = (round.accepted() + 1, round.drafts.len() - round.accepted());
        // short enough for one line at 80 columns
        let next = round
            .committed()
            .last()
            .map_or(String::new(), |piece| format!("; the next anchor {} is in no slot yet", text::quoted(piece)));
        let said = format!("{} of {} stay, {gone} rolled back{next}.", stay, counted(round.drafts.len() + 1, "slot"));
        lines.push(Line::default());
        lines.extend(wrapped(&said, width, screen.theme[Role::Text]));
    }
    lines
}
