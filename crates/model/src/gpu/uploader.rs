//! A model's tensors, packed and uploaded one after the other.

use draftscope_gpu::{Buffer, Gpu, Matrix, StoredRows};
use draftscope_kernels::Encoding;

use crate::ModelError;
use crate::files::{Stored, TensorSource};
use crate::nn::{PairOrder, RopeSpec};
use crate::plan::{self, Norm, Rows, Vector};

/// Uploads tensors of a model's files.
#[derive(Clone, Copy)]
pub(super) struct Uploader<'a> {
    pub(super) gpu: &'a Gpu,
    pub(super) source: &'a dyn TensorSource,
    /// Whether norms stay as they are stored: a draft module's conventions define their meaning.
    pub(super) norms_as_stored: bool,
}

/// In which order a matrix takes the rows that a plan names.
#[derive(Clone, Copy)]
pub(super) enum Order {
    /// As the plan names them.
    Planned,
    /// Heads of so many rows, of which the first are rotated; pairs of these become halves.
    Rotated { pairs: PairOrder, head_dim: usize, rotary: usize },
}

impl Order {
    /// The planned row at the place of row `row`.
    fn of(self, row: usize) -> usize {
        let Self::Rotated { pairs: PairOrder::Interleaved, head_dim, rotary } = self else { return row };
        let (head, i, half) = (row / head_dim * head_dim, row % head_dim, rotary / 2);
        match i {
            _ if i < half => head + 2 * i,
            _ if i < 2 * half => head + 2 * (i - half) + 1,
            _ => row,
        }
    }

    /// Rows that must lie in one tensor.
    fn unit(self) -> usize {
        match self {
            Self::Planned => 1,
            Self::Rotated { head_dim, .. } => head_dim,
        }
    }
}

/// Rows of a tensor, and the places of those that are taken.
struct Taken<'a> {
    stored: Stored<'a>,
    rows: usize,
    place: Box<dyn Fn(usize) -> usize + 'a>,
}

impl Taken<'_> {
    fn source(&self) -> StoredRows<'_> {
        let (encoding, bytes) = (self.stored.encoding(), self.stored.bytes());
        StoredRows { encoding, bytes, order: &*self.place, rows: self.rows }
    }
}

/// Cosine and sine of each position and pair of a head, `[positions][head_dim / 2]`.
pub(crate) fn angles(gpu: &Gpu, rope: &RopeSpec, head_dim: usize, positions: usize) -> Buffer {
    let (frequencies, amplitude) = (rope.frequencies(head_dim, positions), rope.amplitude());
    let angle = |(position, frequency): (usize, &f64)| {
        let (sin, cos) = (position as f64 * frequency).sin_cos();
        [cos, sin].map(|x| (x * amplitude) as f32)
    };
    let all: Vec<[f32; 2]> =
        (0..positions).flat_map(|position| frequencies.iter().map(move |f| (position, f))).map(angle).collect();
    gpu.upload(&all)
}

impl<'a> Uploader<'a> {
    /// A matrix in a plan's order.
    pub(super) fn matrix(&self, matrix: &plan::Matrix) -> Result<Matrix, ModelError> {
        self.stack(&[(matrix, Order::Planned)])
    }

    /// Matrices of equally many columns below each other.
    pub(super) fn stack(&self, parts: &[(&plan::Matrix, Order)]) -> Result<Matrix, ModelError> {
        let k = parts.first().map_or(0, |(matrix, _)| matrix.columns);
        let mut taken = Vec::new();
        for (matrix, order) in parts {
            taken.extend(self.taken(matrix, *order)?);
        }
        let sources: Vec<_> = taken.iter().map(Taken::source).collect();
        let uploaded = Matrix::upload(self.gpu, k, &sources)?;
        self.release(parts.iter().map(|(matrix, _)| *matrix));
        Ok(uploaded)
    }

    /// Two matrices in one form: one kernel reads both.
    pub(super) fn same_form(&self, parts: [&plan::Matrix; 2]) -> Result<[Matrix; 2], ModelError> {
        let [a, b] = parts.map(|matrix| self.taken(matrix, Order::Planned));
        let taken = [a?, b?];
        let encodings: Vec<_> = taken.iter().flatten().map(|rows| rows.stored.encoding()).collect();
        let upload = |index: usize| {
            let sources: Vec<_> = taken[index].iter().map(Taken::source).collect();
            Matrix::upload_as(self.gpu, (parts[index].columns, &encodings), &sources)
        };
        let uploaded = [upload(0)?, upload(1)?];
        self.release(parts);
        Ok(uploaded)
    }

    /// Matrices that are whole tensors below each other, as numbers that are not rounded; one of one row may be stored as a
    /// vector.
    pub(super) fn numbers(&self, parts: &[&plan::Matrix]) -> Result<Matrix, ModelError> {
        let (k, mut bytes) = (parts.first().map_or(0, |matrix| matrix.columns), Vec::new());
        for matrix in parts {
            let shape = [matrix.rows, k];
            let numbers = match self.source.stored(matrix.name(), &shape) {
                Ok(stored) => stored.to_f32(&shape)?,
                Err(_) if matrix.rows == 1 => self.source.vector(matrix.name(), k)?,
                Err(error) => return Err(error),
            };
            bytes.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
        }
        let rows = parts.iter().map(|matrix| matrix.rows).sum();
        let source = StoredRows { encoding: Encoding::F32, bytes: &bytes, order: &|row| row, rows };
        Ok(Matrix::upload(self.gpu, k, &[source])?)
    }

    /// A matrix `[rows, count k]` that is a whole tensor as one matrix for each k columns.
    pub(super) fn columns(&self, matrix: &plan::Matrix, count: usize) -> Result<Vec<Matrix>, ModelError> {
        let (name, k, rows) = (matrix.name(), matrix.columns / count, matrix.rows);
        let stored = self.source.stored(name, &[rows, count * k])?.compact();
        let encoding = stored.encoding();
        let part_row = encoding.row_bytes(k);
        if part_row.and_then(|part| (count * rows).checked_mul(part)) != Some(stored.bytes().len()) {
            return Err(odd_rows(name, k));
        }
        // rows of so many parts are as many rows of k columns
        let part = |index: usize| {
            let order = move |row: usize| count * row + index;
            let rows = StoredRows { encoding, bytes: stored.bytes(), order: &order, rows };
            Ok(Matrix::upload(self.gpu, k, &[rows])?)
        };
        (0..count).map(part).collect()
    }

    fn taken(&self, matrix: &plan::Matrix, order: Order) -> Result<Vec<Taken<'a>>, ModelError> {
        let k = matrix.columns;
        let of_rows = |rows: &Rows| {
            let name = &rows.tensor.name;
            let stored = self.source.stored(name, &rows.tensor.shape)?.compact();
            let bytes = stored.encoding().row_bytes(k).and_then(|row| row.checked_mul(rows.stored()));
            if bytes != Some(stored.bytes().len()) {
                return Err(odd_rows(name, k));
            }
            if !rows.taken().is_multiple_of(order.unit()) {
                return Err(ModelError::Metadata(format!("'{name}' does not have the rows of whole heads")));
            }
            let (taken, places) = (rows.taken(), rows.clone());
            Ok(Taken { stored, rows: taken, place: Box::new(move |row| places.place(order.of(row))) })
        };
        matrix.stored.iter().map(of_rows).collect()
    }

    fn release<'m>(&self, matrices: impl IntoIterator<Item = &'m plan::Matrix>) {
        let rows = matrices.into_iter().flat_map(|matrix| &matrix.stored);
        rows.for_each(|rows| self.source.release(&rows.tensor.name));
    }

    /// The biases of matrices one after the other; `None` if they have none.
    pub(super) fn biases(&self, parts: &[(&plan::Matrix, Order)]) -> Result<Option<Buffer>, ModelError> {
        let mut all = Vec::new();
        for (matrix, order) in parts {
            let Some(Vector { name, len }) = &matrix.bias else { return Ok(None) };
            let bias = self.source.vector(name, *len)?;
            all.extend((0..bias.len()).map(|row| bias.get(order.of(row)).copied().unwrap_or(0.0)));
        }
        Ok(Some(self.gpu.upload(&all)))
    }

    /// The weights of a norm of rows of `len` numbers, on the host.
    pub(super) fn norm_weights(&self, norm: &Norm, len: usize) -> Result<Vec<f32>, ModelError> {
        let norm = Norm { centred: norm.centred && !self.norms_as_stored, ..norm.clone() };
        norm.read(self.source, len)
    }

    /// The same in device memory.
    pub(super) fn norm(&self, norm: &Norm, len: usize) -> Result<Buffer, ModelError> {
        Ok(self.gpu.upload(&self.norm_weights(norm, len)?))
    }
}

fn odd_rows(name: &str, k: usize) -> ModelError {
    ModelError::Unsupported(format!(
        "the GPU backend needs rows of whole blocks, and those of tensor '{name}' ({k} weights) are not; choose --device cpu"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_become_halves_of_what_is_rotated_of_each_head() {
        let order = |pairs| Order::Rotated { pairs, head_dim: 6, rotary: 4 };
        let places: Vec<_> = (0..12).map(|row| order(PairOrder::Interleaved).of(row)).collect();
        assert_eq!(places, [0, 2, 1, 3, 4, 5, 6, 8, 7, 9, 10, 11]);
        assert!((0..12).all(|row| order(PairOrder::HalfSplit).of(row) == row && Order::Planned.of(row) == row));
    }
}
