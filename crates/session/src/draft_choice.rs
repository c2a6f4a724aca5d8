//! What the drafts of a round were chosen by: a selector, the worth of alternatives, a grammar.

use draftscope_protocol::{EventKind, LatticeColumn, MOST_CANDIDATES, NodeWorth};

use super::Round;
use super::round::keep_first;

impl Round {
    /// Takes what a selector chose among, and what the grammar refused or masked; at most `most` of each.
    pub(super) fn note_choice(&mut self, kind: &EventKind, most: usize) {
        match kind {
            EventKind::DraftRefused(refused) if self.refused.len() < most => self.refused.push(refused.clone()),
            EventKind::Lattice(lattice) => {
                let mut lattice = lattice.clone();
                keep_first(&mut lattice.columns, most);
                lattice.columns.iter_mut().for_each(|column| keep_first(&mut column.candidates, MOST_CANDIDATES));
                self.lattice = Some(Box::new(lattice));
            }
            EventKind::Alternatives(alternatives) => {
                let mut alternatives = alternatives.clone();
                keep_first(&mut alternatives.worths, most);
                self.alternatives = Some(Box::new(alternatives));
            }
            EventKind::Masked(masked) => {
                let mut masked = masked.clone();
                keep_first(&mut masked.rows, most);
                self.masked = Some(Box::new(masked));
            }
            _ => {}
        }
    }

    /// What a draft promised and cost, if it is an alternative.
    #[must_use]
    pub fn worth(&self, index: usize) -> Option<&NodeWorth> {
        self.alternatives.iter().flat_map(|known| &known.worths).find(|worth| usize::from(worth.index) == index)
    }

    /// The candidates of a position.
    #[must_use]
    pub fn candidates(&self, index: usize) -> Option<&LatticeColumn> {
        self.lattice.iter().flat_map(|known| &known.columns).find(|column| usize::from(column.index) == index)
    }
}
