//! A draft module on the GPU, from its plan: one layer with attention, and the target's embedding and head.

use std::sync::Arc;

use draftscope_gpu::{Matrix, ModuleWeights};

use super::layer::{Around, block, head_norms};
use super::load::table;
use super::module::{GpuModule, GpuMtp, GpuMtpWeights, Norms};
use super::parts::{check_layer, shape};
use super::target::GpuTarget;
use super::uploader::Uploader;
use crate::ModelError;
use crate::draft_tokens::DraftTokens;
use crate::files::TensorSource;
use crate::module_core::ModuleCore;
use crate::plan::{Attention, DraftPlan, Entry, Fusion, Layer, Mixer, Norm, Over, StatesNorm};
use draftscope_protocol::TokenId;

impl GpuModule {
    /// Reads the module beside its target, whose embedding and head it shares. `vocab`: the tokens that it may propose, and how
    /// many of the text may join them; `None`: all.
    ///
    /// # Errors
    /// If a tensor is missing, misshapen or damaged, the kernels do not run a part, or the device's memory is short.
    pub(crate) fn load(
        target: &GpuTarget,
        (source, plan): (&dyn TensorSource, &DraftPlan),
        vocab: Option<(&[TokenId], usize)>,
    ) -> Result<GpuMtp, ModelError> {
        let (network, width) = (target.network(), target.network().shape.d_model);
        let (gpu, ctx_len) = (&network.gpu, network.ctx_len);
        let Parts { layer, joined: (embedding, state, project), fuse, before, attention } = parts(plan)?;
        check_layer(layer, width)?;
        let uploader = Uploader { gpu, source, norms_as_stored: true };
        let (head, tokens) = head(network, vocab)?;
        let norm = |of: &Norm| uploader.norm_weights(of, width);
        let norms = Norms {
            embedding: norm(embedding)?,
            hidden: norm(state)?,
            attn: norm(before[0])?,
            ffn: norm(before[1])?,
            last: norm(&plan.norm)?,
            heads: head_norms(&uploader, attention)?,
        };
        let shape = shape(layer, width, None);
        let angles = table(gpu, &plan.angles, ctx_len + 1);
        let tables: Vec<_> = attention.rotation.iter().map(|_| (plan.angles.width, angles.clone())).collect();
        let fuse = fuse.map_or(Ok(Vec::new()), |of| uploader.columns(&of.project, of.states.len()))?;
        let [first, second] = <[Matrix; 2]>::try_from(uploader.columns(project, 2)?)
            .map_err(|_| ModelError::MissingTensor(project.name().to_owned()))?;
        let device = Arc::new(ModuleWeights {
            shape,
            embedding_norm: gpu.upload(&norms.embedding),
            hidden_norm: gpu.upload(&norms.hidden),
            fuse,
            project: [first, second],
            block: block(&uploader, (layer, 0), &Around { tables: &tables, shape })?,
            final_norm: gpu.upload(&norms.last),
            vocab: tokens.tokens().iter().map(|token| token.0).collect(),
            room: tokens.room(),
            head,
            angles,
        });
        gpu.check()?;
        let trimmed = vocab.map(|_| &device.head);
        let own = device.fuse.iter().chain(&device.project).chain(trimmed).map(Matrix::bytes).sum::<u64>();
        let facts = plan.facts(tokens, (ctx_len, own + device.block.bytes(), shape.kv_bytes()));
        let backend = Self::new(network, &device)?;
        ModuleCore::new(backend, GpuMtpWeights { norms, device, gpu: Arc::clone(gpu) }, facts)
    }
}

/// The rows of the target's head for these tokens, or all.
fn head(
    network: &draftscope_gpu::Network,
    vocab: Option<(&[TokenId], usize)>,
) -> Result<(Matrix, DraftTokens), ModelError> {
    let all = network.head.rows();
    let Some((vocab, room)) = vocab else {
        return Ok((network.head.clone(), DraftTokens::new((0..all as u32).map(TokenId).collect(), 0)));
    };
    let rows: Vec<_> = vocab.iter().map(|token| token.index()).collect();
    let tokens = DraftTokens::new(vocab.to_vec(), room.min(all - rows.len()));
    Ok((network.head.select(&network.gpu, &rows)?, tokens))
}

/// The pieces of a module that the kernels run.
struct Parts<'a> {
    layer: &'a Layer,
    joined: (&'a Norm, &'a Norm, &'a crate::plan::Matrix),
    fuse: Option<&'a Fusion>,
    /// Norms of the layer, which its conventions may shift.
    before: [&'a Norm; 2],
    attention: &'a Attention,
}

/// # Errors
/// What does not run.
fn parts(plan: &DraftPlan) -> Result<Parts<'_>, ModelError> {
    let missing = |what: &str| Err(ModelError::Unsupported(format!("{what} does not run on a GPU yet")));
    if plan.embedding.is_some() || plan.head.is_some() {
        return missing("a draft module with an embedding or a head of its own");
    }
    let (Entry::Joined { embedding, state, project }, [layer]) = (&plan.entry, plan.layers.as_slice()) else {
        return missing("a draft module of another kind than DeepSeek-V3's");
    };
    let is_odd = |fusion: &Fusion| {
        let has_weights = fusion.norms.iter().any(|norm| norm.weight.is_some());
        !fusion.adds || fusion.normed != StatesNorm::Each || has_weights
    };
    if plan.fusion.as_ref().is_some_and(is_odd) {
        return missing("a draft module that fuses states in another way than by adding them, normed");
    }
    let Mixer::Attention(attention) = &layer.mixer else { return missing("a recurrent draft module") };
    let is_wide = attention.q_norm.as_ref().is_some_and(|norm| norm.over == Over::Width);
    match (&layer.mix.before, &layer.fed.before) {
        (Some(mixer), Some(feed)) if layer.mix.after.is_none() && !is_wide => Ok(Parts {
            layer,
            joined: (embedding, state, project),
            fuse: plan.fusion.as_ref(),
            before: [mixer, feed],
            attention,
        }),
        _ => missing("a draft module with norms after its steps or over all heads"),
    }
}
