//! A Qwen3.5 without experts on the GPU, and the draft module in its files: gated attention as data for the kernels of
//! every block, Gated DeltaNet with its states on the device.

use std::sync::Arc;

use draftscope_gpu::{
    BlockWeights, Buffer, DeltaShape, DeltaWeights, EndStyle, Gpu, Matrix, ModuleWeights, Shape, Style,
};

use crate::model::draft_tokens::{CONTEXT_VOCAB, DraftTokens};
use crate::model::drafters::core;
use crate::model::families::qwen35::config::{Hybrid, Qwen35Config};
use crate::model::families::qwen35::load::{no_module, no_sharing};
use crate::model::families::qwen35::module::{conventions, own_tensors};
use crate::model::families::qwen35::reader::{delta_weights, transposed};
use crate::model::gpu::GpuLlama;
use crate::model::gpu::load::{self, Reading};
use crate::model::gpu::module::{GpuModule, GpuMtp, GpuMtpWeights, Norms};
use crate::model::gpu::tensors::{Taken, Uploader, angles, shape};
use crate::model::interfaces::{GpuTarget, LoadContext, LoadResult, Modules, Progress};
use crate::model::module_core::{ModuleCore, ModuleFacts, Reads};
use crate::model::plan::HeadOrder;
use crate::model::{Model, ModelError};

/// Loads the target.
pub(super) fn target(
    config: &Qwen35Config,
    gpu: &Arc<Gpu>,
    context: &LoadContext<'_>,
    progress: &mut Progress<'_>,
) -> LoadResult {
    let LoadContext { options, source, ctx_len, .. } = *context;
    let Qwen35Config { transformer, hybrid, .. } = config;
    if let Some(lacks) = delta_shape(hybrid).lacks() {
        return Err(ModelError::Unsupported(format!("the GPU backend does not run {lacks}; choose --device cpu")));
    }
    let block = |uploader: &Uploader<'_>, index: usize| match hybrid.linear[index] {
        true => recurrent(uploader, hybrid, index),
        false => {
            let norm = |part: &str, len| uploader.norm_weights(&format!("blk.{index}.{part}.weight"), len);
            let d = transformer.d_model;
            let norms = (norm("attn_norm", d)?, norm("post_attention_norm", d)?, head_norms(uploader, index)?);
            attending(uploader, hybrid, index, norms)
        }
    };
    let reading =
        Reading { centred: true, rotary: Some(hybrid.rotary), style: &|_| Ok(EndStyle::default()), block: &block };
    let mut on_layer = |done: usize, total: usize| progress("target", done as u64, total as u64);
    let mut model = load::target(gpu, (source, transformer), (ctx_len, &reading), &mut on_layer)?;
    model.set_sha256(options.sha256.clone());
    let own = config.clone();
    Ok(Box::new(GpuTarget {
        model,
        own_modules: Box::new(move |target, context| modules(&own, target, context)),
        no_sharing: no_sharing(transformer),
    }))
}

fn delta_shape(hybrid: &Hybrid) -> DeltaShape {
    let delta = hybrid.delta;
    DeltaShape {
        key_heads: delta.key_heads,
        value_heads: delta.value_heads,
        key_dim: delta.key_dim,
        value_dim: delta.value_dim,
        taps: delta.kernel,
        grouped: hybrid.order == HeadOrder::Grouped,
    }
}

/// Of queries, then of keys.
fn head_norms(uploader: &Uploader<'_>, index: usize) -> Result<Vec<f32>, ModelError> {
    let head_dim = uploader.config.head_dim;
    let norm = |part: &str| uploader.norm_weights(&format!("blk.{index}.{part}.weight"), head_dim);
    Ok([norm("attn_q_norm")?, norm("attn_k_norm")?].concat())
}

/// A block with gated attention; norms before attention, before the feed-forward layer, of heads.
fn attending(
    uploader: &Uploader<'_>,
    hybrid: &Hybrid,
    index: usize,
    (attn_norm, ffn_norm, head_norms): (Vec<f32>, Vec<f32>, Vec<f32>),
) -> Result<BlockWeights, ModelError> {
    let (c, name) = (uploader.config, |part: &str| format!("blk.{index}.{part}.weight"));
    let (head_dim, q) = (c.head_dim, c.q_width());
    let [of_q, of_k, of_v] = ["attn_q", "attn_k", "attn_v"].map(name);
    // of each head the query, then the gate
    let query = |row: usize| row / head_dim * 2 * head_dim + row % head_dim;
    let gate = |row: usize| query(row) + head_dim;
    let of_queries = Taken { name: &of_q, stored: 2 * q, rows: q, order: &query };
    let of_gates = Taken { order: &gate, ..of_queries };
    let kv = |name| Taken::whole(name, c.kv_width());
    let style = Style { gated: true, rotary: Some(hybrid.rotary), ..Style::default() };
    let qkv = uploader.stack(c.d_model, &[of_queries, kv(&of_k), kv(&of_v), of_gates])?;
    let [attn_norm, ffn_norm, head_norms] =
        [attn_norm, ffn_norm, head_norms].map(|weights| uploader.gpu.upload(&weights));
    let out = uploader.matrix(&name("attn_output"), c.d_model, q)?;
    with_feed_forward(uploader, index, (attn_norm, ffn_norm), (qkv, Some(head_norms), out, style))
}

/// A block with Gated DeltaNet.
fn recurrent(uploader: &Uploader<'_>, hybrid: &Hybrid, index: usize) -> Result<BlockWeights, ModelError> {
    let (c, name) = (uploader.config, |part: &str| format!("blk.{index}.{part}.weight"));
    let weights = delta_weights((uploader.source, hybrid), index, c.norm_eps)?;
    let (shape, values) = (hybrid.delta, hybrid.delta.value_width());
    let parts = ["attn_qkv", "attn_gate", "ssm_alpha", "ssm_beta"].map(name);
    let rows = [shape.channels(), values, shape.value_heads, shape.value_heads];
    let parts: Vec<_> = parts.iter().zip(rows).map(|(name, rows)| Taken::whole(name, rows)).collect();
    let projections = uploader.stack(c.d_model, &parts)?;
    let delta = DeltaWeights {
        shape: delta_shape(hybrid),
        taps: uploader.gpu.upload(&transposed(&weights.taps, weights.shape.channels())),
        heads: uploader.gpu.upload(&[weights.decay, weights.dt_bias].concat()),
        norm: uploader.gpu.upload(&weights.norm),
    };
    let style = Style { delta: Some(delta), ..Style::default() };
    let out = uploader.matrix(&name("ssm_out"), c.d_model, values)?;
    let norm = |part: &str| uploader.norm(&name(part), c.d_model);
    let norms = (norm("attn_norm")?, norm("post_attention_norm")?);
    with_feed_forward(uploader, index, norms, (projections, None, out, style))
}

/// The rest of a block.
fn with_feed_forward(
    uploader: &Uploader<'_>,
    index: usize,
    (attn_norm, ffn_norm): (Buffer, Buffer),
    (qkv, head_norms, out, style): (Matrix, Option<Buffer>, Matrix, Style),
) -> Result<BlockWeights, ModelError> {
    let (c, name) = (uploader.config, |part: &str| format!("blk.{index}.{part}.weight"));
    let ffn = [c.ffn, c.d_model];
    let [gate, up] = uploader.same_form([(&name("ffn_gate"), ffn), (&name("ffn_up"), ffn)])?;
    let down = uploader.matrix(&name("ffn_down"), c.d_model, c.ffn)?;
    Ok(BlockWeights { attn_norm, qkv, bias: None, head_norms, out, ffn_norm, gate, up, down, style })
}

/// The draft module in the target's files.
fn modules(config: &Qwen35Config, target: &GpuLlama, context: &LoadContext<'_>) -> Result<Modules, ModelError> {
    let LoadContext { source, ctx_len, .. } = *context;
    let (network, transformer) = (target.network(), &config.transformer);
    let own = own_tensors(source, transformer)?.ok_or_else(|| no_module(source, &config.hybrid))?;
    let gpu = &network.gpu;
    let (vocab, room) = (context.draft_vocab()?, CONTEXT_VOCAB);
    let (head, vocab, room) = match vocab {
        None => (network.head.clone(), transformer.tokens(), 0),
        Some(vocab) => {
            let rows: Vec<_> = vocab.iter().map(|token| token.index()).collect();
            let room = room.min(network.head.rows() - rows.len());
            (network.head.select(gpu, &rows)?, vocab, room)
        }
    };
    // norms as stored: the module's conventions define their meaning
    let (uploader, d, index) =
        (Uploader { gpu, source, config: transformer, centred: false }, transformer.d_model, transformer.layers);
    let norm = |name: &str| uploader.norm_weights(name, d);
    let of_block = |part: &str| norm(&format!("blk.{index}.{part}.weight"));
    let norms = Norms {
        embedding: norm(&own.name(0, "enorm"))?,
        hidden: norm(&own.name(0, "hnorm"))?,
        attn: of_block("attn_norm")?,
        ffn: of_block("post_attention_norm")?,
        last: norm(&own.name(0, "shared_head_norm"))?,
        heads: Some(head_norms(&uploader, index)?),
    };
    let of_block = (norms.attn.clone(), norms.ffn.clone(), norms.heads.clone().unwrap_or_default());
    let shape: Shape = shape(transformer);
    let device = Arc::new(ModuleWeights {
        shape,
        embedding_norm: gpu.upload(&norms.embedding),
        hidden_norm: gpu.upload(&norms.hidden),
        fuse: Vec::new(),
        project: uploader.halves(&own.name(0, "eh_proj"), d, d)?,
        block: attending(&uploader, &config.hybrid, index, of_block)?,
        final_norm: gpu.upload(&norms.last),
        head,
        vocab: vocab.iter().map(|token| token.0).collect(),
        room,
        angles: angles(gpu, &transformer.rope, config.hybrid.rotary, ctx_len + 1),
    });
    gpu.check()?;
    let facts = ModuleFacts {
        spec: conventions(source),
        reads: Reads::State(Vec::new()),
        widths: [d, d],
        ctx_len,
        tokens: DraftTokens::new(vocab, room),
        weight_bytes: device.project.iter().map(Matrix::bytes).sum::<u64>() + device.block.bytes(),
        kv_bytes_per_slot: shape.kv_bytes(),
    };
    let backend = GpuModule::new(network, &device)?;
    let module: GpuMtp = ModuleCore::new(backend, GpuMtpWeights { norms, device, gpu: Arc::clone(gpu) }, facts)?;
    Ok(core::modules(vec![module], format!("{} (own module)", source.name()), &target.spec().dtype))
}
