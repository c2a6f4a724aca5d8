//! Rows to tiles and back: rows follow each other, tiles hold the same lanes of all rows.

use draftscope_kernels::LANES;

/// `[m][d / 16] -> [d / 16][m]`
pub(crate) fn transpose(rows: &[[f32; LANES]], m: usize, tiles: &mut [[f32; LANES]]) {
    for (row, from) in rows.chunks_exact(rows.len() / m).enumerate() {
        for (to, tile) in tiles[row..].iter_mut().step_by(m).zip(from) {
            *to = *tile;
        }
    }
}

/// `[d / 16][m] -> [m][d / 16]`
pub(crate) fn untranspose(tiles: &[[f32; LANES]], m: usize, rows: &mut [[f32; LANES]]) {
    for (row, to) in rows.chunks_exact_mut(tiles.len() / m).enumerate() {
        for (from, to) in tiles[row..].iter().step_by(m).zip(to) {
            *to = *from;
        }
    }
}
