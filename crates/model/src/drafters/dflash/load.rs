//! Recognises block drafters in files of their own, and loads one.

use std::path::Path;

use draftscope_kernels::Encoding;
use serde_json::Value;

use crate::block_module::LoadedModules;
use crate::drafters::core::{self, Figures, ModuleTensors};
use crate::drafters::dflash::card::BlockCard;
use crate::drafters::dflash::config::{BlockConfig, BlockKind};
use crate::drafters::dflash::gguf::ARCHITECTURE;
use crate::drafters::dflash::plan::CheckedBlock;
use crate::interfaces::{CheckedModule, FamilyConfig, LoadContext, LoadedTarget, ModuleCard, ModuleKind, NoSharing};
use crate::native::NativeBlock;
use crate::{ModelError, memory};
use draftscope_protocol::DrafterKind;

/// DFlash, DFlash 2 and DSpark drafters.
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
    fn load(&self, target: &dyn LoadedTarget, context: &LoadContext<'_>) -> Result<LoadedModules, ModelError> {
        let shared = target.embedding_and_head().map_err(|NoSharing { family, .. }| {
            ModelError::Unsupported(format!(
                "a block drafter beside {family} is not supported; start without --draft-model"
            ))
        })?;
        let target = core::on_kernels(&shared, context, "block drafters")?;
        let (bits, dtype) = if target.exact { (32, "f32") } else { (9, "q8_0") };
        self.need((bits, dtype), target.ctx_len).check(memory::available())?;
        let tensors = ModuleTensors::new(&self.file, target.exact, Encoding::Q8_0);
        let drafter = NativeBlock::load(&target, (&tensors, &self.plan), self.vocab.clone())?;
        let (weight_bytes, kv_bytes_per_token) = drafter.bytes();
        let figures = Figures {
            kind: DrafterKind::Mtp,
            dtype,
            weight_bytes,
            kv_bytes_per_token,
            draft_vocab: self.vocab.len(),
            context_vocab: 0,
        };
        let mut info = figures.info(format!("{} ({})", self.name, self.kind.name()));
        info.block = self.plan.most_drafts() as u64;
        Ok(LoadedModules::Block(Box::new(drafter), info))
    }
}

impl BlockKind {
    /// With its article.
    pub(super) fn title(self) -> &'static str {
        match self {
            Self::Dflash => "a DFlash block drafter",
            Self::Dflash2 => "a DFlash 2 block drafter",
            Self::Dspark => "a DSpark block drafter",
        }
    }
}
