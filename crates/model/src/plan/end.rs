//! What is around the layers: embedding, angles, the last norm and the head.

use super::matrix::{Matrix, Norm};
use crate::nn::{PairOrder, RopeSpec};

/// From tokens to the stream.
#[derive(Clone, Debug, PartialEq)]
pub struct Embedding {
    /// `[vocab, d]`: a token's row becomes the stream.
    pub table: Matrix,
    /// Factor of a row.
    pub scale: f64,
    /// Another table, with a slice for each layer.
    pub by_layer: Option<LayerTable>,
}

/// A table with a row for each token, cut into a slice for each layer (Gemma 3n and 4). To a layer's slice a share of the
/// embedding is joined:
///
/// `slice = join_scale · (scale · row slice + norm(project_scale · project(embedding)) slice)`
#[derive(Clone, Debug, PartialEq)]
pub struct LayerTable {
    /// `[tokens, layers · width]`; its rows are looked up.
    pub table: Matrix,
    /// Width of a slice.
    pub width: usize,
    /// Factor of a row.
    pub scale: f64,
    /// `[layers · width, d]`: reads the scaled embedding.
    pub project: Matrix,
    /// Factor of what it gives.
    pub project_scale: f64,
    /// Norm of each slice of that.
    pub norm: Norm,
    /// Factor of the sum.
    pub join_scale: f64,
}

/// Angles of all positions: how fast each pair of numbers turns.
#[derive(Clone, Debug, PartialEq)]
pub struct Angles {
    /// Frequencies, and the factor of cosines and sines.
    pub rope: RopeSpec,
    /// Values of a head that are rotated; half as many pairs.
    pub width: usize,
}

/// How queries and keys are rotated (Su et al., arXiv:2104.09864). The first [`Angles::width`] values of a head are, and
/// the others stay; of [`Latent`](super::Latent) attention, the part named there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rotation {
    /// Index in [`Plan::angles`](super::Plan::angles).
    pub table: usize,
    /// Which two values form a pair, in the order in which rows are stored.
    pub pairs: PairOrder,
}

/// From the stream to logits.
#[derive(Clone, Debug, PartialEq)]
pub struct End {
    /// The last norm.
    pub norm: Norm,
    /// The matrix that yields logits.
    pub head: Head,
    /// Factor of logits.
    pub scale: f64,
    /// `c` of c·tanh(logit / c), if logits are capped.
    pub cap: Option<f64>,
}

/// The matrix `[vocab, d]` that yields logits.
#[derive(Clone, Debug, PartialEq)]
pub enum Head {
    /// One of its own.
    Own(Matrix),
    /// The embedding's table; its rows are not scaled here.
    Tied,
}
