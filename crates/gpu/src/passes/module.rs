//! A draft module of DeepSeek-V3 shape that shares a target's embedding: one block over the projected pair of a token's
//! embedding and a hidden state. A slot's bits do not depend on the slots that run with it.

use std::sync::Arc;

use super::head::{Ending, Head, Logits, Scored};
use super::recording::{Expected, Readback, Recorded, Recording};
use super::sequence::PASSES;
use crate::GpuError;
use crate::device::Work;
use crate::kernels::{MAX_ROWS, PROMPT_ROWS, PassRows, SEGMENT};
use crate::launches::{Binder, Op};
use crate::memory::{Acts, LayerCache, Scratch, copy_caches};
use crate::weights::{Matrix, ModuleWeights, Network};

/// Most drafts that a submission runs ahead.
pub const MAX_AHEAD: usize = 15;

/// Most slots of one submission.
pub const MAX_SLOTS: usize = PASSES * MAX_ROWS;

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
    /// Which logits of the last slot, and of those that run ahead, the host reads: all, or only the best.
    pub logits: Logits,
    /// Greedy drafts to run in the same submission, at most [`MAX_AHEAD`]: each slot reads the best token of the slot
    /// before and its state.
    pub ahead: usize,
}

impl Slots<'_> {
    /// What decides the commands of a submission of this pass, with so many slots that run ahead.
    fn sizes(&self, pass: &PassRows, (ahead, is_fused): (usize, bool)) -> Vec<usize> {
        let (first, last) = (pass.segments(), (pass.base + pass.m() + ahead).div_ceil(SEGMENT));
        let place = if first == last { 0 } else { pass.base }; // where a segment begins between them
        let sizes = [pass.m(), first, last, place, pass.logits, ahead];
        let flags = [is_fused, self.hidden_first, self.before_norm].map(usize::from);
        sizes.into_iter().chain([self.logits as usize]).chain(flags).collect()
    }
}

/// What slots computed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ModuleOutput {
    /// States for the next depth, `[slots][d]`.
    pub states: Vec<f32>,
    /// Logits of the last slot.
    pub scored: Scored,
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
    pub scored: Scored,
}

/// Launches of a module before its [`Ending`].
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
    pick: Op,
}

/// A module's cache and all that runs over it.
#[derive(Debug)]
pub struct ModuleSequence {
    weights: Arc<ModuleWeights>,
    scratch: Scratch,
    cache: LayerCache,
    launches: Launches,
    ending: Ending,
    tokens: wgpu::Buffer,
    /// Hidden states of a submission, `[1 + fused][slots][d]`.
    hidden: wgpu::Buffer,
    /// Those of a pass, one buffer each, `[64][d]`.
    rows: Vec<wgpu::Buffer>,
    states: wgpu::Buffer,
    back: Readback,
    expected: Expected,
    /// Rows of the target's head that joined, and their tokens.
    joining: Option<Matrix>,
    joined: Vec<u32>,
    /// Of these, rows that were copied.
    copied: usize,
    /// Token of each logit.
    ids: wgpu::Buffer,
    len: usize,
    work: Work,
    /// Dropped last.
    network: Arc<Network>,
}

impl ModuleSequence {
    /// With an empty cache as long as the target's.
    ///
    /// # Errors
    /// [`GpuError::TooLarge`], [`GpuError::OutOfMemory`] or what the driver reports.
    pub fn new(network: &Arc<Network>, weights: &Arc<ModuleWeights>) -> Result<Self, GpuError> {
        let (gpu, shape, w) = (&*network.gpu, &weights.shape, &**weights);
        let d = shape.d_model;
        shape.check_context(gpu.info(), network.ctx_len)?;
        let cache = LayerCache::new(gpu, (shape, &w.block), network.ctx_len);
        let blocks = std::slice::from_ref(&w.block);
        let scratch = Scratch::new(gpu, (shape, blocks), (network.ctx_len, PASSES + 1 + MAX_AHEAD))?;
        let rows_of = || gpu.storage(4 * PROMPT_ROWS * d);
        let embedded = rows_of();
        let rows: Vec<_> = (0..=w.fuse.len()).map(|_| rows_of()).collect();
        let [of_embedding, of_hidden] = [0; 2].map(|_| Acts::new(gpu, d));
        let ones = gpu.upload(&vec![1.0f32; d]);
        let joining = if w.room > 0 { Some(Matrix::room(gpu, &network.head, w.room)?) } else { None };
        let tokens = gpu.storage(4 * (MAX_SLOTS + MAX_AHEAD));
        let mut all = w.vocab.clone();
        all.resize(w.head.rows() + w.room, 0);
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
        let matrices: Vec<&Matrix> = [&w.head].into_iter().chain(&joining).collect();
        let head = Head::new(&binder, (&matrices, &scratch.acts, None), &tokens);
        let launches = Launches {
            embed: binder.embed(network.scaled_table(), &tokens, &embedded),
            embedding_norm: norm(&embedded, &w.embedding_norm, &of_embedding),
            fuse: w.fuse.iter().zip(&rows[1..]).map(fuse).collect(),
            hidden_norm: norm(&rows[0], &w.hidden_norm, &of_hidden),
            project: [project(&of_embedding, &of_hidden), project(&of_hidden, &of_embedding)],
            block: binder.block(shape, &w.block, (&scratch, &cache, &w.angles)),
            pick: binder.pick(head.stats(), &ids, &tokens),
        };
        let final_norm = norm(&scratch.x, &w.final_norm, &scratch.acts);
        // a row of logits for each slot whose logits are read, and there are at most as many as rows of a pass
        let bytes = 4 * (MAX_SLOTS * d + MAX_AHEAD * (1 + d)) + head.most_bytes();
        let sequence = Self {
            hidden: gpu.storage(4 * (1 + w.fuse.len()) * MAX_SLOTS * d),
            states: gpu.storage(4 * MAX_SLOTS * d),
            back: Readback::new(gpu, bytes),
            expected: Expected::default(),
            ending: Ending::new(gpu, (head, final_norm), d, PASSES),
            ids,
            network: Arc::clone(network),
            weights: Arc::clone(weights),
            scratch,
            cache,
            launches,
            tokens,
            rows,
            joining,
            joined: Vec::new(),
            copied: 0,
            len: 0,
            work: Work::default(),
        };
        gpu.check()?;
        Ok(sequence)
    }

    /// What its passes did so far.
    #[must_use]
    pub fn work(&self) -> Work {
        self.work
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

    /// Tokens whose rows of the target's head join the draft vocabulary, in the order of their logits. The next pass copies
    /// the rows.
    pub fn set_joined(&mut self, tokens: &[u32]) {
        let same = self.joined.iter().zip(tokens).take_while(|(a, b)| a == b).count();
        self.copied = self.copied.min(same);
        self.joined = tokens.to_vec();
    }

    /// Records the copies of rows that joined.
    fn record_joined(&self, recording: &mut Recording<'_>) {
        let Some(joining) = self.joining.as_ref().filter(|_| self.copied < self.joined.len()) else {
            return;
        };
        for (row, token) in self.joined.iter().enumerate().skip(self.copied) {
            joining.copy_row(recording.encoder(), (&self.network.head, *token as usize), row);
        }
        let ids = bytemuck::cast_slice(&self.joined);
        self.network.gpu.write(&self.ids, 4 * self.weights.head.rows() as u64, ids);
    }

    /// Runs at most [`MAX_SLOTS`] slots at the end of the cache, which has room for them; every token is in the
    /// vocabulary.
    ///
    /// # Errors
    /// What the driver reports; the cache then is as before.
    pub fn forward(&mut self, slots: Slots<'_>) -> Result<ModuleOutput, GpuError> {
        let gpu = Arc::clone(&self.network.gpu);
        let (m, d) = (slots.tokens.len(), self.weights.shape.d_model);
        let logits = self.weights.head.rows() + self.joined.len();
        let mut passes = PassRows::cut((self.len, m), self.scratch.prompt_rows);
        for (index, pass) in passes.iter_mut().enumerate() {
            (pass.at, pass.zeroed) = (slots.at + index * self.scratch.prompt_rows, slots.zeroed && index == 0);
            pass.logits = logits;
        }
        let Some(last) = passes.last() else { return Ok(ModuleOutput::default()) };
        self.scratch.write_passes(&gpu, &passes);
        gpu.write(&self.tokens, 0, bytemuck::cast_slice(slots.tokens));
        let count = slots.hidden.len() / (m * d);
        for state in 0..count.min(self.rows.len()) {
            let rows = slots.hidden.chunks_exact(d).skip(state).step_by(count);
            let rows: Vec<f32> = rows.flatten().copied().collect();
            gpu.write(&self.hidden, (4 * state * MAX_SLOTS * d) as u64, bytemuck::cast_slice(&rows));
        }
        let ahead = slots.ahead.min(MAX_AHEAD).min(self.network.ctx_len - self.len - m);
        let steps = self.ahead_passes((self.len + m, slots.at + m), (ahead, logits));
        for (index, step) in steps.iter().enumerate() {
            self.scratch.write_slot(&gpu, (step, MAX_SLOTS + index), PASSES + 1 + index);
        }
        let is_fused = count > 1;
        let last = self.ending.scored((&gpu, &self.scratch), last, true);
        // rows that join are copied once
        let repeats = passes.len() == 1 && self.copied == self.joined.len();
        let sizes = |pass: &PassRows| if repeats { slots.sizes(pass, (ahead, is_fused)) } else { Vec::new() };
        let mut expected = std::mem::take(&mut self.expected);
        let recorded =
            expected.take(&sizes(&passes[0]), || self.record_passes(&passes, (&last, &steps), (&slots, is_fused)));
        let submitted = recorded.submit(&gpu);
        let next = PassRows { logits, ..PassRows::chain(self.len + m, m) };
        let scored = if m == 1 { &next } else { &last };
        let steps = self.ahead_passes((self.len + 2 * m, slots.at + 2 * m), (ahead, logits));
        let prepare = || self.record_passes(std::slice::from_ref(&next), (scored, &steps), (&slots, is_fused));
        expected.prepare(sizes(&next), prepare);
        self.expected = expected;
        let (mut reading, work) = submitted.read(&gpu, &self.back)?;
        (self.work, self.copied) = (self.work.and(work), self.joined.len());
        let states = reading.numbers(m * d);
        let scored = self.ending.head.take(&mut reading, &last, slots.logits);
        let step = |_| {
            let state = reading.numbers(d);
            Ahead { token: 0, state, scored: self.ending.head.take(&mut reading, &last, slots.logits) }
        };
        let mut ahead: Vec<Ahead> = (0..ahead).map(step).collect();
        let tokens = reading.words(ahead.len());
        ahead.iter_mut().zip(tokens).for_each(|(step, token)| step.token = *token);
        self.len += m;
        Ok(ModuleOutput { states, scored, ahead })
    }

    /// Counts the next slot that ran ahead as cached, without running it again.
    pub fn take_ahead(&mut self) {
        self.len += 1;
    }

    /// Passes that run ahead, each over one slot, from a position in the cache and a rotary position on.
    fn ahead_passes(&self, (base, at): (usize, usize), (count, logits): (usize, usize)) -> Vec<PassRows> {
        (0..count).map(|index| PassRows { at: at + index, logits, ..PassRows::chain(base + index, 1) }).collect()
    }

    /// Records passes over slots that follow each other, of which these rows of the last get logits, those that run ahead,
    /// and what the host reads of them.
    fn record_passes(
        &self,
        passes: &[PassRows],
        (scored, ahead): (&PassRows, &[PassRows]),
        slots: (&Slots<'_>, bool),
    ) -> Recorded {
        let mut recording = Recording::new(&self.network.gpu, &self.back);
        self.record_joined(&mut recording);
        for (index, pass) in passes.iter().enumerate() {
            self.record(&mut recording, (pass, index), slots);
        }
        let row = 4 * self.weights.shape.d_model as u64;
        let m: usize = passes.iter().map(PassRows::m).sum();
        recording.read_states(&self.states, 0, m as u64 * row);
        if let Some(last) = passes.last() {
            let run = (last, passes.len() - 1);
            self.ending.record(&mut recording, (&self.scratch.x, run), (scored, slots.0.logits));
        }
        for (index, pass) in ahead.iter().enumerate() {
            self.record_ahead(&mut recording, (pass, PASSES + 1 + index), slots.0);
        }
        recording.read(&self.tokens, 4 * MAX_SLOTS as u64, 4 * ahead.len() as u64);
        recording.close()
    }

    /// One slot that reads the best token of the slot before and its state; the host reads its own.
    fn record_ahead(&self, recording: &mut Recording<'_>, (pass, slot): (&PassRows, usize), slots: &Slots<'_>) {
        let row = 4 * self.weights.shape.d_model as u64;
        let state = if slots.before_norm { &self.scratch.x } else { &self.scratch.acts.values };
        recording.copy((state, 0), (&self.rows[0], 0), row);
        let Launches { embed, embedding_norm, hidden_norm, project, block, pick, .. } = &self.launches;
        let start = [pick].into_iter().chain(embed).chain([embedding_norm, hidden_norm]);
        let rest = project[usize::from(slots.hidden_first)].iter().chain(block).chain([&self.ending.final_norm]);
        recording.launch(start.chain(rest), (pass, slot));
        recording.read_states(state, 0, row);
        self.ending.head.record(recording, (pass, slot), slots.logits);
    }

    fn record(&self, recording: &mut Recording<'_>, run: (&PassRows, usize), (slots, is_fused): (&Slots<'_>, bool)) {
        let d = self.weights.shape.d_model;
        let (bytes, first) = (4 * (run.0.m() * d) as u64, 4 * (run.1 * self.scratch.prompt_rows * d) as u64);
        let states = if is_fused { self.rows.len() } else { 1 };
        for (state, rows) in self.rows.iter().enumerate().take(states) {
            let from = (4 * state * MAX_SLOTS * d) as u64 + first;
            recording.copy((&self.hidden, from), (rows, 0), bytes);
        }
        let Launches { embed, embedding_norm, fuse, hidden_norm, project, block, .. } = &self.launches;
        let fuse = fuse.iter().filter(|_| is_fused).flatten();
        let start = embed.iter().chain([embedding_norm]).chain(fuse).chain([hidden_norm]);
        let rest = project[usize::from(slots.hidden_first)].iter().chain(block).chain([&self.ending.final_norm]);
        recording.launch(start.chain(rest), run);
        let from = if slots.before_norm { &self.scratch.x } else { &self.scratch.acts.values };
        recording.copy((from, 0), (&self.states, first), bytes);
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
        fork.set_joined(&self.joined);
        Ok(fork)
    }
}
