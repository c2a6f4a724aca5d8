//! A matrix of `f32` rows: what crosses the model seams.

/// `len` rows of `width` values, row after row.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rows {
    data: Vec<f32>,
    width: usize,
}

impl Rows {
    /// Wraps row-major data.
    ///
    /// # Panics
    /// When `data` is not a whole number of rows.
    #[must_use]
    pub fn new(data: Vec<f32>, width: usize) -> Self {
        assert!(width > 0 && data.len().is_multiple_of(width), "{} values are no rows of {width}", data.len());
        Self { data, width }
    }

    /// No rows yet, of the given width.
    #[must_use]
    pub fn empty(width: usize) -> Self {
        Self { data: Vec::new(), width }
    }

    /// Number of rows.
    #[must_use]
    pub fn len(&self) -> usize {
        self.data.len().checked_div(self.width).unwrap_or(0)
    }

    /// Whether there is no row.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.data.is_empty()
    }

    /// Values per row.
    #[must_use]
    pub fn width(&self) -> usize {
        self.width
    }

    /// Row `index`.
    ///
    /// # Panics
    /// When there is no such row.
    #[must_use]
    pub fn row(&self, index: usize) -> &[f32] {
        &self.data[index * self.width..(index + 1) * self.width]
    }

    /// The last row.
    #[must_use]
    pub fn last(&self) -> Option<&[f32]> {
        self.data.chunks_exact(self.width.max(1)).next_back()
    }

    /// The last row alone.
    #[must_use]
    pub fn last_row(&self) -> Self {
        Self { data: self.last().map(<[f32]>::to_vec).unwrap_or_default(), width: self.width }
    }

    /// All rows, one after the other.
    pub fn iter(&self) -> impl Iterator<Item = &[f32]> {
        self.data.chunks_exact(self.width.max(1))
    }

    /// All values, row after row.
    #[must_use]
    pub fn as_slice(&self) -> &[f32] {
        &self.data
    }

    /// Appends the first `count` rows of `other`, which must be of the same width.
    ///
    /// # Panics
    /// When widths differ or `other` has fewer rows.
    pub fn extend(&mut self, other: &Self, count: usize) {
        assert_eq!(self.width, other.width, "rows of different widths");
        self.data.extend_from_slice(&other.data[..count * other.width]);
    }

    /// Appends all rows of `other`; the first ones appended give the width.
    ///
    /// # Panics
    /// When widths differ.
    pub fn append(&mut self, other: &Self) {
        if self.data.is_empty() {
            self.width = other.width;
        }
        self.extend(other, other.len());
    }

    /// A copy of some rows.
    ///
    /// # Panics
    /// When there are fewer.
    #[must_use]
    pub fn slice(&self, rows: std::ops::Range<usize>) -> Self {
        Self { data: self.data[rows.start * self.width..rows.end * self.width].to_vec(), width: self.width }
    }

    /// A copy of some rows, in this order.
    ///
    /// # Panics
    /// When there is no such row.
    #[must_use]
    pub fn select(&self, rows: &[usize]) -> Self {
        Self { data: rows.iter().flat_map(|row| self.row(*row)).copied().collect(), width: self.width }
    }

    /// Removes all rows.
    pub fn clear(&mut self) {
        self.data.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_addressed_and_appended() {
        let mut rows = Rows::new(vec![1.0, 2.0, 3.0, 4.0], 2);
        assert_eq!((rows.len(), rows.row(1), rows.last()), (2, &[3.0, 4.0][..], Some(&[3.0, 4.0][..])));
        rows.extend(&Rows::new(vec![5.0, 6.0, 7.0, 8.0], 2), 1);
        assert_eq!(rows.as_slice(), [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
        rows.clear();
        assert!(rows.is_empty() && rows.last().is_none());
    }
}
