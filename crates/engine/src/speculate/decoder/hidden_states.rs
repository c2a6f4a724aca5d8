//! Connects the drafter to the target: which hidden states the target outputs, and when the drafter must read the
//! committed tokens again because its conventions changed.

use super::Decoder;
use crate::speculate::SpecError;
use draftscope_model::{Checkpoint, LogitRows, Rows, Tap};

impl Decoder {
    /// Drafts chains if the target cannot verify trees, and reports this once.
    pub(super) fn refuse_trees(&mut self) {
        let Some(reason) = self.target.refuses_trees() else {
            return;
        };
        if self.settings.drafting.tree.take().is_some_and(|nodes| nodes > 0) && !self.reported_no_trees {
            self.reported_no_trees = true;
            self.notices.push(format!("{reason}: a chain is drafted instead"));
        }
    }

    /// Makes the target output the states that the drafter reads. If the drafter's conventions changed, a copy of the
    /// target runs over all committed tokens again to give the drafter their states.
    pub(super) fn connect_hidden_states(&mut self) -> Result<(), SpecError> {
        let tap = self.drafter.tap();
        let tap = if tap.states().is_empty() { Tap::default() } else { tap };
        self.target.set_tap(&tap)?;
        if !self.drafter.wants_reread() {
            return Ok(());
        }
        let Some((_, cached)) = self.committed.split_last().filter(|(_, cached)| !cached.is_empty()) else {
            return Ok(self.drafter.reread(&[], &Rows::default())?);
        };
        let mut reader = self.target.fork()?;
        reader.truncate(0, &Checkpoint { len: 0 })?;
        let out = reader.forward(cached, LogitRows::Last)?;
        self.drafter.reread(&self.committed[1..], &out.hidden)?;
        Ok(self.drafter.settle(&self.committed)?)
    }
}
