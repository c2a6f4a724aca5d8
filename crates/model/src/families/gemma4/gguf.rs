//! The keys of a GGUF file of Gemma 4, as llama.cpp's converter writes them.
//!
//! Invariant: as in [`keys`](crate::families::gemma4::keys); layers differ, so several sizes are lists.

use crate::ModelError;
use crate::families::gemma4::config::Gemma4Config;
use crate::families::gemma4::names::TABLE;
use crate::families::gemma4::shapes::{ExpertShape, Gemma, LayerShape, MAX_EXPERTS, PerLayer};
use crate::files::config_json::contradiction;
use crate::files::{GgufFile, whole};
use crate::nn::{Conventions, GgufKeys, RopeScaling, RopeSpec, TransformerConfig, check_heads};
use crate::plan::PlanFiles;
use crate::shared_kv::Reach;

/// Most heads of a layer, widest head and widest feed-forward layer.
const MAX: [usize; 3] = [1024, 1 << 12, 1 << 20];

/// Reads the sizes.
///
/// # Errors
/// [`ModelError::Metadata`] or [`ModelError::Unsupported`] naming the key.
pub(super) fn config(gguf: &GgufFile, conventions: &Conventions) -> Result<Gemma4Config, ModelError> {
    let keys = Keys::of(gguf, conventions.name);
    let gemma = keys.gemma(false)?;
    let first = gemma.layers[0];
    let sliding = gemma.layers.iter().find(|layer| layer.reach == Reach::Sliding).copied().unwrap_or(first);
    let transformer = TransformerConfig {
        conventions: *conventions,
        vocab: keys.vocab()?,
        d_model: keys.width("embedding_length")?,
        layers: gemma.layers.len(),
        heads: keys.heads()?,
        kv_heads: sliding.kv_heads,
        head_dim: sliding.head_dim,
        ffn: first.ffn,
        norm_eps: keys.norm_eps()?,
        rope: gemma.sliding_rope.clone(),
        pairs: conventions.gguf_pairs,
        context_length: keys.0.size("context_length", 1 << 24)?,
        tied: !gguf.has_tensor("output.weight"),
    };
    transformer.check_vocab()?;
    Ok(Gemma4Config::new(transformer, gemma, PlanFiles::Gguf(gguf)))
}

/// The keys of a target or of an assistant.
pub(super) struct Keys<'a>(GgufKeys<'a>);

impl<'a> Keys<'a> {
    /// Those of a file of this architecture.
    pub(super) fn of(gguf: &'a GgufFile, arch: &'a str) -> Self {
        Self(GgufKeys { gguf, arch })
    }
}

impl Keys<'_> {
    /// The layers and their settings; in an assistant, whose `lent` is true, no layer has keys and values.
    pub(super) fn gemma(&self, lent: bool) -> Result<Gemma, ModelError> {
        let layers = self.layers(lent)?;
        let of_kind = |reach| layers.iter().find(|layer: &&LayerShape| layer.reach == reach);
        let softcap = self.0.key("final_logit_softcapping");
        Ok(Gemma {
            window: self.0.size("attention.sliding_window", 1 << 24)?,
            sliding_rope: RopeSpec::plain(self.base("rope.freq_base_swa", 10_000.0)?),
            full_rope: self.full_rope(of_kind(Reach::Full).map_or(2, |layer| layer.head_dim))?,
            softcap: match self.0.gguf.value(&softcap) {
                Ok(_) => Some(self.0.gguf.real(&softcap, None)?),
                Err(_) => None,
            },
            per_layer: self.per_layer()?,
            experts: self.experts()?,
            k_eq_v: self.k_eq_v(&layers)?,
            layers,
        })
    }

    /// Tokens: rows of the embedding.
    pub(super) fn vocab(&self) -> Result<usize, ModelError> {
        Ok(self.0.gguf.shape("token_embd.weight")?.first().copied().unwrap_or(0))
    }

    /// Width of the residual stream or of a target's states.
    pub(super) fn width(&self, name: &str) -> Result<usize, ModelError> {
        self.0.size(name, 1 << 16)
    }

    /// RMSNorm epsilon.
    pub(super) fn norm_eps(&self) -> Result<f32, ModelError> {
        self.0.gguf.real(&self.0.key("attention.layer_norm_rms_epsilon"), None)
    }

    pub(super) fn heads(&self) -> Result<usize, ModelError> {
        self.0.size("attention.head_count", MAX[0])
    }

    /// A size for each layer: a list, or one for all.
    fn sizes(&self, name: &str, layers: usize, most: usize) -> Result<Vec<usize>, ModelError> {
        let key = self.0.key(name);
        let Ok(list) = self.0.gguf.list(&key) else {
            return Ok(vec![self.0.size(name, most)?; layers]);
        };
        let size = |value| whole(value).and_then(|n| usize::try_from(n).ok()).filter(|n| (1..=most).contains(n));
        let sizes = list.iter().map(size).collect::<Option<Vec<_>>>().filter(|sizes| sizes.len() == layers);
        sizes.ok_or_else(|| ModelError::Metadata(format!("'{key}' does not list {layers} sizes of 1 to {most}")))
    }

    fn kinds(&self, layers: usize) -> Result<Vec<Reach>, ModelError> {
        let key = self.0.key("attention.sliding_window_pattern");
        let kind = |sliding| if sliding { Reach::Sliding } else { Reach::Full };
        let listed = self.0.gguf.list(&key)?.iter().map(|value| value.to_bool().ok().map(kind));
        let kinds = listed.collect::<Option<Vec<_>>>().filter(|kinds| kinds.len() == layers);
        match kinds {
            Some(kinds) if kinds.last() == Some(&Reach::Full) => Ok(kinds),
            Some(_) => contradiction(format!("'{key}' ends with a sliding layer, and the last layer sees everything")),
            None => Err(ModelError::Metadata(format!("'{key}' does not list {layers} layers"))),
        }
    }

    fn layers(&self, lent: bool) -> Result<Vec<LayerShape>, ModelError> {
        // an assistant counts all its blocks as modules
        let count = if lent { self.0.size("block_count", 1024)? } else { self.0.layers()? };
        let (kinds, heads) = (self.kinds(count)?, self.heads()?);
        let shared = match self.0.gguf.number(&self.0.key("attention.shared_kv_layers")) {
            _ if lent => count,
            None | Some(0) => 0,
            Some(_) => self.0.size("attention.shared_kv_layers", 1024)?,
        };
        let Some(own) = count.checked_sub(shared).filter(|own| lent || *own > 0) else {
            return contradiction(format!(
                "'{}' is {shared} of {count} layers: no layer is left that makes keys and values",
                self.0.key("attention.shared_kv_layers")
            ));
        };
        let full_dim = self.0.size("attention.key_length", MAX[1])?;
        let sliding_dim = self.0.size_or("attention.key_length_swa", MAX[1], full_dim)?;
        let kv_heads = self.sizes("attention.head_count_kv", count, MAX[0])?;
        let ffn = self.sizes("feed_forward_length", count, MAX[2])?;
        let names = ["attention.head_count", "attention.head_count_kv"].map(|name| self.0.key(name));
        let shape = |(index, reach): (usize, &Reach)| {
            let head_dim = if *reach == Reach::Full { full_dim } else { sliding_dim };
            check_heads((heads, kv_heads[index], head_dim), (&names[0], &names[1]))?;
            let source = match index < own {
                true => Some(index),
                false => kinds[..own].iter().rposition(|kind| kind == reach),
            };
            if source.is_none() && !lent {
                return contradiction(format!(
                    "layer {index} reads the keys and values of another of its kind and there is none before it ('{}' is {shared})",
                    self.0.key("attention.shared_kv_layers")
                ));
            }
            // layers of a kind have heads of one width
            if let Some(source) = source.filter(|source| kv_heads[*source] != kv_heads[index]) {
                return contradiction(format!(
                    "layer {index} reads the keys and values of layer {source} and '{}' is {} for it and {} for that one",
                    names[1], kv_heads[index], kv_heads[source]
                ));
            }
            Ok(LayerShape { reach: *reach, kv_heads: kv_heads[index], head_dim, ffn: ffn[index], source })
        };
        kinds.iter().enumerate().map(shape).collect()
    }

    /// Whether full layers have no value matrix: all of them, or none.
    fn k_eq_v(&self, layers: &[LayerShape]) -> Result<bool, ModelError> {
        let own = layers.iter().enumerate().filter(|(index, layer)| layer.source == Some(*index));
        let full = own.filter(|(_, layer)| layer.reach == Reach::Full);
        let lacks: Vec<bool> =
            full.map(|(index, _)| !self.0.gguf.has_tensor(&format!("blk.{index}.attn_v.weight"))).collect();
        match lacks.iter().filter(|lacks| **lacks).count() {
            0 => Ok(false),
            all if all == lacks.len() => Ok(true),
            some => contradiction(format!("{some} of {} full layers have no 'attn_v.weight'", lacks.len())),
        }
    }

    fn base(&self, name: &str, usual: f32) -> Result<f64, ModelError> {
        self.0.gguf.real(&self.0.key(name), Some(usual)).map(f64::from)
    }

    /// Rotary positions of full layers, whose pairs are divided by the factors of `rope_freqs`.
    fn full_rope(&self, head_dim: usize) -> Result<RopeSpec, ModelError> {
        let theta = self.base("rope.freq_base", 1_000_000.0)?;
        if !self.0.gguf.has_tensor("rope_freqs.weight") {
            return Ok(RopeSpec::plain(theta));
        }
        let factors = self.0.gguf.vector("rope_freqs.weight", head_dim / 2)?;
        if factors.iter().any(|factor| factor.is_nan() || *factor <= 0.0) {
            return Err(ModelError::Metadata("'rope_freqs.weight' holds something else than positive numbers".into()));
        }
        // the converter writes 1e30 for pairs that are not rotated
        let factors = factors.into_iter().map(|factor| if factor >= 1e30 { f32::INFINITY } else { factor });
        Ok(RopeSpec { theta, scaling: RopeScaling::Factors(factors.collect()) })
    }

    fn experts(&self) -> Result<Option<ExpertShape>, ModelError> {
        if self.0.refuse_experts().is_ok() {
            return Ok(None);
        }
        let shape = ExpertShape {
            count: self.0.size("expert_count", MAX_EXPERTS)?,
            used: self.0.size("expert_used_count", MAX_EXPERTS)?,
            width: self.0.size("expert_feed_forward_length", MAX[2])?,
        };
        shape.checked([&self.0.key("expert_used_count"), &self.0.key("expert_count")]).map(Some)
    }

    fn per_layer(&self) -> Result<Option<PerLayer>, ModelError> {
        match self.0.gguf.number(&self.0.key("embedding_length_per_layer_input")) {
            None | Some(0) => Ok(None),
            Some(_) => {
                let width = self.0.size("embedding_length_per_layer_input", 1 << 12)?;
                let vocab = self.0.gguf.shape(TABLE)?.first().copied().unwrap_or(0);
                let tokens = self.0.gguf.shape("token_embd.weight")?.first().copied().unwrap_or(0);
                if vocab < tokens || vocab > 1 << 24 {
                    return contradiction(format!("'{TABLE}' has {vocab} rows for {tokens} tokens"));
                }
                Ok(Some(PerLayer { width, vocab }))
            }
        }
    }
}
