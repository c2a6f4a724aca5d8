//! An EAGLE-3 head on the native backend.
//!
//! Matrices are stored as 8-bit blocks and the output head as 4-bit ones unless requested otherwise: that changes which
//! tokens are proposed, never which are accepted. Invariant: a slot's bits do not depend on the slots that run with it.

use std::sync::Arc;

use crate::ModelError;
use crate::drafters::eagle3::{
    CheckedHead,
    native_weights::{EagleWeights, Packer},
};
use crate::module_core::{ModuleCore, Slots};
use crate::native::layer::{BlockShape, Next};
use crate::native::llama::NativeLlama;
use crate::native::load::check_shape;
use crate::native::matrix::{Bits, Matrix};
use crate::native::mixer::LayerMemory;
use crate::native::module::{KernelModule, ModuleMemory, OnKernels};
use crate::native::mtp::MtpStorage;
use crate::native::normer::{Normer, load};
use crate::native::pass::Pass;
use crate::native::transpose::transpose;
use crate::nn::StatesNorm;
use crate::plan::Angles;
use draftscope_kernels::{Acts, BLOCK, LANES, Onto};

/// What a head computes with, and the memory of its passes.
#[derive(Debug)]
pub(crate) struct EagleModule {
    states_norm: StatesNorm,
    norm_before_residual: bool,
    head: Arc<Matrix>, // [draft vocabulary, d]
    acts: Acts,
    /// Intermediate rows and tiles: normed halves, states.
    rows: [Vec<[f32; LANES]>; 3],
}

impl Clone for EagleModule {
    fn clone(&self) -> Self {
        Self { head: Arc::clone(&self.head), acts: Acts::default(), rows: Default::default(), ..*self }
    }
}

/// An EAGLE-3 head on the native kernels.
pub(crate) type NativeEagle = ModuleCore<OnKernels<EagleModule>>;

impl NativeEagle {
    /// Reads a head for `target`; its matrices are packed as `storage`.
    pub(crate) fn load(plan: &CheckedHead, target: &NativeLlama, storage: MtpStorage) -> Result<Self, ModelError> {
        let c = &plan.config.block;
        let shape = BlockShape::of(c);
        check_shape(&shape)?;
        if !plan.config.target_d_model.is_multiple_of(BLOCK) {
            let what = format!("the native backend runs states of a multiple of {BLOCK} values; use --backend candle");
            return Err(ModelError::Unsupported(what));
        }
        let cpu = &target.weights.cpu;
        let weights = Packer { plan, cpu, storage }.weights(&shape)?;
        let head = plan.matrix("lm_head", [plan.vocab.len(), c.d_model])?;
        let head = storage.pack(cpu, c.d_model, &head, Bits::Four);
        let angles = Angles { rope: c.rope.clone(), width: c.head_dim };
        let memory = ModuleMemory::new(target, (shape, (0, 0)), &angles);
        let kv = memory.cache.shape();
        let facts = plan.facts(kv.ctx_len, (weights.bytes() + head.bytes()) as u64, kv.bytes_per_position());
        let module = EagleModule {
            states_norm: plan.config.states_norm,
            norm_before_residual: plan.config.norm_before_residual,
            head: Arc::new(head),
            acts: Acts::default(),
            rows: Default::default(),
        };
        Self::new(OnKernels::new(module, memory), weights, facts)
    }
}

impl KernelModule for EagleModule {
    const NAME: &'static str = "the EAGLE-3 head";
    type Weights = EagleWeights;

    fn pass(
        &mut self,
        memory: &mut ModuleMemory,
        weights: &EagleWeights,
        slots: Slots<'_>,
        out: &mut [[f32; LANES]],
    ) -> bool {
        let Slots { tokens, at, zeroed, .. } = slots;
        let (m, hidden) = (tokens.len(), slots.hidden.as_chunks::<LANES>().0);
        let ModuleMemory { target, shape, cache, angles, scratch } = memory;
        let tables = std::slice::from_ref(&*angles);
        let pass = Pass { cpu: &target.cpu, shape, tables, base: cache.len(), at, m, tree: None, next: Next::Else };
        let tiles = shape.d_model / LANES;
        let [embedded, normed, states] = &mut self.rows;
        let mut normer = Normer { pass, acts: &mut self.acts, turned: Vec::new() };
        // 1. g, [m, d] -> [d / 16][m]: the fused states of the target, or the output of the slot before
        scratch.x.resize(tiles * m, [0.0; LANES]);
        let mut finite = true;
        if hidden.len() == m * tiles {
            transpose(hidden, m, &mut scratch.x);
        } else {
            finite &= normer.states((hidden, states), &weights.states_norms, self.states_norm);
            load(pass.cpu, states, (m, &weights.fc), normer.acts);
            pass.product(&weights.fc, normer.acts, Onto::Nothing, &mut scratch.x);
        }
        // 2. norms of both halves, [m, d] each
        embedded.resize(tiles * m, [0.0; LANES]);
        for (token, row) in tokens.iter().zip(embedded.chunks_exact_mut(tiles)) {
            match &weights.embedding {
                Some(own) => own.row(token.index(), row.as_flattened_mut()),
                None => target.embed(*token, row.as_flattened_mut()),
            }
        }
        if zeroed {
            embedded[..tiles].fill([0.0; LANES]);
        }
        finite &= normer.rows(embedded, &weights.layer.attn_norm);
        normed.resize(tiles * m, [0.0; LANES]);
        finite &= normer.tiles(&scratch.x, &weights.hidden_norm, normed);
        if self.norm_before_residual {
            transpose(normed, m, &mut scratch.x);
        }
        // 3. the block reads both halves
        let [first, second] = slots.in_order(&*embedded, &*normed);
        states.clear();
        for (first, second) in first.chunks_exact(tiles).zip(second.chunks_exact(tiles)) {
            states.extend_from_slice(first);
            states.extend_from_slice(second);
        }
        load(pass.cpu, states, (m, weights.layer.mixer.first_matrix()), &mut scratch.acts);
        finite &= weights.layer.forward(pass, LayerMemory::Keys(cache.layer(0)), scratch);
        finite & normer.tiles(&scratch.x, &weights.final_norm, out)
    }

    fn head(&self) -> &Matrix {
        &self.head
    }
}
