//! The draft length that the engine chose itself, as its events report it.

use draftscope_protocol::{DraftLenMode, EventKind};

use super::Session;

/// The k that the engine chose last.
#[derive(Clone, Debug, PartialEq)]
pub struct ChosenDraftLen {
    /// k before.
    pub from: u8,
    /// k now.
    pub draft_len: u8,
    /// Predicted tokens per second for each k; index 0 is plain decoding.
    pub expected: Vec<f64>,
    /// Whether it is a brief trial of a k that may have become better.
    pub exploring: bool,
    /// The reason, in one sentence.
    pub reason: String,
}

impl Session {
    pub(super) fn choose(&mut self, kind: &EventKind) {
        let EventKind::DraftLenChosen { from, draft_len, expected, exploring, reason } = kind else {
            return;
        };
        self.settings.draft_len = *draft_len;
        self.chosen = Some(ChosenDraftLen {
            from: *from,
            draft_len: *draft_len,
            expected: expected.clone(),
            exploring: *exploring,
            reason: reason.clone(),
        });
    }

    /// The k that the engine chose last; `None` if the user sets k.
    #[must_use]
    pub fn chosen(&self) -> Option<&ChosenDraftLen> {
        self.chosen.as_ref().filter(|_| self.settings.draft_len_mode == DraftLenMode::Auto)
    }
}
