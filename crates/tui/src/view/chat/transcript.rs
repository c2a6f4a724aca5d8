//! The conversation: prompts, and answers in which every token shows its fate, with the number of each fate below, and
//! where the discarded drafts are if none is in view.
//!
//! Invariant: output tokens appear in order, joined into whole characters; shown discarded drafts are where they were,
//! before the token that replaced them, or a sign with their number is there, and never break a line. This file decides which lines are in view, from where
//! the user scrolled; `transcript_layout.rs` makes them.

use std::rc::Rc;

use crate::app::Scroll;
use crate::app::place::hit_map::Hit;
use crate::look::display::DisplayMode;

use crate::view::chat::laid::Laid;
use crate::view::chat::transcript_blocks::{Block, TURNS};
use crate::view::chat::transcript_layout::{lay_out, parts};
use crate::view::prelude::*;
use crate::view::speed::hero;
use crate::view::values::next_fate;

pub(in crate::view) fn render(screen: Screen, area: Rect, frame: &mut Frame, hit_map: &mut HitMap) {
    // where nothing stands beside the answer, its title has the figure
    let is_alone = area.width == frame.area().width;
    let mut right = if is_alone { hero::in_title(screen, area.width / 2) } else { Line::default() };
    let room = usize::from(area.width).saturating_sub(TITLE.width() + right.width() + 2);
    right.spans.extend(mode(screen, room).spans);
    // the panel has a line above the text and one below it
    let (width, height) = (area.width.saturating_sub(2), usize::from(area.height.saturating_sub(FRAME + 1)));
    let in_view = (width > 0 && height > 0).then(|| in_view(screen, (width, height)));
    let hides = in_view.as_ref().is_some_and(|view| hides_discarded(screen, view, height));
    let bottom = if hides { legend_and_way(screen, area.width) } else { legend(screen, area.width) };
    let inner = framed(screen.panel(TITLE).title_right(right).bottom(bottom), area, frame);
    let Some(InView { top, max_top, skip, parts }) = in_view else { return };
    (hit_map.top, hit_map.max_top, hit_map.page) = (top, max_top, height);
    mark(&parts, skip, inner, hit_map);
    put(visible(&parts, skip, height), inner, frame);
}

const TITLE: &str = " Answer ";

/// The part of the conversation in view.
struct InView {
    /// The first line in view, of all lines, and the last one that can be first.
    top: usize,
    max_top: usize,
    /// The same of the lines of `parts`.
    skip: usize,
    parts: Vec<Laid>,
}

fn in_view(screen: Screen, (width, height): (u16, usize)) -> InView {
    let blocks = lay_out(screen, Lane::Speculative, width);
    let transcript = Transcript { screen, width, blocks: &blocks };
    let total: usize = blocks.iter().map(Block::lines).sum();
    let max_top = total.saturating_sub(height);
    let top = match (screen.app.place.scroll, transcript.selected_line()) {
        (Scroll::Follow, _) | (Scroll::Selected, None) => max_top,
        (Scroll::Turn, _) => transcript.first_line().min(max_top),
        (Scroll::Top(top), _) => top.min(max_top),
        (Scroll::Selected, Some(line)) => line.saturating_sub(height / 2).min(max_top),
    };
    let (before, parts) = transcript.parts_in(top, height);
    InView { top, max_top, skip: top - before, parts }
}

/// Whether an answer that has ended has discarded drafts, and none of them is in view.
fn hides_discarded(screen: Screen, view: &InView, height: usize) -> bool {
    let Some(turn) = screen.turn().filter(|_| screen.display() != DisplayMode::Text) else { return false };
    let answer = turn.answer(Lane::Speculative);
    let has_discarded = |number: u32| {
        let at = answer.rounds.partition_point(|round| round.number() < number);
        let round = answer.rounds.get(at).filter(|round| round.number() == number);
        round.is_some_and(|round| round.drafts.len() > round.accepted())
    };
    let lines = view.parts.iter().flat_map(|part| part.tags.iter()).skip(view.skip).take(height);
    let mut rounds = lines.flatten().map(|tag| tag.round).filter(|round| *round > 0);
    answer.finished.is_some() && answer.stats().discarded() > 0 && !rounds.any(has_discarded)
}

/// The blocks of the answer.
struct Transcript<'a> {
    screen: Screen<'a>,
    width: u16,
    blocks: &'a [Block],
}

impl Transcript<'_> {
    fn parts(&self, block: &Block) -> Rc<[Laid]> {
        parts(self.screen, Lane::Speculative, self.width, block)
    }

    /// The parts of all blocks in view, and the lines before them.
    fn parts_in(&self, top: usize, height: usize) -> (usize, Vec<Laid>) {
        let (mut start, mut before, mut found) = (0, 0, Vec::new());
        for block in self.blocks {
            let end = start + block.lines();
            if end <= top {
                before = end;
            } else if start < top + height {
                found.extend(self.parts(block).iter().cloned());
            }
            start = end;
        }
        (before, found)
    }

    /// Line of the whole transcript on which the selected round begins. It is in no settled block.
    fn selected_line(&self) -> Option<usize> {
        let mut before = 0;
        for block in self.blocks {
            if let Block::Laid(parts) = block {
                for part in parts.iter() {
                    if let Some(line) = part.selected {
                        return Some(before + line);
                    }
                    before += part.lines.len();
                }
            } else {
                before += block.lines();
            }
        }
        None
    }

    /// Line of the whole transcript on which the turn of the selected round begins.
    fn first_line(&self) -> usize {
        let turn = self.screen.app.place.selected.map_or(0, |at| at.turn);
        let whole = self.blocks.iter().take(turn / TURNS).map(Block::lines).sum::<usize>();
        let own = self.blocks.get(turn / TURNS).map(|block| self.parts(block));
        let before = own.iter().flat_map(|parts| parts.iter()).take_while(|part| part.turn < turn);
        whole + before.map(|part| part.lines.len()).sum::<usize>()
    }
}

/// Tells the mouse where the tokens in view are. The first `top` lines of the parts are above the area.
fn mark(laid: &[Laid], top: usize, area: Rect, hit_map: &mut HitMap) {
    let mut y = 0;
    for part in laid {
        let turn = part.turn;
        for tags in part.tags.iter() {
            if y >= top && y < top + usize::from(area.height) {
                let row = area.y + (y - top) as u16;
                for tag in tags.iter().filter(|tag| tag.round > 0) {
                    let place = Rect { x: area.x + tag.x, y: row, width: tag.width, height: 1 };
                    let target = Target::Token { turn, round: tag.round, column: tag.column.into() };
                    hit_map.hits.push(Hit { area: place.intersection(area), target });
                }
            }
            y += 1;
        }
    }
}

fn visible(laid: &[Laid], top: usize, height: usize) -> Vec<Line<'static>> {
    let mut skip = top;
    let mut shown = Vec::new();
    for turn in laid {
        if skip < turn.lines.len() {
            shown.extend(turn.lines.iter().skip(skip).take(height - shown.len()).cloned());
        }
        skip = skip.saturating_sub(turn.lines.len());
    }
    shown
}

/// What the answer shows of discarded drafts, and the key that changes it; where there is room, what a sign says.
fn mode(screen: Screen, room: usize) -> Line<'static> {
    let mode = screen.display();
    let mut spans = screen.hint(Action::NextDisplay, &format!("drafts: {}", mode.name()));
    if mode == DisplayMode::Signs {
        spans.extend([Span::styled(fate::discarded_sign(2), screen.theme[Role::TokenCounted]), Span::raw(" ")]);
        let room = room.saturating_sub(spans.iter().map(Span::width).sum());
        let means = ["two discarded here ", "two discarded "].into_iter().find(|means| means.width() <= room);
        spans.extend(means.map(|means| Span::styled(means, screen.dim_title())));
    }
    Line::from(spans)
}

/// How many tokens of the shown turn had each fate, with the longest names that fit.
pub(in crate::view) fn legend(screen: Screen, width: u16) -> Line<'static> {
    noted(screen, width, (&[(0, 3, ""), (0, 1, ""), (1, 1, ""), (MARKS, 1, "")], false))
}

/// The same below lanes, whose discarded drafts stand beside the text after their mark.
pub(in crate::view) fn legend_of_lanes(screen: Screen, width: u16) -> Line<'static> {
    noted(screen, width, (&[(0, 3, ""), (0, 1, ""), (1, 1, ""), (MARKS, 1, "")], true))
}

/// The same, and the key that leads to the last discarded draft.
fn legend_and_way(screen: Screen, width: u16) -> Line<'static> {
    let key = screen.app.keymap.label(Context::Browse, Action::RejectPrevious);
    let [long, short] = [format!("{key} leads to the last"), format!("{key}: the last")];
    let forms = [(0, 2, &*long), (0, 1, &short), (1, 1, &long), (1, 1, &short), (MARKS, 1, &short), (MARKS, 1, "")];
    noted(screen, width, (&forms, false))
}

/// A form of the legend that has marks for names.
const MARKS: usize = 2;

/// The first of these forms that fits: how long names are, the blanks between them, and what is said after them. Whether
/// the mark of discarded drafts is always there.
fn noted(screen: Screen, width: u16, (forms, marks): (&[(usize, usize, &str)], bool)) -> Line<'static> {
    let all = entries(screen);
    let at = |&(length, gap, note): &(usize, usize, &str)| {
        let mut spans = vec![Span::raw(" ")];
        // the rare mark is explained where there is room
        for entry in all.iter().filter(|entry| length == 0 || entry.role != Role::TokenDeparted) {
            let is_marked = marks && entry.role == Role::TokenRejected;
            let is_always_shown = entry.mark == fate::UNDRAFTABLE || length == MARKS || is_marked;
            let mark = if screen.has_signs() || is_always_shown { entry.mark } else { "" };
            let style = screen.theme[entry.role];
            spans.push(Span::styled(mark, undecorated(style)));
            spans.push(Span::styled(entry.names.get(length).copied().unwrap_or_default(), style));
            let count = entry.count.map_or(String::new(), |count| format!(" {count}"));
            spans.push(Span::styled(format!("{count}{}", " ".repeat(gap)), screen.theme[Role::TextDim]));
        }
        if !note.is_empty() {
            spans.push(Span::styled(format!("· {note}"), screen.theme[Role::Key]));
        }
        Line::from(spans)
    };
    let fits = |line: &Line| line.to_string().trim_end().width() + 2 <= width.into();
    let last = forms.last().map(at).unwrap_or_default();
    forms.iter().map(at).find(fits).unwrap_or(last)
}

/// An entry of the legend.
struct Entry {
    mark: &'static str,
    names: [&'static str; 2],
    role: Role,
    count: Option<u64>,
}

/// What a round accepted and added past the end of the answer.
fn unused(round: &Round) -> (u64, Option<Fate>) {
    let next = round.next_index();
    let accepted = round.path().filter(|index| Some(*index) != next && round.is_cut(*index));
    (accepted.count() as u64, next.filter(|index| round.is_cut(*index)).map(|_| next_fate(round)))
}

fn entries(screen: Screen) -> Vec<Entry> {
    let answer = screen.turn().map(|turn| turn.answer(Lane::Speculative)).filter(|answer| answer.stats().rounds() > 0);
    // tokens past the end of the answer are none of it
    let last = answer.and_then(|answer| answer.rounds.last());
    let (unused, unused_next) = last.map_or((0, None), |round| unused(round));
    let next = |fate: Fate, count: u64| count.saturating_sub(u64::from(unused_next == Some(fate)));
    let count = |fate: Fate| {
        let stats = answer?.stats();
        Some(match fate {
            Fate::Committed(Provenance::Accepted) => stats.accepted().saturating_sub(unused),
            Fate::Committed(Provenance::Bonus) => next(fate, stats.bonus()),
            Fate::Committed(Provenance::Recovered) => next(fate, stats.recovered()),
            _ => stats.discarded(),
        })
    };
    let entry = |(fate, names): &(Fate, [&'static str; 2])| Entry {
        mark: fate::sign(*fate),
        names: *names,
        role: fate::role(*fate),
        count: count(*fate),
    };
    let mut all: Vec<Entry> = fate::LEGEND.iter().map(entry).collect();
    // few answers contain one: its mark is explained where it is
    if screen.turn().is_some_and(|turn| turn.answer(Lane::Speculative).departures().next().is_some()) {
        let names = [fate::DEPARTED_NAME; 2];
        all.push(Entry { mark: fate::DEPARTED, names, role: Role::TokenDeparted, count: None });
    }
    if let Some(count) = answer.and_then(|answer| answer.stats().undraftable()).filter(|count| *count > 0) {
        let (names, role) = (fate::UNDRAFTABLE_NAMES, Role::TokenRecovered);
        all.push(Entry { mark: fate::UNDRAFTABLE, names, role, count: Some(count) });
    }
    if answer.is_some() && screen.has_own_grammar() {
        let forced = answer.map(|answer| answer.stats().forced());
        let looks = [(fate::FORCED, Role::TokenForced, forced), (fate::sign(Fate::Refused), Role::TokenRefused, None)];
        let entries = looks.into_iter().zip(fate::GRAMMAR);
        all.extend(entries.map(|((mark, role, count), names)| Entry { mark, names, role, count }));
    }
    all
}
