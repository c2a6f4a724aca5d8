//! What the layers of a Gemma 4 are: `models info`.

use std::fmt::{self, Display};

use indicatif::HumanCount;
use serde::Serialize;

use crate::model::families::gemma4::config::{Gemma, Reach};

/// Layers in figures.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct GemmaCard {
    /// Layers that see as far as the window.
    pub sliding_layers: usize,
    /// Positions of the window.
    pub window: usize,
    /// Layers that see everything.
    pub full_layers: usize,
    /// Width of a head in these.
    pub full_head_dim: usize,
    /// Key/value heads in these.
    pub full_kv_heads: usize,
    /// Layers of either kind that read the keys and values of another.
    pub sharing_layers: usize,
    /// Width of the feed-forward layers in these.
    pub sharing_ffn: Option<usize>,
    /// Width of a token's embedding for each layer; none where there are none.
    pub per_layer_width: Option<usize>,
    /// Weights of these embeddings.
    pub per_layer_weights: u64,
}

impl GemmaCard {
    pub(in crate::model) fn of(gemma: &Gemma) -> Self {
        let count = |reach| gemma.layers.iter().filter(|layer| layer.reach == reach).count();
        let full = gemma.layers.iter().find(|layer| layer.reach == Reach::Full);
        let shares = |(index, _): &(usize, _)| gemma.layers[*index].source != Some(*index);
        let sharing = || gemma.layers.iter().enumerate().filter(shares);
        Self {
            sliding_layers: count(Reach::Sliding),
            window: gemma.window,
            full_layers: count(Reach::Full),
            full_head_dim: full.map_or(0, |layer| layer.head_dim),
            full_kv_heads: full.map_or(0, |layer| layer.kv_heads),
            sharing_layers: sharing().count(),
            sharing_ffn: sharing().next().map(|(_, layer)| layer.ffn),
            per_layer_width: gemma.per_layer.map(|of| of.width),
            per_layer_weights: gemma.looked_up_weights(),
        }
    }
}

impl Display for GemmaCard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "layers   {} sliding ({} positions), {} full with {} key/value heads of {}",
            self.sliding_layers, self.window, self.full_layers, self.full_kv_heads, self.full_head_dim
        )?;
        if let Some(ffn) = self.sharing_ffn {
            write!(f, "\nshared   the last {} read others' keys and values, feed-forward {ffn}", self.sharing_layers)?;
        }
        if let Some(width) = self.per_layer_width {
            write!(f, "\nper layer embeddings of width {width}, {} weights", HumanCount(self.per_layer_weights))?;
        }
        Ok(())
    }
}
