//! Gate and up, the first two matrices of a gated feed-forward layer, as one.
//!
//! [`BLOCK`] outputs need two tiles of each. Those four are adjacent, so that each thread reads memory as one stream:
//! with two alternating streams a pass over one row takes 5 % longer. Invariant: a tile's weights, and so its outputs,
//! are those that it has alone. If a file stores the two in different encodings, which no tile can mix, one matrix
//! follows the other.

use super::matrix::{Cpu, Matrix, Part};
use draftscope_kernels::{Acts, BLOCK, LANES, Onto, Operand};

/// Tiles of a block, of one matrix.
const TILES: usize = BLOCK / LANES;

/// `[2 d_ff, d]` weights; copies share them.
#[derive(Clone, Debug)]
pub(crate) struct GateUp {
    matrix: Matrix,
    /// Rows of gate and up alternate, [`BLOCK`] of each.
    in_turns: bool,
}

impl GateUp {
    /// Packs two matrices of `k` columns and as many rows, whole blocks of them.
    pub(crate) fn pack(cpu: &Cpu, k: usize, [gate, up]: [Part<'_>; 2]) -> Self {
        Self::pack_all(cpu, k, [&[gate], &[up]])
    }

    /// Packs the matrices of several layers of the same shape, one layer after the other: [`GateUp::multiply`] numbers the
    /// blocks of all of them.
    pub(crate) fn pack_all(cpu: &Cpu, k: usize, [gates, ups]: [&[Part<'_>]; 2]) -> Self {
        let in_turns = gates.iter().zip(ups).all(|(gate, up)| gate.encoding == up.encoding);
        let parts: Vec<_> = match in_turns {
            true => {
                let layers = gates.iter().zip(ups);
                layers.flat_map(|(gate, up)| blocks(*gate).zip(blocks(*up)).flat_map(<[_; 2]>::from)).collect()
            }
            false => gates.iter().chain(ups).copied().collect(),
        };
        Self { matrix: Matrix::pack(cpu, k, &parts), in_turns }
    }

    /// Bytes in memory.
    pub(crate) fn bytes(&self) -> usize {
        self.matrix.bytes()
    }

    /// The forms of activations it reads.
    pub(crate) fn operand(&self) -> Operand {
        self.matrix.operand()
    }

    /// The contiguous weights from the first row on.
    pub(crate) fn first_panel(&self) -> &[u8] {
        self.matrix.first_panel()
    }

    /// Outputs of a block, `[gate, up][2][m]`.
    pub(crate) fn multiply(&self, cpu: &Cpu, block: usize, acts: &Acts, out: &mut [[f32; LANES]]) {
        for (index, out) in out.chunks_exact_mut(out.len() / (2 * TILES)).enumerate() {
            self.matrix.multiply(cpu, self.tile(block, index), acts, Onto::Nothing, out);
        }
    }

    /// Number of one of the tiles of a block, gate's first.
    fn tile(&self, block: usize, index: usize) -> usize {
        let (of_up, tile) = (index / TILES, index % TILES);
        match self.in_turns {
            true => (2 * block + of_up) * TILES + tile,
            false => of_up * (self.matrix.tiles() / 2) + block * TILES + tile,
        }
    }
}

/// The blocks of rows of a part.
fn blocks(part: Part<'_>) -> impl Iterator<Item = Part<'_>> {
    let bytes = part.bytes.chunks_exact(part.bytes.len() / part.rows * BLOCK);
    bytes.map(move |bytes| Part { rows: BLOCK, bytes, ..part })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::native::{matrix::RowOrder, testing::Noise};
    use draftscope_kernels::{Encoding, Isa, Load, Pool};

    fn part(encoding: Encoding, rows: usize, bytes: &[u8]) -> Part<'_> {
        Part { encoding, rows, bytes, order: RowOrder::Stored }
    }

    fn bytes(encoding: Encoding, rows: &[f32]) -> Vec<u8> {
        match encoding {
            Encoding::Q8_0 => rows.as_chunks().0.iter().flat_map(Encoding::to_q8_0).collect(),
            Encoding::Q4_1 => rows.as_chunks().0.iter().flat_map(Encoding::to_q4_1).collect(),
            _ => rows.iter().flat_map(|x| x.to_le_bytes()).collect(),
        }
    }

    #[test]
    fn outputs_are_those_of_the_two_matrices_whatever_they_are_stored_in() {
        let cpu = Cpu::new(Pool::new(2), Isa::detect());
        let (d_ff, k, m) = (96, 64, 3);
        let plain = [1, 2].map(|seed| Noise(seed).numbers(d_ff * k));
        let rows = Noise(3).numbers(m * k);
        for [a, b] in [
            [Encoding::Q4_1, Encoding::Q4_1],
            [Encoding::Q8_0, Encoding::Q4_1],
            [Encoding::F32, Encoding::F32],
            [Encoding::F32, Encoding::Q8_0],
        ] {
            let stored = [bytes(a, &plain[0]), bytes(b, &plain[1])];
            let parts = [part(a, d_ff, &stored[0]), part(b, d_ff, &stored[1])];
            let alone = parts.map(|part| Matrix::pack(&cpu, k, &[part]));
            let both = GateUp::pack(&cpu, k, parts);
            assert_eq!(both.bytes(), alone[0].bytes() + alone[1].bytes());
            let mut acts = Acts::default();
            acts.shape(m, k, both.operand());
            Load { rows: rows.as_chunks().0, out: &mut acts }.run_on(cpu.isa);
            for block in 0..d_ff / BLOCK {
                let mut got = vec![[0.0; LANES]; 2 * TILES * m];
                both.multiply(&cpu, block, &acts, &mut got);
                let mut expected = vec![[0.0; LANES]; 2 * TILES * m];
                for (index, out) in expected.chunks_exact_mut(m).enumerate() {
                    let tile = block * TILES + index % TILES;
                    alone[index / TILES].multiply(&cpu, tile, &acts, Onto::Nothing, out);
                }
                assert_eq!(got, expected, "{a:?} and {b:?}, block {block}");
            }
        }
    }
}
