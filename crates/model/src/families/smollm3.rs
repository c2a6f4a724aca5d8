//! SmolLM3: Llama with layers that rotate nothing, usually each fourth.
//!
//! Source: `modeling_smollm3.py` of `transformers`, `smollm3.cpp` of llama.cpp, whose files do not record which layers these
//! are.

use serde::Deserialize;
use serde_json::json;

use crate::ModelError;
use crate::files::{
    ConfigJson, Folder, Layout, block_name,
    config_json::{contradiction, size},
};
use crate::interfaces::{Names, Planned, PlannedFamily};
use crate::nn::{Conventions, Ends, Extras, GgufKeys, HfKeys, PairOrder, TransformerConfig, refuse_biases};
use crate::plan::{Mixer, Plan};

/// SmolLM3.
pub static SMOLLM3: PlannedFamily = PlannedFamily {
    names: Names { title: "smollm3", gguf: &["smollm3"], json: &["smollm3"] },
    json: from_json,
    gguf: from_gguf,
    tensors: |layout: &Layout, name: &str| block_name(layout, &[], name),
};

const CONVENTIONS: Conventions =
    Conventions { name: "smollm3", qk_norm: false, qkv_bias: false, gguf_pairs: PairOrder::Interleaved };

/// One layer in so many does not rotate, if the file does not say.
const INTERVAL: usize = 4;

/// The keys that only this family has.
#[derive(Deserialize)]
struct Own {
    /// Despite its name, 1 for a layer that rotates.
    no_rope_layers: Option<Vec<u8>>,
    no_rope_layer_interval: Option<usize>,
}

fn from_json(json: &ConfigJson, folder: Option<&Folder>) -> Result<Planned, ModelError> {
    refuse_biases(folder, &CONVENTIONS, None)?;
    let json = json.clone().with_defaults(&[("rope_theta", json!(2e6))]);
    let (keys, own) = (json.read::<HfKeys>()?, json.read::<Own>()?);
    let config = keys.transformer(&CONVENTIONS, Ends::of(&json, folder), Extras::default())?;
    let rotates = match own.no_rope_layers {
        None => by_interval(
            config.layers,
            size("no_rope_layer_interval", own.no_rope_layer_interval.unwrap_or(INTERVAL), 1024)?,
        ),
        Some(flags) if flags.len() >= config.layers && flags.iter().all(|flag| *flag < 2) => {
            flags.iter().take(config.layers).map(|flag| *flag == 1).collect()
        }
        Some(_) => {
            return contradiction(format!("'no_rope_layers' is not 0 or 1 for each of {} layers", config.layers));
        }
    };
    Ok(planned(config, &rotates))
}

fn from_gguf(keys: GgufKeys<'_>) -> Result<Planned, ModelError> {
    let config = keys.transformer(&CONVENTIONS, None)?;
    let rotates = by_interval(config.layers, INTERVAL);
    Ok(planned(config, &rotates))
}

fn by_interval(layers: usize, interval: usize) -> Vec<bool> {
    (1..=layers).map(|layer| !layer.is_multiple_of(interval)).collect()
}

fn planned(config: TransformerConfig, rotates: &[bool]) -> Planned {
    let mut plan = Plan::llama(&config);
    for (layer, rotates) in plan.layers.iter_mut().zip(rotates) {
        if let (Mixer::Attention(attention), false) = (&mut layer.mixer, rotates) {
            attention.rotation = None;
        }
    }
    Planned::new(config, plan)
}
