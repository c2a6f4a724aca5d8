//! Drafters, which propose tokens: one trait, one file per kind, and a [`DrafterSet`] with all of them.
//!
//! Invariant: a drafter affects only the speed, never the text. It may propose nothing, too much or nonsense, and it
//! may fail.

mod alternatives;
mod block;
mod cached_model;
mod constrained;
mod copier;
mod draft_model;
mod drafter_set;
mod early_exit;
mod mtp;
mod ngram;
mod oracle;
mod random;
mod stack;
mod strings;
mod suffix;
#[cfg(test)]
mod tests;
mod tree;

pub(super) use alternatives::{Asked, Limits, PassedOver, alternatives};
pub use block::BlockDrafter;
pub(super) use constrained::{Constrained, path_to};
pub use copier::Copier;
#[cfg(test)]
pub(super) use copier::Offer;
pub use draft_model::ModelDrafter;
pub use drafter_set::DrafterSet;
pub use early_exit::EarlyExitDrafter;
pub use mtp::MtpDrafter;
pub use ngram::NgramDrafter;
pub use oracle::{HumanDrafter, OracleDrafter};
pub use random::RandomDrafter;
pub use strings::StringsDrafter;
pub use suffix::SuffixDrafter;

use super::report::bare;
use super::sampler::{LogitRow, Sampler};
use draftscope_model::{Forward, Model, ModelError, Rows, Tap};
use draftscope_protocol::policy::DraftProgress;
use draftscope_protocol::random::Purpose;
use draftscope_protocol::verify::{Draft, RoundCtx};
use draftscope_protocol::{
    DeviceWork, DraftPick, DraftStopped, DrafterKind, Drafting, LatticeColumn, Settings, TokenId,
};

/// The token that the target added to a round.
#[derive(Clone, Copy, Debug)]
pub struct OwnToken<'a> {
    /// The token.
    pub token: TokenId,
    /// The committed tokens before the round.
    pub text: &'a [TokenId],
    /// Number of the target's tokens.
    pub vocab: usize,
}

/// Makes a drafter.
type New = fn() -> Box<dyn Drafter>;

/// Drafters without weights, which need only the target. The engine lists them in this order.
pub const WEIGHTLESS: &[(DrafterKind, New)] = &[
    (DrafterKind::Ngram, || Box::new(NgramDrafter)),
    (DrafterKind::Suffix, || Box::new(SuffixDrafter::default())),
    (DrafterKind::EarlyExit, || Box::new(EarlyExitDrafter)),
    (DrafterKind::Oracle, || Box::new(OracleDrafter::new(DrafterKind::Oracle))),
    (DrafterKind::Dial, || Box::new(OracleDrafter::new(DrafterKind::Dial))),
    (DrafterKind::Random, || Box::new(RandomDrafter)),
    (DrafterKind::Human, || Box::new(HumanDrafter::default())),
];

/// Proposes tokens that may follow the committed ones.
pub trait Drafter {
    /// The hidden states of the target that it reads; none by default.
    fn tap(&self) -> Tap {
        Tap::none()
    }

    /// What its passes did on a device; `None` if it runs none there.
    fn device_work(&self) -> Option<DeviceWork> {
        None
    }

    /// The part of the requested drafter that is loaded: one of two may be missing.
    fn usable(&self, asked: DrafterKind) -> DrafterKind {
        asked
    }

    /// Whether its vocabulary has the target's own token of a round, so that it could draft it; `None` if that has every token of
    /// the target, or is not what limits it.
    fn has_token(&self, _own: OwnToken<'_>) -> Option<bool> {
        None
    }

    /// Whether all committed tokens must be [read again](Drafter::reread), because the meaning of its slots changed.
    fn wants_reread(&self) -> bool {
        false
    }

    /// Replaces what it observed by all committed tokens except the first. Arguments as for [`Drafter::observe`].
    ///
    /// # Errors
    /// As [`Drafter::observe`].
    fn reread(&mut self, _tokens: &[TokenId], _hidden: &Rows) -> Result<(), ModelError> {
        Ok(())
    }

    /// Takes newly committed tokens. Row `i` of `hidden` contains the target's states of the drafter's
    /// [tap](Drafter::tap) that predicted `tokens[i]`. Since all of them are committed, only [`Drafter::rewind`]
    /// removes observed tokens. Drafters that need no hidden states read [`DraftCtx::committed`] instead.
    ///
    /// # Errors
    /// When the drafter cannot process them.
    fn observe(&mut self, _tokens: &[TokenId], _hidden: &Rows) -> Result<(), ModelError> {
        Ok(())
    }

    /// Processes the observed tokens now, so that this does not delay the next draft. Called after a prompt, where the
    /// time belongs to the prefill.
    ///
    /// # Errors
    /// As [`Drafter::draft`].
    fn settle(&mut self, _committed: &[TokenId]) -> Result<(), ModelError> {
        Ok(())
    }

    /// Removes all observed tokens except the first `len`: the next prompt differs from there on.
    ///
    /// # Errors
    /// When the cache cannot be cut.
    fn rewind(&mut self, _len: usize) -> Result<(), ModelError> {
        Ok(())
    }

    /// Proposes tokens with [`DraftCtx::propose`]. It may propose none.
    ///
    /// # Errors
    /// When its model fails. Earlier proposals of the round remain.
    fn draft(&mut self, ctx: &mut DraftCtx<'_>) -> Result<(), ModelError>;

    /// A copy that has observed the same tokens, with its own caches: for another lane.
    ///
    /// # Errors
    /// When a cache cannot be copied.
    fn fork(&self) -> Result<Box<dyn Drafter>, ModelError>;

    /// Takes tokens from another source: a person's draft, or the plain answer.
    fn offer(&mut self, _tokens: &[TokenId]) {}

    /// Changes the settings, from the next round on.
    fn configure(&mut self, _settings: &Settings) {}

    /// What copies the text, in the drafter that does.
    fn copier(&mut self) -> Option<&mut Copier> {
        None
    }

    /// A notice to the user, returned once: for example why nothing is drafted.
    fn notice(&mut self) -> Option<String> {
        None
    }
}

/// The inputs and outputs of a drafter in a round.
pub struct DraftCtx<'a> {
    /// Draws and draft length of the round.
    pub round: RoundCtx<'a>,
    /// How to draft.
    pub drafting: Drafting,
    /// All committed tokens; the last is the anchor.
    pub committed: &'a [TokenId],
    /// Turns logits into q.
    pub sampler: &'a Sampler,
    /// The target, for drafters that use its layers; they restore the length of its cache.
    pub target: &'a mut dyn Model,
    /// Called with the index and each proposal as soon as it is made.
    pub on_draft: &'a mut dyn FnMut(usize, &Draft),
    /// Most drafts that are accepted by [`DraftCtx::propose`]: k in a chain, the nodes of a tree.
    pub(super) limit: usize,
    /// Most drafts of the round, copies included, which may follow those that `limit` allows.
    pub(super) most_copied: usize,
    /// What copies the text, while a drafter that copies is in use.
    pub(super) copier: Option<Copier>,
    /// Ends a chain before `limit`; none in a tree.
    pub(super) progress: Option<DraftProgress>,
    /// Proposals so far.
    pub(super) drafts: Vec<Draft>,
    /// The token that ended the draft because its probability was too low. Its round, index and time are set when it is
    /// reported.
    pub(super) stopped: Option<DraftStopped>,
    /// By row, what a draft was preferred to.
    pub(super) passed_over: Vec<(usize, PassedOver)>,
    /// The candidates of positions that a selector chose at.
    pub(super) lattice: Vec<LatticeColumn>,
    /// The grammar of the answer, if it has one.
    pub(super) constrained: Option<Constrained<'a>>,
}

impl DraftCtx<'_> {
    /// Adds a draft and returns whether another one may follow. The draft ends at its limit, at a token outside the
    /// vocabulary or one that the grammar forbids, at a tree node whose parent does not exist, and where the stop rule
    /// finds that another token would not pay off. In a chain, tokens that the grammar forces after it are drafts, too.
    pub fn propose(&mut self, draft: Draft) -> bool {
        let (index, counted) = (self.drafts.len(), self.counted());
        let is_token = draft.token.0 < self.target.spec().info.vocab;
        let has_room = counted < self.limit && (counted == index || index < self.most_copied);
        if !has_room || !is_token || draft.row_at(index) > index || !self.permits_draft(&draft, index) {
            self.limit = counted;
            return false;
        }
        let is_predicted = draft.q.is_some() || draft.copied.is_some_and(|copied| copied.chance.is_some());
        let ends = |progress: &DraftProgress| is_predicted && !progress.goes_on();
        let is_last = counted + 1 >= self.limit || self.progress.as_ref().is_some_and(ends);
        let is_last = self.note_proposed(draft.token) || is_last || self.ends_answer(draft.token);
        let draft = Draft { more: draft.more && !is_last, ..draft };
        let is_chain = draft.row.is_none();
        (self.on_draft)(index, &draft);
        self.drafts.push(draft);
        if is_chain && self.propose_forced() > 0 {
            return self.go_on_after_forced(index + 1) && !is_last;
        }
        !is_last
    }

    fn permits_draft(&mut self, draft: &Draft, index: usize) -> bool {
        if self.constrained.is_none() {
            return true;
        }
        let path = path_to(&self.drafts, draft.row_at(index));
        self.permits(&path, draft.token)
    }

    /// Takes the forced drafts from index `from` on; returns whether a drafter that reads token by token goes on after
    /// them: it would have to read them, and a long run costs it more than its further drafts are worth.
    pub(super) fn go_on_after_forced(&mut self, from: usize) -> bool {
        let left = self.limit.min(self.round.draft_len).saturating_sub(self.counted());
        !self.note_forced(from) && self.drafts.len() - from <= left && self.drafts.len() < self.most_copied
    }

    /// The limit that ends the draft at a token, and what is below it: the largest probability of q or, where a drafter
    /// predicts acceptance, that for p-min.
    fn stops(&self, largest: f32, predicted: Option<f32>) -> Option<(f32, f32)> {
        let own = self.drafting.p_min;
        let rule = self.progress.as_ref().map_or(0.0, DraftProgress::p_min);
        let limits = match predicted {
            None => [(largest, rule.max(own)); 2],
            Some(predicted) => [(predicted, own), (largest, rule)],
        };
        limits.into_iter().find(|(sure, p_min)| sure < p_min)
    }

    /// Drafts that this drafter may still add: k without the drafts that the grammar forced.
    #[must_use]
    pub fn left(&self) -> usize {
        let room = self.most_copied.saturating_sub(self.drafts.len());
        let left = self.limit.min(self.round.draft_len).saturating_sub(self.counted());
        if self.constrained.is_some() { left.min(room) } else { left }
    }

    /// Proposals so far.
    #[must_use]
    pub fn drafts(&self) -> &[Draft] {
        &self.drafts
    }

    /// Most drafts of this round.
    #[must_use]
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// Picks the draft at depth `depth` from row 0 of a drafter's logits; none if the largest probability is below
    /// p-min. `vocab` lists the tokens of the logits; none means tokens 0, 1, 2 …
    ///
    /// # Errors
    /// [`ModelError::NotFinite`] when a logit is infinite or NaN.
    pub fn pick(
        &mut self,
        out: &Forward,
        vocab: Option<&[TokenId]>,
        depth: usize,
    ) -> Result<Option<Draft>, ModelError> {
        self.pick_predicted(out, vocab, (depth, None))
    }

    /// As [`DraftCtx::pick`], with the chance of acceptance that the drafter predicts: p-min is compared with that. It
    /// must not depend on the token that is drawn.
    ///
    /// # Errors
    /// As [`DraftCtx::pick`].
    pub fn pick_predicted(
        &mut self,
        out: &Forward,
        vocab: Option<&[TokenId]>,
        (depth, predicted): (usize, Option<f32>),
    ) -> Result<Option<Draft>, ModelError> {
        let position = self.round.position + depth;
        // Tokens that the target lacks are removed before drawing: dropping a drawn token because of its own value
        // would change the distribution.
        let row = LogitRow::of(out, 0, vocab).within(self.target.spec().info.vocab);
        let path = if self.constrained.is_some() { self.path() } else { Vec::new() };
        let Some(q) = self.distribution(&row, &path, position)? else {
            return Ok(None); // the drafter knows no token that the grammar allows
        };
        // the largest probability, since the drawn token's own must not decide whether it is proposed
        let best = q.argmax();
        let largest = q.prob(best);
        if let Some(copy) = self.copy_instead(best, largest) {
            self.passed_over.push((self.drafts.len(), PassedOver::Model(q)));
            return Ok(Some(copy));
        }
        if let Some((sure, p_min)) = self.stops(largest, predicted) {
            self.stopped = Some(DraftStopped { token: bare(best), q: sure, p_min, ..DraftStopped::default() });
            return Ok(None);
        }
        if let Some(progress) = &mut self.progress {
            progress.take(largest);
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
