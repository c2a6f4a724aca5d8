//! MTP modules on candle: DeepSeek-V3 shape around a block of any kind with a KV cache of its own, the
//! target's embedding and (trimmed) output head shared.
//!
//! Invariant: everything that could silently be otherwise is asked of the [`MtpSpec`]. Files are read in
//! [`mtp`](crate::model::drafters::mtp) and in the families that bring a module.

mod block;
mod figures;
mod slots;

use std::sync::Arc;

use candle_core::Tensor;

use crate::model::draft_tokens::DraftTokens;
use crate::model::module_core::{ModuleBackend, ModuleCore, NormWeights, RunningWeights, Slots};
use crate::model::nn::block::{Place, Rope};
use crate::model::nn::embedding::Embedding;
use crate::model::nn::fusion::Fuse;
use crate::model::nn::kv_cache::KvCache;
use crate::model::nn::linear::Linear;
use crate::model::nn::norm::RmsNorm;
use crate::model::{ModelError, RowStats};
use crate::protocol::{MtpSpec, NormForm, TokenId};

pub use self::block::{LlamaBlock, MtpBlock};
pub use self::figures::{Figures, modules};
pub(in crate::model) use self::slots::{copy_to, numbers};

/// What a module has of its own, norms as they are stored.
pub struct MtpParts {
    /// Of the embedding.
    pub embedding_norm: RmsNorm,
    /// Of the hidden state.
    pub hidden_norm: RmsNorm,
    /// What else of the target is read, where it is.
    pub fuse: Option<Fuse<Linear, RmsNorm>>,
    /// `[d, 2d]`
    pub project: Linear,
    /// Between projection and last norm.
    pub block: Box<dyn MtpBlock>,
    /// The last norm.
    pub norm: RmsNorm,
}

impl NormWeights for MtpParts {
    fn one_plus(&self) -> Result<Self, ModelError> {
        Ok(Self {
            embedding_norm: self.embedding_norm.shifted(1.0)?,
            hidden_norm: self.hidden_norm.shifted(1.0)?,
            fuse: self.fuse.clone(),
            project: self.project.clone(),
            block: self.block.shifted(1.0)?,
            norm: self.norm.shifted(1.0)?,
        })
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
pub struct MtpOnCandle {
    shared: Arc<MtpShared>,
    parts: RunningWeights<MtpParts>,
    shape: MtpShape,
    rope: Rope, // one position more than slots
    cache: KvCache,
    proposed: DraftTokens,
    /// Of the tokens that joined; none when there are none.
    joined: Option<Linear>, // [n, d]
}

/// An MTP module on candle.
pub type CandleMtp = ModuleCore<MtpOnCandle>;

impl MtpOnCandle {
    /// A module with an empty cache, from its parts. The angles reach one position further than the cache.
    ///
    /// # Errors
    /// When memory is short.
    pub fn module(
        shared: MtpShared,
        stored: MtpParts,
        spec: MtpSpec,
        (shape, rope): (MtpShape, Rope),
    ) -> Result<CandleMtp, ModelError> {
        let cache = stored.block.cache(&shape, shared.embedding.device())?;
        let room = shared.whole.as_ref().map_or(0, |(_, room)| *room);
        let proposed = DraftTokens::new(shared.vocab.clone(), room);
        let (shared, parts) = (Arc::new(shared), RunningWeights::new(stored));
        ModuleCore::new(Self { shared, parts, shape, rope, cache, proposed, joined: None }, spec)
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
}

impl ModuleBackend for MtpOnCandle {
    const NAME: &'static str = "the MTP module";
    const MAX_SLOTS: usize = usize::MAX;
    type Last = Tensor; // [1, d]

    fn cached(&self) -> usize {
        self.cache.len()
    }

    fn ctx_len(&self) -> usize {
        self.shape.ctx_len
    }

    fn width(&self) -> usize {
        self.shape.d_model
    }

    fn blocks(&self) -> &[usize] {
        self.parts.fuse.as_ref().map_or(&[], Fuse::blocks)
    }

    fn set_norm_form(&mut self, form: NormForm) -> Result<(), ModelError> {
        self.parts.set_norm_form(form)
    }

    fn run(&mut self, slots: Slots<'_>, recycled: &mut [f32]) -> Result<Tensor, ModelError> {
        if self.proposed.read(self.cache.len(), slots.tokens) > 0 {
            self.join()?;
        }
        let (parts, embedding) = (&*self.parts, self.shared.embedding.as_ref());
        let embedded = parts.embedding_norm.forward(&slots.embed(embedding)?)?;
        let states = slots.states(embedding.device())?;
        let states = match &parts.fuse {
            Some(fuse) if slots.width() > self.shape.d_model => fuse.forward(&states)?,
            _ => states,
        };
        let states = parts.hidden_norm.forward(&states)?;
        let z = parts.project.forward(&slots.join(embedded, states)?)?; // [m, 2d] -> [m, d]
        let place = Place { rope: &self.rope, tree: None, at: Some(slots.at) };
        let x = parts.block.forward(&z, place, &mut self.cache)?;
        let y = parts.norm.forward(&x)?; // [m, d]
        copy_to(slots.recycle(&x, &y), recycled)?;
        slots.last(&y)
    }

    fn logits(&mut self, last: Tensor) -> Result<(Vec<f32>, Vec<RowStats>), ModelError> {
        let mut logits = numbers(&self.shared.head.forward(&last)?)?;
        if let Some(joined) = &self.joined {
            logits.extend(numbers(&joined.forward(&last)?)?);
        }
        Ok((logits, Vec::new()))
    }

    fn drop_from(&mut self, len: usize) -> Result<(), ModelError> {
        self.cache.truncate(len);
        let before = self.proposed.joined().len();
        if self.proposed.truncate(len) < before { self.join() } else { Ok(()) }
    }

    fn draft_vocab(&self) -> &[TokenId] {
        self.proposed.tokens()
    }

    fn context_vocab(&self) -> usize {
        self.shared.whole.as_ref().map_or(0, |(_, room)| *room)
    }

    fn weight_bytes(&self) -> u64 {
        let fuse = self.parts.fuse.as_ref().map_or(0, |fuse| fuse.matrix.bytes());
        fuse + self.parts.project.bytes() + self.parts.block.bytes()
    }

    fn kv_bytes_per_slot(&self) -> u64 {
        self.cache.position_bytes()
    }

    fn fork(&self) -> Result<Self, ModelError> {
        Ok(Self {
            shared: Arc::clone(&self.shared),
            parts: self.parts.clone(),
            shape: self.shape,
            rope: self.rope.clone(),
            cache: self.cache.copy()?,
            proposed: self.proposed.clone(),
            joined: self.joined.clone(),
        })
    }
}
