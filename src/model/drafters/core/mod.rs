//! MTP modules on candle: DeepSeek-V3 shape around a block of any kind with a KV cache of its own, the
//! target's embedding and (trimmed) output head shared.
//!
//! Invariant: everything that could silently be otherwise is asked of the [`MtpSpec`]. Files are read in
//! [`mtp`](crate::model::drafters::mtp) and in the families that bring a module.

use crate::model::nn::embedding::Embedding;
mod block;
mod figures;

use std::sync::Arc;

use candle_core::Tensor;

use crate::model::draft_tokens::DraftTokens;
use crate::model::nn::block::{Place, Rope};
use crate::model::nn::embedding::{to_tensor, without_first};
use crate::model::nn::fusion::Fuse;
use crate::model::nn::kv_cache::KvCache;
use crate::model::nn::linear::Linear;
use crate::model::nn::norm::RmsNorm;
use crate::model::{DraftModule, Forward, ModelError, Rows, Tap};
use crate::protocol::{ConcatOrder, Feed, MtpSpec, NormForm, Recycle, SlotZero, TokenId};

pub use self::block::{LlamaBlock, MtpBlock};
pub use self::figures::{Figures, modules};

/// What a module has of its own, norms as they are stored.
pub struct MtpParts {
    /// Of the embedding.
    pub embedding_norm: RmsNorm,
    /// Of the hidden state.
    pub hidden_norm: RmsNorm,
    /// What else of the target is read, where it is.
    pub fuse: Option<Fuse>,
    /// `[d, 2d]`
    pub project: Linear,
    /// Between projection and last norm.
    pub block: Box<dyn MtpBlock>,
    /// The last norm.
    pub norm: RmsNorm,
}

impl MtpParts {
    fn shifted(&self, by: f64) -> Result<Self, ModelError> {
        Ok(Self {
            embedding_norm: self.embedding_norm.shifted(by)?,
            hidden_norm: self.hidden_norm.shifted(by)?,
            fuse: self.fuse.clone(),
            project: self.project.clone(),
            block: self.block.shifted(by)?,
            norm: self.norm.shifted(by)?,
        })
    }

    /// As they run when their norms mean this.
    fn meant(&self, form: NormForm) -> Result<Self, ModelError> {
        match form {
            NormForm::OnePlus => self.shifted(1.0),
            NormForm::Weight => Ok(Self {
                embedding_norm: self.embedding_norm.clone(),
                hidden_norm: self.hidden_norm.clone(),
                fuse: self.fuse.clone(),
                project: self.project.clone(),
                block: self.block.share(),
                norm: self.norm.clone(),
            }),
        }
    }
}

/// What a module shares with its target.
pub struct MtpShared {
    /// The embedding.
    pub embedding: Arc<dyn Embedding>,
    /// `[draft vocabulary, d]`
    pub head: Linear,
    /// Token of each row of the head, ascending.
    pub vocab: Vec<TokenId>,
    /// The head that those rows are of, where tokens of the text may join them, and how many may.
    pub whole: Option<(Linear, usize)>,
}

impl MtpShared {
    fn context_vocab(&self) -> usize {
        self.whole.as_ref().map_or(0, |whole| whole.1)
    }
}

/// Shape of a module's cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MtpShape {
    /// Width of the hidden state.
    pub d_model: usize,
    /// Key/value heads.
    pub kv_heads: usize,
    /// Width of a head.
    pub head_dim: usize,
    /// Slots that the cache holds.
    pub ctx_len: usize,
}

/// A module's weights, cache and place in the draft vocabulary.
pub struct CandleMtp {
    shared: Arc<MtpShared>,
    stored: Arc<MtpParts>,
    /// Norms as the conventions in force mean them.
    parts: MtpParts,
    spec: MtpSpec,
    shape: MtpShape,
    rope: Rope, // one position more than slots
    cache: KvCache,
    held: Option<usize>,
    proposed: DraftTokens,
    /// Of the tokens that joined; none when there are none.
    joined: Option<Linear>, // [n, d]
}

impl CandleMtp {
    /// A module with an empty cache, from its parts. The angles reach one position further than the cache.
    ///
    /// # Errors
    /// When memory is short.
    pub fn new(
        shared: MtpShared,
        stored: MtpParts,
        spec: MtpSpec,
        (shape, rope): (MtpShape, Rope),
    ) -> Result<Self, ModelError> {
        let cache = stored.block.cache(&shape, shared.embedding.device())?;
        let parts = stored.meant(spec.norm)?;
        let proposed = DraftTokens::new(shared.vocab.clone(), shared.context_vocab());
        let (shared, stored) = (Arc::new(shared), Arc::new(stored));
        Ok(Self { shared, stored, parts, spec, shape, rope, cache, held: None, proposed, joined: None })
    }

    /// Bytes of the module's own matrices, the shared ones not counted.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let fuse = self.parts.fuse.as_ref().map_or(0, Fuse::bytes);
        fuse + self.parts.project.bytes() + self.parts.block.bytes()
    }

    /// Bytes of KV cache per slot.
    #[must_use]
    pub fn kv_bytes_per_slot(&self) -> u64 {
        self.cache.position_bytes()
    }

    /// Tokens of the text that may join the draft vocabulary, at most.
    #[must_use]
    pub fn context_vocab(&self) -> usize {
        self.shared.context_vocab()
    }

    /// Embeddings of the tokens, `[m, d]`; with [`SlotZero::Zeroed`] that of slot 0 is zero.
    fn embed(&self, tokens: &[TokenId]) -> Result<Tensor, ModelError> {
        let embedded = self.shared.embedding.embed(tokens)?;
        let zeroes = self.spec.slot0 == SlotZero::Zeroed && self.cache.is_empty();
        if zeroes { without_first(&embedded) } else { Ok(embedded) }
    }

    /// Rotary position of the first slot of a pass.
    fn position(&self) -> usize {
        self.held.unwrap_or(self.cache.len()) + self.spec.ahead()
    }

    /// Brings the head's rows in line with the tokens that have joined.
    fn join(&mut self) -> Result<(), ModelError> {
        self.joined = None;
        let tokens: Vec<u32> = self.proposed.joined().iter().map(|token| token.0).collect();
        if let (Some((whole, _)), false) = (&self.shared.whole, tokens.is_empty()) {
            let tokens = Tensor::new(tokens, self.shared.embedding.device())?;
            self.joined = Some(Linear::dense(whole.rows(&tokens)?));
        }
        Ok(())
    }

    /// Drops slots `len..`, and what they brought.
    fn drop_from(&mut self, len: usize) -> Result<(), ModelError> {
        self.cache.truncate(len);
        let before = self.proposed.joined().len();
        if self.proposed.truncate(len) < before { self.join() } else { Ok(()) }
    }

    /// `[1, d] -> ` one for each token that may be proposed
    fn logits(&self, last: &Tensor) -> Result<Vec<f32>, ModelError> {
        let mut logits = self.shared.head.forward(last)?.flatten_all()?.to_vec1::<f32>()?;
        if let Some(joined) = &self.joined {
            logits.extend(joined.forward(last)?.flatten_all()?.to_vec1::<f32>()?);
        }
        Ok(logits)
    }

    fn run(&mut self, tokens: &[TokenId], hidden: &Rows) -> Result<Forward, ModelError> {
        if self.proposed.read(self.cache.len(), tokens) > 0 {
            self.join()?;
        }
        let embedded = self.parts.embedding_norm.forward(&self.embed(tokens)?)?;
        let states = to_tensor(hidden, self.shared.embedding.device())?;
        let states = match &self.parts.fuse {
            Some(fuse) if hidden.width() > self.shape.d_model => fuse.forward(&states)?,
            _ => states,
        };
        let states = self.parts.hidden_norm.forward(&states)?;
        let both = match self.spec.order {
            ConcatOrder::EmbeddingFirst => [embedded, states],
            ConcatOrder::HiddenFirst => [states, embedded],
        };
        let z = self.parts.project.forward(&Tensor::cat(&both, 1)?)?; // [m, 2d] -> [m, d]
        let place = Place { rope: &self.rope, tree: None, at: Some(self.position()) };
        let x = self.parts.block.forward(&z, place, &mut self.cache)?;
        let y = self.parts.norm.forward(&x)?; // [m, d]
        let last = y.narrow(0, tokens.len() - 1, 1)?.contiguous()?;
        let recycled = if self.spec.recycle == Recycle::PreNorm { &x } else { &y };
        Ok(Forward {
            logits: Rows::new(self.logits(&last)?, self.proposed.tokens().len()),
            hidden: Rows::new(recycled.flatten_all()?.to_vec1::<f32>()?, self.shape.d_model),
            stats: Vec::new(),
        })
    }
}

impl DraftModule for CandleMtp {
    fn len(&self) -> usize {
        self.cache.len()
    }

    fn spec(&self) -> MtpSpec {
        self.spec
    }

    fn set_spec(&mut self, spec: &MtpSpec) -> Result<(), ModelError> {
        if spec.feed == Feed::Layers {
            return Err(ModelError::Unsupported(
                "which layers a module fuses is its own: feed it post-norm or pre-norm".into(),
            ));
        }
        self.parts = self.stored.meant(spec.norm)?;
        self.spec = *spec;
        self.truncate(0)
    }

    fn tap(&self) -> Tap {
        let own = Tap::fed(self.spec.feed);
        self.parts.fuse.as_ref().map_or_else(|| own.clone(), |fuse| fuse.tap(&own))
    }

    fn hold_position(&mut self, position: Option<usize>) {
        self.held = position;
    }

    fn forward(&mut self, tokens: &[TokenId], hidden: &Rows) -> Result<Forward, ModelError> {
        let widths = [self.tap().states().len() * self.shape.d_model, self.shape.d_model];
        if tokens.is_empty() || tokens.len() != hidden.len() || !widths.contains(&hidden.width()) {
            return Err(ModelError::Unsupported(format!(
                "an MTP pass needs one hidden row of {} values per token, got {} rows of {} for {} tokens",
                widths[0],
                hidden.len(),
                hidden.width(),
                tokens.len()
            )));
        }
        let before = self.cache.len();
        // slots that stand at one position run one by one
        let together = if self.held.is_some() { 1 } else { tokens.len() };
        let mut all: Option<Forward> = None;
        for (index, tokens) in tokens.chunks(together).enumerate() {
            let rows = hidden.slice(index * together..index * together + tokens.len());
            let out = match self.run(tokens, &rows) {
                Ok(out) => out,
                Err(error) => return self.drop_from(before).and(Err(error)),
            };
            match &mut all {
                None => all = Some(out),
                Some(all) => {
                    all.hidden.append(&out.hidden);
                    all.logits = out.logits;
                }
            }
        }
        all.ok_or_else(|| ModelError::Unsupported("an MTP pass over no slots".into()))
    }

    fn truncate(&mut self, len: usize) -> Result<(), ModelError> {
        let have = self.cache.len();
        if len > have {
            return Err(ModelError::Rewind { len, have, since: 0 });
        }
        self.drop_from(len)
    }

    fn draft_vocab(&self) -> &[TokenId] {
        self.proposed.tokens()
    }

    /// Tensors are shared; only the cache is copied.
    fn fork(&self) -> Result<Box<dyn DraftModule>, ModelError> {
        Ok(Box::new(Self {
            shared: Arc::clone(&self.shared),
            stored: Arc::clone(&self.stored),
            parts: self.stored.meant(self.spec.norm)?,
            spec: self.spec,
            shape: self.shape,
            rope: self.rope.clone(),
            cache: self.cache.copy()?,
            held: self.held,
            proposed: self.proposed.clone(),
            joined: self.joined.clone(),
        }))
    }
}
