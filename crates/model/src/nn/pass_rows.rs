//! The rows of a pass: where they stand in the caches, and which of them see which.
//!
//! Invariant: masks and depths, which are made on the host, are copied to the device once a pass; all layers use them.

use std::cell::RefCell;
use std::ops::Range;

use candle_core::{Device, Tensor};

use crate::{ModelError, tree_depths};

/// Rows of a prompt that run at once: limits the memory of a pass.
pub(crate) const PREFILL_ROWS: usize = 256;

/// Most rows that attend one by one; prefill blocks are wider.
pub const ROW_BY_ROW: usize = 16;

/// The rows of a tree: for each the rows from the root to it, itself included.
#[derive(Clone, Debug)]
pub struct TreeRows(Vec<Vec<usize>>);

impl TreeRows {
    /// The tree in which row `i` continues row `parents[i]`.
    ///
    /// # Errors
    /// As [`tree_depths`].
    pub fn new(parents: &[usize]) -> Result<Self, ModelError> {
        let mut paths: Vec<Vec<usize>> = Vec::with_capacity(tree_depths(parents)?.len());
        for (row, parent) in parents.iter().enumerate() {
            let before = if row == 0 { &[][..] } else { &paths[*parent] };
            paths.push(before.iter().copied().chain([row]).collect());
        }
        Ok(Self(paths))
    }

    /// The row that each row after the first continues.
    pub(crate) fn parents(&self) -> impl Iterator<Item = usize> {
        self.0.iter().filter_map(|path| path.iter().rev().nth(1).copied())
    }
}

/// Positions that a row sees: a range, and then these.
pub(crate) struct Seen {
    pub(crate) range: Range<usize>,
    pub(crate) and: Vec<usize>,
}

impl Seen {
    /// The same positions as one range, if they have no gaps.
    pub(crate) fn whole(&self) -> Option<Range<usize>> {
        let start = if self.range.is_empty() { *self.and.first()? } else { self.range.start };
        let next = start + self.range.len();
        let follows = self.and.iter().zip(next..).all(|(at, next)| *at == next);
        follows.then(|| start..next + self.and.len())
    }
}

/// The rows of a pass, which the caches contain from position `start` on once a layer has appended them.
pub struct PassRows {
    start: usize,
    count: usize,
    /// `None` if every row continues the one before it.
    tree: Option<TreeRows>,
    /// Depth of each row of a tree.
    depths: RefCell<Option<Tensor>>,
    /// Masks that layers of this pass read, by their window.
    masks: RefCell<Vec<(Option<usize>, Tensor)>>,
}

impl PassRows {
    /// Rows each of which continues the one before it.
    #[must_use]
    pub fn chain(start: usize, count: usize) -> Self {
        Self { start, count, tree: None, depths: RefCell::default(), masks: RefCell::default() }
    }

    /// The rows of a tree.
    #[must_use]
    pub fn tree(start: usize, tree: &TreeRows) -> Self {
        Self { tree: Some(tree.clone()), ..Self::chain(start, tree.0.len()) }
    }

    /// Positions before the rows.
    #[must_use]
    pub fn start(&self) -> usize {
        self.start
    }

    /// Positions with the rows.
    pub(crate) fn end(&self) -> usize {
        self.start + self.count
    }

    /// Number of rows.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// Whether they are too many to attend one by one.
    pub(crate) fn is_prompt(&self) -> bool {
        self.tree.is_none() && self.count > ROW_BY_ROW
    }

    /// The first position that a row sees in a layer with this window; `None` = all are seen.
    pub(crate) fn first(&self, window: Option<usize>) -> usize {
        window.map_or(0, |window| (self.start + 1).saturating_sub(window))
    }

    /// What a row sees: `window` positions, including its own; of a tree's rows only its ancestors.
    pub(crate) fn seen(&self, row: usize, window: Option<usize>) -> Seen {
        let first = |end: usize| window.map_or(0, |window| end.saturating_sub(window));
        match &self.tree {
            None => {
                let end = self.start + row + 1;
                Seen { range: first(end)..end, and: Vec::new() }
            }
            Some(TreeRows(paths)) => {
                let path = &paths[row];
                let end = self.start + path.len();
                let from = first(end);
                let and = path[from.saturating_sub(self.start)..].iter().map(|row| self.start + row).collect();
                Seen { range: from.min(self.start)..self.start, and }
            }
        }
    }

    /// What is added to scores over the positions from [`PassRows::first`] on: 0, or −∞ where a row does not see a
    /// position, `[m, n]`; `None` for a single row, which sees all of them.
    ///
    /// # Errors
    /// When memory is short.
    pub(crate) fn mask(&self, window: Option<usize>, device: &Device) -> Result<Option<Tensor>, ModelError> {
        if self.count < 2 {
            return Ok(None);
        }
        let mut masks = self.masks.borrow_mut();
        if let Some((_, mask)) = masks.iter().find(|(of, _)| *of == window) {
            return Ok(Some(mask.clone()));
        }
        let (first, width) = (self.first(window), self.end() - self.first(window));
        let mut values = vec![f32::NEG_INFINITY; self.count * width];
        for (row, values) in values.chunks_mut(width).enumerate() {
            let Seen { range, and } = self.seen(row, window);
            range.chain(and).for_each(|position| values[position - first] = 0.0);
        }
        let mask = Tensor::from_vec(values, (self.count, width), device)?;
        masks.push((window, mask.clone()));
        Ok(Some(mask))
    }

    /// Depth of each row below row 0, `[m]`; `None` for a chain, whose depths ascend.
    ///
    /// # Errors
    /// When memory is short.
    pub(crate) fn depths(&self, device: &Device) -> Result<Option<Tensor>, ModelError> {
        let Some(TreeRows(paths)) = &self.tree else { return Ok(None) };
        let mut depths = self.depths.borrow_mut();
        if depths.is_none() {
            let values: Vec<u32> = paths.iter().map(|path| path.len() as u32 - 1).collect();
            *depths = Some(Tensor::from_vec(values, self.count, device)?);
        }
        Ok(depths.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The mask as text: `#` for a position that is seen.
    fn mask(rows: &PassRows, window: Option<usize>) -> Vec<String> {
        let mask = rows.mask(window, &Device::Cpu).unwrap().unwrap().to_vec2::<f32>().unwrap();
        mask.iter().map(|row| row.iter().map(|value| if *value == 0.0 { '#' } else { '.' }).collect()).collect()
    }

    #[test]
    fn masks_are_causal_within_the_window_and_follow_ancestors() {
        assert!(PassRows::chain(5, 1).mask(Some(2), &Device::Cpu).unwrap().is_none());
        let chain = PassRows::chain(2, 3);
        assert_eq!(mask(&chain, None), ["###..", "####.", "#####"]);
        assert_eq!(
            (chain.first(Some(2)), mask(&chain, Some(2))),
            (1, vec!["##..".into(), ".##.".into(), "..##".into()])
        );
        // rows 1 and 3 continue row 0, row 2 continues row 1, row 4 row 2
        let tree = PassRows::tree(2, &TreeRows::new(&[0, 0, 1, 0, 2]).unwrap());
        assert_eq!(mask(&tree, None), ["###....", "####...", "#####..", "###..#.", "#####.#"]);
        assert_eq!(mask(&tree, Some(3)), ["###....", ".###...", "..###..", ".##..#.", "...##.#"]);
        assert_eq!(tree.depths(&Device::Cpu).unwrap().unwrap().to_vec1::<u32>().unwrap(), [0, 1, 2, 1, 3]);
        assert_eq!(TreeRows::new(&[0, 0, 1, 0, 2]).unwrap().parents().collect::<Vec<_>>(), [0, 1, 0, 2]);
    }

    #[test]
    fn a_row_of_a_tree_sees_as_many_positions_as_in_a_chain() {
        let tree = PassRows::tree(5, &TreeRows::new(&[0, 0, 1, 0, 2]).unwrap());
        let of = |row, window| {
            let seen = tree.seen(row, window);
            (seen.range.len() + seen.and.len(), seen.whole())
        };
        assert_eq!(of(2, None), (8, Some(0..8)), "rows 0, 1 and 2 follow each other");
        assert_eq!(of(3, None), (7, None), "row 3 continues row 0");
        assert_eq!(of(2, Some(2)), (2, Some(6..8)), "the window starts within the rows");
        assert_eq!(of(4, Some(2)), (2, None), "rows 2 and 4");
        let chain = PassRows::chain(5, 3).seen(1, Some(4));
        assert_eq!((chain.range.len() + chain.and.len(), chain.whole()), (4, Some(3..7)));
    }

    #[test]
    fn layers_of_a_pass_share_their_masks() {
        let rows = PassRows::chain(4, 2);
        let mask = |window| rows.mask(window, &Device::Cpu).unwrap().unwrap().id();
        assert_eq!(mask(None), mask(None));
        assert_ne!(mask(None), mask(Some(3)));
        assert_eq!(mask(Some(3)), mask(Some(3)));
    }
}
