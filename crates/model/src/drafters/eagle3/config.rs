//! A head's `config.json`, in either layout.

use serde::Deserialize;
use serde_json::Value;

use crate::ModelError;
use crate::error::clean;
use crate::files::ConfigJson;
use crate::nn::{Ends, Extras, HfKeys, LLAMA_LAYOUT, TransformerConfig};
use crate::plan::StatesNorm;
use draftscope_protocol::{Feed, MtpSpec, Recycle};

/// Most states of the target that a head fuses.
const MAX_STATES: usize = 8;

/// Sizes and conventions of a head.
#[derive(Clone, Debug, PartialEq)]
pub struct EagleConfig {
    /// The block, as a model of one layer: its vocabulary is the target's.
    pub block: TransformerConfig,
    /// Width of the target's states.
    pub target_d_model: usize,
    /// Tokens that the head can propose.
    pub draft_vocab: usize,
    /// Blocks after which the target's states are read, ascending; `None` = the usual three.
    pub layers: Option<Vec<usize>>,
    /// Whether the residual stream begins with the normed state.
    pub norm_before_residual: bool,
    /// How the states are normed before they are fused.
    pub states_norm: StatesNorm,
    /// Whether the normed output is recycled (EAGLE 3.1) instead of the residual stream.
    pub norm_output: bool,
    /// The model the head was made for, as the file names it.
    pub verifier: Option<String>,
}

/// The top level of both layouts.
#[derive(Deserialize)]
struct Head {
    draft_vocab_size: Option<usize>,
    speculators_model_type: Option<String>,
    /// The block, if it has a configuration of its own (`speculators`).
    transformer_layer_config: Option<Value>,
    target_hidden_size: Option<usize>,
    eagle_aux_hidden_state_layer_ids: Option<Vec<usize>>,
    eagle_config: Option<Inner>,
    norm_before_residual: Option<bool>,
    norm_before_fc: Option<bool>,
    fc_norm: Option<bool>,
    norm_output: Option<bool>,
    #[serde(default)]
    speculators_config: Value,
}

#[derive(Deserialize)]
struct Inner {
    eagle_aux_hidden_state_layer_ids: Option<Vec<usize>>,
}

/// Blocks after which states are read, from the ids at the top of a file or those under `eagle_config`; an empty
/// list is none.
///
/// At the top an id is a layer whose input is read (vLLM, llama.cpp). Nested ids are written by trainers that hook a
/// layer's output and begin with layer 1 (`SpecForge`, `ModelOpt`), or with 2 if they mean inputs: as in `SGLang`, the
/// smallest id decides. In either case a pass collects the states in the order of its layers, not of the list.
fn layers(top: Option<Vec<usize>>, nested: Option<Vec<usize>>) -> Result<Option<Vec<usize>>, ModelError> {
    let named = |ids: Option<Vec<usize>>| ids.filter(|ids| !ids.is_empty());
    let hooked = |ids: Vec<usize>| match ids.iter().min() {
        Some(1) => ids.into_iter().map(|id| id.saturating_add(1)).collect(),
        _ => ids,
    };
    let Some(layers) = named(top).or_else(|| named(nested).map(hooked)) else { return Ok(None) };
    EagleConfig::checked_layers(layers, "eagle_aux_hidden_state_layer_ids").map(Some)
}

fn wrong(error: &serde_json::Error) -> ModelError {
    ModelError::Metadata(format!("the EAGLE-3 head's config.json: {}", clean(&error.to_string())))
}

impl EagleConfig {
    /// Whether a `config.json` is that of an EAGLE-3 head.
    #[must_use]
    pub fn is_one(json: &[u8]) -> bool {
        let Ok(config) = serde_json::from_slice::<Value>(json) else { return false };
        let named = |text: &Value| text.as_str().is_some_and(|text| text.to_lowercase().contains("eagle"));
        let architectures = config["architectures"].as_array().is_some_and(|all| all.iter().any(named));
        // an MTP module may have a trimmed head too
        let trimmed = config["draft_vocab_size"].is_u64() && config["num_nextn_predict_layers"].is_null();
        named(&config["speculators_model_type"]) || architectures || trimmed
    }

    /// Reads the JSON text.
    ///
    /// # Errors
    /// [`ModelError::Unsupported`] or [`ModelError::Metadata`] naming the key.
    pub fn from_json(json: &[u8]) -> Result<Self, ModelError> {
        let head: Head = serde_json::from_slice(json).map_err(|error| wrong(&error))?;
        if let Some(kind) = head.speculators_model_type.as_deref().filter(|kind| *kind != "eagle3") {
            let what = format!("'speculators_model_type' is '{}'; of draft heads eagle3 is supported", clean(kind));
            return Err(ModelError::Unsupported(what));
        }
        let own = serde_json::from_slice::<Value>(json).map_err(|error| wrong(&error))?;
        let block = head.transformer_layer_config.clone().unwrap_or(own);
        let block = Self::block(&block)?;
        let states_norm = match (head.norm_before_fc == Some(true), head.fc_norm == Some(true)) {
            (false, false) => StatesNorm::None,
            (true, false) => StatesNorm::Together,
            (false, true) => StatesNorm::Each,
            (true, true) => {
                return Err(ModelError::Metadata("'norm_before_fc' and 'fc_norm' exclude each other".into()));
            }
        };
        let nested = head.eagle_config.and_then(|inner| inner.eagle_aux_hidden_state_layer_ids);
        let layers = layers(head.eagle_aux_hidden_state_layer_ids, nested)?;
        let draft_vocab = head.draft_vocab_size.unwrap_or(block.vocab);
        let draft_vocab = Self::checked_draft_vocab(draft_vocab, &block, "draft_vocab_size")?;
        let verifier = head.speculators_config["verifier"]["name_or_path"].as_str().map(str::to_owned);
        Ok(Self {
            target_d_model: head.target_hidden_size.unwrap_or(block.d_model),
            block,
            draft_vocab,
            layers,
            norm_before_residual: head.norm_before_residual == Some(true),
            states_norm,
            norm_output: head.norm_output == Some(true),
            verifier,
        })
    }

    /// The layers that `key` names, ascending.
    pub(super) fn checked_layers(mut layers: Vec<usize>, key: &str) -> Result<Vec<usize>, ModelError> {
        if !(2..=MAX_STATES).contains(&layers.len()) {
            let count = layers.len();
            return Err(ModelError::Metadata(format!("'{key}' names {count} layers, expected 2 to {MAX_STATES}")));
        }
        layers.sort_unstable();
        Ok(layers)
    }

    /// The size of the draft vocabulary, which `key` gives.
    pub(super) fn checked_draft_vocab(size: usize, block: &TransformerConfig, key: &str) -> Result<usize, ModelError> {
        match (1..=block.vocab).contains(&size) {
            true => Ok(size),
            false => {
                Err(ModelError::Metadata(format!("'{key}' is {size}, expected 1 to 'vocab_size' ({})", block.vocab)))
            }
        }
    }

    /// The block is described like a model of one layer.
    fn block(config: &Value) -> Result<TransformerConfig, ModelError> {
        if !config.is_object() {
            return Err(ModelError::Metadata("the head's 'transformer_layer_config' is no object".into()));
        }
        let mut config = config.clone();
        let refused =
            |what: String| Err(ModelError::Unsupported(format!("an EAGLE-3 head of {what} is not supported")));
        if let Some(layers) = config["num_hidden_layers"].as_u64().filter(|layers| *layers != 1) {
            return refused(format!("{layers} layers ('num_hidden_layers')"));
        }
        if config["model_type"].is_null() {
            config["model_type"] = "llama".into();
        }
        // blocks of other families are not Llama blocks
        let kind = config["model_type"].as_str().unwrap_or_default().to_owned();
        let Some(conventions) = LLAMA_LAYOUT.iter().find(|conventions| conventions.name == kind) else {
            return refused(format!("the family '{}' ('model_type')", clean(&kind)));
        };
        // a training length is no limit, and a head does not depend on what the target ties
        if config["max_position_embeddings"].is_null() {
            config["max_position_embeddings"] = 4096.into();
        }
        config["tie_word_embeddings"] = Value::Null;
        // some files count all of the target's layers
        if let Some(types) = config["layer_types"].as_array_mut() {
            types.truncate(1);
        }
        let json = ConfigJson::parse(config.to_string().as_bytes())?;
        json.read::<HfKeys>()?.transformer(conventions, Ends::of(&json, None), Extras::default())
    }

    /// The conventions it was trained with.
    #[must_use]
    pub fn spec(&self) -> MtpSpec {
        let recycle = if self.norm_output { Recycle::PostNorm } else { Recycle::PreNorm };
        MtpSpec { feed: Feed::Layers, recycle, ..MtpSpec::default() }
    }

    /// Blocks after which the target's states are read, in the order in which they are fused.
    ///
    /// # Errors
    /// [`ModelError::Unsupported`] if the target, with this number of blocks, has no such states.
    pub fn layers_of(&self, target: usize) -> Result<Vec<usize>, ModelError> {
        // as in SafeAILab's code, vLLM and llama.cpp: the inputs of these layers
        let usual = || Some(vec![2, target / 2, target.checked_sub(3)?]);
        let layers = self.layers.clone().or_else(usual).filter(|layers| layers.iter().all(|layer| *layer <= target));
        layers.ok_or_else(|| {
            let asked = self.layers.as_ref().map_or_else(|| "2, the middle one and the third from the end".to_owned(), |layers| format!("{layers:?}"));
            ModelError::Unsupported(format!(
                "the EAGLE-3 head reads the states in front of layers {asked} ('eagle_aux_hidden_state_layer_ids') and the target has {target} layers; it was made for another target"
            ))
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn original() -> Value {
        json!({
            "architectures": ["LlamaForCausalLMEagle3"], "model_type": "llama", "hidden_size": 64,
            "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 96,
            "rms_norm_eps": 1e-5, "max_position_embeddings": 2048, "vocab_size": 320, "draft_vocab_size": 100,
            "tie_word_embeddings": false, "hidden_act": "silu"
        })
    }

    fn speculators() -> Value {
        let mut block = original();
        for key in ["architectures", "draft_vocab_size", "tie_word_embeddings"] {
            block.as_object_mut().unwrap().remove(key);
        }
        block["model_type"] = json!("qwen3");
        block["head_dim"] = json!(32);
        json!({
            "architectures": ["Eagle3Speculator"], "speculators_model_type": "eagle3", "draft_vocab_size": 100,
            "norm_before_residual": true, "eagle_aux_hidden_state_layer_ids": [0, 1, 2], "target_hidden_size": null,
            "transformer_layer_config": block,
            "speculators_config": {"algorithm": "eagle3", "verifier": {"name_or_path": "Qwen/Qwen3-8B"}}
        })
    }

    fn read(config: &Value) -> Result<EagleConfig, String> {
        assert!(EagleConfig::is_one(config.to_string().as_bytes()));
        EagleConfig::from_json(config.to_string().as_bytes()).map_err(|error| error.to_string())
    }

    #[test]
    fn both_layouts_are_read() {
        let old = read(&original()).unwrap();
        assert_eq!(
            (old.target_d_model, old.block.head_dim, old.draft_vocab, old.norm_before_residual),
            (64, 16, 100, false)
        );
        assert_eq!(old.layers_of(36).unwrap(), [2, 18, 33]);
        assert!(old.layers_of(2).unwrap_err().to_string().contains("the target has 2 layers"));
        let new = read(&speculators()).unwrap();
        assert_eq!(
            (new.block.head_dim, new.norm_before_residual, new.verifier.as_deref()),
            (32, true, Some("Qwen/Qwen3-8B"))
        );
        assert_eq!(new.layers_of(2).unwrap(), [0, 1, 2]);
        assert!(new.layers_of(1).unwrap_err().to_string().contains("[0, 1, 2]"));
        assert!(!EagleConfig::is_one(br#"{"model_type": "llama", "architectures": ["LlamaForCausalLM"]}"#));
    }

    #[test]
    fn nested_ids_that_begin_with_one_are_outputs() {
        const KEY: &str = "eagle_aux_hidden_state_layer_ids";
        let cases = [
            (json!([2, 18, 33]), Value::Null, [2, 18, 33]),
            (Value::Null, json!([1, 46, 90]), [2, 47, 91]), // SpecForge's, for 94 layers
            (Value::Null, json!([32, 1, 17]), [2, 18, 33]), // ModelOpt's order, which no hook follows
            (Value::Null, json!([33, 2, 18]), [2, 18, 33]), // inputs
            (json!([33, 1, 17]), json!([3, 4, 5]), [1, 17, 33]), // the top decides, and means inputs
            (json!([]), json!([1, 17, 32]), [2, 18, 33]),
            (json!([]), json!([]), [2, 48, 93]), // as if neither were there
        ];
        for (top, nested, expected) in cases {
            let mut config = original();
            config[KEY] = top;
            config["eagle_config"] = json!({"use_aux_hidden_state": true, KEY: nested});
            assert_eq!(read(&config).unwrap().layers_of(96).unwrap(), expected, "{config}");
        }
        let mut huge = original();
        huge["eagle_config"] = json!({KEY: [1, u64::MAX]});
        assert!(read(&huge).unwrap().layers_of(96).is_err());
    }

    #[test]
    fn what_does_not_go_is_named() {
        let cases = [
            ("draft_vocab_size", json!(321), "'draft_vocab_size' is 321, expected 1 to 'vocab_size' (320)"),
            ("draft_vocab_size", json!(0), "'draft_vocab_size' is 0"),
            ("num_hidden_layers", json!(2), "2 layers ('num_hidden_layers')"),
            ("hidden_act", json!("gelu"), "'hidden_act' is 'gelu'"),
            ("attention_bias", json!(true), "'attention_bias' is true"),
            ("model_type", json!("gemma3"), "the family 'gemma3' ('model_type')"),
            ("model_type", json!("gemma4"), "the family 'gemma4' ('model_type')"),
            ("model_type", json!("qwen3_5"), "the family 'qwen3_5' ('model_type')"),
            ("eagle_aux_hidden_state_layer_ids", json!([5]), "names 1 layers"),
            ("eagle_aux_hidden_state_layer_ids", json!([1, 2, 3, 4, 5, 6, 7, 8, 9]), "names 9 layers"),
            ("eagle_config", json!({"eagle_aux_hidden_state_layer_ids": [1]}), "names 1 layers"),
            ("eagle_aux_hidden_state_layer_ids", json!([-1]), "config.json"),
            ("num_key_value_heads", json!(3), "'num_key_value_heads' is 3"),
        ];
        for (key, value, says) in cases {
            let mut config = original();
            config[key] = value;
            let error = read(&config).unwrap_err();
            assert!(error.contains(says) && error.lines().count() == 1, "{key}: {error}");
        }
        let mut both = original();
        (both["norm_before_fc"], both["fc_norm"]) = (json!(true), json!(true));
        assert!(read(&both).unwrap_err().contains("exclude each other"));
        let mut dflash = speculators();
        dflash["speculators_model_type"] = json!("eagle");
        assert!(read(&dflash).unwrap_err().contains("'speculators_model_type' is 'eagle'"));
    }
}
