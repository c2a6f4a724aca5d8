//! Qwen3.5 (3.6 and 3.8 alike), with experts and without, and Qwen3-Next, matrices on candle or on the native kernels:
//! layers of Gated DeltaNet between layers of gated attention, zero-centred norms, partly rotated heads, and a draft
//! module of its own.
//!
//! Invariant: between calls every KV cache contains exactly `len` positions and every state is that after `len` tokens,
//! also after an error. `history` knows which earlier states can be returned to. A state follows one path, so there are
//! no trees and no early exits.

mod block;
mod config;
mod experts;
mod family;
mod load;
mod module;
mod names;
mod plan;
mod reader;

use std::sync::Arc;

use crate::families::qwen35::block::{Layer, Memory, Mixer, run_heads};
use crate::families::qwen35::reader::Reader;
use crate::native::delta_state::{DeltaLayers, DeltaState, DeltaWeights};
use crate::native::history::{History, KEPT_ROWS, States, Step};
use crate::native::recurrent::{DeltaRows, Keep, TAIL_ROWS};
use crate::nn::{
    BlockPass, Embedding, KvCache, Output, PREFILL_ROWS, PairOrder, PassRows, Rope, States as Hidden, Streams, Tensors,
    Trunk, numbers_of,
};
use crate::options::Rollback;
use crate::{Checkpoint, ExpertsMet, Forward, LogitRows, Model, ModelError, ModelSpec, Rows, Tap};
use draftscope_protocol::TokenId;

pub use self::config::{Hybrid, Qwen35Config};
pub use self::experts::ExpertShape;
pub use self::family::{QWEN3_NEXT, QWEN35, QWEN35_MOE, Qwen35Family};

/// Weights of a target; shared by its forks and by its draft module.
pub struct Qwen35Weights {
    trunk: Arc<Trunk<Layer>>,
    hybrid: Hybrid,
    rope: Rope, // one position more than the context, for modules that stand one further
}

impl Qwen35Weights {
    fn load(
        tensors: Tensors<'_>,
        hybrid: &Hybrid,
        ctx_len: usize,
        progress: &mut dyn FnMut(&str, u64, u64),
    ) -> Result<Self, ModelError> {
        let tensors = &tensors.centred();
        let (c, device) = (tensors.config, tensors.device);
        let reader = Reader { tensors, hybrid };
        let trunk = Arc::new(Trunk::read(tensors, |layer| reader.layer(layer), progress)?);
        let rope = Rope::new(&c.rope, hybrid.rotary, ctx_len + 1, (PairOrder::HalfSplit, device))?;
        Ok(Self { trunk, hybrid: hybrid.clone(), rope })
    }

    /// The linear layers' weights except their projections, in order.
    fn deltas(&self) -> Vec<&DeltaWeights> {
        self.trunk
            .layers
            .iter()
            .filter_map(|layer| match &layer.mixer {
                Mixer::Delta(delta) => Some(delta.weights.as_ref()),
                Mixer::Attention(_) => None,
            })
            .collect()
    }
}

/// Output of some rows.
struct Passed {
    hidden: Hidden,
    /// States before the last row, if they were not requested after each.
    before_last: States,
}

/// A target: shared weights, its own caches and states.
pub struct Qwen35 {
    weights: Arc<Qwen35Weights>,
    spec: ModelSpec,
    memories: Vec<Memory>, // one per layer
    history: History,
    len: usize,
    tap: Tap,
}

impl Qwen35 {
    /// Empty caches over these weights.
    ///
    /// # Errors
    /// When memory is short.
    pub fn new(weights: Arc<Qwen35Weights>, mut spec: ModelSpec, rollback: Rollback) -> Result<Self, ModelError> {
        let (c, delta) = (&weights.trunk.config, &weights.hybrid.delta);
        let fresh = Arc::new(DeltaState::new(delta));
        let memory = |layer: &Layer| match layer.mixer {
            Mixer::Attention(_) => {
                let cache = KvCache::new(c.kv_heads, spec.ctx_len, c.head_dim, weights.trunk.caching());
                cache.map(|cache| Memory::Kv(cache.on(weights.trunk.kernels())))
            }
            Mixer::Delta(_) => Ok(Memory::State(Arc::clone(&fresh))),
        };
        let memories = weights.trunk.layers.iter().map(memory).collect::<Result<Vec<_>, _>>()?;
        let linear = weights.hybrid.linear_layers() as u64;
        spec.info.weight_bytes = weights.trunk.bytes();
        let experts = weights.trunk.experts_met().unwrap_or_default();
        (spec.info.expert_bytes, spec.info.expert_row_bytes) = (experts.bytes, experts.row_bytes);
        let of_position = |memory: &Memory| match memory {
            Memory::Kv(cache) => cache.position_bytes(),
            Memory::State(_) => 0,
        };
        spec.info.kv_bytes_per_token = memories.iter().map(of_position).sum();
        spec.info.state_bytes = weights.hybrid.state_bytes();
        spec.info.snapshot_bytes = match rollback {
            Rollback::Snapshots => spec.info.state_bytes,
            Rollback::Replay => linear * delta.input_bytes(),
        };
        let history = History::new(rollback, states(&memories));
        Ok(Self { weights, spec, memories, history, len: 0, tap: Tap::default() })
    }

    /// Runs some rows through all layers: states after the final norm, and those of the tap.
    fn hidden(&mut self, tokens: &[TokenId], keep: Keep) -> Result<Passed, ModelError> {
        let weights = Arc::clone(&self.weights);
        let places = self.tap.places(weights.trunk.layers.len())?;
        let place = PassRows::chain(self.len, tokens.len());
        let pass = BlockPass::new(&weights.rope, &place);
        let mut x = weights.trunk.embed(tokens)?;
        let mut streams = Streams::new(&places);
        streams.keep(0, &x);
        let mut rows: Vec<DeltaRows> = Vec::new();
        for (index, (layer, memory)) in weights.trunk.layers.iter().zip(&mut self.memories).enumerate() {
            let (out, did) = layer.forward(&x, pass, (memory, keep))?;
            x = out;
            rows.extend(did);
            streams.keep(index + 1, &x);
        }
        if keep != Keep::Ends {
            self.remember(tokens.len(), &rows);
        }
        let before_last = rows.iter().filter_map(|rows| rows.states.iter().rev().nth(1).map(Arc::clone)).collect();
        self.len += tokens.len();
        let normed = weights.trunk.normed(&x)?;
        let tapped = streams.tapped(&normed)?;
        Ok(Passed { hidden: Hidden { normed, tapped }, before_last })
    }

    /// Stores what is needed to return to each of these rows.
    fn remember(&mut self, rows: usize, layers: &[DeltaRows]) {
        for row in 0..rows {
            self.history.push(match self.history.rollback() {
                Rollback::Snapshots => {
                    Step::States(layers.iter().filter_map(|l| l.states.get(row).map(Arc::clone)).collect())
                }
                Rollback::Replay => Step::Inputs(layers.iter().filter_map(|l| l.inputs.get(row).cloned()).collect()),
            });
        }
    }

    fn run(&mut self, tokens: &[TokenId], rows: LogitRows) -> Result<Forward, ModelError> {
        let few = tokens.len() < KEPT_ROWS;
        let is_prompt = rows == LogitRows::Last && !few;
        let first = self.len;
        let weights = Arc::clone(&self.weights);
        self.history.begin(first, &states(&self.memories), tokens.len(), layers(&weights.deltas()));
        let (mut hidden, mut last): (_, Option<Passed>) = (Vec::new(), None);
        let keep = match self.history.rollback() {
            _ if !few => Keep::Ends,
            Rollback::Snapshots => Keep::Each,
            Rollback::Replay => Keep::Inputs,
        };
        let widest = if is_prompt { PREFILL_ROWS } else { tokens.len().max(1) };
        // the next prompt of a conversation often differs from this one where the answer begins
        let tail = if is_prompt && tokens.len() > 2 * TAIL_ROWS { tokens.len() - TAIL_ROWS } else { 0 };
        for block in tokens[..tail].chunks(widest).chain(tokens[tail..].chunks(widest)) {
            if tail > 0 && self.len == first + tail {
                self.history.mark(self.len, states(&self.memories));
            }
            if let Some(passed) = last.take() {
                hidden.extend(numbers_of([&passed.hidden.tapped])?.concat());
            }
            last = Some(self.hidden(block, keep)?);
        }
        let Passed { hidden: states_of_last, before_last } =
            last.ok_or_else(|| ModelError::Unsupported("a pass needs at least one token".into()))?;
        if is_prompt {
            self.history.mark(self.len - 1, before_last);
        }
        if !few {
            self.history.restart(self.len, &states(&self.memories));
        }
        let drafted: Vec<_> = tokens.iter().skip(1).map(|token| token.0).enumerate().collect();
        let Output { hidden: of_last, logits, stats } = weights.trunk.output(&states_of_last, rows, &drafted)?;
        hidden.extend(of_last);
        Ok(Forward { logits, hidden: Rows::new(hidden, states_of_last.tapped.dim(1)?), stats })
    }

    /// Sets caches and states to `len` positions.
    fn restore(&mut self, len: usize, states: States) {
        let mut states = states.into_iter();
        for memory in &mut self.memories {
            match memory {
                Memory::Kv(cache) => cache.truncate(len),
                Memory::State(state) => {
                    if let Some(kept) = states.next() {
                        *state = kept;
                    }
                }
            }
        }
        self.len = len;
    }
}

fn layers<'a>(weights: &'a [&'a DeltaWeights]) -> DeltaLayers<'a> {
    DeltaLayers { weights, run: &run_heads }
}

/// The states of all linear layers.
fn states(memories: &[Memory]) -> States {
    let state = |memory: &Memory| match memory {
        Memory::State(state) => Some(Arc::clone(state)),
        Memory::Kv(_) => None,
    };
    memories.iter().filter_map(state).collect()
}

impl Model for Qwen35 {
    fn spec(&self) -> &ModelSpec {
        &self.spec
    }

    fn len(&self) -> usize {
        self.len
    }

    fn forward(&mut self, tokens: &[TokenId], rows: LogitRows) -> Result<Forward, ModelError> {
        let (before, ctx_len) = (self.len, self.spec.ctx_len);
        if before + tokens.len() > ctx_len {
            return Err(ModelError::ContextFull { needed: before + tokens.len(), ctx_len });
        }
        let kept = (states(&self.memories), self.history.clone());
        self.run(tokens, rows).inspect_err(|_| {
            self.restore(before, kept.0);
            self.history = kept.1;
        })
    }

    fn refuses_trees(&self) -> Option<&'static str> {
        Some("a recurrent state follows one path, so this target verifies no draft trees")
    }

    fn set_tap(&mut self, tap: &Tap) -> Result<(), ModelError> {
        tap.places(self.weights.trunk.layers.len())?;
        self.tap = tap.clone();
        Ok(())
    }

    fn attend_in_batches(&mut self, batched: bool) -> bool {
        let changed = self.memories.iter_mut().map(|memory| match memory {
            Memory::Kv(cache) => cache.set_batched(batched),
            Memory::State(_) => false,
        });
        changed.fold(false, |any, changed| any | changed)
    }

    fn experts_met(&self) -> Option<ExpertsMet> {
        self.weights.trunk.experts_met()
    }

    fn rewindable(&self, len: usize) -> usize {
        if len >= self.len { self.len } else { self.history.rewindable(len) }
    }

    fn checkpoint(&self) -> Result<Checkpoint, ModelError> {
        Ok(Checkpoint { len: self.len })
    }

    fn truncate(&mut self, len: usize, since: &Checkpoint) -> Result<(), ModelError> {
        let gone = ModelError::Rewind { len, have: self.len, since: since.len };
        if len > self.len || len < since.len {
            return Err(gone);
        }
        let states = match len {
            _ if len == self.len => states(&self.memories),
            0 => {
                let fresh = Arc::new(DeltaState::new(&self.weights.hybrid.delta));
                std::iter::repeat_n(fresh, self.weights.hybrid.linear_layers()).collect()
            }
            _ => self.history.at(len, layers(&self.weights.deltas())).ok_or(gone)?,
        };
        self.history.cut(len, since.len, &states);
        self.restore(len, states);
        Ok(())
    }

    fn fork(&self) -> Result<Box<dyn Model>, ModelError> {
        let copy = |memory: &Memory| match memory {
            Memory::Kv(cache) => cache.copy().map(Memory::Kv),
            Memory::State(state) => Ok(Memory::State(Arc::clone(state))),
        };
        Ok(Box::new(Self {
            weights: Arc::clone(&self.weights),
            spec: self.spec.clone(),
            memories: self.memories.iter().map(copy).collect::<Result<_, ModelError>>()?,
            history: self.history.clone(),
            len: self.len,
            tap: self.tap.clone(),
        }))
    }
}
