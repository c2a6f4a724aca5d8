//! What a pass runs: its rows, where they stand, and what each of them sees.

/// Bytes between the slots of passes in their uniform buffer.
pub(crate) const SLOT_BYTES: u64 = 512;

/// Most rows of a pass whose rows have paths or logits of their own.
pub const MAX_ROWS: usize = 16;

/// Most rows of a pass over a prompt: a chain.
pub const PROMPT_ROWS: usize = 64;

/// Positions in a segment of attention; the shaders have the same number.
pub const SEGMENT: usize = 128;

/// Rows of one pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PassRows {
    /// Positions in the cache before the pass.
    pub base: usize,
    /// Rotary position of row 0, or of what it continues.
    pub at: usize,
    /// For each row the rows from the root to it, itself included.
    pub paths: Vec<Vec<usize>>,
    /// Whether the embedding of row 0 is zero.
    pub zeroed: bool,
    /// Logits of a row that count; 0 for all.
    pub logits: usize,
    /// Rows before the pass that recurrent layers run again, from the state that they keep.
    pub again: usize,
    /// When recurrent layers store their state.
    pub store: Store,
}

/// When recurrent layers store their state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Store {
    /// Not in this pass.
    #[default]
    Nothing,
    /// Before its rows.
    Before,
    /// After its rows.
    After,
}

impl PassRows {
    /// `m` rows, each continuing the one before it, at their own positions.
    #[must_use]
    pub fn chain(base: usize, m: usize) -> Self {
        Self { paths: (0..m).map(|row| (0..=row).collect()).collect(), ..Self::empty(base) }
    }

    /// Rows in which row `i` continues row `parents[i]`, which precedes it; row 0 continues the cache.
    #[must_use]
    pub fn tree(base: usize, parents: &[usize]) -> Self {
        let mut paths: Vec<Vec<usize>> = Vec::with_capacity(parents.len());
        for (row, parent) in parents.iter().enumerate() {
            let mut path = if row == 0 { Vec::new() } else { paths.get(*parent).cloned().unwrap_or_default() };
            path.push(row);
            paths.push(path);
        }
        Self { paths, ..Self::empty(base) }
    }

    fn empty(base: usize) -> Self {
        Self { base, at: base, paths: Vec::new(), zeroed: false, logits: 0, again: 0, store: Store::Nothing }
    }

    /// `count` rows in passes of so many, each row continuing the one before it.
    pub(crate) fn cut((base, count): (usize, usize), most: usize) -> Vec<Self> {
        let starts = (0..count).step_by(most);
        starts.map(|start| Self::chain(base + start, most.min(count - start))).collect()
    }

    /// The same, where the last two passes are of [`MAX_ROWS`] rows at most: those that recurrent layers run again.
    pub(crate) fn cut_for_states((base, count): (usize, usize), most: usize) -> Vec<Self> {
        let last = count.saturating_sub(1) % MAX_ROWS + 1;
        let first = count.saturating_sub(MAX_ROWS + last);
        let mut passes = Self::cut((base, first), most);
        passes.extend(Self::cut((base + first, count - first), MAX_ROWS));
        passes
    }

    /// The row that each row continues; `None` for row 0.
    pub(crate) fn parents(&self) -> impl Iterator<Item = Option<usize>> {
        self.paths.iter().map(|path| path.len().checked_sub(2).map(|at| path[at]))
    }

    /// Rows.
    #[must_use]
    pub fn m(&self) -> usize {
        self.paths.len()
    }

    /// Segments that the row sees that sees most.
    pub(crate) fn segments(&self) -> usize {
        let depth = self.paths.iter().map(Vec::len).max().unwrap_or(0);
        (self.base + depth).div_ceil(SEGMENT).max(1)
    }

    /// As the shaders read it; `token` is where the tokens of its rows begin.
    pub(crate) fn words(&self, token: usize) -> Vec<u32> {
        let mut words =
            vec![self.m() as u32, self.base as u32, token as u32, 2 * self.logits as u32 + u32::from(self.zeroed)];
        for path in self.paths.iter().take(MAX_ROWS) {
            let nibbles = path.iter().zip(0..).fold(0u64, |bits, (row, at)| bits | (*row as u64) << (4 * at));
            let depth = path.len() - 1;
            words.extend([
                (self.at + depth) as u32,
                (self.base + path.len()) as u32,
                nibbles as u32,
                (nibbles >> 32) as u32,
            ]);
        }
        words.resize(4 + 4 * MAX_ROWS, 0);
        words.extend([self.again as u32, self.store as u32]);
        words.resize(SLOT_BYTES as usize / size_of::<u32>(), 0);
        words
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_whose_rows_follow_each_other_is_a_chain() {
        let parents: Vec<usize> = (0..16usize).map(|row| row.saturating_sub(1)).collect();
        assert_eq!(PassRows::tree(7, &parents), PassRows::chain(7, 16));
        let words = PassRows::chain(7, 16).words(3);
        assert_eq!(words[..4], [16, 7, 3, 0]);
        assert_eq!(words[4..8], [7, 8, 0, 0]);
        assert_eq!(words[64..68], [22, 23, 0x7654_3210, 0xfedc_ba98]);
        let sizes = |count| PassRows::cut_for_states((7, count), 64).iter().map(PassRows::m).collect::<Vec<_>>();
        assert_eq!([0, 9, 16, 20, 32].map(&sizes), [&[][..], &[9], &[16], &[16, 4], &[16, 16]]);
        assert_eq!([40, 81, 180].map(&sizes), [&[16, 16, 8][..], &[64, 16, 1], &[64, 64, 32, 16, 4]]);
        let fork = PassRows::tree(5, &[0, 0, 0, 2]);
        assert_eq!(fork.paths, [vec![0], vec![0, 1], vec![0, 2], vec![0, 2, 3]]);
        assert_eq!(fork.words(0)[16..20], [7, 8, 0x320, 0]);
    }
}
