//! Where the states of a sequence with recurrent layers are known, and how a pass moves them on.
//!
//! The device keeps the state at [`base`](Recurrence), runs the rows after it again at the start of each pass, and
//! stores the state where that is as far as rows are rolled back. Invariant: a length that [`Recurrence::rewindable`]
//! returns can be cut back to without running a token.

use crate::device::Gpu;
use crate::kernels::{MAX_ROWS, PassRows, SLOT_BYTES, Store};
use crate::launches::{Op, launch};
use crate::memory::{DeltaMemory, KEPT_ROWS, LayerCache};

/// Most copies of states at the ends of prompts.
const MARKS: usize = 3;

/// Fewest rows before a prompt's end at which a copy is kept.
const TAIL: usize = MAX_ROWS;

/// Of each recurrent layer a state and the rows before the convolution.
type States = Vec<[wgpu::Buffer; 2]>;

/// A copy of the states at one length.
#[derive(Debug)]
struct Mark {
    at: usize,
    states: States,
}

/// Where states are known.
#[derive(Debug)]
pub(crate) struct Recurrence {
    /// Length whose states the device keeps.
    base: usize,
    /// A shorter length whose states it keeps too, if rows ran alone since.
    older: Option<usize>,
    /// In the order in which they were made.
    marks: Vec<Mark>,
    /// Room for more; with the marks there are [`MARKS`].
    free: Vec<States>,
    /// The launches that run states alone.
    states: Vec<Op>,
}

impl Recurrence {
    /// Of an empty sequence with these launches of [`Kernel::Delta`](crate::Kernel::Delta).
    pub(crate) fn new(states: Vec<Op>, (gpu, caches): (&Gpu, &[LayerCache])) -> Self {
        let like = |buffer: &wgpu::Buffer| gpu.storage(buffer.size() as usize);
        let room = |_| memories(caches).map(|memory| [like(&memory.state), like(&memory.raw)]).collect();
        Self { base: 0, older: None, marks: Vec::new(), free: (0..MARKS).map(room).collect(), states }
    }

    /// The longest length up to `len` that can be cut back to.
    pub(crate) fn rewindable(&self, len: usize) -> usize {
        if len >= self.older.unwrap_or(self.base) {
            return len;
        }
        self.marks.iter().map(|mark| mark.at).filter(|at| *at <= len).max().unwrap_or(0)
    }

    /// Says what the passes of a submission that begins at `len` run again and store; `goes_on`: another follows.
    ///
    /// Passes of more than [`MAX_ROWS`] rows run none again, because rings have no room for them:
    /// a prompt's states are stored before its first pass ([`Recurrence::begin_prompt`]) and after each, except the last two
    /// of its last submission.
    pub(crate) fn plan(
        &mut self,
        (gpu, caches): (&Gpu, &[LayerCache]),
        (len, goes_on): (usize, bool),
        passes: &mut [PassRows],
    ) {
        let again = len - self.base;
        if goes_on {
            for (index, pass) in passes.iter_mut().enumerate() {
                (pass.again, pass.store) = (if index == 0 { again } else { 0 }, Store::After);
            }
            (self.base, self.older) = (passes.last().map_or(len, |pass| pass.base + pass.m()), None);
            return;
        }
        if let [first @ .., before, last] = passes {
            // the rows of the last two passes can run again
            let stored = first.iter_mut().map(|pass| (pass, Store::After)).chain([(&mut *before, Store::Before)]);
            for (index, (pass, store)) in stored.enumerate() {
                (pass.again, pass.store) = (if index == 0 { again } else { 0 }, store);
            }
            (last.again, last.store) = (before.m(), Store::Nothing);
            (self.base, self.older) = (before.base, None);
            return;
        }
        let Some(pass) = passes.first_mut() else { return };
        pass.again = again;
        if pass.m() == 1 && again < KEPT_ROWS {
            return; // as many rows that run alone can be rolled back as a pass has
        }
        self.older = (pass.m() == 1 && again == KEPT_ROWS).then_some(self.base);
        if self.older.is_some() {
            copy(gpu, memories(caches).map(|memory| (&memory.state, &memory.older)));
        }
        pass.store = Store::Before;
        self.base = len;
    }

    /// Cuts back to a length; to the longest known one if its states are not known. Returns it.
    pub(crate) fn rewind(&mut self, (gpu, caches): (&Gpu, &[LayerCache]), len: usize) -> usize {
        let len = self.rewindable(len);
        let marks = std::mem::take(&mut self.marks);
        let (kept, dropped): (Vec<Mark>, Vec<Mark>) = marks.into_iter().partition(|mark| mark.at <= len);
        self.marks = kept;
        self.free.extend(dropped.into_iter().map(|mark| mark.states));
        if len >= self.base {
            return len;
        }
        match (self.older, self.marks.iter().find(|mark| mark.at == len)) {
            (Some(older), _) if len >= older => {
                copy(gpu, memories(caches).map(|memory| (&memory.older, &memory.state)));
                self.base = older;
            }
            (_, Some(mark)) => {
                let pairs = memories(caches).zip(&mark.states);
                copy(gpu, pairs.flat_map(|(m, [state, raw])| [(state, &m.state), (raw, &m.raw)]));
                self.base = len;
            }
            _ => self.base = 0,
        }
        self.older = None;
        len
    }

    /// Before a prompt: keeps a copy of the states at `len`, so that an error or a new turn can return to it.
    pub(crate) fn begin_prompt(
        &mut self,
        (gpu, caches): (&Gpu, &[LayerCache]),
        (run, slot, len): (&wgpu::Buffer, usize, usize),
    ) {
        if len > self.base {
            let pass = PassRows { again: len - self.base, store: Store::Before, ..PassRows::chain(len, 0) };
            gpu.write(run, slot as u64 * SLOT_BYTES, bytemuck::cast_slice(&pass.words(0)));
            let mut encoder = gpu.encoder();
            launch(gpu, &mut encoder, &self.states, (&pass, slot));
            gpu.submit(encoder);
            (self.base, self.older) = (len, None);
        }
        if len > 0 {
            self.mark((gpu, caches));
        }
    }

    /// After a prompt of so many tokens: keeps a copy near its end, where the next prompt of a conversation often differs.
    pub(crate) fn end_prompt(&mut self, device: (&Gpu, &[LayerCache]), tokens: usize) {
        if tokens > 2 * TAIL && self.base > 0 {
            self.mark(device);
        }
    }

    /// Room for a mark: that of the oldest one, if all is taken.
    fn room(&mut self) -> Option<States> {
        self.free.pop().or_else(|| self.marks.drain(..1.min(self.marks.len())).next().map(|mark| mark.states))
    }

    /// Keeps a copy of the states at the base.
    fn mark(&mut self, (gpu, caches): (&Gpu, &[LayerCache])) {
        if self.marks.iter().any(|mark| mark.at == self.base) {
            return;
        }
        let Some(states) = self.room() else { return };
        let pairs = memories(caches).zip(&states);
        copy(gpu, pairs.flat_map(|(m, [state, raw])| [(&m.state, state), (&m.raw, raw)]));
        self.marks.push(Mark { at: self.base, states });
    }

    /// Takes over the states of another sequence.
    pub(crate) fn copy_from(&mut self, other: &Self, gpu: &Gpu, (from, to): (&[LayerCache], &[LayerCache])) {
        let pairs = memories(from).zip(memories(to));
        copy(gpu, pairs.flat_map(|(from, to)| from.buffers().into_iter().zip(to.buffers())));
        (self.base, self.older) = (other.base, other.older);
        self.free.extend(self.marks.drain(..).map(|mark| mark.states));
        for mark in &other.marks {
            let Some(states) = self.room() else { return };
            copy(gpu, mark.states.iter().flatten().zip(states.iter().flatten()));
            self.marks.push(Mark { at: mark.at, states });
        }
    }
}

fn memories(caches: &[LayerCache]) -> impl Iterator<Item = &DeltaMemory> {
    caches.iter().filter_map(|cache| cache.delta.as_ref())
}

fn copy<'a>(gpu: &Gpu, pairs: impl Iterator<Item = (&'a wgpu::Buffer, &'a wgpu::Buffer)>) {
    let mut encoder = gpu.encoder();
    for (from, to) in pairs {
        encoder.copy_buffer_to_buffer(from, 0, to, 0, from.size());
    }
    gpu.submit(encoder);
}
