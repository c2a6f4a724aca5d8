//! An EAGLE-3 head on candle: any device, weights in f32.

use std::sync::Arc;

use candle_core::Tensor;

use crate::drafters::{
    core::{copy_to, numbers},
    eagle3::plan::CheckedHead,
};
use crate::files::llama_part;
use crate::module_core::{ModuleBackend, ModuleCore, NormWeights, Slots};
use crate::nn::{
    Activation, Block, BlockPass, Embedding, KvCache, LayerWeights, Linear, OwnEmbedding, PairOrder, PassRows, RmsNorm,
    Rope, SharedTarget, StatesNorm, norm_states,
};
use crate::{ModelError, RowStats};

/// The norms, and the block, which uses the first of them for embeddings.
pub(crate) struct Norms {
    states: Vec<RmsNorm>,
    hidden: RmsNorm,
    last: RmsNorm,
    block: Block,
}

impl NormWeights for Norms {
    fn one_plus(&self) -> Result<Self, ModelError> {
        Ok(Self {
            states: self.states.iter().map(|norm| norm.shifted(1.0)).collect::<Result<_, _>>()?,
            hidden: self.hidden.shifted(1.0)?,
            last: self.last.shifted(1.0)?,
            block: self.block.shifted(1.0)?,
        })
    }
}

/// What copies of a head share.
struct Shared {
    embedding: Arc<dyn Embedding>,
    fc: Linear, // [d, states · target's d]
    fused: usize,
    states_norm: StatesNorm,
    norm_before_residual: bool,
    head: Linear, // [draft vocabulary, d]
    rope: Rope,   // one position more than slots
}

/// The cache of a head on candle, and what it shares.
pub(crate) struct EagleOnCandle {
    shared: Arc<Shared>,
    cache: KvCache,
}

/// An EAGLE-3 head on candle.
pub(crate) type CandleEagle = ModuleCore<EagleOnCandle>;

impl CandleEagle {
    /// Reads a head for a target with this embedding.
    pub(crate) fn load(plan: &CheckedHead, target: Arc<dyn SharedTarget>, ctx_len: usize) -> Result<Self, ModelError> {
        let c = &plan.config.block;
        let (d, device, form) = (c.d_model, target.device().clone(), target.form());
        let linear = |part: &str, out: usize, input: usize| -> Result<Linear, ModelError> {
            Linear::of_numbers(plan.matrix(part, [out, input])?, [out, input], &device)
        };
        let to_norm = |weight: Vec<f32>| RmsNorm::of_numbers(weight, c.norm_eps, &device);
        let norm = |part: &str, width: usize| to_norm(plan.norm(part, width)?);
        let name = |part: &str| format!("layers.0.{}", llama_part(part).unwrap_or(part));
        // the block's own first norm is for embeddings: the head norms both halves before the block
        let block = Block::read(
            c,
            (2 * d, Activation::Silu),
            &|part, out, input| linear(&name(part), out, input),
            &|part, width| norm(&name(part), width),
        )?;
        let stored = Norms {
            states: plan.states_norms()?.into_iter().map(to_norm).collect::<Result<_, _>>()?,
            hidden: norm("layers.0.hidden_norm", d)?,
            last: norm("norm", d)?,
            block,
        };
        let (fc, head) = (linear("fc", d, plan.fused())?, linear("lm_head", plan.vocab.len(), d)?);
        let mut bytes = fc.bytes() + head.bytes() + stored.block.bytes();
        let embedding: Arc<dyn Embedding> = if plan.file.has("embed_tokens.weight") {
            let table = linear("embed_tokens", c.vocab, d)?;
            bytes += table.bytes();
            Arc::new(OwnEmbedding { table, vocab: c.vocab, device: device.clone() })
        } else {
            target as Arc<dyn Embedding>
        };
        let rope = Rope::new(&c.rope, c.head_dim, ctx_len + 1, (PairOrder::HalfSplit, &device))?;
        let cache = KvCache::new(c.kv_heads, ctx_len, c.head_dim, (&device, form))?;
        let shared = Shared {
            fused: plan.fused(),
            states_norm: plan.config.states_norm,
            norm_before_residual: plan.config.norm_before_residual,
            embedding,
            fc,
            head,
            rope,
        };
        let facts = plan.facts(ctx_len, bytes, cache.position_bytes());
        Self::new(EagleOnCandle { shared: Arc::new(shared), cache }, stored, facts)
    }
}

impl ModuleBackend for EagleOnCandle {
    const NAME: &'static str = "the EAGLE-3 head";
    const MAX_SLOTS: usize = usize::MAX;
    type Weights = Norms;
    type Last = Tensor; // [1, d]

    fn run(&mut self, norms: &Norms, slots: Slots<'_>, recycled: &mut [f32]) -> Result<Tensor, ModelError> {
        let shared = self.shared.as_ref();
        let states = slots.states(shared.embedding.device())?;
        // 1. g, [m, d]: the fused states of the target, or the output of the slot before
        let g = match slots.width() == shared.fused {
            true => shared.fc.forward(&norm_states(&states, &norms.states, shared.states_norm)?)?,
            false => states,
        };
        let embedded = norms.block.attn_norm.forward(&slots.embed(shared.embedding.as_ref())?)?;
        let normed = norms.hidden.forward(&g)?;
        let residual = if shared.norm_before_residual { normed.clone() } else { g };
        // 2. the block reads both halves: [m, 2d] -> [m, d]
        let rows = PassRows::chain(self.cache.len(), slots.tokens.len());
        let pass = BlockPass { at: Some(slots.at), ..BlockPass::new(&shared.rope, &rows) };
        let read = slots.join(embedded, normed)?;
        let y = norms.block.forward_read((&residual, &read), pass, &mut self.cache)?;
        // 3. norm
        let normed = norms.last.forward(&y)?;
        copy_to(slots.recycle(&y, &normed), recycled)?;
        slots.last(&normed)
    }

    fn logits(&mut self, last: Tensor) -> Result<(Vec<f32>, Vec<RowStats>), ModelError> {
        Ok((numbers(&self.shared.head.forward(&last)?)?, Vec::new()))
    }

    fn truncate(&mut self, len: usize) {
        self.cache.truncate(len);
    }

    fn fork(&self) -> Result<Self, ModelError> {
        Ok(Self { shared: Arc::clone(&self.shared), cache: self.cache.copy()? })
    }
}
