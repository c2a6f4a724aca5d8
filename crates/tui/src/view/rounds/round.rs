//! One round: drafts with q above the target's own tokens with p, at every position.
//!
//! Invariant: the target's row is shown in full, also after a mismatch; a cell without an event is empty. The sentence
//! below explains one column, the selected one or the deciding one (the rejection, else the bonus).

use crate::app::place::marks::mark_text;
use crate::app::place::page::Pane;
use draftscope_protocol::{NextKind, Outcome, Piece};
use draftscope_session::round_at::{live_round, round_at};
use draftscope_session::{PassId, explain};

use crate::view::prelude::*;
use crate::view::rounds::hidden_in_question::{hides_count, hides_fate, hides_reason};
use crate::view::rounds::token_cell::TokenCell;
use crate::view::rounds::{grammar, tree};
use crate::view::screen::marked;
use crate::view::values::{draft_p, draft_sign, duration, fate_of, next_fate, next_sign, position, short, sign};

/// Width of the row labels.
const LABEL: usize = 9;

/// Least width of a column.
const LEAST: usize = 12;

pub(in crate::view) fn render(screen: Screen, area: Rect, frame: &mut Frame, hit_map: &mut HitMap) {
    let round = screen.app.round(screen.session);
    let room = area.width.saturating_sub(2);
    let hidden = round.map_or(0, |round| Columns::of(screen, round, room).hidden_after());
    let panel = match round {
        Some(round) if hidden > 0 => {
            let more = more_columns(screen, hidden);
            let title = title(screen, round, room.saturating_sub(more.width() as u16 + 1));
            screen.panel(title).title_right(more)
        }
        Some(round) => screen.panel(title(screen, round, room)),
        None => screen.panel(" Round "),
    };
    let inner = framed(panel, area, frame);
    if inner.is_empty() {
        return;
    }
    let lines = match round {
        Some(round) if draws_tree(screen, round, frame.area().width, inner.height) => tree::lines(screen, round, inner),
        Some(round) => {
            mark(screen, round, inner, hit_map);
            table(screen, round, inner)
        }
        None => empty(screen, inner.width),
    };
    put(lines, inner, frame);
}

/// Whether the round is drawn as a tree: if it fits, and is not drawn beside the answer.
fn draws_tree(screen: Screen, round: &Round, width: u16, height: u16) -> bool {
    let is_beside = screen.app.place.page == Page::Chat && !screen.app.place.is_zoomed && width >= screen.plots_from();
    round.is_tree() && !is_beside && usize::from(height) > round.drafts.len()
}

/// Records where the columns stand, for the mouse.
fn mark(screen: Screen, round: &Round, inner: Rect, hit_map: &mut HitMap) {
    let Some(at) = screen.app.round_index(screen.session) else {
        return;
    };
    let columns = Columns::of(screen, round, inner.width);
    for (place, column) in columns.range().enumerate() {
        let x = inner.x + (LABEL + place * columns.width) as u16;
        let area = Rect { x, width: columns.width as u16, ..inner }.intersection(inner);
        hit_map.hit(area, Target::Round { at, column: Some(column) });
    }
}

/// Whether all positions of the shown turn's rounds fit into a panel of this width.
pub(in crate::view) fn fits(screen: Screen, width: u16) -> bool {
    let settings = screen.turn().map_or(*screen.session.settings(), |turn| turn.begun);
    let columns = screen.app.round(screen.session).map_or(1, Round::columns).max(usize::from(settings.draft_len) + 1);
    LABEL + columns * LEAST + 2 <= width.into()
}

fn empty(screen: Screen, width: u16) -> Vec<Line<'static>> {
    let text = "Here each round appears: what the drafter proposed (with its probability q), what the target says at \
                the same positions (with p), and which drafts were kept.";
    wrapped(text, width, screen.theme[Role::TextDim])
}

/// How many columns stand to the right of those in view, and the keys that lead there.
fn more_columns(screen: Screen, count: usize) -> Line<'static> {
    let is_beside = screen.app.place.page == Page::Learn && screen.app.place.pane == Pane::Lesson;
    let pane = if is_beside { format!("{} ", screen.app.key(Action::FocusNext)) } else { String::new() };
    let key = screen.app.keymap.binding(Context::Browse, Action::Right);
    let key = key.map_or(String::new(), |binding| screen.app.keymap.first_key(binding));
    Line::from(vec![
        Span::styled(format!(" {pane}{key} "), screen.theme[Role::Key]),
        Span::styled(format!("{count} more "), screen.dim_title()),
    ])
}

/// Which round it is, and its outcome: as many words as fit.
pub(in crate::view) fn title(screen: Screen, round: &Round, width: u16) -> Line<'static> {
    let place = match screen.app.place.selected {
        Some(_) => "selected",
        None if screen.session.turn().is_some_and(|turn| turn.number != round.turn) => "before",
        None if screen.time.is_past() => "earlier",
        None if !is_newest(screen, round) => "last rejection",
        None if screen.app.is_busy(screen.time.live()) => "live",
        None => "last",
    };
    let mut text = match round.number() {
        0 => format!(" First token, from the prompt's pass ({place})"),
        number => format!(" Round {number} ({place})"),
    };
    if round.is_tree() {
        text.push_str(&format!(" · tree of {}", round.drafts.len()));
    }
    if round.drafts_unknown {
        text.push_str(" · drafts not reported");
    } else if round.verdict.is_some() && !round.drafts.is_empty() && !hides_count(screen, round) {
        text.push_str(&format!(" · {} of {} accepted", round.accepted(), round.drafts.len()));
    }
    let outcome = text.clone();
    let committed = match round.committed().len() {
        0 => String::new(),
        count => format!(" · {}", counted(count, "token")),
    };
    text.push_str(&committed);
    text.push_str(if committed.is_empty() { "" } else { " committed" });
    let plain = text.clone();
    if !marked(screen, round).is_empty() {
        let words = mark_text(screen.time.live().marks(), PassId::of(round));
        text.push_str(&format!(" · {}", cut(words.split_once(": ").map_or("", |said| said.1), 60)));
    }
    let forms = [text, plain, format!("{outcome}{committed}"), outcome];
    let last = forms.last().cloned().unwrap_or_default();
    let found = forms.into_iter().find(|form| form.width() < width.into()).unwrap_or(last);
    Line::from(format!("{found} "))
}

/// Whether no round of the shown session comes after this one.
fn is_newest(screen: Screen, round: &Round) -> bool {
    let newest = live_round(screen.session).and_then(|at| round_at(screen.session, at));
    newest.is_none_or(|newest| (newest.turn, newest.number()) == (round.turn, round.number()))
}

/// The columns that fit, and how wide each is.
pub(in crate::view) struct Columns {
    pub(in crate::view) all: usize,
    pub(in crate::view) first: usize,
    count: usize,
    pub(in crate::view) width: usize,
    focus: usize,
}

impl Columns {
    fn of(screen: Screen, round: &Round, width: u16) -> Self {
        Self::within(screen, round, width, (LABEL, (LEAST, 22)))
    }

    /// Columns after a label, each between the smallest and the largest width.
    pub(in crate::view) fn within(
        screen: Screen,
        round: &Round,
        width: u16,
        (label, (least, greatest)): (usize, (usize, usize)),
    ) -> Self {
        let all = round.columns().max(1);
        let whole = usize::from(width).saturating_sub(label).max(1);
        // a sign after the last column needs a place where there are more
        let room = if whole / all >= least && (whole - 1) / all < least { whole } else { (whole - 1).max(1) };
        let width = (room / all).clamp(least, greatest);
        let count = (room / width).clamp(1, all);
        let focus = screen.app.place.cell.unwrap_or_else(|| round.deciding_column()).min(all - 1);
        let first = (focus + 1).saturating_sub(count).min(all - count);
        Self { all, first, count, width, focus }
    }

    pub(in crate::view) fn range(&self) -> std::ops::Range<usize> {
        self.first..self.first + self.count
    }

    /// How many there are after those in view.
    fn hidden_after(&self) -> usize {
        self.all - self.range().end
    }
}

/// Height that shows all of the round on show, with its frame.
pub(in crate::view) fn height(screen: Screen, width: u16) -> u16 {
    let width = width.saturating_sub(2);
    let lines = match screen.app.round(screen.session) {
        Some(round) => said(screen, round, Rect { width, height: u16::MAX, ..Rect::default() }).len() + 1,
        None => empty(screen, width).len(),
    };
    lines as u16 + FRAME
}

fn table(screen: Screen, round: &Round, inner: Rect) -> Vec<Line<'static>> {
    let mut lines = said(screen, round, inner);
    // at the bottom, where the sentence leaves room
    let last = usize::from(inner.height).saturating_sub(1);
    if lines.len() <= last {
        lines.resize(last, Line::default());
        lines.push(times(screen, round, inner.width));
    }
    lines
}

/// The columns, and the sentences below them.
fn said(screen: Screen, round: &Round, inner: Rect) -> Vec<Line<'static>> {
    let columns = Columns::of(screen, round, inner.width);
    let mut lines = Vec::new();
    if inner.height >= 7 {
        lines.push(row(screen, &columns, "position", |i| header(screen, round, i, columns.width)));
    }
    lines.push(row(screen, &columns, "draft  q", |i| draft(screen, round, i)));
    lines.push(row(screen, &columns, "target p", |i| target(screen, round, i)));
    lines.push(row(screen, &columns, "verdict", |i| verdict(screen, round, i, columns.width)));
    if let Some(finding) = explain(round, columns.focus).filter(|_| !hides_reason(screen, round, columns.focus)) {
        let role = if finding.near_tie { Role::Warning } else { Role::Text };
        let text = format!("{}{}", place(round, columns.focus), finding.text);
        lines.extend(wrapped(&text, inner.width, screen.theme[role]));
    }
    lines.extend(grammar::lines(screen, round, columns.focus, inner.width));
    if let Some(text) = screen.session.stats(Lane::Speculative).evidence().sentence() {
        lines.extend(wrapped(&text, inner.width, screen.theme[Role::Warning]));
    }
    lines
}

/// Where the round's time went, as far as events report it: each draft step if there is room, else their sum, and the
/// smallest parts only if they fit.
fn times(screen: Screen, round: &Round, width: u16) -> Line<'static> {
    let style = screen.theme[Role::TextDim];
    if round.number() == 0 {
        return Line::styled(format!("time: the prompt's pass {}", duration(round.verify_us())), style);
    }
    if round.lacks_phases() {
        let text = format!("time: {}, draft and verify (not reported apart)", duration(round.took_us()));
        return Line::styled(cut(&text, width.into()), style);
    }
    let steps: Vec<_> = round.drafts.iter().map(|d| format!("{:.1}", d.took_us as f64 / 1e3)).collect();
    let mut tail = Vec::new();
    if !round.rows().is_empty() {
        let rows = counted(round.rows().len(), "row");
        tail.push(format!("verify {rows} {}", duration(round.verify_us())));
        tail.push(format!("sample {}", duration(round.sample_us())));
    }
    if round.is_complete() {
        tail.push(format!("rollback {}", duration(round.rollback_us())));
    }
    let of = |draft: String, tail: &[String]| {
        let parts: Vec<_> = std::iter::once(format!("draft {draft}")).chain(tail.iter().cloned()).collect();
        format!("time: {}", parts.join(" · "))
    };
    let each = if steps.is_empty() { "–".to_owned() } else { format!("{} ms", steps.join(" + ")) };
    let sum = if steps.is_empty() { each.clone() } else { duration(round.draft_us()) };
    let (each, sum) = match round.is_block() {
        true => (format!("{sum} (one pass for all {})", round.drafts.len()), format!("{sum} (one pass)")),
        false => (each, sum),
    };
    let mut text = of(each, &tail);
    while text.width() > width.into() {
        text = of(sum.clone(), &tail);
        if tail.pop().is_none() {
            break;
        }
    }
    Line::styled(text, style)
}

/// Which column a sentence is about.
fn place(round: &Round, index: usize) -> String {
    match round.drafts.len() {
        0 => String::new(), // there is one column only
        drafts if index < drafts => format!("position {}: ", index + 1),
        _ => "after the drafts: ".to_owned(),
    }
}

fn row(screen: Screen, columns: &Columns, label: &str, cell: impl Fn(usize) -> TokenCell) -> Line<'static> {
    let mut spans = vec![Span::styled(fit(label, LABEL), screen.theme[Role::TextDim])];
    for index in columns.range() {
        let chosen = screen.app.place.cell.is_some() && index == columns.focus;
        let over = if chosen { screen.theme[Role::Selected] } else { Style::new() };
        spans.extend(cell(index).spans(columns.width - 1, over));
        spans.push(Span::raw(" "));
    }
    if columns.first > 0 {
        spans.insert(1, Span::styled("‹", screen.theme[Role::Key]));
    }
    if columns.range().end < columns.all {
        spans.pop();
        spans.push(Span::styled("›", screen.theme[Role::Key]));
    }
    Line::from(spans)
}

fn header(screen: Screen, round: &Round, index: usize, width: usize) -> TokenCell {
    let at = position(round, index);
    let text = match round.parent(index).filter(|_| round.is_tree() && index < round.drafts.len()) {
        _ if index + 1 == round.columns() => "next".to_owned(),
        Some(parent) => format!("{} ↳{}", index + 1, parent + 1),
        None if round.drafts.get(index).is_some_and(|draft| draft.forced) => format!("{} forced", index + 1),
        None if round.drafts.get(index).is_some_and(|draft| draft.copied.is_some()) => format!("{} copied", index + 1),
        None => (index + 1).to_string(),
    };
    let text = if round.refused.iter().any(|refused| usize::from(refused.index) == index) {
        format!("{text} {}", fate::sign(Fate::Refused))
    } else {
        text
    };
    let long = format!("{text} · after {}", counted(at as usize, "token"));
    let text = if long.width() < width { long } else { text };
    TokenCell::word(text, screen.theme[Role::TextDim])
}

/// The draft of a column.
pub(in crate::view) fn draft(screen: Screen, round: &Round, index: usize) -> TokenCell {
    let dim = screen.theme[Role::TextDim];
    match round.drafts.get(index) {
        Some(draft) => {
            let is_asked = hides_fate(screen, round, index);
            let role = if is_asked { Role::Text } else { draft_sign(round, index).0 };
            let fate = fate_of(round, index);
            let style = grammar::tinted(screen, (draft.forced, fate), screen.theme[role]);
            TokenCell::token(text::inline(&draft.token), draft.q, style)
        }
        None if index < round.draft_len().into() && round.rows().is_empty() => TokenCell::word("…", dim),
        None => TokenCell::word("—", dim),
    }
}

/// The target's own token in a column.
pub(in crate::view) struct Own {
    /// A sign where the target added it.
    pub(in crate::view) mark: &'static str,
    /// Its text.
    pub(in crate::view) name: String,
    /// Its probability, if the events reported it.
    pub(in crate::view) p: Option<f32>,
    pub(in crate::view) role: Role,
}

/// The target's own token: the added one, the one that a lossless rule would have committed instead of an accepted
/// draft, the draft it agreed with, else its best; `None` until scored.
pub(in crate::view) fn own(round: &Round, index: usize) -> Option<Own> {
    let row = round.prediction(index);
    let plain = |piece: &Piece, p| Some(Own { mark: "", name: text::inline(piece), p, role: Role::Text });
    if let Some(piece) = round.next_index().filter(|at| *at == index).and_then(|_| round.next_piece()) {
        let p = row.and_then(|row| row.find(piece.id)).map(|found| found.1);
        let (role, mark) = next_sign(round);
        return Some(Own { mark, name: text::inline(&piece), p, role });
    }
    if let Some(own) = round.own_piece(index) {
        return plain(&own, row.and_then(|row| row.find(own.id)).map(|found| found.1));
    }
    if let (Some(Outcome::Accepted), Some(draft)) = (round.outcome(index), round.drafts.get(index)) {
        return plain(&draft.token, round.judgement(index).and_then(|judgement| judgement.p));
    }
    row.and_then(|row| row.best()).and_then(|best| plain(&best.piece, Some(best.prob)))
}

/// The target's own token and its probability as a cell.
pub(in crate::view) fn target(screen: Screen, round: &Round, index: usize) -> TokenCell {
    let cell = |own: Own| TokenCell::token(own.name, own.p, screen.theme[own.role]).marked(own.mark);
    own(round, index).map_or_else(TokenCell::default, cell)
}

/// The outcome of a column, with its sign.
pub(in crate::view) fn verdict(screen: Screen, round: &Round, index: usize, width: usize) -> TokenCell {
    let next = round.next_index() == Some(index);
    let (fate, word) = match round.outcome(index) {
        Some(Outcome::Accepted) => (fate_of(round, index), "accepted"),
        Some(Outcome::Rejected) => (fate_of(round, index), "rejected"),
        Some(_) if hides_fate(screen, round, index) => {
            return TokenCell::word("?".to_owned(), screen.theme[Role::TextDim]);
        }
        Some(Outcome::NotReached) => (fate_of(round, index), "not reached"),
        None if next && round.number() == 0 => (next_fate(round), "first"),
        None if next && round.drafts_unknown => (next_fate(round), "target's"),
        None if next && round.drafts.is_empty() => (next_fate(round), "plain"),
        None if next && round.next_kind() == Some(NextKind::Recovered) => (next_fate(round), "recovered"),
        None if next => (next_fate(round), "bonus"),
        None => return TokenCell::default(),
    };
    let (role, sign) = if index < round.drafts.len() { draft_sign(round, index) } else { sign(fate) };
    let with_p = |p: f32| {
        let forms = [format!("{sign} {word}, p {}", short(p)), format!("{sign} {word} {}", short(p))];
        forms.into_iter().find(|form| form.width() < width)
    };
    if let Some(text) = draft_p(round, index).filter(|_| fate == Fate::Rejected).and_then(with_p) {
        return TokenCell::word(text, undecorated(screen.theme[role]));
    }
    let text = match round.is_cut(index) {
        true if width < 20 => format!("{sign} unused"),
        true => format!("{sign} {word}, unused"),
        // where it makes the word whole, the sign goes
        false if (word.width()..word.width() + 2).contains(&width.saturating_sub(1)) => word.to_owned(),
        false => format!("{sign} {word}"),
    };
    TokenCell::word(text, undecorated(screen.theme[role]))
}
