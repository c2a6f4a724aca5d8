//! What a Gemma 4 has besides the sizes of every transformer: layers of two kinds with heads of their own, layers
//! that read the keys and values of others, embeddings for each layer. Which keys say so is told in `keys`.

use crate::model::nn::{RopeSpec, TransformerConfig};
use crate::model::shared_kv::Reach;

/// Sizes of one layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LayerShape {
    /// How far it sees.
    pub reach: Reach,
    /// Key/value heads.
    pub kv_heads: usize,
    /// Width of a head.
    pub head_dim: usize,
    /// Width of its feed-forward layer.
    pub ffn: usize,
    /// The layer whose keys and values it reads: itself, or one before it. None in an assistant, where all are the
    /// target's.
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

/// The layers, and what goes with them.
#[derive(Clone, Debug, PartialEq)]
pub struct Gemma {
    /// The layers, the first first.
    pub layers: Vec<LayerShape>,
    /// Positions that a sliding layer sees, its own among them.
    pub window: usize,
    /// Rotary positions of sliding layers.
    pub sliding_rope: RopeSpec,
    /// Rotary positions of full layers, in which most pairs stand still.
    pub full_rope: RopeSpec,
    /// Logits are kept between minus this and this; none = as they are.
    pub softcap: Option<f32>,
    /// Embeddings for each layer, where there are some.
    pub per_layer: Option<PerLayer>,
    /// Whether full layers have no values of their own: normed keys, not rotated, take their place.
    pub k_eq_v: bool,
}

/// Sizes of a Gemma 4.
#[derive(Clone, Debug, PartialEq)]
pub struct Gemma4Config {
    /// Those of every transformer, with the heads of sliding layers.
    pub transformer: TransformerConfig,
    /// Its layers.
    pub gemma: Gemma,
}

impl Gemma {
    /// The last layer of a kind that keeps keys and values: the one that others read, and assistants.
    #[must_use]
    pub fn lender(&self, reach: Reach) -> Option<usize> {
        let keeps = |(index, layer): (usize, &LayerShape)| layer.reach == reach && layer.source == Some(index);
        self.layers.iter().enumerate().rposition(keeps)
    }

    /// Which of the caches a layer reads, there being one for each layer that keeps keys and values.
    #[must_use]
    pub fn cache_read_by(&self, layer: usize) -> Option<usize> {
        let source = self.layers.get(layer)?.source?;
        let before = self.layers[..source].iter().enumerate();
        Some(before.filter(|(index, layer)| layer.source == Some(*index)).count())
    }

    /// Keys and values that one position takes in all layers, in numbers.
    #[must_use]
    pub fn cached_values(&self) -> u64 {
        let kept = self.layers.iter().enumerate().filter(|(index, layer)| layer.source == Some(*index));
        kept.map(|(_, layer)| (2 * layer.kv_heads * layer.head_dim) as u64).sum()
    }

    /// Weights of the table of embeddings for each layer, of which rows are looked up and nothing else.
    #[must_use]
    pub fn looked_up_weights(&self) -> u64 {
        self.per_layer.map_or(0, |table| table.vocab as u64 * (table.width * self.layers.len()) as u64)
    }

    /// Weights of all matrices but the embedding that is the head too, for a width and so many query heads.
    #[must_use]
    pub fn layer_weights(&self, d: usize, heads: usize) -> u64 {
        let of_layer = |(index, layer): (usize, &LayerShape)| {
            let kv = if layer.source == Some(index) { self.projections(layer) * layer.kv_heads } else { 0 };
            let per_layer = self.per_layer.map_or(0, |table| 3 * table.width); // gate, projection, share of the model's
            (d * (layer.head_dim * (2 * heads + kv) + 3 * layer.ffn + per_layer)) as u64
        };
        self.layers.iter().enumerate().map(of_layer).sum::<u64>() + self.looked_up_weights()
    }

    /// Matrices that make keys and values.
    fn projections(&self, layer: &LayerShape) -> usize {
        if self.k_eq_v && layer.reach == Reach::Full { 1 } else { 2 }
    }
}
