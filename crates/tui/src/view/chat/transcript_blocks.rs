//! Turns that have ended, in blocks, so that a frame of a long session costs little more than one of a short one.
//!
//! Invariant: a block stands for turns of which nothing has changed since it was laid out: neither their answers, nor
//! the width, theme or marks. Of a block out of view only the number of lines is kept.

use std::cell::RefCell;
use std::rc::Rc;

use crate::app::App;
use crate::look::display::DisplayMode;
use draftscope_protocol::{Branch, Lane, StopReason};
use draftscope_session::Turn;

use crate::view::chat::laid::Laid;

/// Turns of a block.
pub(in crate::view) const TURNS: usize = 64;

/// Blocks whose lines are kept: those in view, and some that were.
const OPEN: usize = 4;

/// Turns that are laid out together: how many lines they take, and the lines where they are known.
#[derive(Clone)]
pub(in crate::view) enum Block {
    /// The block of this index, laid out before.
    Settled { index: usize, lines: usize },
    /// Other turns.
    Laid(Rc<[Laid]>),
}

impl Block {
    pub(in crate::view) fn lines(&self) -> usize {
        match self {
            Self::Settled { lines, .. } => *lines,
            Self::Laid(parts) => lines(parts),
        }
    }
}

pub(in crate::view) fn lines(parts: &[Laid]) -> usize {
    parts.iter().map(|part| part.lines.len()).sum()
}

/// What the lines of all blocks depend on.
#[derive(Clone, PartialEq, Eq)]
pub(in crate::view) struct BlockLook {
    pub(in crate::view) timeline: u64,
    pub(in crate::view) run: u64,
    pub(in crate::view) lane: Lane,
    pub(in crate::view) width: u16,
    pub(in crate::view) theme: String,
    /// What the user chose.
    pub(in crate::view) display: Option<DisplayMode>,
    pub(in crate::view) has_signs: bool,
    pub(in crate::view) shows_thought: bool,
}

/// What the lines of a turn depend on beside that.
#[derive(Clone, PartialEq, Eq)]
struct Stamp {
    typed: usize,
    branch: Option<Branch>,
    /// Tokens, rounds and end of each lane.
    answers: [(usize, usize, Option<StopReason>); Lane::ALL.len()],
    starts_conversation: bool,
    is_abandoned: bool,
}

impl Stamp {
    /// None for a turn that is not over.
    fn of(app: &App, index: usize, turn: &Turn) -> Option<Self> {
        let answers = std::array::from_fn(|lane| {
            let answer = turn.answer(Lane::ALL[lane]);
            (answer.tokens.len(), answer.rounds.len(), answer.finished)
        });
        // the drafts of a running round change without a new round; of the lanes beside, only rounds count
        let own = turn.answer(Lane::Speculative);
        let is_over = own.tokens.is_empty() || own.finished.is_some();
        is_over.then(|| Self {
            typed: turn.typed.len(),
            branch: turn.branch,
            answers,
            starts_conversation: app.talk.starts_conversation(index),
            is_abandoned: app.talk.abandoned.contains(&turn.number),
        })
    }
}

/// A block that was laid out.
struct Known {
    stamps: Vec<Stamp>,
    lines: usize,
}

/// Blocks of one look.
#[derive(Default)]
pub(crate) struct BlockCache(RefCell<Blocks>);

#[derive(Default)]
struct Blocks {
    look: Option<BlockLook>,
    known: Vec<Option<Known>>,
    /// Lines of some blocks, those used last at the end.
    open: Vec<(usize, Rc<[Laid]>)>,
    /// Turns laid out for blocks so far.
    #[cfg(test)]
    laid: usize,
}

impl BlockCache {
    /// Begins a layout: drops what was laid out for another look.
    pub(in crate::view) fn begin(&self, look: BlockLook) {
        let mut blocks = self.0.borrow_mut();
        if blocks.look.as_ref() != Some(&look) {
            (blocks.known, blocks.open) = (Vec::new(), Vec::new());
            blocks.look = Some(look);
        }
    }

    /// The block of these turns, of which the first has the index `first`; none while one of them is not over. `lay` lays
    /// them out if they have changed.
    pub(in crate::view) fn block(
        &self,
        app: &App,
        (first, turns): (usize, &[Turn]),
        lay: impl Fn() -> Vec<Laid>,
    ) -> Option<Block> {
        let index = first / TURNS;
        let mut blocks = self.0.borrow_mut();
        if blocks.known.len() <= index {
            blocks.known.resize_with(index + 1, || None);
        }
        let stamps = || turns.iter().enumerate().map(|(at, turn)| Stamp::of(app, first + at, turn));
        if let Some(known) = &blocks.known[index]
            && known.stamps.len() == turns.len()
            && known.stamps.iter().zip(stamps()).all(|(known, now)| now.as_ref() == Some(known))
        {
            return Some(Block::Settled { index, lines: known.lines });
        }
        let stamps = stamps().collect::<Option<Vec<_>>>()?;
        let parts: Rc<[Laid]> = lay().into();
        let lines = lines(&parts);
        blocks.known[index] = Some(Known { stamps, lines });
        blocks.open.retain(|(open, _)| *open != index);
        #[cfg(test)]
        (blocks.laid += turns.len());
        blocks.open(index, parts);
        Some(Block::Settled { index, lines })
    }

    /// The lines of a block; `lay` lays its turns out again if they are not kept.
    pub(in crate::view) fn parts(&self, block: &Block, lay: impl Fn(usize) -> Vec<Laid>) -> Rc<[Laid]> {
        let index = match block {
            Block::Settled { index, .. } => *index,
            Block::Laid(parts) => return Rc::clone(parts),
        };
        let mut blocks = self.0.borrow_mut();
        let known = blocks.open.iter().position(|(open, _)| *open == index).map(|at| blocks.open.remove(at).1);
        let parts = known.unwrap_or_else(|| lay(index).into());
        blocks.open(index, Rc::clone(&parts));
        parts
    }

    /// Turns laid out for blocks so far.
    #[cfg(test)]
    pub(in crate::view) fn laid(&self) -> usize {
        self.0.borrow().laid
    }
}

impl Blocks {
    fn open(&mut self, index: usize, parts: Rc<[Laid]>) {
        self.open.push((index, parts));
        if self.open.len() > OPEN {
            self.open.remove(0);
        }
    }
}
