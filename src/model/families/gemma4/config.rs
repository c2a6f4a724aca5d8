//! Configuration that only Gemma 4 has: layers of two kinds with different heads, layers that read other layers' keys
//! and values, embeddings for each layer. `keys` reads it.

use crate::model::ModelError;
use crate::model::families::gemma4::plan::plan;
use crate::model::files::config_json::contradiction;
use crate::model::nn::{ExpertSizes, RopeSpec, TransformerConfig};
use crate::model::plan::{Plan, PlanFiles};
use crate::model::shared_kv::Reach;

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

    /// Weights of a layer's experts and router: all, and those that a row meets.
    #[must_use]
    pub fn weights(&self, d: usize) -> [u64; 2] {
        let router = (d * self.count) as u64;
        [self.count, self.used].map(|count| ExpertSizes { count, d, width: self.width }.weights() + router)
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

/// Sizes of a Gemma 4.
#[derive(Clone, Debug, PartialEq)]
pub struct Gemma4Config {
    /// Those of every transformer, with the heads of sliding layers.
    pub transformer: TransformerConfig,
    /// Its layers.
    pub gemma: Gemma,
    /// What it computes.
    pub plan: Plan,
}

impl Gemma4Config {
    pub(super) fn new(transformer: TransformerConfig, gemma: Gemma, files: PlanFiles<'_>) -> Self {
        Self { plan: plan(&transformer, &gemma, files), transformer, gemma }
    }
}

impl Gemma {
    /// The last layer of a kind with a cache of its own: the one that other layers and assistants read.
    #[must_use]
    pub fn lender(&self, reach: Reach) -> Option<usize> {
        let keeps = |(index, layer): (usize, &LayerShape)| layer.reach == reach && layer.source == Some(index);
        self.layers.iter().enumerate().rposition(keeps)
    }

    /// The cache that a layer reads; there is one for each layer with keys and values of its own.
    #[must_use]
    pub fn cache_read_by(&self, layer: usize) -> Option<usize> {
        let source = self.layers.get(layer)?.source?;
        let before = self.layers[..source].iter().enumerate();
        Some(before.filter(|(index, layer)| layer.source == Some(*index)).count())
    }

    /// Numbers that one position takes in the caches of all layers.
    #[must_use]
    pub fn cached_values(&self) -> u64 {
        let kept = self.layers.iter().enumerate().filter(|(index, layer)| layer.source == Some(*index));
        kept.map(|(_, layer)| (2 * layer.kv_heads * layer.head_dim) as u64).sum()
    }

    /// Weights of the table of embeddings for each layer, whose rows are only looked up.
    #[must_use]
    pub fn looked_up_weights(&self) -> u64 {
        self.per_layer.map_or(0, |table| table.vocab as u64 * (table.width * self.layers.len()) as u64)
    }

    /// Weights of all matrices except the embedding that is also the head, for a width and a number of query heads.
    #[must_use]
    pub fn layer_weights(&self, d: usize, heads: usize) -> u64 {
        let of_layer = |(index, layer): (usize, &LayerShape)| {
            let kv = if layer.source == Some(index) { self.projections(layer) * layer.kv_heads } else { 0 };
            let per_layer = self.per_layer.map_or(0, |table| 3 * table.width); // gate, projection, share of the model's
            let experts = self.experts.map_or(0, |experts| experts.weights(d)[0]);
            (d * (layer.head_dim * (2 * heads + kv) + 3 * layer.ffn + per_layer)) as u64 + experts
        };
        self.layers.iter().enumerate().map(of_layer).sum::<u64>() + self.looked_up_weights()
    }

    /// Matrices that yield keys and values.
    fn projections(&self, layer: &LayerShape) -> usize {
        if self.k_eq_v && layer.reach == Reach::Full { 1 } else { 2 }
    }
}
