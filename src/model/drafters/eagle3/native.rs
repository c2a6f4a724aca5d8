//! An EAGLE-3 head on the native backend.
//!
//! Matrices are kept as 8-bit blocks and the output head as 4-bit ones unless
//! asked otherwise: that changes which tokens are proposed, never which are accepted. Invariant: a slot's
//! bits do not depend on the slots that run with it.

use std::sync::Arc;

use crate::model::drafters::eagle3::CheckedHead;
use crate::model::drafters::eagle3::native_weights::{EagleWeights, Packer};
use crate::model::module_core::{ModuleBackend, ModuleCore, Slots};
use crate::model::native::cache::{AngleTable, KvCache, KvShape};
use crate::model::native::head;
use crate::model::native::layer::{BlockShape, Next, Pass, Scratch};
use crate::model::native::llama::{NativeLlama, Weights};
use crate::model::native::load::check_shape;
use crate::model::native::matrix::{Bits, Matrix};
use crate::model::native::mtp::MtpStorage;
use crate::model::native::normer::{Normer, load};
use crate::model::native::transpose::{transpose, untranspose};
use crate::model::nn::fusion::StatesNorm;
use crate::model::{ModelError, RowStats};
use crate::protocol::Recycle;
use draftscope_kernels::{Acts, BLOCK, LANES, MAX_ROWS, Onto};

/// The cache of a head on the native kernels, and what it shares.
#[derive(Debug)]
pub(in crate::model) struct EagleOnKernels {
    target: Arc<Weights>,
    shape: BlockShape,
    states_norm: StatesNorm,
    norm_before_residual: bool,
    head: Arc<Matrix>, // [draft vocabulary, d]
    cache: KvCache,
    angles: AngleTable,
    scratch: Scratch,
    acts: Acts,
    /// Rows and tiles on their way: normed halves, states.
    rows: [Vec<[f32; LANES]>; 3],
    last: Vec<[f32; LANES]>, // the last slot's normed state
}

/// An EAGLE-3 head on the native kernels.
pub(in crate::model) type NativeEagle = ModuleCore<EagleOnKernels>;

impl NativeEagle {
    /// Reads a head for `target`, its matrices kept as `storage`.
    pub(in crate::model) fn load(
        plan: &CheckedHead,
        target: &NativeLlama,
        storage: MtpStorage,
    ) -> Result<Self, ModelError> {
        let c = &plan.config.block;
        let shape = BlockShape {
            d_model: c.d_model,
            heads: c.heads,
            kv_heads: c.kv_heads,
            head_dim: c.head_dim,
            d_ff: c.ffn,
            eps: c.norm_eps,
        };
        check_shape(&shape)?;
        if !plan.config.target_d_model.is_multiple_of(BLOCK) {
            let what = format!("the native backend runs states of a multiple of {BLOCK} values; use --backend candle");
            return Err(ModelError::Unsupported(what));
        }
        let shared = Arc::clone(&target.weights);
        let packer = Packer { plan, cpu: &shared.cpu, storage };
        let weights = packer.weights(&shape)?;
        let head = packer.plan.matrix("lm_head", [plan.vocab.len(), c.d_model])?;
        let head = storage.pack(&shared.cpu, c.d_model, &head, Bits::Four);
        let ctx_len = target.cache.shape().ctx_len;
        let kv = KvShape { layers: 1, kv_heads: shape.kv_heads, head_dim: shape.head_dim, ctx_len };
        let facts = plan.facts(ctx_len, (weights.bytes() + head.bytes()) as u64, kv.bytes_per_position());
        let backend = EagleOnKernels {
            shape,
            states_norm: plan.config.states_norm,
            norm_before_residual: plan.config.norm_before_residual,
            head: Arc::new(head),
            cache: KvCache::new(kv),
            angles: AngleTable::new(&c.rope, shape.head_dim, ctx_len + 1),
            scratch: Scratch::default(),
            acts: Acts::default(),
            rows: Default::default(),
            last: Vec::new(),
            target: shared,
        };
        Self::new(backend, weights, facts)
    }
}

impl EagleOnKernels {
    /// Runs one pass at the end of the cache; `out`, the normed states, is `[m][d / 16]`. The states before the last norm are
    /// left in the scratch.
    fn pass(&mut self, weights: &EagleWeights, slots: Slots<'_>, out: &mut [[f32; LANES]]) -> Result<(), ModelError> {
        let Slots { tokens, at, zeroed, .. } = slots;
        let (base, m, hidden) = (self.cache.len(), tokens.len(), slots.hidden.as_chunks::<LANES>().0);
        let (cpu, shape, angles, next) = (&self.target.cpu, &self.shape, &self.angles, Next::Else);
        let pass = Pass { cpu, shape, angles, base, at, m, tree: None, next };
        let tiles = self.shape.d_model / LANES;
        let [embedded, normed, states] = &mut self.rows;
        let mut normer = Normer { pass, acts: &mut self.acts, turned: Vec::new() };
        // 1. g, [m, d] -> [d / 16][m]: the target's states fused, or what the slot before made
        self.scratch.x.resize(tiles * m, [0.0; LANES]);
        let mut finite = true;
        if hidden.len() == m * tiles {
            transpose(hidden, m, &mut self.scratch.x);
        } else {
            finite &= normer.states((hidden, states), &weights.states_norms, self.states_norm);
            load(pass.cpu, states, (m, &weights.fc), normer.acts);
            pass.product(&weights.fc, normer.acts, Onto::Nothing, &mut self.scratch.x);
        }
        // 2. norms of both halves, [m, d] each
        embedded.resize(tiles * m, [0.0; LANES]);
        for (token, row) in tokens.iter().zip(embedded.chunks_exact_mut(tiles)) {
            match &weights.embedding {
                Some(own) => own.row(token.index(), row.as_flattened_mut()),
                None => self.target.embed(*token, row.as_flattened_mut()),
            }
        }
        if zeroed {
            embedded[..tiles].fill([0.0; LANES]);
        }
        finite &= normer.rows(embedded, &weights.embedding_norm);
        normed.resize(tiles * m, [0.0; LANES]);
        finite &= normer.tiles(&self.scratch.x, &weights.hidden_norm, normed);
        if self.norm_before_residual {
            transpose(normed, m, &mut self.scratch.x);
        }
        // 3. the block reads both
        let [first, second] = slots.in_order(&*embedded, &*normed);
        states.clear();
        for (first, second) in first.chunks_exact(tiles).zip(second.chunks_exact(tiles)) {
            states.extend_from_slice(first);
            states.extend_from_slice(second);
        }
        load(pass.cpu, states, (m, &weights.layer.qkv), &mut self.scratch.acts);
        finite &= weights.layer.forward(pass, self.cache.layer(0), &mut self.scratch);
        finite &= normer.tiles(&self.scratch.x, &weights.final_norm, out);
        if !finite {
            return Err(ModelError::NotFinite { position: base });
        }
        self.cache.set_len(base + m);
        Ok(())
    }
}

impl ModuleBackend for EagleOnKernels {
    const NAME: &'static str = "the EAGLE-3 head";
    const MAX_SLOTS: usize = MAX_ROWS;
    type Weights = EagleWeights;
    type Last = ();

    fn run(&mut self, weights: &EagleWeights, slots: Slots<'_>, recycled: &mut [f32]) -> Result<(), ModelError> {
        self.target.check(slots.tokens)?;
        let (m, states) = (slots.tokens.len(), recycled.as_chunks_mut::<LANES>().0);
        self.pass(weights, slots, states)?;
        self.last.clear();
        self.last.extend_from_slice(&states[states.len() / m * (m - 1)..]);
        if slots.spec.recycle == Recycle::PreNorm {
            untranspose(&self.scratch.x, m, states);
        }
        Ok(())
    }

    fn logits(&mut self, (): ()) -> Result<(Vec<f32>, Vec<RowStats>), ModelError> {
        Ok(head::of_state(&self.target.cpu, &self.head, &self.last, &mut self.acts))
    }

    fn truncate(&mut self, len: usize) {
        self.cache.set_len(len);
    }

    fn fork(&self) -> Result<Self, ModelError> {
        Ok(Self {
            target: Arc::clone(&self.target),
            head: Arc::clone(&self.head),
            cache: self.cache.fork(),
            angles: self.angles.clone(),
            scratch: Scratch::default(),
            acts: Acts::default(),
            rows: Default::default(),
            last: Vec::new(),
            ..*self
        })
    }
}
