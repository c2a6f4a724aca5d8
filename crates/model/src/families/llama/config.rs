//! The families of Llama's layout, and reading their configs.

use crate::ModelError;
use crate::families::llama::{load, mimo, plan};
use crate::files::{ConfigJson, Folder, GgufFile, Layout, ModelFiles, TensorNames, block_part, llama_part};
use crate::interfaces::{Backend, Drafting, Family, FamilyConfig, LoadContext, LoadResult, Names, Progress};
use crate::nn::{Conventions, Ends, Extras, GgufKeys, HfKeys, LLAMA_LAYOUT, TransformerConfig, refuse_biases};
use crate::plan::{Plan, PlanFiles};

/// A family with Llama blocks and its own conventions.
pub struct LlamaFamily {
    names: Names,
    conventions: Conventions,
    /// Whether folders may contain draft modules of MiMo's kind.
    has_modules: bool,
}

/// Llama, and models of its layout: SmolLM2, TinyLlama.
pub static LLAMA: LlamaFamily = LlamaFamily::plain("llama", &["llama"], LLAMA_LAYOUT[0]);
/// Qwen2 and 2.5 without experts: queries, keys and values have a bias.
pub static QWEN2: LlamaFamily = LlamaFamily::plain("qwen2", &["qwen2"], LLAMA_LAYOUT[1]);
/// Qwen3 without experts: queries and keys are normed.
pub static QWEN3: LlamaFamily = LlamaFamily::plain("qwen3", &["qwen3"], LLAMA_LAYOUT[2]);
/// MiMo-7B: Qwen2 with draft modules of its own.
pub static MIMO: LlamaFamily =
    LlamaFamily { has_modules: true, ..LlamaFamily::plain("mimo", &["mimo"], LLAMA_LAYOUT[3]) };

impl LlamaFamily {
    const fn plain(title: &'static str, names: &'static [&'static str], conventions: Conventions) -> Self {
        Self { names: Names { title, gguf: names, json: names }, conventions, has_modules: false }
    }
}

impl Family for LlamaFamily {
    fn names(&self) -> Names {
        self.names
    }

    fn read_json(&self, json: &ConfigJson, folder: Option<&Folder>) -> Result<Box<dyn FamilyConfig>, ModelError> {
        refuse_biases(folder, &self.conventions, Some(mimo::LAYERS))?;
        let keys = json.read::<HfKeys>()?;
        let transformer = keys.transformer(&self.conventions, Ends::of(json, folder), Extras::default())?;
        let announced = if self.has_modules { json.announced_modules() } else { 0 };
        Ok(Box::new(LlamaConfig::new(transformer, announced, PlanFiles::Checkpoint(folder))))
    }

    fn read_gguf(&self, gguf: &GgufFile) -> Result<Box<dyn FamilyConfig>, ModelError> {
        let keys = GgufKeys { gguf, arch: self.conventions.name };
        Ok(Box::new(LlamaConfig::new(keys.transformer(&self.conventions, None)?, 0, PlanFiles::Gguf(gguf))))
    }

    fn tensor_names(&self) -> TensorNames {
        tensor_name
    }
}

/// The checkpoint's name of a tensor; a draft module's block counts as one more layer.
fn tensor_name(layout: &Layout, name: &str) -> Option<String> {
    let (layer, part) = block_part(name)?;
    let (part, kind) = part.rsplit_once('.')?;
    let of = match layer.checked_sub(layout.layers) {
        Some(module) => format!("{}.{module}", mimo::LAYERS),
        None => format!("layers.{layer}"),
    };
    let own = llama_part(part).or_else(|| mimo::part(part))?;
    Some(format!("{}{of}.{own}.{kind}", layout.prefix))
}

/// Sizes of a model of Llama's layout.
#[derive(Clone, Debug, PartialEq)]
pub struct LlamaConfig {
    pub(super) transformer: TransformerConfig,
    plan: Plan,
    /// Draft modules that `config.json` announces.
    pub(super) announced: usize,
}

impl LlamaConfig {
    fn new(transformer: TransformerConfig, announced: usize, files: PlanFiles<'_>) -> Self {
        Self { plan: plan::plan(&transformer, announced, files), transformer, announced }
    }
}

impl FamilyConfig for LlamaConfig {
    fn transformer(&self) -> &TransformerConfig {
        &self.transformer
    }

    fn plan(&self) -> &Plan {
        &self.plan
    }

    fn drafting(&self, source: &ModelFiles) -> Drafting {
        let own = (self.announced > 0).then(|| mimo::plans(source, &self.transformer, self.announced));
        Drafting { own, no_sharing: None }
    }

    fn load(&self, context: &LoadContext<'_>, backend: Backend<'_>, progress: &mut Progress<'_>) -> LoadResult {
        load::target(self.announced, context, &backend, progress)
    }
}
