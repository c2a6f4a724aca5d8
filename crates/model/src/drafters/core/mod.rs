//! MTP modules on candle: DeepSeek-V3 shape around a block of any kind, with a KV cache of its own and the target's
//! embedding and (trimmed) output head.
//!
//! Invariant: every convention that a file does not reveal comes from the [`MtpSpec`]. Files are read in
//! [`mtp`](crate::drafters::mtp) and in the families that bring a module.

mod block;
mod figures;
mod module_file;
mod module_tensors;
mod nextn;
mod on_reference;
mod on_target;
mod own;
mod slots;

use std::sync::Arc;

use candle_core::Tensor;

use crate::draft_tokens::DraftTokens;
use crate::module_core::{ModuleBackend, ModuleCore, ModuleFacts, NormWeights, Reads, Slots};
use crate::nn::{
    BlockPass, Embedding, KvCache, Linear, PREFILL_ROWS, PassRows, RmsNorm, Rope, TransformerConfig, numbers_of,
    trimmed,
};
use crate::options::PassForm;
use crate::{ModelError, RowStats};
use draftscope_protocol::{MtpSpec, TokenId};

pub use self::block::MtpBlock;
pub use self::figures::Figures;
pub(crate) use self::figures::{modules, name_of_own};
pub(crate) use self::module_file::{ModuleFile, draft_vocab};
pub(crate) use self::module_tensors::{ModuleTensors, NamedNumbers};
pub(crate) use self::nextn::nextn_plans;
pub(crate) use self::on_reference::reference_modules;
pub(crate) use self::on_target::on_kernels;
pub(crate) use self::own::OwnTensors;
pub(crate) use self::slots::{copy_to, numbers};

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

/// Shape of a module's cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MtpShape {
    /// Width of the hidden state.
    pub d_model: usize,
    /// Key/value heads.
    pub kv_heads: usize,
    /// Width of a head.
    pub head_dim: usize,
    /// Slots in the cache.
    pub ctx_len: usize,
    /// How passes run.
    pub form: PassForm,
}

impl MtpShape {
    /// For a module whose block has these sizes.
    #[must_use]
    pub fn of(c: &TransformerConfig, ctx_len: usize, form: PassForm) -> Self {
        Self { d_model: c.d_model, kv_heads: c.kv_heads, head_dim: c.head_dim, ctx_len, form }
    }
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
