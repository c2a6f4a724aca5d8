//! What families and loaded targets implement.

use std::any::Any;
use std::sync::Arc;

use candle_core::Device;
use draftscope_protocol::{DrafterInfo, ModelInfo, TokenId};

use crate::files::{ConfigJson, Folder, GgufFile, ModelFiles, TensorNames};
use crate::native::{self, NativeLlama};
use crate::nn::{MatmulBackend, SharedTarget, Tensors, TransformerConfig};
use crate::options::{DraftVocab, LoadOptions, WeightType, device_name, device_threads};
use crate::plan::{DraftPlan, Plan};
use crate::{Checkpoint, DraftModule, Model, ModelError, ModelSpec};

/// Names of a family.
#[derive(Clone, Copy, Debug)]
pub struct Names {
    /// As the program lists it, e.g. `qwen3.5`.
    pub title: &'static str,
    /// `general.architecture` of GGUF files; empty if GGUF files are not supported.
    pub gguf: &'static [&'static str],
    /// `model_type` of `config.json`; empty if folders are not supported.
    pub json: &'static [&'static str],
}

/// A model family: everything the program needs to know to run one.
pub trait Family: Sync {
    /// Its names.
    fn names(&self) -> Names;

    /// Reads `config.json`, checked against the tensors of `folder` if the weights exist already.
    ///
    /// # Errors
    /// [`ModelError::Unsupported`] or [`ModelError::Metadata`] naming the key.
    fn read_json(&self, json: &ConfigJson, folder: Option<&Folder>) -> Result<Box<dyn FamilyConfig>, ModelError>;

    /// Reads the metadata of a GGUF file.
    ///
    /// # Errors
    /// As [`Family::read_json`]; [`ModelError::Unsupported`] for a family whose GGUF files do not run.
    fn read_gguf(&self, _gguf: &GgufFile) -> Result<Box<dyn FamilyConfig>, ModelError> {
        Err(ModelError::Unsupported(format!("{} is not supported as a GGUF file", self.names().title)))
    }

    /// How its checkpoints name tensors.
    fn tensor_names(&self) -> TensorNames;

    /// Whether a text always begins with the family's own token, whatever the tokenizer's files say.
    fn always_begins(&self) -> bool {
        false
    }
}

/// What drafts beside a target.
#[derive(Debug, Default)]
pub struct Drafting {
    /// The modules in its own files, in order of depth, or why there are none; `None` if the family never has any.
    pub own: Option<Result<Vec<DraftPlan>, ModelError>>,
    /// Why modules made for targets of the Llama kind do not run beside it; `None` if they do.
    pub no_sharing: Option<NoSharing>,
}

/// A model's sizes as its family reads them, checked before any tensor is read.
pub trait FamilyConfig: Any {
    /// The sizes that every transformer has.
    fn transformer(&self) -> &TransformerConfig;

    /// What the model computes, and from which tensors.
    fn plan(&self) -> &Plan;

    /// Whether the native backend runs it; the cache then stores f16.
    fn runs_whole_native(&self) -> bool {
        native::check(self.plan()).is_ok()
    }

    /// What drafts beside it, as data, for backends that load from plans.
    fn drafting(&self, _source: &ModelFiles) -> Drafting {
        Drafting::default()
    }

    /// Whether its own modules draft, or an assistant, whose vocabulary `--draft-vocab` trims. `named`: `--draft-model`
    /// names another module.
    fn trims_draft_vocab(&self, _named: bool) -> bool {
        false
    }

    /// What drafts for it where its files bring no module, if the usual sentence does not suffice.
    fn drafter(&self) -> Option<&'static str> {
        None
    }
}

/// What the reference does with a target.
#[derive(Clone)]
pub enum Backend<'a> {
    /// candle: the weights' type, its name, and the device.
    Candle(WeightType, String, &'a Device),
    /// None: tensors are checked, and matrices are not read.
    Unread,
}

/// Reports (what is being loaded, units done, number of units).
pub type Progress<'a> = dyn FnMut(&str, u64, u64) + 'a;

/// Draft modules, one for each depth, and their header entry.
pub type Modules = (Vec<Box<dyn DraftModule>>, DrafterInfo);

/// Runs passes of a model.
pub type TryOut<'a> = dyn FnMut(&mut dyn Model) -> Result<(), ModelError> + 'a;

/// Runs passes of a model, and empties its cache.
pub(crate) fn try_out(model: &mut dyn Model, run: &mut TryOut<'_>) -> Result<(), ModelError> {
    let tried = run(model);
    tried.and(model.truncate(0, &Checkpoint { len: 0 }))
}

/// A loaded target, which drafters share weights with.
pub trait LoadedTarget: Any {
    /// Loads the draft modules of the target's own files; `None` if the family never has any.
    fn own_modules(&self, _context: &LoadContext<'_>) -> Option<Result<Modules, ModelError>> {
        None
    }

    /// What modules made for targets of the Llama kind share with it.
    ///
    /// # Errors
    /// The family's name with its article, and what can draft instead.
    fn shared(&self) -> Result<SharedWeights<'_>, NoSharing>;

    /// Embedding and output head, which are all that block drafters share besides states.
    ///
    /// # Errors
    /// As [`LoadedTarget::shared`].
    fn embedding_and_head(&self) -> Result<SharedWeights<'_>, NoSharing> {
        self.shared()
    }

    /// The target whose keys and values assistants may read; `None` if its backend lends none.
    fn lends_keys(&self) -> Option<&NativeLlama> {
        None
    }

    /// Why rows must be verified one by one on this device; `None` if their bits do not depend on the rows beside them, or
    /// the backend guarantees it.
    ///
    /// # Errors
    /// When a pass fails.
    fn self_test(&mut self) -> Result<Option<String>, ModelError> {
        Ok(None)
    }

    /// Runs passes over the target's weights. The cache is empty before, and the target's is empty after.
    ///
    /// # Errors
    /// When the cache cannot be allocated, or what `run` returns.
    fn try_out(&mut self, run: &mut TryOut<'_>) -> Result<(), ModelError>;

    /// The model, its cache empty.
    ///
    /// # Errors
    /// When the cache cannot be allocated.
    fn into_model(self: Box<Self>) -> Result<Box<dyn Model>, ModelError>;
}

/// Weights that a draft module shares with its target.
pub enum SharedWeights<'a> {
    /// A whole target on the native kernels.
    Native(&'a NativeLlama),
    /// A whole target on the GPU.
    #[cfg(feature = "gpu")]
    Gpu(&'a crate::gpu::GpuTarget),
    /// Embedding and head on candle, and the positions of the context.
    Candle(Arc<dyn SharedTarget>, usize),
}

/// Why modules made for targets of the Llama kind do not run beside a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoSharing {
    /// The family with its article, e.g. `a Qwen3.5`.
    pub family: &'static str,
    /// What to do about an EAGLE-3 head.
    pub instead_of_head: &'static str,
    /// What to do about a module named with `--mtp`.
    pub instead_of_module: &'static str,
}

/// Sources of a model.
#[derive(Clone, Copy)]
pub struct LoadContext<'a> {
    /// What to load, and how.
    pub options: &'a LoadOptions,
    /// The files.
    pub source: &'a ModelFiles,
    /// The sizes.
    pub config: &'a dyn FamilyConfig,
    /// Positions of the context.
    pub ctx_len: usize,
    /// Tokens that end an answer.
    pub ends: &'a [TokenId],
}

impl LoadContext<'_> {
    /// The tensors of a target for candle, and the model's info; candle computes at least norms, rotations and sums.
    pub(crate) fn on_candle<'t>(&'t self, backend: &'t Backend<'_>) -> (Tensors<'t>, ModelSpec) {
        let (matmul, dtype, device) = match backend {
            Backend::Candle(weight_type, dtype, device) => {
                (MatmulBackend::Candle(*weight_type), dtype.clone(), *device)
            }
            Backend::Unread => (MatmulBackend::Unread, self.source.loaded_dtype(), &Device::Cpu),
        };
        let spec = ModelSpec {
            info: self.info(),
            ctx_len: self.ctx_len,
            backend: "candle",
            device: device_name(device),
            dtype,
            threads: device_threads(device),
        };
        let tensors = Tensors::new(self.source, (matmul, device), self.config.transformer());
        (tensors.run_as(self.options.pass_form()), spec)
    }

    /// Whether draft modules in the target's files are loaded, if there are any.
    #[must_use]
    pub fn loads_modules(&self) -> bool {
        self.options.mtp.as_ref().is_some_and(|mtp| !mtp.required)
    }

    /// Names and sizes of the model for the header; those known only after loading are 0.
    pub(crate) fn info(&self) -> ModelInfo {
        let mut info = self.config.transformer().describe(self.source.name(), self.source.file_name());
        info.own_name = self.source.other_name();
        info.active_weights = self.config.plan().active_weights();
        info.sha256.clone_from(&self.options.sha256);
        info
    }

    /// Tokens that modules of the target's own files may propose; `None` = all.
    ///
    /// # Errors
    /// If a requested token is not one of the model's.
    pub fn draft_vocab(&self) -> Result<Option<Vec<TokenId>>, ModelError> {
        match &self.options.draft_vocab {
            None | Some(DraftVocab::All) => Ok(None),
            Some(vocab) => vocab.tokens(self.config.transformer().vocab, self.ends).map(Some),
        }
    }
}
