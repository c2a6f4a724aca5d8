//! Reading the tensors of a Gemma 4.

use candle_core::Tensor;

use crate::model::ModelError;
use crate::model::families::gemma4::config::{Gemma, LayerShape};
use crate::model::families::gemma4::layer::{KeyValue, Layer, PerLayerInput};
use crate::model::nn::config::TransformerConfig;
use crate::model::nn::matmul_backend::Tensors;
use crate::model::nn::norm::RmsNorm;
use crate::model::shared_kv::Reach;

/// Reads tensors by name.
pub(super) struct Reader<'a> {
    pub(super) tensors: Tensors<'a>,
    pub(super) config: &'a TransformerConfig,
    pub(super) gemma: &'a Gemma,
}

impl Reader<'_> {
    pub(super) fn layer(&self, layer: usize) -> Result<Layer, ModelError> {
        let (c, shape) = (self.config, self.gemma.layers[layer]);
        let name = |part: &str| format!("blk.{layer}.{part}.weight");
        let linear = |part: &str, out, input| self.tensors.linear(&name(part), out, input);
        let norm = |part: &str, width| self.tensors.norm(&name(part), width);
        let q_width = c.heads * shape.head_dim;
        let scale = self.tensors.source.vector(&name("layer_output_scale"), 1)?[0];
        let per_layer = match self.gemma.per_layer {
            None => None,
            Some(table) => Some(PerLayerInput {
                gate: linear("inp_gate", table.width, c.d_model)?,
                project: linear("proj", c.d_model, table.width)?,
                norm: norm("post_norm", c.d_model)?,
            }),
        };
        Ok(Layer {
            shape,
            heads: c.heads,
            attn_norm: norm("attn_norm", c.d_model)?,
            q: linear("attn_q", q_width, c.d_model)?,
            q_norm: norm("attn_q_norm", shape.head_dim)?,
            kv: if shape.source == Some(layer) { Some(self.key_value(layer, shape)?) } else { None },
            o: linear("attn_output", c.d_model, q_width)?,
            post_attn_norm: norm("post_attention_norm", c.d_model)?,
            ffn_norm: norm("ffn_norm", c.d_model)?,
            gate: linear("ffn_gate", shape.ffn, c.d_model)?,
            up: linear("ffn_up", shape.ffn, c.d_model)?,
            down: linear("ffn_down", c.d_model, shape.ffn)?,
            post_ffn_norm: norm("post_ffw_norm", c.d_model)?,
            per_layer,
            scale: scale.into(),
        })
    }

    fn key_value(&self, layer: usize, shape: LayerShape) -> Result<KeyValue, ModelError> {
        let (width, d) = (shape.kv_heads * shape.head_dim, self.config.d_model);
        let name = |part: &str| format!("blk.{layer}.{part}.weight");
        let is_key = self.gemma.k_eq_v && shape.reach == Reach::Full;
        let ones = Tensor::ones(shape.head_dim, candle_core::DType::F32, self.tensors.device)?;
        Ok(KeyValue {
            k: self.tensors.linear(&name("attn_k"), width, d)?,
            v: if is_key { None } else { Some(self.tensors.linear(&name("attn_v"), width, d)?) },
            k_norm: self.tensors.norm(&name("attn_k_norm"), shape.head_dim)?,
            v_norm: RmsNorm::new(&ones, self.config.norm_eps)?,
        })
    }
}
