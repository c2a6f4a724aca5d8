//! The family Gemma 4: names, sizes, tensor names.

use crate::ModelError;
use crate::families::gemma4::{
    config::Gemma4Config,
    gguf,
    keys::{GemmaKeys, Sizes},
    names,
};
use crate::files::{ConfigJson, Folder, GgufFile, ModelFiles, TensorNames};
use crate::interfaces::{Drafting, Family, FamilyConfig, Names, NoSharing};
use crate::nn::{Conventions, Ends, Extras, HfKeys, PairOrder, TransformerConfig, refuse_biases};
use crate::plan::{Plan, PlanFiles};

/// Gemma 4, with experts and without.
pub struct Gemma4Family;

const CONVENTIONS: Conventions =
    Conventions { name: "gemma4", qk_norm: true, qkv_bias: false, gguf_pairs: PairOrder::HalfSplit };

impl Family for Gemma4Family {
    fn names(&self) -> Names {
        let json = &["gemma4", "gemma4_text", "gemma4_unified", "gemma4_unified_text"];
        Names { title: "gemma4", gguf: &["gemma4"], json }
    }

    fn read_json(&self, json: &ConfigJson, folder: Option<&Folder>) -> Result<Box<dyn FamilyConfig>, ModelError> {
        refuse_biases(folder, &CONVENTIONS, None)?;
        let own = GemmaKeys::from_json(json.keys())?;
        let keys = json.read::<HfKeys>()?;
        let head_dim = keys.head_dim(Some(own.head_dim()))?;
        let sizes = Sizes { layers: keys.layers()?, heads: keys.heads()?, ffn: keys.ffn()?, vocab: keys.vocab()? };
        let gemma = own.gemma(sizes, false)?;
        let (head_dim, rope) = (Some(head_dim), Some(gemma.sliding_rope.clone()));
        let extras = Extras { head_dim, rope, layer_types: true, ..Extras::default() };
        let transformer = keys.transformer(&CONVENTIONS, Ends::of(json, folder), extras)?;
        Ok(Box::new(Gemma4Config::new(transformer, gemma, PlanFiles::Checkpoint(folder))))
    }

    fn read_gguf(&self, gguf: &GgufFile) -> Result<Box<dyn FamilyConfig>, ModelError> {
        Ok(Box::new(gguf::config(gguf, &CONVENTIONS)?))
    }

    fn tensor_names(&self) -> TensorNames {
        names::tensor_name
    }

    // the tokenizer files of `-it` repositories do not say so, and without it the model writes nonsense (llama.cpp adds
    // the token too, even against the file)
    fn always_begins(&self) -> bool {
        true
    }
}

impl FamilyConfig for Gemma4Config {
    fn transformer(&self) -> &TransformerConfig {
        &self.transformer
    }

    fn plan(&self) -> &Plan {
        &self.plan
    }

    fn trims_draft_vocab(&self, _named: bool) -> bool {
        true
    }

    fn drafter(&self) -> Option<&'static str> {
        Some("its assistant, a repository of its own: --draft-model; it reads this cache and has none")
    }

    fn drafting(&self, source: &ModelFiles) -> Drafting {
        Drafting { own: Some(Err(no_module(source))), no_sharing: Some(NO_SHARING) }
    }
}

/// Says that the files have no drafter, and what drafts instead.
fn no_module(source: &ModelFiles) -> ModelError {
    ModelError::Unsupported(format!("{} brings no drafter; name its assistant with --draft-model", source.file_name()))
}

const NO_SHARING: NoSharing = NoSharing {
    family: "a Gemma 4",
    instead_of_head: "name its assistant with --draft-model",
    instead_of_module: "has an assistant, so name that with --draft-model and leave --mtp out",
};
