//! Whether a row's numbers change with the rows beside it: compares passes over 2 to 16 rows with passes over each row
//! alone, bit for bit.
//!
//! candle picks its GPU kernels by the number of rows, and with them the order of sums.

use crate::model::{Checkpoint, LogitRows, Model, ModelError};
use crate::protocol::TokenId;

/// Most rows of a pass that verifies drafts.
const MAX_ROWS: usize = 16;

/// Positions before the rows.
const BEFORE: usize = 8;

/// Why rows must be verified one by one; `None` if their bits do not depend on the rows beside them. The cache is empty
/// afterwards.
///
/// # Errors
/// When a pass fails.
pub(super) fn run(model: &mut dyn Model) -> Result<Option<String>, ModelError> {
    let found = difference(model)?;
    model.truncate(0, &Checkpoint { len: 0 })?;
    Ok(found.map(|(row, rows)| {
        format!(
            "on {} a row's numbers change with the rows beside it (row {} of {rows}), so drafts are verified one by one, which is slower",
            model.spec().device,
            row + 1,
        )
    }))
}

/// The first row that differs, from 0, and the number of rows of its pass.
fn difference(model: &mut dyn Model) -> Result<Option<(usize, usize)>, ModelError> {
    let (ctx_len, vocab) = (model.spec().ctx_len, model.spec().info.vocab.max(1));
    let before = ctx_len.saturating_sub(MAX_ROWS).min(BEFORE);
    let most = MAX_ROWS.min(ctx_len - before);
    let tokens: Vec<_> = (0..(before + most) as u32).map(|i| TokenId((i * 7919 + 13) % vocab)).collect();
    let (prompt, rows) = tokens.split_at(before);
    if before > 0 {
        model.forward(prompt, LogitRows::Last)?;
    }
    let mut alone = Vec::new();
    let since = model.checkpoint()?;
    for row in rows {
        alone.push(model.forward(&[*row], LogitRows::All)?.logits);
    }
    model.truncate(since.len, &since)?;
    for count in 2..=most {
        let since = model.checkpoint()?;
        let together = model.forward(&rows[..count], LogitRows::All)?.logits;
        model.truncate(since.len, &since)?;
        let differs = |row: &usize| {
            let pairs = together.row(*row).iter().zip(alone[*row].row(0));
            pairs.into_iter().any(|(a, b)| a.to_bits() != b.to_bits())
        };
        if let Some(row) = (0..count).find(differs) {
            return Ok(Some((row, count)));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::load::load;
    use crate::model::options::LoadOptions;
    use crate::model::{Forward, ModelSpec, Rows};
    use std::path::Path;

    /// A model whose logits in passes over at least `changes_at` rows differ by one bit.
    struct Odd {
        inner: Box<dyn Model>,
        changes_at: usize,
    }

    impl Model for Odd {
        fn spec(&self) -> &ModelSpec {
            self.inner.spec()
        }
        fn len(&self) -> usize {
            self.inner.len()
        }
        fn forward(&mut self, tokens: &[TokenId], rows: LogitRows) -> Result<Forward, ModelError> {
            let mut out = self.inner.forward(tokens, rows)?;
            if rows == LogitRows::All && tokens.len() >= self.changes_at {
                let width = out.logits.width();
                let mut logits = out.logits.as_slice().to_vec();
                logits[2 * width] = f32::from_bits(logits[2 * width].to_bits() ^ 1);
                out.logits = Rows::new(logits, width);
            }
            Ok(out)
        }
        fn checkpoint(&self) -> Result<Checkpoint, ModelError> {
            self.inner.checkpoint()
        }
        fn truncate(&mut self, len: usize, since: &Checkpoint) -> Result<(), ModelError> {
            self.inner.truncate(len, since)
        }
        fn fork(&self) -> Result<Box<dyn Model>, ModelError> {
            Ok(Box::new(Self { inner: self.inner.fork()?, changes_at: self.changes_at }))
        }
    }

    fn fixture(ctx_len: usize) -> Box<dyn Model> {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/checkpoints/llama");
        let options = LoadOptions { ctx_len: Some(ctx_len), ..LoadOptions::on_cpu(path, None) };
        load(&options, &mut |_, _, _| {}).unwrap().target
    }

    #[test]
    fn a_bit_that_changes_with_the_number_of_rows_is_found() {
        for ctx_len in [16, 64] {
            let mut model = Odd { inner: fixture(ctx_len), changes_at: 5 };
            let why = run(&mut model).unwrap().unwrap();
            assert!(why.contains("(row 3 of 5)") && why.contains("one by one"), "{why}");
            assert_eq!(model.len(), 0);
            assert_eq!(run(fixture(ctx_len).as_mut()).unwrap(), None, "the native kernels pass");
        }
    }
}
