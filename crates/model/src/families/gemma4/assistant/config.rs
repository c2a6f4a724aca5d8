//! An assistant's `config.json`, or the keys of its GGUF file.

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::ModelError;
use crate::error::clean;
use crate::families::gemma4::{
    Gemma,
    assistant::names::ORDERING,
    gguf::Keys,
    keys::{GemmaKeys, Sizes},
    plan::{angles, layer},
};
use crate::files::GgufFile;
use crate::plan::{self, Assistant, BlockNames, Matrix, Norm, PlanFiles, Vector};
use crate::shared_kv::Reach;
use draftscope_protocol::{MtpSpec, SlotPosition};

/// Most layers of an assistant.
const MAX_LAYERS: usize = 64;

/// Names of assistants in files.
const KINDS: [&str; 2] = ["gemma4_assistant", "gemma4_unified_assistant"];

/// `general.architecture` of their GGUF files.
pub(super) const GGUF_KINDS: [&str; 2] = ["gemma4-assistant", "gemma4_assistant"];

/// The key of a GGUF file that names its architecture.
const ARCHITECTURE: &str = "general.architecture";

/// Sizes of an assistant.
#[derive(Clone, Debug, PartialEq)]
pub struct AssistantConfig {
    /// Width of its layers.
    pub d_model: usize,
    /// Width of the target's states, which it reads and recycles.
    pub backbone: usize,
    /// Query heads.
    pub heads: usize,
    /// Width of its feed-forward layers.
    pub ffn: usize,
    /// Tokens; must equal the target's.
    pub vocab: usize,
    /// RMSNorm epsilon.
    pub norm_eps: f32,
    /// Its layers.
    pub gemma: Gemma,
    /// Clusters of tokens, if its head searches the best ones first.
    pub clusters: Option<Clusters>,
}

/// Clusters of tokens, all of one size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clusters {
    /// How many.
    pub count: usize,
    /// How many of them the head searches.
    pub looked_in: usize,
}

/// The keys at the top.
#[derive(Deserialize)]
struct Outer {
    backbone_hidden_size: usize,
    #[serde(default)]
    use_ordered_embeddings: bool,
    num_centroids: Option<usize>,
    centroid_intermediate_top_k: Option<usize>,
    tie_word_embeddings: Option<bool>,
    text_config: Map<String, Value>,
}

/// Those of its layers.
#[derive(Deserialize)]
struct Inner {
    vocab_size: usize,
    hidden_size: usize,
    intermediate_size: usize,
    num_hidden_layers: usize,
    num_attention_heads: usize,
    rms_norm_eps: f64,
    attention_bias: Option<bool>,
}

fn wrong(error: &serde_json::Error) -> ModelError {
    ModelError::Metadata(format!("the assistant's config.json: {}", clean(&error.to_string())))
}

fn contradiction<T>(what: &str) -> Result<T, ModelError> {
    Err(ModelError::Metadata(format!("the assistant's config.json: {what}")))
}

impl AssistantConfig {
    /// Whether a `config.json` is that of an assistant.
    #[must_use]
    pub fn is_one(json: &[u8]) -> bool {
        let Ok(config) = serde_json::from_slice::<Value>(json) else { return false };
        config["model_type"].as_str().is_some_and(|kind| KINDS.contains(&kind))
    }

    /// Reads the JSON text.
    ///
    /// # Errors
    /// [`ModelError::Unsupported`] or [`ModelError::Metadata`] naming the key.
    pub fn from_json(json: &[u8]) -> Result<Self, ModelError> {
        let outer: Outer = serde_json::from_slice(json).map_err(|error| wrong(&error))?;
        let text = Value::Object(outer.text_config.clone());
        let inner: Inner = serde_json::from_value(text).map_err(|error| wrong(&error))?;
        for (key, size, most) in [
            ("backbone_hidden_size", outer.backbone_hidden_size, 1 << 16),
            ("vocab_size", inner.vocab_size, 1 << 24),
            ("hidden_size", inner.hidden_size, 1 << 16),
            ("intermediate_size", inner.intermediate_size, 1 << 20),
            ("num_hidden_layers", inner.num_hidden_layers, MAX_LAYERS),
            ("num_attention_heads", inner.num_attention_heads, 1024),
        ] {
            if !(1..=most).contains(&size) {
                return contradiction(&format!("'{key}' is {size}, expected 1 to {most}"));
            }
        }
        if !(inner.rms_norm_eps.is_finite() && inner.rms_norm_eps > 0.0) {
            return contradiction(&format!("'rms_norm_eps' is {}, expected a positive number", inner.rms_norm_eps));
        }
        for (key, is_set) in [
            ("tie_word_embeddings", outer.tie_word_embeddings.map(|tied| !tied)),
            ("attention_bias", inner.attention_bias),
        ] {
            if is_set == Some(true) {
                let value = key == "attention_bias";
                let what = format!("an assistant whose '{key}' is {value} is not supported");
                return Err(ModelError::Unsupported(what));
            }
        }
        let sizes = Sizes {
            layers: inner.num_hidden_layers,
            heads: inner.num_attention_heads,
            ffn: inner.intermediate_size,
            vocab: inner.vocab_size,
        };
        let mut keys = outer.text_config;
        // an assistant has no embeddings for each layer, and need not say so
        keys.entry("hidden_size_per_layer_input").or_insert(0.into());
        let gemma = GemmaKeys::from_json(&keys)?.gemma(sizes, true)?;
        if gemma.per_layer.is_some() || gemma.softcap.is_some() {
            return Err(ModelError::Unsupported(
                "an assistant with 'hidden_size_per_layer_input' or 'final_logit_softcapping' is not supported".into(),
            ));
        }
        Ok(Self {
            d_model: inner.hidden_size,
            backbone: outer.backbone_hidden_size,
            heads: inner.num_attention_heads,
            ffn: inner.intermediate_size,
            vocab: inner.vocab_size,
            norm_eps: inner.rms_norm_eps as f32,
            clusters: match outer.use_ordered_embeddings {
                true => Some(clusters(outer.num_centroids, outer.centroid_intermediate_top_k, inner.vocab_size)?),
                false => None,
            },
            gemma,
        })
    }

    /// Whether a GGUF file is one.
    #[must_use]
    pub fn is_in(gguf: &GgufFile) -> bool {
        gguf.text(ARCHITECTURE).is_some_and(|arch| GGUF_KINDS.contains(&arch))
    }

    /// Reads the keys of a GGUF file. Its head has no clusters: llama.cpp's converter leaves them out.
    ///
    /// # Errors
    /// [`ModelError::Unsupported`] or [`ModelError::Metadata`] naming the key.
    pub fn from_gguf(gguf: &GgufFile) -> Result<Self, ModelError> {
        let keys = Keys::of(gguf, gguf.text(ARCHITECTURE).unwrap_or(GGUF_KINDS[0]));
        let gemma = keys.gemma(true)?;
        if gemma.layers.len() > MAX_LAYERS {
            let what = format!("the assistant has {} layers, and the most is {MAX_LAYERS}", gemma.layers.len());
            return Err(ModelError::Metadata(what));
        }
        if gemma.softcap.is_some() || gemma.experts.is_some() {
            let what = "an assistant with 'final_logit_softcapping' or experts is not supported";
            return Err(ModelError::Unsupported(what.into()));
        }
        Ok(Self {
            d_model: keys.width("embedding_length")?,
            backbone: keys.width("embedding_length_out")?,
            heads: keys.heads()?,
            ffn: gemma.layers[0].ffn,
            vocab: keys.vocab()?,
            norm_eps: keys.norm_eps()?,
            clusters: None,
            gemma,
        })
    }

    /// The conventions it is run with: those of `transformers` and llama.cpp, where its position is the anchor's;
    /// vLLM's is one less ([`SlotPosition::Constant`]).
    #[must_use]
    pub fn spec() -> MtpSpec {
        MtpSpec { position: SlotPosition::ConstantNext, ..MtpSpec::default() }
    }

    /// What it computes.
    #[must_use]
    pub fn plan(&self) -> Assistant {
        let (d, target) = (self.d_model, self.backbone);
        let names = |block| BlockNames { block, width: d, eps: self.norm_eps, centred: false };
        let layer = |block| layer((self.heads, &self.gemma), &names(block), PlanFiles::Checkpoint(None));
        let weight = Some(Vector { name: "output_norm.weight".into(), len: d });
        Assistant {
            project: Matrix::whole("nextn.pre_projection.weight", [d, 2 * target]),
            angles: angles(&self.gemma),
            layers: (0..self.gemma.layers.len()).map(layer).collect(),
            norm: Norm { weight, centred: false, eps: self.norm_eps },
            hand_on: Matrix::whole("nextn.post_projection.weight", [target, d]),
            head: Matrix::whole("token_embd.weight", [self.vocab, d]),
            clusters: self.clusters.map(|of| plan::Clusters {
                centroids: Matrix::whole("masked_embd_centroids.weight", [of.count, d]),
                searched: of.looked_in,
                ordering: ORDERING.to_owned(),
            }),
        }
    }

    /// Checks that it was made for this target.
    ///
    /// # Errors
    /// [`ModelError::Unsupported`] with what differs.
    pub fn check(&self, target: &Gemma, (d_model, vocab): (usize, usize)) -> Result<(), ModelError> {
        let other = |what: &str, own: usize, theirs: usize| {
            Err(ModelError::Unsupported(format!(
                "the assistant was made for another target: {what} is {own} there and {theirs} in the target"
            )))
        };
        if self.backbone != d_model {
            return other("the width of hidden states ('backbone_hidden_size')", self.backbone, d_model);
        }
        if self.vocab != vocab {
            return other("the number of tokens ('vocab_size')", self.vocab, vocab);
        }
        for layer in &self.gemma.layers {
            let kind = if layer.reach == Reach::Full { "full" } else { "sliding" };
            let Some(lender) = target.lender(layer.reach) else {
                return Err(ModelError::Unsupported(format!(
                    "the assistant reads the keys and values of a {kind} layer and the target has none of its own"
                )));
            };
            let theirs = target.layers[lender];
            if layer.head_dim != theirs.head_dim {
                return other(&format!("the width of heads in {kind} layers"), layer.head_dim, theirs.head_dim);
            }
            if layer.kv_heads != theirs.kv_heads {
                return other(
                    &format!("the number of key/value heads in {kind} layers"),
                    layer.kv_heads,
                    theirs.kv_heads,
                );
            }
        }
        if (&self.gemma.sliding_rope, &self.gemma.full_rope) != (&target.sliding_rope, &target.full_rope) {
            return Err(ModelError::Unsupported(
                "the assistant was made for another target: its rotary positions ('rope_parameters') are others".into(),
            ));
        }
        Ok(())
    }
}

fn clusters(count: Option<usize>, looked_in: Option<usize>, vocab: usize) -> Result<Clusters, ModelError> {
    let (count, looked_in) = (count.unwrap_or(2048), looked_in.unwrap_or(32));
    if count == 0 || !vocab.is_multiple_of(count) {
        return contradiction(&format!(
            "'num_centroids' is {count}, which does not divide the {vocab} tokens ('vocab_size') into clusters of one size"
        ));
    }
    if !(1..=count).contains(&looked_in) {
        return contradiction(&format!("'centroid_intermediate_top_k' is {looked_in} and 'num_centroids' {count}"));
    }
    Ok(Clusters { count, looked_in })
}
