//! Loading the draft modules of DeepSeek-V3's layout, which GLM-4.5 has too: layers after the last one, each with a
//! projection before it and a norm after it (`model.layers.{L}.eh_proj` …).
//!
//! Invariant: they are found by their tensors: many files announce modules that were left out. A module uses the
//! target's embedding and head if the file has none for it or a copy of them, and its own if they differ.

use std::sync::Arc;

use crate::ModelError;
use crate::draft_tokens::CONTEXT_VOCAB;
use crate::drafters::core::{self, CandleMtp, MtpBlock, MtpOnCandle, MtpShape, MtpShared, OwnTensors};
use crate::files::ModelFiles;
use crate::interfaces::{LoadContext, Modules};
use crate::nn::{Embedding, LayerWeights, Linear, OwnEmbedding, Rope, Tensors, TransformerConfig, Trunk, trimmed};
use crate::plan::{Angles, MAX_MODULES, ModuleLayer, OwnModule, Plan};
use draftscope_protocol::{MtpSpec, TokenId};

/// A target with such modules in its files.
pub(crate) struct NextnTarget<'a, L> {
    /// Its weights.
    pub(crate) trunk: &'a Arc<Trunk<L>>,
    /// Rotary positions, one more than the context has.
    pub(crate) rope: &'a Rope,
    /// Modules that its configuration announces.
    pub(crate) announced: usize,
    /// Dtype of its weights.
    pub(crate) dtype: &'a str,
}

/// Reads the block of a module, which counts as one more layer.
type ReadBlock<'a> = &'a dyn Fn(&Tensors<'_>, usize) -> Result<Box<dyn MtpBlock>, ModelError>;

/// Whether the announced modules exist.
///
/// # Errors
/// A sentence that says how many are missing.
pub(crate) fn check_modules(
    source: &ModelFiles,
    (config, announced): (&TransformerConfig, usize),
) -> Result<usize, ModelError> {
    let own = OwnTensors { source, config };
    match (announced, own.found()) {
        (0, 0) => Err(ModelError::Unsupported(format!("{} brings no draft module", source.file_name()))),
        (0, found) => Ok(found),
        (count @ 1..=MAX_MODULES, 0) if !source.is_checkpoint() => Err(ModelError::Metadata(format!(
            "{} announces {count} draft modules ('nextn_predict_layers') and holds no tensor of them",
            source.file_name()
        ))),
        (count @ 1..=MAX_MODULES, 0) => Err(ModelError::Metadata(format!(
            "config.json announces {count} draft modules ('num_nextn_predict_layers') and the folder holds no tensor of them"
        ))),
        (count, _) => own.check(count).map(|()| count),
    }
}

/// The modules of a model's files as data, in order of depth.
///
/// # Errors
/// When one is not there.
pub(crate) fn nextn_plans(
    (source, config, plan): (&ModelFiles, &TransformerConfig, &Plan),
    announced: usize,
) -> Result<Vec<OwnModule>, ModelError> {
    let own = OwnTensors { source, config };
    let count = check_modules(source, (config, announced))?;
    let module = |(index, module): (usize, &ModuleLayer)| {
        let angles =
            plan.angles.first().cloned().unwrap_or(Angles { rope: config.rope.clone(), width: config.head_dim });
        own.plan(index, (module.layer.clone(), angles), MtpSpec::default())
    };
    Ok(plan.modules.iter().take(count).enumerate().map(module).collect())
}

/// The modules of the target's files, in order of depth, and their header entry.
///
/// # Errors
/// When one is not there, or a tensor is missing, misshapen or damaged.
pub(crate) fn nextn_modules<L: LayerWeights + 'static>(
    context: &LoadContext<'_>,
    target: &NextnTarget<'_, L>,
    block: ReadBlock<'_>,
) -> Result<Modules, ModelError> {
    let vocab = context.draft_vocab()?;
    let trunk = target.trunk;
    let count = check_modules(context.source, (&trunk.config, target.announced))?;
    let tensors = trunk.tensors(context.source);
    let mut heads = Heads { target: trunk, vocab: vocab.as_deref(), trimmed: None };
    let loaded = (0..count).map(|index| {
        let block = block(&tensors, trunk.config.layers + index)?;
        load((&tensors, block), (target, context.ctx_len), (index, &mut heads))
    });
    let (modules, tables): (Vec<CandleMtp>, Vec<u64>) =
        loaded.collect::<Result<Vec<_>, ModelError>>()?.into_iter().unzip();
    let what =
        if modules.len() == 1 { "its own module".to_owned() } else { format!("its own {} modules", modules.len()) };
    let (modules, mut info) = core::modules(modules, format!("{} ({what})", context.source.name()), target.dtype);
    info.weight_bytes += tables.iter().sum::<u64>();
    Ok((modules, info))
}

/// The heads of modules: the target's or their own, trimmed or whole.
struct Heads<'a, L> {
    target: &'a Trunk<L>,
    vocab: Option<&'a [TokenId]>,
    /// The target's head, trimmed: all modules share it.
    trimmed: Option<Linear>,
}

impl<L: LayerWeights> Heads<'_, L> {
    /// The head of a module with a head of its own, and its bytes.
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
        self.vocab.map_or_else(|| self.target.config.tokens(), <[TokenId]>::to_vec)
    }
}

/// A module with an empty cache, and the bytes of tables that only it has.
type Module = (CandleMtp, u64);

fn load<L: LayerWeights + 'static>(
    (tensors, block): (&Tensors<'_>, Box<dyn MtpBlock>),
    (target, ctx_len): (&NextnTarget<'_, L>, usize),
    (index, heads): (usize, &mut Heads<'_, L>),
) -> Result<Module, ModelError> {
    let (trunk, source) = (target.trunk, tensors.source);
    let config = &trunk.config;
    let [v, d] = [config.vocab, config.d_model];
    let files = OwnTensors { source, config };
    let parts = files.parts(tensors, index, block)?;
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
    let kernels = trunk.kernels();
    let shared = MtpShared { embedding, head, vocab: heads.tokens(), whole, kernels };
    let shape = MtpShape::of(config, ctx_len, trunk.form);
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
