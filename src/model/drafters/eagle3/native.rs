//! An EAGLE-3 head on the native backend.
//!
//! Matrices are kept as 8-bit blocks and the output head as 4-bit ones unless
//! asked otherwise: that changes which tokens are proposed, never which are accepted. Invariant: a slot's
//! bits do not depend on the slots that run with it.

use std::sync::Arc;

use crate::model::drafters::eagle3::CheckedHead;
use crate::model::drafters::eagle3::native_weights::{EagleWeights, Packer};
use crate::model::native::cache::{AngleTable, KvCache, KvShape};
use crate::model::native::head;
use crate::model::native::kernel::{Acts, BLOCK, LANES, MAX_ROWS, Onto};
use crate::model::native::layer::{BlockShape, Next, Pass, Scratch};
use crate::model::native::llama::{NativeLlama, Weights};
use crate::model::native::load::check_shape;
use crate::model::native::matrix::{Bits, Matrix};
use crate::model::native::mtp::MtpStorage;
use crate::model::native::normer::StatesNorm;
use crate::model::native::normer::{Normer, load};
use crate::model::native::transpose::{transpose, untranspose};
use crate::model::{DraftModule, Forward, ModelError, Rows, Tap};
use crate::protocol::{ConcatOrder, Feed, MtpSpec, Recycle, SlotZero, TokenId};

/// A head with its cache.
#[derive(Debug)]
pub struct NativeEagle {
    target: Arc<Weights>,
    stored: Arc<EagleWeights>,
    /// Norms as the conventions in force mean them.
    weights: Arc<EagleWeights>,
    spec: MtpSpec,
    held: Option<usize>,
    shape: BlockShape,
    states_norm: StatesNorm,
    norm_before_residual: bool,
    head: Arc<Matrix>, // [draft vocabulary, d]
    vocab: Vec<TokenId>,
    tap: Tap,
    cache: KvCache,
    angles: AngleTable,
    scratch: Scratch,
    acts: Acts,
    /// Rows and tiles on their way: normed halves, states.
    rows: [Vec<[f32; LANES]>; 3],
}

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
        let stored = Arc::new(packer.weights(&shape)?);
        let head = packer.plan.matrix("lm_head", [plan.vocab.len(), c.d_model])?;
        let head = packer.pack(c.d_model, &head, Bits::Four);
        let ctx_len = target.cache.shape().ctx_len;
        let kv = KvShape { layers: 1, kv_heads: shape.kv_heads, head_dim: shape.head_dim, ctx_len };
        Ok(Self {
            weights: Arc::clone(&stored),
            stored,
            spec: plan.config.spec(),
            held: None,
            shape,
            states_norm: plan.config.states_norm,
            norm_before_residual: plan.config.norm_before_residual,
            head: Arc::new(head),
            vocab: plan.vocab.clone(),
            tap: plan.tap.clone(),
            cache: KvCache::new(kv),
            angles: AngleTable::new(&c.rope, shape.head_dim, ctx_len + 1),
            scratch: Scratch::default(),
            acts: Acts::default(),
            rows: Default::default(),
            target: shared,
        })
    }

    /// Bytes that the head's own weights take.
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

    /// Runs one pass at the end of the cache; `out`, the normed states, is `[m][d / 16]`. The states before
    /// the last norm are left in the scratch.
    fn pass(
        &mut self,
        tokens: &[TokenId],
        hidden: &[[f32; LANES]],
        out: &mut [[f32; LANES]],
    ) -> Result<(), ModelError> {
        let (base, m, at) = (self.cache.len(), tokens.len(), self.position());
        let weights = Arc::clone(&self.weights);
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
        if base == 0 && self.spec.slot0 == SlotZero::Zeroed {
            embedded[..tiles].fill([0.0; LANES]);
        }
        finite &= normer.rows(embedded, &weights.embedding_norm);
        normed.resize(tiles * m, [0.0; LANES]);
        finite &= normer.tiles(&self.scratch.x, &weights.hidden_norm, normed);
        if self.norm_before_residual {
            transpose(normed, m, &mut self.scratch.x);
        }
        // 3. the block reads both
        let (first, second) = match self.spec.order {
            ConcatOrder::EmbeddingFirst => (&*embedded, &*normed),
            ConcatOrder::HiddenFirst => (&*normed, &*embedded),
        };
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

    fn run(&mut self, tokens: &[TokenId], hidden: &Rows) -> Result<Forward, ModelError> {
        let d = self.shape.d_model;
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
        let (mut stats, mut logits) = (Vec::new(), Vec::new());
        if let Some(last) = out.chunks_exact(tiles).next_back() {
            logits.resize(self.head.rows(), 0.0);
            head::operand(&self.target.cpu, &self.head, last, &mut self.acts);
            head::logits(&self.target.cpu, &self.head, &self.acts, &mut logits, &mut stats);
        }
        let recycled = if self.spec.recycle == Recycle::PreNorm { residual } else { out };
        let hidden = Rows::new(recycled.into_flattened(), d);
        Ok(Forward { logits: Rows::new(logits, self.head.rows()), hidden, stats })
    }
}

impl DraftModule for NativeEagle {
    fn len(&self) -> usize {
        self.cache.len()
    }

    fn spec(&self) -> MtpSpec {
        self.spec
    }

    fn set_spec(&mut self, spec: &MtpSpec) -> Result<(), ModelError> {
        if spec.feed != Feed::Layers {
            return Err(ModelError::Unsupported("an EAGLE-3 head reads the layers it was made for".into()));
        }
        self.weights = self.stored.meant(spec.norm);
        self.spec = *spec;
        self.truncate(0)
    }

    fn tap(&self) -> Tap {
        self.tap.clone()
    }

    fn hold_position(&mut self, position: Option<usize>) {
        self.held = position;
    }

    fn forward(&mut self, tokens: &[TokenId], hidden: &Rows) -> Result<Forward, ModelError> {
        let base = self.cache.room(tokens.len())?;
        self.target.check(tokens)?;
        let widths = [self.weights.fc.k(), self.shape.d_model];
        if hidden.len() != tokens.len() || !widths.contains(&hidden.width()) {
            return Err(ModelError::Shape {
                name: "hidden states for the EAGLE-3 head".to_owned(),
                got: vec![hidden.len(), hidden.width()],
                expected: vec![tokens.len(), widths[0]],
            });
        }
        self.run(tokens, hidden).inspect_err(|_| self.cache.set_len(base))
    }

    fn truncate(&mut self, len: usize) -> Result<(), ModelError> {
        let have = self.len();
        if len > have {
            return Err(ModelError::Rewind { len, have, since: 0 });
        }
        self.cache.set_len(len);
        Ok(())
    }

    fn draft_vocab(&self) -> &[TokenId] {
        &self.vocab
    }

    fn fork(&self) -> Result<Box<dyn DraftModule>, ModelError> {
        Ok(Box::new(Self {
            target: Arc::clone(&self.target),
            stored: Arc::clone(&self.stored),
            weights: Arc::clone(&self.weights),
            head: Arc::clone(&self.head),
            vocab: self.vocab.clone(),
            tap: self.tap.clone(),
            cache: self.cache.fork(),
            angles: self.angles.clone(),
            scratch: Scratch::default(),
            acts: Acts::default(),
            rows: Default::default(),
            ..*self
        }))
    }
}
