//! The draft modules in a target's own files, beside a target on the reference.
//!
//! Invariant: a module uses the target's embedding and head if the files have none for it or a copy of them, and its own if
//! they differ.

use std::sync::Arc;

use crate::ModelError;
use crate::draft_tokens::CONTEXT_VOCAB;
use crate::drafters::core::figures;
use crate::drafters::core::on_candle::{CandleMtp, MtpOnCandle, MtpParts, MtpShared};
use crate::drafters::core::shape::MtpShape;
use crate::interfaces::{LoadContext, Modules};
use crate::nn::{Embedding, Linear, OwnEmbedding, PairOrder, Rope, Trunk, trimmed};
use crate::plan::{self, DraftPlan, Entry, Norm};
use crate::reference::{Layer, Reader};
use draftscope_protocol::TokenId;

/// The modules of these plans, in order of depth, and their header entry.
///
/// # Errors
/// When a tensor is missing, misshapen or damaged, or a part is not interpreted.
pub(crate) fn reference_modules(
    context: &LoadContext<'_>,
    (trunk, dtype): (&Arc<Trunk<Layer>>, &str),
    plans: &[DraftPlan],
) -> Result<Modules, ModelError> {
    let vocab = if context.config.trims_draft_vocab(false) { context.draft_vocab()? } else { None };
    let mut heads = Heads { target: trunk, vocab: vocab.as_deref(), trimmed: None };
    let loaded = plans.iter().map(|plan| load(context, trunk, (plan, &mut heads)));
    let (modules, tables): (Vec<CandleMtp>, Vec<u64>) =
        loaded.collect::<Result<Vec<_>, ModelError>>()?.into_iter().unzip();
    let name = figures::name_of_own(context.source, modules.len());
    let (modules, mut info) = figures::modules(modules, name, dtype);
    info.weight_bytes += tables.iter().sum::<u64>();
    Ok((modules, info))
}

/// The heads of modules: the target's or their own, trimmed or whole.
struct Heads<'a> {
    target: &'a Trunk<Layer>,
    vocab: Option<&'a [TokenId]>,
    /// The target's head, trimmed: all modules share it.
    trimmed: Option<Linear>,
}

impl Heads<'_> {
    /// The head of a module, which may have one of its own, and the bytes that only it takes.
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
fn load(
    context: &LoadContext<'_>,
    trunk: &Arc<Trunk<Layer>>,
    (plan, heads): (&DraftPlan, &mut Heads<'_>),
) -> Result<(CandleMtp, u64), ModelError> {
    let (source, device) = (context.source, &trunk.device);
    let tensors = trunk.tensors(source);
    let parts = parts(&Reader::of_module(&tensors), plan)?;
    let tables = Reader::of_module(&tensors);
    let plan = &plan.without_copies(source, context.config.plan())?;
    let rows = plan.embedding.as_ref().map(|table| tables.matrix(table)).transpose()?;
    let rows_bytes = rows.as_ref().map_or(0, Linear::bytes);
    let embedding: Arc<dyn Embedding> = match rows {
        Some(table) => Arc::new(OwnEmbedding { table, vocab: trunk.config.vocab, device: device.clone() }),
        None => Arc::clone(trunk) as _,
    };
    // a head of its own is not kept whole beside its rows
    let whole = (heads.vocab.is_some() && plan.head.is_none()).then(|| (trunk.head.clone(), CONTEXT_VOCAB));
    let (head, head_bytes) = heads.head(plan.head.as_ref().map(|head| tables.matrix(head)).transpose()?)?;
    let shared = MtpShared { embedding, head, vocab: heads.tokens(), whole };
    let shape = MtpShape::of(&trunk.config, context.ctx_len, trunk.form);
    // modules may stand one position further
    let rotation = plan.layers.iter().find_map(plan::Layer::rotation);
    let pairs = rotation.map_or(PairOrder::HalfSplit, |rotation| rotation.pairs);
    let rope = Rope::new(&plan.angles.rope, plan.angles.width, context.ctx_len + 1, (pairs, device))?;
    let module = MtpOnCandle::module(shared, parts, plan.conventions, (shape, rope))?;
    Ok((module, rows_bytes + head_bytes))
}

/// A module's own weights.
fn parts(reader: &Reader<'_>, of: &DraftPlan) -> Result<MtpParts, ModelError> {
    let unsupported = || ModelError::Unsupported("a draft module of another shape than DeepSeek-V3's".into());
    let Entry::Joined { embedding, state, project } = &of.entry else { return Err(unsupported()) };
    let [layer] = of.layers.as_slice() else { return Err(unsupported()) };
    let norm = |norm: &Norm| reader.norm(norm, of.width);
    Ok(MtpParts {
        embedding_norm: norm(embedding)?,
        hidden_norm: norm(state)?,
        project: reader.matrix(project)?,
        block: Box::new(Layer::read(reader, layer, of.width)?),
        norm: norm(&of.norm)?,
    })
}
