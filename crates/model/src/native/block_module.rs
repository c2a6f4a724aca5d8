//! Block drafters on the native kernels: a cache of the target's fused states, and one pass for all positions.

use std::sync::Arc;

use super::block_attention::attention;
use super::convolution::{self, Convolution};
use super::draft_head::DraftHead;
use super::head;
use super::layer::Next;
use super::load::{Loader, no_blocks};
use super::matrix::Matrix;
use super::module::ModuleMemory;
use super::module_target::ModuleTarget;
use super::module_weights::{Entry, Fusion, ModuleWeights};
use super::parts::unsupported;
use super::pass::Pass;
use super::selector::Selector;
use super::tensors::Tensors;
use crate::block_module::{BlockModule, Candidates};
use crate::files::TensorSource;
use crate::module_core::Slots;
use crate::plan::{self, BlockDraft, DraftPlan, Sight};
use crate::{ModelError, Rows, State, Tap};
use draftscope_kernels::{Acts, BLOCK, LANES, MAX_ROWS, Norm, Operand, PROMPT_ROWS};
use draftscope_protocol::TokenId;

/// What copies of a drafter share.
#[derive(Debug)]
struct Shared {
    plan: BlockDraft,
    vocab: Vec<TokenId>, // of each row of the head
    weights: ModuleWeights,
    fusion: Fusion,
    /// What rows of each layer see.
    sights: Vec<Sight>,
    head: DraftHead, // [draft vocabulary, d]
    /// `[vocab, rank]` and `[draft vocabulary, rank]`
    markov: Option<[Matrix; 2]>,
    /// Weights and bias.
    confidence: Option<(Vec<f32>, f32)>,
    /// Of each layer; empty without them.
    convolutions: Vec<[Convolution; 2]>,
    selector: Option<Selector>,
    ctx_len: usize,
    bytes: u64,
}

/// A block drafter.
#[derive(Debug)]
pub(crate) struct NativeBlock {
    shared: Arc<Shared>,
    memory: ModuleMemory,
    acts: Acts,
    /// Of the last pass, `[count, d]`, for the head that predicts acceptance.
    states: Rows,
    /// The selector's projections of the last pass's states, `[count, rank]`.
    projected: Rows,
}

/// The same layers, whose rows see the past alone, and what they see.
fn past(of: &DraftPlan) -> (DraftPlan, Vec<Sight>) {
    let mut module = of.clone();
    let attentions = module.layers.iter_mut().filter_map(|layer| match &mut layer.mixer {
        plan::Mixer::Attention(attention) => Some(attention),
        plan::Mixer::Latent(_) | plan::Mixer::Delta(_) => None,
    });
    let sights = attentions.map(|attention| std::mem::replace(&mut attention.sight, Sight::PAST)).collect();
    (module, sights)
}

impl NativeBlock {
    /// Reads the drafter of this plan, whose tensors are in `source`, with an empty cache; `vocab` has the token of each row of
    /// the head.
    ///
    /// # Errors
    /// When a tensor is missing, misshapen or damaged, or of a size that the kernels do not run.
    pub(crate) fn load(
        target: &ModuleTarget,
        (source, plan): (&dyn TensorSource, &BlockDraft),
        vocab: Vec<TokenId>,
    ) -> Result<Self, ModelError> {
        let (module, sights) = past(&plan.module);
        let (weights, shape) = ModuleWeights::load(target, source, &module)?;
        weights.layers.iter().try_for_each(|layer| attention(layer).map(drop))?;
        let fusion = weights.fusion.clone().ok_or_else(|| unsupported("a block drafter that reads no states"))?;
        let cpu = &target.weights.cpu;
        let loader = Loader { tensors: Tensors(source), cpu, shape, angles: &[], norms_as_stored: true };
        let (head, _, head_bytes) = match &module.head {
            Some(head) => DraftHead::read(target, (source, head), vocab.clone())?,
            None => {
                let (head, tokens) = DraftHead::whole(&target.weights);
                (head, tokens, 0)
            }
        };
        let markov = plan.markov.as_ref().map(|[first, second]| loader.markov([first, second])).transpose()?;
        let confidence = plan.confidence.as_ref().map(|head| confidence(source, head)).transpose()?;
        let selector = plan.selector.as_ref().map(|selector| Selector::load(&loader, selector)).transpose()?;
        let around = |[attention, feed]: &[plan::Convolution; 2]| {
            Ok::<_, ModelError>([Convolution::load(&loader, attention)?, Convolution::load(&loader, feed)?])
        };
        let convolutions = plan.convolutions.iter().map(around).collect::<Result<Vec<_>, _>>()?;
        if !convolutions.is_empty() {
            weights.layers.iter().try_for_each(|layer| convolution::gated(layer).map(drop))?;
        }
        let bytes = weights.bytes()
            + head_bytes
            + convolutions.iter().flatten().map(Convolution::bytes).sum::<usize>()
            + selector.as_ref().map_or(0, Selector::bytes)
            + markov.iter().flatten().map(Matrix::bytes).sum::<usize>()
            + confidence.as_ref().map_or(0, |(weights, _)| size_of_val(weights.as_slice()));
        // rows of a block lie after the context
        let memory = ModuleMemory::new(target, (&module, shape, &weights.layers), (target.ctx_len + plan.size, 0));
        let (plan, ctx_len, bytes) = (plan.clone(), target.ctx_len, bytes as u64);
        let shared = Shared {
            plan,
            vocab,
            weights,
            fusion,
            sights,
            head,
            markov,
            confidence,
            convolutions,
            selector,
            ctx_len,
            bytes,
        };
        let (acts, states, projected) = (Acts::default(), Rows::default(), Rows::default());
        Ok(Self { shared: Arc::new(shared), memory, acts, states, projected })
    }

    /// Bytes of weights that it does not share with its target, and of cache per position.
    pub(crate) fn bytes(&self) -> (u64, u64) {
        (self.shared.bytes, self.memory.cache.shape().bytes_per_position())
    }

    /// Appends up to [`PROMPT_ROWS`] positions.
    fn append(&mut self, hidden: &[[f32; LANES]], m: usize) -> Result<(), ModelError> {
        let (shared, base) = (Arc::clone(&self.shared), self.memory.cache.len());
        let Self { memory: ModuleMemory { target, shape, cache, angles, scratch, .. }, acts, .. } = self;
        let tables = std::slice::from_ref(&*angles);
        let pass = Pass { cpu: &target.cpu, shape, tables, base, at: base, m, tree: None, next: Next::Else };
        scratch.x.resize(shape.d_model / LANES * m, [0.0; LANES]);
        let mut finite = shared.fusion.forward(pass, hidden, acts, &mut scratch.x);
        let Entry::Keys(norm) = &shared.weights.entry else {
            return Err(unsupported("a block drafter that joins states with embeddings"));
        };
        for (index, layer) in shared.weights.layers.iter().enumerate() {
            let attention = attention(layer)?;
            finite &= pass.norm(&scratch.x, norm, attention.qkv.operand(), acts);
            attention.inject(pass, acts, (cache.layer(index), &mut scratch.heads));
        }
        if !finite {
            return Err(ModelError::NotFinite { position: base });
        }
        cache.set_len(base + m);
        Ok(())
    }

    /// Normed states of the last `count` rows of the block, `[count][d / 16]`.
    fn block(&mut self, anchor: TokenId, count: usize) -> Result<Vec<[f32; LANES]>, ModelError> {
        let (shared, base) = (Arc::clone(&self.shared), self.memory.cache.len());
        let Self { memory: ModuleMemory { target, shape, cache, angles, scratch, entry }, acts, .. } = self;
        let masks = if shared.plan.from_anchor { count - 1 } else { count };
        let tokens: Vec<TokenId> =
            std::iter::once(anchor).chain(std::iter::repeat_n(shared.plan.mask, masks)).collect();
        target.check(&tokens)?;
        let (m, tiles, tables) = (tokens.len(), shape.d_model / LANES, std::slice::from_ref(&*angles));
        let pass = Pass { cpu: &target.cpu, shape, tables, base, at: base, m, tree: None, next: Next::Else };
        let mut rows = vec![[0.0; LANES]; tiles * m];
        for (token, row) in tokens.iter().zip(rows.chunks_exact_mut(tiles)) {
            target.embed(*token, row.as_flattened_mut());
        }
        if shared.plan.embedding_scale != 1.0 {
            rows.as_flattened_mut().iter_mut().for_each(|x| *x *= shared.plan.embedding_scale as f32);
        }
        let slots =
            Slots { tokens: &tokens, hidden: &[], at: base, zeroed: false, spec: shared.plan.module.conventions };
        let layers = &shared.weights.layers;
        let mut finite = shared.weights.enter(pass, (&slots, &mut rows), (scratch, entry));
        for (index, (layer, sight)) in layers.iter().zip(&shared.sights).enumerate() {
            let pass = Pass { next: layers.get(index + 1).map_or(Next::Else, Next::Block), ..pass };
            let cache = cache.layer(index);
            match shared.convolutions.get(index) {
                Some(around) => convolution::forward((layer, around), pass, (cache, *sight), scratch)?,
                None => {
                    attention(layer)?.forward_block(pass, (cache, &layer.out), *sight, scratch);
                    finite &= layer.finish(pass, scratch);
                }
            }
        }
        acts.shape(m, 0, Operand::default());
        let (x, weight) = (&scratch.x, &shared.weights.final_norm);
        finite &= Norm { x, weight, eps: shape.eps, out: acts, kept: &mut rows }.run_on(target.cpu.isa);
        match finite {
            true => Ok(rows.split_off((m - count) * tiles)),
            false => Err(ModelError::NotFinite { position: base }),
        }
    }

    /// The Markov head's row of a token.
    fn markov_row(&self, table: &Matrix, before: TokenId) -> Result<Vec<f32>, ModelError> {
        let (vocab, mut row) = (table.rows(), vec![0.0; table.k()]);
        if before.index() >= vocab {
            return Err(ModelError::Vocabulary { token: before.0, vocab });
        }
        table.row(before.index(), &mut row);
        Ok(row)
    }
}

impl Loader<'_> {
    fn markov(&self, matrices: [&plan::Matrix; 2]) -> Result<[Matrix; 2], ModelError> {
        let [first, second] = matrices.map(|matrix| {
            let rank = matrix.columns;
            // the file's shape first: a wrong one is its fault
            let stored = self.tensors.0.stored(matrix.name(), &[matrix.rows, rank]).map(drop);
            stored.and_then(|()| match rank.is_multiple_of(BLOCK) {
                true => self.matrix(matrix),
                false => Err(no_blocks(format!("a Markov head of rank {rank}"))),
            })
        });
        Ok([first?, second?])
    }
}

/// Weights and bias of the head that predicts acceptance. GGUF files leave out a last size of one.
fn confidence(source: &dyn TensorSource, of: &plan::Confidence) -> Result<(Vec<f32>, f32), ModelError> {
    let (name, shape) = (of.weights.name(), [1, of.weights.columns]);
    let bias = match &of.bias {
        Some(bias) if source.has(&bias.name) => source.vector(&bias.name, bias.len)?[0],
        _ => 0.0,
    };
    let weights = source.stored(name, &shape).and_then(|stored| stored.to_f32(&shape));
    Ok((weights.or_else(|error| source.vector(name, shape[1]).map_err(|_| error))?, bias))
}

impl BlockModule for NativeBlock {
    fn len(&self) -> usize {
        self.memory.cache.len()
    }

    fn tap(&self) -> Tap {
        Tap::new(self.shared.plan.module.states().iter().map(|blocks| State::Behind(*blocks)).collect())
    }

    fn most_drafts(&self) -> usize {
        self.shared.plan.most_drafts()
    }

    fn draft_vocab(&self) -> &[TokenId] {
        &self.shared.vocab
    }

    fn inject(&mut self, hidden: &Rows) -> Result<(), ModelError> {
        let (before, ctx_len, width) = (self.len(), self.shared.ctx_len, self.shared.plan.module.read_width());
        if before + hidden.len() > ctx_len {
            return Err(ModelError::ContextFull { needed: before + hidden.len(), ctx_len });
        }
        if !hidden.is_empty() && hidden.width() != width {
            return Err(ModelError::Shape {
                name: "hidden states for the block drafter".into(),
                got: vec![hidden.len(), hidden.width()],
                expected: vec![hidden.len(), width],
            });
        }
        let mut blocks = hidden.as_slice().chunks(PROMPT_ROWS * width);
        let done = blocks.try_for_each(|block| self.append(block.as_chunks().0, block.len() / width));
        done.inspect_err(|_| self.memory.cache.set_len(before))
    }

    fn draft(&mut self, anchor: TokenId, count: usize) -> Result<Rows, ModelError> {
        let most = self.most_drafts();
        if !(1..=most).contains(&count) {
            let what = format!("a block of {count} drafts; this drafter has 1 to {most}");
            return Err(ModelError::Unsupported(what));
        }
        let states = self.block(anchor, count)?;
        let (shared, cpu, d) = (&self.shared, &self.memory.target.cpu, self.memory.shape.d_model);
        let (matrix, cap) = (shared.head.matrix(), shared.plan.cap.map(|cap| cap as f32));
        let mut logits = vec![0.0; count * matrix.rows()];
        let parts = states.chunks(MAX_ROWS * d / LANES).zip(logits.chunks_mut(MAX_ROWS * matrix.rows()));
        for (states, logits) in parts {
            head::operand(cpu, matrix, states, &mut self.acts);
            if shared.plan.logit_scale != 1.0 {
                self.acts.set_factors([shared.plan.logit_scale as f32; PROMPT_ROWS]);
            }
            head::logits(cpu, (matrix, cap), &self.acts, logits, &mut Vec::new());
        }
        if let Some(selector) = &shared.selector {
            self.projected = selector.project(cpu, &states, &mut self.acts);
        }
        if shared.confidence.is_some() {
            self.states = Rows::new(states.into_flattened(), d);
        }
        Ok(Rows::new(logits, self.shared.vocab.len()))
    }

    fn corrects(&self) -> bool {
        self.shared.markov.is_some()
    }

    fn correct(&self, logits: &mut [f32], before: TokenId) -> Result<(), ModelError> {
        let Some([table, project]) = &self.shared.markov else { return Ok(()) };
        let row = self.markov_row(table, before)?;
        let (bias, _) = head::of_state(&self.memory.target.cpu, project, row.as_chunks().0, &mut Acts::default());
        logits.iter_mut().zip(bias).for_each(|(logit, bias)| *logit += bias);
        Ok(())
    }

    fn select(&self, index: usize, logits: &[f32], before: TokenId) -> Result<Option<Candidates>, ModelError> {
        let Some(selector) = self.shared.selector.as_ref().filter(|_| index < self.projected.len()) else {
            return Ok(None);
        };
        selector.choose((logits, &self.shared.vocab), self.projected.row(index), before).map(Some)
    }

    fn confidence(&self, index: usize, before: TokenId) -> Result<Option<f32>, ModelError> {
        let (Some((weights, bias)), true) = (&self.shared.confidence, index < self.states.len()) else {
            return Ok(None);
        };
        let before = self.shared.markov.as_ref().map(|[table, _]| self.markov_row(table, before)).transpose()?;
        let numbers = self.states.row(index).iter().chain(before.iter().flatten());
        let sum: f32 = weights.iter().zip(numbers).map(|(weight, number)| weight * number).sum();
        Ok(Some(1.0 / (1.0 + (-sum - bias).exp())))
    }

    fn truncate(&mut self, len: usize) -> Result<(), ModelError> {
        let have = self.len();
        if len > have {
            return Err(ModelError::Rewind { len, have, since: 0 });
        }
        self.memory.cache.set_len(len);
        Ok(())
    }

    fn fork(&self) -> Result<Box<dyn BlockModule>, ModelError> {
        let (states, projected) = (self.states.clone(), self.projected.clone());
        let (shared, memory) = (Arc::clone(&self.shared), self.memory.fork());
        Ok(Box::new(Self { shared, memory, acts: Acts::default(), states, projected }))
    }
}
