//! A model that reads and writes tokens of another model's vocabulary, so that it can draft for it.
//!
//! Read: a token is spelled with the longest own tokens of the same bytes. Written: tokens that both vocabularies have with
//! the same bytes, and the end of an answer; all other own tokens get no probability, and those left are renormalised by
//! whoever makes a distribution of the logits. Verification judges by this distribution, so whatever the model drafts, the
//! text stays the target's (token-level intersection: Timor et al., "Accelerating LLM Inference with Lossless Speculative
//! Decoding Algorithms for Heterogeneous Vocabularies", arXiv:2502.05202).
//!
//! The other way to draft, by [`strings`], shares how the model reads the target's control tokens and single bytes.

mod sample;
pub mod strings;

use std::collections::HashMap;
use std::sync::Arc;

use crate::text::tokenizer::TextCodec;
use crate::{Checkpoint, ExpertsMet, Forward, LogitRows, Model, ModelError, ModelSpec, RowPool, Rows};
use draftscope_protocol::{DeviceWork, GpuInfo, Piece, TokenId};

/// The logit of a token that cannot be written. Finite, since a row with infinities is taken for a broken one; its
/// exponential is 0 at every temperature that is allowed.
const NEVER: f32 = -1e30;

/// Longest own token that spells others, in bytes.
const LONGEST: usize = 64;

/// What two vocabularies share.
pub struct SharedVocab {
    /// Bytes of each token of the other vocabulary.
    other: Vec<Piece>,
    /// The own end of an answer and beginning of a text for those of the other vocabulary.
    own_ends: HashMap<TokenId, TokenId>,
    /// Own tokens of text by their bytes, and own control tokens by their names.
    own_text: HashMap<Box<[u8]>, TokenId>,
    own_names: HashMap<Box<[u8]>, TokenId>,
    /// Begins every text, if the model expects that.
    begins_with: Option<TokenId>,
    /// The token of the other vocabulary for each own one.
    written: Vec<Option<TokenId>>,
    /// For each token of the other vocabulary, whether it can be written.
    is_writable: Vec<bool>,
    /// How many tokens of the other vocabulary can be written.
    count: usize,
}

impl SharedVocab {
    /// What the vocabulary of a model, `own`, shares with that of its target.
    #[must_use]
    pub fn of(target: &TextCodec, own: &TextCodec) -> Self {
        let [target_pieces, own_pieces] = [target, own].map(pieces);
        let [(target_text, target_names), (own_text, own_names)] =
            [&target_pieces, &own_pieces].map(|pieces| (by_bytes(pieces, false), by_bytes(pieces, true)));
        let end = target.eos().or(target.ends().last().copied());
        let written = |piece: &Piece| match piece.special {
            true => target_names.get(&*piece.bytes).copied().or_else(|| end.filter(|_| own.is_end(piece.id))),
            false => target_text.get(&*piece.bytes).copied(),
        };
        let written: Vec<_> = own_pieces.iter().map(written).collect();
        let mut is_writable = vec![false; target_pieces.len()];
        for token in written.iter().flatten() {
            if let Some(is) = is_writable.get_mut(token.index()) {
                *is = true;
            }
        }
        let count = is_writable.iter().filter(|is| **is).count();
        let own_end = own.eos().or(own.ends().last().copied());
        let ends = target.ends().iter().filter_map(|end| Some((*end, own_end?)));
        let own_ends = ends.chain(target.bos().zip(own.bos())).collect();
        let begins_with = own.bos().filter(|_| own.begins());
        Self { other: target_pieces, own_ends, own_text, own_names, begins_with, written, is_writable, count }
    }

    /// Tokens of the target that the model can draft.
    #[must_use]
    pub fn count(&self) -> usize {
        self.count
    }

    /// Tokens of the target.
    #[must_use]
    pub fn target_len(&self) -> usize {
        self.other.len()
    }

    /// Share of the tokens of a sample of prose and code that the model can draft, 0 to 1.
    ///
    /// # Errors
    /// When the target's tokenizer fails.
    pub fn share_of_text(&self, target: &TextCodec) -> Result<f64, ModelError> {
        let tokens = target.encode(sample::TEXT)?;
        let shared = tokens.iter().filter(|token| self.has(**token)).count();
        Ok(shared as f64 / tokens.len().max(1) as f64)
    }

    /// Whether the model can draft a token of the target.
    #[must_use]
    pub fn has(&self, token: TokenId) -> bool {
        self.is_writable.get(token.index()).copied().unwrap_or(false)
    }

    /// Adds the own tokens that spell a token of the target; at least one.
    fn spell(&self, token: TokenId, into: &mut Vec<TokenId>) {
        if let Some(own) = self.control(token) {
            into.push(own);
            return;
        }
        match self.bytes(token) {
            [] => into.push(TokenId(0)), // padding: what stands there matters to no one
            bytes => into.extend(self.spelled(bytes).map(Option::unwrap_or_default)),
        }
    }

    /// Whether a token of the target is a control token.
    fn is_control(&self, token: TokenId) -> bool {
        self.other.get(token.index()).is_some_and(|piece| piece.special)
    }

    /// The own token for a control token of the target, if there is one; otherwise its name is text.
    fn control(&self, token: TokenId) -> Option<TokenId> {
        let piece = self.other.get(token.index()).filter(|piece| piece.special)?;
        self.own_names.get(&*piece.bytes).or_else(|| self.own_ends.get(&token)).copied()
    }

    /// The bytes of a token of the target; none of padding.
    fn bytes(&self, token: TokenId) -> &[u8] {
        self.other.get(token.index()).map_or(&[], |piece| &piece.bytes)
    }

    /// The longest own tokens of these bytes, one after the other; `None` for a byte that no own token has.
    fn spelled<'a>(&'a self, mut rest: &'a [u8]) -> impl Iterator<Item = Option<TokenId>> + 'a {
        std::iter::from_fn(move || {
            let mut lengths = (1..=rest.len().min(LONGEST)).rev();
            let found = lengths.find_map(|len| Some((len, *self.own_text.get(&rest[..len])?)));
            let (len, own) = found.map_or((1, None), |(len, own)| (len, Some(own)));
            rest = rest.get(len..)?;
            Some(own)
        })
    }
}

fn pieces(codec: &TextCodec) -> Vec<Piece> {
    (0..codec.len() as u32).map(|id| codec.piece(TokenId(id))).collect()
}

/// Tokens by their bytes; of several with the same bytes the last, since single bytes come before words.
fn by_bytes(pieces: &[Piece], special: bool) -> HashMap<Box<[u8]>, TokenId> {
    let kept = pieces.iter().filter(|piece| piece.special == special && !piece.bytes.is_empty());
    kept.map(|piece| (Box::from(&*piece.bytes), piece.id)).collect()
}

/// A model that reads and writes tokens of its target.
pub struct OtherVocab {
    inner: Box<dyn Model>,
    shared: Arc<SharedVocab>,
    spec: ModelSpec,
    /// For each token of the target in the cache, where its own tokens end.
    ends: Vec<usize>,
    rows: RowPool,
}

impl OtherVocab {
    /// Wraps a model, whose cache must be empty, with the vocabulary that it shares with its target; `vocab` is the
    /// number of the target's logits.
    #[must_use]
    pub fn new(inner: Box<dyn Model>, shared: SharedVocab, vocab: u32) -> Self {
        let mut spec = inner.spec().clone();
        spec.info.vocab = vocab;
        Self { inner, shared: Arc::new(shared), spec, ends: Vec::new(), rows: RowPool::default() }
    }

    /// Own positions of the first `len` tokens.
    fn own_len(&self, len: usize) -> usize {
        len.checked_sub(1).and_then(|last| self.ends.get(last)).copied().unwrap_or(0)
    }

    /// Logits over the target's vocabulary. Of several own tokens for one of the target's, the best counts.
    fn translated(&self, rows: &[&[f32]]) -> Rows {
        let width = self.spec.info.vocab as usize;
        let mut out = self.rows.rows(rows.len(), width);
        for (row, to) in rows.iter().zip(out.as_mut_slice().chunks_mut(width)) {
            to.fill(NEVER);
            for (logit, token) in row.iter().zip(&self.shared.written) {
                if let Some(place) = token.and_then(|token| to.get_mut(token.index())) {
                    // what is no number must be seen, not lost
                    *place = if logit.is_finite() { place.max(*logit) } else { *logit };
                }
            }
        }
        out
    }
}

impl Model for OtherVocab {
    fn spec(&self) -> &ModelSpec {
        &self.spec
    }

    fn len(&self) -> usize {
        self.ends.len()
    }

    fn forward(&mut self, tokens: &[TokenId], rows: LogitRows) -> Result<Forward, ModelError> {
        let before = self.inner.len();
        let mut own = Vec::with_capacity(tokens.len() + 1);
        let mut ends = Vec::with_capacity(tokens.len());
        for token in tokens {
            self.shared.spell(*token, &mut own);
            ends.push(own.len());
        }
        if let Some(begin) = self.shared.begins_with.filter(|begin| before == 0 && own.first() != Some(begin)) {
            own.insert(0, begin);
            ends.iter_mut().for_each(|end| *end += 1);
        }
        let asked = if rows == LogitRows::Last { rows } else { LogitRows::All };
        let out = self.inner.forward(&own, asked)?;
        let logits = match asked {
            LogitRows::Last => self.translated(&out.logits.last().into_iter().collect::<Vec<_>>()),
            _ => self.translated(&ends.iter().map(|end| out.logits.row(end - 1)).collect::<Vec<_>>()),
        };
        self.ends.extend(ends.iter().map(|end| before + end));
        Ok(Forward { logits, hidden: Rows::empty(out.hidden.width().max(1)), stats: Vec::new() })
    }

    fn writes(&self, token: TokenId) -> Option<bool> {
        Some(self.shared.has(token))
    }

    fn pass_bytes(&self) -> u64 {
        self.inner.pass_bytes()
    }

    fn device_work(&self) -> Option<DeviceWork> {
        self.inner.device_work()
    }

    fn gpu_info(&self) -> Option<GpuInfo> {
        self.inner.gpu_info()
    }

    fn experts_met(&self) -> Option<ExpertsMet> {
        self.inner.experts_met()
    }

    fn rewindable(&self, len: usize) -> usize {
        let mut len = len.min(self.len());
        while self.inner.rewindable(self.own_len(len)) != self.own_len(len) {
            // the longest beginning that ends at or before that position
            let own = self.inner.rewindable(self.own_len(len));
            len = self.ends[..len].partition_point(|end| *end <= own);
        }
        len
    }

    fn checkpoint(&self) -> Result<Checkpoint, ModelError> {
        self.inner.checkpoint()?;
        Ok(Checkpoint { len: self.len() })
    }

    fn truncate(&mut self, len: usize, since: &Checkpoint) -> Result<(), ModelError> {
        if len > self.len() || since.len > len {
            return Err(ModelError::Rewind { len, have: self.len(), since: since.len });
        }
        self.inner.truncate(self.own_len(len), &Checkpoint { len: self.own_len(since.len) })?;
        self.ends.truncate(len);
        Ok(())
    }

    fn fork(&self) -> Result<Box<dyn Model>, ModelError> {
        Ok(Box::new(Self {
            inner: self.inner.fork()?,
            shared: Arc::clone(&self.shared),
            spec: self.spec.clone(),
            ends: self.ends.clone(),
            rows: RowPool::default(),
        }))
    }
}
