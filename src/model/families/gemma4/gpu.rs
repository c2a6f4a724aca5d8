//! A Gemma 4 on the GPU: what its blocks have besides Gemma 3's, as data for the same kernels.

use std::sync::Arc;

use draftscope_gpu::{BlockWeights, EndStyle, Gpu, LayerInput, LayerTable, Shape, Style};

use crate::model::ModelError;
use crate::model::families::gemma4::config::{Gemma4Config, LayerShape};
use crate::model::families::gemma4::family::{NO_SHARING, no_module};
use crate::model::families::gemma4::names::TABLE;
use crate::model::gpu::load::{self, Reading};
use crate::model::gpu::tensors::{Taken, Uploader, angles, check_shape};
use crate::model::interfaces::{GpuTarget, LoadContext, LoadResult, Progress};
use crate::model::shared_kv::Reach;

/// Loads the target.
pub(super) fn target(
    config: &Gemma4Config,
    gpu: &Arc<Gpu>,
    context: &LoadContext<'_>,
    progress: &mut Progress<'_>,
) -> LoadResult {
    let LoadContext { options, source, ctx_len, .. } = *context;
    let Gemma4Config { transformer, gemma, .. } = config;
    for layer in &gemma.layers {
        let shape = shape(config, layer);
        check_shape(&shape)?;
        shape.check_context(gpu.info(), ctx_len)?;
    }
    if let Some(width) = gemma.per_layer.map(|of| of.width).filter(|width| !width.is_multiple_of(32)) {
        return Err(odd_inputs(width));
    }
    if let Some(lacks) = gpu.info().lacks_for_layer_inputs().filter(|_| gemma.per_layer.is_some()) {
        return Err(too_few_buffers(&gpu.info().name, &lacks));
    }
    // the model's own angles are those of sliding layers
    let full = gemma.layers.iter().find(|layer| layer.reach == Reach::Full).map_or(2, |layer| layer.head_dim);
    let of_full = angles(gpu, &gemma.full_rope, full, ctx_len);
    let block = |uploader: &Uploader<'_>, index: usize| -> Result<BlockWeights, ModelError> {
        let mut block = block(config, uploader, index)?;
        match gemma.layers[index].reach {
            Reach::Sliding => block.style.window = Some(gemma.window),
            Reach::Full => block.style.angles = Some(of_full.clone()),
        }
        Ok(block)
    };
    let style = |uploader: &Uploader<'_>| {
        let (layers, d) = (transformer.layers, transformer.d_model);
        let layer_table = match gemma.per_layer {
            None => None,
            Some(of) => Some(LayerTable {
                width: of.width,
                table: uploader.matrix(TABLE, of.vocab, layers * of.width)?,
                project: uploader.matrix("per_layer_model_proj.weight", layers * of.width, d)?,
                norm: uploader.norm("per_layer_proj_norm.weight", of.width)?,
            }),
        };
        Ok(EndStyle { embedding_scale: (d as f32).sqrt(), logit_cap: gemma.softcap, layer_table })
    };
    let mut on_layer = |done: usize, total: usize| progress("target", done as u64, total as u64);
    let reading = Reading { centred: false, rotary: None, style: &style, block: &block };
    let mut model = load::target(gpu, (source, transformer), (ctx_len, &reading), &mut on_layer)?;
    model.set_sha256(options.sha256.clone());
    Ok(Box::new(GpuTarget { model, own_modules: Box::new(|_, context| no_module(context)), no_sharing: NO_SHARING }))
}

/// Says that an adapter does not run embeddings for each layer.
fn too_few_buffers(adapter: &str, lacks: &str) -> ModelError {
    ModelError::Unsupported(format!(
        "the adapter '{adapter}' does not run embeddings for each layer: {lacks}; choose another with --adapter, or --device cpu"
    ))
}

/// Says that embeddings for each layer are not run.
fn odd_inputs(width: usize) -> ModelError {
    ModelError::Unsupported(format!(
        "the GPU backend does not run embeddings of width {width} for each layer; choose --device cpu"
    ))
}

/// Sizes of a block.
fn shape(config: &Gemma4Config, layer: &LayerShape) -> Shape {
    let c = &config.transformer;
    let LayerShape { kv_heads, head_dim, ffn, .. } = *layer;
    Shape { d_model: c.d_model, heads: c.heads, kv_heads, head_dim, d_ff: ffn, eps: c.norm_eps }
}

/// A block, without its window and its angles.
fn block(config: &Gemma4Config, uploader: &Uploader<'_>, index: usize) -> Result<BlockWeights, ModelError> {
    let (gemma, layer) = (&config.gemma, &config.gemma.layers[index]);
    let shape = shape(config, layer);
    let (d, head_dim, q) = (shape.d_model, shape.head_dim, shape.heads * shape.head_dim);
    let name = |part: &str| format!("blk.{index}.{part}.weight");
    let norm = |part: &str| uploader.norm(&name(part), d);
    let reads = layer.source.filter(|source| *source != index);
    let [of_q, of_k, of_v] = ["attn_q", "attn_k", "attn_v"].map(name);
    let kv = |name| Taken::whole(name, shape.kv_heads * head_dim);
    // where there is no value matrix, keys serve as values, before their own norm and rotation
    let is_key = gemma.k_eq_v && layer.reach == Reach::Full;
    let mut parts = vec![Taken::whole(&of_q, q)];
    let mut heads = uploader.norm_weights(&name("attn_q_norm"), head_dim)?;
    if reads.is_none() {
        parts.extend([kv(&of_k), kv(if is_key { &of_k } else { &of_v })]);
        heads.extend(uploader.norm_weights(&name("attn_k_norm"), head_dim)?);
        heads.extend(vec![1.0; head_dim]); // of values, which have no weight
    }
    let layer_input = match gemma.per_layer {
        None => None,
        Some(of) => {
            let [gate, project] = [(name("inp_gate"), [of.width, d]), (name("proj"), [d, of.width])];
            let matrices = uploader.same_form([(&gate.0, gate.1), (&project.0, project.1)])?;
            let input = LayerInput::new(matrices, norm("post_norm")?, index);
            Some(input.ok_or_else(|| odd_inputs(of.width))?)
        }
    };
    let style = Style {
        shape: Some(shape),
        query_scale: Some(1.0),
        gelu: true,
        post_norms: Some([norm("post_attention_norm")?, norm("post_ffw_norm")?]),
        norms_values: true,
        reads,
        layer_input,
        output_scale: uploader.source.vector(&name("layer_output_scale"), 1)?.first().copied(),
        ..Style::default()
    };
    let ffn = [layer.ffn, d];
    let [gate, up] = uploader.same_form([(&name("ffn_gate"), ffn), (&name("ffn_up"), ffn)])?;
    Ok(BlockWeights {
        attn_norm: norm("attn_norm")?,
        qkv: uploader.stack(d, &parts)?,
        bias: None,
        head_norms: Some(uploader.gpu.upload(&heads)),
        out: uploader.matrix(&name("attn_output"), d, q)?,
        ffn_norm: norm("ffn_norm")?,
        gate,
        up,
        down: uploader.matrix(&name("ffn_down"), d, layer.ffn)?,
        style,
    })
}
