//! Draft modules that come in a target's own files.

use super::{Angles, Layer, Matrix, Norm};
use crate::protocol::MtpSpec;

/// A draft module of DeepSeek-V3's kind (arXiv:2412.19437, section 2.2): one more layer, which reads a token and the state
/// before it. Embedding and head are the target's.
///
/// ```text
///   x = project [norm(embedding) ; norm(state)]     in the order that the conventions say
///   logits = head(norm(layer(x)))
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct OwnModule {
    /// The layer; [`Rotation::table`](super::Rotation::table) is 0.
    pub layer: Layer,
    /// Its angles; one position more than the context has.
    pub angles: Angles,
    /// Norm of the embedding.
    pub embedding_norm: Norm,
    /// Norm of the state.
    pub state_norm: Norm,
    /// `[d, 2 d]`
    pub project: Matrix,
    /// The last norm.
    pub norm: Norm,
    /// How it was trained. Its norms are read as they are stored, and this says what they mean.
    pub conventions: MtpSpec,
}
