//! Gemma 3 (text: 270M, 1B, and the text part of 4B, 12B, 27B): sliding layers between full ones with rotary positions
//! of their own, normed queries and keys, norms before and after attention and feed-forward layer, a scaled embedding,
//! and capped scores if the file says so.
//!
//! Source: `modeling_gemma3.py` of `transformers`, `gemma3.cpp` of llama.cpp. Invariant: sliding layers cache all
//! positions, so that any length can be rolled back to, and attend to the last ones.

mod keys;
mod plan;

use crate::ModelError;
use crate::files::{ConfigJson, Folder, GgufFile, Layout, ModelFiles, NORMED_TWICE, TensorNames, block_name};
use crate::interfaces::{Family, FamilyConfig, Names, NoSharing, OwnModules, Planned};
use crate::nn::{Conventions, Ends, Extras, GgufKeys, HfKeys, PairOrder, TransformerConfig, refuse_biases};
use crate::plan::PlanFiles;

use self::keys::{Keys, Layers};

/// Gemma 3, the text part.
pub struct Gemma3Family;

const CONVENTIONS: Conventions =
    Conventions { name: "gemma3", qk_norm: true, qkv_bias: false, gguf_pairs: PairOrder::HalfSplit };

impl Family for Gemma3Family {
    fn names(&self) -> Names {
        Names { title: "gemma3", gguf: &["gemma3"], json: &["gemma3", "gemma3_text"] }
    }

    fn read_json(&self, json: &ConfigJson, folder: Option<&Folder>) -> Result<Box<dyn FamilyConfig>, ModelError> {
        refuse_biases(folder, &CONVENTIONS, None)?;
        let json = json.clone().with_defaults(&Keys::defaults());
        let (keys, own) = (json.read::<HfKeys>()?, Keys::from_json(&json)?);
        let layers = own.layers(keys.layers()?)?;
        let extras = Extras { rope: Some(own.sliding_rope()?), layer_types: true, ..Extras::default() };
        let transformer = keys.transformer(&CONVENTIONS, Ends::of(&json, folder), extras)?;
        Ok(Box::new(planned(transformer, &layers, PlanFiles::Checkpoint(folder))))
    }

    fn read_gguf(&self, gguf: &GgufFile) -> Result<Box<dyn FamilyConfig>, ModelError> {
        let keys = GgufKeys { gguf, arch: CONVENTIONS.name };
        let transformer = keys.sizes(&CONVENTIONS, |_| Layers::sliding_rope_of_gguf(keys))?;
        keys.refuse_extras(&CONVENTIONS, (transformer.head_dim, transformer.head_dim))?;
        let layers = Layers::from_gguf(keys, &transformer)?;
        Ok(Box::new(planned(transformer, &layers, PlanFiles::Gguf(gguf))))
    }

    fn tensor_names(&self) -> TensorNames {
        tensor_name
    }

    // without its first token the model writes nonsense
    fn always_begins(&self) -> bool {
        true
    }
}

fn tensor_name(layout: &Layout, name: &str) -> Option<String> {
    block_name(layout, NORMED_TWICE, name)
}

fn planned(transformer: TransformerConfig, layers: &Layers, files: PlanFiles<'_>) -> Planned {
    let plan = plan::plan(&transformer, layers, files);
    let own = OwnModules { trims: false, ..OwnModules::new(|source, _| Err(no_module(source))) };
    Planned { own: Some(own), no_sharing: Some(NO_SHARING), ..Planned::new(transformer, plan) }
}

/// Says that the files have no draft module, and what drafts instead.
fn no_module(source: &ModelFiles) -> ModelError {
    ModelError::Unsupported(format!(
        "{} brings no draft module; choose --drafter ngram or early-exit, or name a smaller Gemma 3 with --draft-model",
        source.file_name()
    ))
}

const NO_SHARING: NoSharing = NoSharing {
    family: "a Gemma 3",
    instead_of_head: "name a smaller Gemma 3 with --draft-model",
    instead_of_module: "has none, so leave --mtp out",
};
