//! Configuration that only Gemma 4 has: layers of two kinds with different heads, layers that read other layers' keys
//! and values, embeddings for each layer. `keys` reads it.

use super::shapes::Gemma;
use crate::families::gemma4::plan::plan;
use crate::nn::TransformerConfig;
use crate::plan::{Plan, PlanFiles};

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
