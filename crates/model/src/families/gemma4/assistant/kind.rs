//! Recognises assistants in a folder or GGUF file of their own.

use std::path::Path;

use serde_json::Value;

use crate::ModelError;
use crate::families::gemma4::assistant::{
    card::AssistantCard, config::AssistantConfig, config::GGUF_KINDS, load::CheckedAssistant,
};
use crate::interfaces::{CheckedModule, FamilyConfig, ModuleCard, ModuleKind};

/// Assistants of Gemma 4.
pub struct AssistantKind;

impl ModuleKind for AssistantKind {
    fn title(&self) -> &'static str {
        "an assistant of Gemma 4"
    }

    fn field(&self) -> &'static str {
        "assistant"
    }

    fn purpose(&self) -> &'static str {
        "drafts for it"
    }

    fn is_one(&self, json: &[u8]) -> bool {
        AssistantConfig::is_one(json)
    }

    fn architectures(&self) -> &'static [&'static str] {
        &GGUF_KINDS
    }

    fn check(&self, json: &[u8]) -> Result<(), ModelError> {
        AssistantConfig::from_json(json).map(drop)
    }

    fn open(&self, folder: &Path, target: &dyn FamilyConfig) -> Result<Box<dyn CheckedModule>, ModelError> {
        Ok(Box::new(CheckedAssistant::open(folder, target)?))
    }

    fn card(&self, folder: &Path) -> Result<Box<dyn ModuleCard>, ModelError> {
        let none = || ModelError::Unsupported(format!("{} holds no assistant", folder.display()));
        Ok(Box::new(AssistantCard::read(folder)?.ok_or_else(none)?))
    }
}

impl ModuleCard for AssistantCard {
    fn json(&self) -> Value {
        serde_json::to_value(self).unwrap_or(Value::Null)
    }
}
