//! From a plan and a model's files to a [`GpuTarget`], its memory checked before weights are read. One loader serves every
//! plan whose parts have kernels.

use std::sync::Arc;

use draftscope_gpu::{Buffer, EndStyle, ExpertWeights, Gpu, LayerTable, Network, Shape};

use super::layer::{Around, block};
use super::parts::{check, shape};
use super::target::GpuTarget;
use super::uploader::{Uploader, angles};
use crate::files::ModelFiles;
use crate::plan::{Angles, Head, Mixer, Plan};
use crate::{ModelError, ModelSpec};
use draftscope_protocol::ModelInfo;

/// Reads the model in `source`, layer by layer; `info` has its names, and gets what only loading tells. `on_layer` is called
/// with each layer's number and the number of layers.
///
/// # Errors
/// If a tensor is missing, misshapen or damaged, the kernels do not run a part, or the device's memory is short.
pub(crate) fn target(
    gpu: &Arc<Gpu>,
    (source, plan): (&ModelFiles, &Plan),
    (ctx_len, info): (usize, ModelInfo),
    on_layer: &mut dyn FnMut(usize, usize),
) -> Result<GpuTarget, ModelError> {
    check(plan)?;
    check_device(gpu, plan, ctx_len)?;
    let uploader = Uploader { gpu, source, norms_as_stored: false };
    let tables: Vec<_> = plan.angles.iter().map(|of| (of.width, table(gpu, of, ctx_len))).collect();
    let around = Around { tables: &tables, shape: usual_shape(plan) };
    let style = ends(&uploader, plan)?;
    let tokens = uploader.matrix(&plan.embedding.table)?;
    let (head, embedding) = match &plan.end.head {
        Head::Tied => (tokens, None),
        Head::Own(head) => (uploader.matrix(head)?, Some(tokens)),
    };
    let layer = |(index, layer)| {
        on_layer(index, plan.layers.len());
        block(&uploader, (layer, index), &around)
    };
    let blocks = plan.layers.iter().enumerate().map(layer).collect::<Result<Vec<_>, _>>()?;
    let network = Network {
        gpu: Arc::clone(gpu),
        shape: around.shape,
        blocks,
        final_norm: uploader.norm(&plan.end.norm, plan.width)?,
        embedding,
        head,
        angles: tables.first().map_or_else(|| gpu.storage(0), |(_, angles)| angles.clone()),
        ctx_len,
        style,
    };
    let spec = spec(source, info, &network);
    GpuTarget::new(&Arc::new(network), spec)
}

/// Sizes of the first layer that attends; recurrent ones differ in nothing that a kernel of theirs reads.
fn usual_shape(plan: &Plan) -> Shape {
    let attends = plan.layers.iter().find(|layer| matches!(layer.mixer, Mixer::Attention(_)));
    let none = Shape { d_model: plan.width, heads: 1, kv_heads: 1, head_dim: 32, d_ff: 32, eps: 0.0 };
    let usual = attends.or(plan.layers.first()).map_or(none, |layer| shape(layer, plan.width, None));
    Shape { eps: plan.end.norm.eps, ..usual }
}

/// Checks what this device must have for the plan.
fn check_device(gpu: &Gpu, plan: &Plan, ctx_len: usize) -> Result<(), ModelError> {
    let info = gpu.info();
    let attending = plan.layers.iter().filter(|layer| matches!(layer.mixer, Mixer::Attention(_)));
    for layer in attending {
        shape(layer, plan.width, None).check_context(info, ctx_len)?;
    }
    match info.lacks_for_layer_inputs().filter(|_| plan.embedding.by_layer.is_some()) {
        Some(lacks) => Err(ModelError::Unsupported(format!(
            "the adapter '{}' does not run embeddings for each layer: {lacks}; choose another with --adapter, or --device cpu",
            info.name
        ))),
        None => Ok(()),
    }
}

/// A table of angles for so many positions.
pub(super) fn table(gpu: &Gpu, of: &Angles, positions: usize) -> Buffer {
    angles(gpu, &of.rope, of.width, positions)
}

/// What is around the blocks besides embedding, norm and head.
fn ends(uploader: &Uploader<'_>, plan: &Plan) -> Result<EndStyle, ModelError> {
    let layer_table = match &plan.embedding.by_layer {
        None => None,
        Some(of) => Some(LayerTable {
            width: of.width,
            table: uploader.matrix(&of.table)?,
            project: uploader.matrix(&of.project)?,
            norm: uploader.norm(&of.norm, of.width)?,
        }),
    };
    let (embedding_scale, logit_cap) = (plan.embedding.scale as f32, plan.end.cap.map(|cap| cap as f32));
    Ok(EndStyle { embedding_scale, logit_scale: plan.end.scale as f32, logit_cap, layer_table })
}

fn spec(source: &ModelFiles, mut info: ModelInfo, network: &Network) -> ModelSpec {
    info.weight_bytes = network.bytes();
    info.kv_bytes_per_token = network.blocks.iter().map(|block| block.kv_bytes(&network.shape)).sum();
    let experts = || network.blocks.iter().filter_map(|block| block.experts.as_ref());
    info.expert_bytes = experts().map(ExpertWeights::bytes).sum();
    info.expert_row_bytes = experts().map(ExpertWeights::row_bytes).sum();
    let deltas = || network.blocks.iter().filter_map(|block| block.style.delta.as_ref());
    info.state_bytes = deltas().map(|delta| delta.shape.bytes()[0]).sum();
    // of a row that may be rolled back, what it wrote into the state is kept
    info.snapshot_bytes = deltas().map(|delta| delta.shape.bytes()[1]).sum();
    let adapter = network.gpu.info();
    ModelSpec {
        info,
        ctx_len: network.ctx_len,
        backend: "gpu",
        device: format!("{} ({})", adapter.name, adapter.api),
        dtype: source.loaded_dtype(),
        threads: 1,
    }
}
