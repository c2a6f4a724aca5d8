//! The head that a draft module proposes with: some rows of the target's, to which rows of other tokens come as those
//! tokens turn up in the text.
//!
//! Invariant: row i is that of `tokens()[i]`. Rows that come are as the target holds them: to make them smaller would take
//! as long as a third of a draft.

use std::sync::Arc;

use super::{
    llama::Weights,
    matrix::{Bits, Matrix},
    mtp::MtpStorage,
};
use crate::model::ModelError;
use crate::model::draft_tokens::DraftTokens;
use crate::protocol::TokenId;
use draftscope_kernels::LANES;

/// A head and what its logits stand for.
#[derive(Debug)]
pub(in crate::model) struct DraftHead {
    target: Arc<Weights>,
    /// Rows that stay, whole tiles where others may come.
    base: Matrix,
    matrix: Matrix, // [tokens, d]
    proposed: DraftTokens,
    /// Rows for which there is room behind the base.
    room: usize,
    /// Whether the matrix is the target's.
    shared: bool,
}

impl DraftHead {
    /// The target's own, all of it.
    pub(in crate::model) fn whole(target: &Arc<Weights>) -> Self {
        let vocab = (0..target.head.rows() as u32).map(TokenId).collect();
        let base = target.head.clone();
        Self {
            target: Arc::clone(target),
            matrix: base.clone(),
            base,
            proposed: DraftTokens::new(vocab, 0),
            room: 0,
            shared: true,
        }
    }

    /// The rows of `vocab`, ascending, and room for as many of other tokens.
    ///
    /// # Errors
    /// [`ModelError::Unsupported`] when the target's head is of mixed encodings.
    pub(in crate::model) fn trimmed(
        target: &Arc<Weights>,
        vocab: Vec<TokenId>,
        (room, storage): (usize, MtpStorage),
    ) -> Result<Self, ModelError> {
        let room = room.min(target.head.rows() - vocab.len());
        // rows come tile by tile: those of a tile that is not full are the first to come
        let whole = if room == 0 { vocab.len() } else { vocab.len() / LANES * LANES };
        let rows: Vec<_> = vocab[..whole].iter().map(|token| token.index()).collect();
        let base = rows_of(target, &rows, storage)?;
        let rest = vocab.len() - whole;
        let mut head = Self {
            target: Arc::clone(target),
            matrix: base.clone(),
            base,
            proposed: DraftTokens::new(vocab, room),
            room: room + rest,
            shared: false,
        };
        head.fill();
        Ok(head)
    }

    /// A matrix of its own with the rows of all tokens.
    fn fill(&mut self) {
        if self.room > 0 {
            self.matrix = self.base.with_room(&self.target.cpu, (self.room, &self.target.head));
            self.add_rows();
        }
    }

    fn add_rows(&mut self) {
        for token in &self.proposed.tokens()[self.matrix.rows()..] {
            self.matrix.push(&self.target.head, token.index());
        }
    }

    pub(in crate::model) fn matrix(&self) -> &Matrix {
        &self.matrix
    }

    /// Token of each row.
    pub(in crate::model) fn tokens(&self) -> &[TokenId] {
        self.proposed.tokens()
    }

    /// Bytes that it takes beside the target.
    pub(in crate::model) fn own_bytes(&self) -> usize {
        if self.shared { 0 } else { self.matrix.bytes() }
    }

    /// Slots from `first` on read these tokens.
    pub(in crate::model) fn read(&mut self, first: usize, tokens: &[TokenId]) {
        if self.proposed.read(first, tokens) > 0 {
            self.add_rows();
        }
    }

    /// Slots `len..` are dropped.
    pub(in crate::model) fn truncate(&mut self, len: usize) {
        self.proposed.truncate(len);
        self.matrix.cut(self.proposed.tokens().len());
    }
}

impl Clone for DraftHead {
    /// Rows that stay are shared.
    fn clone(&self) -> Self {
        let mut copy = Self {
            target: Arc::clone(&self.target),
            base: self.base.clone(),
            matrix: self.base.clone(),
            proposed: self.proposed.clone(),
            room: self.room,
            shared: self.shared,
        };
        copy.fill();
        copy
    }
}

/// The target's head, cut down to `rows`.
fn rows_of(target: &Weights, rows: &[usize], storage: MtpStorage) -> Result<Matrix, ModelError> {
    let head = target.head.select(&target.cpu, rows);
    let head = head.ok_or_else(|| ModelError::Unsupported("a head of mixed encodings".to_owned()))?;
    let weights = head.rows() * head.k();
    if storage == MtpStorage::Bf16 || head.bytes() < weights {
        return Ok(head); // exact, or as small as it gets
    }
    let mut numbers = vec![0.0; weights];
    numbers.chunks_exact_mut(head.k()).enumerate().for_each(|(index, row)| head.row(index, row));
    Ok(Matrix::quantise(&target.cpu, head.k(), &numbers, Bits::Four))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::load::OpenModel;

    use crate::model::native::NativeLlama;
    use crate::model::native::testing::gguf_path;

    #[test]
    fn rows_that_come_are_those_of_a_head_that_had_them_from_the_start() {
        let Some(path) = gguf_path() else {
            return;
        };
        let target = NativeLlama::load(OpenModel::open(&path).unwrap().parts(), 64, Some(1)).unwrap().weights;
        let ids = |ids: std::ops::Range<u32>| ids.map(TokenId).collect::<Vec<_>>();
        for storage in [MtpStorage::Blocks, MtpStorage::Bf16] {
            // 37 rows: two tiles and five
            let mut grown = DraftHead::trimmed(&target, ids(100..137), (40, storage)).unwrap();
            let all = DraftHead::trimmed(&target, ids(100..137), (0, storage)).unwrap();
            grown.read(0, &ids(130..190));
            grown.truncate(20); // slots 0..7 read what was there, the next 13 brought a token each
            assert_eq!(grown.tokens(), ids(100..150));
            // in the places of those that left
            grown.read(20, &ids(300..320));
            assert_eq!(grown.tokens(), [ids(100..150), ids(300..320)].concat());
            let copy = grown.clone();
            let [mut a, mut b, mut c] = [0; 3].map(|_| vec![0.0; all.matrix.k()]);
            for row in 0..70 {
                match row {
                    0..32 => all.matrix.row(row, &mut a),
                    _ => target.head.row(grown.tokens()[row].index(), &mut a),
                }
                grown.matrix.row(row, &mut b);
                copy.matrix.row(row, &mut c);
                assert!(a == b && a == c, "{storage:?}, row {row}");
            }
            assert_eq!(grown.matrix.rows(), 70);
        }
    }
}
