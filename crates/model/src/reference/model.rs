//! A target on the reference: passes, trees and rollback.
//!
//! Invariant: between calls every cache contains exactly `len` positions and every state is that after `len` tokens, also
//! after an error; after an early pass, caches of layers that did not run contain fewer, until it is rolled back.

use std::ops::Range;
use std::sync::Arc;

use super::delta::run_heads;
use super::layer::Memory;
use super::pass::Pass;
use super::reader::unsupported;
use super::weights::Weights;
use crate::native::delta_state::DeltaLayers;
use crate::native::recurrent::{Call, Recurrent};
use crate::nn::{Embedding, KvCache, Output, PREFILL_ROWS, PassRows, States, Streams, TreeRows, numbers_of};
use crate::options::Rollback;
use crate::{Checkpoint, ExpertsMet, Forward, LogitRows, Model, ModelError, ModelSpec, Rows, Tap, check_path};
use draftscope_protocol::TokenId;

/// A target: shared weights, its own caches and recurrent states.
pub(crate) struct ReferenceModel {
    weights: Arc<Weights>,
    spec: ModelSpec,
    /// Of the layers that have one, in order.
    caches: Vec<KvCache>,
    recurrent: Recurrent,
    len: usize,
    tap: Tap,
}

/// What a call runs: so many layers, over the rows of a tree if there is one.
#[derive(Clone, Copy)]
struct Extent<'a> {
    layers: usize,
    tree: Option<&'a TreeRows>,
}

impl ReferenceModel {
    /// Empty caches over these weights.
    ///
    /// # Errors
    /// When memory is short.
    pub(crate) fn new(weights: Arc<Weights>, mut spec: ModelSpec, rollback: Rollback) -> Result<Self, ModelError> {
        let own = weights.trunk.layers.iter().filter_map(|layer| layer.cache(spec.ctx_len, weights.trunk.caching()));
        let caches = own.collect::<Result<Vec<_>, _>>()?;
        let shapes = weights.trunk.layers.iter().filter_map(|layer| layer.delta().map(|delta| delta.shape));
        let recurrent = Recurrent::new(shapes.collect(), rollback);
        let (info, experts) = (&mut spec.info, weights.trunk.experts_met().unwrap_or_default());
        info.weight_bytes = weights.bytes();
        info.kv_bytes_per_token = caches.iter().map(KvCache::position_bytes).sum();
        info.unfolded_kv_bytes_per_token = weights.trunk.form.kv_bytes() as u64 * weights.unfolded;
        (info.expert_bytes, info.expert_row_bytes) = (experts.bytes, experts.row_bytes);
        (info.state_bytes, info.snapshot_bytes) = (recurrent.state_bytes(), recurrent.kept_bytes());
        Ok(Self { weights, spec, caches, recurrent, len: 0, tap: Tap::default() })
    }

    fn layers(&self) -> usize {
        self.weights.trunk.layers.len()
    }

    fn all(&self) -> Extent<'static> {
        Extent { layers: self.layers(), tree: None }
    }

    /// Runs rows through the layers: states after the last norm, and those of the tap.
    fn pass(&mut self, tokens: &[TokenId], extent: Extent<'_>, call: Call) -> Result<States, ModelError> {
        let weights = Arc::clone(&self.weights);
        let rows = match extent.tree {
            None => PassRows::chain(self.len, tokens.len()),
            Some(tree) => PassRows::tree(self.len, tree),
        };
        let all = extent.layers == self.layers();
        let places = if all { self.tap.places(extent.layers)? } else { vec![None] };
        let mut x = weights.trunk.embed(tokens)?;
        let mut streams = Streams::new(&places);
        streams.keep(0, &x);
        let inputs = weights.layer_inputs(tokens, &x)?;
        let mut states = self.recurrent.layers(call);
        for (index, layer) in weights.trunk.layers.iter().enumerate().take(extent.layers) {
            let cache = weights.caches[index].map(|at| self.caches.get_mut(at).map(Memory::Cache));
            let memory = cache.unwrap_or_else(|| states.next().map(Memory::State));
            let memory = memory.ok_or_else(|| unsupported("a layer without memory"))?;
            let slice = weights.slice(inputs.as_ref(), index)?;
            let pass = Pass { rope: weights.rope(layer), rows: &rows, at: self.len };
            x = layer.forward(&x, slice.as_ref(), pass, memory)?;
            streams.keep(index + 1, &x);
        }
        drop(states);
        self.len += tokens.len();
        let normed = weights.trunk.normed(&x)?;
        let tapped = streams.tapped(&normed)?;
        Ok(States { normed, tapped })
    }

    fn run(
        &mut self,
        tokens: &[TokenId],
        rows: LogitRows,
        (extent, call): (Extent<'_>, Call),
    ) -> Result<Forward, ModelError> {
        let widest = if rows == LogitRows::Last { PREFILL_ROWS } else { tokens.len().max(1) };
        let (mut hidden, mut last): (_, Option<States>) = (Vec::new(), None);
        for range in call.passes(widest) {
            if let Some(States { tapped, .. }) = last.take() {
                hidden.extend(numbers_of([&tapped])?.concat());
            }
            last = Some(self.pass(&tokens[Range::clone(&range)], extent, call)?);
            self.recurrent.end_pass(call, &range);
        }
        let states = last.ok_or_else(|| ModelError::Unsupported("a pass needs at least one token".into()))?;
        let parents =
            extent.tree.map_or_else(|| (0..tokens.len()).collect(), |tree| tree.parents().collect::<Vec<_>>());
        let drafted: Vec<_> = parents.into_iter().zip(tokens.iter().skip(1).map(|token| token.0)).collect();
        let Output { hidden: of_last, logits, stats } = self.weights.trunk.output(&states, rows, &drafted)?;
        hidden.extend(of_last);
        Ok(Forward { logits, hidden: Rows::new(hidden, states.tapped.dim(1)?), stats })
    }

    /// Runs at the end of the caches, which after an error are as before.
    fn start(&mut self, tokens: &[TokenId], rows: LogitRows, extent: Extent<'_>) -> Result<Forward, ModelError> {
        let (base, ctx_len) = (self.len, self.spec.ctx_len);
        if base + tokens.len() > ctx_len {
            return Err(ModelError::ContextFull { needed: base + tokens.len(), ctx_len });
        }
        let (weights, before) = (Arc::clone(&self.weights), self.recurrent.clone());
        let call = with_deltas(&weights, |deltas| self.recurrent.begin(base, (tokens.len(), rows), deltas));
        self.run(tokens, rows, (extent, call)).inspect_err(|_| {
            self.cut(base);
            self.recurrent = before;
        })
    }

    fn cut(&mut self, len: usize) {
        self.caches.iter_mut().for_each(|cache| cache.truncate(len));
        self.len = len;
    }
}

/// Calls `work` with the recurrent layers.
fn with_deltas<R>(weights: &Weights, work: impl FnOnce(DeltaLayers<'_>) -> R) -> R {
    let deltas: Vec<_> = weights.trunk.layers.iter().filter_map(|layer| layer.delta()).collect();
    work(DeltaLayers { weights: &deltas, run: &run_heads })
}

impl Model for ReferenceModel {
    fn spec(&self) -> &ModelSpec {
        &self.spec
    }

    fn len(&self) -> usize {
        self.len
    }

    fn forward(&mut self, tokens: &[TokenId], rows: LogitRows) -> Result<Forward, ModelError> {
        self.start(tokens, rows, self.all())
    }

    fn forward_early(&mut self, tokens: &[TokenId], layers: usize) -> Result<Forward, ModelError> {
        if !self.recurrent.is_empty() {
            let why = "a model with recurrent states cannot stop after the first layers";
            return Err(ModelError::Unsupported(why.into()));
        }
        self.start(tokens, LogitRows::Last, Extent { layers, ..self.all() })
    }

    fn refuses_trees(&self) -> Option<&'static str> {
        let why = "a recurrent state follows one path, so this target verifies no draft trees";
        (!self.recurrent.is_empty()).then_some(why)
    }

    fn forward_tree(&mut self, tokens: &[TokenId], parents: &[usize], rows: LogitRows) -> Result<Forward, ModelError> {
        if let Some(why) = self.refuses_trees() {
            return Err(ModelError::Unsupported(why.into()));
        }
        if parents.len() != tokens.len() {
            return Err(ModelError::Unsupported("a tree with more rows than tokens, or fewer".into()));
        }
        let tree = TreeRows::new(parents)?;
        let rows = if rows == LogitRows::Last { LogitRows::All } else { rows };
        self.start(tokens, rows, Extent { tree: Some(&tree), ..self.all() })
    }

    fn retain(&mut self, base: usize, path: &[usize]) -> Result<(), ModelError> {
        check_path(self.len, base, path)?;
        if !self.recurrent.is_empty() {
            return Err(ModelError::Rewind { len: base, have: self.len, since: base });
        }
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
        self.weights.trunk.experts_met()
    }

    fn rewindable(&self, len: usize) -> usize {
        self.recurrent.rewindable(len, self.len)
    }

    fn checkpoint(&self) -> Result<Checkpoint, ModelError> {
        Ok(Checkpoint { len: self.len })
    }

    fn truncate(&mut self, len: usize, since: &Checkpoint) -> Result<(), ModelError> {
        let (have, since) = (self.len, since.len);
        let gone = ModelError::Rewind { len, have, since };
        if len > have || len < since {
            return Err(gone);
        }
        let weights = Arc::clone(&self.weights);
        with_deltas(&weights, |deltas| self.recurrent.cut((len, have), since, deltas)).ok_or(gone)?;
        self.cut(len);
        Ok(())
    }

    fn fork(&self) -> Result<Box<dyn Model>, ModelError> {
        let caches = self.caches.iter().map(KvCache::copy).collect::<Result<_, _>>()?;
        let (weights, spec, tap) = (Arc::clone(&self.weights), self.spec.clone(), self.tap.clone());
        Ok(Box::new(Self { weights, spec, caches, recurrent: self.recurrent.clone(), len: self.len, tap }))
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{fixture, target};
    use super::*;
    use crate::options::WeightType;

    #[test]
    fn a_path_that_is_none_changes_nothing_and_one_that_fails_leaves_what_stood_before_it() {
        let mut model = target(&fixture("deepseek"), WeightType::F32).unwrap();
        model.forward(&[TokenId(5); 3], LogitRows::All).unwrap();
        model.forward_tree(&[TokenId(7); 3], &[0, 0, 0], LogitRows::All).unwrap();
        for (base, path) in [(7, &[][..]), (3, &[0, 3]), (3, &[2, 1]), (9, &[0])] {
            assert!(matches!(model.retain(base, path), Err(ModelError::Rewind { .. })), "{base} {path:?}");
            assert!(model.len() == 6 && model.caches.iter().all(|cache| cache.len() == 6), "{base} {path:?}");
        }
        // the second layer's cache has no such rows
        let trunk = &model.weights.trunk;
        let mut short = trunk.layers[1].cache(4, trunk.caching()).unwrap().unwrap();
        let (keys, values) = model.caches[1].prefix(4).unwrap();
        short.append(&keys, &values).unwrap();
        model.caches[1] = short;
        model.retain(3, &[0, 2]).unwrap_err();
        assert!(model.len() == 3 && model.caches.iter().all(|cache| cache.len() == 3));
    }
}
