//! What the models of a run take in memory: the one account from which `models info`, the check before loading, the panel
//! "Model and memory" and `explain` take their figures.
//!
//! Invariant: nothing is counted twice. `tests/memory_account.rs` compares it with processes.

use serde::{Deserialize, Serialize};

/// Bytes of a target and its drafters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct MemoryAccount {
    /// Weights of the target, norms included; an embedding that is also the head counts once.
    pub target_weights: u64,
    /// Weights that only drafters have.
    pub drafter_weights: u64,
    /// Keys and values of one position in the target's cache.
    pub target_kv: u64,
    /// Keys and values of one position in drafters' own caches.
    pub drafter_kv: u64,
    /// Recurrent states: the present one, and what is kept for rolling back. They do not grow with the text.
    pub states: u64,
    /// What passes need beside weights, caches and states: the angles of all positions, and most that a prompt takes at
    /// a time.
    pub passes: u64,
    /// Positions of the context.
    pub ctx_len: u64,
}

impl MemoryAccount {
    /// Weights of target and drafters.
    #[must_use]
    pub fn weights(&self) -> u64 {
        self.target_weights.saturating_add(self.drafter_weights)
    }

    /// Caches of target and drafters for so many positions.
    #[must_use]
    pub fn kv(&self, positions: u64) -> u64 {
        self.target_kv.saturating_add(self.drafter_kv).saturating_mul(positions)
    }

    /// What grows with the text, full, and the states.
    #[must_use]
    pub fn cache(&self) -> u64 {
        self.kv(self.ctx_len).saturating_add(self.states)
    }

    /// Everything, with a full context.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.weights().saturating_add(self.cache()).saturating_add(self.passes)
    }

    /// The same with another model beside it, which drafts.
    #[must_use]
    pub fn with_draft_model(self, other: &Self) -> Self {
        Self {
            drafter_weights: self.drafter_weights.saturating_add(other.weights()),
            drafter_kv: self.drafter_kv.saturating_add(other.target_kv),
            states: self.states.saturating_add(other.states),
            passes: self.passes.saturating_add(other.passes),
            ..self
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_total_has_every_part_once() {
        let account = MemoryAccount {
            target_weights: 1000,
            drafter_weights: 200,
            target_kv: 4,
            drafter_kv: 1,
            states: 30,
            passes: 7,
            ctx_len: 10,
        };
        assert_eq!((account.weights(), account.kv(3), account.cache(), account.total()), (1200, 15, 80, 1287));
        let model = MemoryAccount { target_weights: 50, target_kv: 2, passes: 3, ctx_len: 10, ..Default::default() };
        assert_eq!(account.with_draft_model(&model).total(), 1287 + 50 + 20 + 3);
        let most = MemoryAccount { target_weights: u64::MAX, target_kv: u64::MAX, ctx_len: 2, ..account };
        assert_eq!(most.total(), u64::MAX);
    }
}
