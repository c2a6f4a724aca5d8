//! The draft module in the files of a Qwen3.5 or Qwen3-Next: `mtp.*` of a checkpoint, `nextn` tensors of a GGUF file. Its layer
//! attends; embedding and output head are the target's.
//!
//! Invariant: it is found by its tensors, never by the config, since many files announce one that is missing.

use std::sync::Arc;

use crate::ModelError;
use crate::draft_tokens::CONTEXT_VOCAB;
use crate::drafters::core::{CandleMtp, MtpOnCandle, MtpShape, MtpShared, OwnTensors};
use crate::families::qwen35::config::{Hybrid, Qwen35Config};
use crate::families::qwen35::{Qwen35Weights, plan, reader::Reader};
use crate::files::ModelFiles;
use crate::interfaces::LoadContext;
use crate::nn::{Embedding, PairOrder, Rope, TransformerConfig, trimmed};
use crate::plan::{Angles, OwnModule, PlanFiles};
use draftscope_protocol::{MtpSpec, NormForm};

/// The module's tensors; `None` if the file has none.
///
/// # Errors
/// If it has an embedding or a head of its own.
fn own_tensors<'a>(
    source: &'a ModelFiles,
    config: &'a TransformerConfig,
) -> Result<Option<OwnTensors<'a>>, ModelError> {
    let own = OwnTensors { source, config };
    if !own.has(0, "eh_proj") {
        return Ok(None);
    }
    if own.has(0, "embed_tokens") || own.has(0, "shared_head_head") {
        return Err(ModelError::Unsupported(
            "the draft module brings an embedding or a head of its own, which is not supported".into(),
        ));
    }
    Ok(Some(own))
}

/// Says that the files have no module.
pub(super) fn no_module(source: &ModelFiles, hybrid: &Hybrid) -> ModelError {
    ModelError::Unsupported(match hybrid.announces_mtp {
        true => format!("{} announces an MTP module and holds no tensor of it", source.file_name()),
        false => format!("{} brings no MTP module", source.file_name()),
    })
}

/// The module of this file as data.
///
/// # Errors
/// If the file has none, or one with an embedding or a head of its own.
pub(super) fn plans(source: &ModelFiles, config: &Qwen35Config) -> Result<Vec<OwnModule>, ModelError> {
    let Qwen35Config { transformer, hybrid, .. } = config;
    let own = own_tensors(source, transformer)?.ok_or_else(|| no_module(source, hybrid))?;
    let layer = plan::layer(transformer, hybrid, transformer.layers, PlanFiles::of(source));
    let angles = Angles { rope: transformer.rope.clone(), width: hybrid.rotary };
    Ok(vec![own.plan(0, (layer, angles), conventions(source))])
}

/// What its norms mean.
fn conventions(source: &ModelFiles) -> MtpSpec {
    let norm = if source.is_checkpoint() { NormForm::OnePlus } else { NormForm::Weight };
    MtpSpec { norm, ..MtpSpec::default() }
}

/// The module of this file, its cache empty; `None` if the file has no tensor of it.
///
/// # Errors
/// When a tensor is missing, misshapen or damaged.
pub(super) fn load_module(context: &LoadContext<'_>, target: &Qwen35Weights) -> Result<Option<CandleMtp>, ModelError> {
    let LoadContext { source, ctx_len, .. } = *context;
    let (trunk, config) = (&target.trunk, &target.trunk.config);
    let vocab = context.draft_vocab()?;
    let Some(own) = own_tensors(source, config)? else {
        return Ok(None);
    };
    // norms as stored: the module's conventions define their meaning
    let tensors = trunk.tensors(source);
    let reader = Reader { tensors: &tensors, hybrid: &target.hybrid };
    let parts = own.parts(&tensors, 0, Box::new(reader.layer(config.layers)?))?;
    let (head, vocab, whole) = match vocab {
        None => (trunk.head.clone(), config.tokens(), None),
        Some(vocab) => (trimmed(&trunk.head, &vocab, &trunk.device)?, vocab, Some((trunk.head.clone(), CONTEXT_VOCAB))),
    };
    let rope = Rope::new(&config.rope, target.hybrid.rotary, ctx_len + 1, (PairOrder::HalfSplit, &trunk.device))?;
    let (embedding, kernels) = (Arc::clone(trunk) as Arc<dyn Embedding>, trunk.kernels());
    let shared = MtpShared { embedding, head, vocab, whole, kernels };
    let spec = conventions(source);
    MtpOnCandle::module(shared, parts, spec, (MtpShape::of(config, ctx_len, trunk.form), rope)).map(Some)
}
