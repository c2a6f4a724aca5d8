//! The context of a round: its place, its draws and its limits.

use crate::distribution::Distribution;
use crate::random::{Draws, Purpose};
use crate::{Leniency, TokenId};

/// Address of the draws that belong to a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OfRound {
    /// Position of the round's first draft.
    pub start: usize,
    /// Index in the round of the first judged draft: 0, unless only the rest of a round is judged again.
    pub first: usize,
}

/// What drafter and verifier need to know of a round besides tokens.
#[derive(Clone, Copy)]
pub struct RoundCtx<'a> {
    /// Position of the first draft in the context; it addresses the draws.
    pub position: usize,
    /// k: most tokens that the drafter may propose; in a tree, its depth.
    pub draft_len: usize,
    /// Whether the most probable token is taken instead of a draw (temperature 0).
    pub greedy: bool,
    /// Address of fresh draws for drafting and acceptance, which belong to the round and not to a position. Needed
    /// where draws of later positions affect an earlier one: `block`, trees, and a draft length that depends on the
    /// drafts.
    pub fresh: Option<OfRound>,
    /// Limits of the lenient rules.
    pub leniency: Leniency,
    /// The run's draws.
    pub draws: &'a dyn Draws,
}

impl RoundCtx<'_> {
    /// The target's own choice at depth `depth` (0 = after the anchor), and the draw that picked it; none if greedy.
    #[must_use]
    pub fn pick(&self, p: &Distribution, depth: usize) -> (TokenId, Option<f32>) {
        if self.greedy {
            return (p.argmax(), None);
        }
        let u = self.draws.uniform(Purpose::Next, self.position + depth);
        (p.pick(u), Some(u))
    }

    /// The draw for draft `index` of the round.
    #[must_use]
    pub fn draw(&self, purpose: Purpose, index: usize) -> f32 {
        match self.fresh {
            Some(OfRound { start, first }) => self.draws.fresh(purpose, start, first + index),
            None => self.draws.uniform(purpose, self.position + index),
        }
    }
}
