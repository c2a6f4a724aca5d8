//! Parts as most families have them: a matrix each for queries, keys, values and output, heads of one width, an embedding
//! and a head of their usual names.

use super::attention::{Attention, HeadNorm, Keys, KeysAndValues, Over, Sight};
use super::end::{Angles, Embedding, End, Head, Rotation};
use super::feed::Feed;
use super::layer::{Layer, Mixer};
use super::matrix::{Matrix, Norm, Vector};
use super::tensors_of::BlockNames;
use super::whole::Plan;
use crate::nn::{Activation, TransformerConfig};

/// Sizes and conventions of usual attention.
#[derive(Clone, Copy, Debug)]
pub struct UsualAttention {
    /// Query heads.
    pub heads: usize,
    /// Key/value heads.
    pub kv_heads: usize,
    /// Width of a head.
    pub head_dim: usize,
    /// Whether queries and keys are normed head by head.
    pub qk_norm: bool,
    /// Whether queries, keys and values have a bias.
    pub qkv_bias: bool,
    /// How queries and keys are rotated.
    pub rotation: Option<Rotation>,
}

impl UsualAttention {
    /// That of a model of these sizes, which rotates by the first table of angles.
    #[must_use]
    pub fn of(config: &TransformerConfig) -> Self {
        Self {
            heads: config.heads,
            kv_heads: config.kv_heads,
            head_dim: config.head_dim,
            qk_norm: config.conventions.qk_norm,
            qkv_bias: config.conventions.qkv_bias,
            rotation: Some(Rotation { table: 0, pairs: config.pairs }),
        }
    }

    /// The attention of a block, with the usual names; scores are divided by √(width of a head).
    #[must_use]
    pub fn plan(self, names: &BlockNames) -> Attention {
        let Self { heads, kv_heads, head_dim, .. } = self;
        let projection = |part: &str, heads: usize| {
            let rows = heads * head_dim;
            names.matrix(part, rows, names.width).with_bias(self.qkv_bias.then(|| names.bias(part, rows)))
        };
        let norm =
            |part: &str| self.qk_norm.then(|| HeadNorm { norm: names.norm_of(part, head_dim), over: Over::Head });
        Attention {
            heads,
            kv_heads,
            key_width: head_dim,
            value_width: head_dim,
            q: projection("attn_q", heads),
            q_norm: norm("attn_q_norm"),
            keys: Keys::Own(KeysAndValues {
                k: projection("attn_k", kv_heads),
                v: Some(projection("attn_v", kv_heads)),
                k_norm: norm("attn_k_norm"),
                v_norm: None,
            }),
            o: names.matrix("attn_output", names.width, heads * head_dim),
            rotation: self.rotation,
            scale: 1.0 / (head_dim as f64).sqrt(),
            cap: None,
            sight: Sight::PAST,
            gate: None,
        }
    }
}

impl Layer {
    /// A layer of the Llama kind: attention with keys of its own, a dense feed-forward layer with SiLU, a norm before each.
    #[must_use]
    pub fn usual(config: &TransformerConfig, block: usize) -> Self {
        let names = BlockNames::of(config, block, false);
        Self {
            mixer: Mixer::Attention(UsualAttention::of(config).plan(&names)),
            mix: names.join("attn_norm"),
            feed: Feed::Dense(names.gated("", config.ffn, Activation::Silu)),
            fed: names.join("ffn_norm"),
            token_input: None,
            output_scale: None,
        }
    }
}

impl Plan {
    /// All layers of the Llama kind, rotated by one table of angles.
    #[must_use]
    pub fn llama(config: &TransformerConfig) -> Self {
        let angles = Angles { rope: config.rope.clone(), width: config.head_dim };
        Self::usual(config, vec![angles], (0..config.layers).map(|block| Layer::usual(config, block)).collect(), false)
    }

    /// Layers between an embedding and a head with their usual names; `centred`: whether the last norm is stored as
    /// `w − 1`.
    #[must_use]
    pub fn usual(config: &TransformerConfig, angles: Vec<Angles>, layers: Vec<Layer>, centred: bool) -> Self {
        let (vocab, width) = (config.vocab, config.d_model);
        let weight = Some(Vector { name: "output_norm.weight".into(), len: width });
        let head = match config.tied {
            true => Head::Tied,
            false => Head::Own(Matrix::whole("output.weight", [vocab, width])),
        };
        Self {
            name: config.conventions.name,
            width,
            vocab,
            context: config.context_length,
            embedding: Embedding {
                table: Matrix::whole("token_embd.weight", [vocab, width]),
                scale: 1.0,
                by_layer: None,
            },
            angles,
            layers,
            end: End { norm: Norm { weight, centred, eps: config.norm_eps }, head, scale: 1.0, cap: None },
            modules: Vec::new(),
            announced_modules: 0,
        }
    }
}

impl BlockNames {
    /// Those of a block of a model of these sizes; `centred`: whether its norms are stored as `w − 1`.
    #[must_use]
    pub fn of(config: &TransformerConfig, block: usize, centred: bool) -> Self {
        Self { block, width: config.d_model, eps: config.norm_eps, centred }
    }
}
