//! Loading a second, smaller model that drafts. It must speak the target's tokens: same number, same bytes.
//!
//! Whatever is wrong with it is a sentence, not an error: decoding goes on without it.

use std::path::Path;

use crate::model::drafters::eagle3;
use crate::model::families::gemma4::assistant;
use crate::model::files::source::Source;
use crate::model::load::{DraftModel, Recipe};
use crate::model::text::tokenizer::TextCodec;
use crate::model::{ModelError, load};
use crate::protocol::{DrafterInfo, DrafterKind};

/// Loads the recipe's draft model, if it names one, for a target with this codec and context.
pub(in crate::model) fn load(
    recipe: &Recipe,
    (codec, ctx_len): (&TextCodec, usize),
    progress: &mut dyn FnMut(&str, u64, u64),
) -> Option<Result<DraftModel, String>> {
    let file = recipe.draft_model.as_deref()?;
    if eagle::is_asked_for(recipe) {
        return Some(Err(
            "no draft model, decoding plainly: --draft-model names an EAGLE-3 head, which drafts as --drafter mtp"
                .into(),
        ));
    }
    if assistant::is_asked_for(recipe) {
        return Some(Err(
            "no draft model, decoding plainly: --draft-model names an assistant, which drafts as --drafter mtp".into(),
        ));
    }
    progress("draft model", 0, 1);
    let loaded = checked(recipe, file, (codec, ctx_len));
    Some(loaded.map_err(|error| format!("no draft model, decoding plainly: {error}")))
}

fn checked(recipe: &Recipe, file: &Path, (codec, ctx_len): (&TextCodec, usize)) -> Result<DraftModel, ModelError> {
    let source = Source::open(file)?;
    if let Some(difference) = codec.difference(&source.codec()?) {
        return Err(ModelError::Unsupported(format!(
            "{} has another vocabulary than the target ({difference}); choose a draft model of the target's family",
            file.display()
        )));
    }
    let longest = source.config()?.context_length;
    let own = Recipe {
        target: file.to_owned(),
        sha256: None,
        ctx_len: Some(ctx_len.min(longest)),
        mtp: None,
        draft_model: None,
        ..recipe.clone()
    };
    let model = load::load(&own, &mut |_, _, _| {})?.target;
    let spec = model.spec();
    let info = DrafterInfo {
        kind: DrafterKind::DraftModel,
        name: spec.info.name.clone(),
        sha256: None,
        dtype: spec.dtype.clone(),
        weight_bytes: spec.info.weight_bytes,
        kv_bytes_per_token: spec.info.kv_bytes_per_token,
        draft_vocab: spec.info.vocab,
        context_vocab: 0,
    };
    Ok((model, info))
}
