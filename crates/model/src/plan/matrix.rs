//! Tensors that a plan names: matrices, vectors and norms.

use crate::files::TensorSource;

/// A tensor of the files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tensor {
    /// Its name in GGUF files.
    pub name: String,
    /// Its shape, outermost dimension first.
    pub shape: Vec<usize>,
}

/// Rows of a tensor `[…, columns]`, whose leading dimensions count as one: `count` times `len` rows, the first at `first`,
/// each later group `step` rows after the one before it.
///
/// ```text
///   first = 1, len = 2, step = 5, count = 3:   · █ █ · ·  · █ █ · ·  · █ █ · ·
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rows {
    /// The tensor.
    pub tensor: Tensor,
    /// Its first row that is taken.
    pub first: usize,
    /// Rows of a group.
    pub len: usize,
    /// Rows from one group to the next.
    pub step: usize,
    /// Groups.
    pub count: usize,
}

impl Rows {
    /// All rows of a tensor `[rows, columns]`.
    #[must_use]
    pub fn all(name: impl Into<String>, [rows, columns]: [usize; 2]) -> Self {
        Self::some(name, [rows, columns], (0, rows), (rows, 1))
    }

    /// Rows of a tensor `[rows, columns]`: from `first` on, `len` in each of `count` groups, which begin every `step` rows.
    #[must_use]
    pub fn some(
        name: impl Into<String>,
        [rows, columns]: [usize; 2],
        (first, len): (usize, usize),
        (step, count): (usize, usize),
    ) -> Self {
        Self { tensor: Tensor { name: name.into(), shape: vec![rows, columns] }, first, len, step, count }
    }

    /// Number of rows taken.
    #[must_use]
    pub fn taken(&self) -> usize {
        self.len * self.count
    }

    /// Rows that the tensor has.
    #[must_use]
    pub fn stored(&self) -> usize {
        let leading = self.tensor.shape.len().saturating_sub(1);
        self.tensor.shape[..leading].iter().product()
    }

    /// Whether these are all rows of the tensor, in their order.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.first == 0 && self.taken() == self.stored() && (self.count == 1 || self.step == self.len)
    }

    /// Place of a taken row among the stored ones.
    #[must_use]
    pub fn place(&self, row: usize) -> usize {
        self.first + row / self.len * self.step + row % self.len
    }

    /// The places of all rows taken, in order.
    pub fn places(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.taken()).map(|row| self.place(row))
    }
}

/// A matrix `[rows, columns]` that rows of the stream, or of something made from it, are multiplied with: `y = W x + bias`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Matrix {
    /// Numbers of `y`.
    pub rows: usize,
    /// Numbers of `x`.
    pub columns: usize,
    /// Where its rows are stored, in order: usually all rows of one tensor. A tensor whose matrix has one row may be stored
    /// as a vector.
    pub stored: Vec<Rows>,
    /// Added to `y`.
    pub bias: Option<Vector>,
}

impl Matrix {
    /// A whole tensor.
    #[must_use]
    pub fn whole(name: impl Into<String>, [rows, columns]: [usize; 2]) -> Self {
        Self::of(vec![Rows::all(name, [rows, columns])], columns)
    }

    /// Rows of tensors with as many columns, below each other.
    #[must_use]
    pub fn of(stored: Vec<Rows>, columns: usize) -> Self {
        Self { rows: stored.iter().map(Rows::taken).sum(), columns, stored, bias: None }
    }

    /// The same with a bias, unless it is `None`.
    #[must_use]
    pub fn with_bias(self, bias: Option<Vector>) -> Self {
        Self { bias, ..self }
    }

    /// Number of weights.
    #[must_use]
    pub fn weights(&self) -> u64 {
        self.rows as u64 * self.columns as u64
    }

    /// Name of the first tensor that it is stored in, for messages.
    #[must_use]
    pub fn name(&self) -> &str {
        self.stored.first().map_or("", |rows| &rows.tensor.name)
    }
}

/// A vector of plain numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vector {
    /// Its tensor's name.
    pub name: String,
    /// Its length.
    pub len: usize,
}

/// RMSNorm: `x / √(mean(x²) + eps) · w`, which brings a row to a common length (Zhang and Sennrich, arXiv:1910.07467).
#[derive(Clone, Debug, PartialEq)]
pub struct Norm {
    /// `w`; `None` = 1 everywhere.
    pub weight: Option<Vector>,
    /// Whether `w − 1` is stored, as in checkpoints of some families.
    pub centred: bool,
    /// Added before the root.
    pub eps: f32,
}

impl Norm {
    /// The weights as they multiply, so many as the normed row has numbers.
    ///
    /// # Errors
    /// When the tensor is missing, misshapen or damaged.
    pub fn read(&self, files: &dyn TensorSource, len: usize) -> Result<Vec<f32>, crate::ModelError> {
        let Some(weight) = &self.weight else { return Ok(vec![1.0; len]) };
        let mut weights = files.vector(&weight.name, weight.len)?;
        if self.centred {
            weights.iter_mut().for_each(|weight| *weight += 1.0);
        }
        Ok(weights)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_of_rows_are_where_the_picture_has_them() {
        let rows = Rows::some("x", [15, 4], (1, 2), (5, 3));
        assert_eq!(rows.places().collect::<Vec<_>>(), [1, 2, 6, 7, 11, 12]);
        assert_eq!((rows.taken(), rows.stored(), rows.is_whole()), (6, 15, false));
        assert!(Rows::all("x", [15, 4]).is_whole());
        assert!(Rows::some("x", [15, 4], (0, 5), (5, 3)).is_whole());
        assert!(!Rows::some("x", [15, 4], (0, 5), (5, 2)).is_whole());
        let joined = Matrix::of(vec![rows, Rows::all("y", [3, 4])], 4);
        assert_eq!((joined.rows, joined.weights(), joined.name()), (9, 36, "x"));
    }
}
