//! From a model on disk to a [`GpuLlama`], its memory checked before weights are read.

use std::sync::Arc;

use draftscope_gpu::{Gpu, Network};

use super::llama::GpuLlama;
use super::tensors::{Uploader, angles, check_shape, shape};
use crate::model::files::ModelFiles;
use crate::model::nn::TransformerConfig;
use crate::model::{ModelError, ModelSpec};

/// Reads the model in `source`. `on_layer` is called with each layer's number and the number of layers.
///
/// # Errors
/// If a tensor is missing, misshapen or damaged, the kernels do not run the model, or the device's memory is short.
pub(in crate::model) fn llama(
    gpu: &Arc<Gpu>,
    (source, config): (&ModelFiles, &TransformerConfig),
    ctx_len: usize,
    on_layer: &mut dyn FnMut(usize, usize),
) -> Result<GpuLlama, ModelError> {
    let shape = shape(config);
    check_shape(&shape)?;
    let (uploader, v, d) = (Uploader { gpu, source, config }, config.vocab, config.d_model);
    let tokens = uploader.matrix("token_embd.weight", v, d)?;
    let (head, embedding) = match config.tied {
        true => (tokens, None),
        false => (uploader.matrix("output.weight", v, d)?, Some(tokens)),
    };
    let block = |index| {
        on_layer(index, config.layers);
        uploader.block(index)
    };
    let blocks = (0..config.layers).map(block).collect::<Result<Vec<_>, _>>()?;
    let network = Network {
        gpu: Arc::clone(gpu),
        shape,
        blocks,
        final_norm: uploader.vector("output_norm.weight", d)?,
        embedding,
        head,
        angles: angles(gpu, &config.rope, config.head_dim, ctx_len),
        ctx_len,
    };
    let spec = spec(source, config, &network);
    GpuLlama::new(&Arc::new(network), spec)
}

fn spec(source: &ModelFiles, config: &TransformerConfig, network: &Network) -> ModelSpec {
    let mut info = config.describe(source.name(), source.file_name());
    info.own_name = source.other_name();
    info.weight_bytes = network.bytes();
    info.kv_bytes_per_token = config.layers as u64 * network.shape.kv_bytes();
    let adapter = network.gpu.info();
    ModelSpec {
        info,
        ctx_len: network.ctx_len,
        backend: "gpu",
        device: format!("{} ({})", adapter.name, adapter.api),
        dtype: network.blocks.first().map_or("none", |block| block.down.form().name()).to_owned(),
        threads: 1,
    }
}
