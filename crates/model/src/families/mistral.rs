//! Mistral and Ministral: Llama with a window in all layers or some, or with positions stretched by YaRN. GGUF files of
//! Mistral's older models are Llama's.
//!
//! Source: `modeling_mistral.py`, `modeling_ministral.py` and `modeling_ministral3.py` of `transformers`, `mistral3.cpp` of
//! llama.cpp. A Ministral 3 sharpens attention of positions after its first training's context; this is not computed, so the
//! context ends there.

use serde_json::{Value, json};

use crate::ModelError;
use crate::files::{ConfigJson, Folder, Layout, block_name, config_json::layer_kinds, config_json::size};
use crate::interfaces::{Names, Planned, PlannedFamily};
use crate::nn::{
    Conventions, Ends, Extras, GgufKeys, HfKeys, PairOrder, RopeScaling, TransformerConfig, refuse_biases,
};
use crate::plan::{Mixer, Plan};

/// Mistral, Mistral 3 and Ministral.
pub static MISTRAL: PlannedFamily = PlannedFamily {
    names: Names { title: "mistral", gguf: &["mistral3"], json: &["mistral", "ministral", "ministral3", "mistral3"] },
    json: from_json,
    gguf: from_gguf,
    tensors: |layout: &Layout, name: &str| block_name(layout, &[], name),
};

const CONVENTIONS: Conventions =
    Conventions { name: "mistral", qk_norm: false, qkv_bias: false, gguf_pairs: PairOrder::Interleaved };

/// The window of a file that does not say.
const WINDOW: u64 = 4096;

fn from_json(json: &ConfigJson, folder: Option<&Folder>) -> Result<Planned, ModelError> {
    refuse_biases(folder, &CONVENTIONS, None)?;
    let json = with_defaults(json);
    let keys = json.read::<HfKeys>()?;
    let windows = windows(&json, keys.layers()?)?;
    let extras = Extras { layer_types: true, mscale: true, ..Extras::default() };
    let mut config = keys.transformer(&CONVENTIONS, Ends::of(&json, folder), extras)?;
    let rope = ["rope_parameters", "rope_scaling"].iter().find_map(|key| json.keys().get(*key)?.as_object());
    let sharpens = rope.and_then(|rope| rope.get("llama_4_scaling_beta")).and_then(Value::as_f64).unwrap_or(0.0);
    if sharpens != 0.0 {
        end_at_first_context(&mut config);
    }
    Ok(planned(config, &windows))
}

/// Values of keys that a file may leave out, as in the classes of `transformers`.
fn with_defaults(json: &ConfigJson) -> ConfigJson {
    let (keys, json) = (json.keys(), json.clone());
    let is_third = keys.get("model_type").and_then(Value::as_str) == Some("ministral3");
    let says = |key: &str| keys.get(key).is_some_and(|value| !value.is_null());
    if !is_third || says("rope_parameters") || says("rope_scaling") {
        return if is_third { json.with_defaults(&[("head_dim", json!(128))]) } else { json };
    }
    let yarn = json!({
        "rope_type": "yarn", "rope_theta": 1e6, "factor": 16.0, "original_max_position_embeddings": 16384,
        "mscale": 1.0, "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.1,
    });
    json.with_defaults(&[("head_dim", json!(128)), ("rope_parameters", yarn)])
}

/// Positions that each layer sees.
fn windows(json: &ConfigJson, layers: usize) -> Result<Vec<Option<usize>>, ModelError> {
    let keys = json.keys();
    let has_none = json.model_type() == "mistral3" || keys.get("model_type").is_some_and(|kind| kind == "ministral3");
    let window = match keys.get("sliding_window") {
        Some(Value::Null) => None,
        None if has_none => None,
        given => {
            let number = given.map_or(Some(WINDOW), Value::as_u64).and_then(|window| usize::try_from(window).ok());
            Some(size("sliding_window", number.unwrap_or(0), 1 << 24)?)
        }
    };
    let Some(types) = keys.get("layer_types").filter(|types| !types.is_null()) else {
        return Ok(vec![window; layers]);
    };
    let types: Vec<String> = serde_json::from_value(types.clone())
        .map_err(|_| ModelError::Metadata("'layer_types' is not a list of texts".into()))?;
    let kind = |name: &str| match name {
        "full_attention" => Some(None),
        "sliding_attention" => window.map(Some),
        _ => None,
    };
    layer_kinds("layer_types", (&types, layers), kind)
}

fn from_gguf(keys: GgufKeys<'_>) -> Result<Planned, ModelError> {
    let mut config = keys.transformer(&CONVENTIONS, None)?;
    if keys.factor("attention.temperature_scale", 0.0).map_or(true, |scale| scale != 0.0) {
        end_at_first_context(&mut config);
    }
    let windows = keys.windows(config.layers, 1)?;
    Ok(planned(config, &windows))
}

/// Ends the context where attention would become sharper.
fn end_at_first_context(config: &mut TransformerConfig) {
    if let RopeScaling::Yarn { original, .. } = config.rope.scaling {
        config.context_length = config.context_length.min(original as usize);
    }
}

fn planned(config: TransformerConfig, windows: &[Option<usize>]) -> Planned {
    let mut plan = Plan::llama(&config);
    for (layer, window) in plan.layers.iter_mut().zip(windows) {
        if let Mixer::Attention(attention) = &mut layer.mixer {
            attention.sight.window = *window;
        }
    }
    Planned::new(config, plan)
}
