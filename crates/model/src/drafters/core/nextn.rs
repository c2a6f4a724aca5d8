//! The draft modules of DeepSeek-V3's layout, which GLM-4.5 has too: layers after the last one, each with a projection before
//! it and a norm after it (`model.layers.{L}.eh_proj` …).
//!
//! Invariant: they are found by their tensors: many files announce modules that were left out.

use crate::ModelError;
use crate::drafters::core::own::OwnTensors;
use crate::files::ModelFiles;
use crate::interfaces::Planned;
use crate::nn::TransformerConfig;
use crate::plan::{Angles, DraftPlan, Layer, MAX_MODULES};
use draftscope_protocol::MtpSpec;

/// How many of the announced modules are loaded.
///
/// # Errors
/// A sentence that says how many are missing.
fn check_modules(source: &ModelFiles, (config, announced): (&TransformerConfig, usize)) -> Result<usize, ModelError> {
    let own = OwnTensors { source, config };
    match (announced, own.found()) {
        (0, 0) => Err(ModelError::Unsupported(format!("{} brings no draft module", source.file_name()))),
        (0, found) => Ok(found),
        (count @ 1..=MAX_MODULES, 0) if !source.is_checkpoint() => Err(ModelError::Metadata(format!(
            "{} announces {count} draft modules ('nextn_predict_layers') and holds no tensor of them",
            source.file_name()
        ))),
        (count @ 1..=MAX_MODULES, 0) => Err(ModelError::Metadata(format!(
            "config.json announces {count} draft modules ('num_nextn_predict_layers') and the folder holds no tensor of them"
        ))),
        (count, _) => own.check(count).map(|()| count),
    }
}

/// The modules of a model's files as data, in order of depth; `layer` makes the layer of a block, which follows the model's
/// last one.
///
/// # Errors
/// When one is not there.
pub(crate) fn nextn_plans(
    source: &ModelFiles,
    Planned { transformer: config, plan, .. }: &Planned,
    layer: impl Fn(usize) -> Layer,
) -> Result<Vec<DraftPlan>, ModelError> {
    let own = OwnTensors { source, config };
    let count = check_modules(source, (config, plan.announced_modules))?;
    let usual = || Angles { rope: config.rope.clone(), width: config.head_dim };
    let angles = plan.angles.first().cloned().unwrap_or_else(usual);
    let module = |index| own.plan(index, (layer(config.layers + index), angles.clone()), MtpSpec::default());
    Ok((0..count).map(module).collect())
}
