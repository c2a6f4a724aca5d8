//! Loads a second, smaller model that drafts. If ids mean other tokens there than in the target, it drafts the tokens that
//! both vocabularies have.
//!
//! What is wrong with it is an error if it is required; otherwise a sentence, and decoding goes on without it.

use std::path::Path;

use serde_json::Value;

use crate::ModelError;
use crate::drafters::core::Figures;
use crate::error::clean;
use crate::files::SideFiles;
use crate::load::gguf_drafting::GgufDrafting;
use crate::load::{DraftModel, Loaded, OpenModel, load as load_model, named_module};
use crate::options::LoadOptions;
use crate::other_vocab::{OtherVocab, SharedVocab};
use crate::text::tokenizer::TextCodec;
use draftscope_protocol::{DrafterKind, MAX_DRAFT_LEN, MemoryAccount, TokenId};

/// The fewest tokens that a draft model with another vocabulary must share with the target, in percent of the target's.
const LEAST_SHARED: usize = 1;

/// What came of the option.
pub(super) struct Outcome {
    /// The draft model, or why there is none.
    pub(super) model: Result<DraftModel, String>,
    /// What it takes in memory.
    pub(super) memory: Option<MemoryAccount>,
    /// The token with which it drafts all positions in one pass.
    pub(super) mask: Option<TokenId>,
    /// What the user should know about it.
    pub(super) warning: Option<String>,
}

impl Outcome {
    fn none(why: String) -> Self {
        Self { model: Err(why), memory: None, mask: None, warning: None }
    }
}

/// Loads the draft model that the options name, if any, for a target with this codec, context and number of logits.
///
/// # Errors
/// Why the draft model cannot be used, if it is required.
pub(super) fn load(
    options: &LoadOptions,
    (codec, ctx_len, vocab): (&TextCodec, usize, u32),
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
        return Ok(Some(Outcome::none(why)));
    }
    if let Some(role) = GgufDrafting::read(file).map(|drafting| drafting.role).filter(|role| role.is_drafter()) {
        let what = format!(
            "{} is {}, which this version does not run from a GGUF file; `draftscope models info FILE` says more",
            file.display(),
            role.title()
        );
        return match options.draft_model_required {
            true => Err(ModelError::DraftModel(Box::new(ModelError::Unsupported(what)))),
            false => Ok(Some(Outcome::none(format!("no draft model, decoding plainly: {what}")))),
        };
    }
    progress("draft model", 0, 1);
    match checked(options, file, (codec, ctx_len, vocab)) {
        Ok(outcome) => Ok(Some(outcome)),
        Err(error) if options.draft_model_required => Err(ModelError::DraftModel(Box::new(error))),
        Err(error) => Ok(Some(Outcome::none(format!("no draft model, decoding plainly: {error}")))),
    }
}

fn checked(
    options: &LoadOptions,
    file: &Path,
    (codec, ctx_len, vocab): (&TextCodec, usize, u32),
) -> Result<Outcome, ModelError> {
    let opened = OpenModel::open(file)?;
    let shared = shared(codec, &opened.codec()?, file)?;
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
    let Loaded { target: mut model, memory, .. } = load_model(&own, &mut |_, _, _| {})?;
    let mut drafts = model.spec().info.vocab as usize;
    let mut mask = mask_of(file, model.spec().info.vocab)?;
    let mut warning = mask.filter(|_| file.join(WARP).is_file()).map(|_| without_states(file));
    if let Some(shared) = shared {
        drafts = shared.count();
        warning = Some(says(&shared, file) + if mask.is_some() { ONE_BY_ONE } else { "" });
        mask = None;
        model = Box::new(OtherVocab::new(model, shared, vocab));
    }
    let spec = model.spec();
    let figures = Figures {
        kind: DrafterKind::DraftModel,
        dtype: &spec.dtype,
        weight_bytes: spec.info.weight_bytes,
        kv_bytes_per_token: spec.info.kv_bytes_per_token,
        draft_vocab: drafts,
        context_vocab: 0,
    };
    let mut info = figures.info(spec.info.name.clone());
    if mask.is_some() {
        info.name.push_str(" (PARD)");
        info.block = MAX_DRAFT_LEN.into();
    }
    Ok(Outcome { model: Ok((model, info)), memory: Some(memory), mask, warning })
}

/// Beside a PARD-2 model: what makes it read the target's states.
const WARP: &str = "warp_model.bin";

/// Why a PARD model with another tokenizer drafts as others do.
const ONE_BY_ONE: &str =
    "; it is a PARD model, whose mask is no token of the target, so it drafts one token after the other";

fn without_states(file: &Path) -> String {
    format!("{} drafts without the target's states: '{WARP}' (PARD-2) is not read", file.display())
}

/// The mask token of a draft model that was trained to draft all positions in one pass: PARD (arXiv:2504.18583), whose
/// `config.json` has the key `pard_token`.
fn mask_of(file: &Path, vocab: u32) -> Result<Option<TokenId>, ModelError> {
    let Some(json) = SideFiles::of(file).read("config.json").ok().flatten().filter(|_| file.is_dir()) else {
        return Ok(None);
    };
    let config: Value = serde_json::from_slice(&json).unwrap_or_default();
    let Some(token) = config.get("pard_token").filter(|token| !token.is_null()) else { return Ok(None) };
    match token.as_u64().and_then(|token| u32::try_from(token).ok()).filter(|token| *token < vocab) {
        Some(token) => Ok(Some(TokenId(token))),
        None => {
            let token: String = clean(&token.to_string()).chars().take(40).collect();
            Err(ModelError::Metadata(format!("'pard_token' is {token}, and the draft model has {vocab} tokens")))
        }
    }
}

/// What the vocabularies share if ids mean other tokens in the draft model's; `None` if they mean the same.
fn shared(target: &TextCodec, own: &TextCodec, file: &Path) -> Result<Option<SharedVocab>, ModelError> {
    let Some(difference) = target.difference(own) else { return Ok(None) };
    let shared = SharedVocab::of(target, own);
    if shared.count() * 100 >= shared.target_len() * LEAST_SHARED {
        return Ok(Some(shared));
    }
    Err(ModelError::Unsupported(format!(
        "{} has another vocabulary than the target ({difference}) and shares hardly any token with it; choose a draft model \
         of the target's family",
        file.display()
    )))
}

fn says(shared: &SharedVocab, file: &Path) -> String {
    let (count, all) = (shared.count(), shared.target_len());
    let percent = count as f64 * 100.0 / all.max(1) as f64;
    format!(
        "{} has another tokenizer than the target: it drafts the {count} of the target's {all} tokens ({percent:.0} %) that \
         both have, and the text stays the target's",
        file.display()
    )
}
