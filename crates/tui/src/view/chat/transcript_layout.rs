//! The lines of the transcript, turn by turn, in stretches of rounds that are laid out once and kept.
//!
//! Invariant: a stretch of complete rounds, the next of which has begun, never changes, nor does the last one of a
//! finished answer, so a frame costs what is new, however long the history; only the stretch with the selected round,
//! and the last one of a running answer, are laid out again. The line that two stretches share is passed from one to
//! the next; the caption, which depends on other lanes, is no part of them.

use std::rc::Rc;
use std::sync::Arc;

use crate::app::place::hit_map::PREFILL;
use crate::look::display::DisplayMode;
use crate::widgets::flow::Tagged;
use draftscope_protocol::StopReason;
use draftscope_session::text::{self, Joiner};
use draftscope_session::{Answer, TranscriptToken};

use crate::view::chat::answer_summary;
use crate::view::chat::laid::{Fallen, Laid, Pen};
use crate::view::chat::plain_text;
use crate::view::chat::token_text::{self, Discarded, Look};
use crate::view::chat::transcript_blocks::{Block, BlockLook, TURNS};
use crate::view::chat::transcript_cache::Key;
use crate::view::prelude::*;

/// Rounds of a stretch.
const STRETCH: usize = 128;

/// A turn in a lane, being laid out.
struct Work<'a> {
    screen: Screen<'a>,
    lane: Lane,
    index: usize,
    width: u16,
    answer: &'a Answer,
    /// Index of the selected round, if it is of this turn and lane; the inner `None` is the first token.
    selected: Option<Option<usize>>,
    display: DisplayMode,
    /// Numbers of the rounds whose discarded drafts are in the text where signs stand for those of others.
    drafted: [Option<u32>; 2],
    /// Tokens of the thought, if it is folded.
    folded: Option<usize>,
}

/// The transcript in blocks; the last is what no turn contains yet.
pub(in crate::view) fn lay_out(screen: Screen, lane: Lane, width: u16) -> Vec<Block> {
    screen.lines.begin(screen.app.clock.timelines);
    screen.lines.blocks.begin(look(screen, lane, width));
    let turns = screen.session.turns();
    let selected = screen.app.place.selected.filter(|_| lane == Lane::Speculative);
    let mut blocks = Vec::new();
    for (number, chunk) in turns.chunks(TURNS).enumerate() {
        let (first, end) = (number * TURNS, number * TURNS + chunk.len());
        let is_chosen = selected.is_some_and(|at| (first..end).contains(&at.turn));
        // the newest turn may be going on, and an unfinished block would be laid out again with every turn
        let lay = || turns_laid_out(screen, lane, (first, chunk), width);
        let can_settle = !is_chosen && end < turns.len();
        let settled = || screen.lines.blocks.block(screen.app, (first, chunk), lay);
        let block = if can_settle { settled() } else { None };
        blocks.push(block.unwrap_or_else(|| Block::Laid(lay().into())));
    }
    blocks.push(Block::Laid([after_turns(screen, width)].into()));
    blocks
}

/// The lines of a block.
pub(in crate::view) fn parts(screen: Screen, lane: Lane, width: u16, block: &Block) -> Rc<[Laid]> {
    let turns = screen.session.turns();
    screen.lines.blocks.parts(block, |index| {
        let first = index * TURNS;
        let chunk = turns.get(first..turns.len().min(first + TURNS)).unwrap_or_default();
        turns_laid_out(screen, lane, (first, chunk), width)
    })
}

fn look(screen: Screen, lane: Lane, width: u16) -> BlockLook {
    BlockLook {
        timeline: screen.app.clock.timelines,
        run: screen.time.runs(),
        lane,
        width,
        theme: screen.theme.name.clone(),
        display: screen.app.place.display,
        has_signs: screen.has_signs(),
        shows_thought: screen.app.place.shows_thought,
    }
}

/// Some turns by stretches; the first has the index `first`.
fn turns_laid_out(screen: Screen, lane: Lane, (first, turns): (usize, &[Turn]), width: u16) -> Vec<Laid> {
    let mut laid = Vec::new();
    for (index, turn) in turns.iter().enumerate().map(|(at, turn)| (first + at, turn)) {
        let chosen = screen.app.place.selected.filter(|at| at.turn == index && lane == Lane::Speculative);
        let selected = chosen.map(|at| at.round);
        let answer = turn.answer(lane);
        let on_show = screen.app.round_index(screen.session).filter(|at| at.turn == index && lane == Lane::Speculative);
        let drafted = rounds_with_drafts(answer, on_show.and_then(|at| at.round));
        let folded = folded(screen, answer, selected);
        let display = screen.display_of(turn);
        let work = Work { screen, lane, index, width, answer, selected, display, drafted, folded };
        work.turn(turn, &mut laid);
    }
    laid
}

/// Tokens of the thought, if there is one and it is folded: unless the key opened it, a round of it is selected, or the answer
/// ended without anything after it.
fn folded(screen: Screen, answer: &Answer, selected: Option<Option<usize>>) -> Option<usize> {
    let is_all = answer.finished.is_some() && answer.is_thinking();
    if screen.app.place.shows_thought || is_all {
        return None;
    }
    let chosen = selected.map(|round| round.and_then(|at| answer.rounds.get(at)).map_or(0, |round| round.first_token));
    let is_chosen = chosen.and_then(|first| answer.tokens.get(first)).is_some_and(|token| token.is_thought);
    // of an answer that ended in its thought nothing else is there to be shown
    let is_all = answer.finished.is_some() && answer.thought_tokens() == answer.tokens.len();
    Some(answer.thought_tokens()).filter(|tokens| *tokens > 0 && !is_chosen && !is_all)
}

/// What no turn holds yet: the prompt on its way, a new conversation.
fn after_turns(screen: Screen, width: u16) -> Laid {
    let turns = screen.session.turns();
    let mut flow = Flow::new(width);
    let awaiting = screen.app.requests.awaiting.as_ref().filter(|_| screen.app.requests.is_awaiting(screen.session));
    let is_new = screen.app.talk.conversations.last() == Some(&turns.len());
    if !turns.is_empty() && (is_new || awaiting.is_some()) {
        rule(screen, is_new, width, &mut flow);
    }
    if let Some(awaiting) = awaiting {
        user(screen, turns.len() + 1, &awaiting.text, &mut flow);
    } else if turns.is_empty() {
        welcome(screen, &mut flow);
    }
    of(turns.len(), flow.finish_tagged(), None)
}

fn of(turn: usize, lines: (Vec<Line<'static>>, Vec<Vec<Tagged>>), selected: Option<usize>) -> Laid {
    Laid { turn, lines: lines.0.into(), tags: lines.1.into(), selected }
}

/// The rounds of an answer whose discarded drafts are always in the text: the running one and the one on show.
fn rounds_with_drafts(answer: &Answer, on_show: Option<usize>) -> [Option<u32>; 2] {
    let live = answer.rounds.last().filter(|_| answer.finished.is_none());
    let shown = on_show.and_then(|at| answer.rounds.get(at));
    [live, shown].map(|round| round.map(|round| round.number()))
}

impl Work<'_> {
    fn turn(&self, turn: &Turn, laid: &mut Vec<Laid>) {
        if self.display == DisplayMode::Text {
            self.plain(turn, laid);
            return;
        }
        let rounds = self.answer.rounds.len();
        let mut pen = None;
        for stretch in 0..rounds.div_ceil(STRETCH).max(1) {
            let (lines, next) = self.stretch(stretch, turn, pen.as_ref());
            laid.push(lines);
            pen = Some(next);
        }
        let mut pen = pen.map_or_else(|| self.begin(turn), Rc::unwrap_or_clone);
        token_text::sign(self.screen, &mut pen);
        pen.flow.push(&pen.joiner.finish(), self.screen.theme[Role::TokenPlain]);
        self.end(turn, pen.flow, laid);
    }

    /// What follows the answer.
    fn end(&self, turn: &Turn, mut flow: Flow, laid: &mut Vec<Laid>) {
        flow.tag(0, 0);
        caption(self.screen, turn, self.lane, &mut flow);
        flow.end_line();
        laid.push(of(self.index, flow.finish_tagged(), None));
    }

    /// The turn as plain text; kept after the answer has ended.
    fn plain(&self, turn: &Turn, laid: &mut Vec<Laid>) {
        let is_settled = self.answer.finished.is_some() && self.selected.is_none();
        let key = self.key(0, turn, None);
        let found = self.screen.lines.find(&key).filter(|_| is_settled);
        let (lines, pen) = found.unwrap_or_else(|| {
            let mut head = self.begin(turn);
            let (mut lines, mut tags) = head.flow.take_finished();
            let chosen = self.selected.map(|_| self.selected_number());
            let text = plain_text::lay_out(self.screen, (self.answer, self.folded), chosen.flatten(), self.width);
            let selected = text.selected.map(|line| line + lines.len());
            lines.extend(text.lines);
            tags.extend(text.tags);
            let lines = (of(self.index, (lines, tags), selected), Rc::new(head));
            if is_settled {
                self.screen.lines.keep(key, lines.clone());
            }
            lines
        });
        laid.push(lines);
        self.end(turn, Rc::unwrap_or_clone(pen).flow, laid);
    }

    /// What comes before the answer.
    fn begin(&self, turn: &Turn) -> Pen {
        let mut flow = Flow::new(self.width);
        if self.index > 0 {
            rule(self.screen, self.screen.app.talk.starts_conversation(self.index), self.width, &mut flow);
        }
        head(self.screen, turn, &mut flow);
        Pen {
            flow,
            joiner: Joiner::default(),
            drafts: Joiner::default(),
            line: 0,
            has_fold: false,
            fallen: Fallen::default(),
        }
    }

    /// A stretch from the cache, if it cannot change any more and nothing in it is selected.
    fn stretch(&self, stretch: usize, turn: &Turn, pen: Option<&Rc<Pen>>) -> (Laid, Rc<Pen>) {
        let rounds = &self.answer.rounds;
        let is_settled = |round: &Arc<Round>| round.is_complete() && !round.is_partial;
        // the drafts of a round stay in the text until the next one begins
        let is_whole = match rounds.get((stretch + 1) * STRETCH) {
            Some(_) => true,
            None => self.answer.finished.is_some() && rounds.last().is_none_or(is_settled),
        };
        let is_touched = self.selected.is_some_and(|round| round.unwrap_or(0) / STRETCH == stretch);
        let lay = || match pen {
            Some(pen) => self.lay(stretch, (**pen).clone()),
            None => self.lay(stretch, self.begin(turn)),
        };
        if !is_whole || is_touched {
            return lay();
        }
        let key = self.key(stretch, turn, pen);
        if let Some(found) = self.screen.lines.find(&key) {
            return found;
        }
        let laid = lay();
        self.screen.lines.keep(key, laid.clone());
        laid
    }

    fn key(&self, stretch: usize, turn: &Turn, pen: Option<&Rc<Pen>>) -> Key {
        let app = self.screen.app;
        let rounds = stretch * STRETCH..self.answer.rounds.len().min((stretch + 1) * STRETCH);
        let numbers = self.answer.rounds.get(rounds.clone()).and_then(|rounds| Some((rounds.first()?, rounds.last()?)));
        let of_stretch =
            |number: &u32| numbers.is_some_and(|(first, last)| (first.number()..=last.number()).contains(number));
        Key {
            run: self.screen.time.runs(),
            turn: self.index,
            branch: turn.branch.map(|branch| (branch.turn, branch.kept, branch.forced)),
            stretch,
            drafted: self.drafted.map(|round| round.filter(of_stretch)),
            rounds: rounds.len(),
            lane: self.lane,
            width: self.width,
            theme: self.screen.theme.name.clone(),
            display: self.display,
            has_signs: self.screen.has_signs(),
            folded: self.folded,
            goes_on: pen.map_or(0, |pen| pen.line),
            starts_conversation: app.talk.starts_conversation(self.index),
            is_abandoned: app.talk.abandoned.contains(&turn.number),
        }
    }

    /// Number of the selected round, as in the tokens.
    fn selected_number(&self) -> Option<u32> {
        self.selected.and_then(|at| match at {
            Some(at) => self.answer.rounds.get(at).map(|round| round.number()),
            None => Some(PREFILL),
        })
    }

    /// How the text shows the discarded drafts of a round. A tree is drawn beside the text, not in it.
    fn discarded(&self, round: u32) -> Discarded {
        let is_asked = self.display == DisplayMode::All || self.drafted.contains(&Some(round));
        match is_asked && !self.answer.round(round).is_some_and(Round::is_tree) {
            true => Discarded::InPlace,
            false => Discarded::Counted,
        }
    }

    fn lay(&self, stretch: usize, mut pen: Pen) -> (Laid, Rc<Pen>) {
        let screen = self.screen;
        let number = self.selected_number();
        let mut selected = None;
        let rounds = stretch * STRETCH..((stretch + 1) * STRETCH).min(self.answer.rounds.len());
        let turn = screen.session.turns().get(self.index);
        let mut in_prompt = turn.is_some_and(|turn| stretch == 0 && screen.session.begins_in_prompt(turn, self.lane));
        for token in self.answer.transcript_between(rounds) {
            if std::mem::take(&mut in_prompt) {
                continue; // the prompt above has it
            }
            let is_selected = number == Some(token_text::round_of(&token));
            let is_chosen = is_selected && screen.app.place.cell == Some(token.column);
            if is_selected && selected.is_none() {
                selected = Some(pen.flow.line_index());
            }
            if self.folded.is_some() && token.is_thought {
                self.fold(&token, &mut pen);
                continue;
            }
            let discarded = self.discarded(token.round);
            token_text::push(screen, token, Look { is_selected, is_chosen, discarded }, &mut pen);
        }
        (of(self.index, pen.flow.take_finished(), selected), Rc::new(pen.ended()))
    }
}

impl Work<'_> {
    /// A line in place of the thought, where it begins.
    fn fold(&self, token: &TranscriptToken, pen: &mut Pen) {
        let is_first = !std::mem::replace(&mut pen.has_fold, true);
        if let Some(tokens) = self.folded.filter(|_| is_first) {
            pen.flow.tag(token_text::round_of(token), token.column);
            pen.flow.push(&plain_text::folded_line(self.screen, tokens), self.screen.theme[Role::TextDim]);
            pen.flow.end_line();
        }
    }
}

/// Parts two turns.
fn rule(screen: Screen, is_new: bool, width: u16, flow: &mut Flow) {
    let name = if is_new { "─── new conversation " } else { "" };
    let rest = usize::from(width).saturating_sub(name.chars().count());
    flow.push(&format!("{name}{}", "─".repeat(rest)), screen.theme[Role::PanelBorder]);
    flow.end_line();
}

fn welcome(screen: Screen, flow: &mut Flow) {
    let dim = screen.theme[Role::TextDim];
    flow.push("A small drafter proposes tokens, the large target checks them all in one pass. ", dim);
    let help = screen.app.key(Action::Help);
    flow.push(&format!("Type a prompt and watch which drafts are kept. {help} shows every key.\n"), dim);
}

/// What the turn answers: a prompt, or the point of another turn from which it continues.
fn head(screen: Screen, turn: &Turn, flow: &mut Flow) {
    let Some(branch) = turn.branch else {
        user(screen, turn.number as usize, &turn.typed, flow);
        return;
    };
    let left = if screen.app.talk.abandoned.contains(&turn.number) { " (left again)" } else { "" };
    let from = match branch.kept {
        0 => "its prompt once more".to_owned(),
        kept => format!("continuing after token {kept}"),
    };
    let text = format!("{} ⑂ turn {}, {from}{left}", turn.number, branch.turn);
    flow.push(&text, screen.theme[Role::User]);
    if branch.forced {
        flow.push(", not what the target would have written", screen.theme[Role::Warning]);
    }
    flow.end_line();
}

/// The number of a turn, and the typed text.
fn user(screen: Screen, number: usize, typed: &str, flow: &mut Flow) {
    flow.push(&format!("{number} "), screen.theme[Role::TextDim]);
    flow.push("❯ ", screen.theme[Role::User]);
    flow.push(&text::printable(typed), screen.theme[Role::User]);
    flow.end_line();
}

/// The cost of the answer, below it.
fn caption(screen: Screen, turn: &Turn, lane: Lane, flow: &mut Flow) {
    let answer = turn.answer(lane);
    flow.break_line();
    if answer.tokens.is_empty() {
        if answer.finished == Some(StopReason::Refused) {
            flow.push("└ the prompt was refused", screen.theme[Role::Warning]);
            flow.end_line();
        } else if answer.finished == Some(StopReason::Stopped) {
            flow.push("└ stopped before the prompt was read", screen.theme[Role::TextDim]);
            flow.end_line();
        } else if lane != Lane::Speculative && turn.answer(Lane::Speculative).finished.is_some() {
            let text = if lane == Lane::Plain { "(plain decoding was not run)" } else { "(the rival was not run)" };
            flow.push(text, screen.theme[Role::TextDim]);
            flow.end_line();
        }
        return;
    }
    let Some(reason) = answer.finished else {
        return;
    };
    let tokens = answer.tokens.len() - usize::from(screen.session.begins_in_prompt(turn, lane));
    flow.push(&answer_summary::text((answer, tokens), turn, lane, reason), screen.theme[Role::TextDim]);
    flow.end_line();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::App;
    use crate::app::options::TuiOptions;
    use crate::view::chat::transcript_cache::TranscriptCache;
    use draftscope_session::Timeline;
    use draftscope_session::fixture::{conversation, first_turn};

    #[test]
    fn an_answer_that_has_ended_is_laid_out_once() {
        for (script, ended) in [(first_turn(), 1), (conversation(), 1)] {
            let mut time = Timeline::new();
            script.events.into_iter().for_each(|event| time.apply(event));
            let (app, lines) = (App::new(TuiOptions::default()), TranscriptCache::default());
            let screen = Screen { time: &time, session: time.shown(), app: &app, theme: app.theme(), lines: &lines };
            let all_parts = || {
                let blocks = lay_out(screen, Lane::Speculative, 60);
                blocks.iter().flat_map(|block| parts(screen, Lane::Speculative, 60, block).to_vec()).collect::<Vec<_>>()
            };
            let [first, again] = [0; 2].map(|_| all_parts());
            assert_eq!(lines.len(), ended, "one that is under way is not kept");
            assert!(Rc::ptr_eq(&first[0].lines, &again[0].lines));
            let all = |laid: &[Laid]| laid.iter().flat_map(|l| l.lines.to_vec()).collect::<Vec<_>>();
            assert_eq!(all(&first), all(&again));
            lines.begin(app.clock.timelines + 1);
            assert_eq!(lines.len(), 0, "another timeline numbers its runs and turns from the start too");
        }
    }

    #[test]
    fn every_turn_of_a_long_session_is_put_into_a_block_once() {
        let (turns, mut time) = (3 * TURNS + 7, Timeline::new());
        let mut script = draftscope_session::fixture::Script::started();
        let (app, lines) = (App::new(TuiOptions::default()), TranscriptCache::default());
        let mut heights = Vec::new();
        for turn in 0..turns {
            let before = script.events.len();
            script.prompt("hi", "Hello");
            script.round(&[(" a", 0.5)], &[(" a", 0.5), (" b", 0.5)]);
            script.finish(Lane::Speculative, StopReason::Eos);
            let from = if turn == 0 { 0 } else { before };
            script.events[from..].iter().for_each(|event| time.apply(event.clone()));
            let screen = Screen { time: &time, session: time.shown(), app: &app, theme: app.theme(), lines: &lines };
            for _ in 0..3 {
                heights.push(lay_out(screen, Lane::Speculative, 60).iter().map(Block::lines).sum::<usize>());
            }
        }
        assert_eq!(lines.blocks.laid(), 3 * TURNS);
        // the same as without a cache, at every length
        let (fresh, screen_of) = (TranscriptCache::default(), |lines| Screen {
            time: &time,
            session: time.shown(),
            app: &app,
            theme: app.theme(),
            lines,
        });
        let text = |screen| {
            let blocks = lay_out(screen, Lane::Speculative, 60);
            let parts = blocks.iter().flat_map(|block| parts(screen, Lane::Speculative, 60, block).to_vec());
            parts.flat_map(|part| part.lines.to_vec()).collect::<Vec<_>>()
        };
        let (cached, anew) = (text(screen_of(&lines)), text(screen_of(&fresh)));
        assert!(cached == anew && cached.len() == *heights.last().unwrap());
        assert!(heights.is_sorted());
    }
}
