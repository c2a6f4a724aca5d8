//! A matrix of `f32` rows, in which models and drafters exchange logits and hidden states.

use std::sync::{Arc, Mutex, PoisonError};

/// `len` rows of `width` values, row after row.
#[derive(Debug, Default)]
pub struct Rows {
    data: Vec<f32>,
    width: usize,
    /// Unused values at the end of `data`.
    spare: usize,
    /// Pool that gets `data` back on drop.
    home: Option<RowPool>,
}

/// Reuses the memory of rows. A model that returns large rows again and again, each time a different number of them,
/// writes to the same memory, which is still in the processor's caches and need not be cleared.
#[derive(Clone, Debug, Default)]
pub struct RowPool(Arc<Mutex<Vec<f32>>>);

impl RowPool {
    /// `len` rows of `width` values, to be overwritten: they contain values of earlier rows.
    #[must_use]
    pub fn rows(&self, len: usize, width: usize) -> Rows {
        let mut data = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        if data.len() < len * width {
            data.resize(len * width, 0.0);
        }
        let spare = data.len() - len * width;
        Rows { data, width, spare, home: Some(self.clone()) }
    }
}

impl Drop for Rows {
    fn drop(&mut self) {
        if let Some(RowPool(pool)) = self.home.take() {
            let mut pool = pool.lock().unwrap_or_else(PoisonError::into_inner);
            if pool.len() < self.data.len() {
                *pool = std::mem::take(&mut self.data);
            }
        }
    }
}

impl Clone for Rows {
    fn clone(&self) -> Self {
        Self::of(self.as_slice().to_vec(), self.width)
    }
}

impl PartialEq for Rows {
    fn eq(&self, other: &Self) -> bool {
        self.width == other.width && self.as_slice() == other.as_slice()
    }
}

impl Rows {
    /// Wraps row-major data.
    ///
    /// # Panics
    /// If `data` is not a whole number of rows.
    #[must_use]
    pub fn new(data: Vec<f32>, width: usize) -> Self {
        assert!(width > 0 && data.len().is_multiple_of(width), "{} values are not rows of {width}", data.len());
        Self::of(data, width)
    }

    fn of(data: Vec<f32>, width: usize) -> Self {
        Self { data, width, spare: 0, home: None }
    }

    /// No rows yet, of the given width.
    #[must_use]
    pub fn empty(width: usize) -> Self {
        Self::of(Vec::new(), width)
    }

    /// Number of rows.
    #[must_use]
    pub fn len(&self) -> usize {
        self.as_slice().len().checked_div(self.width).unwrap_or(0)
    }

    /// Whether there are no rows.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.as_slice().is_empty()
    }

    /// Values per row.
    #[must_use]
    pub fn width(&self) -> usize {
        self.width
    }

    /// Row `index`.
    ///
    /// # Panics
    /// If there is no such row.
    #[must_use]
    pub fn row(&self, index: usize) -> &[f32] {
        &self.as_slice()[index * self.width..(index + 1) * self.width]
    }

    /// The last row.
    #[must_use]
    pub fn last(&self) -> Option<&[f32]> {
        self.as_slice().chunks_exact(self.width.max(1)).next_back()
    }

    /// The last row alone.
    #[must_use]
    pub fn last_row(&self) -> Self {
        Self::of(self.last().map(<[f32]>::to_vec).unwrap_or_default(), self.width)
    }

    /// All rows, one after the other.
    pub fn iter(&self) -> impl Iterator<Item = &[f32]> {
        self.as_slice().chunks_exact(self.width.max(1))
    }

    /// All values, row after row.
    #[must_use]
    pub fn as_slice(&self) -> &[f32] {
        &self.data[..self.data.len() - self.spare]
    }

    /// All values, row after row, mutable.
    #[must_use]
    pub fn as_mut_slice(&mut self) -> &mut [f32] {
        let end = self.data.len() - self.spare;
        &mut self.data[..end]
    }

    /// Removes the unused values at the end.
    fn trim(&mut self) {
        self.data.truncate(self.data.len() - self.spare);
        self.spare = 0;
    }

    /// Appends the first `count` rows of `other`, which must be of the same width.
    ///
    /// # Panics
    /// If widths differ or `other` has fewer rows.
    pub fn extend(&mut self, other: &Self, count: usize) {
        assert_eq!(self.width, other.width, "rows of different widths");
        self.trim();
        self.data.extend_from_slice(&other.as_slice()[..count * other.width]);
    }

    /// Appends all rows of `other`; empty rows take its width.
    ///
    /// # Panics
    /// If widths differ.
    pub fn append(&mut self, other: &Self) {
        if self.is_empty() {
            self.width = other.width;
        }
        self.extend(other, other.len());
    }

    /// A copy of some rows.
    ///
    /// # Panics
    /// If there are fewer.
    #[must_use]
    pub fn slice(&self, rows: std::ops::Range<usize>) -> Self {
        Self::of(self.as_slice()[rows.start * self.width..rows.end * self.width].to_vec(), self.width)
    }

    /// A copy of some rows, in this order.
    ///
    /// # Panics
    /// If there is no such row.
    #[must_use]
    pub fn select(&self, rows: &[usize]) -> Self {
        let data = rows.iter().flat_map(|row| self.row(*row)).copied().collect();
        Self::of(data, self.width)
    }

    /// Removes all rows.
    pub fn clear(&mut self) {
        self.data.clear();
        self.spare = 0;
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

    #[test]
    fn a_pool_reuses_one_memory_and_rows_show_none_of_their_spare_values() {
        let pool = RowPool::default();
        let mut wide = pool.rows(3, 2);
        wide.as_mut_slice().copy_from_slice(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
        let (place, copy) = (wide.as_slice().as_ptr(), wide.clone());
        drop(wide);
        let mut narrow = pool.rows(1, 2);
        assert_eq!((narrow.as_slice().as_ptr(), narrow.len(), narrow.last()), (place, 1, Some(&[1.0, 2.0][..])));
        assert_eq!(narrow, Rows::new(vec![1.0, 2.0], 2));
        narrow.append(&Rows::new(vec![7.0, 8.0], 2));
        assert_eq!(narrow.as_slice(), [1.0, 2.0, 7.0, 8.0]);
        assert_eq!(pool.rows(2, 2).as_slice(), [0.0; 4], "memory in use is not given out again");
        assert_eq!(copy.slice(1..3), copy.select(&[1, 2]));
        narrow.clear();
        assert!(narrow.is_empty() && narrow.iter().next().is_none());
    }
}
