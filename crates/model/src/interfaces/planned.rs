//! Families of their own keys and names alone: loading follows from the plan.

use std::sync::Arc;

use crate::ModelError;
use crate::files::{ConfigJson, Folder, GgufFile, ModelFiles, TensorNames};
use crate::interfaces::family::{Drafting, Family, FamilyConfig, Names, NoSharing};
use crate::nn::{GgufKeys, TransformerConfig};
use crate::plan::{DraftPlan, Plan};

/// A model's sizes, what it computes, and what drafts beside it.
pub struct Planned {
    /// The sizes that every transformer has.
    pub transformer: TransformerConfig,
    /// What it computes.
    pub plan: Plan,
    /// Draft modules in its own files; `None` if the family never has any.
    pub own: Option<OwnModules>,
    /// Why modules made for targets of the Llama kind do not run beside it, if the plan does not say.
    pub no_sharing: Option<NoSharing>,
    /// What drafts for it where its files bring no module, if the usual sentence does not suffice.
    pub without_modules: Option<&'static str>,
}

/// Describes the modules in a model's files, in order of depth, or says why there are none.
type DescribeModules = dyn Fn(&ModelFiles, &Planned) -> Result<Vec<DraftPlan>, ModelError>;

/// Draft modules in a model's own files.
pub struct OwnModules {
    /// What they compute. The files may be others than the model's: a module may come in a file of its own.
    pub describe: Arc<DescribeModules>,
    /// Whether `--draft-vocab` trims their heads.
    pub trims: bool,
}

impl OwnModules {
    /// Modules whose heads may be trimmed.
    pub fn new(describe: impl Fn(&ModelFiles, &Planned) -> Result<Vec<DraftPlan>, ModelError> + 'static) -> Self {
        Self { describe: Arc::new(describe), trims: true }
    }
}

impl Planned {
    /// A model without draft modules.
    #[must_use]
    pub fn new(transformer: TransformerConfig, plan: Plan) -> Self {
        Self { transformer, plan, own: None, no_sharing: None, without_modules: None }
    }
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
    (!plan.has_plain_ends()).then_some(NoSharing {
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

    fn drafting(&self, source: &ModelFiles) -> Drafting {
        let own = self.own.as_ref().map(|own| (own.describe)(source, self));
        Drafting { own, no_sharing: self.no_sharing.clone().or_else(|| no_sharing(&self.plan)) }
    }

    fn trims_draft_vocab(&self, named: bool) -> bool {
        !named && self.own.as_ref().is_some_and(|own| own.trims)
    }

    fn drafter(&self) -> Option<&'static str> {
        self.without_modules
    }
}
