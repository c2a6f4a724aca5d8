//! A draft module that attends to its target's keys and values: [`plan::Assistant`].
//!
//! Invariant: it writes nothing. A draft depends on the target's cache, the token, the state and a position, so there is no
//! cache of its own, no prompt to read and nothing to roll back; all drafts of a round see the committed text.

use std::sync::Arc;

use super::assistant_head::AssistantHead;
use super::cache::{AngleTable, KvHeads, KvMemory};
use super::head;
use super::layer::{BlockShape, Layer, Next, NormWeight, Scratch};
use super::llama::{NativeLlama, Weights};
use super::load::{Loader, check_shape, check_width};
use super::matrix::{Matrix, Part, RowOrder};
use super::mixer::{LayerMemory, Mixer};
use super::parts::unsupported;
use super::pass::Pass;
use super::tensors::Tensors;
use crate::draft_tokens::DraftTokens;
use crate::files::ModelFiles;
use crate::module_core::{ModuleBackend, ModuleCore, ModuleFacts, NormWeights, Reads, Slots};
use crate::plan::{self, Keys, Mixer as PlannedMixer, Plan};
use crate::shared_kv::SharedKv;
use crate::{Model, ModelError, RowStats};
use draftscope_kernels::{Acts, LANES, Norm, Onto, Operand};
use draftscope_protocol::{MtpSpec, Recycle, TokenId};

/// What every copy of an assistant reads; norms as stored, or in another form.
#[derive(Clone, Debug)]
pub(crate) struct AssistantWeights {
    from_embedding: Matrix, // [d, width of the target], left half of the projection
    from_state: Matrix,     // the right half
    layers: Vec<Layer>,
    norm: NormWeight,
}

impl NormWeights for AssistantWeights {
    fn one_plus(&self) -> Result<Self, ModelError> {
        let mut weights = self.clone();
        weights.layers.iter_mut().for_each(|layer| layer.shift_norms(1.0));
        weights.norm.iter_mut().flatten().for_each(|weight| *weight += 1.0);
        Ok(weights)
    }
}

/// What copies of an assistant share.
#[derive(Debug)]
struct Shared {
    target: Arc<Weights>,
    shape: BlockShape,
    tables: Vec<AngleTable>,
    /// Heads of the target's layers that its layers read, and the layers of the target's cache.
    lenders: Vec<(KvHeads, usize)>,
    hand_on: Matrix, // [width of the target, d]
    head: AssistantHead,
}

/// An assistant on the native kernels, and the target's keys and values.
#[derive(Debug)]
pub(crate) struct AssistantOnKernels {
    shared: Arc<Shared>,
    lent: Option<SharedKv>,
    scratch: Scratch,
    acts: [Acts; 2],
}

/// An assistant on the native kernels.
pub(crate) type NativeAssistant = ModuleCore<AssistantOnKernels>;

impl NativeAssistant {
    /// Reads the assistant in `files` for a target of the plan `of`. It proposes the tokens of `vocab`, ascending; `None`: those
    /// of its clusters, if it has any, or all.
    ///
    /// # Errors
    /// When a tensor is missing, misshapen or damaged, or of a size that the kernels do not run.
    pub(crate) fn load(
        (target, of): (&NativeLlama, &Plan),
        (files, plan): (&ModelFiles, &plan::Assistant),
        (vocab, spec): (Option<Vec<TokenId>>, MtpSpec),
    ) -> Result<Self, ModelError> {
        let cpu = &target.weights.cpu;
        let shape = BlockShape { d_model: plan.width(), eps: plan.norm.eps, ..target.weights.shape };
        check_width(shape.d_model)?;
        let loader = Loader { tensors: Tensors(files), cpu, shape, angles: &plan.angles, norms_as_stored: true };
        let mut lenders = Vec::new();
        let mut layers = Vec::new();
        for layer in &plan.layers {
            let lender = lender(layer, of)?;
            check_shape(&shape.with_heads(lender.0))?;
            let mut read = loader.layer(layer)?;
            if let Mixer::Attention(attention) = &mut read.mixer {
                attention.cache = lender.1;
            }
            lenders.push((KvHeads { count: lender.0.kv_heads, width: lender.0.key_width }, lender.1));
            layers.push(read);
        }
        let [from_embedding, from_state] = loader.halves(&plan.project)?;
        let weights =
            AssistantWeights { from_embedding, from_state, layers, norm: loader.norm(&plan.norm, shape.d_model)? };
        let (head, vocab) = loader.assistant_head(plan, vocab)?;
        let hand_on = loader.matrix(&plan.hand_on)?;
        let matrices =
            [&weights.from_embedding, &weights.from_state, &hand_on].map(Matrix::bytes).iter().sum::<usize>();
        let bytes = matrices + head.bytes() + weights.layers.iter().map(Layer::bytes).sum::<usize>();
        let facts = ModuleFacts {
            spec,
            reads: Reads::StateAndKv,
            widths: [plan.hand_on.rows; 2],
            ctx_len: usize::MAX, // the target's cache ends before
            tokens: DraftTokens::new(vocab, 0),
            weight_bytes: (bytes + size_of_val(weights.norm.as_slice())) as u64,
            kv_bytes_per_slot: 0, // it reads the target's
        };
        let tables = target.tables.clone();
        let shared = Shared { target: Arc::clone(&target.weights), shape, tables, lenders, hand_on, head };
        ModuleCore::new(AssistantOnKernels::new(Arc::new(shared)), weights, facts)
    }

    /// Name of the type of most of its weights.
    pub(crate) fn dtype(&self) -> &'static str {
        self.weights.layers.first().map_or("none", |layer| layer.feed.down().dtype())
    }
}

/// The layer of a target whose keys and values a layer reads, and its number among those that cache some.
fn lender<'a>(layer: &plan::Layer, of: &'a Plan) -> Result<(&'a plan::Attention, usize), ModelError> {
    let PlannedMixer::Attention(plan::Attention { keys: Keys::OfTarget, sight, .. }) = &layer.mixer else {
        return Err(unsupported("an assistant with keys of its own"));
    };
    let own = of.attentions().filter(|attention| matches!(attention.keys, Keys::Own(_))).zip(0..);
    let lender = own.filter(|(attention, _)| attention.sight.window.is_some() == sight.window.is_some()).last();
    lender.ok_or_else(|| unsupported("an assistant whose target has no keys of the kind that it reads"))
}

impl Loader<'_> {
    fn assistant_head(
        &self,
        plan: &plan::Assistant,
        vocab: Option<Vec<TokenId>>,
    ) -> Result<(AssistantHead, Vec<TokenId>), ModelError> {
        let all = || (0..plan.head.rows as u32).map(TokenId).collect::<Vec<_>>();
        match (vocab, &plan.clusters) {
            (None, Some(clusters)) => {
                let ordering = self.tensors.0.ordering(&clusters.ordering, plan.head.rows)?;
                let head = AssistantHead::Clusters {
                    table: self.in_order(&plan.head, &ordering)?,
                    centroids: self.matrix(&clusters.centroids)?,
                    searched: clusters.searched,
                    ordering,
                };
                Ok((head, all()))
            }
            (None, None) => Ok((AssistantHead::Rows(self.matrix(&plan.head)?), all())),
            (Some(vocab), _) => Ok((AssistantHead::Rows(self.in_order(&plan.head, &vocab)?), vocab)),
        }
    }

    /// The rows of these tokens.
    fn in_order(&self, of: &plan::Matrix, tokens: &[TokenId]) -> Result<Matrix, ModelError> {
        let (raw, (_, all)) = self.raw(of)?;
        let Part { encoding, bytes, .. } = raw.part(all, RowOrder::Stored);
        let len = bytes.len() / all;
        let rows: Vec<u8> = tokens.iter().flat_map(|token| &bytes[token.index() * len..][..len]).copied().collect();
        let part = Part { encoding, rows: tokens.len(), bytes: &rows, order: RowOrder::Stored };
        let packed = Matrix::pack(self.cpu, of.columns, &[part]);
        self.tensors.0.release(of.name());
        Ok(packed)
    }
}

impl AssistantOnKernels {
    fn new(shared: Arc<Shared>) -> Self {
        Self { shared, lent: None, scratch: Scratch::default(), acts: Default::default() }
    }
}

impl ModuleBackend for AssistantOnKernels {
    const NAME: &'static str = "the assistant";
    const MAX_SLOTS: usize = 1;
    type Weights = AssistantWeights;
    type Last = Vec<[f32; LANES]>; // [d / 16]

    /// Slots count from the target's last position but one: the anchor's slot comes next.
    fn attach_kv(&mut self, target: &dyn Model) -> Result<usize, ModelError> {
        self.lent = None;
        let lenders = &self.shared.lenders;
        let lent = target.shared_kv()?.filter(|lent| {
            let memory = lent.memory::<KvMemory>();
            memory.is_some_and(|memory| lenders.iter().all(|(heads, layer)| memory.heads(*layer) == Some(*heads)))
        });
        let lent = lent.ok_or_else(|| {
            let why = "this target lends no keys and values of the kind that an assistant drafts from";
            ModelError::Unsupported(why.into())
        })?;
        Ok(self.lent.insert(lent).len().saturating_sub(1))
    }

    fn run(
        &mut self,
        weights: &AssistantWeights,
        slots: Slots<'_>,
        recycled: &mut [f32],
    ) -> Result<Vec<[f32; LANES]>, ModelError> {
        let Self { shared, lent, scratch, acts: [embedded, handed] } = self;
        let Shared { target, shape, tables, hand_on, .. } = &**shared;
        target.check(slots.tokens)?;
        let nothing = || {
            ModelError::Unsupported("an assistant needs at least one position of the target before its drafts".into())
        };
        let lent = lent.as_ref().filter(|lent| !lent.is_empty()).ok_or_else(nothing)?;
        let memory = lent.memory::<KvMemory>().ok_or_else(nothing)?;
        let (cpu, base, next) = (&target.cpu, lent.len() - 1, Next::Head(hand_on));
        let pass = Pass { cpu, shape, tables, base, at: slots.at, m: 1, tree: None, next };
        // 1. the projection of embedding and state, [1, 2 · width of the target] -> [d / 16][1]
        let mut row = vec![[0.0; LANES]; target.shape.d_model / LANES];
        target.embed(slots.tokens[0], row.as_flattened_mut());
        let [of_embedding, of_state] = slots.in_order(&weights.from_embedding, &weights.from_state);
        head::operand(cpu, of_embedding, &row, embedded);
        head::operand(cpu, of_state, slots.hidden.as_chunks().0, handed);
        scratch.x.resize(shape.d_model / LANES, [0.0; LANES]);
        pass.product(of_embedding, embedded, Onto::Nothing, &mut scratch.x);
        pass.product(of_state, handed, Onto::Present, &mut scratch.x);
        // 2. layers: a window ends where that of a token at this position would
        let ahead = (slots.at + 1).saturating_sub(lent.len());
        let mut finite = weights.layers.first().is_none_or(|first| first.enter(pass, scratch));
        for (index, layer) in weights.layers.iter().enumerate() {
            let next = weights.layers.get(index + 1).map_or(next, Next::Block);
            let Mixer::Attention(attention) = &layer.mixer else { continue };
            let keys = LayerMemory::Lent(memory.layer(attention.cache), ahead);
            finite &= layer.forward(Pass { next, ..pass }, keys, scratch);
        }
        // 3. the last norm, and the state for the next draft
        let mut u = vec![[0.0; LANES]; scratch.x.len()];
        embedded.shape(1, 0, Operand::default());
        finite &=
            Norm { x: &scratch.x, weight: &weights.norm, eps: shape.eps, out: embedded, kept: &mut u }.run_on(cpu.isa);
        if !finite {
            return Err(ModelError::NotFinite { position: slots.at });
        }
        let state = if slots.spec.recycle == Recycle::PreNorm { &scratch.x } else { &u };
        head::operand(cpu, hand_on, state, handed);
        pass.product(hand_on, handed, Onto::Nothing, recycled.as_chunks_mut().0);
        Ok(u)
    }

    fn logits(&mut self, last: Vec<[f32; LANES]>) -> Result<(Vec<f32>, Vec<RowStats>), ModelError> {
        Ok(self.shared.head.logits(&self.shared.target.cpu, &last, &mut self.acts[0]))
    }

    fn truncate(&mut self, _len: usize) {} // nothing is left of a slot

    /// The target has not shared its cache with the copy yet.
    fn fork(&self) -> Result<Self, ModelError> {
        Ok(Self::new(Arc::clone(&self.shared)))
    }
}
