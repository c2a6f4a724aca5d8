//! The draft modules of DeepSeek-V3's layout: layers behind the last one, each with a projection before it and a norm
//! behind (`model.layers.{L}.eh_proj` …).
//!
//! Invariant: they are found by their tensors: many files announce modules that were left out. Embedding and head are
//! the target's where a file brings none or a copy of them, and a module's own where they differ.

use std::sync::Arc;

use candle_core::{Device, Tensor};

use crate::model::ModelError;
use crate::model::draft_tokens::CONTEXT_VOCAB;
use crate::model::drafters::core::{CandleMtp, MtpOnCandle, MtpParts, MtpShape, MtpShared};
use crate::model::families::deepseek::DeepSeekWeights;
use crate::model::families::deepseek::config::DeepSeekConfig;
use crate::model::families::deepseek::reader::Reader;
use crate::model::files::source::Source;
use crate::model::nn::config::TransformerConfig;
use crate::model::nn::embedding::{Embedding, OwnEmbedding};
use crate::model::nn::linear::Linear;
use crate::model::nn::matmul_backend::{MatmulBackend, Tensors};
use crate::protocol::{MtpSpec, TokenId};

/// Most modules.
const MAX_MODULES: usize = 8;

fn name(config: &TransformerConfig, index: usize, part: &str) -> String {
    format!("blk.{}.nextn.{part}.weight", config.layers + index)
}

/// Modules that the tensors hold, the first of which may be missing.
pub(super) fn found(source: &Source, config: &TransformerConfig) -> usize {
    (0..MAX_MODULES).take_while(|index| source.has(&name(config, *index, "eh_proj"))).count()
}

/// Modules to run: those announced, or those there are where none is announced.
fn modules(source: &Source, config: &DeepSeekConfig) -> usize {
    match config.latent.modules {
        0 => found(source, &config.transformer),
        announced => announced,
    }
}

/// Whether the modules that the configuration announces are there.
///
/// # Errors
/// A sentence that says how many are not.
pub(super) fn check_modules(source: &Source, config: &DeepSeekConfig) -> Result<usize, ModelError> {
    let (count, found) = (modules(source, config), found(source, &config.transformer));
    if count > MAX_MODULES {
        return Err(ModelError::Unsupported(format!(
            "'num_nextn_predict_layers' is {count}; at most {MAX_MODULES} modules are supported"
        )));
    }
    let announced = format!("config.json announces {count} draft modules ('num_nextn_predict_layers')");
    match found {
        _ if count == 0 => Err(ModelError::Unsupported(format!("{} brings no draft module", source.file_name()))),
        0 => Err(ModelError::Metadata(format!("{announced} and the folder holds no tensor of them"))),
        found if found < count => Err(ModelError::Metadata(format!(
            "{announced} and the weights of number {} are not in the folder",
            found + 1
        ))),
        _ => Ok(count),
    }
}

/// Embeddings and heads that a file brings for a module: 0 to 2, copies of the target's counted.
pub(super) fn own_tables(source: &Source, config: &TransformerConfig, index: usize) -> u64 {
    ["embed_tokens", "shared_head_head"].iter().filter(|part| source.has(&name(config, index, part))).count() as u64
}

/// A module with an empty cache, and the bytes of tables that no other module or target holds.
type Module = (CandleMtp, u64);

/// The modules, the first first. `vocab` names the tokens that they may propose, ascending; none = all.
///
/// # Errors
/// When one is not there, or a tensor is missing, misshapen or damaged.
pub(super) fn load_modules(
    (source, sizes): (&Source, &DeepSeekConfig),
    backend: &MatmulBackend,
    (target, ctx_len): (&Arc<DeepSeekWeights>, usize),
    vocab: Option<&[TokenId]>,
) -> Result<Vec<Module>, ModelError> {
    let config = &target.config;
    let count = check_modules(source, sizes)?;
    let reader = Reader {
        tensors: Tensors::new(source, (backend.clone(), &target.device), config),
        config,
        latent: &target.latent,
    };
    let mut heads = Heads { target, vocab, trimmed: None };
    (0..count).map(|index| load(&reader, (target, ctx_len), (index, &mut heads))).collect()
}

/// The heads of modules, which are the target's or their own, cut down or whole.
struct Heads<'a> {
    target: &'a DeepSeekWeights,
    vocab: Option<&'a [TokenId]>,
    /// The target's, cut down: all modules share it.
    trimmed: Option<Linear>,
}

impl Heads<'_> {
    /// What a module with this head of its own proposes with, and the bytes of it that nobody else holds.
    fn head(&mut self, own: Option<Linear>) -> Result<(Linear, u64), ModelError> {
        let fresh = |head: Linear| {
            let bytes = head.bytes();
            (head, bytes)
        };
        match (self.vocab, own) {
            (None, None) => Ok((self.target.head.clone(), 0)),
            (None, Some(own)) => Ok(fresh(own)),
            (Some(vocab), Some(own)) => trimmed(&own, vocab, &self.target.device).map(fresh),
            (Some(vocab), None) => match &self.trimmed {
                Some(head) => Ok((head.clone(), 0)),
                None => {
                    let head = trimmed(&self.target.head, vocab, &self.target.device)?;
                    self.trimmed = Some(head.clone());
                    Ok(fresh(head))
                }
            },
        }
    }

    /// Token of each row.
    fn tokens(&self) -> Vec<TokenId> {
        self.vocab.map_or_else(|| (0..self.target.config.vocab as u32).map(TokenId).collect(), <[TokenId]>::to_vec)
    }
}

fn load(
    reader: &Reader<'_>,
    (target, ctx_len): (&Arc<DeepSeekWeights>, usize),
    (index, heads): (usize, &mut Heads<'_>),
) -> Result<Module, ModelError> {
    let (config, source) = (&target.config, reader.tensors.source);
    let (v, d) = (config.vocab, config.d_model);
    let name = |part: &str| name(config, index, part);
    let parts = MtpParts {
        fuse: None,
        embedding_norm: reader.tensors.norm(&name("enorm"), d)?,
        hidden_norm: reader.tensors.norm(&name("hnorm"), d)?,
        project: reader.tensors.linear(&name("eh_proj"), d, 2 * d)?,
        block: Box::new(reader.layer(config.layers + index)?),
        norm: reader.tensors.norm(&name("shared_head_norm"), d)?,
    };
    let own = |part: &str, theirs: &str| match differs(source, (&name(part), theirs), [v, d])? {
        true => reader.tensors.linear(&name(part), v, d).map(Some),
        false => Ok(None),
    };
    let output = if config.tied { "token_embd.weight" } else { "output.weight" };
    let (rows, head) = (own("embed_tokens", "token_embd.weight")?, own("shared_head_head", output)?);
    let rows_bytes = rows.as_ref().map_or(0, Linear::bytes);
    let embedding: Arc<dyn Embedding> = match rows {
        Some(rows) => Arc::new(OwnEmbedding { table: rows, vocab: v, device: target.device.clone() }),
        None => Arc::clone(target) as _,
    };
    // a head of its own is not held whole beside its rows
    let whole = (heads.vocab.is_some() && head.is_none()).then(|| (target.head.clone(), CONTEXT_VOCAB));
    let (head, head_bytes) = heads.head(head)?;
    let shape = MtpShape { d_model: d, kv_heads: config.kv_heads, head_dim: config.head_dim, ctx_len };
    let shared = MtpShared { embedding, head, vocab: heads.tokens(), whole };
    let module = MtpOnCandle::module(shared, parts, MtpSpec::default(), (shape, target.rope.clone()))?;
    Ok((module, rows_bytes + head_bytes))
}

/// Whether a file brings this tensor and it is no copy of the other.
fn differs(source: &Source, (name, other): (&str, &str), shape: [usize; 2]) -> Result<bool, ModelError> {
    if !source.has(name) {
        return Ok(false);
    }
    let differs = !source.stored(name, &shape)?.is_copy_of(&source.stored(other, &shape)?);
    source.release(name);
    source.release(other);
    Ok(differs)
}

/// The head's rows of these tokens.
fn trimmed(head: &Linear, vocab: &[TokenId], device: &Device) -> Result<Linear, ModelError> {
    let ids: Vec<u32> = vocab.iter().map(|token| token.0).collect();
    Ok(Linear::dense(head.rows(&Tensor::from_vec(ids, vocab.len(), device)?)?))
}
