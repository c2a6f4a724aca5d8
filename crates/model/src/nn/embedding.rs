//! Token embeddings.

use candle_core::{Device, Tensor};

use crate::ModelError;
use crate::nn::config::TransformerConfig;
use crate::nn::linear::Linear;
use crate::options::PassForm;
use draftscope_protocol::TokenId;

/// A target's embedding, which its modules share.
pub trait Embedding: Send + Sync {
    /// The weights' device.
    fn device(&self) -> &Device;

    /// Embeddings `[m, d]`.
    ///
    /// # Errors
    /// [`ModelError::Vocabulary`] for a token outside the vocabulary.
    fn embed(&self, tokens: &[TokenId]) -> Result<Tensor, ModelError>;
}

/// A target on candle whose embedding and head draft modules share.
pub trait SharedTarget: Embedding {
    /// Sizes.
    fn config(&self) -> &TransformerConfig;

    /// The output head `[v, d]`, memory shared.
    fn head(&self) -> Linear;

    /// How its passes run, and those of its modules.
    fn form(&self) -> PassForm;
}

/// An embedding that a module or head has of its own.
pub(crate) struct OwnEmbedding {
    pub(crate) table: Linear, // [v, d]
    pub(crate) vocab: usize,
    pub(crate) device: Device,
}

impl Embedding for OwnEmbedding {
    fn device(&self) -> &Device {
        &self.device
    }

    fn embed(&self, tokens: &[TokenId]) -> Result<Tensor, ModelError> {
        self.table.rows(&ids(tokens, self.vocab, &self.device)?)
    }
}

/// A head `[v, d]` trimmed to the rows of these tokens, f32.
///
/// # Errors
/// If a token has no row.
pub(crate) fn trimmed(head: &Linear, tokens: &[TokenId], device: &Device) -> Result<Linear, ModelError> {
    let ids: Vec<u32> = tokens.iter().map(|token| token.0).collect();
    Ok(Linear::dense(head.rows(&Tensor::from_vec(ids, tokens.len(), device)?)?))
}

/// Tokens as indices of an embedding's rows.
///
/// # Errors
/// [`ModelError::Vocabulary`] for a token outside the vocabulary.
pub(crate) fn ids(tokens: &[TokenId], vocab: usize, device: &Device) -> Result<Tensor, ModelError> {
    if let Some(token) = tokens.iter().find(|token| token.index() >= vocab) {
        return Err(ModelError::Vocabulary { token: token.0, vocab });
    }
    let ids: Vec<u32> = tokens.iter().map(|token| token.0).collect();
    Ok(Tensor::from_vec(ids, tokens.len(), device)?)
}
