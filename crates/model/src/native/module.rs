//! Draft modules on the native kernels: modules of a target's files or of their own, and EAGLE-3 heads, as their plans say.
//!
//! In files of their own, matrices become codes of 4 bits, of EAGLE-3 heads 8, unless the target's are exact: that changes
//! only which tokens are proposed, never which are accepted. With the built-in module 4 bits cost no acceptance (2.46 tokens
//! per round at k = 4 with 8-bit blocks as with these), and a draft after a pass of the target, which has to fetch the module
//! from memory again, takes a quarter less time. Invariant: a slot's bits do not depend on the slots that run with it.

use std::sync::Arc;

use super::cache::{AngleTable, KvCache, KvHeads, KvShape};
use super::draft_head::{DraftHead, Head};
use super::head;
use super::layer::{BlockShape, Layer, Next, Scratch};
use super::llama::Weights;
use super::mixer::Memories;
use super::module_entry::EntryMemory;
use super::module_target::ModuleTarget;
use super::module_weights::ModuleWeights;
use super::pass::Pass;
use super::transpose::untranspose;
use crate::draft_tokens::DraftTokens;
use crate::files::TensorSource;
use crate::module_core::{ModuleBackend, ModuleCore, Slots};
use crate::plan::DraftPlan;
use crate::{ModelError, RowStats};
use draftscope_kernels::{Acts, LANES, Norm, Operand, PROMPT_ROWS};
use draftscope_protocol::Recycle;

/// A draft module on the native kernels.
pub(crate) type NativeModule = ModuleCore<OnKernels>;

/// Memory of a module's passes.
#[derive(Debug)]
pub(super) struct ModuleMemory {
    pub(super) target: Arc<Weights>,
    pub(super) shape: BlockShape,
    pub(super) cache: KvCache,
    pub(super) angles: AngleTable,
    pub(super) scratch: Scratch,
    pub(super) entry: EntryMemory,
}

impl ModuleMemory {
    /// Memory with an empty cache of so many positions, and angles for so many more.
    pub(super) fn new(
        target: &ModuleTarget,
        (plan, shape, layers): (&DraftPlan, BlockShape, &[Layer]),
        (positions, more): (usize, usize),
    ) -> Self {
        let widths = layers.iter().filter_map(|layer| layer.mixer.latent_width());
        let latents = (widths.clone().count(), widths.max().unwrap_or(0));
        let heads = KvHeads { count: shape.kv_heads, width: shape.head_dim };
        let kv = KvShape { heads: vec![heads; layers.len() - latents.0].into(), ctx_len: positions, latents };
        Self {
            target: Arc::clone(&target.weights),
            shape,
            cache: KvCache::new(kv),
            angles: AngleTable::new(&plan.angles.rope, plan.angles.width, positions + more),
            scratch: Scratch::default(),
            entry: EntryMemory::default(),
        }
    }

    /// The same with a copy of the cache.
    pub(super) fn fork(&self) -> Self {
        Self {
            target: Arc::clone(&self.target),
            shape: self.shape,
            cache: self.cache.fork(),
            angles: self.angles.clone(),
            scratch: Scratch::default(),
            entry: EntryMemory::default(),
        }
    }
}

/// The backend of a module.
#[derive(Debug)]
pub(crate) struct OnKernels {
    head: DraftHead,
    memory: ModuleMemory,
    acts: Acts,
    last: Vec<[f32; LANES]>, // the last slot's normed state
}

impl NativeModule {
    /// Reads the module of this plan, whose tensors are in `source`, with an empty cache.
    ///
    /// # Errors
    /// When a tensor is missing, misshapen or damaged, or of a size that the kernels do not run.
    pub(crate) fn load(
        target: &ModuleTarget,
        (source, plan): (&dyn TensorSource, &DraftPlan),
        (head, tokens, head_bytes): Head,
    ) -> Result<Self, ModelError> {
        let (weights, shape) = ModuleWeights::load(target, source, plan)?;
        let memory = ModuleMemory::new(target, (plan, shape, &weights.layers), (target.ctx_len, 1));
        let kv = memory.cache.shape();
        let bytes = (weights.bytes() + head_bytes) as u64;
        let facts = plan.facts(tokens, (kv.ctx_len, bytes, kv.bytes_per_position()));
        Self::new(OnKernels { head, memory, acts: Acts::default(), last: Vec::new() }, weights, facts)
    }

    /// Name of the storage of most of its weights.
    pub(crate) fn dtype(&self) -> &'static str {
        self.weights.dtype()
    }
}

impl OnKernels {
    /// Runs one pass at the end of the cache; `out`, the normed states, is `[m][d / 16]`. The states before the last norm stay
    /// in the scratch memory. Returns whether all were finite.
    fn pass(&mut self, weights: &ModuleWeights, slots: &Slots<'_>, out: &mut [[f32; LANES]]) -> bool {
        let Self { memory: ModuleMemory { target, shape, cache, angles, scratch, entry }, head, acts, .. } = self;
        let (m, tiles) = (slots.tokens.len(), shape.d_model / LANES);
        let (tables, base) = (std::slice::from_ref(&*angles), cache.len());
        let pass = Pass { cpu: &target.cpu, shape, tables, base, at: slots.at, m, tree: None, next: Next::Else };
        for (token, row) in slots.tokens.iter().zip(out.chunks_exact_mut(tiles)) {
            match &weights.embedding {
                Some(table) => table.row(token.index(), row.as_flattened_mut()),
                None => target.embed(*token, row.as_flattened_mut()),
            }
        }
        if slots.zeroed {
            out[..tiles].fill([0.0; LANES]);
        }
        let mut finite = weights.enter(pass, (slots, out), (scratch, entry));
        let mut memories = Memories::new(cache, std::iter::empty());
        for (index, layer) in weights.layers.iter().enumerate() {
            let next = weights.layers.get(index + 1).map_or(Next::Head(head.matrix()), Next::Block);
            finite &= layer.forward(Pass { next, ..pass }, memories.next(&layer.mixer), scratch);
        }
        acts.shape(m, 0, Operand::default());
        let (x, weight) = (&scratch.x, &weights.final_norm);
        finite & Norm { x, weight, eps: shape.eps, out: acts, kept: out }.run_on(target.cpu.isa)
    }
}

impl ModuleBackend for OnKernels {
    const NAME: &'static str = "the draft module";
    const MAX_SLOTS: usize = PROMPT_ROWS;
    type Weights = ModuleWeights;
    type Last = ();

    fn run(&mut self, weights: &ModuleWeights, slots: Slots<'_>, recycled: &mut [f32]) -> Result<(), ModelError> {
        self.memory.target.check(slots.tokens)?;
        let (m, states) = (slots.tokens.len(), recycled.as_chunks_mut::<LANES>().0);
        let position = self.memory.cache.len();
        if !self.pass(weights, &slots, states) {
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
        Ok(head::of_state(&self.memory.target.cpu, self.head.matrix(), &self.last, &mut self.acts))
    }

    fn truncate(&mut self, len: usize) {
        self.memory.cache.set_len(len);
    }

    fn set_tokens(&mut self, tokens: &DraftTokens) -> Result<(), ModelError> {
        self.head.set_tokens(tokens);
        Ok(())
    }

    fn fork(&self) -> Result<Self, ModelError> {
        Ok(Self { head: self.head.clone(), memory: self.memory.fork(), acts: Acts::default(), last: Vec::new() })
    }
}
