//! A weight matrix for each head, each of which multiplies rows of its own.
//!
//! The matrices of all heads follow each other in one [`Matrix`], so that one pass over its tiles serves all heads. Sizes
//! that fill no whole blocks and tiles are padded with zeros. Invariant: the bits of a row do not depend on the rows beside
//! it, on threads or on the instruction set.

use super::{
    head,
    matrix::{Cpu, Matrix, RowOrder},
    tensors::RawTensor,
};
use crate::ModelError;
use crate::files::Stored;
use crate::nn::HeadShape;
use draftscope_host::fatal::OutOfMemory;
use draftscope_kernels::{Acts, BLOCK, LANES, Onto};

/// Most tiles that are kept for the next product: 512 KiB.
const KEPT_TILES: usize = 1 << 13;

/// Rows of each head in the form that matrices read, and their products, `[heads][rows / 16][m]`.
#[derive(Debug, Default)]
pub(super) struct HeadMemory {
    acts: Vec<Acts>,
    tiles: Vec<[f32; LANES]>,
}

/// The matrices of all heads.
#[derive(Debug)]
pub(crate) struct HeadMatrices {
    shape: HeadShape,
    /// `[heads · out, in]`, both padded.
    matrix: Matrix,
}

/// The matrices with whole blocks of inputs and whole tiles of outputs.
fn padded<'a>(stored: Stored<'a>, shape: HeadShape) -> Result<(Stored<'a>, HeadShape), ModelError> {
    let HeadShape { heads, out, input } = shape;
    let whole = HeadShape { heads, out: out.next_multiple_of(LANES), input: input.next_multiple_of(BLOCK) };
    if whole == shape {
        return Ok((stored, whole));
    }
    let numbers = stored.to_f32(&[heads, out, input])?;
    OutOfMemory::unless_there_are(whole.heads * whole.out * whole.input * size_of::<f32>());
    let mut wide = vec![0.0; whole.heads * whole.out * whole.input];
    for (from, to) in numbers.chunks_exact(out * input).zip(wide.chunks_exact_mut(whole.out * whole.input)) {
        for (from, to) in from.chunks_exact(input).zip(to.chunks_exact_mut(whole.input)) {
            to[..input].copy_from_slice(from);
        }
    }
    Ok((Stored::of_numbers(&wide), whole))
}

impl HeadMatrices {
    /// Packs matrices `[heads, out, in]`; the tensor's name is for messages.
    ///
    /// # Errors
    /// [`ModelError::Unsupported`] for encodings that the kernels do not support.
    pub(super) fn pack(stored: Stored<'_>, name: &str, shape: HeadShape, cpu: &Cpu) -> Result<Self, ModelError> {
        let (stored, whole) = padded(stored.compact(), shape)?;
        let rows = whole.heads * whole.out;
        let raw = RawTensor::new(stored, name, (rows, whole.input))?;
        let matrix = Matrix::pack(cpu, whole.input, &[raw.part(rows, RowOrder::Stored)]);
        Ok(Self { shape, matrix })
    }

    /// Bytes in memory.
    pub(super) fn bytes(&self) -> usize {
        self.matrix.bytes()
    }

    /// Rows `[m, in]` of a head as activations.
    fn load(&self, cpu: &Cpu, rows: &[f32], out: &mut Acts) {
        let (input, k) = (self.shape.input, self.matrix.k());
        if input == k {
            return head::operand(cpu, &self.matrix, rows.as_chunks().0, out);
        }
        let mut wide = vec![0.0; rows.len() / input * k];
        for (from, to) in rows.chunks_exact(input).zip(wide.chunks_exact_mut(k)) {
            to[..input].copy_from_slice(from);
        }
        head::operand(cpu, &self.matrix, wide.as_chunks().0, out);
    }

    /// Rows of each head, at most [`PROMPT_ROWS`](draftscope_kernels::PROMPT_ROWS) of its `m`: `x [heads, m, in]`, `out [heads, m, out]`.
    pub(super) fn pass(
        &self,
        (cpu, memory): (&Cpu, &mut HeadMemory),
        (x, m): (&[f32], usize),
        rows: std::ops::Range<usize>,
        out: &mut [f32],
    ) {
        let HeadShape { heads, out: width, input } = self.shape;
        let HeadMemory { acts, tiles } = memory;
        let (count, each) = (rows.len(), self.matrix.tiles() / heads);
        acts.resize_with(acts.len().max(heads), Acts::default);
        cpu.pool.each(&mut acts[..heads], |head, acts| {
            let own = &x[head * m * input..][rows.start * input..rows.end * input];
            self.load(cpu, own, acts);
        });
        tiles.resize(heads * each * count, [0.0; LANES]);
        let grain = cpu.grain(heads * each);
        cpu.pool.chunks(tiles, grain * count, |item, tiles| {
            for (tile, tiles) in tiles.chunks_exact_mut(count).enumerate() {
                let tile = item * grain + tile;
                self.matrix.multiply(cpu, tile, &acts[tile / each], Onto::Nothing, tiles);
            }
        });
        for (tiles, out) in tiles.chunks_exact(each * count).zip(out.chunks_exact_mut(m * width)) {
            for (row, out) in out.chunks_exact_mut(width).skip(rows.start).take(count).enumerate() {
                for (to, tile) in out.chunks_mut(LANES).zip(tiles[row..].iter().step_by(count)) {
                    to.copy_from_slice(&tile[..to.len()]);
                }
            }
        }
        if tiles.len() > KEPT_TILES {
            (*acts, *tiles) = (Vec::new(), Vec::new());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::native::{matrix::tests::stored, testing::Noise};
    use draftscope_kernels::{Encoding, Isa, PROMPT_ROWS, Pool};

    /// Matrices, and what they run on.
    struct Packed(HeadMatrices, Cpu);

    impl Packed {
        /// `[heads, m, in] -> [heads, m, out]`
        fn forward(&self, x: &[f32]) -> Vec<f32> {
            let HeadShape { heads, out: width, input } = self.0.shape;
            let m = x.len() / (heads * input);
            let (mut out, mut memory) = (vec![0.0; heads * m * width], HeadMemory::default());
            for first in (0..m).step_by(PROMPT_ROWS) {
                self.0.pass((&self.1, &mut memory), (x, m), first..m.min(first + PROMPT_ROWS), &mut out);
            }
            out
        }
    }

    fn packed(cpu: Cpu, (encoding, bytes): (Encoding, &[u8]), shape: HeadShape) -> Packed {
        Packed(HeadMatrices::pack(Stored::new(encoding, bytes), "a", shape, &cpu).unwrap(), cpu)
    }

    #[test]
    fn each_head_multiplies_its_own_rows() {
        for (encoding, [heads, out, input], limit) in [
            (Encoding::F32, [3, 5, 12], 1e-6),
            (Encoding::F32, [2, 32, 64], 1e-6),
            (Encoding::Q8_0, [5, 24, 64], 0.02),
            (Encoding::Q4K, [4, 16, 256], 0.02),
        ] {
            let (bytes, numbers) = stored(encoding, heads * out, input, 3);
            let shape = HeadShape { heads, out, input };
            let matrices = packed(Cpu::new(Pool::new(2), Isa::detect()), (encoding, &bytes), shape);
            for m in [1, 3, 130] {
                let x = Noise(m as u64).numbers(heads * m * input);
                let got = matrices.forward(&x);
                let (mut error, mut size) = (0.0, 0.0);
                for (at, got) in got.iter().enumerate() {
                    let (head, row, to) = (at / (m * out), at / out % m, at % out);
                    let weights = &numbers[(head * out + to) * input..][..input];
                    let products = weights.iter().zip(&x[(head * m + row) * input..]);
                    let want: f64 = products.map(|(w, x)| f64::from(*w) * f64::from(*x)).sum();
                    error += (f64::from(*got) - want).powi(2);
                    size += want * want;
                }
                assert!((error / size).sqrt() < limit, "{encoding:?}, {m} rows: {}", (error / size).sqrt());
            }
        }
    }

    #[test]
    fn bits_do_not_depend_on_rows_threads_or_the_instruction_set() {
        let shape = HeadShape { heads: 3, out: 40, input: 64 };
        for encoding in [Encoding::F32, Encoding::Bf16, Encoding::Q5_0] {
            let (bytes, _) = stored(encoding, 120, 64, 7);
            let x = Noise(1).numbers(3 * 9 * 64);
            let whole = packed(Cpu::new(Pool::new(1), Isa::PORTABLE), (encoding, &bytes), shape).forward(&x);
            for isa in Isa::available() {
                let matrices = packed(Cpu::new(Pool::new(3), isa), (encoding, &bytes), shape);
                assert!(matrices.forward(&x) == whole, "{}", isa.name());
                for row in 0..9 {
                    let one = |all: &[f32], width: usize| -> Vec<f32> {
                        all.chunks_exact(9 * width).flat_map(|head| head[row * width..][..width].to_vec()).collect()
                    };
                    assert!(matrices.forward(&one(&x, 64)) == one(&whole, 40), "{} row {row}", isa.name());
                }
            }
        }
    }

    #[test]
    fn quantised_rows_that_are_no_whole_blocks_are_rejected() {
        let shape = HeadShape { heads: 2, out: 16, input: 64 };
        let cpu = Cpu::new(Pool::new(1), Isa::detect());
        let error =
            HeadMatrices::pack(Stored::new(Encoding::Q4K, &[0; 144]), "a", shape, &cpu).unwrap_err().to_string();
        assert!(error.contains("'a'"), "{error}");
    }
}
