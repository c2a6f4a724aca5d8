//! Recognises EAGLE-3 heads in files of their own, and loads one.

use std::path::Path;

use serde_json::Value;

use crate::block_module::LoadedModules;
use crate::drafters::{
    core,
    eagle3::{ARCHITECTURE, CandleEagle, CheckedHead, EagleConfig, HeadCard, NativeEagle},
};
use crate::interfaces::{
    CheckedModule, FamilyConfig, LoadContext, LoadedTarget, ModuleCard, ModuleKind, Modules, NoSharing, SharedWeights,
};
use crate::module_core::{ModuleBackend, ModuleCore};
use crate::native::MtpStorage;
use crate::{Model, ModelError, memory};

/// EAGLE-3 heads.
pub struct Eagle3;

impl ModuleKind for Eagle3 {
    fn title(&self) -> &'static str {
        "an EAGLE-3 head"
    }

    fn field(&self) -> &'static str {
        "head"
    }

    fn purpose(&self) -> &'static str {
        "drafts for another model"
    }

    fn is_one(&self, json: &[u8]) -> bool {
        EagleConfig::is_one(json)
    }

    fn architectures(&self) -> &'static [&'static str] {
        &[ARCHITECTURE]
    }

    fn check(&self, json: &[u8]) -> Result<(), ModelError> {
        EagleConfig::from_json(json).map(drop)
    }

    fn open(&self, folder: &Path, target: &dyn FamilyConfig) -> Result<Box<dyn CheckedModule>, ModelError> {
        Ok(Box::new(CheckedHead::open(folder, target.transformer())?))
    }

    fn card(&self, folder: &Path) -> Result<Box<dyn ModuleCard>, ModelError> {
        let none = || ModelError::Unsupported(format!("{} holds no EAGLE-3 head", folder.display()));
        Ok(Box::new(HeadCard::read(folder)?.ok_or_else(none)?))
    }
}

impl ModuleCard for HeadCard {
    fn json(&self) -> Value {
        serde_json::to_value(self).unwrap_or(Value::Null)
    }
}

impl CheckedModule for CheckedHead {
    fn load(&self, target: &dyn LoadedTarget, _context: &LoadContext<'_>) -> Result<LoadedModules, ModelError> {
        let shared = target.shared().map_err(|NoSharing { family, instead_of_head, .. }| {
            ModelError::Unsupported(format!("an EAGLE-3 head beside {family} is not supported; {instead_of_head}"))
        })?;
        match shared {
            SharedWeights::Native(target) => {
                self.need((9, "q8_0"), 2, target.spec().ctx_len).check(memory::available())?;
                Ok(self.modules(NativeEagle::load(self, target, MtpStorage::default())?, "q8_0").into())
            }
            #[cfg(feature = "gpu")]
            SharedWeights::Gpu(_) => Err(ModelError::Unsupported(
                "EAGLE-3 heads do not run on the GPU yet; choose --device cpu, or another drafter".into(),
            )),
            SharedWeights::Candle(target, ctx_len) => {
                let need = self.need((32, "f32"), target.form().kv_bytes() as u64, ctx_len);
                need.check_on(target.device())?;
                Ok(self.modules(CandleEagle::load(self, target, ctx_len)?, "f32").into())
            }
        }
    }
}

impl CheckedHead {
    fn modules<B: ModuleBackend + 'static>(&self, head: ModuleCore<B>, dtype: &str) -> Modules {
        core::modules(vec![head], format!("{} (EAGLE-3)", self.name), dtype)
    }
}
