//! What the events of a round reported. Before its event arrives a list is empty and a time is 0.

use draftscope_protocol::{Piece, Prediction, RoundOnDevice, Scored};

use super::Round;

impl Round {
    /// 1, 2, 3 …: in the speculative lane over all turns, in the lanes beside it anew in each turn.
    #[must_use]
    pub const fn number(&self) -> u32 {
        self.started.round
    }

    /// Positions in the target's cache when it began.
    #[must_use]
    pub const fn base_len(&self) -> u32 {
        self.started.base_len
    }

    /// Requested k.
    #[must_use]
    pub const fn draft_len(&self) -> u8 {
        self.started.draft_len
    }

    /// The target's row at every position; empty until scored.
    #[must_use]
    pub fn rows(&self) -> &[Prediction] {
        self.scored.as_ref().map_or(&[], |scored| &scored.rows)
    }

    /// The same, to put in rows that were asked for afterwards.
    pub(super) fn rows_mut(&mut self) -> &mut Vec<Prediction> {
        let round = self.number();
        &mut self.scored.get_or_insert_with(|| Scored { round, ..Scored::default() }).rows
    }

    /// Time of the one target pass.
    #[must_use]
    pub fn verify_us(&self) -> u64 {
        self.scored.as_ref().map_or(0, |scored| scored.verify_us)
    }

    /// Time from logits to distributions and candidates.
    #[must_use]
    pub fn sample_us(&self) -> u64 {
        self.scored.as_ref().map_or(0, |scored| scored.sample_us)
    }

    /// Whether the commit has arrived.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.commit.is_some()
    }

    /// Output tokens of the round; may be cut where the answer ends.
    #[must_use]
    pub fn committed(&self) -> &[Piece] {
        self.commit.as_ref().map_or(&[], |commit| &commit.tokens)
    }

    /// Time of the rollback.
    #[must_use]
    pub fn rollback_us(&self) -> u64 {
        self.commit.as_ref().map_or(0, |commit| commit.rollback_us)
    }

    /// The lane's clock in this turn after the round.
    #[must_use]
    pub fn clock_us(&self) -> u64 {
        self.commit.as_ref().map_or(0, |commit| commit.clock_us)
    }

    /// What it did on a GPU; `None` where the processor computes.
    #[must_use]
    pub fn device(&self) -> Option<RoundOnDevice> {
        self.commit.as_ref().and_then(|commit| commit.device)
    }
}
