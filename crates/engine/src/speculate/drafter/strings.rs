//! Drafting with a second model that has another tokenizer, by strings: it writes in its own tokens, and the target's
//! tokenizer makes drafts of the text (string-level exact match: Timor et al., arXiv:2502.05202, algorithm 2).
//!
//! Its cache follows the target's text in its own tokens. Invariant, needed for losslessness: what is drafted follows from
//! the text alone. Each draft is the target's token for the most probable text and counts as certain (q = 1), as a copy
//! does: a draw from the model's distribution over its own tokens would be worth less, since the rules could not divide by
//! its probability.
//!
//! The target's text may end within a word of the model's: ` Fah`, where the model would write ` Fahrrad` as one token. After
//! tokens that it never met in that order it drafts badly, so an own token that begins with the end of the text takes the
//! place of those there if it is more probable (token healing: Lundberg, "The Art of Prompt Design", 2023). And where the target
//! would have taken another token before a text, that text hardly follows: after ` a` there is no `nd`. So the first token that
//! the model writes is the most probable one that the target's tokens before it join.
//!
//! The last token of a text may become another one with more text, so a token is proposed once more text follows it, or
//! when nothing more is drafted: then a wrong one costs a row, and to be sure would cost a pass.

use std::sync::Arc;

use super::super::report::bare;
use super::alternatives::PassedOver;
use super::cached_model::CachedModel;
use super::{DraftCtx, Drafter, OwnToken};
use crate::speculate::sampler::{LogitRow, Sampler};
use draftscope_model::other_vocab::strings::{OwnText, Strings, Written};
use draftscope_model::{Forward, LogitRows, Model, ModelError};
use draftscope_protocol::distribution::Distribution;
use draftscope_protocol::verify::Draft;
use draftscope_protocol::{DeviceWork, DraftStopped, Sampling, TokenId};

/// Most passes for a draft: a token of the target may take several own ones, but an own token may also write nothing.
const MOST_PASSES: usize = 4;

/// Most own tokens at the end of the text that another one may replace.
const MOST_HEALED: usize = 4;

/// Most own tokens that are tried where the target's tokens end.
const MOST_TRIED: usize = 8;

/// Most own tokens that are read together with logits for each.
const MOST_UNREAD: usize = 32;

/// Drafts text with another model.
pub struct StringsDrafter {
    own: CachedModel,
    text: OwnText,
    strings: Arc<Strings>,
}

/// What the model wrote after the tokens of the target that it read.
struct Pending {
    /// The tokens of the target that it read, and the number of drafts among them.
    read: Vec<TokenId>,
    drafts: usize,
    text: Vec<u8>,
    /// Where own tokens begin in the text, and their probabilities.
    own: Vec<(usize, f32)>,
    /// Tokens of the target for the text.
    tokens: Vec<TokenId>,
}

/// An own token in place of those that end the text.
struct Healed {
    token: TokenId,
    /// The number of own tokens before it.
    at: usize,
    /// Its bytes that the text has.
    written: usize,
    /// Its probability, compared with that of the tokens that end the text.
    chance: f32,
}

/// How drafting goes on after a proposal.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Next {
    /// With more text.
    Text,
    /// From the beginning: drafts of another source stand where others were expected.
    Again,
    /// Not at all.
    End,
}

impl StringsDrafter {
    /// A drafter with this model, whose cache must be empty.
    #[must_use]
    pub fn new(model: Box<dyn Model>, strings: Arc<Strings>) -> Self {
        Self { own: CachedModel::new(model), text: OwnText::default(), strings }
    }

    /// Drafts after the committed tokens and the drafts so far.
    fn draft_on(&mut self, ctx: &mut DraftCtx<'_>) -> Result<Next, ModelError> {
        let mut pending = Pending::after(ctx);
        let Some((out, mut healed)) = self.read(&pending.read)? else { return Ok(Next::End) };
        let mut out = Some(out);
        for _ in 0..ctx.left() * MOST_PASSES {
            let Some(row) = out.take() else { break };
            let (token, q, written) = match healed.take() {
                Some(Healed { token, written, chance, .. }) => {
                    (token, chance, Written::Text(&self.strings.own_bytes(token)[written..]))
                }
                None => {
                    let (token, q) = self.best(&row, &pending)?;
                    (token, q, self.strings.written(token))
                }
            };
            match written {
                Written::Nothing => break,
                Written::Control(control) => {
                    if let Some((sure, p_min)) = ctx.stops(q, None) {
                        ctx.stopped =
                            Some(DraftStopped { token: bare(control), q: sure, p_min, ..DraftStopped::default() });
                        break;
                    }
                    return Ok(match pending.propose(ctx, &self.strings, 0) {
                        Next::Text => propose(ctx, control, q),
                        next => next,
                    });
                }
                Written::Text(bytes) => {
                    if let Some((sure, p_min)) = ctx.stops(q, None) {
                        pending.stop(ctx, &self.strings, (bytes, sure, p_min))?;
                        break;
                    }
                    pending.own.push((pending.text.len(), q));
                    pending.text.extend_from_slice(bytes);
                }
            }
            if !pending.read_again(ctx, &self.strings)? {
                return Ok(Next::End);
            }
            if pending.unproposed(ctx) >= ctx.left() {
                break;
            }
            match pending.propose(ctx, &self.strings, 1) {
                Next::Text => out = self.own.run(&[token], 0, LogitRows::Last)?,
                next => return Ok(next),
            }
        }
        match pending.propose(ctx, &self.strings, 0) {
            Next::Again => Ok(Next::Again),
            Next::Text | Next::End => Ok(Next::End),
        }
    }

    /// Reads a text. Returns the pass that ran its last own token, and the own token that takes the place of the last ones;
    /// `None` if there is no room.
    fn read(&mut self, text: &[TokenId]) -> Result<Option<(Forward, Option<Healed>)>, ModelError> {
        let own = self.text.follow(&self.strings, text)?.to_vec();
        if own.is_empty() || self.own.room(own.len()) == 0 {
            return Ok(None);
        }
        let healable = own.len().saturating_sub(MOST_HEALED).max(self.text.settled().len()).max(1);
        self.own.agree(&own)?;
        self.own.cut(self.own.len().min(healable - 1))?;
        if own.len() - self.own.len() > MOST_UNREAD {
            self.own.follow(&own[..healable - 1])?;
        }
        let first = self.own.len();
        let Some(out) = self.own.run(&own[first..], 0, LogitRows::All)? else { return Ok(None) };
        let healed = self.healed((&out, first), (&own, healable), text)?;
        if let Some(Healed { at, .. }) = healed {
            self.own.cut(at)?;
        }
        Ok(Some((out, healed)))
    }

    /// The own token that begins with the end of a text and is more probable than the tokens from `healable` on that end it.
    fn healed(
        &self,
        (out, first): (&Forward, usize),
        (own, healable): (&[TokenId], usize),
        text: &[TokenId],
    ) -> Result<Option<Healed>, ModelError> {
        let (mut reach, mut all) = (1.0, Vec::new());
        for at in healable..own.len() {
            let end: Vec<u8> = own[at..].iter().flat_map(|own| self.strings.own_bytes(*own)).copied().collect();
            let also = self.strings.going_on(&end).chain([own[at]]);
            let q = self.distribution(out, at - 1 - first, also, at)?;
            let of = |token| Healed { token, at, written: end.len(), chance: reach * q.prob(token) };
            all.extend(self.strings.going_on(&end).map(of));
            reach *= q.prob(own[at]);
        }
        all.retain(|healed: &Healed| healed.chance > reach);
        all.sort_by(|a, b| b.chance.total_cmp(&a.chance));
        for healed in all.into_iter().take(MOST_TRIED) {
            if self.strings.joins(text, &self.strings.own_bytes(healed.token)[healed.written..])? {
                return Ok(Some(Healed { chance: healed.chance / (healed.chance + reach), ..healed }));
            }
        }
        Ok(None)
    }

    /// The most probable own token after the last row, and its probability; at the beginning one that the text joins.
    fn best(&self, out: &Forward, pending: &Pending) -> Result<(TokenId, f32), ModelError> {
        let q = self.distribution(out, out.scored().saturating_sub(1), None, pending.read.len())?;
        let tried = if pending.own.is_empty() { MOST_TRIED } else { 0 };
        for (token, chance) in q.top(tried).0 {
            let joins = match self.strings.written(token) {
                Written::Text(bytes) => self.strings.joins(&pending.read, bytes)?,
                Written::Control(_) | Written::Nothing => true,
            };
            if joins {
                return Ok((token, chance));
            }
        }
        Ok((q.argmax(), q.prob(q.argmax())))
    }

    fn distribution(
        &self,
        out: &Forward,
        row: usize,
        also: impl IntoIterator<Item = TokenId>,
        position: usize,
    ) -> Result<Distribution, ModelError> {
        let greedy = Sampler { sampling: Sampling::default() };
        greedy.distribution(&LogitRow::of(out, row, None).within(self.strings.own_len()), also, position)
    }
}

impl Pending {
    fn after(ctx: &DraftCtx<'_>) -> Self {
        let drafts = ctx.drafts().len();
        let read = ctx.committed.iter().copied().chain(ctx.drafts().iter().map(|draft| draft.token)).collect();
        Self { read, drafts, text: Vec::new(), own: Vec::new(), tokens: Vec::new() }
    }

    /// Drafts after those that it read.
    fn proposed<'a>(&self, ctx: &'a DraftCtx<'_>) -> impl Iterator<Item = TokenId> + 'a {
        ctx.drafts().iter().skip(self.drafts).map(|draft| draft.token)
    }

    /// Tokens that are not proposed yet.
    fn unproposed(&self, ctx: &DraftCtx<'_>) -> usize {
        self.tokens.len().saturating_sub(self.proposed(ctx).count())
    }

    /// Whether the drafts after those that it read are tokens of the text.
    fn agrees(&self, ctx: &DraftCtx<'_>) -> bool {
        let mut tokens = self.tokens.iter();
        self.proposed(ctx).all(|token| tokens.next() == Some(&token))
    }

    /// Makes tokens of the text. False if a token that was proposed became another one.
    fn read_again(&mut self, ctx: &DraftCtx<'_>, strings: &Strings) -> Result<bool, ModelError> {
        self.tokens = strings.continued(&self.read, &self.text)?;
        Ok(self.agrees(ctx))
    }

    /// Proposes all tokens but the last `kept`.
    fn propose(&self, ctx: &mut DraftCtx<'_>, strings: &Strings, kept: usize) -> Next {
        loop {
            let done = self.proposed(ctx).count();
            if done + kept >= self.tokens.len() {
                return Next::Text;
            }
            let next = propose(ctx, self.tokens[done], self.chance(strings, done));
            if next == Next::Text && !self.agrees(ctx) {
                return Next::Again;
            }
            if next != Next::Text {
                return next;
            }
        }
    }

    /// The model's probability of a token of the text: of the own tokens that begin in it.
    fn chance(&self, strings: &Strings, index: usize) -> f32 {
        let lens = self.tokens[..=index].iter().map(|token| strings.bytes(*token).len());
        let end: usize = lens.clone().sum();
        let start: usize = lens.take(index).sum();
        self.own.iter().filter(|(at, _)| (start..end).contains(at)).map(|(_, q)| q).product()
    }

    /// Notes that text ended the draft because its probability was too low.
    fn stop(
        &self,
        ctx: &mut DraftCtx<'_>,
        strings: &Strings,
        (bytes, q, p_min): (&[u8], f32, f32),
    ) -> Result<(), ModelError> {
        let text = [&self.text, bytes].concat();
        let token = strings.continued(&self.read, &text)?.get(self.tokens.len()).copied();
        ctx.stopped = token.map(|token| DraftStopped { token: bare(token), q, p_min, ..DraftStopped::default() });
        Ok(())
    }
}

/// Proposes a token, or the copy that promises more.
fn propose(ctx: &mut DraftCtx<'_>, token: TokenId, chance: f32) -> Next {
    if ctx.left() == 0 {
        return Next::End;
    }
    let q = Distribution::new(vec![(token, chance)], token, 1.0 - chance);
    let draft = match ctx.copy_instead(token, chance) {
        Some(copy) => {
            ctx.passed_over.push((ctx.drafts().len(), PassedOver::Model(q)));
            copy
        }
        None => {
            if let Some(progress) = &mut ctx.progress {
                progress.take(chance);
            }
            Draft { drawn: false, ..Draft::drawn(token, q) }
        }
    };
    if ctx.propose(draft) { Next::Text } else { Next::End }
}

impl Drafter for StringsDrafter {
    fn fork(&self) -> Result<Box<dyn Drafter>, ModelError> {
        Ok(Box::new(Self { own: self.own.fork()?, text: self.text.clone(), strings: Arc::clone(&self.strings) }))
    }

    fn device_work(&self) -> Option<DeviceWork> {
        self.own.device_work()
    }

    fn has_token(&self, own: OwnToken<'_>) -> Option<bool> {
        Some(self.strings.has(own.token))
    }

    fn settle(&mut self, committed: &[TokenId]) -> Result<(), ModelError> {
        // not what more text could change
        self.text.follow(&self.strings, committed)?;
        let own = self.text.settled();
        if self.own.room(own.len()) > 0 {
            self.own.follow(own)?;
        }
        Ok(())
    }

    fn notice(&mut self) -> Option<String> {
        self.own.notice()
    }

    fn draft(&mut self, ctx: &mut DraftCtx<'_>) -> Result<(), ModelError> {
        while ctx.left() > 0 && self.draft_on(ctx)? == Next::Again {}
        Ok(())
    }
}
