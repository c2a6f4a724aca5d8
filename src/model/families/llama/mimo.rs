//! MiMo-7B's draft module, which lies in the model's own folder: a block of the model's kind behind a
//! projection that reads the hidden state first.
//!
//! `x = input_proj [norm(h) ; norm(E[token])]`, the block, `u = norm(x)`; logits by the target's head, u is
//! recycled. As vLLM runs it (`mimo_mtp.py`), h is the residual stream before the target's last norm, and the
//! embedding of slot 0 is zero. Invariant: tensors go by GGUF's names, the module's block being one more layer.

use std::sync::Arc;

use crate::model::drafters::core::{self, CandleMtp, LlamaBlock, MtpOnCandle, MtpParts, MtpShape, MtpShared};
use crate::model::families::llama::{LlamaWeights, Reader};
use crate::model::files::source::Source;
use crate::model::interfaces::{LoadContext, Modules};
use crate::model::native::{NativeLlama, NativeMtp};
use crate::model::nn::block::Rope;
use crate::model::nn::config::TransformerConfig;
use crate::model::nn::embedding::{Embedding, SharedTarget};
use crate::model::nn::matmul_backend::{MatmulBackend, Tensors};
use crate::model::nn::rope::PairOrder;
use crate::model::options::WeightType;
use crate::model::{Model, ModelError};
use crate::protocol::{ConcatOrder, Feed, MtpSpec, NormForm, Pairing, Recycle, SlotPosition, SlotZero, TokenId};

/// Where modules stand in a checkpoint, beside `layers`.
pub(super) const LAYERS: &str = "mtp_layers";

/// Part of a GGUF name, and of the checkpoint's.
const PARTS: &[(&str, &str)] = &[
    ("nextn.eh_proj", "input_proj"),
    ("nextn.enorm", "token_layernorm"),
    ("nextn.hnorm", "hidden_layernorm"),
    ("nextn.shared_head_norm", "final_layernorm"),
];

/// Most modules.
const MAX_MODULES: usize = 8;

/// How the module was trained.
const SPEC: MtpSpec = MtpSpec {
    feed: Feed::PreNorm,
    order: ConcatOrder::HiddenFirst,
    slot0: SlotZero::Zeroed,
    recycle: Recycle::PostNorm,
    pairing: Pairing::Next,
    position: SlotPosition::Own,
    norm: NormForm::Weight,
};

/// The checkpoint's name of a part of a module.
pub(super) fn part(name: &str) -> Option<&'static str> {
    PARTS.iter().find(|(gguf, _)| *gguf == name).map(|(_, own)| *own)
}

/// Modules whose projection is there.
pub(super) fn found(source: &Source, config: &TransformerConfig) -> usize {
    (0..MAX_MODULES).take_while(|index| source.has(&tensor(config, *index, "eh_proj"))).count()
}

/// Whether the tensors that the configuration announces are there.
fn check(source: &Source, config: &TransformerConfig, count: usize) -> Result<(), ModelError> {
    if count > MAX_MODULES {
        let what = format!("'num_nextn_predict_layers' is {count}; at most {MAX_MODULES} modules are supported");
        return Err(ModelError::Unsupported(what));
    }
    let missing = (0..count).find(|index| !source.has(&tensor(config, *index, "eh_proj")));
    match missing {
        Some(index) => Err(ModelError::Metadata(format!(
            "config.json announces {count} draft modules ('num_nextn_predict_layers') and the weights of number {} are not in the folder",
            index + 1
        ))),
        None => Ok(()),
    }
}

fn tensor(config: &TransformerConfig, index: usize, name: &str) -> String {
    format!("blk.{}.nextn.{name}.weight", config.layers + index)
}

/// The modules beside a target on candle.
pub(super) fn candle(
    context: &LoadContext<'_>,
    count: usize,
    target: &Arc<LlamaWeights>,
    (weight_type, dtype): (WeightType, &str),
) -> Result<Modules, ModelError> {
    let LoadContext { source, ctx_len, .. } = *context;
    let c = &target.config;
    check(source, c, count)?;
    let backend = MatmulBackend::Candle(weight_type);
    let reader = Reader { tensors: Tensors::new(source, (backend, target.device()), c), config: c };
    let module = |index: usize| -> Result<CandleMtp, ModelError> {
        let norm = |name: &str| reader.tensors.norm(&tensor(c, index, name), c.d_model);
        let parts = MtpParts {
            fuse: None,
            embedding_norm: norm("enorm")?,
            hidden_norm: norm("hnorm")?,
            project: reader.tensors.linear(&tensor(c, index, "eh_proj"), c.d_model, 2 * c.d_model)?,
            block: Box::new(LlamaBlock { block: reader.block(c.layers + index)?, config: c.clone() }),
            norm: norm("shared_head_norm")?,
        };
        let shape = MtpShape { d_model: c.d_model, kv_heads: c.kv_heads, head_dim: c.head_dim, ctx_len };
        let rope = Rope::new(&c.rope, c.head_dim, ctx_len + 1, (PairOrder::HalfSplit, target.device()))?;
        let vocab = (0..c.vocab as u32).map(TokenId).collect();
        let shared =
            MtpShared { embedding: Arc::clone(target) as Arc<dyn Embedding>, head: target.head(), vocab, whole: None };
        MtpOnCandle::module(shared, parts, SPEC, (shape, rope))
    };
    let modules = (0..count).map(module).collect::<Result<Vec<_>, _>>()?;
    Ok(core::modules(modules, name(source), dtype))
}

/// The modules beside a native target.
pub(super) fn native(context: &LoadContext<'_>, count: usize, target: &NativeLlama) -> Result<Modules, ModelError> {
    let (source, config) = (context.source, context.config.transformer());
    check(source, config, count)?;
    let modules = (0..count).map(|index| NativeMtp::own(source, (config, SPEC), target, index));
    let modules = modules.collect::<Result<Vec<_>, _>>()?;
    Ok(core::modules(modules, name(source), &target.spec().dtype))
}

fn name(source: &Source) -> String {
    format!("{} (its own module)", source.name())
}
