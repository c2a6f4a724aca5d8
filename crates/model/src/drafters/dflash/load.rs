//! Recognises block drafters in files of their own, and loads one.

use std::path::Path;

use serde_json::Value;

use crate::block_module::LoadedModules;
use crate::drafters::core::{Figures, OnTarget};
use crate::drafters::dflash::{ARCHITECTURE, BlockCard, BlockConfig, BlockKind, module::Drafter, plan::CheckedBlock};
use crate::interfaces::{CheckedModule, FamilyConfig, LoadContext, LoadedTarget, ModuleCard, ModuleKind, NoSharing};
use crate::{ModelError, memory};
use draftscope_protocol::DrafterKind;

/// DFlash and DSpark drafters.
pub struct BlockDrafters;

impl ModuleKind for BlockDrafters {
    fn title(&self) -> &'static str {
        "a block drafter"
    }

    fn field(&self) -> &'static str {
        "block_drafter"
    }

    fn purpose(&self) -> &'static str {
        "drafts for another model"
    }

    fn is_one(&self, json: &[u8]) -> bool {
        BlockConfig::is_one(json)
    }

    fn architectures(&self) -> &'static [&'static str] {
        &[ARCHITECTURE]
    }

    fn check(&self, json: &[u8]) -> Result<(), ModelError> {
        BlockConfig::from_json(json).map(drop)
    }

    fn open(&self, path: &Path, target: &dyn FamilyConfig) -> Result<Box<dyn CheckedModule>, ModelError> {
        CheckedBlock::open(path, target.transformer()).map(|block| Box::new(block) as Box<dyn CheckedModule>)
    }

    fn card(&self, path: &Path) -> Result<Box<dyn ModuleCard>, ModelError> {
        BlockCard::read(path).map(|card| Box::new(card) as Box<dyn ModuleCard>)
    }
}

impl ModuleCard for BlockCard {
    fn json(&self) -> Value {
        serde_json::to_value(self).unwrap_or(Value::Null)
    }
}

impl CheckedModule for CheckedBlock {
    fn load(&self, target: &dyn LoadedTarget, _context: &LoadContext<'_>) -> Result<LoadedModules, ModelError> {
        let shared = target.embedding_and_head().map_err(|NoSharing { family, .. }| {
            ModelError::Unsupported(format!(
                "a block drafter beside {family} is not supported; start without --draft-model"
            ))
        })?;
        let on_target = OnTarget::of(&shared)?;
        let ((_, dtype), ctx_len, form) = (on_target.storage, on_target.ctx_len, on_target.form);
        let cached = form.kv_bytes() as u64 * self.config.cached_values();
        let free = memory::available_on(on_target.embedding.device());
        self.need(on_target.storage, cached, ctx_len).check(free)?;
        let name = format!("{} ({})", self.name, self.config.kind.name());
        let (vocab, block) = (self.vocab.len(), self.config.most_drafts() as u64);
        let (drafter, weight_bytes) = Drafter::load(self, on_target)?;
        let figures = Figures {
            kind: DrafterKind::Mtp,
            dtype,
            weight_bytes,
            kv_bytes_per_token: cached,
            draft_vocab: vocab,
            context_vocab: 0,
        };
        let mut info = figures.info(name);
        info.block = block;
        Ok(LoadedModules::Block(Box::new(drafter), info))
    }
}

impl BlockKind {
    /// With its article.
    pub(super) fn title(self) -> &'static str {
        match self {
            Self::Dflash => "a DFlash block drafter",
            Self::Dspark => "a DSpark block drafter",
        }
    }
}
