//! A block drafter's `config.json`: z-lab's layout (`dflash_config`), that of DeepSpec (keys at the top), and that of
//! `speculators` (`transformer_layer_config`).

use serde::Deserialize;
use serde_json::Value;

use crate::ModelError;
use crate::drafters::dflash::config::{BlockConfig, BlockKind, PathSizes};
use crate::error::clean;
use crate::files::ConfigJson;
use crate::nn::{Ends, Extras, HfKeys, TransformerConfig};
use crate::plan::Sight;

/// Keys that stand at the top, under `dflash_config`, or in either place.
#[derive(Clone, Default, Deserialize)]
struct Keys {
    target_layer_ids: Option<Vec<usize>>,
    /// Layers whose inputs are read (`speculators`).
    aux_hidden_state_layer_ids: Option<Vec<usize>>,
    mask_token_id: Option<u32>,
    block_size: Option<usize>,
    is_causal: Option<bool>,
    causal: Option<bool>,
    use_swa: Option<bool>,
    swa_window_size: Option<usize>,
    attention_value_scale: Option<f64>,
    conv_kernel_size: Option<usize>,
    conv_group_size: Option<usize>,
    selector_rank: Option<usize>,
    selector_top_k: Option<usize>,
    output_multiplier: Option<f64>,
    final_logit_softcapping: Option<f64>,
    input_embedding_scale: Option<f64>,
    markov_rank: Option<usize>,
    markov_head_type: Option<String>,
    sample_from_anchor: Option<bool>,
    /// Whether rows of sliding layers see later rows of their block (`speculators`).
    sliding_window_non_causal: Option<bool>,
    enable_confidence_head: Option<bool>,
    confidence_head_with_markov: Option<bool>,
    rope_is_neox_style: Option<bool>,
    draft_vocab_size: Option<usize>,
}

/// What is read of the layers besides their sizes.
#[derive(Deserialize)]
struct Layers {
    sliding_window: Option<usize>,
    use_sliding_window: Option<bool>,
    layer_types: Option<Vec<String>>,
}

/// The kind that a configuration describes; `None` for anything else.
pub(super) fn kind_of(config: &Value) -> Option<BlockKind> {
    let name = config["architectures"][0].as_str().unwrap_or_default();
    let trainer = config["speculators_model_type"].as_str().unwrap_or_default();
    let says = |word: &str| name.to_lowercase().contains(word) || trainer.starts_with(word);
    let kinds = [("dspark", BlockKind::Dspark), ("dflash2", BlockKind::Dflash2), ("dflash", BlockKind::Dflash)];
    kinds.into_iter().find(|(word, _)| says(word)).map(|(_, kind)| kind)
}

/// The name of a block drafter of a kind that is not computed here: LiliCorr (arXiv:2608.20530) scores candidates with layers
/// of its own.
fn other_kind(config: &Value) -> Option<&'static str> {
    let name = config["architectures"][0].as_str().unwrap_or_default().to_lowercase();
    name.contains("lilicorr").then_some("LiLiCorr")
}

fn wrong(error: &serde_json::Error) -> ModelError {
    ModelError::Metadata(format!("the block drafter's config.json: {}", clean(&error.to_string())))
}

fn refused<T>(what: &str) -> Result<T, ModelError> {
    Err(ModelError::Unsupported(format!("a block drafter with {what} is not supported")))
}

impl Keys {
    /// Rejects what is not computed.
    fn check(&self) -> Result<(), ModelError> {
        if self.attention_value_scale.is_some_and(|scale| scale != 1.0) {
            return refused("scaled values ('attention_value_scale')");
        }
        if self.rope_is_neox_style == Some(false) {
            return refused("interleaved rotary pairs ('rope_is_neox_style')");
        }
        match self.markov_head_type.as_deref() {
            None | Some("vanilla") => Ok(()),
            Some(other) => refused(&format!("a Markov head of the kind '{}' ('markov_head_type')", clean(other))),
        }
    }
}

impl Keys {
    /// Whether there is a key of DFlash 2.
    fn has_path(&self) -> bool {
        [self.conv_kernel_size, self.conv_group_size, self.selector_rank, self.selector_top_k]
            .iter()
            .any(Option::is_some)
    }

    /// The sizes of convolutions and selector.
    fn path(&self) -> Result<PathSizes, ModelError> {
        let size = |key: &str, value: Option<usize>| {
            value.ok_or_else(|| ModelError::Metadata(format!("the key '{key}' of a DFlash 2 drafter is missing")))
        };
        Ok(PathSizes {
            taps: size("conv_kernel_size", self.conv_kernel_size)?,
            group: size("conv_group_size", self.conv_group_size)?,
            rank: size("selector_rank", self.selector_rank)?,
            candidates: size("selector_top_k", self.selector_top_k)?,
        })
    }
}

impl BlockConfig {
    /// Whether a `config.json` is that of a block drafter.
    #[must_use]
    pub fn is_one(json: &[u8]) -> bool {
        let is_one = |config: Value| kind_of(&config).is_some() || other_kind(&config).is_some();
        serde_json::from_slice::<Value>(json).is_ok_and(is_one)
    }

    /// Reads the JSON text.
    ///
    /// # Errors
    /// [`ModelError::Unsupported`] or [`ModelError::Metadata`] naming the key.
    pub fn from_json(json: &[u8]) -> Result<Self, ModelError> {
        let whole: Value = serde_json::from_slice(json).map_err(|error| wrong(&error))?;
        if let Some(name) = other_kind(&whole) {
            return refused(&format!("a selector with layers of its own ({name})"));
        }
        let kind = kind_of(&whole).ok_or_else(|| ModelError::Unsupported("no block drafter".into()))?;
        let nested = whole["dflash_config"].as_object();
        let mut merged = whole.clone();
        if let (Some(all), Some(nested)) = (merged.as_object_mut(), nested) {
            all.extend(nested.clone());
        }
        let keys: Keys = serde_json::from_value(merged).map_err(|error| wrong(&error))?;
        keys.check()?;
        // servers go by the keys, whatever the architecture is called
        let kind = if kind == BlockKind::Dflash && keys.has_path() { BlockKind::Dflash2 } else { kind };
        if kind == BlockKind::Dspark && keys.has_path() {
            return refused("both a Markov head and a selector ('markov_rank', 'selector_rank')");
        }
        let block = whole.get("transformer_layer_config").unwrap_or(&whole);
        let layers = transformer(block)?;
        let is_trainers = keys.aux_hidden_state_layer_ids.is_some() || whole.get("transformer_layer_config").is_some();
        let target_layers = match (&keys.aux_hidden_state_layer_ids, &keys.target_layer_ids) {
            (Some(inputs), _) => inputs.clone(),
            // the outputs of these layers
            (None, Some(outputs)) => outputs.iter().map(|layer| layer.saturating_add(1)).collect(),
            (None, None) => return Err(ModelError::Metadata("the key 'target_layer_ids' is missing".into())),
        };
        let mask = || ModelError::Metadata("the key 'mask_token_id' is missing".into());
        let is_dspark = kind == BlockKind::Dspark;
        let markov_rank = keys.markov_rank.filter(|rank| is_dspark && *rank > 0);
        let of_markov = if keys.confidence_head_with_markov == Some(false) { 0 } else { markov_rank.unwrap_or(0) };
        // the folder may lack the head all the same
        let has_confidence = is_dspark && keys.enable_confidence_head != Some(false);
        // `speculators` has another default for DFlash 2
        let sees_both_ways = keys.sliding_window_non_causal.unwrap_or(kind == BlockKind::Dflash2 && is_trainers);
        let slides_causally = (!is_dspark || is_trainers) && !sees_both_ways;
        Self {
            kind,
            sight: sight(block, &keys, slides_causally, layers.layers)?,
            target_layers,
            block_size: keys.block_size.unwrap_or(16),
            mask_token: keys.mask_token_id.ok_or_else(mask)?,
            // files of `speculators` without the key are older than it: their anchors draft nothing
            from_anchor: keys.sample_from_anchor.unwrap_or(is_dspark && !is_trainers),
            markov_rank,
            path: if kind == BlockKind::Dflash2 { Some(keys.path()?) } else { None },
            confidence: has_confidence.then_some(layers.d_model.saturating_add(of_markov)),
            draft_vocab: keys.draft_vocab_size.unwrap_or(layers.vocab),
            embedding_scale: keys.input_embedding_scale.unwrap_or(1.0),
            logit_scale: keys.output_multiplier.unwrap_or(1.0),
            softcap: keys.final_logit_softcapping.filter(|cap| *cap > 0.0),
            made_for: whole["speculators_config"]["verifier"]["name_or_path"].as_str().map(str::to_owned),
            layers,
        }
        .checked()
    }
}

/// The sizes of the layers, which are described like those of a model.
fn transformer(block: &Value) -> Result<TransformerConfig, ModelError> {
    let mut config = block.clone();
    let Some(keys) = config.as_object_mut() else {
        return Err(ModelError::Metadata("'transformer_layer_config' is no object".into()));
    };
    let family = keys.get("model_type").and_then(Value::as_str).unwrap_or("qwen3").to_owned();
    if !["qwen3", "llama"].contains(&family.as_str()) {
        return refused(&format!("layers of the family '{}' ('model_type')", clean(&family)));
    }
    // sight is read apart, a training length is no limit, and nothing depends on what the target ties
    for name in ["sliding_window", "layer_types", "tie_word_embeddings", "max_window_layers"] {
        keys.insert(name.to_owned(), Value::Null);
    }
    keys.insert("use_sliding_window".to_owned(), Value::Bool(false));
    if keys.get("max_position_embeddings").is_none_or(Value::is_null) {
        keys.insert("max_position_embeddings".to_owned(), 4096.into());
    }
    let json = ConfigJson::parse(config.to_string().as_bytes())?;
    json.read::<HfKeys>()?.transformer(&BlockConfig::conventions(), Ends::of(&json, None), Extras::default())
}

/// What rows see. As in z-lab's code and in `speculators`, only sliding layers are causal, and those of DeepSpec are not,
/// unless a key says.
fn sight(block: &Value, keys: &Keys, slides_causally: bool, layers: usize) -> Result<Vec<Sight>, ModelError> {
    let own = Layers::deserialize(block).map_err(|error| wrong(&error))?;
    let everywhere = keys.use_swa == Some(true);
    let window = keys.swa_window_size.or(own.sliding_window);
    let slides = |layer: usize| -> Result<bool, ModelError> {
        let kind = own.layer_types.as_ref().map(|types| types.get(layer).map(String::as_str));
        match kind {
            None => Ok(everywhere),
            Some(Some("full_attention")) => Ok(everywhere),
            Some(Some("sliding_attention")) => Ok(everywhere || own.use_sliding_window != Some(false)),
            Some(other) => refused(&format!("layers of the type '{}' ('layer_types')", clean(other.unwrap_or("none")))),
        }
    };
    let of = |layer| {
        let is_sliding = slides(layer)?;
        let causal = keys.is_causal.or(keys.causal).unwrap_or(slides_causally && is_sliding);
        let missing = || ModelError::Metadata("the key 'sliding_window' is missing".into());
        let window = if is_sliding { Some(window.ok_or_else(missing)?) } else { None };
        Ok(Sight { window, causal })
    };
    (0..layers).map(of).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn dflash() -> Value {
        json!({
            "architectures": ["DFlashDraftModel"], "model_type": "qwen3", "block_size": 8, "hidden_size": 64,
            "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32,
            "intermediate_size": 96, "rms_norm_eps": 1e-6, "vocab_size": 320, "hidden_act": "silu",
            "attention_bias": false, "layer_types": ["full_attention", "full_attention"], "use_sliding_window": false,
            "dflash_config": {"mask_token_id": 319, "target_layer_ids": [1, 3, 5]}
        })
    }

    fn read(config: &Value) -> Result<BlockConfig, String> {
        assert!(BlockConfig::is_one(config.to_string().as_bytes()));
        BlockConfig::from_json(config.to_string().as_bytes()).map_err(|error| error.to_string())
    }

    #[test]
    fn three_layouts_are_read() {
        let own = read(&dflash()).unwrap();
        assert_eq!((own.kind, own.plan().most_drafts(), own.mask_token), (BlockKind::Dflash, 7, 319));
        assert_eq!(own.target_layers, [2, 4, 6]);
        assert!(own.sight.iter().all(|sight| *sight == Sight { window: None, causal: false }));
        let mut deep = dflash();
        deep.as_object_mut().unwrap().remove("dflash_config");
        deep["architectures"] = json!(["Qwen3DSparkModel"]);
        deep["markov_rank"] = json!(32);
        deep["target_layer_ids"] = json!([1, 3]);
        deep["mask_token_id"] = json!(7);
        let own = read(&deep).unwrap();
        assert_eq!((own.kind, own.plan().most_drafts(), own.markov_rank), (BlockKind::Dspark, 8, Some(32)));
        let mut block = dflash();
        block.as_object_mut().unwrap().remove("dflash_config");
        let trained = json!({
            "architectures": ["DSparkSpeculator"], "speculators_model_type": "dspark", "block_size": 8,
            "aux_hidden_state_layer_ids": [2, 4], "mask_token_id": 3, "markov_rank": 32, "draft_vocab_size": 100,
            "transformer_layer_config": block
        });
        let own = read(&trained).unwrap();
        assert_eq!((own.target_layers.as_slice(), own.from_anchor, own.draft_vocab), (&[2, 4][..], false, 100));
        assert!(own.has_own_head());
        // newer files say whether the anchor drafts, for both kinds
        for (kind, name) in [("dspark", "DSparkSpeculator"), ("dflash", "DFlashSpeculator")] {
            let mut newer = trained.clone();
            (newer["speculators_model_type"], newer["architectures"]) = (json!(kind), json!([name]));
            newer["sample_from_anchor"] = json!(true);
            let own = read(&newer).unwrap();
            assert_eq!((own.kind.name().to_lowercase().as_str(), own.plan().most_drafts()), (kind, 8));
        }
    }

    #[test]
    fn a_confidence_head_reads_the_state_and_with_the_key_the_markov_row() {
        // `ConfidenceHead` in `speculators` and `AcceptRatePredictor` in DeepSpec are built with these widths
        let mut config = dflash();
        (config["architectures"], config["markov_rank"]) = (json!(["Qwen3DSparkModel"]), json!(32));
        for (keys, width) in [
            (json!({"enable_confidence_head": true, "confidence_head_with_markov": true}), Some(96)),
            (json!({"enable_confidence_head": true, "confidence_head_with_markov": false}), Some(64)),
            (json!({"enable_confidence_head": false}), None),
            (json!({}), Some(96)), // the defaults of `speculators`
        ] {
            let mut config = config.clone();
            config.as_object_mut().unwrap().extend(keys.as_object().unwrap().clone());
            assert_eq!(read(&config).unwrap().confidence, width, "{keys}");
        }
    }

    #[test]
    fn sliding_layers_are_causal_unless_a_key_says_otherwise() {
        let mut config = dflash();
        (config["layer_types"], config["sliding_window"]) = (json!(["sliding_attention", "full_attention"]), json!(16));
        config["use_sliding_window"] = json!(true);
        let sliding = Sight { window: Some(16), causal: true };
        assert_eq!(read(&config).unwrap().sight, [sliding, Sight { window: None, causal: false }]);
        config["is_causal"] = json!(false);
        assert_eq!(read(&config).unwrap().sight[0], Sight { causal: false, ..sliding });
        for (kind, key, causal) in [
            ("dspark", json!({}), true),
            ("dspark", json!({"sliding_window_non_causal": true}), false),
            ("dflash", json!({"sliding_window_non_causal": true}), false),
            ("dflash", json!({"sliding_window_non_causal": false}), true),
        ] {
            let mut block = config.clone();
            block.as_object_mut().unwrap().retain(|key, _| !["is_causal", "dflash_config"].contains(&key.as_str()));
            let mut trained = json!({
                "speculators_model_type": kind, "block_size": 8, "aux_hidden_state_layer_ids": [2, 4],
                "mask_token_id": 3, "markov_rank": 32, "transformer_layer_config": block
            });
            trained.as_object_mut().unwrap().extend(key.as_object().unwrap().clone());
            assert_eq!(read(&trained).unwrap().sight[0], Sight { causal, ..sliding }, "{kind}, {key}");
        }
        config["sliding_window"] = Value::Null;
        assert!(read(&config).unwrap_err().contains("'sliding_window' is missing"));
    }

    #[test]
    fn dflash_2_has_four_sizes_and_its_sliding_layers_see_both_ways_in_speculators() {
        let sizes = json!({"conv_kernel_size": 2, "conv_group_size": 16, "selector_rank": 32, "selector_top_k": 8});
        let path = Some(PathSizes { taps: 2, group: 16, rank: 32, candidates: 8 });
        // as z-lab writes it, with everything but the layers' sizes in `dflash_config`
        let mut nested = dflash();
        (nested["architectures"], nested["is_causal"]) = (json!(["DFlash2DraftModel"]), json!(false));
        nested.as_object_mut().unwrap().remove("block_size");
        nested["dflash_config"]["block_size"] = json!(6);
        nested["dflash_config"].as_object_mut().unwrap().extend(sizes.as_object().unwrap().clone());
        let own = read(&nested).unwrap();
        assert_eq!(
            (own.kind, own.path, own.plan().most_drafts(), own.markov_rank),
            (BlockKind::Dflash2, path, 5, None)
        );
        let plan = own.plan();
        assert_eq!((plan.convolutions.len(), plan.convolutions[1][0].project.rows), (2, 2 * 2 * 4));
        assert_eq!(plan.convolutions[1][1].base, "layers.1.mlp_conv.base_kernel");
        assert!(plan.weights() > 2 * 320 * 32);
        // as `speculators` writes it
        let mut block = dflash();
        block.as_object_mut().unwrap().remove("dflash_config");
        (block["layer_types"], block["sliding_window"]) = (json!(["sliding_attention", "full_attention"]), json!(16));
        block["use_sliding_window"] = json!(true);
        let mut trained = json!({
            "architectures": ["DFlash2DraftModel"], "speculators_model_type": "dflash2", "block_size": 8,
            "aux_hidden_state_layer_ids": [2, 4], "mask_token_id": 3, "draft_vocab_size": 320,
            "sample_from_anchor": false, "transformer_layer_config": block
        });
        trained.as_object_mut().unwrap().extend(sizes.as_object().unwrap().clone());
        let own = read(&trained).unwrap();
        assert_eq!(
            (own.kind, own.path, own.sight[0]),
            (BlockKind::Dflash2, path, Sight { window: Some(16), causal: false })
        );
        trained["sliding_window_non_causal"] = json!(false);
        assert!(read(&trained).unwrap().sight[0].causal);
        // neither of them has sizes: the architecture alone promises them
        let mut bare = dflash();
        bare["architectures"] = json!(["DFlash2DraftModel"]);
        assert!(read(&bare).unwrap_err().contains("'conv_kernel_size' of a DFlash 2 drafter is missing"));
        let mut lilicorr = nested;
        lilicorr["architectures"] = json!(["LiLiCorrDraftModel"]);
        assert!(read(&lilicorr).unwrap_err().contains("LiLiCorr"));
    }

    #[test]
    fn what_is_not_supported_is_named() {
        for (key, value, says) in [
            ("block_size", json!(1), "'block_size' is 1"),
            ("block_size", json!(65), "'block_size' is 65"),
            ("model_type", json!("gemma4"), "'gemma4'"),
            ("attention_bias", json!(true), "'attention_bias' is true"),
            ("layer_types", json!(["full_attention", "linear_attention"]), "'linear_attention'"),
            ("num_key_value_heads", json!(3), "'num_key_value_heads' is 3"),
            ("draft_vocab_size", json!(321), "'draft_vocab_size' is 321"),
        ] {
            let mut config = dflash();
            config[key] = value;
            let error = read(&config).unwrap_err();
            assert!(error.contains(says) && error.lines().count() == 1, "{key}: {error}");
        }
        for (key, value, says) in [
            ("mask_token_id", json!(320), "'mask_token_id' is 320"),
            ("mask_token_id", Value::Null, "'mask_token_id' is missing"),
            ("target_layer_ids", Value::Null, "'target_layer_ids' is missing"),
            ("target_layer_ids", json!([]), "names 0 layers"),
            ("selector_rank", json!(16), "the key 'conv_kernel_size' of a DFlash 2 drafter is missing"),
            ("attention_value_scale", json!(0.5), "'attention_value_scale'"),
            ("mask_token_id", json!(-1), "config.json"),
        ] {
            let mut config = dflash();
            config["dflash_config"][key] = value;
            let error = read(&config).unwrap_err();
            assert!(error.contains(says) && error.lines().count() == 1, "{key}: {error}");
        }
        let mut spark = dflash();
        spark["architectures"] = json!(["DSparkDraftModel"]);
        assert!(read(&spark).unwrap_err().contains("'markov_rank'"));
        (spark["markov_rank"], spark["markov_head_type"]) = (json!(8), json!("rnn"));
        assert!(read(&spark).unwrap_err().contains("'markov_head_type'"));
    }
}
