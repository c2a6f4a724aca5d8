//! Drafter and target brought together: which hidden states are handed over, and what the drafter must
//! see again when its slots have got another meaning.

use super::Decoder;
use crate::model::{Checkpoint, LogitRows, Rows, Tap};
use crate::speculate::SpecError;

impl Decoder {
    /// Drafts a chain where the target verifies no trees, and says so once.
    pub(super) fn refuse_trees(&mut self) {
        let Some(reason) = self.target.refuses_trees() else {
            return;
        };
        if self.settings.drafting.tree.take().is_some_and(|nodes| nodes > 0) && !self.told_refusal {
            self.told_refusal = true;
            self.notices.push(format!("{reason}: a chain is drafted instead"));
        }
    }

    /// Has the target hand over the states that the drafter reads; one whose slots have got another
    /// meaning is shown all that is committed once more, from a copy of the target's cache.
    pub(super) fn connect_hidden_states(&mut self) -> Result<(), SpecError> {
        let tap = self.drafter.tap();
        let tap = if tap.states().is_empty() { Tap::default() } else { tap };
        self.target.set_tap(&tap)?;
        if !self.drafter.wants_reread() {
            return Ok(());
        }
        let Some((_, known)) = self.committed.split_last().filter(|(_, known)| !known.is_empty()) else {
            return Ok(self.drafter.reread(&[], &Rows::default())?);
        };
        let mut reader = self.target.fork()?;
        reader.truncate(0, &Checkpoint { len: 0 })?;
        let out = reader.forward(known, LogitRows::Last)?;
        self.drafter.reread(&self.committed[1..], &out.hidden)?;
        Ok(self.drafter.settle(&self.committed)?)
    }
}
