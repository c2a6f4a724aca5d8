//! Warnings about options and files that were ignored.

use super::named_module;
use crate::interfaces::FamilyConfig;
use crate::options::LoadOptions;
use crate::text::template::ChatTemplate;

/// A chat template that does not run here, and why.
pub(super) fn template(why: &str) -> String {
    format!("the model's chat template does not run here ({why}); use --raw to send text as it stands")
}

/// A model without a chat template.
pub(super) fn no_template() -> String {
    "the model has no chat template; messages are sent as they stand, without roles".to_owned()
}

/// `--think` for a template that does not know it.
pub(super) fn think(options: &LoadOptions, template: Option<&ChatTemplate>) -> Option<String> {
    let knows = template.is_some_and(ChatTemplate::knows_thinking);
    (options.think.is_some() && !knows).then(|| {
        let why = match template {
            Some(_) => "the model's chat template has no variable for it (enable_thinking or thinking)",
            None => "the model has no chat template that runs",
        };
        format!("--think is ignored: {why}")
    })
}

/// A draft vocabulary that no head uses; `None` if another message gives the reason.
pub(super) fn draft_vocab(options: &LoadOptions, config: &dyn FamilyConfig, drafts: bool) -> Option<String> {
    let trims = config.trims_draft_vocab(named_module::requested(options).is_some());
    (options.draft_vocab.is_some() && !trims && drafts).then(|| {
        "--draft-vocab is ignored: it trims the head of a module that comes with a Qwen3.5, a DeepSeek-V3 or a GLM-4.7-Flash, or of an assistant, and another module drafts here"
            .to_owned()
    })
}

/// `--rollback` where it changes nothing; `on_gpu`: the GPU backend runs the target.
pub(super) fn rollback(options: &LoadOptions, config: &dyn FamilyConfig, on_gpu: bool) -> Option<String> {
    options.rollback?;
    match (config.plan().state_bytes(), on_gpu) {
        (0, _) if options.draft_model.is_none() => {
            Some("--rollback is ignored: it is for recurrent layers, and this model has none".to_owned())
        }
        (1.., true) => Some(
            "--rollback is ignored on a GPU, which keeps one state and runs the rows after it again in each pass"
                .to_owned(),
        ),
        _ => None,
    }
}
