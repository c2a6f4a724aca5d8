//! The draft module that a Qwen3.5 brings: `mtp.*` of a checkpoint, `nextn` tensors of a GGUF file. Its layer
//! attends; embedding and output head are the target's.
//!
//! Invariant: it is found by its tensors, never by the config, since many files announce one that is not there.

use std::sync::Arc;

use crate::model::ModelError;
use crate::model::draft_tokens::CONTEXT_VOCAB;
use crate::model::drafters::core::{CandleMtp, MtpOnCandle, MtpParts, MtpShape, MtpShared};
use crate::model::families::qwen35::Qwen35Weights;
use crate::model::families::qwen35::reader::Reader;
use crate::model::files::source::Source;
use crate::model::nn::block::Rope;
use crate::model::nn::embedding::Embedding;
use crate::model::nn::linear::Linear;
use crate::model::nn::matmul_backend::{MatmulBackend, Tensors};
use crate::model::nn::rope::PairOrder;
use crate::protocol::{MtpSpec, NormForm, TokenId};

/// The module of this file, its cache empty; none when the file has no tensor of it. `vocab` names the tokens that it
/// may propose, ascending; none = all.
///
/// # Errors
/// When a tensor is missing, misshapen or damaged.
pub(super) fn load_module(
    source: &Source,
    held: MatmulBackend,
    (target, ctx_len): (&Arc<Qwen35Weights>, usize),
    vocab: Option<Vec<TokenId>>,
) -> Result<Option<CandleMtp>, ModelError> {
    let (config, hybrid) = (&target.config, &target.hybrid);
    let name = |part: &str| format!("blk.{}.nextn.{part}.weight", config.layers);
    if !source.has(&name("eh_proj")) {
        return Ok(None);
    }
    if source.has(&name("embed_tokens")) || source.has(&name("shared_head_head")) {
        return Err(ModelError::Unsupported(
            "the draft module brings an embedding or a head of its own, which is not supported".into(),
        ));
    }
    let reader = Reader { tensors: Tensors::new(source, (held, target.device()), config), config, hybrid };
    let d = config.d_model;
    let parts = MtpParts {
        fuse: None,
        embedding_norm: reader.tensors.norm(&name("enorm"), d)?,
        hidden_norm: reader.tensors.norm(&name("hnorm"), d)?,
        project: reader.tensors.linear(&name("eh_proj"), d, 2 * d)?,
        block: Box::new(reader.module_layer()?),
        norm: reader.tensors.norm(&name("shared_head_norm"), d)?,
    };
    let (head, vocab, whole) = match vocab {
        None => (target.head.clone(), (0..config.vocab as u32).map(TokenId).collect(), None),
        Some(vocab) => (trimmed(target, &vocab)?, vocab, Some((target.head.clone(), CONTEXT_VOCAB))),
    };
    let norm = if reader.is_centred() { NormForm::OnePlus } else { NormForm::Weight };
    let shape = MtpShape { d_model: d, kv_heads: config.kv_heads, head_dim: config.head_dim, ctx_len };
    let rope = Rope::new(&config.rope, hybrid.rotary, ctx_len + 1, (PairOrder::HalfSplit, target.device()))?;
    let shared = MtpShared { embedding: Arc::clone(target) as Arc<dyn Embedding>, head, vocab, whole };
    MtpOnCandle::module(shared, parts, MtpSpec { norm, ..MtpSpec::default() }, (shape, rope)).map(Some)
}

/// The head's rows of these tokens.
fn trimmed(target: &Qwen35Weights, vocab: &[TokenId]) -> Result<Linear, ModelError> {
    let ids: Vec<u32> = vocab.iter().map(|token| token.0).collect();
    let ids = candle_core::Tensor::from_vec(ids, vocab.len(), target.device())?;
    Ok(Linear::dense(target.head.rows(&ids)?))
}
