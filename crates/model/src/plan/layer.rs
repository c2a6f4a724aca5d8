//! A layer: a mixer, then a feed-forward layer, each added to the stream.

use super::attention::{Attention, Latent};
use super::delta::Delta;
use super::end::Rotation;
use super::feed::Feed;
use super::matrix::{Matrix, Norm};
use crate::nn::Activation;

/// A layer of a [`Plan`](super::Plan), in the order in which it computes.
#[derive(Clone, Debug, PartialEq)]
pub struct Layer {
    /// How positions learn of earlier ones.
    pub mixer: Mixer,
    /// How the mixer reads the stream and is added to it.
    pub mix: Join,
    /// What is computed of each position alone.
    pub feed: Feed,
    /// How the feed-forward layer reads the stream and is added to it.
    pub fed: Join,
    /// What the token adds to the stream after that, for this layer alone.
    pub token_input: Option<TokenInput>,
    /// The stream is multiplied by this number, a tensor of one, at last.
    pub output_scale: Option<String>,
}

impl Layer {
    /// How queries and keys are rotated.
    #[must_use]
    pub fn rotation(&self) -> Option<Rotation> {
        match &self.mixer {
            Mixer::Attention(attention) => attention.rotation,
            Mixer::Latent(latent) => Some(latent.rotation),
            Mixer::Delta(_) => None,
        }
    }
}

/// `stream + scale · after(step(before(stream)))`
#[derive(Clone, Debug, PartialEq)]
pub struct Join {
    /// Norm of what the step reads; `None`: the stream as it is.
    pub before: Option<Norm>,
    /// Norm of what the step gives; `None`: as it is.
    pub after: Option<Norm>,
    /// Factor of what is added.
    pub scale: f64,
}

impl Join {
    /// The usual one: a norm before the step.
    #[must_use]
    pub fn after_norm(before: Norm) -> Self {
        Self { before: Some(before), after: None, scale: 1.0 }
    }

    /// Norms before and after the step.
    #[must_use]
    pub fn between(before: Norm, after: Norm) -> Self {
        Self { before: Some(before), after: Some(after), scale: 1.0 }
    }
}

/// How positions learn of earlier ones.
#[derive(Clone, Debug, PartialEq)]
pub enum Mixer {
    /// Attention over keys and values of each position.
    Attention(Attention),
    /// Attention over one short row of each position.
    Latent(Latent),
    /// Gated DeltaNet: a matrix of state for all earlier positions.
    Delta(Delta),
}

/// `stream + after(project(act(gate · stream) ⊙ row))`, where `row` is this layer's slice of the token's row of a
/// [`LayerTable`](super::LayerTable).
#[derive(Clone, Debug, PartialEq)]
pub struct TokenInput {
    /// `[table width, d]`
    pub gate: Matrix,
    /// What the gate's numbers pass through.
    pub act: Activation,
    /// `[d, table width]`
    pub project: Matrix,
    /// Norm of what is added.
    pub after: Norm,
}
