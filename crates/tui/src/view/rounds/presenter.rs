//! Presenter mode: one round drawn large, for a projector.
//!
//! ```text
//!   the round, and the text that it continues
//!   drafter   ┌─────┐ ┌─────┐ ┌─────┐
//!   target    ┌─────┐ ┌─────┐ ┌─────┐ ┌─────┐
//!   what happened, in a sentence
//!   one number, large         the marks in words
//! ```
//!
//! Invariant: everything is about the shown round and its turn, live, in the past, in a recording and in a lesson
//! alike; the number is the mean of tokens per round.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::{Line, Span};
use tui_big_text::{BigText, PixelSize};
use unicode_segmentation::UnicodeSegmentation;
use unicode_width::UnicodeWidthStr;

use crate::app::place::hit_map::HitMap;
use crate::app::place::page::Page;
use crate::look::fate;
use crate::look::theme::Role;
use crate::widgets::flow::wrapped;
use draftscope_learn::lesson::{Hidden, Panel};
use draftscope_protocol::{Lane, counted};
use draftscope_session::{Fate, Provenance, Round, Turn, explain, text};

use crate::view::chat::prompt;
use crate::view::learn::hidden::hides;
use crate::view::learn::lesson;
use crate::view::panel::put;
use crate::view::panes::learn_panel;
use crate::view::rounds::presenter_boxes as boxes;
use crate::view::rounds::{loop_lines, round};
use crate::view::screen::Screen;
use crate::view::values::capital;

/// The marks in words.
const WORDS: [(Fate, &str); 5] = [
    (Fate::Committed(Provenance::Accepted), "accepted by the target: kept"),
    (Fate::Rejected, "rejected by the target: discarded"),
    (Fate::NotReached, "not reached: discarded unjudged"),
    (Fate::Committed(Provenance::Recovered), "recovered: the target's token instead"),
    (Fate::Committed(Provenance::Bonus), "bonus: all accepted, one token more"),
];

/// The meaning of the number.
const CAPTION: [&str; 2] = ["tokens per round on average,", "one pass each (plain decoding: 1)"];

/// Width of the number and its caption.
const NUMBER: u16 = 36;

pub(in crate::view) fn render(screen: Screen, area: Rect, frame: &mut Frame, hit_map: &mut HitMap) {
    match screen.app.place.page {
        Page::Learn => in_lesson(screen, area, frame, hit_map),
        Page::Chat if screen.app.is_typing() => {
            let height = prompt::height(screen, area);
            let [above, below] = Layout::vertical([Constraint::Min(3), Constraint::Length(height)]).areas(area);
            slide(screen, above, frame, hit_map);
            prompt::render(screen, below, frame);
        }
        _ => slide(screen, area, frame, hit_map),
    }
}

/// The lesson, and beside or below its words the drawings, and the round as large as there is room.
fn in_lesson(screen: Screen, area: Rect, frame: &mut Frame, hit_map: &mut HitMap) {
    let areas = lesson::areas(screen, area);
    lesson::render(screen, areas.words, frame, hit_map);
    for (panel, area) in areas.panels {
        let round = screen.app.round(screen.session).filter(|_| panel == Some(Panel::Round));
        let lines = [3, 2, 1].into_iter().find(|lines| boxes::height(*lines) < area.height);
        let (Some(round), Some(lines)) = (round, lines) else {
            learn_panel(screen, (panel, area), frame, hit_map);
            continue;
        };
        let heights = [Constraint::Length(1), Constraint::Length(boxes::height(lines)), Constraint::Min(0)];
        let [head, drawing, said] = Layout::vertical(heights).areas(area);
        frame.render_widget(title(screen, round, head.width), head);
        boxes::render(screen, round, lines, drawing, (frame, hit_map));
        let is_asked = hides(screen, Hidden::Reason) || hides(screen, Hidden::NotReached);
        let story = if is_asked { String::new() } else { story(screen, round) };
        let story = wrapped(&story, said.width.saturating_sub(2), screen.theme[Role::TextStrong]);
        put(story, inset(said), frame);
    }
}

fn slide(screen: Screen, area: Rect, frame: &mut Frame, hit_map: &mut HitMap) {
    let Some(round) = screen.app.round(screen.session) else {
        let text = "No round yet. Send a prompt: each round appears here, drawn large.";
        put(wrapped(text, area.width, screen.theme[Role::TextDim]), area, frame);
        return;
    };
    let lines = match area.height {
        0..18 => 1,
        18..34 => 2,
        34..38 => 3,
        _ => 5,
    };
    let gap = u16::from(area.height >= 25);
    let story = wrapped(&story(screen, round), area.width.saturating_sub(2), screen.theme[Role::TextStrong]);
    let [head, _, drawing, _, said, _, below] = Layout::vertical([
        Constraint::Length(2),
        Constraint::Length(gap),
        Constraint::Length(boxes::height(lines)),
        Constraint::Length(gap),
        Constraint::Length(story.len() as u16),
        Constraint::Length(gap),
        Constraint::Min(0),
    ])
    .areas(area);
    let head_lines = vec![title(screen, round, head.width), answer(screen, round, head.width)];
    put(head_lines, head, frame);
    boxes::render(screen, round, lines, drawing, (frame, hit_map));
    put(story, inset(said), frame);
    let [left, right] = Layout::horizontal([Constraint::Length(NUMBER), Constraint::Min(0)]).areas(inset(below));
    if let Some(turn) = screen.turn() {
        number(screen, turn, left, frame);
    }
    match screen.app.place.reads_loop {
        true => loop_lines::render(screen, right, frame),
        false => legend(screen, round, right, frame),
    }
}

fn inset(area: Rect) -> Rect {
    Rect { x: area.x + 1, width: area.width.saturating_sub(1), ..area }
}

fn title(screen: Screen, round: &Round, width: u16) -> Line<'static> {
    round::title(screen, round, width).style(screen.theme[Role::PanelTitle])
}

/// The end of the answer before the round, and what the round added to it.
fn answer(screen: Screen, round: &Round, width: u16) -> Line<'static> {
    let tokens = screen.turn().map_or(&[][..], |turn| &turn.answer(Lane::Speculative).tokens);
    let before = &tokens[..round.first_token.min(tokens.len())];
    let recent = &before[before.len().saturating_sub(usize::from(width))..];
    let joined = |pieces: &mut dyn Iterator<Item = &[u8]>| {
        let bytes: Vec<u8> = pieces.flatten().copied().collect();
        text::one_line(&String::from_utf8_lossy(&bytes)).into_owned()
    };
    let before = joined(&mut recent.iter().map(|token| token.piece.text_bytes()));
    let added = joined(&mut round.committed().iter().map(|piece| piece.text_bytes()));
    let room = usize::from(width).saturating_sub(added.width() + 2);
    Line::from(vec![
        Span::styled(format!(" {}", tail(&before, room)), screen.theme[Role::TextDim]),
        Span::styled(added, screen.theme[Role::TextStrong]),
    ])
}

/// The end of a text, as much as fits.
fn tail(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let mut used = 1;
    let fits = |grapheme: &&str| {
        used += grapheme.width();
        used <= width
    };
    let mut kept: Vec<&str> = text.graphemes(true).rev().take_while(fits).collect();
    kept.push("…");
    kept.reverse();
    kept.concat()
}

/// What happens in the round, or the explanation of the chosen column.
fn story(screen: Screen, round: &Round) -> String {
    let chosen = screen.app.place.cell.map(|cell| cell.min(round.columns() - 1));
    if let Some(finding) = chosen.and_then(|column| explain(round, column)) {
        return format!("{}.", capital(&finding.text));
    }
    let (drafts, asked) = (round.drafts.len(), usize::from(round.draft_len()));
    if round.number() == 0 {
        return "The pass over the prompt gives the first token of the answer: it is not a draft.".to_owned();
    }
    if round.verdict.is_none() {
        return match (drafts, asked) {
            (0, 0) => "A round without drafts: one pass of the target for one token.".to_owned(),
            _ if !round.rows().is_empty() => {
                "The target has its own token at every position. Which drafts agree?".into()
            }
            _ if drafts < asked => format!("The drafter proposes token {} of {asked}.", drafts + 1),
            _ => format!("The target checks {} in one pass.", drafts_of(drafts)),
        };
    }
    let accepted = round.accepted();
    let tokens = if round.is_complete() && !round.is_partial { round.committed().len() } else { accepted + 1 };
    let yields = counted(tokens, "token");
    match accepted {
        _ if drafts == 0 && round.drafts_unknown => {
            "One token from one pass of the target; the server does not report whether drafts were rejected.".to_owned()
        }
        _ if round.drafts_unknown && tokens == accepted + 1 => {
            format!("{yields} from one pass; the server does not report whether further drafts were rejected.")
        }
        _ if drafts == 0 => "No draft in this round: one pass of the target gives one token.".to_owned(),
        _ if tokens != accepted + 1 => {
            format!("{accepted} of {} accepted, and the answer ends: {yields}.", counted(drafts, "draft"))
        }
        0 => format!("The first draft is rejected, the target's own token takes its place: {yields} from one pass."),
        _ if accepted == drafts => {
            let (all, verb) = (capital(&drafts_of(drafts)), if drafts == 1 { "is" } else { "are" });
            format!("{all} {verb} accepted and the pass adds one more: {yields} from one pass.")
        }
        _ => format!(
            "{accepted} of {drafts} drafts accepted, the target's own token replaces the next: {yields} from one pass."
        ),
    }
}

fn drafts_of(count: usize) -> String {
    match count {
        1 => "the draft".to_owned(),
        2 => "both drafts".to_owned(),
        _ => format!("all {count} drafts"),
    }
}

fn number(screen: Screen, turn: &Turn, area: Rect, frame: &mut Frame) {
    let Some(mean) = turn.answer(Lane::Speculative).stats().mean_tokens_per_round() else {
        return;
    };
    let text = format!("{mean:.2}");
    let caption = CAPTION.map(|line| Line::styled(line, screen.theme[Role::TextDim]));
    // half blocks have no ASCII replacement
    let sizes = [(PixelSize::Full, 8, true), (PixelSize::HalfHeight, 4, !screen.app.options.ascii)];
    let room = area.height.saturating_sub(caption.len() as u16);
    let size = sizes.into_iter().find(|(_, height, is_drawn)| *height <= room && *is_drawn);
    let strong = screen.theme[Role::PlotSpeculative];
    let Some((pixels, height, _)) = size else {
        let mut lines = vec![Line::styled(text, strong)];
        lines.extend(caption);
        put(lines, area, frame);
        return;
    };
    let [large, below] = Layout::vertical([Constraint::Length(height), Constraint::Min(0)]).areas(area);
    let big = BigText::builder().pixel_size(pixels).style(strong).lines([Line::from(text)]).build();
    frame.render_widget(&big, large);
    put(caption.to_vec(), below, frame);
}

/// The marks in words; those of the round are bright.
fn legend(screen: Screen, round: &Round, area: Rect, frame: &mut Frame) {
    let is_here = |fate: Fate| {
        let drafts = (0..round.drafts.len()).map(|index| crate::view::values::fate_of(round, index));
        let next = round.next_index().map(|_| crate::view::values::next_fate(round));
        drafts.chain(next).any(|its| its == fate)
    };
    let line = |sign: &str, words: &str, role: Role, is_here: bool| {
        let style = screen.theme[role].remove_modifier(ratatui::style::Modifier::all());
        let words_role = if is_here { Role::TextStrong } else { Role::TextDim };
        Line::from(vec![
            Span::styled(format!("{sign} "), style),
            Span::styled(words.to_owned(), screen.theme[words_role]),
        ])
    };
    let mut lines: Vec<Line> =
        WORDS.iter().map(|(fate, words)| line(fate::sign(*fate), words, fate::role(*fate), is_here(*fate))).collect();
    let departs = (0..round.drafts.len()).any(|index| round.departure(index).is_some());
    if departs {
        lines.push(line(fate::DEPARTED, "accepted, not the target's choice", Role::TokenDeparted, true));
    }
    let grammar = [
        (fate::FORCED, "forced: the grammar allows no other token", Role::TokenForced),
        (fate::sign(Fate::Refused), "refused: the grammar forbids it", Role::TokenRefused),
    ];
    let acts = [round.drafts.iter().any(|draft| draft.forced), !round.refused.is_empty()];
    let acts = grammar.into_iter().zip(acts).filter(|_| screen.has_own_grammar());
    lines.extend(acts.map(|((sign, words, role), is_here)| line(sign, words, role, is_here)));
    let is_cut = round.first_discarded().is_some();
    lines.push(line("┃", "the cut: what is left of it is kept", fate::role(Fate::Rejected), is_cut));
    put(lines, area, frame);
}
