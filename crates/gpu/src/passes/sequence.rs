//! A sequence over a target: a cache of its own, and the passes that run over it.
//!
//! A prompt's passes are recorded one after the other into one submission. Invariant: a sequence's buffers are made
//! when it is, or when other hidden states are asked for; a pass creates none.

use std::sync::Arc;

use super::head::{Ending, Head, Logits};
use super::recording::{Expected, Readback, Recorded, Recording};
use super::recurrent::Recurrence;
use super::request::{Output, Request};
use crate::GpuError;
use crate::device::Work;
use crate::kernels::{MAX_ROWS, PassRows};
use crate::launches::{Binder, Op};
use crate::memory::{LayerCache, Scratch, copy_caches, move_rows};
use crate::weights::{BlockWeights, Network};

/// Passes of 16 rows of one submission; those of a prompt are longer and fewer. One more is for the row of a prompt that
/// gets logits.
pub(crate) const PASSES: usize = 32;

/// A cache and all that runs over it.
#[derive(Debug)]
pub struct Sequence {
    scratch: Scratch,
    caches: Vec<LayerCache>,
    blocks: Vec<Vec<Op>>,
    embed: Vec<Op>,
    ending: Ending,
    tokens: wgpu::Buffer,
    /// `[states][rows][d_model]` of one submission.
    states: wgpu::Buffer,
    back: Readback,
    expected: Expected,
    /// States that buffers have room for.
    room: usize,
    len: usize,
    work: Work,
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
        network.check_context()?;
        let caches: Vec<_> = network.blocks.iter().map(|block| LayerCache::new(gpu, (shape, block), ctx_len)).collect();
        let scratch = Scratch::new(gpu, (shape, &network.blocks), (ctx_len, PASSES + 1))?;
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
        let head = Head::new(&binder, (&[&network.head], &scratch.acts, network.style.logit_cap), &tokens);
        let final_norm = binder.norm((&scratch.x, &network.final_norm), (shape.d_model, shape.eps), &scratch.acts);
        let ending = Ending::new(gpu, (head, final_norm), shape.d_model, PASSES);
        let mut embed = binder.embed(network.scaled_table(), &tokens, &scratch.x);
        let of_layers = network.style.layer_table.as_ref();
        embed.extend(of_layers.into_iter().flat_map(|of| binder.layer_inputs(of, &tokens, (&scratch, shape))));
        let delta = |(cache, block): (&LayerCache, &BlockWeights)| {
            Some(binder.delta_state(&block.style.delta.as_ref()?.shape, cache.delta.as_ref()?, &scratch.q))
        };
        let states_alone: Vec<_> = caches.iter().zip(&network.blocks).filter_map(delta).collect();
        let recurrence = (!states_alone.is_empty()).then(|| Recurrence::new(states_alone, (gpu, &caches)));
        let (states, back) = state_buffers(network, &ending.head, 1);
        gpu.check()?;
        let network = Arc::clone(network);
        Ok(Self {
            network,
            scratch,
            caches,
            blocks,
            embed,
            ending,
            tokens,
            states,
            back,
            expected: Expected::default(),
            room: 1,
            len: 0,
            work: Work::default(),
            recurrence,
        })
    }

    /// Its weights.
    #[must_use]
    pub fn network(&self) -> &Arc<Network> {
        &self.network
    }

    /// What its passes did so far. Copies of cached rows are not among them.
    #[must_use]
    pub fn work(&self) -> Work {
        self.work
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

    /// All launches of a pass.
    pub(crate) fn ops(&self) -> impl Iterator<Item = &Op> {
        let blocks = self.blocks.iter().flatten();
        self.embed.iter().chain(blocks).chain([&self.ending.final_norm]).chain(self.ending.head.ops())
    }

    /// Describes a pass to the kernels, in the first slot.
    pub(crate) fn write_pass(&self, pass: &PassRows) {
        self.scratch.write_passes(&self.network.gpu, std::slice::from_ref(pass));
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

    /// Length of the shortest prompt whose first [`MAX_ROWS`] rows run in a wider pass.
    pub(crate) fn rows_for_a_tile(&self) -> usize {
        if self.is_recurrent() { 3 * MAX_ROWS + 1 } else { MAX_ROWS + 1 }
    }

    /// The longest length up to `len` that it can be cut back to.
    #[must_use]
    pub fn rewindable(&self, len: usize) -> usize {
        let len = len.min(self.len);
        self.recurrence.as_ref().map_or(len, |recurrence| recurrence.rewindable(len))
    }

    /// Forgets submissions recorded ahead, which have the kernels of their time.
    pub(crate) fn forget_recorded(&mut self) {
        self.expected.forget();
    }

    /// Makes room for so many hidden states of each row.
    ///
    /// # Errors
    /// As [`Sequence::new`].
    pub fn set_states(&mut self, count: usize) -> Result<(), GpuError> {
        if count > self.room {
            (self.states, self.back) = state_buffers(&self.network, &self.ending.head, count);
            self.room = count;
            self.expected.forget();
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
        let most = if request.logits == Logits::Last { PASSES * MAX_ROWS } else { MAX_ROWS };
        let parts = request.tokens.chunks(most);
        let last = parts.len().saturating_sub(1);
        for (index, tokens) in parts.enumerate() {
            let goes_on = request.logits == Logits::Last && index < last;
            self.submission(Request { tokens, ..request }, goes_on, &mut output)?;
        }
        if let Some(recurrence) = self.recurrence.as_mut().filter(|_| is_prompt) {
            recurrence.end_prompt((&self.network.gpu, &self.caches), count);
        }
        Ok(output)
    }

    /// Runs the tokens of one submission. `goes_on`: another follows, and only the last one's logits are wanted.
    fn submission(&mut self, request: Request<'_>, goes_on: bool, output: &mut Output) -> Result<(), GpuError> {
        let gpu = Arc::clone(&self.network.gpu);
        let (tokens, d) = (request.tokens, self.network.shape.d_model);
        let mut passes = match request.parents {
            Some(parents) => vec![PassRows::tree(self.len, parents)],
            None if self.recurrence.is_some() && !goes_on => {
                PassRows::cut_for_states((self.len, tokens.len()), self.scratch.prompt_rows)
            }
            None => PassRows::cut((self.len, tokens.len()), self.scratch.prompt_rows),
        };
        if let Some(recurrence) = &mut self.recurrence {
            recurrence.plan((&gpu, &self.caches), (self.len, goes_on), &mut passes);
        }
        let Some(last) = passes.last() else { return Ok(()) };
        let (last, rows) = (last.clone(), tokens.len());
        self.scratch.write_passes(&gpu, &passes);
        gpu.write(&self.tokens, 0, bytemuck::cast_slice(tokens));
        let numbers = request.states.len() * rows * d;
        let last_only = request.logits == Logits::Last;
        let scored = (!goes_on).then(|| self.ending.scored((&gpu, &self.scratch), &last, last_only));
        let repeats = request.parents.is_none() && passes.len() == 1 && rows <= MAX_ROWS;
        let sizes = |pass: &PassRows| if repeats { request.sizes(pass) } else { Vec::new() };
        let mut expected = std::mem::take(&mut self.expected);
        let scored_rows = scored.as_ref();
        let recorded = expected.take(&sizes(&last), || self.record_passes(&passes, &request, scored_rows));
        let submitted = recorded.submit(&gpu);
        let next = PassRows::chain(self.len + rows, rows);
        let scored_next = scored.as_ref().map(|scored| if scored.m() == rows { &next } else { scored });
        let prepare = || self.record_passes(std::slice::from_ref(&next), &request, scored_next);
        expected.prepare(sizes(&next), prepare);
        self.expected = expected;
        let (mut reading, work) = submitted.read(&gpu, &self.back)?;
        self.work = self.work.and(work);
        let states = reading.numbers(numbers);
        for row in 0..rows {
            for state in 0..request.states.len() {
                output.hidden.extend(&states[(state * rows + row) * d..][..d]);
            }
        }
        if let Some(rows) = scored {
            output.scored.append(self.ending.head.take(&mut reading, &rows, request.logits));
        }
        self.len += rows;
        Ok(())
    }

    /// Records passes that follow each other, and what the host reads of them: logits of these rows of the last, or none if
    /// another submission goes on.
    fn record_passes(&self, passes: &[PassRows], request: &Request<'_>, scored: Option<&PassRows>) -> Recorded {
        let (rows, first) = (request.tokens.len(), passes.first().map_or(0, |pass| pass.base));
        let mut recording = Recording::new(&self.network.gpu, &self.back);
        for (slot, pass) in passes.iter().enumerate() {
            self.record(&mut recording, (pass, slot), (request, rows, first));
        }
        let numbers = request.states.len() * rows * self.network.shape.d_model;
        recording.read_states(&self.states, 0, 4 * numbers as u64);
        if let Some((scored, last)) = scored.zip(passes.last()) {
            let run = (last, passes.len() - 1);
            self.ending.record(&mut recording, (&self.scratch.x, run), (scored, request.logits));
        }
        recording.close()
    }

    /// One pass up to the final norm; its states go after those of the passes before, of which the first began at `first`.
    fn record(
        &self,
        recording: &mut Recording<'_>,
        run: (&PassRows, usize),
        (request, rows, first): (&Request<'_>, usize, usize),
    ) {
        let d = self.network.shape.d_model;
        let bytes = (4 * run.0.m() * d) as u64;
        let keep = |recording: &mut Recording<'_>, place: Option<usize>, from: &wgpu::Buffer| {
            for (state, _) in request.states.iter().enumerate().filter(|(_, wanted)| **wanted == place) {
                let to = 4 * (state * rows + run.0.base - first) * d;
                recording.copy((from, 0), (&self.states, to as u64), bytes);
            }
        };
        let mut pending: Vec<&Op> = self.embed.iter().collect();
        for index in 0..=request.layers {
            if request.states.contains(&Some(index)) {
                recording.launch(pending.drain(..), run);
                keep(recording, Some(index), &self.scratch.x);
            }
            pending.extend(self.blocks.get(index).filter(|_| index < request.layers).into_iter().flatten());
        }
        recording.launch(pending.into_iter().chain([&self.ending.final_norm]), run);
        keep(recording, None, &self.scratch.acts.values);
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
            move_rows(&mut encoder, &self.caches, (base, &moves), self.ending.head.logits());
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

/// Room for so many states of all rows of a submission, and for all that the host reads.
fn state_buffers(network: &Network, head: &Head, states: usize) -> (wgpu::Buffer, Readback) {
    let bytes = 4 * states * PASSES * MAX_ROWS * network.shape.d_model;
    (network.gpu.storage(bytes), Readback::new(&network.gpu, bytes + head.most_bytes()))
}
