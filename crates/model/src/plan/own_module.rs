//! Draft modules that come in a target's own files.

use super::{Angles, Layer, Matrix, Norm, Plan};
use crate::ModelError;
use crate::files::ModelFiles;
use draftscope_protocol::MtpSpec;

/// A draft module of DeepSeek-V3's kind (arXiv:2412.19437, section 2.2): one more layer, which reads a token and the state
/// before it. Embedding and head are the target's, or its own.
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
    /// An embedding beside it in the files, `[vocab, d]`, which often repeats the target's.
    pub embedding: Option<Matrix>,
    /// A head beside it in the files, `[vocab, d]`, which often repeats the target's.
    pub head: Option<Matrix>,
    /// How it was trained. Its norms are read as they are stored, and this says what they mean.
    pub conventions: MtpSpec,
}

impl OwnModule {
    /// Embedding and head where they differ from those of the target of this plan.
    ///
    /// # Errors
    /// When a tensor is misshapen or damaged.
    pub fn ends_of_its_own(&self, files: &ModelFiles, target: &Plan) -> Result<[Option<&Matrix>; 2], ModelError> {
        let differing = |own: &'_ Option<Matrix>, theirs: &Matrix| {
            let Some(own) = own else { return Ok(false) };
            let [own, theirs] = [own, theirs].map(|matrix| (matrix.name(), [matrix.rows, matrix.columns]));
            let differs = !files.stored(own.0, &own.1)?.is_copy_of(&files.stored(theirs.0, &theirs.1)?);
            [own.0, theirs.0].into_iter().for_each(|name| files.release(name));
            Ok::<_, ModelError>(differs)
        };
        let embedding = differing(&self.embedding, &target.embedding.table)?;
        let head = differing(&self.head, target.head())?;
        Ok([self.embedding.as_ref().filter(|_| embedding), self.head.as_ref().filter(|_| head)])
    }
}
