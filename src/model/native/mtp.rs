//! A draft module of DeepSeek-V3 shape on the native backend, sharing a target's embedding and head.
//!
//! Its head is the target's, cut down to the rows of the draft vocabulary. Unless asked otherwise, matrices and head are
//! kept as 4-bit blocks: what changes is only which tokens are proposed, never which are accepted. With the built-in
//! module that costs no acceptance (2.46 tokens per round at k = 4 with 8-bit blocks as with these), and a draft behind a
//! pass of the target, which has to fetch the module from memory again, a quarter less time. Invariant: as in the target,
//! a slot's bits do not depend on the slots that run with it.

use std::sync::Arc;

use super::cache::{AngleTable, KvCache, KvShape};
use super::draft_head::DraftHead;
use super::fuse::Fuse;
use super::head;
use super::kernel::{Acts, LANES, MAX_ROWS, Norm, Onto, Operand};
use super::layer::{BlockShape, Layer, Next, NormWeight, Pass, Scratch};
use super::llama::{NativeLlama, Weights};
use super::matrix::Matrix;
use crate::model::files::source::Source;
use crate::model::native::transpose::{transpose, untranspose};
use crate::model::nn::config::TransformerConfig;
use crate::model::nn::rope::RopeSpec;
use crate::model::{DraftModule, Forward, ModelError, Rows, Tap};
use crate::protocol::{ConcatOrder, Feed, MtpSpec, NormForm, Recycle, SlotZero, TokenId};

/// How a module's matrices are kept in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MtpStorage {
    /// Blocks of 32 with integer codes, and activations of 8 bits: fastest. Codes of an MTP module have 4 bits, those of an
    /// EAGLE-3 head 8.
    #[default]
    Blocks,
    /// bfloat16 with `f32` activations, as the module was trained, and the target's own head.
    Bf16,
}

/// What a module has of its own; copies share the matrices.
#[derive(Clone, Debug)]
pub(in crate::model) struct MtpWeights {
    pub(in crate::model) embedding_norm: NormWeight,
    pub(in crate::model) hidden_norm: NormWeight,
    /// What else of the target is read, where it is.
    pub(in crate::model) fuse: Option<Fuse>,
    pub(in crate::model) from_embedding: Matrix, // [d, d], left half of eh_proj
    pub(in crate::model) from_hidden: Matrix,    // [d, d], right half
    pub(in crate::model) layer: Layer,
    pub(in crate::model) final_norm: NormWeight,
}

impl MtpWeights {
    fn bytes(&self) -> usize {
        let fuse = self.fuse.as_ref().map_or(0, Fuse::bytes);
        fuse + self.from_embedding.bytes() + self.from_hidden.bytes() + self.layer.bytes()
    }

    /// As they run when their norms mean this.
    fn meant(self: &Arc<Self>, form: NormForm) -> Arc<Self> {
        if form == NormForm::Weight {
            return Arc::clone(self);
        }
        let mut meant = Self::clone(self);
        let head_norms = meant.layer.head_norms.iter_mut().flatten();
        let norms = [
            &mut meant.embedding_norm,
            &mut meant.hidden_norm,
            &mut meant.final_norm,
            &mut meant.layer.attn_norm,
            &mut meant.layer.ffn_norm,
        ];
        norms.into_iter().chain(head_norms).flatten().flatten().for_each(|weight| *weight += 1.0);
        Arc::new(meant)
    }
}

/// A module with its cache.
#[derive(Debug)]
pub struct NativeMtp {
    target: Arc<Weights>,
    stored: Arc<MtpWeights>,
    /// Norms as the conventions in force mean them.
    weights: Arc<MtpWeights>,
    spec: MtpSpec,
    held: Option<usize>,
    shape: BlockShape,
    head: DraftHead,
    cache: KvCache,
    angles: AngleTable,
    scratch: Scratch,
    acts: [Acts; 2],
    rows: Vec<[f32; LANES]>,
}

impl NativeMtp {
    /// The module of this index that comes with the target in `source`, whose head it shares.
    ///
    /// # Errors
    /// When a tensor is missing, misshapen or damaged.
    pub fn own(
        source: &Source,
        (config, spec): (&TransformerConfig, MtpSpec),
        target: &NativeLlama,
        index: usize,
    ) -> Result<Self, ModelError> {
        let shared = &target.weights;
        let stored = super::load::module(source, config, (&shared.cpu, index))?;
        Ok(Self::new(target, stored, DraftHead::whole(shared), (shared.shape, &config.rope, spec)))
    }

    /// A module with an empty cache, from its parts. The angles reach one position further than the cache.
    pub(in crate::model) fn new(
        target: &NativeLlama,
        stored: MtpWeights,
        head: DraftHead,
        (shape, rope, spec): (BlockShape, &RopeSpec, MtpSpec),
    ) -> Self {
        let kv = KvShape { layers: 1, kv_heads: shape.kv_heads, head_dim: shape.head_dim, ..target.cache.shape() };
        let stored = Arc::new(stored);
        Self {
            weights: stored.meant(spec.norm),
            stored,
            spec,
            held: None,
            shape,
            head,
            cache: KvCache::new(kv),
            angles: AngleTable::new(rope, shape.head_dim, kv.ctx_len + 1),
            scratch: Scratch::default(),
            acts: Default::default(),
            rows: Vec::new(),
            target: Arc::clone(&target.weights),
        }
    }

    /// Bytes that the module's matrices take, a head that is shared with the target not counted.
    #[must_use]
    pub fn own_bytes(&self) -> usize {
        self.weights.bytes()
    }

    /// How most of its weights are kept, as people write it.
    #[must_use]
    pub fn dtype(&self) -> &'static str {
        self.weights.layer.down.dtype()
    }

    /// Bytes that the module's own weights take, its copy of head rows included.
    #[must_use]
    pub fn weight_bytes(&self) -> usize {
        self.weights.bytes() + self.head.bytes()
    }

    /// Bytes of cache per slot.
    #[must_use]
    pub fn kv_bytes_per_token(&self) -> u64 {
        self.cache.shape().bytes_per_position()
    }

    /// Rotary position of the first slot of a pass.
    fn position(&self) -> usize {
        self.held.unwrap_or(self.cache.len()) + self.spec.ahead()
    }

    /// Runs one pass at the end of the cache; `hidden` is `[m][width / 16]`, `out`, the normed states, `[m][d / 16]`. The
    /// states before the last norm are left in the scratch.
    fn pass(
        &mut self,
        tokens: &[TokenId],
        hidden: &[[f32; LANES]],
        out: &mut [[f32; LANES]],
    ) -> Result<(), ModelError> {
        let (base, m, at) = (self.cache.len(), tokens.len(), self.position());
        let (cpu, shape, angles, next) = (&self.target.cpu, &self.shape, &self.angles, Next::Head(self.head.matrix()));
        let pass = Pass { cpu, shape, angles, base, at, m, tree: None, next };
        let tiles = self.shape.d_model / LANES;
        let [embedded, handed] = &mut self.acts;
        self.rows.resize(tiles * m, [0.0; LANES]);
        // 1. Norms of embedding and hidden state, [m, d] each
        for (token, row) in tokens.iter().zip(out.chunks_exact_mut(tiles)) {
            self.target.embed(*token, row.as_flattened_mut());
        }
        if base == 0 && self.spec.slot0 == SlotZero::Zeroed {
            out[..tiles].fill([0.0; LANES]);
        }
        transpose(out, m, &mut self.rows);
        let (of_embedding, of_hidden) = match self.spec.order {
            ConcatOrder::EmbeddingFirst => (&self.weights.from_embedding, &self.weights.from_hidden),
            ConcatOrder::HiddenFirst => (&self.weights.from_hidden, &self.weights.from_embedding),
        };
        let operand = of_embedding.operand();
        let mut finite = pass.norm(&self.rows, &self.weights.embedding_norm, operand, embedded);
        match &self.weights.fuse {
            Some(fuse) if hidden.len() > m * tiles => finite &= fuse.forward(pass, hidden, handed, &mut self.rows),
            _ => transpose(hidden, m, &mut self.rows),
        }
        finite &= pass.norm(&self.rows, &self.weights.hidden_norm, operand, handed);
        // 2. z = eh_proj [embedding ; hidden]: [m, 2 d] -> [d / 16][m]
        self.scratch.x.resize(tiles * m, [0.0; LANES]);
        pass.product(of_embedding, embedded, Onto::Nothing, &mut self.scratch.x);
        pass.product(of_hidden, handed, Onto::Present, &mut self.scratch.x);
        // 3. Block and final norm
        finite &= self.weights.layer.enter(pass, &mut self.scratch);
        finite &= self.weights.layer.forward(pass, self.cache.layer(0), &mut self.scratch);
        embedded.shape(m, 0, Operand::default());
        let (x, weight) = (&self.scratch.x, &self.weights.final_norm);
        finite &= pass.cpu.isa.run(Norm { x, weight, eps: self.shape.eps, out: embedded, kept: out });
        if !finite {
            return Err(ModelError::NotFinite { position: base });
        }
        self.cache.set_len(base + m);
        Ok(())
    }

    fn drop_from(&mut self, len: usize) {
        self.cache.set_len(len);
        self.head.truncate(len);
    }

    fn run(&mut self, tokens: &[TokenId], hidden: &Rows) -> Result<Forward, ModelError> {
        let d = self.shape.d_model;
        self.head.read(self.cache.len(), tokens);
        let (tiles, given) = (d / LANES, hidden.width() / LANES);
        let mut out = vec![[0.0; LANES]; tokens.len() * tiles];
        let mut residual = Vec::new();
        // slots that stand at one position run one by one
        let together = if self.held.is_some() { 1 } else { MAX_ROWS };
        let parts = tokens.chunks(together).zip(hidden.as_slice().as_chunks().0.chunks(together * given));
        for ((tokens, hidden), out) in parts.zip(out.chunks_mut(together * tiles)) {
            self.pass(tokens, hidden, out)?;
            if self.spec.recycle == Recycle::PreNorm {
                let before = residual.len();
                residual.resize(before + out.len(), [0.0; LANES]);
                untranspose(&self.scratch.x, tokens.len(), &mut residual[before..]);
            }
        }
        let mut stats = Vec::new();
        let mut logits = Vec::new();
        if let Some(last) = out.chunks_exact(tiles).next_back() {
            let (head, acts) = (self.head.matrix(), &mut self.acts[0]);
            logits.resize(head.rows(), 0.0);
            head::operand(&self.target.cpu, head, last, acts);
            head::logits(&self.target.cpu, head, acts, &mut logits, &mut stats);
        }
        let recycled = if self.spec.recycle == Recycle::PreNorm { residual } else { out };
        let hidden = Rows::new(recycled.into_flattened(), d);
        Ok(Forward { logits: Rows::new(logits, self.head.tokens().len()), hidden, stats })
    }
}

impl DraftModule for NativeMtp {
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
        self.weights = self.stored.meant(spec.norm);
        self.spec = *spec;
        self.truncate(0)
    }

    fn tap(&self) -> Tap {
        let own = Tap::fed(self.spec.feed);
        self.weights.fuse.as_ref().map_or_else(|| own.clone(), |fuse| fuse.tap(&own))
    }

    fn hold_position(&mut self, position: Option<usize>) {
        self.held = position;
    }

    fn forward(&mut self, tokens: &[TokenId], hidden: &Rows) -> Result<Forward, ModelError> {
        let base = self.cache.room(tokens.len())?;
        self.target.check(tokens)?;
        let widths = [self.tap().states().len() * self.shape.d_model, self.shape.d_model];
        if hidden.len() != tokens.len() || !widths.contains(&hidden.width()) {
            return Err(ModelError::Shape {
                name: "hidden states for the draft module".to_owned(),
                got: vec![hidden.len(), hidden.width()],
                expected: vec![tokens.len(), widths[0]],
            });
        }
        self.run(tokens, hidden).inspect_err(|_| self.drop_from(base))
    }

    fn truncate(&mut self, len: usize) -> Result<(), ModelError> {
        let have = self.len();
        if len > have {
            return Err(ModelError::Rewind { len, have, since: 0 });
        }
        self.drop_from(len);
        Ok(())
    }

    fn draft_vocab(&self) -> &[TokenId] {
        self.head.tokens()
    }

    fn fork(&self) -> Result<Box<dyn DraftModule>, ModelError> {
        Ok(Box::new(Self {
            target: Arc::clone(&self.target),
            stored: Arc::clone(&self.stored),
            weights: Arc::clone(&self.weights),
            spec: self.spec,
            held: self.held,
            shape: self.shape,
            head: self.head.clone(),
            cache: self.cache.fork(),
            angles: self.angles.clone(),
            scratch: Scratch::default(),
            acts: Default::default(),
            rows: Vec::new(),
        }))
    }
}
