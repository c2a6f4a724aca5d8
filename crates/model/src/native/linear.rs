//! A single weight matrix on the native kernels, for models whose other parts run elsewhere.
//!
//! Invariant: as everywhere in this backend, the bits of a row do not depend on the rows beside it, on threads or on
//! the instruction set.

use std::sync::{Arc, Mutex, PoisonError};

use super::{
    head,
    matrix::{Cpu, Matrix, RowOrder},
    tensors::RawTensor,
    threads,
};
use crate::ModelError;
use crate::files::{ModelFiles, Stored};
use crate::nn::MatMul;
use draftscope_kernels::{Acts, Isa, LANES, Onto, PROMPT_ROWS, Pool};

/// Rows in the form that matrices read, and their products in the form that matrices write, `[rows / 16][m]`.
#[derive(Debug, Default)]
struct RowMemory {
    acts: Acts,
    tiles: Vec<[f32; LANES]>,
}

/// Most tiles that are kept for the next product: 512 KiB.
pub(super) const KEPT_TILES: usize = 1 << 13;

/// Threads and memory that matrices of one model share.
#[derive(Clone, Debug)]
pub struct NativeCpu {
    cpu: Arc<Cpu>,
    /// Matrices run one after the other, so one such memory is enough.
    rows: Arc<Mutex<RowMemory>>,
}

impl NativeCpu {
    /// A number of threads, including the caller; `None` takes all cores.
    #[must_use]
    pub fn new(threads: Option<usize>) -> Self {
        let cpu = Cpu::new(Pool::new(threads.unwrap_or_else(threads::available)), Isa::detect());
        Self { cpu: Arc::new(cpu), rows: Arc::default() }
    }

    /// A matrix that exists already, memory shared.
    pub(crate) fn wrapped(&self, matrix: Matrix) -> NativeLinear {
        NativeLinear { cpu: self.cpu.clone(), matrix, rows: Arc::clone(&self.rows) }
    }
}

fn check_width(name: &str, k: usize) -> Result<(), ModelError> {
    match k.is_multiple_of(draftscope_kernels::BLOCK) {
        true => Ok(()),
        false => Err(ModelError::Unsupported(format!(
            "the native backend needs rows of whole blocks of 32, and those of '{name}' are {k} wide"
        ))),
    }
}

/// Weights `[rows, k]` as they are stored.
#[derive(Clone, Debug)]
pub struct NativeLinear {
    cpu: Arc<Cpu>,
    matrix: Matrix,
    rows: Arc<Mutex<RowMemory>>,
}

impl NativeLinear {
    /// Packs a tensor of this shape and releases its file pages.
    ///
    /// # Errors
    /// [`ModelError::Unsupported`] for encodings and widths that the kernels do not support.
    pub fn load(source: &ModelFiles, name: &str, [rows, k]: [usize; 2], cpu: &NativeCpu) -> Result<Self, ModelError> {
        let packed = Self::pack(source.stored(name, &[rows, k])?, name, [rows, k], cpu)?;
        source.release(name);
        Ok(packed)
    }

    /// Packs a matrix of this shape; the tensor's name is for messages.
    ///
    /// # Errors
    /// As [`NativeLinear::load`].
    pub fn pack(stored: Stored<'_>, name: &str, [rows, k]: [usize; 2], cpu: &NativeCpu) -> Result<Self, ModelError> {
        check_width(name, k)?;
        let raw = RawTensor::new(stored, name, (rows, k))?;
        let matrix = Matrix::pack(&cpu.cpu, k, &[raw.part(rows, RowOrder::Stored)]);
        Ok(cpu.wrapped(matrix))
    }

    /// `[rows / 16][m]`
    fn multiply(&self, acts: &Acts, tiles: &mut [[f32; LANES]]) {
        let (m, grain) = (acts.m(), self.cpu.grain(self.matrix.tiles()));
        self.cpu.pool.chunks(tiles, grain * m, |item, tiles| {
            for (tile, tiles) in tiles.chunks_exact_mut(m).enumerate() {
                self.matrix.multiply(&self.cpu, item * grain + tile, acts, Onto::Nothing, tiles);
            }
        });
    }

    /// At most [`PROMPT_ROWS`] rows.
    fn pass(&self, x: &[f32], out: &mut [f32]) {
        let m = x.len() / self.matrix.k();
        let RowMemory { acts, tiles } = &mut *self.rows.lock().unwrap_or_else(PoisonError::into_inner);
        head::operand(&self.cpu, &self.matrix, x.as_chunks().0, acts);
        if let (1, (tiles, [])) = (m, out.as_chunks_mut()) {
            return self.multiply(acts, tiles); // tiles of a single row follow each other as its outputs do
        }
        tiles.resize(self.matrix.tiles() * m, [0.0; LANES]);
        self.multiply(acts, tiles);
        for (row, out) in out.chunks_exact_mut(self.matrix.rows()).enumerate() {
            for (to, tile) in out.chunks_mut(LANES).zip(tiles[row..].iter().step_by(m)) {
                to.copy_from_slice(&tile[..to.len()]);
            }
        }
        if tiles.len() > KEPT_TILES {
            *tiles = Vec::new();
        }
    }
}

impl MatMul for NativeLinear {
    fn forward(&self, x: &[f32]) -> Vec<f32> {
        let (k, rows) = (self.matrix.k(), self.matrix.rows());
        let mut out = vec![0.0; x.len() / k * rows];
        let parts = x.chunks(PROMPT_ROWS * k).zip(out.chunks_mut(PROMPT_ROWS * rows));
        parts.for_each(|(x, out)| self.pass(x, out));
        out
    }

    fn row(&self, index: usize) -> Option<Vec<f32>> {
        let mut row = vec![0.0; self.matrix.k()];
        (index < self.matrix.rows()).then(|| self.matrix.row(index, &mut row))?;
        Some(row)
    }

    fn width(&self) -> usize {
        self.matrix.k()
    }

    fn bytes(&self) -> u64 {
        self.matrix.bytes() as u64
    }
}
