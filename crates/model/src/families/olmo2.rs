//! OLMo 2 and OLMo 3: norms after attention and feed-forward layer, none before, and queries and keys normed over all heads
//! together. Three of four layers of OLMo 3 see a window, and only the full ones have stretched positions.
//!
//! Source: `modeling_olmo3.py` of `transformers`, `olmo2.cpp` of llama.cpp.

use serde_json::{Value, json};

use crate::ModelError;
use crate::files::{ConfigJson, Folder, Layout, block_name, config_json::layer_kinds, config_json::size};
use crate::interfaces::{Names, Planned, PlannedFamily};
use crate::nn::{
    Activation, Conventions, Ends, Extras, GgufKeys, HfKeys, PairOrder, RopeSpec, TransformerConfig, refuse_biases,
};
use crate::plan::{
    Angles, BlockNames, Feed, HeadNorm, Join, Keys, Layer, Mixer, Norm, Over, Plan, Rotation, Sight, UsualAttention,
};

/// OLMo 2 and 3.
pub static OLMO2: PlannedFamily = PlannedFamily {
    names: Names { title: "olmo2", gguf: &["olmo2"], json: &["olmo2", "olmo3"] },
    json: from_json,
    gguf: from_gguf,
    tensors: |layout: &Layout, name: &str| block_name(layout, PARTS, name),
};

const CONVENTIONS: Conventions =
    Conventions { name: "olmo2", qk_norm: false, qkv_bias: false, gguf_pairs: PairOrder::HalfSplit };

const PARTS: &[(&str, &str)] =
    &[("post_attention_norm", "post_attention_layernorm"), ("post_ffw_norm", "post_feedforward_layernorm")];

/// One layer in so many of an OLMo 3 is full.
const PATTERN: usize = 4;

/// Base of the frequencies of OLMo 3.
const THETA: f64 = 500_000.0;

fn from_json(json: &ConfigJson, folder: Option<&Folder>) -> Result<Planned, ModelError> {
    refuse_biases(folder, &CONVENTIONS, None)?;
    let is_third = json.keys().get("model_type").and_then(Value::as_str) == Some("olmo3");
    let (mut json, mut sliding) = (json.clone(), None);
    if is_third {
        json = json.with_defaults(&[("rope_theta", json!(THETA)), ("sliding_window", json!(4096))]);
        // older files have one base, which is that of full layers
        let of = |kind: &str| json.keys().get("rope_parameters").and_then(|all| all.get(kind)).cloned();
        let plain = json.clone().with("rope_theta", json!(THETA)).with("rope_scaling", Value::Null);
        let of_sliding = of("sliding_attention").unwrap_or(Value::Null);
        sliding = Some(plain.with("rope_parameters", of_sliding).read::<HfKeys>()?.rope_spec()?);
        if let Some(full) = of("full_attention") {
            json = json.with("rope_parameters", full);
        }
    }
    let keys = json.read::<HfKeys>()?;
    let windows = if is_third { windows(&json, keys.layers()?)? } else { vec![None; keys.layers()?] };
    let extras = Extras { layer_types: is_third, ..Extras::default() };
    let config = keys.transformer(&CONVENTIONS, Ends::of(&json, folder), extras)?;
    Ok(planned(config, &windows, sliding))
}

/// Positions that each layer of an OLMo 3 sees.
fn windows(json: &ConfigJson, layers: usize) -> Result<Vec<Option<usize>>, ModelError> {
    let number = json.keys().get("sliding_window").and_then(Value::as_u64).unwrap_or(0);
    let window = size("sliding_window", usize::try_from(number).unwrap_or(usize::MAX), 1 << 24)?;
    let slides = match json.keys().get("layer_types").filter(|types| !types.is_null()) {
        None => (1..=layers).map(|layer| !layer.is_multiple_of(PATTERN)).collect(),
        Some(types) => {
            let types: Vec<String> = serde_json::from_value(types.clone())
                .map_err(|_| ModelError::Metadata("'layer_types' is not a list of texts".into()))?;
            let kind = |name: &str| ["full_attention", "sliding_attention"].iter().position(|kind| *kind == name);
            layer_kinds("layer_types", (&types, layers), |name| kind(name).map(|kind| kind == 1))?
        }
    };
    Ok(slides.into_iter().map(|slides| slides.then_some(window)).collect())
}

fn from_gguf(keys: GgufKeys<'_>) -> Result<Planned, ModelError> {
    let config = keys.transformer(&CONVENTIONS, None)?;
    let windows = keys.windows(config.layers, PATTERN)?;
    let sliding = RopeSpec::plain(keys.factor("rope.freq_base_swa", config.rope.theta)?);
    Ok(planned(config, &windows, Some(sliding)))
}

/// The plan of a model whose layers see so many positions; those with a window rotate by `sliding`.
fn planned(config: TransformerConfig, windows: &[Option<usize>], sliding: Option<RopeSpec>) -> Planned {
    let table = |rope| Angles { rope, width: config.head_dim };
    let mut angles = vec![table(config.rope.clone())];
    angles.extend(sliding.filter(|_| windows.iter().any(Option::is_some)).map(table));
    let layers = windows.iter().enumerate().map(|(block, window)| layer(&config, block, *window)).collect();
    let plan = Plan::usual(&config, angles, layers, false);
    Planned::new(config, plan)
}

fn layer(config: &TransformerConfig, block: usize, window: Option<usize>) -> Layer {
    let names = BlockNames::of(config, block, false);
    let rotation = Rotation { table: usize::from(window.is_some()), pairs: config.pairs };
    let mut attention = UsualAttention { rotation: Some(rotation), ..UsualAttention::of(config) }.plan(&names);
    let over_all = |part, len| Some(HeadNorm { norm: names.norm_of(part, len), over: Over::Width });
    attention.q_norm = over_all("attn_q_norm", config.q_width());
    if let Keys::Own(own) = &mut attention.keys {
        own.k_norm = over_all("attn_k_norm", config.kv_width());
    }
    attention.sight = Sight { window, ..Sight::PAST };
    let after = |norm: Norm| Join { before: None, after: Some(norm), scale: 1.0 };
    Layer {
        mixer: Mixer::Attention(attention),
        mix: after(names.norm("post_attention_norm")),
        feed: Feed::Dense(names.gated("", config.ffn, Activation::Silu)),
        fed: after(names.norm("post_ffw_norm")),
        token_input: None,
        output_scale: None,
    }
}
