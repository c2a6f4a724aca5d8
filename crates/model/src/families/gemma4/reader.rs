//! Reading the layers of a Gemma 4.

use candle_core::{DType, Tensor};

use crate::ModelError;
use crate::families::gemma4::{
    config::{Gemma, LayerShape},
    experts::GemmaExperts,
    layer::{KeyValue, Layer, PerLayerInput},
};
use crate::nn::{Activation, BlockTensors, RmsNorm, Tensors};
use crate::shared_kv::Reach;

pub(super) fn layer(tensors: &Tensors<'_>, gemma: &Gemma, layer: usize) -> Result<Layer, ModelError> {
    let (c, shape, own) = (tensors.config, gemma.layers[layer], tensors.block(layer));
    let q_width = c.heads * shape.head_dim;
    let per_layer = match gemma.per_layer {
        None => None,
        Some(table) => Some(PerLayerInput {
            gate: own.linear("inp_gate", table.width, c.d_model)?,
            project: own.linear("proj", c.d_model, table.width)?,
            norm: own.norm("post_norm", c.d_model)?,
        }),
    };
    let is_key = gemma.k_eq_v && shape.reach == Reach::Full;
    Ok(Layer {
        shape,
        heads: c.heads,
        attn_norm: own.norm("attn_norm", c.d_model)?,
        q: own.linear("attn_q", q_width, c.d_model)?,
        q_norm: own.norm("attn_q_norm", shape.head_dim)?,
        kv: if shape.source == Some(layer) { Some(key_value(tensors, own, (shape, is_key))?) } else { None },
        o: own.linear("attn_output", c.d_model, q_width)?,
        post_attn_norm: own.norm("post_attention_norm", c.d_model)?,
        ffn_norm: own.norm("ffn_norm", c.d_model)?,
        ffn: own.gated("", shape.ffn, Activation::Gelu)?,
        experts: gemma.experts.map(|experts| GemmaExperts::read(tensors, layer, experts)).transpose()?,
        post_ffn_norm: own.norm("post_ffw_norm", c.d_model)?,
        per_layer,
        scale: tensors.source.vector(&own.name("layer_output_scale"), 1)?[0].into(),
    })
}

fn key_value(
    tensors: &Tensors<'_>,
    own: BlockTensors<'_>,
    (shape, is_key): (LayerShape, bool),
) -> Result<KeyValue, ModelError> {
    let (width, d) = (shape.kv_heads * shape.head_dim, tensors.config.d_model);
    let ones = Tensor::ones(shape.head_dim, DType::F32, tensors.device)?;
    Ok(KeyValue {
        k: own.linear("attn_k", width, d)?,
        v: if is_key { None } else { Some(own.linear("attn_v", width, d)?) },
        k_norm: own.norm("attn_k_norm", shape.head_dim)?,
        v_norm: RmsNorm::new(&ones, tensors.config.norm_eps)?,
    })
}
