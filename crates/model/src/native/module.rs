//! Common parts of draft modules on the native kernels: a cache, the memory of a pass, and logits of its last slot.

use std::sync::Arc;

use super::cache::{AngleTable, KvCache, KvHeads, KvShape};
use super::head;
use super::layer::{BlockShape, Scratch};
use super::llama::{NativeLlama, Weights};
use super::matrix::Matrix;
use crate::draft_tokens::DraftTokens;
use crate::module_core::{ModuleBackend, NormWeights, Slots};
use crate::native::transpose::untranspose;
use crate::plan::Angles;
use crate::{ModelError, RowStats};
use draftscope_kernels::{Acts, LANES, PROMPT_ROWS};
use draftscope_protocol::Recycle;

/// The computation of one kind of module.
pub(crate) trait KernelModule: Clone {
    /// Its name, for messages.
    const NAME: &'static str;

    /// The module's weights, those of norms among them.
    type Weights: NormWeights;

    /// Runs one pass at the end of the cache; `out`, the normed states, is `[m][d / 16]`. The states before the last
    /// norm stay in the scratch memory. Returns whether all were finite.
    fn pass(
        &mut self,
        memory: &mut ModuleMemory,
        weights: &Self::Weights,
        slots: Slots<'_>,
        out: &mut [[f32; LANES]],
    ) -> bool;

    /// The output head, `[draft vocabulary, d]`.
    fn head(&self) -> &Matrix;

    /// As [`ModuleBackend::set_tokens`].
    fn set_tokens(&mut self, _tokens: &DraftTokens) {}
}

/// Resources of a module.
#[derive(Debug)]
pub(crate) struct ModuleMemory {
    pub(crate) target: Arc<Weights>,
    pub(crate) shape: BlockShape,
    pub(crate) cache: KvCache,
    pub(crate) angles: AngleTable, // one position more than slots
    pub(crate) scratch: Scratch,
}

impl ModuleMemory {
    /// Memory for slots with an empty cache of one layer, as long as the target's. `latents`: the layers of latent attention
    /// and the width of what they cache; then there are none of keys and values.
    pub(crate) fn new(target: &NativeLlama, (shape, latents): (BlockShape, (usize, usize)), angles: &Angles) -> Self {
        let (layers, ctx_len) = (1 - latents.0, target.cache.shape().ctx_len);
        let heads = vec![KvHeads { count: shape.kv_heads, width: shape.head_dim }; layers].into();
        let kv = KvShape { heads, ctx_len, latents };
        Self {
            target: Arc::clone(&target.weights),
            shape,
            cache: KvCache::new(kv),
            angles: AngleTable::new(&angles.rope, angles.width, ctx_len + 1),
            scratch: Scratch::default(),
        }
    }
}

/// A module on the native kernels.
#[derive(Debug)]
pub(crate) struct OnKernels<M> {
    pub(crate) module: M,
    pub(crate) memory: ModuleMemory,
    acts: Acts,
    last: Vec<[f32; LANES]>, // the last slot's normed state
}

impl<M> OnKernels<M> {
    /// A module with this memory.
    pub(crate) fn new(module: M, memory: ModuleMemory) -> Self {
        Self { module, memory, acts: Acts::default(), last: Vec::new() }
    }
}

impl<M: KernelModule> ModuleBackend for OnKernels<M> {
    const NAME: &'static str = M::NAME;
    const MAX_SLOTS: usize = PROMPT_ROWS;
    type Weights = M::Weights;
    type Last = ();

    fn run(&mut self, weights: &M::Weights, slots: Slots<'_>, recycled: &mut [f32]) -> Result<(), ModelError> {
        self.memory.target.check(slots.tokens)?;
        let (m, states) = (slots.tokens.len(), recycled.as_chunks_mut::<LANES>().0);
        let position = self.memory.cache.len();
        if !self.module.pass(&mut self.memory, weights, slots, states) {
            return Err(ModelError::NotFinite { position });
        }
        self.memory.cache.set_len(position + m);
        self.last.clear();
        self.last.extend_from_slice(&states[states.len() / m * (m - 1)..]);
        if slots.spec.recycle == Recycle::PreNorm {
            untranspose(&self.memory.scratch.x, m, states);
        }
        Ok(())
    }

    fn logits(&mut self, (): ()) -> Result<(Vec<f32>, Vec<RowStats>), ModelError> {
        Ok(head::of_state(&self.memory.target.cpu, self.module.head(), &self.last, &mut self.acts))
    }

    fn truncate(&mut self, len: usize) {
        self.memory.cache.set_len(len);
    }

    fn set_tokens(&mut self, tokens: &DraftTokens) -> Result<(), ModelError> {
        self.module.set_tokens(tokens);
        Ok(())
    }

    fn fork(&self) -> Result<Self, ModelError> {
        let ModuleMemory { target, shape, cache, angles, .. } = &self.memory;
        let (target, cache, angles) = (Arc::clone(target), cache.fork(), angles.clone());
        let memory = ModuleMemory { target, shape: *shape, cache, angles, scratch: Scratch::default() };
        Ok(Self::new(self.module.clone(), memory))
    }
}
