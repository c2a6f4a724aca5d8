//! What a pass over a target is asked for, and what it computes.

/// What a forward pass is asked for.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// One token a row.
    pub tokens: &'a [u32],
    /// Blocks that run, from the first on.
    pub layers: usize,
    /// Whether every row gets logits, or only the last.
    pub all_logits: bool,
    /// Parents of the rows of a tree of at most [`MAX_ROWS`](crate::MAX_ROWS) rows; `None` for a chain.
    pub parents: Option<&'a [usize]>,
    /// Hidden states of each row: after so many blocks, or after the final norm.
    pub states: &'a [Option<usize>],
}

/// What a forward pass computed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Output {
    /// `[rows][states][d_model]`
    pub hidden: Vec<f32>,
    /// `[rows or 1][vocabulary]`
    pub logits: Vec<f32>,
    /// Of each stretch of 512 logits, `[rows or 1][stretches]`.
    pub stretches: Vec<Stretch>,
}

/// A summary of at most 512 logits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stretch {
    /// The largest.
    pub max: f32,
    /// `Σ e^(logit − max)`
    pub sum: f32,
    /// Index of the first largest in its row.
    pub argmax: u32,
}
