//! Answers of heads that fill no whole columns of 32 numbers.
//!
//! Invariant: gaps are closed by copying; a row's bits do not depend on the rows beside it.

use super::pass::Pass;
use draftscope_kernels::{Acts, BLOCK, LANES, Load, Operand};

/// Tiles of a column.
const TILES: usize = BLOCK / LANES;

/// Answers of heads that fill no whole columns.
#[derive(Debug, Default)]
pub(crate) struct Answers {
    /// Each head from a column of its own on.
    acts: Acts,
    /// The same without gaps, `[m][heads · head_dim / 16]`.
    rows: Vec<[f32; LANES]>,
}

impl Pass<'_> {
    /// Columns of a head's answers.
    pub(super) fn head_columns(&self) -> usize {
        self.shape.head_dim.div_ceil(BLOCK)
    }

    /// Memory for the answers of all heads, to be filled by [`Pass::columns`] and [`Pass::join`] before
    /// [`Pass::gather_answers`].
    pub(crate) fn answers<'a>(&self, attended: &'a mut Acts, wide: &'a mut Answers, operand: Operand) -> &'a mut Acts {
        let (heads, head_dim) = (self.shape.heads, self.shape.head_dim);
        attended.shape(self.m, heads * head_dim, operand);
        if head_dim.is_multiple_of(BLOCK) {
            return attended;
        }
        wide.acts.shape(self.m, heads * self.head_columns() * BLOCK, Operand { blocks: false, values: true });
        &mut wide.acts
    }

    /// Closes the gaps between answers of heads that fill no whole columns.
    pub(crate) fn gather_answers(&self, attended: &mut Acts, wide: &mut Answers) {
        let tiles = self.shape.head_dim / LANES;
        if tiles.is_multiple_of(TILES) {
            return;
        }
        let values = wide.acts.values().as_flattened().as_chunks::<LANES>().0; // [columns][m][2]
        let of_head = TILES * self.head_columns();
        wide.rows.clear();
        for row in 0..self.m {
            let all = (0..self.shape.heads * of_head).filter(|tile| tile % of_head < tiles);
            wide.rows.extend(all.map(|tile| values[(tile / TILES * self.m + row) * TILES + tile % TILES]));
        }
        Load { rows: &wide.rows, out: attended }.run_on(self.cpu.isa);
    }
}
