//! Granite 3, and Granite 4 without recurrent layers and experts: Llama with four factors: of the embedding, of scores, of
//! what layers add, and of logits.
//!
//! Source: `modeling_granite.py` and `modeling_granitemoehybrid.py` of `transformers`, `granite.cpp` of llama.cpp.

use serde::Deserialize;
use serde_json::{Value, json};

use crate::ModelError;
use crate::files::{
    ConfigJson, Folder, Layout, block_name,
    config_json::{contradiction, layer_kinds, positive, refused},
};
use crate::interfaces::{Names, Planned, PlannedFamily};
use crate::nn::{Conventions, Ends, Extras, GgufKeys, HfKeys, PairOrder, TransformerConfig, refuse_biases};
use crate::plan::{Feed, Matrix, Mixer, Plan, Rows};

/// Granite 3, and GGUF files of Granite 4 without recurrent layers.
pub static GRANITE: PlannedFamily = PlannedFamily {
    names: Names { title: "granite", gguf: &["granite"], json: &["granite"] },
    json: from_json,
    gguf: from_gguf,
    tensors: |layout: &Layout, name: &str| block_name(layout, &[], name),
};

/// Granite 4 without recurrent layers and experts, in folders.
pub static GRANITE_HYBRID: PlannedFamily = PlannedFamily {
    names: Names { title: "granite-4", gguf: &[], json: &["granitemoehybrid"] },
    json: from_hybrid,
    gguf: from_gguf,
    tensors: |layout: &Layout, name: &str| block_name(layout, HYBRID_PARTS, name),
};

const CONVENTIONS: Conventions =
    Conventions { name: "granite", qk_norm: false, qkv_bias: false, gguf_pairs: PairOrder::Interleaved };

const HYBRID_PARTS: &[(&str, &str)] =
    &[("ffn_gate_up", "shared_mlp.input_linear"), ("ffn_down", "shared_mlp.output_linear")];

/// The four factors.
#[derive(Deserialize)]
struct Factors {
    #[serde(default = "one")]
    embedding_multiplier: f64,
    #[serde(default = "one")]
    attention_multiplier: f64,
    #[serde(default = "one")]
    residual_multiplier: f64,
    /// Logits are divided by it.
    #[serde(default = "one")]
    logits_scaling: f64,
}

fn one() -> f64 {
    1.0
}

fn from_json(json: &ConfigJson, folder: Option<&Folder>) -> Result<Planned, ModelError> {
    refuse_biases(folder, &CONVENTIONS, None)?;
    let config = json.read::<HfKeys>()?.transformer(&CONVENTIONS, Ends::of(json, folder), Extras::default())?;
    let factors: Factors = json.read()?;
    for (key, factor) in [
        ("embedding_multiplier", factors.embedding_multiplier),
        ("attention_multiplier", factors.attention_multiplier),
        ("residual_multiplier", factors.residual_multiplier),
        ("logits_scaling", factors.logits_scaling),
    ] {
        positive(key, factor)?;
    }
    Ok(planned(config, &factors, true))
}

fn from_hybrid(json: &ConfigJson, folder: Option<&Folder>) -> Result<Planned, ModelError> {
    let keys = json.keys();
    let layers = json.read::<HfKeys>()?.layers()?;
    let listed = ["layer_types", "layers_block_type"].iter().find_map(|key| Some((*key, keys.get(*key)?)));
    let Some((key, types)) = listed.filter(|(_, types)| !types.is_null()) else {
        return refused("a Granite 4 whose 'layer_types' are not listed, so that they are recurrent");
    };
    let types: Vec<String> = serde_json::from_value(types.clone())
        .map_err(|_| ModelError::Metadata(format!("'{key}' is not a list of texts")))?;
    layer_kinds(key, (&types, layers), |name| ["attention", "full_attention"].contains(&name).then_some(()))?;
    if keys.get("num_local_experts").and_then(Value::as_u64) != Some(0) {
        return refused("'num_local_experts' is not 0");
    }
    let Some(width) = keys.get("shared_intermediate_size") else {
        return contradiction("config.json lacks 'shared_intermediate_size'");
    };
    let rotates = match keys.get("position_embedding_type").and_then(Value::as_str) {
        Some("rope") => true,
        None | Some("nope") => false,
        Some(_) => return refused("'position_embedding_type' is neither 'rope' nor 'nope'"),
    };
    let json = json.clone().with("intermediate_size", width.clone()).with("layer_types", json!(null));
    let mut planned = from_json(&json, folder)?;
    for (block, layer) in planned.plan.layers.iter_mut().enumerate() {
        if let Feed::Dense(feed) = &mut layer.feed {
            let (width, d) = (feed.gate.rows, feed.gate.columns);
            let name = format!("blk.{block}.ffn_gate_up.weight");
            let half =
                |first| Matrix::of(vec![Rows::some(name.clone(), [2 * width, d], (first, width), (width, 1))], d);
            (feed.gate, feed.up) = (half(0), half(width));
        }
    }
    Ok(if rotates { planned } else { without_rotation(planned) })
}

fn from_gguf(keys: GgufKeys<'_>) -> Result<Planned, ModelError> {
    let config = keys.transformer(&CONVENTIONS, None)?;
    let factors = Factors {
        embedding_multiplier: keys.factor("embedding_scale", 1.0)?,
        attention_multiplier: keys.factor("attention.scale", 1.0 / (config.head_dim as f64).sqrt())?,
        residual_multiplier: keys.factor("residual_scale", 1.0)?,
        logits_scaling: keys.factor("logit_scale", 1.0)?,
    };
    let rotates = keys.flag("rope.scaling.finetuned")? != Some(false);
    Ok(planned(config, &factors, rotates))
}

fn planned(config: TransformerConfig, factors: &Factors, rotates: bool) -> Planned {
    let mut plan = Plan::llama(&config);
    plan.embedding.scale = factors.embedding_multiplier;
    plan.end.scale = 1.0 / factors.logits_scaling;
    for layer in &mut plan.layers {
        (layer.mix.scale, layer.fed.scale) = (factors.residual_multiplier, factors.residual_multiplier);
        if let Mixer::Attention(attention) = &mut layer.mixer {
            attention.scale = factors.attention_multiplier;
        }
    }
    let planned = Planned::new(config, plan);
    if rotates { planned } else { without_rotation(planned) }
}

fn without_rotation(mut planned: Planned) -> Planned {
    for layer in &mut planned.plan.layers {
        if let Mixer::Attention(attention) = &mut layer.mixer {
            attention.rotation = None;
        }
    }
    planned
}
