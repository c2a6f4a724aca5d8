//! An answer as plain text: its Markdown rendered, with its tokens where the mouse finds them.
//!
//! Invariant: it contains only kept tokens; a control token is an end mark after them.

use crate::widgets::flow::Tagged;
use crate::widgets::markdown::{self, TaggedText};
use draftscope_session::text::Joiner;
use draftscope_session::{Answer, TranscriptToken};

use crate::view::chat::token_text::round_of;
use crate::view::prelude::*;

/// Lines of an answer, the places of their tokens, and the line on which the selected round begins.
pub(in crate::view) struct PlainText {
    pub(in crate::view) lines: Vec<Line<'static>>,
    pub(in crate::view) tags: Vec<Vec<Tagged>>,
    pub(in crate::view) selected: Option<usize>,
}

/// The answer at a width; `chosen` is the selected round as returned by [`round_of`].
pub(in crate::view) fn lay_out(
    screen: Screen,
    (answer, folded): (&Answer, Option<usize>),
    chosen: Option<u32>,
    width: u16,
) -> PlainText {
    let theme = screen.theme;
    let look = markdown::Look {
        text: theme[Role::Text],
        heading: theme[Role::TextHeading],
        code: theme[Role::TextCode],
        dim: theme[Role::TextDim],
        chosen: chosen.map(|round| (round, theme[Role::Selected])),
    };
    let (mut joiner, mut source, mut end) = (Joiner::default(), TaggedText::default(), None);
    let mut line = folded.map(|tokens| folded_line(screen, tokens));
    for token in answer.transcript().filter(|token| matches!(token.fate, Fate::Committed(_))) {
        if folded.is_some() && token.is_thought {
            line.take().iter().for_each(|line| source.push(&format!("{line}\n\n"), owner(&token)));
            continue;
        }
        source.push(&joiner.push(token.piece.text_bytes()), owner(&token));
        end = token.piece.special.then(|| owner(&token));
    }
    source.push(&joiner.finish(), (0, 0));
    let (mut lines, mut tags) = markdown::lines(&source, answer.finished.is_none(), look, width);
    if let Some((round, column)) = end {
        let is_chosen = Some(round) == chosen;
        let style = if is_chosen { look.dim.patch(theme[Role::Selected]) } else { look.dim };
        let x = lines.last().map_or(0, Line::width) as u16 + 1;
        if x >= width || lines.is_empty() {
            lines.push(Line::default());
            tags.push(Vec::new());
        }
        if let (Some(line), Some(tags)) = (lines.last_mut(), tags.last_mut()) {
            let gap = u16::from(!line.spans.is_empty());
            let x = line.width() as u16 + gap;
            line.spans.extend([Span::raw(" ".repeat(gap.into())), Span::styled(fate::END, style)]);
            tags.push(Tagged { x, width: 1, round, column });
        }
    }
    let selected = chosen.and_then(|round| tags.iter().position(|line| line.iter().any(|tag| tag.round == round)));
    PlainText { lines, tags, selected }
}

fn owner(token: &TranscriptToken) -> markdown::Owner {
    (round_of(token), token.column.min(usize::from(u16::MAX)) as u16)
}

/// What stands for a folded thought.
pub(in crate::view) fn folded_line(screen: Screen, tokens: usize) -> String {
    let plural = if tokens == 1 { "" } else { "s" };
    format!("▸ thought, {tokens} token{plural} ({} opens it)", screen.app.key(Action::ToggleThought))
}
