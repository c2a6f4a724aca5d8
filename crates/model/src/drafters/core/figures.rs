//! Figures of drafters for the header.

use crate::DraftModule;
use crate::draft_tokens::DraftTokens;
use crate::files::ModelFiles;
use crate::interfaces::Modules;
use crate::module_core::{ModuleBackend, ModuleCore};
use draftscope_protocol::{DrafterInfo, DrafterKind};

/// Figures of a drafter.
pub struct Figures<'a> {
    /// Name of what drafts.
    pub kind: DrafterKind,
    /// Dtype of its weights.
    pub dtype: &'a str,
    /// Bytes of its own weights.
    pub weight_bytes: u64,
    /// Bytes of its KV caches per position.
    pub kv_bytes_per_token: u64,
    /// Tokens that it can propose.
    pub draft_vocab: usize,
    /// Most tokens of the text that may join those.
    pub context_vocab: usize,
}

impl Figures<'_> {
    /// The entry of the header for a drafter of this name.
    #[must_use]
    pub fn info(&self, name: String) -> DrafterInfo {
        DrafterInfo {
            kind: self.kind,
            name,
            sha256: None,
            dtype: self.dtype.to_owned(),
            weight_bytes: self.weight_bytes,
            kv_bytes_per_token: self.kv_bytes_per_token,
            draft_vocab: self.draft_vocab as u32,
            context_vocab: self.context_vocab as u64,
            block: 0,
            vocab_method: None,
        }
    }
}

/// Name of so many modules in a model's own files.
pub(crate) fn name_of_own(source: &ModelFiles, count: usize) -> String {
    let what = if count == 1 { "its own module".to_owned() } else { format!("its own {count} modules") };
    format!("{} ({what})", source.name())
}

/// Modules that draft together, one for each depth, and their figures.
pub(crate) fn modules<B: ModuleBackend + 'static>(modules: Vec<ModuleCore<B>>, name: String, dtype: &str) -> Modules {
    let tokens = modules.first().map(|module| &module.facts().tokens);
    let figures = Figures {
        kind: DrafterKind::Mtp,
        dtype,
        weight_bytes: modules.iter().map(|module| module.facts().weight_bytes).sum(),
        kv_bytes_per_token: modules.iter().map(|module| module.facts().kv_bytes_per_slot).sum(),
        draft_vocab: tokens.map_or(0, |tokens| tokens.tokens().len()),
        context_vocab: tokens.map_or(0, DraftTokens::room),
    };
    let info = figures.info(name);
    (modules.into_iter().map(|module| Box::new(module) as Box<dyn DraftModule>).collect(), info)
}
