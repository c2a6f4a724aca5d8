//! What draft modules are, in the figures that the header shows.

use crate::model::DraftModule;
use crate::model::interfaces::Modules;
use crate::protocol::{DrafterInfo, DrafterKind};

/// Figures of modules that draft together, one for each depth.
pub struct Figures<'a> {
    /// Dtype of their weights.
    pub dtype: &'a str,
    /// Bytes of their own weights.
    pub weight_bytes: u64,
    /// Bytes of their KV caches per position.
    pub kv_bytes_per_token: u64,
    /// Tokens that they propose.
    pub draft_vocab: usize,
    /// Tokens of the text that may join those.
    pub context_vocab: usize,
}

impl Figures<'_> {
    /// The drafter of this name.
    #[must_use]
    pub fn info(&self, name: String) -> DrafterInfo {
        DrafterInfo {
            kind: DrafterKind::Mtp,
            name,
            sha256: None,
            dtype: self.dtype.to_owned(),
            weight_bytes: self.weight_bytes,
            kv_bytes_per_token: self.kv_bytes_per_token,
            draft_vocab: self.draft_vocab as u32,
            context_vocab: self.context_vocab as u64,
        }
    }
}

/// Modules of one type behind their trait, and what they are.
pub fn modules<M: DraftModule + 'static>(modules: Vec<M>, info: DrafterInfo) -> Modules {
    (modules.into_iter().map(|module| Box::new(module) as Box<dyn DraftModule>).collect(), info)
}
