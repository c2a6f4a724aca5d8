//! Loads a second, smaller model that drafts. The ids that both vocabularies have must mean the same tokens; one may have a
//! few more at its end.
//!
//! What is wrong with it is an error if it is required; otherwise a sentence, and decoding goes on without it.

use std::path::Path;

use crate::ModelError;
use crate::drafters::core::Figures;
use crate::load::gguf_drafting::GgufDrafting;
use crate::load::{DraftModel, Loaded, OpenModel, load as load_model, named_module};
use crate::options::LoadOptions;
use crate::text::tokenizer::TextCodec;
use draftscope_protocol::{DrafterKind, MemoryAccount};

/// The draft model or why there is none, and what it takes in memory.
type Outcome = (Result<DraftModel, String>, Option<MemoryAccount>);

/// Loads the draft model that the options name, if any, for a target with this codec and context.
///
/// # Errors
/// Why the draft model cannot be used, if it is required.
pub(super) fn load(
    options: &LoadOptions,
    (codec, ctx_len): (&TextCodec, usize),
    progress: &mut dyn FnMut(&str, u64, u64),
) -> Result<Option<Outcome>, ModelError> {
    let Some(file) = options.draft_model.as_deref() else {
        return Ok(None);
    };
    if let Some(kind) = named_module::kind_in(file) {
        let why = format!(
            "no draft model, decoding plainly: --draft-model names {}, which drafts as --drafter mtp",
            kind.title()
        );
        return Ok(Some((Err(why), None)));
    }
    if let Some(role) = GgufDrafting::read(file).map(|drafting| drafting.role).filter(|role| role.is_drafter()) {
        let what = format!(
            "{} is {}, which this version does not run from a GGUF file; `draftscope models info FILE` says more",
            file.display(),
            role.title()
        );
        return match options.draft_model_required {
            true => Err(ModelError::DraftModel(Box::new(ModelError::Unsupported(what)))),
            false => Ok(Some((Err(format!("no draft model, decoding plainly: {what}")), None))),
        };
    }
    progress("draft model", 0, 1);
    match checked(options, file, (codec, ctx_len)) {
        Ok((model, account)) => Ok(Some((Ok(model), Some(account)))),
        Err(error) if options.draft_model_required => Err(ModelError::DraftModel(Box::new(error))),
        Err(error) => Ok(Some((Err(format!("no draft model, decoding plainly: {error}")), None))),
    }
}

fn checked(
    options: &LoadOptions,
    file: &Path,
    (codec, ctx_len): (&TextCodec, usize),
) -> Result<(DraftModel, MemoryAccount), ModelError> {
    let opened = OpenModel::open(file)?;
    if let Some(difference) = codec.difference(&opened.codec()?) {
        return Err(ModelError::Unsupported(format!(
            "{} has another vocabulary than the target ({difference}); choose a draft model of the target's family",
            file.display()
        )));
    }
    let longest = opened.transformer().context_length;
    let own = LoadOptions {
        target: file.to_owned(),
        sha256: None,
        ctx_len: Some(ctx_len.min(longest)),
        mtp: None,
        draft_model: None,
        draft_model_required: false,
        ..options.clone()
    };
    let Loaded { target: model, memory, .. } = load_model(&own, &mut |_, _, _| {})?;
    let spec = model.spec();
    let figures = Figures {
        kind: DrafterKind::DraftModel,
        dtype: &spec.dtype,
        weight_bytes: spec.info.weight_bytes,
        kv_bytes_per_token: spec.info.kv_bytes_per_token,
        draft_vocab: spec.info.vocab as usize,
        context_vocab: 0,
    };
    let info = figures.info(spec.info.name.clone());
    Ok(((model, info), memory))
}
