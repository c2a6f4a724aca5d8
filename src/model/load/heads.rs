//! What the recipe's draft model is, where it is none that runs by itself: an EAGLE-3 head or an assistant of
//! Gemma 4, which draft in the MTP module's place.

use super::{Drafting, Recipe};
use crate::model::ModelError;
use crate::model::drafters::eagle3;
use crate::model::drafters::eagle3::Plan;
use crate::model::families::gemma4::assistant;
use crate::model::nn::config::LlamaConfig;

/// At most one of them, or why it does not draft.
pub(super) struct Heads {
    pub(super) head: Option<Plan>,
    pub(super) assistant: Option<assistant::Plan>,
    pub(super) refused: Option<Result<Drafting, ModelError>>,
}

impl Heads {
    /// What the recipe names, held against the target.
    pub(super) fn wanted(recipe: &Recipe, target: &LlamaConfig) -> Result<Self, ModelError> {
        let (head, refused) = match eagle::wanted(recipe, target)?.transpose() {
            Ok(head) => (head, None),
            Err(error) => (None, Some(Err(error))),
        };
        let (assistant, refused) = match assistant::wanted(recipe, target)?.transpose() {
            Ok(assistant) => (assistant, refused),
            Err(error) => (None, Some(Err(error))),
        };
        Ok(Self { head, assistant, refused })
    }
}

/// Whether the recipe's draft model drafts in the MTP module's place.
pub(super) fn names_head(recipe: &Recipe) -> bool {
    eagle::is_asked_for(recipe) || assistant::is_asked_for(recipe)
}
