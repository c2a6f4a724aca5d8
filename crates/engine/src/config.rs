//! The configuration of an engine: models, settings, grammar.

use draftscope_model::options::LoadOptions;
use draftscope_protocol::{Grammar, Settings};

/// How a run starts.
#[derive(Clone, Debug)]
pub struct EngineConfig {
    /// The models.
    pub recipe: LoadOptions,
    /// Settings at the start.
    pub settings: Settings,
    /// What every answer must match; none for free text.
    pub grammar: Option<Grammar>,
}
