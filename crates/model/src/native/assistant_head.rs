//! An assistant's output head: all its rows, some of them, or those of a few clusters.
//!
//! With clusters, the centroids are scored first and only the tokens of the best ones get a logit; the others get one
//! that no sampling reaches. Source: `Gemma4AssistantMaskedEmbedder` of `transformers`.

use super::{
    head,
    matrix::{Cpu, Matrix},
};
use crate::RowStats;
use draftscope_kernels::{Acts, LANES, Onto};
use draftscope_protocol::TokenId;

/// Logit of a token that was not scored: finite, and far below all others.
const UNSEEN: f32 = -1e30;

/// The head.
#[derive(Debug)]
pub(super) enum AssistantHead {
    /// The rows of the tokens that it may propose, `[tokens, d]`.
    Rows(Matrix),
    /// Those of the best clusters.
    Clusters {
        /// `[clusters, d]`
        centroids: Matrix,
        searched: usize,
        /// Tokens of all clusters, one cluster after the other.
        ordering: Vec<TokenId>,
        /// Their rows, `[tokens, d]`.
        table: Matrix,
    },
}

/// A cluster that is searched: its number, and products with the tiles that contain its rows.
type Searched = (usize, Vec<[f32; LANES]>);

impl AssistantHead {
    /// Bytes in memory.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Rows(matrix) => matrix.bytes(),
            Self::Clusters { centroids, table, .. } => centroids.bytes() + table.bytes(),
        }
    }

    /// Logits of one state `[d / 16]`, one for each token that it may propose.
    pub(super) fn logits(&self, cpu: &Cpu, state: &[[f32; LANES]], acts: &mut Acts) -> (Vec<f32>, Vec<RowStats>) {
        let (centroids, searched, ordering, table) = match self {
            Self::Rows(matrix) => return head::of_state(cpu, matrix, state, acts),
            Self::Clusters { centroids, searched, ordering, table } => (centroids, *searched, ordering, table),
        };
        let (scores, _) = head::of_state(cpu, centroids, state, acts);
        let mut order: Vec<usize> = (0..scores.len()).collect();
        order.sort_by(|a, b| scores[*b].total_cmp(&scores[*a]));
        let size = ordering.len() / scores.len();
        head::operand(cpu, table, state, acts);
        let tiles = |cluster: usize| cluster * size / LANES..((cluster + 1) * size).div_ceil(LANES);
        let mut best: Vec<Searched> =
            order[..searched].iter().map(|cluster| (*cluster, vec![[0.0; LANES]; tiles(*cluster).len()])).collect();
        cpu.pool.each(&mut best, |_, (cluster, out)| {
            for (tile, out) in tiles(*cluster).zip(out.chunks_exact_mut(1)) {
                table.multiply(cpu, tile, acts, Onto::Nothing, out);
            }
        });
        let mut logits = vec![UNSEEN; ordering.len()];
        for (cluster, out) in best {
            let rows = out.as_flattened()[cluster * size % LANES..].iter();
            ordering[cluster * size..][..size]
                .iter()
                .zip(rows)
                .for_each(|(token, logit)| logits[token.index()] = *logit);
        }
        (logits, Vec::new())
    }
}
