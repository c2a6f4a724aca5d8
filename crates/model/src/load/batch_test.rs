//! How many rows are verified together: compares passes over 2 to 16 rows with passes over each row alone, bit for bit.
//!
//! candle picks its GPU kernels by the number of rows, and with them the order of sums. If that shows, rows attend one by
//! one where this makes wider passes equal: then only the products with weights depend on the number of rows.

use crate::{Checkpoint, LogitRows, Model, ModelError};
use draftscope_protocol::TokenId;

/// Most rows of a pass that verifies drafts.
const MAX_ROWS: usize = 16;

/// Positions before the rows: products in attention may depend on their number too.
const BEFORE: [usize; 2] = [8, 500];

/// Passes whose rows have the bits of rows run alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Equal {
    /// Most rows.
    rows: usize,
    /// The first row that differs in a wider pass, from 0, and the number of rows of that pass.
    difference: Option<(usize, usize)>,
}

/// Most rows of a pass that verifies drafts, and why; `None` if the bits of rows do not depend on the rows beside them. The
/// cache is empty afterwards.
///
/// # Errors
/// When a pass fails.
pub(super) fn run(model: &mut dyn Model) -> Result<Option<(usize, String)>, ModelError> {
    let mut equal = compare(model)?;
    if equal.difference.is_some() && model.attend_in_batches(false) {
        let one_by_one = compare(model)?;
        if one_by_one.rows > equal.rows {
            equal = one_by_one;
        } else {
            model.attend_in_batches(true);
        }
    }
    Ok(equal.difference.map(|(row, rows)| {
        let so = match equal.rows {
            1 => "drafts are verified one by one, which is slower".to_owned(),
            most => format!("at most {most} rows are verified together, which is slower"),
        };
        let device = &model.spec().device;
        let row = row + 1;
        let why = format!("on {device} a row's numbers change with the rows beside it (row {row} of {rows}), so {so}");
        (equal.rows, why)
    }))
}

/// Compares after few positions and after many.
fn compare(model: &mut dyn Model) -> Result<Equal, ModelError> {
    let ctx_len = model.spec().ctx_len;
    let few = BEFORE[0].min(ctx_len.saturating_sub(MAX_ROWS));
    let mut equal = Equal { rows: MAX_ROWS.min(ctx_len), difference: None };
    for before in [few, BEFORE[1]] {
        if before + equal.rows <= ctx_len {
            let after = compare_after(model, (before, equal.rows))?;
            equal = Equal { difference: after.difference.or(equal.difference), ..after };
        }
    }
    Ok(equal)
}

/// Compares passes over 2 to `most` rows after so many positions.
fn compare_after(model: &mut dyn Model, (before, most): (usize, usize)) -> Result<Equal, ModelError> {
    let vocab = model.spec().info.vocab.max(1);
    let tokens: Vec<_> = (0..(before + most) as u32).map(|i| TokenId((i * 7919 + 13) % vocab)).collect();
    let (prompt, rows) = tokens.split_at(before);
    let empty = Checkpoint { len: 0 };
    model.truncate(0, &empty)?;
    if before > 0 {
        model.forward(prompt, LogitRows::Last)?;
    }
    let mut alone = Vec::new();
    let since = model.checkpoint()?;
    for row in rows {
        alone.push(model.forward(&[*row], LogitRows::All)?.logits);
    }
    model.truncate(since.len, &since)?;
    let mut equal = Equal { rows: most, difference: None };
    for count in 2..=most {
        let since = model.checkpoint()?;
        let together = model.forward(&rows[..count], LogitRows::All)?.logits;
        model.truncate(since.len, &since)?;
        let differs = |row: &usize| {
            let pairs = together.row(*row).iter().zip(alone[*row].row(0));
            pairs.into_iter().any(|(a, b)| a.to_bits() != b.to_bits())
        };
        if let Some(row) = (0..count).find(differs) {
            equal = Equal { rows: count - 1, difference: Some((row, count)) };
            break;
        }
    }
    model.truncate(0, &empty)?;
    Ok(equal)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::load;
    use crate::options::LoadOptions;
    use crate::{Forward, ModelSpec, Rows};
    use std::path::Path;

    /// A model whose logits in passes over at least so many rows differ by one bit.
    struct Odd {
        inner: Box<dyn Model>,
        /// Where all rows attend at once, and where they do one by one.
        changes_at: [usize; 2],
        batched: bool,
    }

    impl Odd {
        fn new(ctx_len: usize, changes_at: [usize; 2]) -> Self {
            Self { inner: fixture(ctx_len), changes_at, batched: true }
        }
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
            if rows == LogitRows::All && tokens.len() >= self.changes_at[usize::from(!self.batched)] {
                let at = out.logits.width() * 2.min(tokens.len() - 1);
                let mut logits = out.logits.as_slice().to_vec();
                logits[at] = f32::from_bits(logits[at].to_bits() ^ 1);
                out.logits = Rows::new(logits, out.logits.width());
            }
            Ok(out)
        }
        fn attend_in_batches(&mut self, batched: bool) -> bool {
            std::mem::replace(&mut self.batched, batched) != batched
        }
        fn checkpoint(&self) -> Result<Checkpoint, ModelError> {
            self.inner.checkpoint()
        }
        fn truncate(&mut self, len: usize, since: &Checkpoint) -> Result<(), ModelError> {
            self.inner.truncate(len, since)
        }
        fn fork(&self) -> Result<Box<dyn Model>, ModelError> {
            Ok(Box::new(Self { inner: self.inner.fork()?, changes_at: self.changes_at, batched: self.batched }))
        }
    }

    fn fixture(ctx_len: usize) -> Box<dyn Model> {
        let path = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).join("tests/fixtures/checkpoints/llama");
        let options = LoadOptions { ctx_len: Some(ctx_len), ..LoadOptions::on_cpu(path, None) };
        load(&options, &mut |_, _, _| {}).unwrap().target
    }

    #[test]
    fn rows_attend_one_by_one_where_that_makes_wider_passes_equal() {
        let mut model = Odd::new(64, [3, 7]);
        let (rows, why) = run(&mut model).unwrap().unwrap();
        assert!(rows == 6 && why.contains("(row 3 of 7), so at most 6 rows are verified together"), "{rows}, {why}");
        assert!(!model.batched && model.len() == 0);
        let mut model = Odd::new(64, [3, 99]);
        assert_eq!((run(&mut model).unwrap(), model.batched), (None, false));
        let mut model = Odd::new(64, [99, 99]);
        assert_eq!((run(&mut model).unwrap(), model.batched), (None, true));
    }

    #[test]
    fn a_bit_that_changes_with_the_number_of_rows_is_found() {
        for ctx_len in [16, 64] {
            let mut model = Odd::new(ctx_len, [5, 5]);
            let (rows, why) = run(&mut model).unwrap().unwrap();
            assert!(
                rows == 4 && why.contains("(row 3 of 5), so at most 4 rows are verified together"),
                "{rows}, {why}"
            );
            assert!(model.len() == 0 && model.batched);
            let (rows, why) = run(&mut Odd::new(ctx_len, [2, 2])).unwrap().unwrap();
            assert!(rows == 1 && why.contains("(row 2 of 2), so drafts are verified one by one"), "{rows}, {why}");
            assert_eq!(run(fixture(ctx_len).as_mut()).unwrap(), None, "the native kernels pass");
        }
    }
}
