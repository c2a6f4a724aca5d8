//! Drafting with a module that reads the target's keys and values: an assistant.
//!
//! Invariant: it has no slots to settle. Of all that was observed the last token and its state are needed, and they
//! stay until others come, since the same anchor may be drafted from again.

use super::MtpDrafter;
use crate::model::{Model, ModelError};

impl MtpDrafter {
    /// Whether the first module reads the target's cache and has none to fill.
    pub(super) fn borrows(&self) -> bool {
        self.stages.first().is_some_and(|stage| stage.module.borrows())
    }

    /// Runs the anchor's slot over what the target lends.
    pub(super) fn borrow(&mut self, target: &dyn Model) -> Result<(), ModelError> {
        self.states = self.states.last_row();
        let Some(end) = self.observed.len().checked_sub(1).filter(|_| !self.states.is_empty()) else {
            return Ok(());
        };
        let tokens = self.tokens(end..end + 1, 0);
        let Some(first) = self.stages.first_mut() else {
            return Ok(());
        };
        first.module.borrow(target)?;
        self.head = Some(first.module.forward(&tokens, &self.states)?);
        Ok(())
    }

    /// Forgets all but the first `len` observed tokens.
    pub(super) fn forget(&mut self, len: usize) -> Result<(), ModelError> {
        if len < self.observed.len() {
            self.observed.truncate(len);
            self.states.clear(); // the next prompt brings at least one token, and its state
            self.head = None;
        }
        Ok(())
    }
}
