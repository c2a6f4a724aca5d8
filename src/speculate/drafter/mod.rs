//! Who proposes tokens. One trait; each kind is a file of its own, and a [`DrafterSet`] holds them all.
//!
//! Invariant: a drafter decides how fast the text comes, never which text. It may propose nothing, too
//! much or nonsense, and it may fail.

mod draft_model;
mod drafter_set;
mod early_exit;
mod mtp;
mod ngram;
mod oracle;
mod random;
#[cfg(test)]
mod tests;
mod tree;

pub use draft_model::ModelDrafter;
pub use drafter_set::DrafterSet;
pub use early_exit::EarlyExitDrafter;
pub use mtp::MtpDrafter;
pub use ngram::NgramDrafter;
pub use oracle::{HumanDrafter, OracleDrafter};
pub use random::RandomDrafter;

use super::policy::DraftProgress;
use super::random::Purpose;
use super::sampler::{LogitRow, Sampler};
use super::verify::{Draft, RoundCtx};
use crate::model::{Forward, Model, ModelError, Rows, Tap};
use crate::protocol::{DraftPick, DrafterKind, Drafting, Settings, TokenId};

/// Makes a drafter.
type New = fn() -> Box<dyn Drafter>;

/// Drafters that have no weights of their own: they need nothing but the target. The engine lists them in this order.
pub const WEIGHTLESS: &[(DrafterKind, New)] = &[
    (DrafterKind::Ngram, || Box::new(NgramDrafter)),
    (DrafterKind::EarlyExit, || Box::new(EarlyExitDrafter)),
    (DrafterKind::Oracle, || Box::new(OracleDrafter::default())),
    (DrafterKind::Random, || Box::new(RandomDrafter)),
    (DrafterKind::Human, || Box::new(HumanDrafter::default())),
];

/// Proposes tokens that may follow what is committed.
pub trait Drafter {
    /// Which hidden states of the target it reads; drafters that read none ask for none.
    fn tap(&self) -> Tap {
        Tap::none()
    }

    /// Whether all that is committed must be [shown again](Drafter::reread): what slots mean has changed.
    fn wants_reread(&self) -> bool {
        false
    }

    /// Learns all committed tokens but the first anew, as [`Drafter::observe`] does.
    ///
    /// # Errors
    /// As [`Drafter::observe`].
    fn reread(&mut self, _tokens: &[TokenId], _hidden: &Rows) -> Result<(), ModelError> {
        Ok(())
    }

    /// Learns newly committed tokens. `hidden` row `i` holds the target's states of the drafter's
    /// [tap](Drafter::tap) that predicted `tokens[i]`. Committed rows only, so nothing observed is ever taken back but by
    /// [`Drafter::rewind`]. Drafters that need no hidden states read [`DraftCtx::committed`] instead.
    ///
    /// # Errors
    /// When the drafter cannot take them.
    fn observe(&mut self, _tokens: &[TokenId], _hidden: &Rows) -> Result<(), ModelError> {
        Ok(())
    }

    /// Works off what was observed, so that the next draft does not pay for it. Called after a
    /// prompt, whose cost belongs to the prefill.
    ///
    /// # Errors
    /// As [`Drafter::draft`].
    fn settle(&mut self, _committed: &[TokenId]) -> Result<(), ModelError> {
        Ok(())
    }

    /// Forgets all but the first `len` observed tokens: the next prompt differs from there on.
    ///
    /// # Errors
    /// When the cache cannot be cut.
    fn rewind(&mut self, _len: usize) -> Result<(), ModelError> {
        Ok(())
    }

    /// Proposes tokens with [`DraftCtx::propose`]; none is a valid answer.
    ///
    /// # Errors
    /// When a model behind it fails. What was proposed before stands.
    fn draft(&mut self, ctx: &mut DraftCtx<'_>) -> Result<(), ModelError>;

    /// A copy that has observed the same, with caches of its own: for a lane that runs beside.
    ///
    /// # Errors
    /// When a cache cannot be copied.
    fn fork(&self) -> Result<Box<dyn Drafter>, ModelError>;

    /// Takes tokens that somebody else worked out: the person's draft, or the plain answer.
    fn offer(&mut self, _tokens: &[TokenId]) {}

    /// Takes new settings; in force from the next round on.
    fn configure(&mut self, _settings: &Settings) {}

    /// Something the user should know, once: why nothing is drafted, say.
    fn notice(&mut self) -> Option<String> {
        None
    }
}

/// What a drafter works with in a round.
pub struct DraftCtx<'a> {
    /// The round: its draws, its draft length.
    pub round: RoundCtx<'a>,
    /// How to draft.
    pub drafting: Drafting,
    /// All committed tokens; the last is the anchor.
    pub committed: &'a [TokenId],
    /// Turns logits into q.
    pub sampler: &'a Sampler,
    /// The target, for drafters that use its layers; they leave its cache as long as it was.
    pub target: &'a mut dyn Model,
    /// Hears each proposal with its index as soon as it is known.
    pub on_draft: &'a mut dyn FnMut(usize, &Draft),
    /// Most drafts that are taken: k in a chain, the nodes of a tree.
    pub(super) limit: usize,
    /// What ends a chain before that; nothing in a tree.
    pub(super) progress: Option<DraftProgress>,
    /// What was proposed so far.
    pub(super) drafts: Vec<Draft>,
    /// What was not sure enough.
    pub(super) stopped: Option<Stopped>,
}

/// A token that was not sure enough to be proposed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Stopped {
    pub(super) token: TokenId,
    /// The drafter's probability of it.
    pub(super) q: f32,
    /// What that fell below.
    pub(super) p_min: f32,
}

impl DraftCtx<'_> {
    /// Adds a draft; the answer is whether another one is welcome. A token that is none ends the draft, and so
    /// do a tree node that continues nothing and a stop rule that expects too little of another token.
    pub fn propose(&mut self, draft: Draft) -> bool {
        let index = self.drafts.len();
        let is_token = draft.token.0 < self.target.spec().info.vocab;
        if index >= self.limit || !is_token || draft.row_at(index) > index {
            self.limit = index;
            return false;
        }
        (self.on_draft)(index, &draft);
        let ends = |progress: &DraftProgress| draft.q.is_some() && !progress.goes_on();
        let is_last = index + 1 >= self.limit || self.progress.as_ref().is_some_and(ends);
        self.drafts.push(draft);
        !is_last
    }

    /// The largest probability that q must hold for the next draft to be proposed.
    fn p_min(&self) -> f32 {
        self.progress
            .as_ref()
            .map(DraftProgress::p_min)
            .map_or(self.drafting.p_min, |p_min| p_min.max(self.drafting.p_min))
    }

    /// What was proposed so far.
    #[must_use]
    pub fn drafts(&self) -> &[Draft] {
        &self.drafts
    }

    /// Most drafts that are taken.
    #[must_use]
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// What row 0 of a drafter's logits proposes for depth `depth`; none where the drafter is not sure
    /// enough (p-min). `vocab` names the tokens, none = all of them in order.
    ///
    /// # Errors
    /// [`ModelError::NotFinite`].
    pub fn pick(
        &mut self,
        out: &Forward,
        vocab: Option<&[TokenId]>,
        depth: usize,
    ) -> Result<Option<Draft>, ModelError> {
        let position = self.round.position + depth;
        // a token that the target lacks would be dropped when it is drawn, by its own value
        let row = LogitRow::of(out, 0, vocab).within(self.target.spec().info.vocab);
        let q = self.sampler.distribution(&row, None, position)?;
        // the largest probability, not the draft's own: that must not decide whether it is proposed
        let best = q.argmax();
        let (sure, p_min) = (q.prob(best), self.p_min());
        if sure < p_min {
            self.stopped = Some(Stopped { token: best, q: sure, p_min });
            return Ok(None);
        }
        if let Some(progress) = &mut self.progress {
            progress.take(sure);
        }
        let certain = self.drafting.pick == DraftPick::Argmax;
        let draft = if self.round.greedy || certain {
            Draft { drawn: !certain, ..Draft::drawn(q.argmax(), q) }
        } else {
            Draft::drawn(q.pick(self.round.draw(Purpose::Draft, depth)), q)
        };
        Ok(Some(draft))
    }
}

/// Proposes nothing: plain decoding.
pub struct NoDrafter;

impl Drafter for NoDrafter {
    fn fork(&self) -> Result<Box<dyn Drafter>, ModelError> {
        Ok(Box::new(Self))
    }

    fn draft(&mut self, _: &mut DraftCtx<'_>) -> Result<(), ModelError> {
        Ok(())
    }
}
