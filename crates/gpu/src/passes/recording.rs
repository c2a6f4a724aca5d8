//! One submission: launches and copies recorded in order, what the host reads of it, and the time it took on the device.
//!
//! Invariant: everything that a submission gives is read in one piece, so a submission is waited for once.

use wgpu::Buffer;

use crate::GpuError;
use crate::device::{Gpu, Work};
use crate::kernels::{MAX_ROWS, PassRows};
use crate::launches::Op;

/// Launches after whose end the device notes the time: later ones of the same submission do not count.
const MOST_STAMPS: u32 = 255;

/// Bytes between two times where the device stores them.
const STAMP_BYTES: u64 = 256;

/// Bytes of two times.
const STAMPS_READ: u64 = 16;

/// Where the host reads the results of a sequence's submissions.
#[derive(Debug)]
pub(crate) struct Readback {
    buffer: Buffer,
    stamps: Option<Stamps>,
}

/// Where the device notes times.
#[derive(Debug)]
struct Stamps {
    set: wgpu::QuerySet,
    /// The first and the last, [`STAMP_BYTES`] apart.
    resolved: Buffer,
}

impl Readback {
    /// For so many bytes at most.
    pub(crate) fn new(gpu: &Gpu, bytes: usize) -> Self {
        let stamps = gpu.time_stamps(MOST_STAMPS + 1, 2 * STAMP_BYTES).map(|(set, resolved)| Stamps { set, resolved });
        Self { buffer: gpu.readable(bytes as u64 + STAMPS_READ), stamps }
    }
}

/// A submission that is being recorded.
pub(crate) struct Recording<'a> {
    gpu: &'a Gpu,
    back: &'a Readback,
    encoder: wgpu::CommandEncoder,
    /// Bytes to read.
    end: u64,
    stamped: u32,
    work: Work,
}

impl<'a> Recording<'a> {
    pub(crate) fn new(gpu: &'a Gpu, back: &'a Readback) -> Self {
        let work = Work { submissions: 1, ..Work::default() };
        Self { gpu, back, encoder: gpu.encoder(), end: 0, stamped: 0, work }
    }

    /// Launches for the pass in a slot.
    pub(crate) fn launch<'o>(&mut self, ops: impl IntoIterator<Item = &'o Op>, run: (&PassRows, usize)) {
        let stamps = self.back.stamps.as_ref().filter(|_| self.stamped < MOST_STAMPS);
        let timestamp_writes = stamps.map(|stamps| wgpu::ComputePassTimestampWrites {
            query_set: &stamps.set,
            beginning_of_pass_write_index: (self.stamped == 0).then_some(0),
            end_of_pass_write_index: Some(self.stamped + 1),
        });
        self.stamped += u32::from(timestamp_writes.is_some());
        let descriptor = wgpu::ComputePassDescriptor { label: None, timestamp_writes };
        let mut pass = self.encoder.begin_compute_pass(&descriptor);
        for op in ops {
            self.work.dispatches += op.launch(self.gpu, &mut pass, run);
        }
    }

    /// Copies bytes between buffers.
    pub(crate) fn copy(&mut self, (from, at): (&Buffer, u64), (to, to_at): (&Buffer, u64), bytes: u64) {
        if bytes > 0 {
            self.encoder.copy_buffer_to_buffer(from, at, to, to_at, bytes);
        }
    }

    /// For copies of other kinds.
    pub(crate) fn encoder(&mut self) -> &mut wgpu::CommandEncoder {
        &mut self.encoder
    }

    /// The host reads these bytes as they are now, after those that it reads already.
    pub(crate) fn read(&mut self, from: &Buffer, at: u64, bytes: u64) {
        if bytes > 0 {
            self.encoder.copy_buffer_to_buffer(from, at, &self.back.buffer, self.end, bytes);
            self.end += bytes;
        }
    }

    /// The same, for hidden states, which are counted for themselves.
    pub(crate) fn read_states(&mut self, from: &Buffer, at: u64, bytes: u64) {
        self.work.state_bytes += bytes;
        self.read(from, at, bytes);
    }

    /// Ends the recording.
    pub(crate) fn close(mut self) -> Recorded {
        let states_end = self.end;
        if let Some(stamps) = self.back.stamps.as_ref().filter(|_| self.stamped > 0) {
            for (place, stamp) in [(0, 0), (1, self.stamped)] {
                self.encoder.resolve_query_set(&stamps.set, stamp..stamp + 1, &stamps.resolved, place * STAMP_BYTES);
                let from = place * STAMP_BYTES;
                self.encoder.copy_buffer_to_buffer(
                    &stamps.resolved,
                    from,
                    &self.back.buffer,
                    self.end,
                    STAMPS_READ / 2,
                );
                self.end += STAMPS_READ / 2;
            }
        }
        let work = Work { read_bytes: self.end, ..self.work };
        Recorded { commands: self.encoder.finish(), end: states_end, work }
    }

    /// Submits, waits, and reads.
    ///
    /// # Errors
    /// What the driver reports.
    pub(crate) fn finish(self) -> Result<(Reading, Work), GpuError> {
        let (gpu, back) = (self.gpu, self.back);
        self.close().submit(gpu).read(gpu, back)
    }
}

/// A recorded submission. It holds no numbers that differ between passes of the same sizes: those are in buffers, so it can
/// be recorded before they are known.
#[derive(Debug)]
pub(crate) struct Recorded {
    commands: wgpu::CommandBuffer,
    /// Bytes to read, without times.
    end: u64,
    work: Work,
}

impl Recorded {
    /// Hands it to the device.
    pub(crate) fn submit(self, gpu: &Gpu) -> Submitted {
        gpu.submit_recorded(self.commands);
        Submitted { end: self.end, work: self.work }
    }
}

/// A submission that the device works on.
#[must_use]
pub(crate) struct Submitted {
    end: u64,
    work: Work,
}

impl Submitted {
    /// Waits, and reads.
    ///
    /// # Errors
    /// What the driver reports.
    pub(crate) fn read(mut self, gpu: &Gpu, back: &Readback) -> Result<(Reading, Work), GpuError> {
        let mut words = gpu.read(&back.buffer, self.work.read_bytes)?;
        let times = words.split_off((self.end / 4) as usize);
        if let [from, from_high, to, to_high] = times[..] {
            let number = |low: u32, high: u32| u64::from(high) << 32 | u64::from(low);
            let ticks = number(to, to_high).saturating_sub(number(from, from_high));
            self.work.device_ns = gpu.nanoseconds(ticks);
        }
        gpu.count(self.work);
        Ok((Reading { words, at: 0 }, self.work))
    }
}

/// Submissions that a sequence is expected to need again, each recorded while the device worked on one of the same sizes:
/// recording takes the host as long as some devices need for a pass.
#[derive(Debug, Default)]
pub(crate) struct Expected {
    /// With what decides its commands, the latest last.
    recorded: Vec<(Vec<usize>, Recorded)>,
}

/// Most submissions that are kept: one for each number of rows of a pass.
const MOST_RECORDED: usize = MAX_ROWS;

impl Expected {
    /// The recorded submission of these sizes, or a new recording. Empty sizes are never those of another.
    pub(crate) fn take(&mut self, sizes: &[usize], record: impl FnOnce() -> Recorded) -> Recorded {
        match self.recorded.iter().position(|(of, _)| of == sizes && !sizes.is_empty()) {
            Some(index) => self.recorded.remove(index).1,
            None => record(),
        }
    }

    /// Records a submission of these sizes, unless there is one, or they are empty.
    pub(crate) fn prepare(&mut self, sizes: Vec<usize>, record: impl FnOnce() -> Recorded) {
        if sizes.is_empty() || self.recorded.iter().any(|(of, _)| *of == sizes) {
            return;
        }
        if self.recorded.len() == MOST_RECORDED {
            self.recorded.remove(0);
        }
        self.recorded.push((sizes, record()));
    }

    /// Forgets what is recorded: its buffers are no longer those of the sequence.
    pub(crate) fn forget(&mut self) {
        self.recorded.clear();
    }
}

/// What the host read, taken piece by piece in the order of recording.
pub(crate) struct Reading {
    words: Vec<u32>,
    at: usize,
}

impl Reading {
    /// The next words; fewer if there are no more.
    pub(crate) fn words(&mut self, count: usize) -> &[u32] {
        let start = self.at.min(self.words.len());
        self.at = (start + count).min(self.words.len());
        &self.words[start..self.at]
    }

    /// The next numbers.
    pub(crate) fn numbers(&mut self, count: usize) -> Vec<f32> {
        self.words(count).iter().map(|word| f32::from_bits(*word)).collect()
    }
}
