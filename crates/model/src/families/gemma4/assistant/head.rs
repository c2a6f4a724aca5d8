//! An assistant's output head: its own embedding, all of it, or the rows of a few clusters.
//!
//! With clusters, the centroids are scored first and only the tokens of the best ones get a logit; the others get one
//! that no sampling reaches. Source: `Gemma4AssistantMaskedEmbedder` of `transformers`.

use candle_core::{D, Tensor};

use crate::ModelError;
use crate::families::gemma4::assistant::config::Clusters;
use crate::nn::Linear;
use draftscope_protocol::TokenId;

/// Logit of a token that was not scored: finite, and far below all others.
const UNSEEN: f32 = -1e30;

/// Which tokens get a logit.
#[derive(Clone, Debug)]
pub(super) enum Choice {
    /// All.
    All,
    /// These, ascending; the table contains only their rows.
    Listed,
    /// Those of the best clusters.
    Clusters {
        of: Clusters,
        /// `[clusters, d]`
        centroids: Linear,
        /// Tokens of all clusters, one cluster after the other.
        ordering: Vec<TokenId>,
    },
}

/// The head.
#[derive(Clone, Debug)]
pub(super) struct Head {
    /// `[tokens, d]`
    pub(super) table: Linear,
    pub(super) choice: Choice,
    /// Token of each logit, ascending.
    pub(super) vocab: Vec<TokenId>,
}

impl Head {
    /// Logits of one state `[1, d]`, one for each token of the vocabulary.
    pub(super) fn logits(&self, u: &Tensor) -> Result<Vec<f32>, ModelError> {
        let Choice::Clusters { of, centroids, ordering } = &self.choice else {
            return Ok(self.table.forward(u)?.flatten_all()?.to_vec1()?);
        };
        let scores = centroids.forward(u)?.flatten_all()?.to_vec1::<f32>()?;
        let mut order: Vec<usize> = (0..scores.len()).collect();
        order.sort_by(|a, b| scores[*b].total_cmp(&scores[*a]));
        let size = ordering.len() / of.count;
        let tokens: Vec<u32> =
            order[..of.looked_in].iter().flat_map(|c| &ordering[c * size..][..size]).map(|token| token.0).collect();
        let count = tokens.len();
        let rows = self.table.rows(&Tensor::from_slice(&tokens, count, u.device())?)?; // [tokens, d]
        let found = rows.broadcast_mul(u)?.sum(D::Minus1)?.to_vec1::<f32>()?;
        let mut logits = vec![UNSEEN; self.vocab.len()];
        for (token, logit) in tokens.iter().zip(found) {
            logits[*token as usize] = logit;
        }
        Ok(logits)
    }

    /// Bytes of its matrices.
    pub(super) fn bytes(&self) -> u64 {
        let centroids = match &self.choice {
            Choice::Clusters { centroids, .. } => centroids.bytes(),
            Choice::All | Choice::Listed => 0,
        };
        self.table.bytes() + centroids
    }
}
