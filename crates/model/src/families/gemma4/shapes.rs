//! The sizes that a Gemma 4 config gives, layer by layer.

use crate::ModelError;
use crate::files::config_json::contradiction;
use crate::nn::RopeSpec;
use crate::shared_kv::Reach;

/// Sizes of one layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LayerShape {
    /// Which positions it sees.
    pub reach: Reach,
    /// Key/value heads.
    pub kv_heads: usize,
    /// Width of a head.
    pub head_dim: usize,
    /// Width of its feed-forward layer.
    pub ffn: usize,
    /// The layer whose keys and values it reads: itself, or one before it. `None` in an assistant, whose layers all
    /// read the target's.
    pub source: Option<usize>,
}

/// Embeddings of a token for each layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PerLayer {
    /// Width of each.
    pub width: usize,
    /// Tokens of the table.
    pub vocab: usize,
}

/// Most experts of a layer.
pub(super) const MAX_EXPERTS: usize = 1 << 14;

/// The experts of every layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExpertShape {
    /// Experts of a layer.
    pub count: usize,
    /// Experts of a row.
    pub used: usize,
    /// Width of an expert.
    pub width: usize,
}

impl ExpertShape {
    /// Checks that a row chooses no more experts than there are; the names are those of the two keys.
    ///
    /// # Errors
    /// [`ModelError::Metadata`] naming the keys.
    pub(super) fn checked(self, [used, count]: [&str; 2]) -> Result<Self, ModelError> {
        if self.used > self.count {
            return contradiction(format!("'{used}' is {} and '{count}' is {}", self.used, self.count));
        }
        Ok(self)
    }
}

/// The layers and their common settings.
#[derive(Clone, Debug, PartialEq)]
pub struct Gemma {
    /// The layers, in order.
    pub layers: Vec<LayerShape>,
    /// Positions that a sliding layer sees, including its own.
    pub window: usize,
    /// Rotary positions of sliding layers.
    pub sliding_rope: RopeSpec,
    /// Rotary positions of full layers, in which most pairs are not rotated.
    pub full_rope: RopeSpec,
    /// Logits are capped to ± this; `None` = not capped.
    pub softcap: Option<f32>,
    /// Embeddings for each layer, if there are any.
    pub per_layer: Option<PerLayer>,
    /// Experts beside the dense feed-forward layers, if there are any.
    pub experts: Option<ExpertShape>,
    /// Whether full layers have no value matrix: normed, unrotated keys serve as values.
    pub k_eq_v: bool,
}

impl Gemma {
    /// The last layer of a kind with a cache of its own: the one that other layers and assistants read.
    #[must_use]
    pub fn lender(&self, reach: Reach) -> Option<usize> {
        let keeps = |(index, layer): (usize, &LayerShape)| layer.reach == reach && layer.source == Some(index);
        self.layers.iter().enumerate().rposition(keeps)
    }
}
