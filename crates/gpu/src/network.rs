//! A whole target: weights that sequences share, and a sequence with a cache of its own.
//!
//! A prompt's passes are recorded one after the other into one submission. Invariant: a sequence's buffers are made
//! when it is, or when other hidden states are asked for; a pass creates none.

use std::sync::Arc;

use crate::GpuError;
use crate::block::{Binder, BlockWeights, Op, Shape};
use crate::buffers::{LayerCache, Scratch, copy_caches, move_rows};
use crate::device::{Gpu, SLOT_BYTES};
use crate::matrix::Matrix;
use crate::pass::{MAX_ROWS, PassRows};
use crate::recurrent::Recurrence;
use crate::request::{Output, Request, Stretch};
use crate::style::EndStyle;

/// Passes of 16 rows of one submission; those of a prompt are longer and fewer. One more is for the row of a prompt that
/// gets logits.
const PASSES: usize = 32;

/// Weights of a target.
#[derive(Debug)]
pub struct Network {
    /// Sizes of every block that has none of its own.
    pub shape: Shape,
    /// The blocks.
    pub blocks: Vec<BlockWeights>,
    /// `[d_model]`
    pub final_norm: wgpu::Buffer,
    /// `None` if the head serves as embedding too.
    pub embedding: Option<Matrix>,
    /// `[vocabulary, d_model]`
    pub head: Matrix,
    /// Cosine and sine of every position and pair, `[positions][head_dim / 2]`.
    pub angles: wgpu::Buffer,
    /// Positions of a cache.
    pub ctx_len: usize,
    /// What it has besides.
    pub style: EndStyle,
    /// Where they lie; dropped last.
    pub gpu: Arc<Gpu>,
}

impl Network {
    /// Bytes of its matrices.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let ends = self.head.bytes() + self.embedding.as_ref().map_or(0, Matrix::bytes);
        let ends = ends + self.style.layer_table.as_ref().map_or(0, |table| table.bytes());
        ends + self.blocks.iter().map(BlockWeights::bytes).sum::<u64>()
    }

    /// The embedding, and what it is multiplied by.
    pub(crate) fn scaled_table(&self) -> (&Matrix, f32) {
        (self.embedding.as_ref().unwrap_or(&self.head), self.style.embedding_scale)
    }
}

/// Launches around the blocks.
#[derive(Debug)]
struct Ends {
    embed: Vec<Op>,
    final_norm: Op,
    head: Vec<Op>, // logits and their statistics
}

/// A cache and all that runs over it.
#[derive(Debug)]
pub struct Sequence {
    scratch: Scratch,
    caches: Vec<LayerCache>,
    blocks: Vec<Vec<Op>>,
    ends: Ends,
    tokens: wgpu::Buffer,
    logits: wgpu::Buffer,
    stats: wgpu::Buffer,
    /// `[states][rows][d_model]` of one submission.
    states: wgpu::Buffer,
    readable: wgpu::Buffer,
    /// States that buffers have room for.
    room: usize,
    len: usize,
    /// If some layers are recurrent.
    recurrence: Option<Recurrence>,
    /// Dropped last.
    network: Arc<Network>,
}

impl Sequence {
    /// A sequence with an empty cache.
    ///
    /// # Errors
    /// [`GpuError::OutOfMemory`] or what the driver reports.
    pub fn new(network: &Arc<Network>) -> Result<Self, GpuError> {
        let (gpu, shape, ctx_len) = (&*network.gpu, &network.shape, network.ctx_len);
        let caches: Vec<_> = network.blocks.iter().map(|block| LayerCache::new(gpu, (shape, block), ctx_len)).collect();
        let scratch = Scratch::new(gpu, (shape, &network.blocks), (ctx_len, PASSES + 1))?;
        let vocab = network.head.rows();
        let stats = gpu.storage(16 * MAX_ROWS * vocab.div_ceil(512));
        let logits = gpu.storage(4 * MAX_ROWS * vocab);
        let tokens = gpu.storage(4 * PASSES * MAX_ROWS);
        let binder = Binder { gpu, run: &scratch.run };
        let with = |(index, weights): (usize, &BlockWeights)| {
            let before = index.checked_sub(1).and_then(|before| network.blocks.get(before));
            let entered = before.is_some_and(|block| block.style.post_norms.is_some());
            let next = network.blocks.get(index + 1).map(|block| &block.attn_norm);
            binder.block_between(
                shape,
                weights,
                (&scratch, &caches[weights.style.reads.unwrap_or(index)], &network.angles),
                (entered, next),
            )
        };
        let blocks = network.blocks.iter().enumerate().map(with).collect();
        let mut head = binder.product((&network.head, &scratch.acts), (&logits, vocab, 0), false);
        head.extend(network.style.logit_cap.map(|cap| binder.cap((&logits, vocab), cap)));
        head.push(binder.stats(&logits, vocab, &stats));
        let mut embed = binder.embed(network.scaled_table(), &tokens, &scratch.x);
        let of_layers = network.style.layer_table.as_ref();
        embed.extend(of_layers.into_iter().flat_map(|of| binder.layer_inputs(of, &tokens, (&scratch, shape))));
        let ends = Ends {
            embed,
            final_norm: binder.norm((&scratch.x, &network.final_norm), (shape.d_model, shape.eps), &scratch.acts),
            head,
        };
        let delta = |(cache, block): (&LayerCache, &BlockWeights)| {
            Some(binder.delta_state(&block.style.delta.as_ref()?.shape, cache.delta.as_ref()?, &scratch.q))
        };
        let states_alone: Vec<_> = caches.iter().zip(&network.blocks).filter_map(delta).collect();
        let recurrence = (!states_alone.is_empty()).then(|| Recurrence::new(states_alone));
        let (states, readable) = state_buffers(network, 1);
        gpu.check()?;
        let network = Arc::clone(network);
        Ok(Self {
            network,
            scratch,
            caches,
            blocks,
            ends,
            tokens,
            logits,
            stats,
            states,
            readable,
            room: 1,
            len: 0,
            recurrence,
        })
    }

    /// Its weights.
    #[must_use]
    pub fn network(&self) -> &Arc<Network> {
        &self.network
    }

    /// Positions in the cache.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the cache is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Drops positions `len..`, and more if [`Sequence::rewindable`] says that it must.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
        if let Some(recurrence) = &mut self.recurrence {
            self.len = recurrence.rewind((&self.network.gpu, &self.caches), self.len);
        }
    }

    /// Whether it has recurrent layers, whose states follow one path and all layers.
    #[must_use]
    pub fn is_recurrent(&self) -> bool {
        self.recurrence.is_some()
    }

    /// The longest length up to `len` that it can be cut back to.
    #[must_use]
    pub fn rewindable(&self, len: usize) -> usize {
        let len = len.min(self.len);
        self.recurrence.as_ref().map_or(len, |recurrence| recurrence.rewindable(len))
    }

    /// Makes room for so many hidden states of each row.
    ///
    /// # Errors
    /// As [`Sequence::new`].
    pub fn set_states(&mut self, count: usize) -> Result<(), GpuError> {
        if count > self.room {
            (self.states, self.readable) = state_buffers(&self.network, count);
            self.room = count;
        }
        self.network.gpu.check()
    }

    /// Runs tokens at the end of the cache, which has room for them; every token is in the vocabulary, and there is room
    /// for the states. After an error the cache has the positions it had.
    ///
    /// # Errors
    /// What the driver reports.
    pub fn forward(&mut self, request: Request<'_>) -> Result<Output, GpuError> {
        let before = self.len;
        self.run(request).inspect_err(|_| {
            self.len = before;
            self.truncate(before);
        })
    }

    fn run(&mut self, request: Request<'_>) -> Result<Output, GpuError> {
        let mut output = Output::default();
        let (count, is_prompt) = (request.tokens.len(), request.tokens.len() > MAX_ROWS);
        if let Some(recurrence) = self.recurrence.as_mut().filter(|_| is_prompt) {
            recurrence.begin_prompt((&self.network.gpu, &self.caches), (&self.scratch.run, PASSES, self.len));
        }
        // logits of many rows do not fit into the buffers of one submission
        let most = if request.all_logits { MAX_ROWS } else { PASSES * MAX_ROWS };
        let parts = request.tokens.chunks(most);
        let last = parts.len().saturating_sub(1);
        for (index, tokens) in parts.enumerate() {
            let wants_logits = request.all_logits || index == last;
            self.submission(Request { tokens, ..request }, wants_logits, &mut output)?;
        }
        if let Some(recurrence) = self.recurrence.as_mut().filter(|_| is_prompt) {
            recurrence.end_prompt((&self.network.gpu, &self.caches), count);
        }
        Ok(output)
    }

    /// Runs the tokens of one submission.
    fn submission(&mut self, request: Request<'_>, wants_logits: bool, output: &mut Output) -> Result<(), GpuError> {
        let gpu = Arc::clone(&self.network.gpu);
        let (tokens, d) = (request.tokens, self.network.shape.d_model);
        let mut passes = self.passes(&request);
        if let Some(recurrence) = &mut self.recurrence {
            recurrence.plan((&gpu, &self.caches), self.len, &mut passes);
        }
        let Some(last) = passes.last() else { return Ok(()) };
        // 1. What the passes are
        let slots: Vec<u32> =
            passes.iter().enumerate().flat_map(|(i, pass)| pass.words(i * self.scratch.prompt_rows)).collect();
        gpu.write(&self.scratch.run, 0, bytemuck::cast_slice(&slots));
        gpu.write(&self.tokens, 0, bytemuck::cast_slice(tokens));
        let one_row = PassRows::chain(self.len, 1);
        let wants_last = wants_logits && !request.all_logits && last.m() > 1;
        if wants_last {
            gpu.write(&self.scratch.run, PASSES as u64 * SLOT_BYTES, bytemuck::cast_slice(&one_row.words(0)));
        }
        // 2. Passes
        let mut encoder = gpu.encoder();
        let rows = tokens.len();
        for (slot, pass) in passes.iter().enumerate() {
            self.record(&mut encoder, (pass, slot), (&request, rows));
        }
        // 3. Logits
        let of_head = if wants_last { (&one_row, PASSES) } else { (last, passes.len() - 1) };
        let scored = if wants_logits { of_head.0.m() } else { 0 };
        if wants_last {
            // the last row becomes row 0
            let row = 4 * d as u64;
            let at = (last.m() as u64 - 1) * row;
            encoder.copy_buffer_to_buffer(&self.scratch.x, at, &self.states, self.spare_row(), row);
            encoder.copy_buffer_to_buffer(&self.states, self.spare_row(), &self.scratch.x, 0, row);
            launch(&gpu, &mut encoder, [&self.ends.final_norm], of_head);
        }
        if wants_logits {
            launch(&gpu, &mut encoder, &self.ends.head, of_head);
        }
        // 4. What the host reads
        let vocab = self.network.head.rows();
        let sizes = [4 * request.states.len() * rows * d, 16 * scored * vocab.div_ceil(512), 4 * scored * vocab];
        let mut end = 0;
        for (buffer, bytes) in [&self.states, &self.stats, &self.logits].into_iter().zip(sizes) {
            if bytes > 0 {
                encoder.copy_buffer_to_buffer(buffer, 0, &self.readable, end, bytes as u64);
                end += bytes as u64;
            }
        }
        gpu.submit(encoder);
        let words = gpu.read(&self.readable, end)?;
        let (states, rest) = words.split_at(sizes[0] / 4);
        let (stats, logits) = rest.split_at(sizes[1] / 4);
        for row in 0..rows {
            for state in 0..request.states.len() {
                output.hidden.extend(states[(state * rows + row) * d..][..d].iter().map(|word| f32::from_bits(*word)));
            }
        }
        output.stretches.extend(stats.as_chunks::<4>().0.iter().map(|&[max, sum, argmax, _]| Stretch {
            max: f32::from_bits(max),
            sum: f32::from_bits(sum),
            argmax,
        }));
        output.logits.extend(logits.iter().map(|word| f32::from_bits(*word)));
        self.len += rows;
        Ok(())
    }

    fn passes(&self, request: &Request<'_>) -> Vec<PassRows> {
        if let Some(parents) = request.parents {
            return vec![PassRows::tree(self.len, parents)];
        }
        let chunks = request.tokens.chunks(self.scratch.prompt_rows).enumerate();
        chunks.map(|(i, tokens)| PassRows::chain(self.len + i * self.scratch.prompt_rows, tokens.len())).collect()
    }

    /// Where a row can be put that no state uses.
    fn spare_row(&self) -> u64 {
        (4 * self.room * PASSES * MAX_ROWS * self.network.shape.d_model) as u64
    }

    /// One pass up to the final norm; its states go after those of the passes before.
    fn record(
        &self,
        encoder: &mut wgpu::CommandEncoder,
        run: (&PassRows, usize),
        (request, rows): (&Request<'_>, usize),
    ) {
        let (gpu, d) = (&*self.network.gpu, self.network.shape.d_model);
        let bytes = (4 * run.0.m() * d) as u64;
        let keep = |encoder: &mut wgpu::CommandEncoder, place: Option<usize>, from: &wgpu::Buffer| {
            for (state, _) in request.states.iter().enumerate().filter(|(_, wanted)| **wanted == place) {
                let to = 4 * (state * rows + run.1 * self.scratch.prompt_rows) * d;
                encoder.copy_buffer_to_buffer(from, 0, &self.states, to as u64, bytes);
            }
        };
        launch(gpu, encoder, &self.ends.embed, run);
        keep(encoder, Some(0), &self.scratch.x);
        let mut pending: Vec<&Op> = Vec::new();
        for (index, block) in self.blocks.iter().enumerate().take(request.layers) {
            pending.extend(block);
            if request.states.contains(&Some(index + 1)) {
                launch(gpu, encoder, pending.drain(..), run);
                keep(encoder, Some(index + 1), &self.scratch.x);
            }
        }
        launch(gpu, encoder, pending.into_iter().chain([&self.ends.final_norm]), run);
        keep(encoder, None, &self.scratch.acts.values);
    }

    /// Keeps, of the rows from position `base` on, those of one path, ascending. All of them exist.
    ///
    /// # Errors
    /// What the driver reports.
    pub fn retain(&mut self, base: usize, path: &[usize]) -> Result<(), GpuError> {
        let gpu = &*self.network.gpu;
        let moves: Vec<_> = path.iter().copied().enumerate().filter(|(to, from)| to != from).collect();
        if !moves.is_empty() {
            let mut encoder = gpu.encoder();
            move_rows(&mut encoder, &self.caches, (base, &moves), &self.logits);
            gpu.submit(encoder);
        }
        self.len = base + path.len();
        gpu.check()
    }

    /// A sequence with a copy of the cache.
    ///
    /// # Errors
    /// As [`Sequence::new`].
    pub fn fork(&self) -> Result<Self, GpuError> {
        let mut fork = Self::new(&self.network)?;
        fork.set_states(self.room)?;
        fork.len = self.len;
        copy_caches(&self.network.gpu, (&self.caches, &fork.caches), self.len);
        if let (Some(to), Some(from)) = (&mut fork.recurrence, &self.recurrence) {
            to.copy_from(from, &self.network.gpu, (&self.caches, &fork.caches));
        }
        self.network.gpu.check()?;
        Ok(fork)
    }
}

/// Records launches for the pass in a slot.
pub(crate) fn launch<'a>(
    gpu: &Gpu,
    encoder: &mut wgpu::CommandEncoder,
    ops: impl IntoIterator<Item = &'a Op>,
    (rows, slot): (&PassRows, usize),
) {
    let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default());
    ops.into_iter().for_each(|op| op.launch(gpu, &mut pass, (rows, slot)));
}

/// Room for so many states of all rows of a submission, and one row more; and for all that the host reads.
fn state_buffers(network: &Network, states: usize) -> (wgpu::Buffer, wgpu::Buffer) {
    let (gpu, vocab) = (&*network.gpu, network.head.rows());
    let bytes = 4 * states * PASSES * MAX_ROWS * network.shape.d_model;
    let read = bytes + MAX_ROWS * (4 * vocab + 16 * vocab.div_ceil(512));
    (gpu.storage(bytes + 4 * network.shape.d_model), gpu.readable(read as u64))
}
