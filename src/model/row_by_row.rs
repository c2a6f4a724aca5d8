//! A target that computes each row in a separate pass.
//!
//! Invariant: after the prompt, the inner model runs one row at a time, so verification computes bit for bit what plain
//! decoding computes. If a pass over several rows gives another token and this target does not, the cause is the order
//! of floating-point operations.

use crate::model::shared_kv::SharedKv;
use crate::model::{Checkpoint, ExpertsMet, Forward, LogitRows, Model, ModelError, ModelSpec, Rows, Tap};
use crate::protocol::{DeviceWork, GpuInfo, TokenId};

/// Wraps a model.
pub struct RowByRow(Box<dyn Model>);

impl RowByRow {
    /// Runs this model row by row.
    #[must_use]
    pub fn new(inner: Box<dyn Model>) -> Self {
        Self(inner)
    }
}

impl Model for RowByRow {
    fn spec(&self) -> &ModelSpec {
        self.0.spec()
    }

    fn len(&self) -> usize {
        self.0.len()
    }

    /// Prompts (only the last row's logits) run in one pass, as in plain decoding.
    fn forward(&mut self, tokens: &[TokenId], rows: LogitRows) -> Result<Forward, ModelError> {
        if rows == LogitRows::Last || tokens.len() < 2 {
            return self.0.forward(tokens, rows);
        }
        let since = self.0.checkpoint()?;
        let mut all: Option<Forward> = None;
        for token in tokens {
            match self.0.forward(&[*token], LogitRows::All) {
                Ok(row) => append(&mut all, row),
                Err(error) => {
                    self.0.truncate(since.len, &since)?;
                    return Err(error);
                }
            }
        }
        all.ok_or_else(|| ModelError::Unsupported("a pass over no rows".into()))
    }

    fn forward_early(&mut self, tokens: &[TokenId], layers: usize) -> Result<Forward, ModelError> {
        self.0.forward_early(tokens, layers)
    }

    fn set_tap(&mut self, tap: &Tap) -> Result<(), ModelError> {
        self.0.set_tap(tap)
    }

    fn pass_bytes(&self) -> u64 {
        self.0.pass_bytes()
    }

    fn device_work(&self) -> Option<DeviceWork> {
        self.0.device_work()
    }

    fn gpu_info(&self) -> Option<GpuInfo> {
        self.0.gpu_info()
    }

    fn device_read_rate(&self) -> Result<Option<f64>, ModelError> {
        self.0.device_read_rate()
    }

    fn experts_met(&self) -> Option<ExpertsMet> {
        self.0.experts_met()
    }

    fn shared_kv(&self) -> Result<Option<SharedKv>, ModelError> {
        self.0.shared_kv()
    }

    fn rewindable(&self, len: usize) -> usize {
        self.0.rewindable(len)
    }

    fn checkpoint(&self) -> Result<Checkpoint, ModelError> {
        self.0.checkpoint()
    }

    fn truncate(&mut self, len: usize, since: &Checkpoint) -> Result<(), ModelError> {
        self.0.truncate(len, since)
    }

    fn fork(&self) -> Result<Box<dyn Model>, ModelError> {
        Ok(Box::new(Self(self.0.fork()?)))
    }
}

fn append(all: &mut Option<Forward>, row: Forward) {
    let Some(all) = all else {
        *all = Some(row);
        return;
    };
    let join = |into: &mut Rows, rows: &Rows| into.extend(rows, rows.len());
    join(&mut all.logits, &row.logits);
    join(&mut all.hidden, &row.hidden);
    all.stats.extend(row.stats);
}
