//! Block drafters in GGUF files, as llama.cpp's converter writes them: architecture `dflash`, with a Markov head for DSpark and
//! a selector for DFlash 2.

use crate::ModelError;
use crate::drafters::dflash::config::{BlockConfig, BlockKind, PathSizes};
use crate::files::{GgufFile, llama_name, renamed};
use crate::nn::GgufKeys;
use crate::plan::Sight;

/// Architecture of such files, and the prefix of their keys.
pub(super) const ARCHITECTURE: &str = "dflash";

/// Tensors and keys of drafters that are not computed here.
const NOT_COMPUTED: &[(&str, &str)] = &[
    ("blk.0.attn_sinks.weight", "attention sinks"),
    ("blk.0.post_attention_norm.weight", "norms after attention"),
    ("blk.0.layer_output_scale.weight", "scaled outputs of layers"),
    ("hc_head_fn.weight", "the layers of DeepSeek-V4"),
];

/// Names of tensors of a layer around its steps, by those in a checkpoint.
const CONVOLUTIONS: &[(&str, &str)] = &[
    ("attention_conv.base_kernel", "attn_conv_base"),
    ("attention_conv.kernel_projection.weight", "attn_conv_proj.weight"),
    ("mlp_conv.base_kernel", "ffn_conv_base"),
    ("mlp_conv.kernel_projection.weight", "ffn_conv_proj.weight"),
];

/// The file's name of a tensor, by its name in a checkpoint.
pub(super) fn name(own: &str) -> Option<String> {
    let fixed = match own {
        "fc.weight" | "d2t" => Some(own),
        "hidden_norm.weight" => Some("enc.output_norm.weight"),
        "norm.weight" => Some("output_norm.weight"),
        "lm_head.weight" => Some("output.weight"),
        "embed_tokens.weight" => Some("token_embd.weight"),
        "markov_head.markov_w1.weight" => Some("markov_w1.weight"),
        "markov_head.markov_w2.weight" => Some("markov_w2.weight"),
        "confidence_head.proj.weight" => Some("conf_proj.weight"),
        "confidence_head.proj.bias" => Some("conf_proj.bias"),
        "candidate_selector.predecessor_codebook" => Some("selector_predecessor.weight"),
        "candidate_selector.successor_codebook" => Some("selector_successor.weight"),
        "candidate_selector.hidden_projection.weight" => Some("selector_hidden.weight"),
        _ => None,
    };
    let in_layer = || {
        let (layer, part) = own.strip_prefix("layers.")?.split_once('.')?;
        let (place, ending) = part.rsplit_once('.')?;
        let named = renamed(CONVOLUTIONS, part).map(str::to_owned);
        let named = named.or_else(|| Some(format!("{}.{ending}", llama_name(place)?)))?;
        Some(format!("blk.{layer}.{named}"))
    };
    fixed.map(str::to_owned).or_else(in_layer)
}

impl BlockConfig {
    /// Reads the metadata of a file.
    ///
    /// # Errors
    /// [`ModelError::Unsupported`] or [`ModelError::Metadata`] naming the key or tensor.
    pub fn from_gguf(gguf: &GgufFile) -> Result<Self, ModelError> {
        gguf.check_types()?;
        if let Some((tensor, what)) = NOT_COMPUTED.iter().find(|(tensor, _)| gguf.has_tensor(tensor)) {
            return Err(ModelError::Unsupported(format!("a block drafter with {what} ('{tensor}') is not supported")));
        }
        let keys = GgufKeys { gguf, arch: ARCHITECTURE };
        let vocab = gguf.list("tokenizer.ggml.tokens")?.len();
        let conventions = Self::conventions();
        let layers = keys.sizes_with(&conventions, vocab, |head_dim| keys.rope(head_dim))?;
        keys.refuse_extras(&conventions, (layers.head_dim, layers.head_dim))?;
        let real = |name: &str| gguf.real(&keys.key(name), Some(1.0)).map(f64::from);
        let softcap = gguf.value(&keys.key("final_logit_softcapping")).is_ok();
        let softcap = if softcap { Some(real("final_logit_softcapping")?) } else { None };
        let usual = 1.0 / (layers.head_dim as f64).sqrt();
        let scale = f64::from(gguf.real(&keys.key("attention.scale"), Some(usual as f32))?);
        let refused = |what: &str, key: &str| {
            let key = keys.key(key);
            Err(ModelError::Unsupported(format!("a block drafter with {what} ('{key}') is not supported")))
        };
        if real("attention.value_scale")? != 1.0 {
            return refused("scaled values", "attention.value_scale");
        }
        if (scale - usual).abs() > 1e-4 {
            return refused("another factor of scores", "attention.scale");
        }
        if gguf.text(&keys.key("hidden_activation")).is_some_and(|act| act != "silu") {
            return refused("another activation than SiLU", "hidden_activation");
        }
        let rank = gguf.shape("markov_w1.weight").ok().and_then(|shape| shape.last().copied());
        let kind = match (rank.is_some(), gguf.has_tensor("selector_hidden.weight")) {
            (true, true) => return Err(both_heads()),
            (true, false) => BlockKind::Dspark,
            (false, true) => BlockKind::Dflash2,
            (false, false) => BlockKind::Dflash,
        };
        let mask = gguf.number("tokenizer.ggml.mask_token_id").and_then(|token| u32::try_from(token).ok());
        let missing = || ModelError::Metadata("the key 'tokenizer.ggml.mask_token_id' is missing".into());
        Self {
            kind,
            sight: sight(&keys, kind, layers.layers)?,
            target_layers: keys.numbers("target_layers")?,
            block_size: keys.size_or("block_size", 1 << 16, 16)?,
            mask_token: mask.ok_or_else(missing)?,
            from_anchor: rank.is_some() && keys.flag("sample_from_anchor")?.unwrap_or(true),
            markov_rank: rank,
            path: if kind == BlockKind::Dflash2 { Some(path(&keys)?) } else { None },
            confidence: gguf.shape("conf_proj.weight").ok().and_then(|shape| shape.last().copied()),
            draft_vocab: gguf.shape("d2t").ok().and_then(|shape| shape.first().copied()).unwrap_or(vocab),
            embedding_scale: real("embedding_scale")?,
            logit_scale: real("logit_scale")?,
            softcap,
            made_for: None,
            layers,
        }
        .checked()
    }
}

fn both_heads() -> ModelError {
    let what = "a block drafter with both a Markov head and a selector ('selector_hidden.weight') is not supported";
    ModelError::Unsupported(what.to_owned())
}

/// The sizes of convolutions and selector.
fn path(keys: &GgufKeys<'_>) -> Result<PathSizes, ModelError> {
    let size = |name: &str| keys.size(name, 1 << 16);
    Ok(PathSizes {
        taps: size("conv_kernel_size")?,
        group: size("conv_group_size")?,
        rank: size("selector_rank")?,
        candidates: size("selector_top_k")?,
    })
}

/// What rows of each layer see; as for checkpoints, sliding layers of DFlash are causal unless the file says otherwise.
fn sight(keys: &GgufKeys<'_>, kind: BlockKind, layers: usize) -> Result<Vec<Sight>, ModelError> {
    let window = match keys.gguf.number(&keys.key("attention.sliding_window")) {
        None | Some(0) => None,
        Some(_) => Some(keys.size("attention.sliding_window", 1 << 24)?),
    };
    let pattern = keys.gguf.list(&keys.key("attention.sliding_window_pattern")).unwrap_or_default();
    let is_causal = keys.flag("attention.causal")?;
    let of = |layer: usize| {
        let slides = pattern.get(layer).is_some_and(|value| value.to_bool().is_ok_and(|slides| slides));
        let causal = is_causal.unwrap_or(kind != BlockKind::Dspark && slides);
        Sight { window: window.filter(|_| slides), causal }
    };
    Ok((0..layers).map(of).collect())
}
