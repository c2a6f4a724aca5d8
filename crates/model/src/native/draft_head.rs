//! The head of a draft module: some rows of the target's, plus rows of other tokens as those tokens appear in the text.
//!
//! Invariant: row i is that of token i. Added rows stay in the target's encoding: packing them smaller would take a
//! third of the time of a draft.

use std::sync::Arc;

use draftscope_kernels::{Encoding, LANES};
use draftscope_protocol::TokenId;

use super::llama::Weights;
use super::load::Loader;
use super::matrix::{Matrix, Part, RowOrder};
use super::module_target::ModuleTarget;
use super::tensors::Tensors;
use crate::draft_tokens::DraftTokens;
use crate::files::{Stored, TensorSource};
use crate::{ModelError, plan};

/// A head.
#[derive(Debug)]
pub(crate) struct DraftHead {
    target: Arc<Weights>,
    /// Rows that never change; whole tiles if others may join.
    base: Matrix,
    matrix: Matrix, // [tokens, d]
    /// Room for rows after the base.
    room: usize,
}

impl DraftHead {
    /// The target's own head, all of it.
    pub(crate) fn whole(target: &Arc<Weights>) -> (Self, DraftTokens) {
        let vocab = (0..target.head.rows() as u32).map(TokenId).collect();
        let base = target.head.clone();
        (Self::on(target, base, 0), DraftTokens::new(vocab, 0))
    }

    /// The rows of `vocab`, ascending, with room for as many of other tokens; in codes of 4 bits unless they are to be exact.
    ///
    /// # Errors
    /// [`ModelError::Unsupported`] if the target's head has mixed encodings.
    pub(crate) fn trimmed(
        target: &Arc<Weights>,
        vocab: Vec<TokenId>,
        (room, exact): (usize, bool),
    ) -> Result<(Self, DraftTokens), ModelError> {
        let room = room.min(target.head.rows() - vocab.len());
        // rows join tile by tile: those of a partly filled tile come first
        let whole = if room == 0 { vocab.len() } else { vocab.len() / LANES * LANES };
        let rows: Vec<_> = vocab[..whole].iter().map(|token| token.index()).collect();
        let base = rows_of(target, &rows, exact)?;
        let rest = vocab.len() - whole;
        let mut head = Self::on(target, base, room + rest);
        let tokens = DraftTokens::new(vocab, room);
        head.set_tokens(&tokens);
        Ok((head, tokens))
    }

    /// A module's own, with these tokens, one a row.
    ///
    /// # Errors
    /// When the tensor is missing, misshapen or damaged.
    pub(crate) fn read(
        target: &ModuleTarget,
        (source, of): (&dyn TensorSource, &plan::Matrix),
        vocab: Vec<TokenId>,
    ) -> Result<Head, ModelError> {
        let weights = &target.weights;
        let (tensors, shape) = (Tensors(source), weights.shape);
        let loader = Loader { tensors, cpu: &weights.cpu, shape, angles: &[], norms_as_stored: true };
        let matrix = loader.matrix(of)?;
        let bytes = matrix.bytes();
        Ok((Self::on(weights, matrix, 0), DraftTokens::new(vocab, 0), bytes))
    }

    /// One that is not the target's: all rows, or those of `vocab`, ascending.
    ///
    /// # Errors
    /// As [`DraftHead::trimmed`].
    pub(crate) fn own(target: &Arc<Weights>, head: Matrix, vocab: Option<&[TokenId]>) -> Result<Head, ModelError> {
        let all = || (0..head.rows() as u32).map(TokenId).collect();
        let vocab = vocab.map_or_else(all, <[TokenId]>::to_vec);
        let rows: Vec<_> = vocab.iter().map(|token| token.index()).collect();
        let base = if rows.len() == head.rows() { Some(head) } else { head.select(&target.cpu, &rows) };
        let base = base.ok_or_else(|| ModelError::Unsupported("a head of mixed encodings".to_owned()))?;
        let bytes = base.bytes();
        Ok((Self::on(target, base, 0), DraftTokens::new(vocab, 0), bytes))
    }

    /// The rows of `base`, and memory for `room` more.
    fn on(target: &Arc<Weights>, base: Matrix, room: usize) -> Self {
        let matrix = if room > 0 { base.with_room(&target.cpu, (room, &target.head)) } else { base.clone() };
        Self { target: Arc::clone(target), base, matrix, room }
    }

    /// Sets the rows to those of these tokens; the first ones never change.
    pub(crate) fn set_tokens(&mut self, tokens: &DraftTokens) {
        self.matrix.cut(tokens.tokens().len());
        for token in &tokens.tokens()[self.matrix.rows()..] {
            self.matrix.push(&self.target.head, token.index());
        }
    }

    pub(crate) fn matrix(&self) -> &Matrix {
        &self.matrix
    }

    pub(crate) fn bytes(&self) -> usize {
        self.matrix.bytes()
    }
}

impl Clone for DraftHead {
    /// The base rows are shared; the others come with [`DraftHead::set_tokens`].
    fn clone(&self) -> Self {
        Self::on(&self.target, self.base.clone(), self.room)
    }
}

/// The target's head, trimmed to `rows`.
fn rows_of(target: &Weights, rows: &[usize], exact: bool) -> Result<Matrix, ModelError> {
    let head = target.head.select(&target.cpu, rows);
    let head = head.ok_or_else(|| ModelError::Unsupported("a head of mixed encodings".to_owned()))?;
    let weights = head.rows() * head.k();
    if exact || head.bytes() < weights {
        return Ok(head); // exact, or as small as it gets
    }
    let mut numbers = vec![0.0; weights];
    numbers.chunks_exact_mut(head.k()).enumerate().for_each(|(index, row)| head.row(index, row));
    let codes = Stored::encoded(&numbers, Encoding::Q4_1);
    let part = Part { encoding: codes.encoding(), rows: rows.len(), bytes: codes.bytes(), order: RowOrder::Stored };
    Ok(Matrix::pack(&target.cpu, head.k(), &[part]))
}

/// A head, its tokens, and the bytes that only it takes.
pub(crate) type Head = (DraftHead, DraftTokens, usize);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::OpenModel;

    use crate::native::{NativeLlama, testing::gguf_path};

    #[test]
    fn rows_that_come_are_those_of_a_head_that_had_them_from_the_start() {
        let Some(path) = gguf_path() else {
            return;
        };
        let target = NativeLlama::load(OpenModel::open(&path).unwrap().parts(), 64, Some(1)).unwrap().weights;
        let ids = |ids: std::ops::Range<u32>| ids.map(TokenId).collect::<Vec<_>>();
        for exact in [false, true] {
            // 37 rows: two tiles and five
            let (mut grown, mut tokens) = DraftHead::trimmed(&target, ids(100..137), (40, exact)).unwrap();
            let (all, _) = DraftHead::trimmed(&target, ids(100..137), (0, exact)).unwrap();
            tokens.read(0, &ids(130..190));
            grown.set_tokens(&tokens);
            tokens.truncate(20); // slots 0..7 read what was there, the next 13 brought a token each
            grown.set_tokens(&tokens);
            assert_eq!(tokens.tokens(), ids(100..150));
            // in the places of those that left
            tokens.read(20, &ids(300..320));
            grown.set_tokens(&tokens);
            assert_eq!(tokens.tokens(), [ids(100..150), ids(300..320)].concat());
            let mut copy = grown.clone();
            copy.set_tokens(&tokens);
            let [mut a, mut b, mut c] = [0; 3].map(|_| vec![0.0; all.matrix.k()]);
            for row in 0..70 {
                match row {
                    0..32 => all.matrix.row(row, &mut a),
                    _ => target.head.row(tokens.tokens()[row].index(), &mut a),
                }
                grown.matrix.row(row, &mut b);
                copy.matrix.row(row, &mut c);
                assert!(a == b && a == c, "exact: {exact}, row {row}");
            }
            assert_eq!(grown.matrix.rows(), 70);
        }
    }
}
