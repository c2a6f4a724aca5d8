//! A round's drafts, and tokens that did not become drafts.

use draftscope_protocol::{Copied, Piece, Prediction};

/// One proposed token.
#[derive(Clone, Debug, PartialEq)]
pub struct DraftCell {
    /// The proposal.
    pub piece: Piece,
    /// Drafter's probability of it, 0 to 1; `None` if the drafter has no distribution.
    pub q: Option<f32>,
    /// The distribution it was drawn from.
    pub top: Prediction,
    /// In a tree, the row that judges it; `None` in a chain.
    pub row: Option<u8>,
    /// Whether drafts of the same pass follow.
    pub more: bool,
    /// Where it was copied from; `None` for a token that a model, or a person, proposed.
    pub copied: Option<Copied>,
    /// Whether the grammar forced it: no other token was allowed there.
    pub forced: bool,
    /// Time of this draft step; of the first draft of a pass, the pass included.
    pub took_us: u64,
}

/// The token at which a draft ended because its q was below p-min.
#[derive(Clone, Debug, PartialEq)]
pub struct Stopped {
    /// The drafter's best candidate; it was not verified.
    pub piece: Piece,
    /// The drafter's probability of it, 0 to 1.
    pub q: f32,
    /// p-min: the limit that q was below.
    pub p_min: f32,
    /// Time of this draft step.
    pub took_us: u64,
}

/// A token that the grammar forbids and the drafter preferred, or would have copied.
#[derive(Clone, Debug, PartialEq)]
pub struct Refused {
    /// Index in the draft that it would have had.
    pub index: usize,
    /// The token; the target never saw it.
    pub piece: Piece,
    /// The drafter's probability of it before the mask, 0 to 1; `None` if the drafter has no distribution.
    pub q: Option<f32>,
    /// What the grammar expects there.
    pub expected: String,
}
