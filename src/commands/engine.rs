//! Starts the engine as the arguments say.

use anyhow::{Context, Result, bail};
use draftscope::cli::{DecodeArgs, ModelArgs, RivalArgs};
use draftscope::engine::{self, EngineConfig};
use draftscope::model::options::LoadOptions;
use draftscope::protocol::stream::Source;
use draftscope::protocol::{Baseline, DrafterKind, Grammar, Rival, Settings};

use super::costs;
use super::recipe::{mtp_recipe, recipe};
use super::run_args::settings;

/// Finds the model and starts the engine.
pub(crate) fn start(
    model: &ModelArgs,
    decode: &DecodeArgs,
    grammar: Option<Grammar>,
    baseline: Baseline,
) -> Result<Source> {
    let settings = settings(model, decode, baseline)?;
    let recipe = recipe(model, &settings)?;
    has_its_drafters(&recipe, &settings)?;
    spawn(recipe, settings, grammar)
}

/// The same, with a rival if the arguments ask for one.
pub(crate) fn start_against(
    rival: &RivalArgs,
    model: &ModelArgs,
    decode: &DecodeArgs,
    grammar: Option<Grammar>,
    baseline: Baseline,
) -> Result<Source> {
    let (recipe, settings) = recipe_against(rival, model, decode, baseline)?;
    has_its_drafters(&recipe, &settings)?;
    spawn(recipe, settings, grammar)
}

/// Refuses a draft model that is asked for as drafter and not named: where nobody watches, an answer without drafts would
/// pass for one with them.
fn has_its_drafters(recipe: &LoadOptions, settings: &Settings) -> Result<()> {
    let drafters = [Some(settings.drafter), settings.rival.map(|rival| rival.drafter)];
    let needs = drafters.iter().flatten().any(|drafter| drafter.chain().contains(&DrafterKind::DraftModel));
    if needs && recipe.draft_model.is_none() {
        bail!("the drafter draft-model needs a model: name one with --draft-model FILE, or choose another --drafter");
    }
    Ok(())
}

/// The same for a screen, which shows why a draft model cannot be used and goes on without it.
pub(crate) fn start_on_screen(
    rival: &RivalArgs,
    model: &ModelArgs,
    decode: &DecodeArgs,
    grammar: Option<Grammar>,
    baseline: Baseline,
) -> Result<Source> {
    let (recipe, settings) = recipe_against(rival, model, decode, baseline)?;
    spawn(LoadOptions { draft_model_required: false, ..recipe }, settings, grammar)
}

fn recipe_against(
    rival: &RivalArgs,
    model: &ModelArgs,
    decode: &DecodeArgs,
    baseline: Baseline,
) -> Result<(LoadOptions, Settings)> {
    let mut settings = settings(model, decode, baseline)?;
    settings.rival = rival.rival.as_deref().map(|text| Rival::parse(text, &settings)).transpose()?;
    let mut recipe = recipe(model, &settings)?;
    let drafts_by_mtp = settings.rival.is_some_and(|rival| rival.drafter.chain().contains(&DrafterKind::Mtp));
    if recipe.mtp.is_none() && drafts_by_mtp {
        recipe.mtp = Some(mtp_recipe(model.mtp.as_deref())?);
    }
    Ok((recipe, settings))
}

/// Starts the engine on a recipe; answers match the grammar, if there is one.
pub(crate) fn spawn(recipe: LoadOptions, settings: Settings, grammar: Option<Grammar>) -> Result<Source> {
    let memory = costs::memory();
    engine::spawn_with(EngineConfig { recipe, settings, grammar }, memory)
        .context("cannot start a thread for the engine")
}
