//! A draft module that attends to its target's keys and values.

use super::end::Angles;
use super::layer::Layer;
use super::matrix::{Matrix, Norm};

/// A draft module whose layers make queries alone and attend to the keys and values of the target, so that it caches nothing
/// (Gemma 4's assistants). All drafts of a round have the position of the first.
///
/// ```text
///   stream = project [embedding of the token ; state]      the embedding is the target's, scaled; the state its last, normed
///   layers, then u = norm(stream);  logits = head · u
///   state for the next draft = hand_on · u
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Assistant {
    /// `[d, 2 · width of the target]`
    pub project: Matrix,
    /// The target's tables of angles.
    pub angles: Vec<Angles>,
    /// Its layers, which read [`Keys::OfTarget`](super::Keys::OfTarget).
    pub layers: Vec<Layer>,
    /// The last norm.
    pub norm: Norm,
    /// `[width of the target, d]`
    pub hand_on: Matrix,
    /// `[vocab, d]`
    pub head: Matrix,
    /// Clusters of the head's rows, if only those of the best ones yield logits.
    pub clusters: Option<Clusters>,
}

/// Clusters of tokens, all of one size. Those whose centroids have the largest products with a state are searched.
#[derive(Clone, Debug, PartialEq)]
pub struct Clusters {
    /// `[clusters, d]`
    pub centroids: Matrix,
    /// How many of them are searched.
    pub searched: usize,
    /// Name of the tensor of all tokens, one cluster after the other, as whole numbers.
    pub ordering: String,
}

impl Assistant {
    /// Numbers in the stream of its layers (d).
    #[must_use]
    pub fn width(&self) -> usize {
        self.project.rows
    }

    /// Weights of all matrices.
    #[must_use]
    pub fn weights(&self) -> u64 {
        let centroids = self.clusters.as_ref().map_or(0, |clusters| clusters.centroids.weights());
        let matrices = [&self.project, &self.hand_on, &self.head].map(Matrix::weights).iter().sum::<u64>();
        matrices + centroids + self.layers.iter().map(Layer::weights).sum::<u64>()
    }
}
