//! From a model on disk to a [`GpuLlama`], its memory checked before weights are read.

use std::sync::Arc;

use draftscope_gpu::{BlockWeights, EndStyle, Gpu, Network};

use super::llama::GpuLlama;
use super::tensors::{Uploader, angles, check_shape, shape};
use crate::model::files::ModelFiles;
use crate::model::nn::TransformerConfig;
use crate::model::{ModelError, ModelSpec};

/// What a family's target has that Llama's does not.
pub(in crate::model) struct Reading<'a> {
    /// Whether norms multiply by 1 + w, as checkpoints of some families store them.
    pub(in crate::model) centred: bool,
    /// Values of a head that are rotated; `None` = all.
    pub(in crate::model) rotary: Option<usize>,
    /// Reads what it has around its blocks.
    pub(in crate::model) style: &'a dyn Fn(&Uploader<'_>) -> Result<EndStyle, ModelError>,
    /// Reads a block.
    pub(in crate::model) block: &'a dyn Fn(&Uploader<'_>, usize) -> Result<BlockWeights, ModelError>,
}

/// Reads a target of the Llama kind. `on_layer` is called with each layer's number and the number of layers.
///
/// # Errors
/// As [`target`].
pub(in crate::model) fn llama(
    gpu: &Arc<Gpu>,
    files: (&ModelFiles, &TransformerConfig),
    ctx_len: usize,
    on_layer: &mut dyn FnMut(usize, usize),
) -> Result<GpuLlama, ModelError> {
    let reading = Reading {
        centred: false,
        rotary: None,
        style: &|_| Ok(EndStyle::default()),
        block: &|uploader, index| uploader.block(index),
    };
    target(gpu, files, (ctx_len, &reading), on_layer)
}

/// Reads the model in `source`, block by block.
///
/// # Errors
/// If a tensor is missing, misshapen or damaged, the kernels do not run the model, or the device's memory is short.
pub(in crate::model) fn target(
    gpu: &Arc<Gpu>,
    (source, config): (&ModelFiles, &TransformerConfig),
    (ctx_len, reading): (usize, &Reading<'_>),
    on_layer: &mut dyn FnMut(usize, usize),
) -> Result<GpuLlama, ModelError> {
    let shape = shape(config);
    check_shape(&shape)?;
    shape.check_context(gpu.info(), ctx_len)?;
    let centred = reading.centred && source.is_checkpoint();
    let (uploader, v, d) = (Uploader { gpu, source, config, centred }, config.vocab, config.d_model);
    let style = (reading.style)(&uploader)?;
    let tokens = uploader.matrix("token_embd.weight", v, d)?;
    let (head, embedding) = match config.tied {
        true => (tokens, None),
        false => (uploader.matrix("output.weight", v, d)?, Some(tokens)),
    };
    let block = |index| {
        on_layer(index, config.layers);
        (reading.block)(&uploader, index)
    };
    let blocks = (0..config.layers).map(block).collect::<Result<Vec<_>, _>>()?;
    let network = Network {
        gpu: Arc::clone(gpu),
        shape,
        blocks,
        final_norm: uploader.norm("output_norm.weight", d)?,
        embedding,
        head,
        angles: angles(gpu, &config.rope, reading.rotary.unwrap_or(config.head_dim), ctx_len),
        ctx_len,
        style,
    };
    let spec = spec(source, config, &network);
    GpuLlama::new(&Arc::new(network), spec)
}

fn spec(source: &ModelFiles, config: &TransformerConfig, network: &Network) -> ModelSpec {
    let mut info = config.describe(source.name(), source.file_name());
    info.own_name = source.other_name();
    info.weight_bytes = network.bytes();
    info.kv_bytes_per_token = network.blocks.iter().map(|block| block.kv_bytes(&network.shape)).sum();
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
