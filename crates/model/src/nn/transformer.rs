//! A target on candle that is a stack of blocks over KV caches, whatever the blocks are: passes, trees, and rollback.
//!
//! Invariant: between calls every cache contains exactly `len` positions, also after an error; after an early pass,
//! those of blocks that did not run contain fewer, until it is rolled back. The family defines what a block computes,
//! the caller which tokens run. (A recurrent state cannot be cut: Qwen3.5 has passes of its own.)

use std::sync::Arc;

use candle_core::Tensor;

use crate::nn::{Embedding, KvCache, LayerWeights, Output, PassRows, States, Streams, TreeRows, Trunk, numbers_of};
use crate::{Checkpoint, ExpertsMet, Forward, LogitRows, Model, ModelError, ModelSpec, Rows, Tap, check_path};
use draftscope_protocol::{ModelInfo, TokenId};

/// Rows of a prefill that run at once: limits the memory of a pass.
pub(crate) const PREFILL_ROWS: usize = 256;

/// A family's weights, as a target's passes need them; shared by its forks and its drafters.
pub trait Transformer: Send + Sync {
    /// One of its layers.
    type Layer: LayerWeights;

    /// Embedding, layers, last norm and head.
    fn trunk(&self) -> &Trunk<Self::Layer>;

    /// Bytes the matrices take in memory.
    fn bytes(&self) -> u64 {
        self.trunk().bytes()
    }

    /// Bytes of the matrices that a pass reads: all except tables whose rows are looked up.
    fn pass_bytes(&self) -> u64 {
        self.bytes()
    }

    /// Adds the figures that only this family has.
    fn describe(&self, _info: &mut ModelInfo) {}

    /// Empty caches, in the order of the blocks that have one.
    ///
    /// # Errors
    /// When memory is short.
    fn caches(&self, ctx_len: usize) -> Result<Vec<KvCache>, ModelError> {
        let c = &self.trunk().config;
        let cache = |_| {
            let cache = KvCache::new(c.kv_heads, ctx_len, c.head_dim, self.trunk().caching())?;
            Ok(cache.on(self.trunk().kernels()))
        };
        (0..c.layers).map(cache).collect()
    }

    /// Which of the caches the layer of this index reads.
    fn cache_of(&self, layer: usize) -> Option<usize> {
        Some(layer)
    }

    /// What layers read of the tokens besides the residual stream: `[m, …]`, where there is something.
    ///
    /// # Errors
    /// When a tensor operation fails.
    fn layer_inputs(&self, _tokens: &[TokenId], _embedded: &Tensor) -> Result<Option<Tensor>, ModelError> {
        Ok(None)
    }

    /// Runs rows through the layer of this index, `[m, d] -> [m, d]`, and appends them to its cache.
    ///
    /// # Errors
    /// When a tensor operation fails; the cache may hold the rows or not.
    fn forward_layer(
        &self,
        index: usize,
        x: (&Tensor, Option<&Tensor>),
        rows: &PassRows,
        cache: &mut KvCache,
    ) -> Result<Tensor, ModelError>;
}

/// A target: shared weights and its own caches.
pub struct TransformerModel<W> {
    pub(crate) weights: Arc<W>,
    spec: ModelSpec,
    pub(crate) caches: Vec<KvCache>,
    len: usize,
    tap: Tap,
}

impl<W: Transformer> TransformerModel<W> {
    /// Empty caches over these weights.
    ///
    /// # Errors
    /// When memory is short.
    pub fn new(weights: Arc<W>, mut spec: ModelSpec) -> Result<Self, ModelError> {
        let caches = weights.caches(spec.ctx_len)?;
        spec.info.weight_bytes = weights.bytes();
        spec.info.kv_bytes_per_token = caches.iter().map(KvCache::position_bytes).sum();
        let experts = weights.trunk().experts_met().unwrap_or_default();
        (spec.info.expert_bytes, spec.info.expert_row_bytes) = (experts.bytes, experts.row_bytes);
        weights.describe(&mut spec.info);
        Ok(Self { weights, spec, caches, len: 0, tap: Tap::default() })
    }

    fn layers(&self) -> usize {
        self.weights.trunk().config.layers
    }

    fn hidden(&mut self, tokens: &[TokenId], layers: usize, rows: &PassRows) -> Result<States, ModelError> {
        let all = layers == self.layers();
        let places = if all { self.tap.places(layers)? } else { vec![None] };
        let mut x = self.weights.trunk().embed(tokens)?;
        let mut streams = Streams::new(&places);
        streams.keep(0, &x);
        let inputs = self.weights.layer_inputs(tokens, &x)?;
        for index in 0..layers.min(self.layers()) {
            let lacking = || ModelError::Unsupported("a layer without keys and values".into());
            let cache = self.weights.cache_of(index).and_then(|at| self.caches.get_mut(at)).ok_or_else(lacking)?;
            x = self.weights.forward_layer(index, (&x, inputs.as_ref()), rows, cache)?;
            streams.keep(index + 1, &x);
        }
        self.len += tokens.len();
        let normed = self.weights.trunk().normed(&x)?;
        let tapped = streams.tapped(&normed)?;
        Ok(States { normed, tapped })
    }

    fn run(
        &mut self,
        tokens: &[TokenId],
        rows: LogitRows,
        (layers, tree): (usize, Option<&TreeRows>),
    ) -> Result<Forward, ModelError> {
        let widest = if rows == LogitRows::Last { PREFILL_ROWS } else { tokens.len().max(1) };
        let (mut hidden, mut last) = (Vec::new(), None);
        for block in tokens.chunks(widest) {
            let place = match tree {
                None => PassRows::chain(self.len, block.len()),
                Some(tree) => PassRows::tree(self.len, tree),
            };
            if let Some(States { tapped, .. }) = last.take() {
                hidden.extend(numbers_of([&tapped])?.concat());
            }
            last = Some(self.hidden(block, layers, &place)?);
        }
        let states = last.ok_or_else(|| ModelError::Unsupported("a pass needs at least one token".into()))?;
        let parents = tree.map_or_else(|| (0..tokens.len()).collect(), |tree| tree.parents().collect::<Vec<_>>());
        let drafted: Vec<_> = parents.into_iter().zip(tokens.iter().skip(1).map(|token| token.0)).collect();
        let Output { hidden: of_last, logits, stats } = self.weights.trunk().output(&states, rows, &drafted)?;
        hidden.extend(of_last);
        let hidden = Rows::new(hidden, states.tapped.dim(1)?);
        Ok(Forward { logits, hidden, stats })
    }

    /// Runs at the end of the caches, which after an error are as before.
    fn start(
        &mut self,
        tokens: &[TokenId],
        rows: LogitRows,
        (layers, tree): (usize, Option<&TreeRows>),
    ) -> Result<Forward, ModelError> {
        let (base, ctx_len) = (self.len, self.spec.ctx_len);
        if base + tokens.len() > ctx_len {
            return Err(ModelError::ContextFull { needed: base + tokens.len(), ctx_len });
        }
        self.run(tokens, rows, (layers, tree)).inspect_err(|_| self.cut(base))
    }

    fn cut(&mut self, len: usize) {
        self.caches.iter_mut().for_each(|cache| cache.truncate(len));
        self.len = len;
    }
}

impl<W: Transformer + 'static> Model for TransformerModel<W> {
    fn spec(&self) -> &ModelSpec {
        &self.spec
    }

    fn len(&self) -> usize {
        self.len
    }

    fn forward(&mut self, tokens: &[TokenId], rows: LogitRows) -> Result<Forward, ModelError> {
        self.start(tokens, rows, (self.layers(), None))
    }

    fn forward_early(&mut self, tokens: &[TokenId], layers: usize) -> Result<Forward, ModelError> {
        self.start(tokens, LogitRows::Last, (layers, None))
    }

    fn refuses_trees(&self) -> Option<&'static str> {
        None
    }

    fn forward_tree(&mut self, tokens: &[TokenId], parents: &[usize], rows: LogitRows) -> Result<Forward, ModelError> {
        if parents.len() != tokens.len() {
            return Err(ModelError::Unsupported("a tree with more rows than tokens, or fewer".into()));
        }
        let tree = TreeRows::new(parents)?;
        let rows = if rows == LogitRows::Last { LogitRows::All } else { rows };
        self.start(tokens, rows, (self.layers(), Some(&tree)))
    }

    fn retain(&mut self, base: usize, path: &[usize]) -> Result<(), ModelError> {
        check_path(self.len, base, path)?;
        let kept = self.caches.iter_mut().try_for_each(|cache| cache.retain(base, path));
        // where some caches keep the path and others could not, none does
        kept.inspect_err(|_| self.cut(base))?;
        self.len = base + path.len();
        Ok(())
    }

    fn set_tap(&mut self, tap: &Tap) -> Result<(), ModelError> {
        tap.places(self.layers())?;
        self.tap = tap.clone();
        Ok(())
    }

    fn attend_in_batches(&mut self, batched: bool) -> bool {
        let changed = self.caches.iter_mut().map(|cache| cache.set_batched(batched));
        changed.fold(false, |any, changed| any | changed)
    }

    fn pass_bytes(&self) -> u64 {
        self.weights.pass_bytes()
    }

    fn experts_met(&self) -> Option<ExpertsMet> {
        self.weights.trunk().experts_met()
    }

    fn checkpoint(&self) -> Result<Checkpoint, ModelError> {
        Ok(Checkpoint { len: self.len })
    }

    fn truncate(&mut self, len: usize, since: &Checkpoint) -> Result<(), ModelError> {
        if len > self.len || len < since.len {
            return Err(ModelError::Rewind { len, have: self.len, since: since.len });
        }
        self.cut(len);
        Ok(())
    }

    fn fork(&self) -> Result<Box<dyn Model>, ModelError> {
        let caches = self.caches.iter().map(KvCache::copy).collect::<Result<_, _>>()?;
        let (weights, spec, tap) = (Arc::clone(&self.weights), self.spec.clone(), self.tap.clone());
        Ok(Box::new(Self { weights, spec, caches, len: self.len, tap }))
    }
}
