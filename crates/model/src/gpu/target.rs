//! A target on the GPU.
//!
//! Invariant: logits and hidden states of a position have the same bits however the tokens before it were cut into calls
//! and passes. Weights are shared between forks; each fork has its own cache.

use std::sync::Arc;

use draftscope_gpu::{Logits, MAX_ROWS, Network, Output, Request, Scored, Sequence, self_test};

use super::device::{info, work};
use super::stats;
use crate::{Checkpoint, Forward, LogitRows, Model, ModelError, ModelSpec, Rows, Tap, check_path, tree_depths};
use draftscope_protocol::{DeviceWork, GpuInfo, KernelTime, TokenId};

/// A target on the GPU.
#[derive(Debug)]
pub struct GpuTarget {
    sequence: Sequence,
    spec: ModelSpec,
    tap: Tap,
    /// Why rows are verified one by one.
    row_by_row: Option<String>,
    is_tested: bool,
}

impl GpuTarget {
    /// With an empty cache.
    pub(crate) fn new(network: &Arc<Network>, spec: ModelSpec) -> Result<Self, ModelError> {
        Ok(Self { sequence: Sequence::new(network)?, spec, tap: Tap::default(), row_by_row: None, is_tested: false })
    }

    /// Its weights.
    pub(crate) fn network(&self) -> &Arc<Network> {
        self.sequence.network()
    }

    /// Stores the file's digest for the header.
    pub fn set_sha256(&mut self, sha256: Option<String>) {
        self.spec.info.sha256 = sha256;
    }

    /// Why rows must be verified one by one on this adapter; `None` if their bits do not depend on the rows beside them.
    /// Empties the cache. The weights are tested once.
    ///
    /// # Errors
    /// What the driver reports.
    pub fn self_test(&mut self) -> Result<Option<String>, ModelError> {
        if self.is_tested {
            self.sequence.truncate(0);
            return Ok(self.row_by_row.clone());
        }
        let found = self_test(&mut self.sequence)?;
        self.row_by_row = found.map(|difference| {
            format!(
                "on {} a row's numbers change with the rows beside it (row {} of {}), so drafts are verified one by one, which is slower",
                self.spec.device,
                difference.row + 1,
                difference.rows
            )
        });
        self.is_tested = true;
        Ok(self.row_by_row.clone())
    }

    /// Runs at the end of the cache; after an error the cache is as before.
    fn run(
        &mut self,
        tokens: &[TokenId],
        rows: LogitRows,
        (layers, parents): (usize, Option<&[usize]>),
    ) -> Result<Forward, ModelError> {
        let (base, ctx_len) = (self.sequence.len(), self.spec.ctx_len);
        let needed = base.saturating_add(tokens.len());
        if needed > ctx_len {
            return Err(ModelError::ContextFull { needed, ctx_len });
        }
        let (vocab, d) = (self.network().head.rows(), self.network().shape.d_model);
        if let Some(token) = tokens.iter().find(|token| token.index() >= vocab) {
            return Err(ModelError::Vocabulary { token: token.0, vocab });
        }
        let all = layers == self.network().blocks.len();
        let states = if all { self.tap.places(layers)? } else { vec![None] };
        self.sequence.set_states(states.len())?;
        let ids: Vec<u32> = tokens.iter().map(|token| token.0).collect();
        let logits = match rows {
            LogitRows::Last => Logits::Last,
            LogitRows::Best if ids.len() <= MAX_ROWS => Logits::Best,
            LogitRows::All | LogitRows::Best => Logits::All,
        };
        let request = Request { tokens: &ids, layers, logits, parents, states: &states };
        let Output { hidden, scored } = self.sequence.forward(request)?;
        if !hidden.iter().all(|x| x.is_finite()) {
            self.sequence.truncate(base);
            return Err(ModelError::NotFinite { position: base });
        }
        let stats = stats::of_rows(&scored, vocab);
        let Scored { logits, .. } = scored;
        Ok(Forward { logits: Rows::new(logits, vocab), hidden: Rows::new(hidden, states.len() * d), stats })
    }
}

impl Model for GpuTarget {
    fn spec(&self) -> &ModelSpec {
        &self.spec
    }

    fn len(&self) -> usize {
        self.sequence.len()
    }

    fn forward(&mut self, tokens: &[TokenId], rows: LogitRows) -> Result<Forward, ModelError> {
        let layers = self.network().blocks.len();
        self.run(tokens, rows, (layers, None))
    }

    fn forward_early(&mut self, tokens: &[TokenId], layers: usize) -> Result<Forward, ModelError> {
        if self.sequence.is_recurrent() {
            return Err(ModelError::Unsupported(
                "a recurrent state is that after all layers, so no pass stops early".into(),
            ));
        }
        let layers = layers.min(self.network().blocks.len());
        self.run(tokens, LogitRows::Last, (layers, None))
    }

    fn refuses_trees(&self) -> Option<&'static str> {
        self.sequence
            .is_recurrent()
            .then_some("a recurrent state follows one path, so this target verifies no draft trees")
    }

    fn forward_tree(&mut self, tokens: &[TokenId], parents: &[usize], rows: LogitRows) -> Result<Forward, ModelError> {
        if parents.len() != tokens.len() {
            return Err(ModelError::Unsupported("a tree with more rows than tokens, or fewer".into()));
        }
        tree_depths(parents)?;
        if let Some(why) = self.refuses_trees() {
            return Err(ModelError::Unsupported(why.into()));
        }
        let layers = self.network().blocks.len();
        self.run(tokens, rows, (layers, Some(parents)))
    }

    fn retain(&mut self, base: usize, path: &[usize]) -> Result<(), ModelError> {
        check_path(self.len(), base, path)?;
        if self.sequence.is_recurrent() {
            return Err(ModelError::Rewind { len: base, have: self.len(), since: base });
        }
        self.sequence.retain(base, path)?;
        Ok(())
    }

    fn set_tap(&mut self, tap: &Tap) -> Result<(), ModelError> {
        let states = tap.places(self.network().blocks.len())?;
        self.sequence.set_states(states.len())?;
        self.tap = tap.clone();
        Ok(())
    }

    fn rewindable(&self, len: usize) -> usize {
        self.sequence.rewindable(len)
    }

    fn checkpoint(&self) -> Result<Checkpoint, ModelError> {
        Ok(Checkpoint { len: self.len() })
    }

    fn truncate(&mut self, len: usize, since: &Checkpoint) -> Result<(), ModelError> {
        let (have, since) = (self.len(), since.len);
        if len < since || len > have || self.sequence.rewindable(len) != len {
            return Err(ModelError::Rewind { len, have, since });
        }
        self.sequence.truncate(len);
        Ok(())
    }

    fn fork(&self) -> Result<Box<dyn Model>, ModelError> {
        let (spec, tap, row_by_row) = (self.spec.clone(), self.tap.clone(), self.row_by_row.clone());
        Ok(Box::new(Self { sequence: self.sequence.fork()?, spec, tap, row_by_row, is_tested: self.is_tested }))
    }

    fn pass_bytes(&self) -> u64 {
        self.network().pass_bytes()
    }

    fn device_work(&self) -> Option<DeviceWork> {
        Some(work(self.sequence.work()))
    }

    fn gpu_info(&self) -> Option<GpuInfo> {
        let pass_bytes = self.pass_bytes();
        Some(GpuInfo { pass_bytes, ..info(&self.network().gpu, self.row_by_row.clone()) })
    }

    fn kernel_times(&mut self, rows: usize) -> Result<Vec<KernelTime>, ModelError> {
        let times = self.sequence.kernel_times(rows.clamp(1, MAX_ROWS))?;
        let time = |time: draftscope_gpu::KernelTime| KernelTime {
            kernel: time.kernel,
            launches: time.launches,
            median_us: time.ns / 1e3,
        };
        Ok(times.into_iter().map(time).collect())
    }

    fn device_read_rate(&self) -> Result<Option<f64>, ModelError> {
        Ok(Some(self.network().gpu.read_rate()?))
    }
}
