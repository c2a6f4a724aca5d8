//! A module of DeepSeek-V3's shape on candle.

use std::sync::Arc;

use candle_core::Tensor;
use draftscope_protocol::{MtpSpec, TokenId};

use super::block::MtpBlock;
use super::shape::MtpShape;
use super::slots::{copy_to, numbers};
use crate::draft_tokens::DraftTokens;
use crate::module_core::{ModuleBackend, ModuleCore, ModuleFacts, NormWeights, Reads, Slots};
use crate::nn::{BlockPass, Embedding, KvCache, Linear, PREFILL_ROWS, PassRows, RmsNorm, Rope, numbers_of, trimmed};
use crate::{ModelError, RowStats};

/// A module's own weights, norms as stored.
pub struct MtpParts {
    /// Norm of the embedding.
    pub embedding_norm: RmsNorm,
    /// Norm of the hidden state.
    pub hidden_norm: RmsNorm,
    /// `[d, 2d]`
    pub project: Linear,
    /// The block between projection and last norm.
    pub block: Box<dyn MtpBlock>,
    /// The last norm.
    pub norm: RmsNorm,
}

impl NormWeights for MtpParts {
    fn one_plus(&self) -> Result<Self, ModelError> {
        Ok(Self {
            embedding_norm: self.embedding_norm.shifted(1.0)?,
            hidden_norm: self.hidden_norm.shifted(1.0)?,
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
    /// The full head, if tokens of the text may join, and how many may.
    pub whole: Option<(Linear, usize)>,
}

/// The cache of a module on candle, and what it shares.
pub(crate) struct MtpOnCandle {
    shared: Arc<MtpShared>,
    rope: Rope, // one position more than slots
    cache: KvCache,
    /// Head rows of the joined tokens; `None` if none joined.
    joined: Option<Linear>, // [n, d]
}

/// An MTP module on candle.
pub(crate) type CandleMtp = ModuleCore<MtpOnCandle>;

impl MtpOnCandle {
    /// A module with an empty cache, from its parts. The table of angles is one position longer than the cache.
    ///
    /// # Errors
    /// If memory is short.
    pub(crate) fn module(
        shared: MtpShared,
        parts: MtpParts,
        spec: MtpSpec,
        (shape, rope): (MtpShape, Rope),
    ) -> Result<CandleMtp, ModelError> {
        let cache = parts.block.cache(&shape, shared.embedding.device())?;
        let norms = parts.embedding_norm.bytes() + parts.hidden_norm.bytes() + parts.norm.bytes();
        let facts = ModuleFacts {
            spec,
            reads: Reads::State(Vec::new()),
            widths: [shape.d_model; 2],
            ctx_len: shape.ctx_len,
            tokens: DraftTokens::new(shared.vocab.clone(), shared.whole.as_ref().map_or(0, |(_, room)| *room)),
            weight_bytes: parts.project.bytes() + parts.block.bytes() + norms,
            kv_bytes_per_slot: cache.position_bytes(),
        };
        ModuleCore::new(Self { shared: Arc::new(shared), rope, cache, joined: None }, parts, facts)
    }
}

impl ModuleBackend for MtpOnCandle {
    const NAME: &'static str = "the MTP module";
    const MAX_SLOTS: usize = PREFILL_ROWS;
    type Weights = MtpParts;
    type Last = Tensor; // [1, d]

    fn run(&mut self, parts: &MtpParts, slots: Slots<'_>, recycled: &mut [f32]) -> Result<Tensor, ModelError> {
        let embedding = self.shared.embedding.as_ref();
        let embedded = parts.embedding_norm.forward(&slots.embed(embedding)?)?;
        let states = slots.states(embedding.device())?;
        let states = parts.hidden_norm.forward(&states)?;
        let z = parts.project.forward(&slots.join(embedded, states)?)?; // [m, 2d] -> [m, d]
        let rows = PassRows::chain(self.cache.len(), slots.tokens.len());
        let pass = BlockPass { at: Some(slots.at), ..BlockPass::new(&self.rope, &rows) };
        let x = parts.block.forward(&z, pass, &mut self.cache)?;
        let y = parts.norm.forward(&x)?; // [m, d]
        copy_to(slots.recycle(&x, &y), recycled)?;
        slots.last(&y)
    }

    fn logits(&mut self, last: Tensor) -> Result<(Vec<f32>, Vec<RowStats>), ModelError> {
        let logits = self.shared.head.forward(&last)?;
        let logits = match &self.joined {
            Some(joined) => numbers_of([&logits, &joined.forward(&last)?])?.concat(),
            None => numbers(&logits)?,
        };
        Ok((logits, Vec::new()))
    }

    fn truncate(&mut self, len: usize) {
        self.cache.truncate(len);
    }

    fn set_tokens(&mut self, tokens: &DraftTokens) -> Result<(), ModelError> {
        self.joined = None;
        if let (Some((whole, _)), false) = (&self.shared.whole, tokens.joined().is_empty()) {
            self.joined = Some(trimmed(whole, tokens.joined(), self.shared.embedding.device())?);
        }
        Ok(())
    }

    fn fork(&self) -> Result<Self, ModelError> {
        let (shared, rope, cache) = (Arc::clone(&self.shared), self.rope.clone(), self.cache.copy()?);
        Ok(Self { shared, rope, cache, joined: None })
    }
}
