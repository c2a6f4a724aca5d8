//! The output head of a sequence: logits, their statistics, the largest of them, and what the host reads.

use super::recording::{Reading, Recording};
use crate::device::Gpu;
use crate::kernels::{MAX_ROWS, PassRows};
use crate::launches::{Binder, Op};
use crate::memory::{Acts, Scratch};
use crate::weights::Matrix;

/// Largest logits of a row that are read if not all are.
pub const BEST: usize = 32;

/// Logits that a [`Stretch`] summarises.
pub const STRETCH: usize = 512;

/// Stretches of a row that the kernel of the largest logits has room for.
const MOST_STRETCHES: usize = 1024;

/// Which logits the host reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Logits {
    /// All of the last row.
    Last,
    /// All of every row.
    All,
    /// Of every row the [`BEST`] largest, and those of the tokens of the rows that continue it.
    Best,
}

/// A summary of at most [`STRETCH`] logits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stretch {
    /// The largest.
    pub max: f32,
    /// `Σ e^(logit − max)`; NaN if a logit is not finite.
    pub sum: f32,
    /// Index of the first largest in its row.
    pub argmax: u32,
}

/// What the host read of rows of logits.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Scored {
    /// `[rows][logits]`; empty for [`Logits::Best`].
    pub logits: Vec<f32>,
    /// `[rows][stretches]`
    pub stretches: Vec<Stretch>,
    /// For [`Logits::Best`], of each row: index and logit of the largest, largest first, then of other tokens.
    pub best: Vec<Vec<(u32, f32)>>,
}

impl Scored {
    pub(crate) fn append(&mut self, other: Self) {
        self.logits.extend(other.logits);
        self.stretches.extend(other.stretches);
        self.best.extend(other.best);
    }
}

/// Launches of a head, and its buffers.
#[derive(Debug)]
pub(crate) struct Head {
    ops: Vec<Op>,
    best: Option<Op>,
    logits: wgpu::Buffer,
    stats: wgpu::Buffer,
    found: wgpu::Buffer,
    /// Logits of a row as stored.
    width: usize,
}

impl Head {
    /// Logits are those of the matrices, one after the other, capped.
    pub(crate) fn new(
        binder: &Binder<'_>,
        (matrices, acts, cap): (&[&Matrix], &Acts, Option<f32>),
        tokens: &wgpu::Buffer,
    ) -> Self {
        let gpu = binder.gpu;
        let width: usize = matrices.iter().map(|matrix| matrix.rows()).sum();
        let stretches = width.div_ceil(STRETCH);
        let logits = gpu.storage(4 * MAX_ROWS * width);
        let stats = gpu.storage(16 * MAX_ROWS * stretches);
        let found = gpu.storage(8 * MAX_ROWS * (BEST + 1));
        let (mut ops, mut first) = (Vec::new(), 0);
        for matrix in matrices {
            ops.extend(binder.product((matrix, acts), (&logits, width, first), false));
            first += matrix.rows();
        }
        ops.extend(cap.map(|cap| binder.cap((&logits, width), cap)));
        ops.push(binder.stats(&logits, width, &stats));
        let best = (stretches <= MOST_STRETCHES).then(|| binder.best((&logits, &stats), width, (tokens, &found)));
        Self { ops, best, logits, stats, found, width }
    }

    /// All of its launches.
    pub(crate) fn ops(&self) -> impl Iterator<Item = &Op> {
        self.ops.iter().chain(&self.best)
    }

    /// Bytes that the host reads of one submission at most.
    pub(crate) fn most_bytes(&self) -> usize {
        MAX_ROWS * (4 * self.width + 16 * self.width.div_ceil(STRETCH) + 8 * (BEST + 1))
    }

    /// Its logits of the last pass, `[rows][width]`.
    pub(crate) fn logits(&self) -> &wgpu::Buffer {
        &self.logits
    }

    /// Statistics of its logits, `[rows][stretches]`.
    pub(crate) fn stats(&self) -> &wgpu::Buffer {
        &self.stats
    }

    /// What can be read where this is wanted.
    fn reads_best(&self, wanted: Logits) -> bool {
        wanted == Logits::Best && self.best.is_some()
    }

    /// Records the head over the normed rows of a pass, and the reading of its results.
    pub(crate) fn record(&self, recording: &mut Recording<'_>, run: (&PassRows, usize), wanted: Logits) {
        let best = self.best.iter().filter(|_| self.reads_best(wanted));
        recording.launch(self.ops.iter().chain(best), run);
        let (m, logits) = (run.0.m(), self.count(run.0));
        let bytes = |each: usize, stored: usize, last: usize| (each * ((m - 1) * stored + last)) as u64;
        let stretches = bytes(16, self.width.div_ceil(STRETCH), logits.div_ceil(STRETCH));
        recording.read(&self.stats, 0, stretches);
        if self.reads_best(wanted) {
            recording.read(&self.found, 0, bytes(8, BEST + 1, BEST + 1));
        } else {
            recording.read(&self.logits, 0, bytes(4, self.width, logits));
        }
    }

    /// Logits of a row that count.
    fn count(&self, rows: &PassRows) -> usize {
        if rows.logits == 0 { self.width } else { rows.logits }
    }

    /// What [`Head::record`] gave.
    pub(crate) fn take(&self, reading: &mut Reading, rows: &PassRows, wanted: Logits) -> Scored {
        let (m, logits) = (rows.m(), self.count(rows));
        let stretches = (m - 1) * self.width.div_ceil(STRETCH) + logits.div_ceil(STRETCH);
        let stretch =
            |&[max, sum, argmax, _]: &[u32; 4]| Stretch { max: f32::from_bits(max), sum: f32::from_bits(sum), argmax };
        let stretches = reading.words(4 * stretches).as_chunks().0.iter().map(stretch).collect();
        if !self.reads_best(wanted) {
            let logits = reading.numbers((m - 1) * self.width + logits);
            return Scored { logits, stretches, best: Vec::new() };
        }
        let found: Vec<(u32, f32)> = (reading.words(2 * m * (BEST + 1)).as_chunks().0.iter())
            .map(|&[index, logit]| (index, f32::from_bits(logit)))
            .collect();
        let of_rows = found.chunks(BEST + 1);
        let mut best: Vec<Vec<_>> = of_rows
            .clone()
            .map(|row| row.iter().take(BEST).filter(|(index, _)| (*index as usize) < logits).copied().collect())
            .collect();
        // the last entry of a row belongs to the row that it continues
        for (own, parent) in of_rows.zip(rows.parents()) {
            let own = own.last().filter(|(token, _)| (*token as usize) < logits);
            if let Some((own, row)) = own.zip(parent.and_then(|parent| best.get_mut(parent))) {
                row.push(*own);
            }
        }
        Scored { logits: Vec::new(), stretches, best }
    }
}

/// The buffers and launches between the blocks of a sequence and what the host reads.
#[derive(Debug)]
pub(crate) struct Ending {
    pub(crate) head: Head,
    pub(crate) final_norm: Op,
    /// Where the last row's state is kept while the other rows are in its way.
    spare: wgpu::Buffer,
    row_bytes: u64,
    /// Slot of the pass over the last row alone.
    slot: usize,
}

impl Ending {
    pub(crate) fn new(gpu: &Gpu, (head, final_norm): (Head, Op), d_model: usize, slot: usize) -> Self {
        Self { head, final_norm, spare: gpu.storage(4 * d_model), row_bytes: 4 * d_model as u64, slot }
    }

    /// The rows of a pass that get logits: all, or the last one alone, which is described to the kernels here.
    pub(crate) fn scored(&self, (gpu, scratch): (&Gpu, &Scratch), rows: &PassRows, last_only: bool) -> PassRows {
        if rows.m() == 1 || !last_only {
            return rows.clone();
        }
        let one_row = PassRows { logits: rows.logits, ..PassRows::chain(0, 1) };
        scratch.write_slot(gpu, (&one_row, 0), self.slot);
        one_row
    }

    /// Records the head over the rows of a normed pass that get logits.
    pub(crate) fn record(
        &self,
        recording: &mut Recording<'_>,
        (x, run): (&wgpu::Buffer, (&PassRows, usize)),
        (scored, wanted): (&PassRows, Logits),
    ) {
        let m = run.0.m();
        if scored.m() == m {
            self.head.record(recording, run, wanted);
            return;
        }
        recording.copy((x, (m as u64 - 1) * self.row_bytes), (&self.spare, 0), self.row_bytes);
        recording.copy((&self.spare, 0), (x, 0), self.row_bytes);
        recording.launch([&self.final_norm], (scored, self.slot));
        self.head.record(recording, (scored, self.slot), wanted);
    }
}
