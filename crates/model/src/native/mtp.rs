//! A draft module of DeepSeek-V3 shape on the native backend, sharing a target's embedding and head.
//!
//! Its head is the target's, trimmed to the rows of the draft vocabulary. Unless requested otherwise, matrices and head
//! are stored as 4-bit blocks: that changes only which tokens are proposed, never which are accepted. With the built-in
//! module it costs no acceptance (2.46 tokens per round at k = 4 with 8-bit blocks as with these), and a draft after a
//! pass of the target, which has to fetch the module from memory again, takes a quarter less time. Invariant: as in the
//! target, a slot's bits do not depend on the slots that run with it.

use half::bf16;

use super::draft_head::DraftHead;
use super::layer::{BlockShape, Layer, Next, NormWeight};
use super::llama::NativeLlama;
use super::matrix::{Bits, Cpu, Matrix, Part, RowOrder};
use super::mixer::Memories;
use super::pass::Pass;
use crate::ModelError;
use crate::draft_tokens::DraftTokens;
use crate::module_core::{ModuleCore, ModuleFacts, NormWeights, Reads, Slots};
use crate::native::{
    module::{KernelModule, ModuleMemory, OnKernels},
    transpose::transpose,
};
use crate::nn::Fuse;
use crate::plan::Angles;
use draftscope_kernels::{Acts, Encoding, LANES, Norm, Onto, Operand};
use draftscope_protocol::MtpSpec;

/// How a module's matrices are stored in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MtpStorage {
    /// Blocks of 32 with integer codes, and activations of 8 bits: fastest. Codes of an MTP module have 4 bits, those
    /// of an EAGLE-3 head 8.
    #[default]
    Blocks,
    /// bfloat16 with `f32` activations, as the module was trained, and the target's own head.
    Bf16,
}

impl MtpStorage {
    /// Packs rows of `k` numbers, with so many bits per code in blocks.
    pub(crate) fn pack(self, cpu: &Cpu, k: usize, rows: &[f32], bits: Bits) -> Matrix {
        match self {
            Self::Blocks => Matrix::quantise(cpu, k, rows, bits),
            Self::Bf16 => {
                let bytes: Vec<u8> = rows.iter().flat_map(|&x| bf16::from_f32(x).to_le_bytes()).collect();
                let part =
                    Part { encoding: Encoding::Bf16, rows: rows.len() / k, bytes: &bytes, order: RowOrder::Stored };
                Matrix::pack(cpu, k, &[part])
            }
        }
    }
}

/// A module's own weights; copies share the matrices.
#[derive(Clone, Debug)]
pub(crate) struct MtpWeights {
    pub(crate) embedding_norm: NormWeight,
    pub(crate) hidden_norm: NormWeight,
    /// Further states of the target that it reads, if any.
    pub(crate) fuse: Option<Fuse<Matrix, NormWeight>>,
    pub(crate) from_embedding: Matrix, // [d, d], left half of eh_proj
    pub(crate) from_hidden: Matrix,    // [d, d], right half
    pub(crate) layer: Layer,
    pub(crate) final_norm: NormWeight,
}

impl MtpWeights {
    pub(crate) fn bytes(&self) -> usize {
        let fuse = self.fuse.as_ref().map_or(0, |fuse| fuse.matrix.bytes());
        let norms = [&self.embedding_norm, &self.hidden_norm, &self.final_norm];
        let norms: usize = norms.iter().map(|norm| size_of_val(norm.as_slice())).sum();
        fuse + self.from_embedding.bytes() + self.from_hidden.bytes() + self.layer.bytes() + norms
    }
}

impl NormWeights for MtpWeights {
    fn one_plus(&self) -> Result<Self, ModelError> {
        let mut weights = self.clone();
        weights.layer.shift_norms(1.0);
        let norms = [&mut weights.embedding_norm, &mut weights.hidden_norm, &mut weights.final_norm];
        norms.into_iter().flatten().flatten().for_each(|weight| *weight += 1.0);
        Ok(weights)
    }
}

/// The computation of an MTP module, and the memory of its passes.
#[derive(Debug)]
pub(crate) struct MtpModule {
    head: DraftHead,
    /// `None`: the target's.
    embedding: Option<Matrix>,
    acts: [Acts; 2],
    rows: Vec<[f32; LANES]>,
}

impl Clone for MtpModule {
    fn clone(&self) -> Self {
        Self { head: self.head.clone(), embedding: self.embedding.clone(), acts: Default::default(), rows: Vec::new() }
    }
}

/// An MTP module on the native kernels.
pub(crate) type NativeMtp = ModuleCore<OnKernels<MtpModule>>;

impl NativeMtp {
    /// Name of the storage of most of its weights.
    pub(crate) fn dtype(&self) -> &'static str {
        self.weights.layer.feed.down().dtype()
    }
}

impl MtpModule {
    /// A module with an empty cache, from its parts; `bytes` counts its own weights. The table of angles is one
    /// position longer than the cache.
    pub(crate) fn module(
        target: &NativeLlama,
        (weights, bytes): (MtpWeights, usize),
        (head, tokens, embedding): (DraftHead, DraftTokens, Option<Matrix>),
        (shape, angles, spec): (BlockShape, &Angles, MtpSpec),
    ) -> Result<NativeMtp, ModelError> {
        let latents = weights.layer.mixer.latent_width().map_or((0, 0), |width| (1, width));
        let memory = ModuleMemory::new(target, (shape, latents), angles);
        let kv = memory.cache.shape();
        let blocks = weights.fuse.as_ref().map_or(&[][..], Fuse::blocks);
        let facts = ModuleFacts {
            spec,
            reads: Reads::State(blocks.to_vec()),
            widths: [(1 + blocks.len()) * shape.d_model, shape.d_model],
            ctx_len: kv.ctx_len,
            tokens,
            weight_bytes: bytes as u64,
            kv_bytes_per_slot: kv.bytes_per_position(),
        };
        let module = Self { head, embedding, acts: Default::default(), rows: Vec::new() };
        ModuleCore::new(OnKernels::new(module, memory), weights, facts)
    }
}

impl KernelModule for MtpModule {
    const NAME: &'static str = "the MTP module";
    type Weights = MtpWeights;

    fn pass(
        &mut self,
        memory: &mut ModuleMemory,
        weights: &MtpWeights,
        slots: Slots<'_>,
        out: &mut [[f32; LANES]],
    ) -> bool {
        let Slots { tokens, at, zeroed, .. } = slots;
        let (m, hidden) = (tokens.len(), slots.hidden.as_chunks::<LANES>().0);
        let ModuleMemory { target, shape, cache, angles, scratch } = memory;
        let (cpu, next) = (&target.cpu, Next::Head(self.head.matrix()));
        let tables = std::slice::from_ref(&*angles);
        let pass = Pass { cpu, shape, tables, base: cache.len(), at, m, tree: None, next };
        let tiles = shape.d_model / LANES;
        let [embedded, handed] = &mut self.acts;
        self.rows.resize(tiles * m, [0.0; LANES]);
        // 1. Norms of embedding and hidden state, [m, d] each
        for (token, row) in tokens.iter().zip(out.chunks_exact_mut(tiles)) {
            match &self.embedding {
                Some(table) => table.row(token.index(), row.as_flattened_mut()),
                None => target.embed(*token, row.as_flattened_mut()),
            }
        }
        if zeroed {
            out[..tiles].fill([0.0; LANES]);
        }
        transpose(out, m, &mut self.rows);
        // the left half of the projection multiplies what comes first
        let [of_embedding, of_hidden] = slots.in_order(&weights.from_embedding, &weights.from_hidden);
        let operand = of_embedding.operand();
        let mut finite = pass.norm(&self.rows, &weights.embedding_norm, operand, embedded);
        match &weights.fuse {
            Some(fuse) if hidden.len() > m * tiles => finite &= fuse.forward(pass, hidden, handed, &mut self.rows),
            _ => transpose(hidden, m, &mut self.rows),
        }
        finite &= pass.norm(&self.rows, &weights.hidden_norm, operand, handed);
        // 2. z = eh_proj [embedding ; hidden]: [m, 2 d] -> [d / 16][m]
        scratch.x.resize(tiles * m, [0.0; LANES]);
        pass.product(of_embedding, embedded, Onto::Nothing, &mut scratch.x);
        pass.product(of_hidden, handed, Onto::Present, &mut scratch.x);
        // 3. Block and final norm
        finite &= weights.layer.enter(pass, scratch);
        finite &=
            weights.layer.forward(pass, Memories::new(cache, std::iter::empty()).next(&weights.layer.mixer), scratch);
        embedded.shape(m, 0, Operand::default());
        let (x, weight) = (&scratch.x, &weights.final_norm);
        finite & Norm { x, weight, eps: shape.eps, out: embedded, kept: out }.run_on(cpu.isa)
    }

    fn head(&self) -> &Matrix {
        self.head.matrix()
    }

    fn set_tokens(&mut self, tokens: &DraftTokens) {
        self.head.set_tokens(tokens);
    }
}
