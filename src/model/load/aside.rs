//! What of a recipe and of a model's files is left aside, in sentences: nothing of it stops decoding.

use super::Recipe;
use super::heads::names_head;
use crate::model::nn::config::LlamaConfig;

/// A chat template that does not run here, and why.
pub(super) fn template(why: &str) -> String {
    format!(
        "the model's chat template is left aside, since it does not run here ({why}); use --raw to send text as it stands"
    )
}

/// A trimmed vocabulary that no head makes use of; nothing where there is a reason told already.
pub(super) fn draft_vocab(recipe: &Recipe, config: &LlamaConfig, drafts: bool) -> Option<String> {
    let trims = config.gemma.is_some() || (config.architecture.is_mixed() && !names_head(recipe));
    (recipe.draft_vocab.is_some() && !trims && drafts).then(|| {
        "--draft-vocab is left aside: it trims the head of a module that comes with a Qwen3.5, a DeepSeek-V3 or a GLM-4.7-Flash, or of an assistant, and another one drafts here"
            .to_owned()
    })
}
