//! The lattice of a block drafter's selector: the candidates of each position, best first by the position's own logits, and
//! the path that the selector chose through them.
//!
//! Invariant: a chosen candidate is always shown; one whose rank does not fit stands in the last row, with its rank.

use draftscope_protocol::{LatticeCandidate, LatticeColumn};

use crate::view::prelude::*;
use crate::view::rounds::round::Columns;
use crate::view::values::{draft_sign, short};

/// Width of the ranks.
const LABEL: usize = 3;

/// Width of the line between two positions, and of a position with it.
const LINK: usize = 3;
const WIDTHS: (usize, usize) = (15, 24);

/// Most lines of the sentence.
const SENTENCE: usize = 2;

/// Fewest candidates that are worth a panel.
const LEAST: usize = 2;

/// Height of the panel in a page's area; 0 without a lattice, or without room.
pub(in crate::view) fn height(screen: Screen, area: Rect) -> u16 {
    let lattice = screen.app.round(screen.session).and_then(|round| round.lattice.as_ref());
    let most = lattice.and_then(|lattice| lattice.columns.iter().map(|column| column.candidates.len()).max());
    let Some(most) = most else { return 0 };
    let around = FRAME as usize + 1 + SENTENCE;
    let room = usize::from(area.height / 2);
    let height = (most + around).min(room);
    if height < LEAST + around { 0 } else { height as u16 }
}

pub(in crate::view) fn render(screen: Screen, area: Rect, frame: &mut Frame) {
    let Some(round) = screen.app.round(screen.session).filter(|_| !area.is_empty()) else { return };
    let title = format!(" Lattice of round {}: the best of each position, and the chosen path ", round.number());
    let inner = framed(screen.panel(title), area, frame);
    let rows = usize::from(inner.height).saturating_sub(1 + SENTENCE);
    let focus = screen.app.place.cell.unwrap_or_else(|| round.deciding_column());
    let lattice =
        Lattice { screen, round, rows, columns: Columns::within(screen, round, inner.width, (LABEL, WIDTHS)) };
    let mut lines = vec![lattice.header(focus)];
    lines.extend((0..rows).map(|row| lattice.row(row)));
    let sentence = wrapped(&sentence(round, focus), inner.width, screen.theme[Role::Text]);
    lines.extend(sentence.into_iter().take(SENTENCE));
    put(lines, inner, frame);
}

struct Lattice<'a> {
    screen: Screen<'a>,
    round: &'a Round,
    /// Candidates of a position that there is room for.
    rows: usize,
    columns: Columns,
}

impl Lattice<'_> {
    /// Rank of the chosen candidate, counted from 0.
    fn rank(&self, index: usize) -> Option<usize> {
        chosen(self.round, index).map(|(rank, _)| rank)
    }

    /// The row of the chosen candidate.
    fn place(&self, index: usize) -> Option<usize> {
        self.rank(index).map(|rank| rank.min(self.rows.saturating_sub(1)))
    }

    fn header(&self, focus: usize) -> Line<'static> {
        let mut spans = vec![Span::raw(" ".repeat(LABEL))];
        for index in self.columns.range() {
            let text = if self.round.candidates(index).is_some() { format!("  {}", index + 1) } else { String::new() };
            let role = if index == focus { Role::TextStrong } else { Role::TextDim };
            spans.push(Span::styled(fit(&text, self.columns.width), self.screen.theme[role]));
        }
        Line::from(spans)
    }

    fn row(&self, row: usize) -> Line<'static> {
        let mut spans = vec![Span::styled(format!("{:>2} ", row + 1), self.screen.theme[Role::TextDim])];
        for index in self.columns.range() {
            spans.extend(self.cell(index, row));
            spans.push(Span::styled(self.link(index, row), self.screen.theme[Role::TextStrong]));
        }
        Line::from(spans)
    }

    /// A candidate with its probability after the token before.
    fn cell(&self, index: usize, row: usize) -> Vec<Span<'static>> {
        let (theme, width) = (self.screen.theme, self.columns.width - LINK);
        let is_chosen = self.place(index) == Some(row);
        let rank = if is_chosen { self.rank(index).unwrap_or(row) } else { row };
        let candidate = self.round.candidates(index).and_then(|column| column.candidates.get(rank));
        let Some(LatticeCandidate { token, after, .. }) = candidate else {
            return vec![Span::raw(" ".repeat(width))];
        };
        let role = if is_chosen { draft_sign(self.round, index).0 } else { Role::TextDim };
        let mark = match is_chosen {
            true if rank == row => "● ".to_owned(),
            true => format!("{}:", rank + 1),
            false => "  ".to_owned(),
        };
        let number = format!(" {:>4}", short(*after));
        let name = cut(&text::inline(token), width.saturating_sub(mark.width() + number.width()));
        let padding = " ".repeat(width.saturating_sub(mark.width() + name.width() + number.width()));
        let (style, bare) = (theme[role], undecorated(theme[role]));
        vec![Span::styled(mark, bare), Span::styled(name, style), Span::styled(format!("{padding}{number}"), bare)]
    }

    /// The path from a position's chosen candidate to the next one's, in a row.
    fn link(&self, index: usize, row: usize) -> &'static str {
        let places = (self.place(index), self.place(index + 1).filter(|_| self.columns.range().contains(&(index + 1))));
        let (Some(from), Some(to)) = places else { return "   " };
        match (row == from, row == to) {
            (true, true) => "───",
            (true, false) => {
                if to > from {
                    "─╮ "
                } else {
                    "─╯ "
                }
            }
            (false, true) => {
                if to > from {
                    " ╰─"
                } else {
                    " ╭─"
                }
            }
            (false, false) if (from.min(to)..from.max(to)).contains(&row) => " │ ",
            (false, false) => "   ",
        }
    }
}

/// Rank and candidate that became the draft of a position.
fn chosen(round: &Round, index: usize) -> Option<(usize, &LatticeCandidate)> {
    let column = round.candidates(index)?;
    let rank = column.place(round.drafts.get(index)?.token.id)?;
    Some((rank, &column.candidates[rank]))
}

/// What the selector did at a position.
fn sentence(round: &Round, index: usize) -> String {
    let Some(LatticeColumn { candidates, .. }) = round.candidates(index) else {
        return "Numbers are probabilities among the candidates, after the token before.".to_owned();
    };
    let before = index.checked_sub(1).and_then(|before| round.drafts.get(before));
    let before = before.map_or("the anchor".to_owned(), |draft| text::quoted(&draft.token));
    match (candidates.first(), chosen(round, index)) {
        (Some(best), Some((0, _))) => format!(
            "Position {}: {} is the best alone ({}) and after {before} ({}).",
            index + 1,
            text::quoted(&best.token),
            short(best.alone),
            short(best.after)
        ),
        (Some(best), Some((_, chosen))) => format!(
            "Position {}: alone, {} was the best ({}); after {before} it has {}, and {} has {} ({} alone).",
            index + 1,
            text::quoted(&best.token),
            short(best.alone),
            short(best.after),
            text::quoted(&chosen.token),
            short(chosen.after),
            short(chosen.alone)
        ),
        _ => format!("Position {}: none of these became the draft.", index + 1),
    }
}
