//! The keys of a GGUF file of DeepSeek-V3's layout (`deepseek2`), as llama.cpp's converter writes them: DeepSeek-V3, R1 and
//! V3.1, V2-Lite, Kimi K2, GLM-4.7-Flash. Newer files split the matrices that unfold latents (`attn_k_b`, `attn_v_b`).

use crate::ModelError;
use crate::families::deepseek::common::conventions;
use crate::families::deepseek::keys::{Latent, LatentShape};
use crate::files::config_json::{contradiction, positive};
use crate::interfaces::Planned;
use crate::nn::{GgufKeys, GroupedExperts, RopeScaling, RopeSpec, TransformerConfig};
use crate::plan::PlanFiles;

/// Widest head, and largest rank.
const MAX: [usize; 2] = [1 << 12, 1 << 14];

/// Reads the sizes.
///
/// # Errors
/// [`ModelError::Metadata`] or [`ModelError::Unsupported`] naming the key.
pub(super) fn planned(keys: GgufKeys<'_>) -> Result<Planned, ModelError> {
    let (gguf, conventions) = (keys.gguf, conventions("deepseek2"));
    let (layers, heads) = (keys.layers()?, keys.size("attention.head_count", 1024)?);
    let temperature = keys.key("attention.temperature_scale");
    let scale = gguf.value(&temperature).ok().and_then(|value| value.to_f32().ok());
    if scale.is_some_and(|scale| scale != 0.0) {
        return Err(ModelError::Unsupported(format!("scores scaled by position ('{temperature}') are not supported")));
    }
    let (rope, sharper) = rope(&keys)?;
    let attention = attention(&keys, heads, sharper)?;
    let vocab = gguf.shape("token_embd.weight")?.first().copied().unwrap_or(0);
    let transformer = TransformerConfig {
        conventions,
        vocab,
        d_model: keys.size("embedding_length", 1 << 16)?,
        layers,
        heads,
        kv_heads: heads,
        head_dim: attention.plain + attention.rotary,
        ffn: keys.size("feed_forward_length", 1 << 20)?,
        norm_eps: gguf.real(&keys.key("attention.layer_norm_rms_epsilon"), None)?,
        rope,
        pairs: conventions.gguf_pairs,
        context_length: keys.size("context_length", 1 << 24)?,
        tied: !gguf.has_tensor("output.weight"),
    };
    transformer.check_vocab()?;
    let latent = Latent {
        attention,
        experts: GroupedExperts::from_gguf(&keys, is_glm(layers, vocab))?,
        dense_layers: dense_layers(&keys, layers)?,
        modules: modules(&keys),
    };
    Ok(super::common::planned(transformer, latent, PlanFiles::Gguf(gguf)))
}

/// Whether it is a GLM-4.7-Flash, whose older files do not say how experts are chosen; llama.cpp recognises them so.
fn is_glm(layers: usize, vocab: usize) -> bool {
    [47, 48].contains(&layers) && vocab == 154_880
}

fn modules(keys: &GgufKeys<'_>) -> usize {
    let announced = keys.gguf.number(&keys.key("nextn_predict_layers")).unwrap_or(0);
    usize::try_from(announced).unwrap_or(usize::MAX)
}

fn dense_layers(keys: &GgufKeys<'_>, layers: usize) -> Result<usize, ModelError> {
    let key = keys.key("leading_dense_block_count");
    let dense = usize::try_from(keys.gguf.number(&key).unwrap_or(0)).unwrap_or(usize::MAX);
    if dense > layers {
        return contradiction(format!("'{key}' is {dense}, and there are {layers} layers"));
    }
    Ok(dense)
}

fn attention(keys: &GgufKeys<'_>, heads: usize, sharper: f64) -> Result<LatentShape, ModelError> {
    // files with unsplit matrices have the widths of heads under the usual names
    let split = keys.gguf.number(&keys.key("attention.key_length_mla")).is_some();
    let [key, value] = match split {
        true => ["attention.key_length_mla", "attention.value_length_mla"],
        false => ["attention.key_length", "attention.value_length"],
    };
    let (whole, rotary) = (keys.size(key, MAX[0])?, keys.size("rope.dimension_count", MAX[0])?);
    let Some(plain) = whole.checked_sub(rotary).filter(|plain| *plain > 0 && rotary.is_multiple_of(2)) else {
        return contradiction(format!(
            "'{}' is {whole} and '{}' is {rotary}: no head can be rotated in pairs and have plain values too",
            keys.key(key),
            keys.key("rope.dimension_count")
        ));
    };
    let rank = keys.gguf.number(&keys.key("attention.q_lora_rank")).filter(|rank| *rank != 0);
    Ok(LatentShape {
        heads,
        q_rank: rank.map(|_| keys.size("attention.q_lora_rank", MAX[1])).transpose()?,
        rank: keys.size("attention.kv_lora_rank", MAX[1])?,
        plain,
        rotary,
        value: keys.size(value, MAX[0])?,
        interleaved: true,
        scale: sharper / (whole as f64).sqrt(),
    })
}

/// Rotary positions, and the further factor of the scores that YaRN's `mscale_all_dim` adds.
///
/// The converter writes a tenth of `mscale_all_dim` and leaves `mscale` out, so llama.cpp takes them to be equal
/// (`deepseek2.cpp`): rotated values keep their size.
fn rope(keys: &GgufKeys<'_>) -> Result<(RopeSpec, f64), ModelError> {
    let rope = keys.rope(keys.size("rope.dimension_count", MAX[0])?)?;
    let RopeScaling::Yarn { factor, original, fast, slow, .. } = rope.scaling else {
        return Ok((rope, 1.0));
    };
    let [multiplier, own] = ["rope.scaling.yarn_log_multiplier", "rope.scaling.attn_factor"].map(|name| keys.key(name));
    if keys.gguf.real(&own, Some(1.0))? != 1.0 {
        return Err(ModelError::Unsupported(format!("'{own}' beside latent attention is not supported")));
    }
    let scale = 10.0 * positive(&multiplier, f64::from(keys.gguf.real(&multiplier, None)?))?;
    let sharper = (0.1 * scale * factor.ln() + 1.0).powi(2);
    let scaling = RopeScaling::Yarn { factor, original, fast, slow, amplitude: 1.0 };
    Ok((RopeSpec { scaling, ..rope }, sharper))
}
