//! What a pass is asked for and returns: logits, hidden states, and statistics of rows.

use crate::rows::Rows;

/// Which input rows get logits. A long prefill must not allocate `[m, v]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogitRows {
    /// Every row: verification.
    All,
    /// The last row only: prefill.
    Last,
    /// Every row, and of each only what greedy decoding reads: a backend whose logits lie in another memory may return
    /// [`Best::Logits`] instead of rows. Others return all of them.
    Best,
}

/// Result of running `m` tokens. Row `i` predicts the token after input `i`.
#[derive(Clone, Debug)]
pub struct Forward {
    /// `[m or 1, v]`, before temperature; empty where `stats` lists the best logits instead.
    pub logits: Rows,
    /// `[m, states · d]`: the states of the model's [`Tap`](super::Tap), by default the one after the final norm,
    /// which is what the output head reads.
    pub hidden: Rows,
    /// One per row of logits, from backends that compute it in the head's own pass; else empty.
    pub stats: Vec<RowStats>,
}

impl Forward {
    /// Number of rows with logits.
    #[must_use]
    pub fn scored(&self) -> usize {
        self.logits.len().max(self.stats.len())
    }
}

/// Tokens whose largest logit a [`RowStats`] records together.
pub const STRETCH: usize = 512;

/// Summary of a row of logits: all that greedy decoding needs.
#[derive(Clone, Debug, PartialEq)]
pub struct RowStats {
    /// Index of the first largest logit.
    pub argmax: u32,
    /// That logit.
    pub max: f32,
    /// `ln Σ e^logit`: the log-probability of index `i` is its logit minus this. Not finite if a logit is not.
    pub log_sum_exp: f32,
    /// Where the best candidates are.
    pub best: Best,
}

/// Logits of a row that a backend lists where it returns only the best.
pub const BEST_LOGITS: usize = 32;

/// The best candidates of a row, or where they are.
#[derive(Clone, Debug, PartialEq)]
pub enum Best {
    /// Largest logit of each stretch of [`STRETCH`] tokens.
    Peaks(Vec<f32>),
    /// Index and logit of the [`BEST_LOGITS`] largest, and of the tokens of the pass's rows that continue this one: the
    /// row itself was not returned.
    Logits(Vec<(u32, f32)>),
}
