//! Feed-forward layers: what is computed of each position alone.

use super::matrix::{Matrix, Norm, Vector};
use crate::nn::{Activation, ExpertNames, ExpertSizes};

/// The feed-forward part of a layer.
#[derive(Clone, Debug, PartialEq)]
#[allow(clippy::large_enum_variant, reason = "nearly all layers are dense, or all have experts")]
pub enum Feed {
    /// One gated layer.
    Dense(GatedFeed),
    /// Many, of which each position chooses some.
    Experts(Box<Experts>),
}

/// `down(act(gate x) ⊙ up x)` (Shazeer, arXiv:2002.05202).
#[derive(Clone, Debug, PartialEq)]
pub struct GatedFeed {
    /// `[width, d]`
    pub gate: Matrix,
    /// `[width, d]`
    pub up: Matrix,
    /// `[d, width]`
    pub down: Matrix,
    /// What the gate's numbers pass through.
    pub act: Activation,
}

impl GatedFeed {
    /// Numbers between the matrices.
    #[must_use]
    pub fn width(&self) -> usize {
        self.down.columns
    }

    /// Number of weights.
    #[must_use]
    pub fn weights(&self) -> u64 {
        [&self.gate, &self.up, &self.down].iter().map(|matrix| matrix.weights()).sum()
    }
}

/// Experts: gated layers of equal shape. A router scores them for each position; those with the best scores run, and their
/// results are added, each times its weight, in the order of their numbers, then the shared one's.
#[derive(Clone, Debug, PartialEq)]
pub struct Experts {
    /// Their number and sizes.
    pub sizes: ExpertSizes,
    /// Experts of a position.
    pub used: usize,
    /// What their gates' numbers pass through.
    pub act: Activation,
    /// Number of the block in the names of their tensors.
    pub block: usize,
    /// How their tensors are stored.
    pub storage: ExpertStorage,
    /// What chooses them.
    pub router: RouterPlan,
    /// What every position runs too.
    pub shared: Option<SharedFeed>,
    /// A dense layer beside them, whose result is added to theirs.
    pub beside: Option<Beside>,
}

impl Experts {
    /// Names of their tensors.
    #[must_use]
    pub fn names(&self) -> ExpertNames {
        let of = |part: &str| format!("blk.{}.{part}.weight", self.block);
        match self.storage {
            ExpertStorage::Stacked => ExpertNames::Stacked(["ffn_gate_exps", "ffn_up_exps", "ffn_down_exps"].map(of)),
            ExpertStorage::Joined => ExpertNames::Joined(["ffn_gate_up_exps", "ffn_down_exps"].map(of)),
            ExpertStorage::Single => {
                let of_expert = |expert| ["gate", "up", "down"].map(|part| of(&format!("ffn_{part}.{expert}")));
                ExpertNames::Single((0..self.sizes.count).map(of_expert).collect())
            }
        }
    }
}

/// How the matrices of experts are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpertStorage {
    /// A tensor each for the gates, the ups and the downs of all experts.
    Stacked,
    /// The same, with gate and up of an expert below each other in one tensor.
    Joined,
    /// Three tensors for each expert.
    Single,
}

/// What chooses the experts of a position.
#[derive(Clone, Debug, PartialEq)]
pub struct RouterPlan {
    /// `[experts, d]`: one number for each expert. It is never rounded, since it decides which experts run.
    pub weight: Matrix,
    /// What it reads.
    pub reads: RouterInput,
    /// How its numbers become scores.
    pub scoring: Scoring,
    /// Added to scores when experts are chosen, not when their results are weighted.
    pub bias: Option<Vector>,
    /// Experts are chosen from the best groups only; `None` = from all.
    pub groups: Option<Groups>,
    /// Whether the weights of a position's experts, which are their scores, are scaled to the sum 1.
    pub rescaled: bool,
    /// Factor of the weights after that.
    pub factor: f64,
    /// A further factor for each expert.
    pub per_expert: Option<Vector>,
}

/// What a router reads.
#[derive(Clone, Debug, PartialEq)]
pub enum RouterInput {
    /// What the experts read.
    Normed,
    /// The stream: normed without weights, then times `scale` and `factor`.
    Stream {
        /// One number for each of the stream's.
        scale: Vector,
        /// A factor of all.
        factor: f64,
        /// Epsilon of the norm.
        eps: f32,
    },
}

/// How a router's numbers become scores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scoring {
    /// Probabilities over all experts.
    Softmax,
    /// Sigmoids, each expert by itself.
    Sigmoid,
}

/// Groups of experts, of equal size and adjacent numbers. The score of a group is the sum of its two best experts'.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Groups {
    /// Number of groups.
    pub count: usize,
    /// Groups that a position chooses from.
    pub used: usize,
}

/// An expert that every position runs.
#[derive(Clone, Debug, PartialEq)]
pub struct SharedFeed {
    /// The expert.
    pub feed: GatedFeed,
    /// `[1, d]`: its result is multiplied by the sigmoid of this.
    pub gate: Option<Matrix>,
    /// How many experts of the usual width it stands for.
    pub count: usize,
}

/// A dense layer beside experts: `dense_norm(dense(x)) + experts_norm(experts(before(stream)))`, `x` being what the
/// layer's [`Join`](super::Join) reads.
#[derive(Clone, Debug, PartialEq)]
pub struct Beside {
    /// The dense layer.
    pub dense: GatedFeed,
    /// Norm of its result.
    pub dense_norm: Norm,
    /// Norm of what the experts read, which is the stream.
    pub before: Norm,
    /// Norm of the experts' result.
    pub experts_norm: Norm,
}
