//! MiMo-7B's draft module, which lies in the model's own folder: a block of the model's kind behind a
//! projection that reads the hidden state first.
//!
//! `x = input_proj [norm(h) ; norm(E[token])]`, the block, `u = norm(x)`; logits by the target's head, u is
//! recycled. As vLLM runs it (`mimo_mtp.py`), h is the residual stream before the target's last norm, and the
//! embedding of slot 0 is zero. Invariant: tensors go by GGUF's names, the module's block being one more layer.

use std::sync::Arc;

use crate::model::drafters::mtp::file::LlamaBlock;
use crate::model::drafters::mtp::{CandleMtp, Embedding, MtpParts, MtpShape, MtpShared};
use crate::model::families::declined::Architecture;
use crate::model::families::llama::{LlamaWeights, Reader};
use crate::model::files::source::Source;
use crate::model::load::Drafting;
use crate::model::native::{NativeLlama, NativeMtp};
use crate::model::nn::block::{PairOrder, Rope, WeightType};
use crate::model::nn::config::LlamaConfig;
use crate::model::nn::matmul_backend::{Held, Tensors};
use crate::model::{Model, ModelError, MtpModule};
use crate::protocol::{ConcatOrder, DrafterInfo, DrafterKind, Feed, MtpSpec, SlotZero, TokenId};

/// Where modules stand in a checkpoint, beside `layers`.
pub(in crate::model) const LAYERS: &str = "mtp_layers";

/// Part of a GGUF name, and of the checkpoint's.
pub(in crate::model) const PARTS: &[(&str, &str)] = &[
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
    recycle: crate::protocol::Recycle::PostNorm,
    pairing: crate::protocol::Pairing::Next,
    position: crate::protocol::SlotPosition::Own,
    norm: crate::protocol::NormForm::Weight,
};

/// Modules that the model is said to bring; what its tensors say is found out when they are read.
pub(in crate::model) fn modules(source: &Source, config: &LlamaConfig) -> usize {
    match source {
        Source::Folder(folder) if config.architecture == Architecture::MiMo => folder.modules(),
        _ => 0,
    }
}

/// Whether the tensors that the configuration announces are there.
fn check(source: &Source, config: &LlamaConfig) -> Result<usize, ModelError> {
    let count = modules(source, config);
    if count > MAX_MODULES {
        let what = format!("'num_nextn_predict_layers' is {count}; at most {MAX_MODULES} modules are supported");
        return Err(ModelError::Unsupported(what));
    }
    let missing = (0..count).find(|index| !source.has(&part(config, *index, "eh_proj")));
    match missing {
        Some(index) => Err(ModelError::Metadata(format!(
            "config.json announces {count} draft modules ('num_nextn_predict_layers') and the weights of number {} are not in the folder",
            index + 1
        ))),
        None => Ok(count),
    }
}

fn part(config: &LlamaConfig, index: usize, name: &str) -> String {
    format!("blk.{}.nextn.{name}.weight", config.layers + index)
}

fn drafting(
    source: &Source,
    modules: Vec<Box<dyn MtpModule>>,
    (dtype, bytes, kv, vocab): (String, u64, u64, u32),
) -> Drafting {
    let info = DrafterInfo {
        kind: DrafterKind::Mtp,
        name: format!("{} (its own module)", source.name()),
        sha256: None,
        dtype,
        weight_bytes: bytes,
        kv_bytes_per_token: kv,
        draft_vocab: vocab,
        context_vocab: 0,
    };
    (modules, info)
}

/// The modules beside a target on candle.
pub(in crate::model) fn candle(
    source: &Source,
    target: &Arc<LlamaWeights>,
    held: (WeightType, &str),
    ctx_len: usize,
) -> Result<Drafting, ModelError> {
    let c = &target.config;
    let count = check(source, c)?;
    let reader = Reader { tensors: Tensors::new(source, (Held::Candle(held.0), target.device()), c), config: c };
    let module = |index: usize| -> Result<CandleMtp, ModelError> {
        let norm = |name: &str| reader.tensors.norm(&part(c, index, name), c.d_model);
        let parts = MtpParts {
            fuse: None,
            embedding_norm: norm("enorm")?,
            hidden_norm: norm("hnorm")?,
            project: reader.tensors.linear(&part(c, index, "eh_proj"), c.d_model, 2 * c.d_model)?,
            block: Box::new(LlamaBlock { block: reader.block(c.layers + index)?, config: c.clone() }),
            norm: norm("shared_head_norm")?,
        };
        let shape = MtpShape { d_model: c.d_model, kv_heads: c.kv_heads, head_dim: c.head_dim, ctx_len };
        let rope = Rope::new(&c.rope, c.head_dim, ctx_len + 1, (PairOrder::HalfSplit, target.device()))?;
        let vocab = (0..c.vocab as u32).map(TokenId).collect();
        let shared =
            MtpShared { embedding: Arc::clone(target) as Arc<dyn Embedding>, head: target.head(), vocab, whole: None };
        CandleMtp::new(shared, parts, SPEC, (shape, rope))
    };
    let modules = (0..count).map(module).collect::<Result<Vec<_>, _>>()?;
    let bytes = modules.iter().map(CandleMtp::bytes).sum();
    let kv = modules.iter().map(CandleMtp::kv_bytes_per_slot).sum();
    let boxed = modules.into_iter().map(|module| Box::new(module) as _).collect();
    Ok(drafting(source, boxed, (held.1.to_owned(), bytes, kv, c.vocab as u32)))
}

/// The modules beside a native target.
pub(in crate::model) fn native(
    source: &Source,
    config: &LlamaConfig,
    target: &NativeLlama,
) -> Result<Drafting, ModelError> {
    let count = check(source, config)?;
    let modules = (0..count).map(|index| NativeMtp::own(source, (config, SPEC), target, index));
    let modules = modules.collect::<Result<Vec<_>, _>>()?;
    let bytes = modules.iter().map(|module| module.own_bytes() as u64).sum();
    let kv = modules.iter().map(NativeMtp::kv_bytes_per_token).sum();
    let boxed = modules.into_iter().map(|module| Box::new(module) as _).collect();
    Ok(drafting(source, boxed, (target.spec().dtype.clone(), bytes, kv, config.vocab as u32)))
}
