//! A draft module of a target's own files on the GPU: one more layer of the target's, as its plan says.

use std::sync::Arc;

use draftscope_gpu::{Matrix, ModuleWeights};

use super::layer::{Around, block, head_norms};
use super::load::table;
use super::module::{GpuModule, GpuMtp, GpuMtpWeights, Norms};
use super::parts::{check_layer, shape};
use super::target::GpuTarget;
use super::uploader::Uploader;
use crate::ModelError;
use crate::draft_tokens::{CONTEXT_VOCAB, DraftTokens};
use crate::files::ModelFiles;
use crate::module_core::{ModuleCore, ModuleFacts, Reads};
use crate::plan::{Attention, Layer, Mixer, Norm, Over, OwnModule};
use draftscope_protocol::TokenId;

impl GpuMtp {
    /// Reads the module beside its target, whose embedding and head it shares; `vocab`: the tokens that it may propose, if
    /// not all.
    ///
    /// # Errors
    /// If a tensor is missing, misshapen or damaged, the kernels do not run a part, or the device's memory is short.
    pub(crate) fn own(
        target: &GpuTarget,
        (source, plan): (&ModelFiles, &OwnModule),
        vocab: Option<&[TokenId]>,
    ) -> Result<Self, ModelError> {
        let (network, width) = (target.network(), target.network().shape.d_model);
        let (gpu, ctx_len) = (&network.gpu, network.ctx_len);
        if plan.embedding.is_some() || plan.head.is_some() {
            return Err(ModelError::Unsupported(
                "a draft module with an embedding or a head of its own does not run on a GPU yet".to_owned(),
            ));
        }
        check_layer(&plan.layer, width)?;
        let (before_mixer, before_feed, attention) = usual(&plan.layer)?;
        let (head, vocab, room) = match vocab {
            None => (network.head.clone(), all(network.head.rows()), 0),
            Some(vocab) => {
                let rows: Vec<_> = vocab.iter().map(|token| token.index()).collect();
                let room = CONTEXT_VOCAB.min(network.head.rows() - rows.len());
                (network.head.select(gpu, &rows)?, vocab.to_vec(), room)
            }
        };
        let uploader = Uploader { gpu, source, norms_as_stored: true };
        let norm = |of: &Norm| uploader.norm_weights(of, width);
        let norms = Norms {
            embedding: norm(&plan.embedding_norm)?,
            hidden: norm(&plan.state_norm)?,
            attn: norm(before_mixer)?,
            ffn: norm(before_feed)?,
            last: norm(&plan.norm)?,
            heads: head_norms(&uploader, attention)?,
        };
        let shape = shape(&plan.layer, width, None);
        let angles = table(gpu, &plan.angles, ctx_len + 1);
        let tables: Vec<_> = attention.rotation.iter().map(|_| (plan.angles.width, angles.clone())).collect();
        let device = Arc::new(ModuleWeights {
            shape,
            embedding_norm: gpu.upload(&norms.embedding),
            hidden_norm: gpu.upload(&norms.hidden),
            fuse: Vec::new(),
            project: uploader.halves(&plan.project)?,
            block: block(&uploader, (&plan.layer, 0), &Around { tables: &tables, shape })?,
            final_norm: gpu.upload(&norms.last),
            head,
            vocab: vocab.iter().map(|token| token.0).collect(),
            room,
            angles,
        });
        gpu.check()?;
        let facts = ModuleFacts {
            spec: plan.conventions,
            reads: Reads::State(Vec::new()),
            widths: [width, width],
            ctx_len,
            tokens: DraftTokens::new(vocab, room),
            weight_bytes: device.project.iter().map(Matrix::bytes).sum::<u64>() + device.block.bytes(),
            kv_bytes_per_slot: shape.kv_bytes(),
        };
        let backend = GpuModule::new(network, &device)?;
        ModuleCore::new(backend, GpuMtpWeights { norms, device, gpu: Arc::clone(gpu) }, facts)
    }
}

/// The norms of a module's layer, which its conventions may shift, and its attention.
fn usual(layer: &Layer) -> Result<(&Norm, &Norm, &Attention), ModelError> {
    let (Layer { mix, fed, .. }, Mixer::Attention(attention)) = (layer, &layer.mixer) else {
        return Err(ModelError::Unsupported("a recurrent draft module does not run on a GPU yet".into()));
    };
    let is_wide = attention.q_norm.as_ref().is_some_and(|norm| norm.over == Over::Width);
    match (&mix.before, &fed.before) {
        (Some(before_mixer), Some(before_feed)) if mix.after.is_none() && !is_wide => {
            Ok((before_mixer, before_feed, attention))
        }
        _ => Err(ModelError::Unsupported(
            "a draft module with norms after its steps or over all heads does not run on a GPU yet".into(),
        )),
    }
}

/// All tokens of a vocabulary.
fn all(vocab: usize) -> Vec<TokenId> {
    (0..vocab as u32).map(TokenId).collect()
}
