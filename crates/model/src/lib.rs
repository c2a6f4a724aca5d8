//! Running transformers over `m` tokens at once, with a cache that can be cut back.
//!
//! The two seams are [`Model`] (a target) and [`DraftModule`] (a draft module that reads the target's hidden states).
//! Rows cross them as plain `f32` memory, not as tensors of a framework: sampling and verification run on the CPU
//! whatever computed the rows, and a backend without a tensor library implements the same traits. Nothing here knows
//! drafts, acceptance or events.
//!
//! Letters in comments: `n` positions cached, `m` rows now, `d` = d_model, `v` = vocabulary.

pub mod block_module;
mod catch_panic;
pub mod draft_tokens;
pub mod drafters;
mod error;
pub mod families;
pub mod files;
mod forward;
#[cfg(feature = "gpu")]
pub mod gpu;
pub mod interfaces;
pub mod load;
pub mod memory;
mod module_core;
pub mod native;
pub mod nn;
pub mod options;
pub mod other_vocab;
pub mod plan;
mod reference;
pub mod row_by_row;
mod rows;
pub mod shared_kv;
mod tap;
pub mod text;
mod thread_pool;

pub use error::ModelError;
pub use forward::{BEST_LOGITS, Best, Forward, LogitRows, RowStats, STRETCH};
pub use rows::{RowPool, Rows};
pub use tap::{State, Tap};

use self::shared_kv::SharedKv;
use draftscope_protocol::{DeviceWork, GpuInfo, KernelTime, ModelInfo, MtpSpec, TokenId};

/// Waits a moment until the GPUs that models used are closed: the end of a process that uses one.
pub fn close_devices() {
    #[cfg(feature = "gpu")]
    draftscope_gpu::wait_until_closed(std::time::Duration::from_secs(2));
}

/// Most rows of a tree.
pub const MAX_TREE_ROWS: usize = 16;

/// Whether these are ascending rows after position `base` of a cache with `have` positions.
fn check_path(have: usize, base: usize, path: &[usize]) -> Result<(), ModelError> {
    if base <= have && path.iter().all(|row| *row < have - base) && path.is_sorted_by(|a, b| a < b) {
        return Ok(());
    }
    Err(ModelError::Rewind { len: base + path.len(), have, since: base })
}

/// Depth of each row below row 0.
///
/// # Errors
/// [`ModelError::Unsupported`] if a parent does not precede its child, or there are too many rows.
pub fn tree_depths(parents: &[usize]) -> Result<Vec<usize>, ModelError> {
    let mut depths: Vec<usize> = Vec::with_capacity(parents.len());
    for (row, parent) in parents.iter().enumerate() {
        let depth = if row == 0 { Some(0) } else { depths.get(*parent).map(|depth| depth + 1) };
        depths
            .push(depth.ok_or_else(|| ModelError::Unsupported("a tree whose rows stand before their parents".into()))?);
    }
    if depths.len() > MAX_TREE_ROWS {
        return Err(ModelError::Unsupported(format!("a tree of more than {MAX_TREE_ROWS} rows")));
    }
    Ok(depths)
}

/// Where a rewind may return to.
///
/// A length suffices: the rows run since can be cut back to any length from here on, by recurrent models too, which
/// keep what that takes until the next pass ([`Model::rewindable`]).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// Positions that were in the cache.
    pub len: usize,
}

/// A target: weights (shared between forks) and one cache.
pub trait Model {
    /// Its description.
    fn spec(&self) -> &ModelSpec;

    /// Positions in the cache (`n`).
    fn len(&self) -> usize;

    /// Whether the cache is empty.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Runs positions `n..n + m` and leaves all of them in the cache.
    ///
    /// # Errors
    /// [`ModelError::ContextFull`] when `n + m` exceeds the cache (which then is unchanged), or what
    /// the backend reports.
    fn forward(&mut self, tokens: &[TokenId], rows: LogitRows) -> Result<Forward, ModelError>;

    /// Runs positions `n..n + m` through the first `layers` blocks only, then the final norm and the head; logits are
    /// for the last row. The positions count as cached and must be truncated before anything else runs: the other
    /// blocks have not seen them.
    ///
    /// # Errors
    /// As [`Model::forward`]; [`ModelError::Unsupported`] from backends that cannot stop early.
    fn forward_early(&mut self, _tokens: &[TokenId], _layers: usize) -> Result<Forward, ModelError> {
        Err(ModelError::Unsupported("this backend cannot stop after the first layers".into()))
    }

    /// Why it cannot verify trees; `None` if it can.
    fn refuses_trees(&self) -> Option<&'static str> {
        Some("this backend verifies no trees")
    }

    /// Runs a tree of at most [`MAX_TREE_ROWS`] rows after the cache, with logits for all of them, as `rows` says
    /// ([`LogitRows::All`] or [`LogitRows::Best`]). Row `i` continues
    /// row `parents[i]`, which precedes it; row 0 continues the cache, whatever its entry. A row sees the cache and its
    /// ancestors, at the positions they would have in a chain. The rows count as cached until [`Model::retain`] cuts
    /// them to one path.
    ///
    /// # Errors
    /// As [`Model::forward`]; [`ModelError::Unsupported`] from backends without trees, and for parents
    /// that are no tree.
    fn forward_tree(
        &mut self,
        _tokens: &[TokenId],
        _parents: &[usize],
        _rows: LogitRows,
    ) -> Result<Forward, ModelError> {
        Err(ModelError::Unsupported("this backend verifies no trees".into()))
    }

    /// Keeps, of the rows after position `base`, those of one path, ascending; the cache then is as if they had run as
    /// a chain.
    ///
    /// # Errors
    /// [`ModelError::Rewind`] when there are no such rows, and nothing is changed; or what the backend reports, and the
    /// first `base` positions are left.
    fn retain(&mut self, base: usize, _path: &[usize]) -> Result<(), ModelError> {
        Err(ModelError::Rewind { len: base, have: self.len(), since: base })
    }

    /// Makes later passes compute attention of all rows at once, or of few rows one by one, as plain decoding does;
    /// returns whether that is a change. False from backends that have no such choice.
    fn attend_in_batches(&mut self, _batched: bool) -> bool {
        false
    }

    /// Lets later passes, those of forks and of modules on the same weights included, run on at most so many threads; returns
    /// how many that are. Their bits do not depend on it. Backends that have no such choice keep all.
    fn limit_threads(&mut self, _most: usize) -> usize {
        self.spec().threads
    }

    /// Makes later passes return these hidden states. Early passes return only the normed state.
    ///
    /// # Errors
    /// [`ModelError::Unsupported`] if it has no such states; the tap then is as before.
    fn set_tap(&mut self, tap: &Tap) -> Result<(), ModelError> {
        if tap.is_default() {
            return Ok(());
        }
        Err(ModelError::Unsupported("this backend returns only the state after the final norm".into()))
    }

    /// Whether it can predict a token; `None` if it can predict every one. A model that drafts with a vocabulary of its own
    /// lacks some of its target's tokens.
    fn writes(&self, _token: TokenId) -> Option<bool> {
        None
    }

    /// Bytes of weights that a pass can read: all except tables whose rows are looked up. Of experts it reads only those
    /// in [`Model::experts_met`].
    fn pass_bytes(&self) -> u64 {
        self.spec().info.weight_bytes
    }

    /// Experts that the last pass ran; `None` if the model has none.
    fn experts_met(&self) -> Option<ExpertsMet> {
        None
    }

    /// What its passes did on a device; `None` if the processor computes.
    fn device_work(&self) -> Option<DeviceWork> {
        None
    }

    /// The GPU that runs it; `None` if the processor computes.
    fn gpu_info(&self) -> Option<GpuInfo> {
        None
    }

    /// Bytes that this device reads from its memory in a second, measured now; `None` if the processor computes.
    ///
    /// # Errors
    /// What the driver reports.
    fn device_read_rate(&self) -> Result<Option<f64>, ModelError> {
        Ok(None)
    }

    /// What the kernels of a pass over `rows` rows take on the device, slowest first; empty where none notes times. The cache
    /// stays as it is.
    ///
    /// # Errors
    /// What the driver reports.
    fn kernel_times(&mut self, rows: usize) -> Result<Vec<KernelTime>, ModelError> {
        let _ = rows;
        Ok(Vec::new())
    }

    /// The keys and values for a drafter without a cache of its own; `None` from families without such drafters.
    ///
    /// # Errors
    /// When its caches cannot be read.
    fn shared_kv(&self) -> Result<Option<SharedKv>, ModelError> {
        Ok(None)
    }

    /// The longest length up to `len` that the cache can be cut back to. Attention alone can be cut
    /// anywhere; a recurrent state only where a copy of it was kept, or to nothing.
    fn rewindable(&self, len: usize) -> usize {
        len.min(self.len())
    }

    /// Remembers the current state for [`Model::truncate`].
    ///
    /// # Errors
    /// When a state copy cannot be made.
    fn checkpoint(&self) -> Result<Checkpoint, ModelError>;

    /// Drops positions `len..`. Requires `since.len <= len <= self.len()`, and a recurrent model that
    /// `len` is [rewindable](Model::rewindable).
    ///
    /// # Errors
    /// [`ModelError::Rewind`] if `len` is outside that range, or its state was not stored.
    fn truncate(&mut self, len: usize, since: &Checkpoint) -> Result<(), ModelError>;

    /// A second model over the same weights with a copy of the cache.
    ///
    /// # Errors
    /// When the cache cannot be allocated.
    fn fork(&self) -> Result<Box<dyn Model>, ModelError>;
}

/// Experts of all layers, and those of them that a pass ran for at least one row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExpertsMet {
    /// Layers with experts.
    pub layers: usize,
    /// Experts of all layers.
    pub count: usize,
    /// Those that ran.
    pub met: usize,
    /// Bytes of all experts.
    pub bytes: u64,
    /// Bytes of those that ran.
    pub bytes_met: u64,
    /// Bytes of those that one row runs.
    pub row_bytes: u64,
}

impl ExpertsMet {
    /// Of a layer with so many experts, which take so many bytes: `met` of them ran, and a row runs `used`.
    #[must_use]
    pub fn of_layer((count, bytes): (usize, u64), met: usize, used: usize) -> Self {
        let one = bytes / count.max(1) as u64;
        Self { layers: 1, count, met, bytes, bytes_met: one * met as u64, row_bytes: one * used as u64 }
    }

    /// Both together.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            layers: self.layers + other.layers,
            count: self.count + other.count,
            met: self.met + other.met,
            bytes: self.bytes + other.bytes,
            bytes_met: self.bytes_met + other.bytes_met,
            row_bytes: self.row_bytes + other.row_bytes,
        }
    }
}

/// Description of a [`Model`], fixed at load.
#[derive(Clone, Debug)]
pub struct ModelSpec {
    /// Name, sizes, file: goes into the trace header.
    pub info: ModelInfo,
    /// Positions of the cache.
    pub ctx_len: usize,
    /// The backend, e.g. `candle`.
    pub backend: &'static str,
    /// The device, e.g. `cpu`.
    pub device: String,
    /// Dtype of the loaded weights, e.g. `f32`.
    pub dtype: String,
    /// Threads that compute.
    pub threads: usize,
}

/// A multi-token-prediction module of DeepSeek-V3 shape with a KV cache of its own.
///
/// Slot `t` reads a hidden state and the embedding of the token that this state predicted:
/// `z = proj [norm_e(E[token]) ; norm_h(hidden)]`, one transformer block, a final norm; its logits,
/// over the draft vocabulary, predict the token after. Source: DeepSeek-V3 report, section 2.2.
pub trait DraftModule {
    /// Slots in the cache.
    fn len(&self) -> usize;

    /// Whether the cache is empty.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The conventions in force.
    fn spec(&self) -> MtpSpec {
        MtpSpec::default()
    }

    /// Switches to other conventions and empties the cache, whose slots were computed under the old ones. Pairing and
    /// an extra slot 0 are the drafter's task.
    ///
    /// # Errors
    /// [`ModelError::Unsupported`] if the module cannot run that way.
    fn set_spec(&mut self, spec: &MtpSpec) -> Result<(), ModelError> {
        if *spec == self.spec() {
            return self.truncate(0);
        }
        Err(ModelError::Unsupported("the conventions of this module cannot be changed".into()))
    }

    /// The target's states that settled slots read.
    fn tap(&self) -> Tap {
        Tap::fed(self.spec().feed)
    }

    /// Whether it attends to the target's KV cache and has none of its own: only the slots of the anchor and of drafts
    /// run, and nothing is kept of them.
    fn shares_target_kv(&self) -> bool {
        false
    }

    /// Attaches what the target [shares](Model::shared_kv), before each draft; as if the slots of all positions but the
    /// last had run.
    ///
    /// # Errors
    /// [`ModelError::Unsupported`] if the target shares nothing, or the target's error.
    fn attach_kv(&mut self, _target: &dyn Model) -> Result<(), ModelError> {
        Ok(())
    }

    /// Announces that the next pass is followed by so many greedy drafts at most, its own included, and which logits are
    /// read of this and later passes: all, or only [the best](LogitRows::Best). A backend may compute drafts ahead; results
    /// do not change.
    fn expect_drafts(&mut self, _count: usize, _logits: LogitRows) {}

    /// As [`Model::device_work`].
    fn device_work(&self) -> Option<DeviceWork> {
        None
    }

    /// Later slots all use this rotary position; `None` restores each slot's own.
    fn hold_position(&mut self, _position: Option<usize>) {}

    /// Runs `m` slots and leaves them in the cache. `hidden` is `[m, d]`, or as wide as the module's
    /// [tap](DraftModule::tap) if that differs; logits are for the last slot only, `[1, draft vocabulary]`; hidden
    /// states `[m, d]` are the module's own output, which replaces the target's from depth 2 on.
    ///
    /// # Errors
    /// As [`Model::forward`].
    fn forward(&mut self, tokens: &[TokenId], hidden: &Rows) -> Result<Forward, ModelError>;

    /// Drops slots `len..`.
    ///
    /// # Errors
    /// [`ModelError::Rewind`] when there are fewer slots than `len`.
    fn truncate(&mut self, len: usize) -> Result<(), ModelError>;

    /// Token of each logit of the last pass: the draft vocabulary, ascending, then the tokens of the text that
    /// [joined](draft_tokens::DraftTokens) it.
    fn draft_vocab(&self) -> &[TokenId];

    /// The same module, weights shared, with a copy of the cache.
    ///
    /// # Errors
    /// When the cache cannot be copied.
    fn fork(&self) -> Result<Box<dyn DraftModule>, ModelError>;
}
