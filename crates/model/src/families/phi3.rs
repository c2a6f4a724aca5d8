//! Phi-3, Phi-3.5 and Phi-4 (also mini): Llama with queries, keys and values in one tensor, gate and up in another, perhaps
//! rotation of a part of each head, a window, and factors of positions that depend on the context (LongRoPE).
//!
//! Source: `modeling_phi3.py` of `transformers`, `phi3.cpp` of llama.cpp. `transformers` takes other factors once a text is
//! longer than the first training's context, and its cached keys no longer fit; here, as in llama.cpp, the length of the
//! context decides.

use serde::Deserialize;

use crate::ModelError;
use crate::error::clean;
use crate::files::{
    ConfigJson, Folder, GgufFile, Layout, block_name,
    config_json::{contradiction, positive, refused, share, size},
};
use crate::interfaces::{Names, Planned, PlannedFamily};
use crate::nn::{
    Conventions, Ends, Extras, GgufKeys, HfKeys, PairOrder, RopeScaling, RopeSpec, TransformerConfig, refuse_biases,
};
use crate::plan::{Angles, Feed, Keys, Layer, Matrix, Mixer, Plan, Rows};

/// Phi-3 and Phi-4.
pub static PHI3: PlannedFamily = PlannedFamily {
    names: Names { title: "phi3", gguf: &["phi3"], json: &["phi3"] },
    json: from_json,
    gguf: from_gguf,
    tensors: |layout: &Layout, name: &str| block_name(layout, PARTS, name),
};

const CONVENTIONS: Conventions =
    Conventions { name: "phi3", qk_norm: false, qkv_bias: false, gguf_pairs: PairOrder::HalfSplit };

const PARTS: &[(&str, &str)] = &[("attn_qkv", "self_attn.qkv_proj"), ("ffn_up", "mlp.gate_up_proj")];

/// The keys that only this family has.
#[derive(Deserialize)]
struct Own {
    partial_rotary_factor: Option<f64>,
    #[serde(default = "usual_context")]
    original_max_position_embeddings: usize,
    sliding_window: Option<usize>,
    rope_theta: Option<f64>,
    rope_scaling: Option<Rope>,
    rope_parameters: Option<Rope>,
}

fn usual_context() -> usize {
    4096
}

/// `rope_scaling`, or `rope_parameters` of newer files.
#[derive(Deserialize)]
struct Rope {
    rope_type: Option<String>,
    #[serde(rename = "type")]
    old_type: Option<String>,
    rope_theta: Option<f64>,
    partial_rotary_factor: Option<f64>,
    factor: Option<f64>,
    attention_factor: Option<f64>,
    short_factor: Option<Vec<f32>>,
    long_factor: Option<Vec<f32>>,
}

fn from_json(json: &ConfigJson, folder: Option<&Folder>) -> Result<Planned, ModelError> {
    refuse_biases(folder, &CONVENTIONS, None)?;
    let (keys, own) = (json.read::<HfKeys>()?, json.read::<Own>()?);
    let given = own.rope_parameters.as_ref().or(own.rope_scaling.as_ref());
    let part = given.and_then(|rope| rope.partial_rotary_factor).or(own.partial_rotary_factor).unwrap_or(1.0);
    // the key for the width of a head is ignored
    let head_dim = json.clone().with("head_dim", serde_json::Value::Null).read::<HfKeys>()?.head_dim(None)?;
    let rotary = even(head_dim as f64 * share("partial_rotary_factor", part)?)?;
    let theta = given.and_then(|rope| rope.rope_theta).or(own.rope_theta).unwrap_or(10_000.0);
    let extras = Extras {
        head_dim: Some(head_dim),
        rope: Some(RopeSpec::plain(positive("rope_theta", theta)?)),
        partial_rotary: true,
        ..Extras::default()
    };
    let mut config = keys.transformer(&CONVENTIONS, Ends::of(json, folder), extras)?;
    if let Some(given) = given {
        let original = size("original_max_position_embeddings", own.original_max_position_embeddings, 1 << 24)?;
        config.rope.scaling = scaling(given, (original, config.context_length), rotary)?;
    }
    let window = own.sliding_window.map(|window| size("sliding_window", window, 1 << 24)).transpose()?;
    Ok(planned(config, rotary, window))
}

/// Rotated values of a head.
fn even(width: f64) -> Result<usize, ModelError> {
    match width as usize {
        0 => contradiction("'partial_rotary_factor' leaves no pair of a head to rotate"),
        width if width % 2 == 1 => contradiction(format!("{width} values of a head cannot be rotated in pairs")),
        width => Ok(width),
    }
}

fn scaling(given: &Rope, (original, context): (usize, usize), rotary: usize) -> Result<RopeScaling, ModelError> {
    match given.rope_type.as_deref().or(given.old_type.as_deref()) {
        None | Some("default") => return Ok(RopeScaling::Plain),
        // "su" and "yarn" are older names of it in this family
        Some("longrope" | "su" | "yarn") => {}
        Some(other) => return refused(format!("'rope_type' is '{}' in a Phi-3", clean(other))),
    }
    let factors = |key: &str, factors: &Option<Vec<f32>>| match factors {
        Some(factors) => checked(key, factors.clone(), rotary),
        None => contradiction(format!("the rotary scaling lacks '{key}'")),
    };
    let amplitude = match given.attention_factor {
        Some(factor) => positive("attention_factor", factor)?,
        None => amplitude(given.factor.unwrap_or(context as f64 / original as f64), original),
    };
    let (short, long) = (factors("short_factor", &given.short_factor)?, factors("long_factor", &given.long_factor)?);
    Ok(RopeScaling::ByContext { short, long, original, amplitude })
}

/// Factor of cosines and sines of a context that is so many times longer than the first training's.
fn amplitude(times: f64, original: usize) -> f64 {
    if times > 1.0 { (1.0 + times.ln() / (original as f64).ln()).sqrt() } else { 1.0 }
}

/// A factor for each pair.
fn checked(name: &str, factors: Vec<f32>, rotary: usize) -> Result<Vec<f32>, ModelError> {
    let is_good = factors.iter().all(|factor| factor.is_finite() && *factor > 0.0);
    if factors.len() == rotary / 2 && is_good {
        return Ok(factors);
    }
    contradiction(format!("'{name}' is not a positive number for each of {} pairs", rotary / 2))
}

fn from_gguf(keys: GgufKeys<'_>) -> Result<Planned, ModelError> {
    let head_dim = keys.head_dim()?;
    let rotary = keys.size_or("rope.dimension_count", head_dim, head_dim)?;
    let mut config = keys.sizes(&CONVENTIONS, |_| keys.rope(rotary))?;
    keys.refuse_experts()?;
    keys.refuse_extras(&CONVENTIONS, (head_dim, rotary))?;
    let factors = |gguf: &GgufFile, name: &str| checked(name, gguf.vector(name, rotary / 2)?, rotary);
    if keys.gguf.has_tensor("rope_factors_long.weight") {
        let original = keys.size("rope.scaling.original_context_length", 1 << 24)?;
        let usual = amplitude(config.context_length as f64 / original as f64, original);
        config.rope.scaling = RopeScaling::ByContext {
            short: factors(keys.gguf, "rope_factors_short.weight")?,
            long: factors(keys.gguf, "rope_factors_long.weight")?,
            original,
            amplitude: keys.factor("rope.scaling.attn_factor", usual)?,
        };
    }
    let window = keys.windows(config.layers, 1)?.first().copied().flatten();
    Ok(planned(config, rotary, window))
}

fn planned(config: TransformerConfig, rotary: usize, window: Option<usize>) -> Planned {
    let layers = (0..config.layers).map(|block| layer(&config, block, window)).collect();
    let angles = Angles { rope: config.rope.clone(), width: rotary };
    let plan = Plan::usual(&config, vec![angles], layers, false);
    Planned::new(config, plan)
}

fn layer(config: &TransformerConfig, block: usize, window: Option<usize>) -> Layer {
    let mut layer = Layer::usual(config, block);
    let (d, q, kv) = (config.d_model, config.q_width(), config.kv_width());
    let part = |name: &str, all, first, len| {
        Matrix::of(vec![Rows::some(format!("blk.{block}.{name}.weight"), [all, d], (first, len), (len, 1))], d)
    };
    if let Mixer::Attention(attention) = &mut layer.mixer {
        attention.q = part("attn_qkv", q + 2 * kv, 0, q);
        attention.sight.window = window;
        if let Keys::Own(own) = &mut attention.keys {
            own.k = part("attn_qkv", q + 2 * kv, q, kv);
            own.v = Some(part("attn_qkv", q + 2 * kv, q + kv, kv));
        }
    }
    if let Feed::Dense(feed) = &mut layer.feed {
        feed.gate = part("ffn_up", 2 * config.ffn, 0, config.ffn);
        feed.up = part("ffn_up", 2 * config.ffn, config.ffn, config.ffn);
    }
    layer
}
