//! Loads a second, smaller model that drafts. If ids mean other tokens there than in the target, it drafts the tokens that
//! both vocabularies have, or writes in its own tokens, whose text becomes tokens of the target.
//!
//! What is wrong with it is an error if it is required; otherwise a sentence, and decoding goes on without it.

use std::path::Path;
use std::sync::Arc;

use serde_json::Value;

use crate::drafters::core::Figures;
use crate::error::clean;
use crate::files::SideFiles;
use crate::load::gguf_drafting::GgufDrafting;
use crate::load::open::OpenModel;
use crate::load::{DraftForm, DraftModel, Loaded, load as load_model, named_module};
use crate::options::LoadOptions;
use crate::other_vocab::strings::Strings;
use crate::other_vocab::{OtherVocab, SharedVocab};
use crate::text::tokenizer::TextCodec;
use crate::{Model, ModelError};
use draftscope_protocol::{DrafterKind, MAX_DRAFT_LEN, MemoryAccount, TokenId, VocabMethod};

/// The fewest tokens of the target that a draft model with another vocabulary must be able to draft, in percent.
const LEAST_SHARED: usize = 1;

/// Share of the tokens of a text from which on those that both vocabularies have are drafted, and not strings: a draft ends
/// at a token that only the target has (docs/drafters.md has what was measured).
const ENOUGH: f64 = 0.95;

/// The same where the rule divides by q, which the drafts of strings do not have.
const ENOUGH_WITH_Q: f64 = 0.90;

/// What came of the option.
pub(super) struct Outcome {
    /// The draft model, or why there is none.
    pub(super) model: Result<DraftModel, String>,
    /// What it takes in memory.
    pub(super) memory: Option<MemoryAccount>,
    /// How it drafts.
    pub(super) form: DraftForm,
    /// What the user should know about it.
    pub(super) warning: Option<String>,
}

impl Outcome {
    fn none(why: String) -> Self {
        Self { model: Err(why), memory: None, form: DraftForm::OneByOne, warning: None }
    }
}

/// Loads the draft model that the options name, if any, for a target with this codec, context and number of logits.
///
/// # Errors
/// Why the draft model cannot be used, if it is required.
pub(super) fn load(
    options: &LoadOptions,
    (codec, ctx_len, vocab): (&Arc<TextCodec>, usize, u32),
    progress: &mut dyn FnMut(&str, u64, u64),
) -> Result<Option<Outcome>, ModelError> {
    let Some(file) = options.draft_model.as_deref() else {
        return Ok(None);
    };
    if let Some(kind) = named_module::kind_in(file) {
        let why = format!("--draft-model names {}, which drafts as --drafter mtp", kind.title());
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
            false => Ok(Some(Outcome::none(what))),
        };
    }
    progress("draft model", 0, 1);
    match checked(options, file, (codec, ctx_len, vocab)) {
        Ok(outcome) => Ok(Some(outcome)),
        Err(error) if options.draft_model_required => Err(ModelError::DraftModel(Box::new(error))),
        Err(error) => Ok(Some(Outcome::none(error.to_string()))),
    }
}

fn checked(
    options: &LoadOptions,
    file: &Path,
    (codec, ctx_len, vocab): (&Arc<TextCodec>, usize, u32),
) -> Result<Outcome, ModelError> {
    let opened = OpenModel::open(file)?;
    let other = other((options.vocab_method, options.divides_by_q), (codec, opened.codec()?), file)?;
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
    let mask = mask_of(file, model.spec().info.vocab)?;
    let mut form = mask.map_or(DraftForm::OneByOne, DraftForm::Masks);
    let warning = match (mask, &other) {
        (Some(_), None) if file.join(WARP).is_file() => Some(without_states(file)),
        (_, None) => options.vocab_method.map(|_| SAME_TOKENIZER.to_owned()),
        (mask, Some(other)) => Some(other.says(file) + if mask.is_some() { ONE_BY_ONE } else { "" }),
    };
    let method = other.as_ref().map(|other| other.method.name());
    if let Some(other) = other {
        drafts = other.count;
        (model, form) = other.wrap(model, vocab);
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
    info.vocab_method = method;
    if matches!(form, DraftForm::Masks(_)) {
        info.name.push_str(" (PARD)");
        info.block = MAX_DRAFT_LEN.into();
    }
    Ok(Outcome { model: Ok((model, info)), memory: Some(memory), form, warning })
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

/// `--vocab-method` for a model that needs none.
const SAME_TOKENIZER: &str = "--vocab-method is ignored: the draft model has the target's tokenizer";

/// A draft model's vocabulary in which ids mean other tokens than in the target's, and how it drafts.
struct OtherTokenizer {
    method: Method,
    /// Tokens of the target that it can draft, and all.
    count: usize,
    all: usize,
    /// Share of a text's tokens that both vocabularies have, 0 to 1.
    share: f64,
    why: Why,
}

/// Why a method was taken.
enum Why {
    /// The user chose it.
    Chosen,
    /// What both vocabularies have of a text.
    Share,
    /// The same, for a rule that divides by q.
    ShareWithQ,
}

/// The way to draft with another tokenizer, and what it needs.
enum Method {
    Intersection(SharedVocab),
    Strings(Strings),
}

impl Method {
    fn name(&self) -> VocabMethod {
        match self {
            Self::Intersection(_) => VocabMethod::Intersection,
            Self::Strings(_) => VocabMethod::Strings,
        }
    }
}

/// The method for two vocabularies that share this part of a text's tokens.
fn usual(share: f64, divides_by_q: bool) -> VocabMethod {
    let enough = if divides_by_q { ENOUGH_WITH_Q } else { ENOUGH };
    if share >= enough { VocabMethod::Intersection } else { VocabMethod::Strings }
}

/// How a draft model drafts with another tokenizer; `None` if ids mean the same.
fn other(
    (chosen, divides_by_q): (Option<VocabMethod>, bool),
    (target, own): (&Arc<TextCodec>, TextCodec),
    file: &Path,
) -> Result<Option<OtherTokenizer>, ModelError> {
    let Some(difference) = target.difference(&own) else { return Ok(None) };
    let shared = SharedVocab::of(target, &own);
    let (all, share) = (shared.target_len(), shared.share_of_text(target)?);
    let why = match chosen {
        Some(_) => Why::Chosen,
        None if divides_by_q => Why::ShareWithQ,
        None => Why::Share,
    };
    let (count, method) = match chosen.unwrap_or(usual(share, divides_by_q)) {
        VocabMethod::Intersection => (shared.count(), Method::Intersection(shared)),
        VocabMethod::Strings => {
            let strings = Strings::new(Arc::clone(target), Arc::new(own), shared)?;
            (strings.count(), Method::Strings(strings))
        }
    };
    if count * 100 >= all * LEAST_SHARED {
        return Ok(Some(OtherTokenizer { method, count, all, share, why }));
    }
    Err(ModelError::Unsupported(format!(
        "{} has another vocabulary than the target ({difference}) and can draft hardly any of its tokens; choose a draft model \
         of the target's family",
        file.display()
    )))
}

impl OtherTokenizer {
    /// The model as the drafter runs it, and how.
    fn wrap(self, model: Box<dyn Model>, vocab: u32) -> (Box<dyn Model>, DraftForm) {
        match self.method {
            Method::Intersection(shared) => (Box::new(OtherVocab::new(model, shared, vocab)), DraftForm::OneByOne),
            Method::Strings(strings) => (model, DraftForm::Strings(Arc::new(strings))),
        }
    }

    /// Which method it takes, why, and what it can draft.
    fn says(&self, file: &Path) -> String {
        let of_vocab = self.count as f64 * 100.0 / self.all.max(1) as f64;
        let of_text = self.share * 100.0;
        let how = match self.method.name() {
            VocabMethod::Intersection => "it drafts tokens that both have (intersection)",
            VocabMethod::Strings => "it drafts text, of which the target's tokenizer makes tokens (strings)",
        };
        let only = if matches!(self.method, Method::Strings(_)) { "only " } else { "" };
        let share = format!("since {only}{of_text:.1} % of a text's tokens are in both vocabularies");
        let why = match (&self.why, &self.method) {
            (Why::Chosen, _) => "as --vocab-method says".to_owned(),
            (Why::ShareWithQ, Method::Intersection(_)) => {
                format!("{share} and the rule divides by the probability of a draft, which text would not have")
            }
            (Why::Share | Why::ShareWithQ, _) => share,
        };
        let (count, all) = (self.count, self.all);
        format!(
            "{} has another tokenizer than the target: {how}, {why}; it can draft {count} of the target's {all} tokens \
             ({of_vocab:.0} %), and the text stays the target's",
            file.display()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_that_divides_by_q_makes_do_with_fewer_shared_tokens() {
        let (tokens, text) = (VocabMethod::Intersection, VocabMethod::Strings);
        // 94 %: SmolLM2 and Gemma 3, either way
        for (share, methods) in [(0.96, [tokens; 2]), (0.94, [text, tokens]), (0.89, [text; 2])] {
            assert_eq!([usual(share, false), usual(share, true)], methods, "{share}");
        }
    }
}
