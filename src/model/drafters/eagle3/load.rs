//! From a recipe to a head, which takes the MTP module's place.

use std::sync::Arc;

use crate::model::drafters::eagle3::{CandleEagle, Plan, is_head};
use crate::model::families::llama::LlamaWeights;
use crate::model::load::{Drafting, Recipe};
use crate::model::memory;
use crate::model::native::{MtpStorage, NativeEagle, NativeLlama};
use crate::model::nn::config::LlamaConfig;
use crate::model::{Model, ModelError, MtpModule};
use crate::protocol::{DrafterInfo, DrafterKind};

/// Whether the recipe's draft model is an EAGLE-3 head.
pub(in crate::model) fn is_asked_for(recipe: &Recipe) -> bool {
    recipe.draft_model.as_deref().is_some_and(is_head)
}

/// The recipe's draft model, if it is an EAGLE-3 head, held against the target.
///
/// # Errors
/// [`ModelError::Unsupported`] when another module is asked for as well.
pub(in crate::model) fn wanted(
    recipe: &Recipe,
    target: &LlamaConfig,
) -> Result<Option<Result<Plan, ModelError>>, ModelError> {
    let Some(folder) = recipe.draft_model.as_deref().filter(|_| is_asked_for(recipe)) else {
        return Ok(None);
    };
    if recipe.mtp.as_ref().is_some_and(|mtp| mtp.required) {
        return Err(ModelError::Unsupported(
            "--mtp names a module and --draft-model an EAGLE-3 head, and one of them can read the target's states; leave one out".into(),
        ));
    }
    Ok(Some(Plan::open(folder, target)))
}

fn drafting(module: Box<dyn MtpModule>, plan: &Plan, (dtype, weight_bytes, kv): (&str, u64, u64)) -> Drafting {
    let info = DrafterInfo {
        kind: DrafterKind::Mtp,
        name: format!("{} (EAGLE-3)", plan.name),
        sha256: None,
        dtype: dtype.to_owned(),
        weight_bytes,
        kv_bytes_per_token: kv,
        draft_vocab: plan.vocab.len() as u32,
        context_vocab: 0,
    };
    (vec![module], info)
}

/// A head beside a native target.
pub(in crate::model) fn native(plan: &Plan, target: &NativeLlama) -> Result<Drafting, ModelError> {
    let ctx_len = target.spec().ctx_len;
    plan.need((9, "q8_0"), 2, ctx_len).check(fit::available())?;
    let head = NativeEagle::load(plan, target, MtpStorage::default())?;
    let figures = ("q8_0", head.weight_bytes() as u64, head.kv_bytes_per_token());
    Ok(drafting(Box::new(head), plan, figures))
}

/// A head beside a target on candle.
pub(in crate::model) fn candle(
    plan: &Plan,
    target: &Arc<LlamaWeights>,
    ctx_len: usize,
) -> Result<Drafting, ModelError> {
    if target.device().is_cpu() {
        plan.need((32, "f32"), 4, ctx_len).check(fit::available())?;
    }
    let head = CandleEagle::load(plan, Arc::clone(target) as _, ctx_len)?;
    let figures = ("f32", head.bytes(), head.kv_bytes_per_slot());
    Ok(drafting(Box::new(head), plan, figures))
}
