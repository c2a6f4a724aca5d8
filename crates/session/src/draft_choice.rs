//! What the drafts of a round were chosen by: a selector, the worth of alternatives, a grammar.

use draftscope_protocol::{EventKind, LatticeColumn, MOST_CANDIDATES, NodeWorth};

use super::Round;
use super::draft_cell::Refused;

impl Round {
    /// Takes what a selector chose among, and what the grammar refused or masked; at most `most` of each.
    pub(super) fn note_choice(&mut self, kind: &EventKind, most: usize) {
        match kind {
            EventKind::DraftRefused { index, token, q, expected, .. } if self.refused.len() < most => {
                let (index, piece, q, expected) = (usize::from(*index), token.clone(), *q, expected.clone());
                self.refused.push(Refused { index, piece, q, expected });
            }
            EventKind::Lattice { columns, .. } => {
                self.lattice = columns.iter().take(most).cloned().collect();
                self.lattice.iter_mut().for_each(|column| column.candidates.truncate(MOST_CANDIDATES));
            }
            EventKind::Alternatives { worths, .. } => self.worths = worths.iter().take(most).copied().collect(),
            EventKind::Masked { rows, took_us, .. } => {
                self.masked = rows.iter().take(most).copied().collect();
                self.mask_us = *took_us;
            }
            _ => {}
        }
    }

    /// What a draft promised and cost, if it is an alternative.
    #[must_use]
    pub fn worth(&self, index: usize) -> Option<&NodeWorth> {
        self.worths.iter().find(|worth| usize::from(worth.index) == index)
    }

    /// The candidates of a position.
    #[must_use]
    pub fn candidates(&self, index: usize) -> Option<&LatticeColumn> {
        self.lattice.iter().find(|column| usize::from(column.index) == index)
    }
}
