//! What the events of a round carry beside its drafts, and that of the prefill.

use serde::{Deserialize, Serialize};

use crate::device::RoundOnDevice;
use crate::grammar::MaskedRow;
use crate::token::{Piece, Prediction};

/// How an answer begins: its prompt, and the first token that was picked after it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(inline))]
pub struct Prefilled {
    /// Number of the turn.
    pub turn: u32,
    /// All tokens of the prompt, template and earlier turns included.
    pub prompt: Vec<Piece>,
    /// How many of them were still in the cache.
    pub cached: u32,
    /// First committed token of the answer, picked from the prompt's last row.
    pub first: Piece,
    /// The distribution that it was picked from.
    pub row: Prediction,
    /// Time of the prefill, target and drafter.
    pub took_us: u64,
}

/// How a round begins.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(inline))]
pub struct RoundStarted {
    /// 1, 2, 3 …; the speculative lane counts over all turns, the others from 1 in each turn.
    pub round: u32,
    /// Positions in the target's cache.
    pub base_len: u32,
    /// k: most drafts of this round.
    pub draft_len: u8,
}

/// What the grammar did to the rows of a pass.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(inline))]
pub struct Masked {
    /// Number of the round.
    pub round: u32,
    /// One entry per row.
    pub rows: Vec<MaskedRow>,
    /// Time that the grammar took in this round, drafting included.
    pub took_us: u64,
}

/// The target's predictions, and the times of its pass.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(inline))]
pub struct Scored {
    /// Number of the round.
    pub round: u32,
    /// k + 1 rows: the target's prediction at every position, also after a mismatch.
    pub rows: Vec<Prediction>,
    /// Time of the one target pass.
    pub verify_us: u64,
    /// Time from logits to distributions and candidates.
    pub sample_us: u64,
}

/// What a round output, and the clock after it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(inline))]
pub struct Committed {
    /// Number of the round.
    pub round: u32,
    /// Accepted drafts, then the bonus or recovered token; cut where the answer ends.
    pub tokens: Vec<Piece>,
    /// Time of the rollback.
    pub rollback_us: u64,
    /// The lane's clock: measured time of its rounds in this turn, this one included.
    pub clock_us: u64,
    /// What the round did on a GPU; absent where the processor computes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<RoundOnDevice>,
}
