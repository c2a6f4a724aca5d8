//! The draft modules of DeepSeek-V3's layout: layers after the last one, each with a projection before it and a norm
//! after it (`model.layers.{L}.eh_proj` …).
//!
//! Invariant: they are found by their tensors: many files announce modules that were left out. A module uses the
//! target's embedding and head if the file has none for it or a copy of them, and its own if they differ.

use std::sync::Arc;

use crate::model::ModelError;
use crate::model::draft_tokens::CONTEXT_VOCAB;
use crate::model::drafters::core::{CandleMtp, MAX_MODULES, MtpOnCandle, MtpShape, MtpShared, OwnTensors};
use crate::model::families::deepseek::{DeepSeekWeights, config::Latent, reader::Reader};
use crate::model::files::ModelFiles;
use crate::model::interfaces::LoadContext;
use crate::model::nn::{Embedding, Linear, OwnEmbedding, TransformerConfig, trimmed};
use crate::protocol::{MtpSpec, TokenId};

/// Whether the announced modules exist.
///
/// # Errors
/// A sentence that says how many are missing.
pub(super) fn check_modules(
    source: &ModelFiles,
    (config, latent): (&TransformerConfig, &Latent),
) -> Result<usize, ModelError> {
    let own = OwnTensors { source, config };
    match (latent.modules, own.found()) {
        (0, 0) => Err(ModelError::Unsupported(format!("{} brings no draft module", source.file_name()))),
        (0, found) => Ok(found),
        (count @ 1..=MAX_MODULES, 0) => Err(ModelError::Metadata(format!(
            "config.json announces {count} draft modules ('num_nextn_predict_layers') and the folder holds no tensor of them"
        ))),
        (count, _) => own.check(count).map(|()| count),
    }
}

/// A module with an empty cache, and the bytes of tables that only it has.
type Module = (CandleMtp, u64);

/// The modules in order of depth. `vocab` are the tokens that they may propose, ascending; `None` = all.
///
/// # Errors
/// When one is not there, or a tensor is missing, misshapen or damaged.
pub(super) fn load_modules(
    context: &LoadContext<'_>,
    target: &DeepSeekWeights,
    vocab: Option<&[TokenId]>,
) -> Result<Vec<Module>, ModelError> {
    let trunk = &target.trunk;
    let count = check_modules(context.source, (&trunk.config, &target.latent))?;
    let tensors = trunk.tensors(context.source);
    let reader = Reader { tensors: &tensors, latent: &target.latent };
    let mut heads = Heads { target, vocab, trimmed: None };
    (0..count).map(|index| load(reader, (target, context.ctx_len), (index, &mut heads))).collect()
}

/// The heads of modules: the target's or their own, trimmed or whole.
struct Heads<'a> {
    target: &'a DeepSeekWeights,
    vocab: Option<&'a [TokenId]>,
    /// The target's head, trimmed: all modules share it.
    trimmed: Option<Linear>,
}

impl Heads<'_> {
    /// The head of a module with a head of its own, and its bytes.
    fn head(&mut self, own: Option<Linear>) -> Result<(Linear, u64), ModelError> {
        let fresh = |head: Linear| {
            let bytes = head.bytes();
            (head, bytes)
        };
        match (self.vocab, own) {
            (None, None) => Ok((self.target.trunk.head.clone(), 0)),
            (None, Some(own)) => Ok(fresh(own)),
            (Some(vocab), Some(own)) => trimmed(&own, vocab, &self.target.trunk.device).map(fresh),
            (Some(vocab), None) => match &self.trimmed {
                Some(head) => Ok((head.clone(), 0)),
                None => {
                    let head = trimmed(&self.target.trunk.head, vocab, &self.target.trunk.device)?;
                    self.trimmed = Some(head.clone());
                    Ok(fresh(head))
                }
            },
        }
    }

    /// Token of each row.
    fn tokens(&self) -> Vec<TokenId> {
        self.vocab.map_or_else(|| self.target.trunk.config.tokens(), <[TokenId]>::to_vec)
    }
}

fn load(
    reader: Reader<'_>,
    (target, ctx_len): (&DeepSeekWeights, usize),
    (index, heads): (usize, &mut Heads<'_>),
) -> Result<Module, ModelError> {
    let (trunk, tensors) = (&target.trunk, reader.tensors);
    let (config, source) = (&trunk.config, tensors.source);
    let [v, d] = [config.vocab, config.d_model];
    let files = OwnTensors { source, config };
    let parts = files.parts(tensors, index, Box::new(reader.layer(config.layers + index)?))?;
    let own = |part: &str, theirs: &str| match differs(source, (&files.name(index, part), theirs), [v, d])? {
        true => tensors.linear(&files.name(index, part), v, d).map(Some),
        false => Ok(None),
    };
    let output = if config.tied { "token_embd.weight" } else { "output.weight" };
    let (rows, head) = (own("embed_tokens", "token_embd.weight")?, own("shared_head_head", output)?);
    let rows_bytes = rows.as_ref().map_or(0, Linear::bytes);
    let embedding: Arc<dyn Embedding> = match rows {
        Some(rows) => Arc::new(OwnEmbedding { table: rows, vocab: v, device: trunk.device.clone() }),
        None => Arc::clone(trunk) as _,
    };
    // a head of its own is not kept whole beside its rows
    let whole = (heads.vocab.is_some() && head.is_none()).then(|| (trunk.head.clone(), CONTEXT_VOCAB));
    let (head, head_bytes) = heads.head(head)?;
    let shared = MtpShared { embedding, head, vocab: heads.tokens(), whole };
    let shape = MtpShape::of(config, ctx_len);
    let module = MtpOnCandle::module(shared, parts, MtpSpec::default(), (shape, target.rope.clone()))?;
    Ok((module, rows_bytes + head_bytes))
}

/// Whether a file has this tensor and it is not a copy of the other.
fn differs(source: &ModelFiles, (name, other): (&str, &str), shape: [usize; 2]) -> Result<bool, ModelError> {
    if !source.has(name) {
        return Ok(false);
    }
    let differs = !source.stored(name, &shape)?.is_copy_of(&source.stored(other, &shape)?);
    source.release(name);
    source.release(other);
    Ok(differs)
}
