//! A draft module of DeepSeek-V3 shape that shares a target's embedding: one block over the projected pair of a token's
//! embedding and a hidden state. A slot's bits do not depend on the slots that run with it.

use std::sync::Arc;

use crate::GpuError;
use crate::block::{Binder, BlockWeights, Op, Shape};
use crate::buffers::{Acts, LayerCache, Scratch, copy_caches};
use crate::matrix::Matrix;
use crate::network::{Network, launch};
use crate::pass::{MAX_ROWS, PROMPT_ROWS, PassRows};

/// Passes of one submission.
const PASSES: usize = 32;

/// Most drafts that a submission runs ahead.
pub const MAX_AHEAD: usize = 15;

/// Most slots of one submission.
pub const MAX_SLOTS: usize = PASSES * MAX_ROWS;

/// Where the last slot's state is kept, after the states of a submission.
const SPARE_ROW: u64 = MAX_SLOTS as u64;

/// Weights of a module.
#[derive(Clone, Debug)]
pub struct ModuleWeights {
    /// Sizes of its block; as wide as the target.
    pub shape: Shape,
    /// `[d]`
    pub embedding_norm: wgpu::Buffer,
    /// `[d]`
    pub hidden_norm: wgpu::Buffer,
    /// For each further state of the target that is added to the hidden state: `[d, d]`.
    pub fuse: Vec<Matrix>,
    /// Halves of the projection, in the order of its input: each `[d, d]`.
    pub project: [Matrix; 2],
    /// The block.
    pub block: BlockWeights,
    /// `[d]`
    pub final_norm: wgpu::Buffer,
    /// `[draft vocabulary, d]`
    pub head: Matrix,
    /// Token of each row of the head.
    pub vocab: Vec<u32>,
    /// Most rows of the target's head that can join.
    pub room: usize,
    /// Cosine and sine, one position more than slots.
    pub angles: wgpu::Buffer,
}

/// Slots that run.
#[derive(Clone, Copy, Debug)]
pub struct Slots<'a> {
    /// One token a slot.
    pub tokens: &'a [u32],
    /// `[slots][1 or 1 + fused states][d]`
    pub hidden: &'a [f32],
    /// Rotary position of the first.
    pub at: usize,
    /// Whether the embedding of the first is zero.
    pub zeroed: bool,
    /// Whether the projection's first half reads the hidden state instead of the embedding.
    pub hidden_first: bool,
    /// Whether the states to return are those before the final norm.
    pub before_norm: bool,
    /// Greedy drafts to run in the same submission, at most [`MAX_AHEAD`]: each slot reads the best token of the slot
    /// before and its state.
    pub ahead: usize,
}

/// What slots computed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ModuleOutput {
    /// States for the next depth, `[slots][d]`.
    pub states: Vec<f32>,
    /// Logits of the last slot.
    pub logits: Vec<f32>,
    /// Slots that ran ahead; they are not in the cache until [`ModuleSequence::take_ahead`].
    pub ahead: Vec<Ahead>,
}

/// A slot that ran ahead.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Ahead {
    /// The token that it read.
    pub token: u32,
    /// Its state, `[d]`.
    pub state: Vec<f32>,
    /// Its logits.
    pub logits: Vec<f32>,
}

/// Launches of a module.
#[derive(Debug)]
struct Launches {
    embed: Vec<Op>,
    embedding_norm: Op,
    /// For each fused state.
    fuse: Vec<Vec<Op>>,
    hidden_norm: Op,
    /// Embedding first, hidden state first.
    project: [Vec<Op>; 2],
    block: Vec<Op>,
    final_norm: Op,
    head: Vec<Op>,
    pick: Op,
}

/// A module's cache and all that runs over it.
#[derive(Debug)]
pub struct ModuleSequence {
    weights: Arc<ModuleWeights>,
    scratch: Scratch,
    cache: LayerCache,
    launches: Launches,
    tokens: wgpu::Buffer,
    /// Hidden states of a submission, `[1 + fused][slots][d]`.
    hidden: wgpu::Buffer,
    /// Those of a pass, one buffer each, `[64][d]`.
    rows: Vec<wgpu::Buffer>,
    logits: wgpu::Buffer,
    states: wgpu::Buffer,
    readable: wgpu::Buffer,
    /// Rows of the target's head that joined, and their tokens.
    joining: Option<Matrix>,
    joined: Vec<u32>,
    /// Token of each logit.
    ids: wgpu::Buffer,
    len: usize,
    /// Dropped last.
    network: Arc<Network>,
}

impl ModuleSequence {
    /// With an empty cache as long as the target's.
    ///
    /// # Errors
    /// [`GpuError::OutOfMemory`] or what the driver reports.
    pub fn new(network: &Arc<Network>, weights: &Arc<ModuleWeights>) -> Result<Self, GpuError> {
        let (gpu, shape, w) = (&*network.gpu, &weights.shape, &**weights);
        let d = shape.d_model;
        let cache = LayerCache::new(gpu, (shape, &w.block), network.ctx_len);
        let scratch =
            Scratch::new(gpu, (shape, std::slice::from_ref(&w.block)), (network.ctx_len, PASSES + 1 + MAX_AHEAD))?;
        let rows_of = || gpu.storage(4 * PROMPT_ROWS * d);
        let embedded = rows_of();
        let rows: Vec<_> = (0..=w.fuse.len()).map(|_| rows_of()).collect();
        let [of_embedding, of_hidden] = [0; 2].map(|_| Acts::new(gpu, d));
        let ones = gpu.upload(&vec![1.0f32; d]);
        let joining = if w.room > 0 { Some(Matrix::room(gpu, &network.head, w.room)?) } else { None };
        let width = w.head.rows() + w.room;
        let (logits, tokens) = (gpu.storage(4 * MAX_ROWS * width), gpu.storage(4 * (MAX_SLOTS + MAX_AHEAD)));
        let mut all = w.vocab.clone();
        all.resize(width, 0);
        let ids = gpu.upload(&all);
        let binder = Binder { gpu, run: &scratch.run };
        let norm = |x: &wgpu::Buffer, weight: &wgpu::Buffer, out: &Acts| binder.norm((x, weight), (d, shape.eps), out);
        let project = |first: &Acts, second: &Acts| {
            let mut ops = binder.product((&w.project[0], first), (&scratch.x, d, 0), false);
            ops.extend(binder.product((&w.project[1], second), (&scratch.x, d, 0), true));
            ops
        };
        let fuse = |(matrix, state): (&Matrix, &wgpu::Buffer)| {
            let mut ops = vec![norm(state, &ones, &scratch.acts)];
            ops.extend(binder.product((matrix, &scratch.acts), (&rows[0], d, 0), true));
            ops
        };
        let mut head = binder.product((&w.head, &scratch.acts), (&logits, width, 0), false);
        if let Some(joined) = &joining {
            head.extend(binder.product((joined, &scratch.acts), (&logits, width, w.head.rows()), false));
        }
        let launches = Launches {
            embed: binder.embed(network.scaled_table(), &tokens, &embedded),
            embedding_norm: norm(&embedded, &w.embedding_norm, &of_embedding),
            fuse: w.fuse.iter().zip(&rows[1..]).map(fuse).collect(),
            hidden_norm: norm(&rows[0], &w.hidden_norm, &of_hidden),
            project: [project(&of_embedding, &of_hidden), project(&of_hidden, &of_embedding)],
            block: binder.block(shape, &w.block, (&scratch, &cache, &w.angles)),
            final_norm: norm(&scratch.x, &w.final_norm, &scratch.acts),
            head,
            pick: binder.pick(&logits, &ids, &tokens),
        };
        let sequence = Self {
            hidden: gpu.storage(4 * (1 + w.fuse.len()) * MAX_SLOTS * d),
            states: gpu.storage(4 * (MAX_SLOTS + 1) * d),
            readable: gpu.readable(4 * (MAX_SLOTS * d + width + MAX_AHEAD * (1 + d + width)) as u64),
            ids,
            network: Arc::clone(network),
            weights: Arc::clone(weights),
            scratch,
            cache,
            launches,
            tokens,
            rows,
            logits,
            joining,
            joined: Vec::new(),
            len: 0,
        };
        gpu.check()?;
        Ok(sequence)
    }

    /// Slots in the cache.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the cache is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Drops slots `len..`.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// Tokens whose rows of the target's head joined the draft vocabulary, in the order of their logits.
    ///
    /// # Errors
    /// What the driver reports.
    pub fn set_joined(&mut self, tokens: &[u32]) -> Result<(), GpuError> {
        let same = self.joined.iter().zip(tokens).take_while(|(a, b)| a == b).count();
        let gpu = &*self.network.gpu;
        if let Some(joined) = self.joining.as_ref().filter(|_| same < tokens.len()) {
            let mut encoder = gpu.encoder();
            for (row, token) in tokens.iter().enumerate().skip(same) {
                joined.copy_row(&mut encoder, (&self.network.head, *token as usize), row);
            }
            gpu.submit(encoder);
            gpu.write(&self.ids, 4 * self.weights.head.rows() as u64, bytemuck::cast_slice(tokens));
        }
        self.joined = tokens.to_vec();
        gpu.check()
    }

    /// Runs at most [`MAX_SLOTS`] slots at the end of the cache, which has room for them; every token is in the
    /// vocabulary.
    ///
    /// # Errors
    /// What the driver reports; the cache then is as before.
    pub fn forward(&mut self, slots: Slots<'_>) -> Result<ModuleOutput, GpuError> {
        let gpu = Arc::clone(&self.network.gpu);
        let (m, d) = (slots.tokens.len(), self.weights.shape.d_model);
        let passes: Vec<_> = (slots.tokens.chunks(self.scratch.prompt_rows).enumerate())
            .map(|(i, tokens)| PassRows {
                at: slots.at + i * self.scratch.prompt_rows,
                zeroed: slots.zeroed && i == 0,
                ..PassRows::chain(self.len + i * self.scratch.prompt_rows, tokens.len())
            })
            .collect();
        let Some(last) = passes.last() else { return Ok(ModuleOutput::default()) };
        let one_row = PassRows::chain(self.len, 1);
        let words = passes.iter().enumerate().flat_map(|(i, pass)| pass.words(i * self.scratch.prompt_rows));
        gpu.write(&self.scratch.run, 0, bytemuck::cast_slice(&words.collect::<Vec<u32>>()));
        let spare = PASSES as u64 * crate::device::SLOT_BYTES;
        gpu.write(&self.scratch.run, spare, bytemuck::cast_slice(&one_row.words(0)));
        gpu.write(&self.tokens, 0, bytemuck::cast_slice(slots.tokens));
        let count = slots.hidden.len() / (m * d);
        for state in 0..count.min(self.rows.len()) {
            let rows = slots.hidden.chunks_exact(d).skip(state).step_by(count);
            let rows: Vec<f32> = rows.flatten().copied().collect();
            gpu.write(&self.hidden, (4 * state * MAX_SLOTS * d) as u64, bytemuck::cast_slice(&rows));
        }
        let mut encoder = gpu.encoder();
        for (index, pass) in passes.iter().enumerate() {
            self.record(&mut encoder, (pass, index), (&slots, count > 1));
        }
        // logits of the last slot alone: its state becomes row 0
        let (row, at) = (4 * d as u64, 4 * (last.m() as u64 - 1) * d as u64);
        encoder.copy_buffer_to_buffer(&self.scratch.x, at, &self.states, SPARE_ROW * row, row);
        self.record_head(&mut encoder, &one_row);
        let width = self.weights.head.rows() + self.joined.len();
        let (states, logits) = (m as u64 * row, 4 * width as u64);
        encoder.copy_buffer_to_buffer(&self.states, 0, &self.readable, 0, states);
        encoder.copy_buffer_to_buffer(&self.logits, 0, &self.readable, states, logits);
        let mut end = states + logits;
        // drafts
        let ahead = slots.ahead.min(MAX_AHEAD).min(self.network.ctx_len - self.len - m);
        for index in 0..ahead {
            let (at, picks_from) = (slots.at + m + index, width);
            let pass = PassRows { at, picks_from, ..PassRows::chain(self.len + m + index, 1) };
            self.record_ahead(&mut encoder, (&pass, index), (&slots, end));
            encoder.copy_buffer_to_buffer(&self.logits, 0, &self.readable, end + row, logits);
            end += row + logits;
        }
        if ahead > 0 {
            encoder.copy_buffer_to_buffer(&self.tokens, 4 * MAX_SLOTS as u64, &self.readable, end, 4 * ahead as u64);
            end += 4 * ahead as u64;
        }
        gpu.submit(encoder);
        let mut words = gpu.read(&self.readable, end)?;
        let tokens = words.split_off(words.len() - ahead);
        let mut numbers: Vec<f32> = words.into_iter().map(f32::from_bits).collect();
        let mut steps = numbers.split_off(m * d + width);
        let logits = numbers.split_off(m * d);
        let mut output = ModuleOutput { states: numbers, logits, ahead: Vec::new() };
        for token in tokens {
            let rest = steps.split_off(d + width);
            let logits = steps.split_off(d);
            output.ahead.push(Ahead { token, state: std::mem::replace(&mut steps, rest), logits });
        }
        self.len += m;
        Ok(output)
    }

    /// Counts the next slot that ran ahead as cached, without running it again.
    pub fn take_ahead(&mut self) {
        self.len += 1;
    }

    /// The final norm and the head over the last slot's state.
    fn record_head(&self, encoder: &mut wgpu::CommandEncoder, one_row: &PassRows) {
        let row = 4 * self.weights.shape.d_model as u64;
        encoder.copy_buffer_to_buffer(&self.states, SPARE_ROW * row, &self.scratch.x, 0, row);
        let head = [&self.launches.final_norm].into_iter().chain(&self.launches.head);
        launch(&self.network.gpu, encoder, head, (one_row, PASSES));
    }

    /// One slot that reads the best token of the slot before and its state; its own state goes to `to`.
    fn record_ahead(
        &self,
        encoder: &mut wgpu::CommandEncoder,
        (pass, index): (&PassRows, usize),
        (slots, to): (&Slots<'_>, u64),
    ) {
        let (gpu, row, slot) = (&*self.network.gpu, 4 * self.weights.shape.d_model as u64, PASSES + 1 + index);
        let words = pass.words(MAX_SLOTS + index);
        gpu.write(&self.scratch.run, slot as u64 * crate::device::SLOT_BYTES, bytemuck::cast_slice(&words));
        let state = if slots.before_norm { &self.scratch.x } else { &self.scratch.acts.values };
        encoder.copy_buffer_to_buffer(state, 0, &self.rows[0], 0, row);
        let Launches { embed, embedding_norm, hidden_norm, project, block, final_norm, head, pick, .. } =
            &self.launches;
        let start = [pick].into_iter().chain(embed).chain([embedding_norm, hidden_norm]);
        let rest = project[usize::from(slots.hidden_first)].iter().chain(block).chain([final_norm]).chain(head);
        launch(gpu, encoder, start.chain(rest), (pass, slot));
        encoder.copy_buffer_to_buffer(state, 0, &self.readable, to, row);
    }

    /// Logits of the last slot of the last pass again, after tokens joined.
    ///
    /// # Errors
    /// What the driver reports.
    pub fn logits(&self) -> Result<Vec<f32>, GpuError> {
        let gpu = &*self.network.gpu;
        let mut encoder = gpu.encoder();
        self.record_head(&mut encoder, &PassRows::chain(0, 1));
        let bytes = 4 * (self.weights.head.rows() + self.joined.len()) as u64;
        encoder.copy_buffer_to_buffer(&self.logits, 0, &self.readable, 0, bytes);
        gpu.submit(encoder);
        Ok(gpu.read(&self.readable, bytes)?.into_iter().map(f32::from_bits).collect())
    }

    fn record(
        &self,
        encoder: &mut wgpu::CommandEncoder,
        run: (&PassRows, usize),
        (slots, is_fused): (&Slots<'_>, bool),
    ) {
        let (gpu, d) = (&*self.network.gpu, self.weights.shape.d_model);
        let (bytes, first) = (4 * (run.0.m() * d) as u64, 4 * (run.1 * self.scratch.prompt_rows * d) as u64);
        let states = if is_fused { self.rows.len() } else { 1 };
        for (state, rows) in self.rows.iter().enumerate().take(states) {
            let from = (4 * state * MAX_SLOTS * d) as u64 + first;
            encoder.copy_buffer_to_buffer(&self.hidden, from, rows, 0, bytes);
        }
        let Launches { embed, embedding_norm, fuse, hidden_norm, project, block, final_norm, .. } = &self.launches;
        let fuse = fuse.iter().filter(|_| is_fused).flatten();
        let start = embed.iter().chain([embedding_norm]).chain(fuse).chain([hidden_norm]);
        let rest = project[usize::from(slots.hidden_first)].iter().chain(block).chain([final_norm]);
        launch(gpu, encoder, start.chain(rest), run);
        let from = if slots.before_norm { &self.scratch.x } else { &self.scratch.acts.values };
        encoder.copy_buffer_to_buffer(from, 0, &self.states, first, bytes);
    }

    /// A module with a copy of the cache; weights are shared.
    ///
    /// # Errors
    /// As [`ModuleSequence::new`].
    pub fn fork(&self) -> Result<Self, GpuError> {
        let gpu = &*self.network.gpu;
        let mut fork = Self::new(&self.network, &self.weights)?;
        let caches = (std::slice::from_ref(&self.cache), std::slice::from_ref(&fork.cache));
        copy_caches(gpu, caches, self.len);
        fork.len = self.len;
        fork.set_joined(&self.joined)?;
        Ok(fork)
    }
}
