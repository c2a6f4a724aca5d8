//! Reading the tensors of a Qwen3.5, from either form of file.
//!
//! Invariant: both forms give the same numbers. A checkpoint's norms are zero-centred and `A_log` is as trained;
//! GGUF files hold `1 + w` and `−exp(A_log)`, and where there are more value heads than key heads they stand in
//! another order ([`HeadOrder`]).

use std::sync::Arc;

use crate::model::ModelError;
use crate::model::families::qwen35::block::{AttentionShape, DeltaNet, GatedAttention, Layer, Mixer};
use crate::model::families::qwen35::config::Hybrid;
use crate::model::families::qwen35::delta::{DeltaWeights, HeadOrder};
use crate::model::files::source::Source;
use crate::model::nn::config::TransformerConfig;
use crate::model::nn::matmul_backend::Tensors;
use crate::model::nn::norm::RmsNorm;

/// Reads tensors by name.
pub(super) struct Reader<'a> {
    pub(super) tensors: Tensors<'a>,
    pub(super) config: &'a TransformerConfig,
    pub(super) hybrid: &'a Hybrid,
}

impl Reader<'_> {
    /// Whether norms are stored as what is added to 1.
    pub(super) fn is_centred(&self) -> bool {
        matches!(self.tensors.source, Source::Folder(_))
    }

    /// A norm as it runs.
    pub(super) fn norm(&self, name: &str, width: usize) -> Result<RmsNorm, ModelError> {
        let norm = self.tensors.norm(name, width)?;
        if self.is_centred() { norm.shifted(1.0) } else { Ok(norm) }
    }

    /// A layer, norms as they run.
    pub(super) fn layer(&self, layer: usize) -> Result<Layer, ModelError> {
        let is_linear = self.hybrid.linear.get(layer).copied().unwrap_or(false);
        self.layer_with(layer, is_linear, &|name, width| self.norm(name, width))
    }

    /// The layer of the draft module, norms as they are stored.
    pub(super) fn module_layer(&self) -> Result<Layer, ModelError> {
        self.layer_with(self.config.layers, false, &|name, width| self.tensors.norm(name, width))
    }

    fn layer_with(
        &self,
        layer: usize,
        is_linear: bool,
        norm: &dyn Fn(&str, usize) -> Result<RmsNorm, ModelError>,
    ) -> Result<Layer, ModelError> {
        let (d, ffn) = (self.config.d_model, self.config.ffn);
        let name = |part: &str| format!("blk.{layer}.{part}");
        Ok(Layer {
            mixer_norm: norm(&name("attn_norm.weight"), d)?,
            mixer: match is_linear {
                true => Mixer::Delta(self.delta(layer)?),
                false => Mixer::Attention(self.attention(layer, norm)?),
            },
            ffn_norm: norm(&name("post_attention_norm.weight"), d)?,
            gate: self.tensors.linear(&name("ffn_gate.weight"), ffn, d)?,
            up: self.tensors.linear(&name("ffn_up.weight"), ffn, d)?,
            down: self.tensors.linear(&name("ffn_down.weight"), d, ffn)?,
        })
    }

    fn attention(
        &self,
        layer: usize,
        norm: &dyn Fn(&str, usize) -> Result<RmsNorm, ModelError>,
    ) -> Result<GatedAttention, ModelError> {
        let c = self.config;
        let name = |part: &str| format!("blk.{layer}.{part}.weight");
        Ok(GatedAttention {
            shape: AttentionShape {
                heads: c.heads,
                kv_heads: c.kv_heads,
                head_dim: c.head_dim,
                rotary: self.hybrid.rotary,
            },
            q: self.tensors.linear(&name("attn_q"), 2 * c.q_width(), c.d_model)?,
            k: self.tensors.linear(&name("attn_k"), c.kv_width(), c.d_model)?,
            v: self.tensors.linear(&name("attn_v"), c.kv_width(), c.d_model)?,
            o: self.tensors.linear(&name("attn_output"), c.d_model, c.q_width())?,
            q_norm: norm(&name("attn_q_norm"), c.head_dim)?,
            k_norm: norm(&name("attn_k_norm"), c.head_dim)?,
        })
    }

    fn delta(&self, layer: usize) -> Result<DeltaNet, ModelError> {
        let (d, shape) = (self.config.d_model, self.hybrid.delta);
        let name = |part: &str| format!("blk.{layer}.{part}");
        let vector = |part: &str, width| self.tensors.source.vector(&name(part), width);
        let [values, heads] = [shape.value_width(), shape.value_heads];
        let weights = DeltaWeights {
            shape,
            order: if self.is_centred() { HeadOrder::Grouped } else { HeadOrder::Tiled },
            conv: self.conv(&name("ssm_conv1d.weight"))?,
            decay: match self.is_centred() {
                true => vector("ssm_a", heads)?.into_iter().map(|log| -log.exp()).collect(),
                false => vector("ssm_a", heads)?,
            },
            dt_bias: vector("ssm_dt.bias", heads)?,
            norm: vector("ssm_norm.weight", shape.value_dim)?,
            eps: self.config.norm_eps,
        };
        if weights.decay.iter().any(|decay| !decay.is_finite() || *decay > 0.0) {
            return Err(ModelError::Metadata(format!("'{}' lets a state grow, which it never does", name("ssm_a"))));
        }
        Ok(DeltaNet {
            mixed: self.tensors.linear(&name("attn_qkv.weight"), shape.channels(), d)?,
            gate: self.tensors.linear(&name("attn_gate.weight"), values, d)?,
            alpha: self.tensors.linear(&name("ssm_alpha.weight"), heads, d)?,
            beta: self.tensors.linear(&name("ssm_beta.weight"), heads, d)?,
            out: self.tensors.linear(&name("ssm_out.weight"), d, values)?,
            weights: Arc::new(weights),
        })
    }

    /// `[channels, kernel]`; checkpoints have a dimension of one between.
    fn conv(&self, name: &str) -> Result<Vec<f32>, ModelError> {
        let (channels, kernel) = (self.hybrid.delta.channels(), self.hybrid.delta.kernel);
        let shape = if self.is_centred() { vec![channels, 1, kernel] } else { vec![channels, kernel] };
        self.tensors.source.stored(name, &shape)?.to_f32(&shape)
    }
}
