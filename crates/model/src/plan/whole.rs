//! The plan of a whole model.

use super::end::{Angles, Embedding, End, Head};
use super::layer::Layer;
use super::matrix::Matrix;

/// A model, from tokens to logits.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Name of the architecture as files write it; for headers and messages only.
    pub name: &'static str,
    /// Numbers in the residual stream of one position (d).
    pub width: usize,
    /// Tokens: rows of embedding and head (v).
    pub vocab: usize,
    /// Positions of the longest context that the model was made for.
    pub context: usize,
    /// The way in.
    pub embedding: Embedding,
    /// The tables of angles that layers rotate by; [`Rotation::table`](super::end::Rotation::table) is an index into them.
    pub angles: Vec<Angles>,
    /// The layers, in order.
    pub layers: Vec<Layer>,
    /// The way out.
    pub end: End,
    /// Draft modules in the same files, one for each depth.
    pub modules: Vec<ModuleLayer>,
    /// Draft modules that the configuration announces; files often lack them.
    pub announced_modules: usize,
}

impl Plan {
    /// Head of the plan: the matrix that yields logits, `[vocab, width]`.
    #[must_use]
    pub fn head(&self) -> &Matrix {
        match &self.end.head {
            Head::Own(matrix) => matrix,
            Head::Tied => &self.embedding.table,
        }
    }

    /// Whether embeddings and logits are those of the tables, neither scaled nor capped.
    #[must_use]
    pub fn has_plain_ends(&self) -> bool {
        self.embedding.scale == 1.0 && self.end.scale == 1.0 && self.end.cap.is_none()
    }
}

/// The layer of a draft module whose tensors the files have. What is around it is described where modules are loaded.
#[derive(Clone, Debug, PartialEq)]
pub struct ModuleLayer {
    /// The layer.
    pub layer: Layer,
    /// Whether the module has a head of its own, `[vocab, d]`; else it uses the model's.
    pub has_head: bool,
}
