//! Families whose parts every backend runs: of their own they have keys and names, and loading follows from the plan.

use std::sync::Arc;

use crate::files::{ConfigJson, Folder, GgufFile, ModelFiles, TensorNames};
use crate::interfaces::{
    Backend, Drafting, Family, FamilyConfig, LoadContext, LoadResult, LoadedTarget, Modules, Names, NoSharing,
    Progress, SharedWeights, TryOut,
};
use crate::nn::{GgufKeys, TransformerConfig, TransformerModel};
use crate::plan::Plan;
use crate::reference::Weights;
use crate::{Model, ModelError, ModelSpec};

/// A model's sizes, and what it computes.
#[derive(Clone, Debug, PartialEq)]
pub struct Planned {
    /// The sizes that every transformer has.
    pub transformer: TransformerConfig,
    /// What it computes.
    pub plan: Plan,
}

/// A family whose keys become a plan.
pub struct PlannedFamily {
    /// Its names.
    pub names: Names,
    /// Reads `config.json`, as [`Family::read_json`].
    pub json: fn(&ConfigJson, Option<&Folder>) -> Result<Planned, ModelError>,
    /// Reads the metadata of a GGUF file, as [`Family::read_gguf`].
    pub gguf: fn(GgufKeys<'_>) -> Result<Planned, ModelError>,
    /// How its checkpoints name tensors.
    pub tensors: TensorNames,
}

impl Family for PlannedFamily {
    fn names(&self) -> Names {
        self.names
    }

    fn read_json(&self, json: &ConfigJson, folder: Option<&Folder>) -> Result<Box<dyn FamilyConfig>, ModelError> {
        Ok(Box::new((self.json)(json, folder)?))
    }

    fn read_gguf(&self, gguf: &GgufFile) -> Result<Box<dyn FamilyConfig>, ModelError> {
        let arch = gguf.text("general.architecture").unwrap_or(self.names.title);
        Ok(Box::new((self.gguf)(GgufKeys { gguf, arch })?))
    }

    fn tensor_names(&self) -> TensorNames {
        self.tensors
    }
}

/// Why draft modules that share embedding and head with a target do not run beside one that scales them: none was trained
/// so.
fn no_sharing(plan: &Plan) -> Option<NoSharing> {
    let is_scaled = plan.embedding.scale != 1.0 || plan.end.scale != 1.0 || plan.end.cap.is_some();
    is_scaled.then_some(NoSharing {
        family: "a model that scales its embedding or its logits",
        instead_of_head: "name a smaller model of its family with --draft-model",
        instead_of_module: "has none, so leave --mtp out",
    })
}

impl FamilyConfig for Planned {
    fn transformer(&self) -> &TransformerConfig {
        &self.transformer
    }

    fn plan(&self) -> &Plan {
        &self.plan
    }

    fn drafting(&self, _source: &ModelFiles) -> Drafting {
        Drafting { own: None, no_sharing: no_sharing(&self.plan) }
    }

    fn load(&self, context: &LoadContext<'_>, backend: Backend<'_>, progress: &mut Progress<'_>) -> LoadResult {
        load(context, &backend, progress)
    }
}

/// Loads a target whose files bring no draft modules, as its plan says; what drafts beside it is what its configuration
/// [says](FamilyConfig::drafting).
///
/// # Errors
/// When a tensor is missing, misshapen or damaged, or `backend` lacks a part of the plan.
pub(crate) fn load(context: &LoadContext<'_>, backend: &Backend<'_>, progress: &mut Progress<'_>) -> LoadResult {
    let LoadContext { source, config, ctx_len, .. } = *context;
    let no_sharing = config.drafting(source).no_sharing;
    let (tensors, spec) = context.on_candle(backend);
    let weights = Arc::new(Weights::load(tensors, config.plan(), ctx_len, progress)?);
    Ok(Box::new(OnReference { weights, spec, no_sharing }))
}

/// Why there are no modules in the target's files, if the family says more than that it never has any.
fn no_modules(context: &LoadContext<'_>) -> Option<Result<Modules, ModelError>> {
    context.config.drafting(context.source).own?.err().map(Err)
}

/// A target on the reference.
struct OnReference {
    weights: Arc<Weights>,
    spec: ModelSpec,
    no_sharing: Option<NoSharing>,
}

impl LoadedTarget for OnReference {
    fn own_modules(&self, context: &LoadContext<'_>) -> Option<Result<Modules, ModelError>> {
        no_modules(context)
    }

    fn shared(&self) -> Result<SharedWeights<'_>, NoSharing> {
        let shared = || SharedWeights::Candle(Arc::clone(&self.weights.trunk) as _, self.spec.ctx_len);
        self.no_sharing.clone().map_or_else(|| Ok(shared()), Err)
    }

    fn try_out(&mut self, run: &mut TryOut<'_>) -> Result<(), ModelError> {
        run(&mut TransformerModel::new(Arc::clone(&self.weights), self.spec.clone())?)
    }

    fn into_model(self: Box<Self>) -> Result<Box<dyn Model>, ModelError> {
        Ok(Box::new(TransformerModel::new(self.weights, self.spec)?))
    }
}
