//! Recognises EAGLE-3 heads in files of their own, and loads one.

use std::path::Path;

use draftscope_kernels::Encoding;
use serde_json::Value;

use crate::block_module::LoadedModules;
use crate::drafters::core::{self, ModuleTensors};
use crate::drafters::eagle3::card::HeadCard;
use crate::drafters::eagle3::config::EagleConfig;
use crate::drafters::eagle3::gguf::ARCHITECTURE;
use crate::drafters::eagle3::plan::{CheckedHead, HEAD};
use crate::interfaces::{CheckedModule, FamilyConfig, LoadContext, LoadedTarget, ModuleCard, ModuleKind, NoSharing};
use crate::native::{DraftHead, NativeModule};
use crate::{ModelError, memory};

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
    fn load(&self, target: &dyn LoadedTarget, context: &LoadContext<'_>) -> Result<LoadedModules, ModelError> {
        let shared = target.shared().map_err(|NoSharing { family, instead_of_head, .. }| {
            ModelError::Unsupported(format!("an EAGLE-3 head beside {family} is not supported; {instead_of_head}"))
        })?;
        let target = core::on_kernels(&shared, context, "EAGLE-3 heads")?;
        let (bits, dtype) = if target.exact { (32, "f32") } else { (9, "q8_0") };
        self.need((bits, dtype), target.ctx_len).check(memory::available())?;
        let tensors = ModuleTensors::new(&self.file, target.exact, Encoding::Q8_0).with_head(HEAD);
        let none = || ModelError::MissingTensor(HEAD.to_owned());
        let matrix = self.plan.head.as_ref().ok_or_else(none)?;
        let head = DraftHead::read(&target, (&tensors, matrix), self.vocab.clone())?;
        let module = NativeModule::load(&target, (&tensors, &self.plan), head)?;
        Ok(core::modules(vec![module], format!("{} (EAGLE-3)", self.name), dtype).into())
    }
}
