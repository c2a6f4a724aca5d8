//! A target that computes each row in a pass of its own, or as many together as have the same bits.
//!
//! Invariant: after the prompt, the inner model runs one row at a time, or as many as were seen to have the bits of rows run
//! alone, so verification computes bit for bit what plain decoding computes. If a pass over several rows gives another
//! token and this target does not, the cause is the order of floating-point operations.

use crate::shared_kv::SharedKv;
use crate::{Checkpoint, ExpertsMet, Forward, LogitRows, Model, ModelError, ModelSpec, Rows, Tap};
use draftscope_protocol::{DeviceWork, GpuInfo, KernelTime, TokenId};

/// Wraps a model.
pub struct RowByRow {
    inner: Box<dyn Model>,
    /// Most rows of a pass.
    rows: usize,
}

impl RowByRow {
    /// Runs this model row by row.
    #[must_use]
    pub fn new(inner: Box<dyn Model>) -> Self {
        Self::at_most(inner, 1)
    }

    /// Runs this model in passes of at most `rows` rows, at least one.
    #[must_use]
    pub fn at_most(inner: Box<dyn Model>, rows: usize) -> Self {
        Self { inner, rows: rows.max(1) }
    }
}

impl Model for RowByRow {
    fn spec(&self) -> &ModelSpec {
        self.inner.spec()
    }

    fn len(&self) -> usize {
        self.inner.len()
    }

    /// Prompts (only the last row's logits) run in one pass, as in plain decoding.
    fn forward(&mut self, tokens: &[TokenId], rows: LogitRows) -> Result<Forward, ModelError> {
        if rows == LogitRows::Last || tokens.len() <= self.rows {
            return self.inner.forward(tokens, rows);
        }
        let since = self.inner.checkpoint()?;
        let mut all: Option<Forward> = None;
        // all logits: the last row of a pass does not know which token is drafted after it
        for tokens in tokens.chunks(self.rows) {
            match self.inner.forward(tokens, LogitRows::All) {
                Ok(row) => append(&mut all, row),
                Err(error) => {
                    self.inner.truncate(since.len, &since)?;
                    return Err(error);
                }
            }
        }
        all.ok_or_else(|| ModelError::Unsupported("a pass over no rows".into()))
    }

    fn forward_early(&mut self, tokens: &[TokenId], layers: usize) -> Result<Forward, ModelError> {
        self.inner.forward_early(tokens, layers)
    }

    fn limit_threads(&mut self, most: usize) -> usize {
        self.inner.limit_threads(most)
    }

    fn set_tap(&mut self, tap: &Tap) -> Result<(), ModelError> {
        self.inner.set_tap(tap)
    }

    fn pass_bytes(&self) -> u64 {
        self.inner.pass_bytes()
    }

    fn device_work(&self) -> Option<DeviceWork> {
        self.inner.device_work()
    }

    fn gpu_info(&self) -> Option<GpuInfo> {
        self.inner.gpu_info()
    }

    fn kernel_times(&mut self, rows: usize) -> Result<Vec<KernelTime>, ModelError> {
        self.inner.kernel_times(rows)
    }

    fn device_read_rate(&self) -> Result<Option<f64>, ModelError> {
        self.inner.device_read_rate()
    }

    fn experts_met(&self) -> Option<ExpertsMet> {
        self.inner.experts_met()
    }

    fn shared_kv(&self) -> Result<Option<SharedKv>, ModelError> {
        self.inner.shared_kv()
    }

    fn rewindable(&self, len: usize) -> usize {
        self.inner.rewindable(len)
    }

    fn checkpoint(&self) -> Result<Checkpoint, ModelError> {
        self.inner.checkpoint()
    }

    fn truncate(&mut self, len: usize, since: &Checkpoint) -> Result<(), ModelError> {
        self.inner.truncate(len, since)
    }

    fn fork(&self) -> Result<Box<dyn Model>, ModelError> {
        Ok(Box::new(Self { inner: self.inner.fork()?, rows: self.rows }))
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

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::{Arc, Mutex};

    use super::*;
    use crate::load::load;
    use crate::options::LoadOptions;

    /// A model that notes the rows of its passes.
    struct Noted(Box<dyn Model>, Arc<Mutex<Vec<usize>>>);

    impl Model for Noted {
        fn spec(&self) -> &ModelSpec {
            self.0.spec()
        }
        fn len(&self) -> usize {
            self.0.len()
        }
        fn forward(&mut self, tokens: &[TokenId], rows: LogitRows) -> Result<Forward, ModelError> {
            self.1.lock().unwrap().push(tokens.len());
            self.0.forward(tokens, rows)
        }
        fn checkpoint(&self) -> Result<Checkpoint, ModelError> {
            self.0.checkpoint()
        }
        fn truncate(&mut self, len: usize, since: &Checkpoint) -> Result<(), ModelError> {
            self.0.truncate(len, since)
        }
        fn fork(&self) -> Result<Box<dyn Model>, ModelError> {
            Ok(Box::new(Self(self.0.fork()?, Arc::clone(&self.1))))
        }
    }

    #[test]
    fn passes_have_at_most_the_rows_that_were_asked_for_and_give_the_same() {
        let path = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).join("tests/fixtures/checkpoints/llama");
        let options = LoadOptions { ctx_len: Some(32), ..LoadOptions::on_cpu(path, None) };
        let mut whole = load(&options, &mut |_, _, _| {}).unwrap().target;
        let tokens: Vec<TokenId> = (5..13).map(TokenId).collect();
        for (most, passes) in [(1, vec![1; 8]), (3, vec![3, 3, 2]), (8, vec![8])] {
            let noted = Arc::new(Mutex::new(Vec::new()));
            let inner = Noted(whole.fork().unwrap(), Arc::clone(&noted));
            let mut cut = RowByRow::at_most(Box::new(inner), most).fork().unwrap();
            let out = cut.forward(&tokens, LogitRows::All).unwrap();
            assert_eq!(*noted.lock().unwrap(), passes);
            let since = Checkpoint { len: 0 };
            let expected = whole.forward(&tokens, LogitRows::All).unwrap();
            whole.truncate(0, &since).unwrap();
            assert!(out.logits == expected.logits && out.hidden == expected.hidden && out.stats == expected.stats);
            // a pass that does not fit leaves nothing of the passes before it
            cut.forward(&[TokenId(1); 25], LogitRows::All).unwrap_err();
            assert_eq!(cut.len(), 8);
            cut.forward(&tokens, LogitRows::Last).unwrap();
            assert_eq!(noted.lock().unwrap().last(), Some(&8), "a prompt is one pass");
        }
    }
}
